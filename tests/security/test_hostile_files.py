"""Hostile files are refused quickly, with an error that names the position."""

import itertools
import json
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from lhkit import match_calls
from lhkit.base.errors import LhkitError, RunError, ScenarioError, UsageError
from lhkit.conversation.events import EndReason
from lhkit.harness.authoring.mutate import mutate, read_survivors
from lhkit.harness.records.record import Trajectory, TurnRecord
from lhkit.harness.results.results import Run
from lhkit.harness.running.suite import load_suite
from lhkit.harness.scenarios import documents, values
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.sample_id import MAX_REPEATS
from lhkit.harness.scenarios.scenario import Scenario, Turn
from lhkit.harness.scenarios.values import is_found, limited_searches, pattern_error
from lhkit.harness.scoring.verdict import ToolMetadata, judge
from lhkit.lifehelper.toolset import LifeHelperToolset
from lhkit.lifehelper.world import parse_world
from tests.rows import check_rows

GOOD = """- id: a{n}
  ac: AC-01
  locale: ko
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns:
    - user: 안녕
      reply: {{matches: "{matches}"}}
"""

FAR = """- id: far
  ac: AC-01
  locale: ko
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns:
    - user: 안녕
      expect:
        order: any
        calls: [{tool: search_catalog, args: {limit: 5}}]
  final: {}
"""


def laughs(levels: int = 9) -> str:
    rows = ["- &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"- &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels + 1)]
    return "\n".join(rows)


@pytest.mark.longer
@check_rows(
    ("text", "line", "sentence"),
    [
        (laughs(), 1, "more than 5000 values"),
        ("- &a [*a]\n", 1, "nested deeper than 60 levels"),
        ("- " + "[" * 20_000, 1, "nested deeper than 60 levels"),
        ("- " * 20_000, 1, "nested deeper than 60 levels"),
        ("- x\n- !!python/object/apply:os.system [touch pwned]\n", 2, "is not allowed"),
        ("- !!python/name:os.system\n", 1, "is not allowed"),
        ("- !!binary aGk=\n", 1, "is not allowed"),
        ("- id: a\n  id: b\n", 2, "duplicate key (first in line 1)"),
        ("- &a {a: 1}\n- {<<: *a}\n", 2, "a key must be a text"),
        ('- id: "a\0b"\n', 1, "#x0000"),
        ("- 1e999999\n", 1, "1e999999 is not a JSON number"),
        ("- id: " + "9" * 5_000 + "\n", 1, "is not a JSON number"),
        ("- .inf\n", 1, "is not a JSON number"),
        ("- a\n---\n- b\n", 2, "another document"),
    ],
    ids=lambda value: repr(value)[:30] if isinstance(value, str) else None,
)
def test_hostile_yaml_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int, sentence: str
) -> None:
    monkeypatch.setattr(documents, "MAX_VALUES", 5_000)
    file = tmp_path / "evil.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as refused:
        load_scenarios([file])
    first = str(refused.value).splitlines()[0]
    assert first.startswith(f"{file}:{line}: ")
    assert sentence in first
    assert len(first) < 400
    assert not (tmp_path / "pwned").exists()


NINES = "9" * 400
NOW = "2026-06-15T09:00:00+09:00"
BEYOND: list[tuple[str, str, int, str]] = [
    ("limit: 5", f"limit: {{approx: {NINES}}}", 9, "approx: must be"),
    ("limit: 5", f"limit: {{approx: 5, abs: {NINES}}}", 9, "abs: must"),
    ("limit: 5", "limit: {approx: 5, rel: .nan}", 9, "not a JSON number"),
    ("limit: 5", "limit: {date: today+99999w}", 9, "within 36525 days"),
    ("limit: 5", f"limit: {{date: today-{NINES}d}}", 9, "must be today"),
    ("final: {}", "final: {a: [{b: {date: today-6000w}}]}", 10, "within"),
    (NOW, "0001-01-01T00:00:00+09:00", 4, "world.now"),
    (NOW, "9999-12-31T23:59:59-09:00", 4, "world.now"),
    (f'"{NOW}"', NINES, 4, "world.now"),
    ("order: any", f"order: {{before: [[0, {NINES}]]}}", 8, "order"),
]


@check_rows(("old", "new", "line", "message"), BEYOND)
def test_load_scenarios_refuses_extreme_numbers_and_dates(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    assert old in FAR
    file = tmp_path / "far.yaml"
    file.write_text(FAR.replace(old, new), encoding="utf-8")
    with pytest.raises(ScenarioError) as refused:
        load_scenarios([file])
    assert str(refused.value).startswith(f"{file}:{line}: far.")
    assert message in str(refused.value)


@check_rows(
    ("world", "field"),
    [
        ({"habits": [{"protocol_id": "x", "created_on": "0001-01-01"}]}, "habits.0.created_on"),
        ({"habits": [{"protocol_id": "x", "created_on": "9999-12-31"}]}, "habits.0.created_on"),
        ({"now": "0001-01-01T00:00:00+09:00"}, "now"),
        ({"now": "9999-12-31T23:59:59-09:00"}, "now"),
        ({"tracker": [{"habit_id": "x", "date": "0001-01-01", "value": "done"}]}, "tracker.0.date"),
    ],
)
def test_parse_world_refuses_dates_outside_the_supported_years(
    world: dict[str, Any], field: str
) -> None:
    with pytest.raises(UsageError, match=rf"world\.{field}: .*the year must be from 1000 to 9000"):
        parse_world({"now": "2026-06-15T09:00:00+09:00", **world})


def test_match_calls_refuses_a_relative_date_beyond_the_calendar() -> None:
    with pytest.raises(ScenarioError, match=r"'today\+1d' is outside of the calendar"):
        match_calls(
            [{"tool": "f", "args": {"day": {"date": "today+1d"}}}],
            [{"tool": "f", "args": {"day": "x"}}],
            schemas={"f": {"type": "object", "properties": {"day": {"type": "string"}}}},
            today=date.max,
        )


@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
@pytest.mark.anyio
async def test_mutate_accepts_dates_at_the_limits_of_the_calendar(tmp_path: Path, day: str) -> None:
    file = tmp_path / "far.yaml"
    call = f'{{tool: query_tracker, args: {{from: "{day}", to: "{day}"}}}}'
    text = FAR.replace("{tool: search_catalog, args: {limit: 5}}", call)
    file.write_text(text, encoding="utf-8")
    report = await mutate(load_scenarios([file]), LifeHelperToolset())
    assert report.total.tried > 0


HUGE = [f"repeats = {'9' * 5_000}", "a = " + "[" * 20_000]


@check_rows(
    ("read", "error", "text"),
    [
        *((load_suite, UsageError, text) for text in (*HUGE, "repeats = 1e400", "limit = nan")),
        *(
            (read_survivors, ScenarioError, text)
            for text in (*HUGE, "survivor = 5", "survivor = [5]")
        ),
    ],
)
def test_toml_readers_refuse_hostile_values(
    tmp_path: Path, read: Callable[[Path], object], error: type[LhkitError], text: str
) -> None:
    file = tmp_path / "some.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(error, match=r"some\.toml"):
        read(file)


@pytest.mark.parametrize("data", [b"- id: \xff\n", "- id: x\n".encode("utf-16")])
def test_load_scenarios_refuses_other_encodings(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes(data)
    with pytest.raises(ScenarioError, match=r"latin\.yaml: cannot be read as UTF-8"):
        load_scenarios([file])


def test_load_scenarios_accepts_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "bom.yaml"
    file.write_text("\ufeff" + GOOD.format(n=1, matches="네"), encoding="utf-8")
    assert [scenario.id for scenario in load_scenarios([file])] == ["a1"]


def test_load_scenarios_refuses_a_too_large_file(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(50_000_000)
    with pytest.raises(ScenarioError, match=f"larger than {documents.MAX_FILE_BYTES:,} bytes"):
        load_scenarios([file])


@pytest.mark.longer
def test_load_scenarios_reads_ten_thousand_lines(tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    text = "".join(GOOD.format(n=n, matches="네") for n in range(1_430))
    file.write_text(text, encoding="utf-8")
    assert text.count("\n") >= 10_000
    assert len(load_scenarios([file])) == 1_430


BOMBS = [r"(a|aa)+$", r"(?:a|b|ab)*c", r"(\\w|\\w\\w)+$", r"(a|a?)+$"]


@pytest.mark.longer
@check_rows("bomb", BOMBS)
def test_load_scenarios_refuses_catastrophic_patterns(tmp_path: Path, bomb: str) -> None:
    file = tmp_path / "bomb.yaml"
    file.write_text(GOOD.format(n=1, matches=bomb), encoding="utf-8")
    try:
        load_scenarios([file])
    except ScenarioError as error:
        assert str(error).startswith(f"{file}:7: a1.turns[0].reply.matches: ")  # noqa: PT017 - a quick search is as good
        assert "backtracks without end" in str(error)  # noqa: PT017 - a quick search is as good


@pytest.mark.longer
def test_a_search_that_takes_too_long_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "SEARCH_CPU_S", 0.1)
    with pytest.raises(ScenarioError, match=r"takes longer than 0\.1 s in a text of 201 char"):
        is_found(r"(q|qq)+$", "q" * 200 + "!")


def test_limited_searches_limit_the_time_of_all_together() -> None:
    turn = Turn(user="hi", reply={"matches": "a"})
    scenario = Scenario(id="s", ac="AC-1", turns=(turn,))
    trajectory = Trajectory(turns=(TurnRecord(user="hi", ended=EndReason.ANSWERED, reply="a"),))
    slow = itertools.count(step=values.ALL_SEARCHES_CPU_S + 1).__next__
    with (
        limited_searches(slow),
        pytest.raises(ScenarioError, match="the patterns of this scenario take longer"),
    ):
        judge(scenario, trajectory, ToolMetadata(schemas={}), today=None)
    assert is_found("a", "a")  # without a limit of its own


@check_rows(
    "honest",
    [r"\d+\s?(분|시간)", r"^(네|예)[,.!]?\s", r"(\w+\s?)+", r"caf[eé]", r"(?i)no habits?", r".*"],
)
def test_pattern_issue_accepts_usual_patterns(honest: str) -> None:
    assert pattern_error(honest) is None


@check_rows("bad", ["(", "(" * 5_000 + ")" * 5_000, "a" * 5_000, "(?R)"])
def test_pattern_issue_reports_invalid_patterns(bad: str) -> None:
    assert "regular expression" in str(pattern_error(bad))


def run_folder(folder: Path, manifest: object, records: bytes = b"") -> Path:
    (folder / "records.jsonl").write_bytes(records)
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    (folder / "manifest.json").write_text(text, encoding="utf-8")
    return folder


@check_rows(
    "manifest",
    [
        {"versions": None},
        {"hardware": ["x"]},
        {"models": [1]},
        {"models": [{"model": ["x"]}]},
        {"sampling": {"a": 1}},
        {"repeats": "x"},
        {"repeats": 10**12},
        {"repeats": MAX_REPEATS + 1},
        {"locales": {"ko": 1}},
        {"locales": {"ko": {"tools": [{"name": "x"}]}}},
        {"scenarios": {"a": 1}},
        {"content_hashes": {"a": []}},
        {"content_hashes": {"a": 1}},
        {"invocations": [1]},
        {"command": "rm"},
        "[" * 100_000,
    ],
    ids=str,
)
def test_a_manifest_of_another_shape_is_one_sentence(
    tmp_path: Path, manifest: Mapping[str, Any] | str
) -> None:
    with pytest.raises(
        RunError, match=r"manifest\.json is not (a valid manifest of lhkit|valid JSON) \("
    ):
        Run.load(run_folder(tmp_path, manifest))


@check_rows(
    "line",
    [
        b"\x00" * 100,
        b"\xff\xfe",
        b"[" * 100_000,
        b"9" * 10_000,
        b"NaN",
        b"{}",
        b'{"sample_id": {"scenario": "a", "repeat": -1e400}}',
        b'"' + b"x" * 5_000_000 + b'"',
    ],
    ids=lambda line: repr(line[:20]),
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(RunError, match=r"records\.jsonl:1 is not a valid record") as refused:
        Run.load(run_folder(tmp_path, {}, line + b"\n"))
    assert len(str(refused.value)) < 1_000
