"""Final states: listed rows, unlisted changes, keys of rows, broken rules of the domain."""

import json
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.base.errors import ScenarioError
from lhkit.base.locales import load_catalog
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import ThresholdOptions
from lhkit.cli.frame.thresholds import check_thresholds
from lhkit.harness.figures.metrics import tally
from lhkit.harness.records.record import BrokenRule, Severity, Verdict, decode_line, encode_record
from lhkit.harness.running.rescore import rescore
from lhkit.harness.scenarios import assignment, values
from lhkit.harness.scenarios.values import hashable_form
from lhkit.harness.scoring.matching import values_equal
from lhkit.harness.scoring.state import StateVerdict, check_state, state_diff
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from tests.harness.build import Load, Play
from tests.operations import growth
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

A = {"id": "a", "n": 1}
B = {"id": "b", "n": 2}
B9 = {"id": "b", "n": 9}


@check_rows(
    ("final", "before", "after", "missing", "unlisted"),
    [
        ({}, {"t": (A,)}, {"t": (A,)}, 0, 0),
        ({}, {"t": (A,)}, {"t": (A, B)}, 0, 1),
        ({}, {"t": (A,)}, {"t": ()}, 0, 1),
        ({}, {}, {"u": (A,)}, 0, 1),
        ({"t": [{"id": "b"}]}, {"t": (A,)}, {"t": (A, B)}, 0, 0),
        ({"t": [{"id": "a"}, {"id": "b"}]}, {"t": (A,)}, {"t": (A, B)}, 0, 0),
        ({"t": [{"id": "b", "n": 3}]}, {"t": (A,)}, {"t": (A, B)}, 1, 1),
        ({"t": [{"id": "b"}, {"id": "b"}]}, {"t": (A,)}, {"t": (A, B)}, 1, 0),
        ({"t": [{"n": {"any": True}}]}, {"t": (A,)}, {"t": (A, B)}, 0, 0),
        ({"t": [{"n": {"any": True}}, {"id": "z"}]}, {"t": (A,)}, {"t": (A, B)}, 1, 0),
        ({"t": [{"id": "b", "n": 9}]}, {"t": (A, B)}, {"t": (A, B9)}, 0, 0),
        ({"t": [{"id": "b", "n": 9}]}, {"t": (A, B)}, {"t": (B9,)}, 0, 1),
        ({"t": [{"id": "b"}]}, {"t": (B,)}, {"t": ()}, 1, 1),
        ({"t": [{"id": "b"}]}, {}, {"t": (B,), "u": (A,)}, 0, 1),
        ({"t": [{"id": "b"}]}, {"t": (A,)}, {"t": (B,)}, 0, 1),  # one written, another deleted
        ({"t": [{"id": "a"}]}, {"t": (A,)}, {"t": (A, A)}, 0, 0),
        ({"t": [{"id": "a"}]}, {"t": (A,)}, {"t": (A, A, A)}, 0, 1),
        ({"t": []}, {"t": (A,)}, {"t": ({"id": "a", "n": True},)}, 0, 1),
        ({"t": []}, {"t": (A,)}, {"t": (A,)}, 0, 0),
        ({"t": [{"missing": 1}]}, {}, {"t": (A,)}, 1, 1),
        ({"t": [{"n": True}]}, {}, {"t": (A,)}, 1, 1),
    ],
)
def test_check_state_reports_missing_and_unlisted_rows(
    final: Any, before: Any, after: Any, missing: int, unlisted: int
) -> None:
    verdict = check_state(final, before=before, after=after)
    assert (len(verdict.missing), len(verdict.unlisted)) == (missing, unlisted)


@check_rows(
    ("gone", "before", "after", "missing", "unlisted"),
    [
        ([{"id": "a"}], (A, B), (B,), 0, 0),
        ([{"id": {"matches": "^a"}}], (A, B), (B,), 0, 0),
        ([{"id": "a"}], (A, B), (A, B), 1, 0),  # not deleted
        ([{"id": "c"}], (A, B), (B,), 1, 1),  # another one was
        ([{"id": "a"}], (A, B), (), 0, 1),  # and one more
        ([{"id": "a"}, {"id": "a"}], (A, B), (B,), 1, 0),
        ([{"id": "b"}], (A, B), (A, B9), 1, 1),  # changed, not deleted
        ([{}], (A, B), (B,), 0, 0),
    ],
)
def test_check_state_reports_missing_and_unlisted_deletions(
    gone: Any, before: Any, after: Any, missing: int, unlisted: int
) -> None:
    verdict = check_state({}, gone={"t": gone}, before={"t": before}, after={"t": after})
    assert (len(verdict.missing), len(verdict.unlisted)) == (missing, unlisted)


def test_check_state_does_not_take_an_update_for_a_deletion() -> None:
    verdict = check_state(
        {"t": [{"id": "b", "n": 9}]},
        gone={"t": [{"id": "b"}]},
        before={"t": (B,)},
        after={"t": (B9,)},
    )
    assert verdict.missing == ('gone.t[0]: no row like {"id":"b"} was deleted',)
    assert verdict.unlisted == ()


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.0, -0.0, 1.0, 1.5, 2**53, float(2**53), 10**400])
    | st.sampled_from(["", "1", "true", "가", "\u1100\u1161", "é", "e\u0301", "["])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "é", "e\u0301"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_hashable_form_is_shared_exactly_by_equal_values(one: Any, other: Any) -> None:
    assert (hashable_form(one) == hashable_form(other)) is values_equal(one, other, {})
    assert hashable_form(one) == hashable_form(json.loads(json.dumps(one)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"id": "a", "balance": 1000}, {"id": "a", "balance": 1000 - 250.0 + 250.0}),
        ({"id": "가"}, {"id": "\u1100\u1161"}),
        ({"id": "a", "tags": [1, {"n": 2}]}, {"tags": (1.0, {"n": 2.0}), "id": "a"}),
    ],
)
def test_row_with_equal_values_is_unchanged(before: Any, after: Any) -> None:
    assert check_state({}, before={"t": (before,)}, after={"t": (after,)}) == StateVerdict()
    assert state_diff({"t": (before,)}, {"t": (after,)}) == {}


def row(**fields: Any) -> dict[str, Any]:
    return fields


@check_rows(
    "name",
    ["id", "note_id", "user_id", "no_key_at_all"],  # only `user_id` has one value in all rows
)
@check_rows("extra", [{}, {"user": "u1", "done": False, "kind": "x"}])
def test_check_state_reports_an_unlisted_deletion_next_to_a_listed_new_row(
    name: str, extra: Any
) -> None:
    def note(key: str, text: str) -> dict[str, Any]:
        return {**extra, name: "u1" if name == "user_id" else key, "text": text}

    one, two, three = note("k1", "milk"), note("k2", "bread"), note("k3", "eggs")
    before, after = {"notes": (one, two)}, {"notes": (two, three)}
    final = {"notes": [{"text": "eggs"}]}
    verdict = check_state(final, before=before, after=after)
    assert verdict.missing == ()
    assert [each.startswith("notes: the row ") for each in verdict.unlisted] == [True]
    listed = check_state(final, gone={"notes": [{"text": "milk"}]}, before=before, after=after)
    assert listed == StateVerdict()


@pytest.mark.parametrize("name", ["id", "note_id"])
def test_update_is_one_change_in_a_table_with_a_key(name: str) -> None:
    keys = {} if name == "id" else {"notes": (name,)}
    one, two = ({name: key, "n": 1, "kind": "x"} for key in ("k1", "k2"))
    before, after = {"notes": (one, two)}, {"notes": (one, {**two, "n": 2.5})}
    listed = check_state(
        {"notes": [{name: "k2", "n": 2.5}]}, before=before, after=after, row_keys=keys
    )
    assert listed == StateVerdict()
    unlisted = check_state({}, before=before, after=after, row_keys=keys)
    (reason,) = unlisted.unlisted
    assert reason.endswith(": n: 1 → 2.5")
    assert "k2" in reason


def test_update_without_a_key_is_a_deletion_and_a_new_row() -> None:
    one, two = row(user_id=7, text="a", done=False), row(user_id=7, text="b", done=False)
    before, after = {"notes": (one, two)}, {"notes": (one, {**two, "done": True})}
    final = {"notes": [{"text": "b", "done": True}]}
    (reason,) = check_state(final, before=before, after=after).unlisted
    assert reason.endswith("name it in row_keys(), or give every row an id")
    gone = {"notes": [{"text": "b", "done": False}]}
    assert check_state(final, gone=gone, before=before, after=after) == StateVerdict()
    keys = {"notes": ("text",)}
    assert check_state(final, before=before, after=after, row_keys=keys) == StateVerdict()


def test_row_keys_may_have_several_fields_or_none() -> None:
    days = tuple(row(habit_id="h", date=f"2026-06-0{n}", value="done") for n in (1, 2))
    moved = {**days[1], "date": "2026-06-03"}
    keys = {"days": ("habit_id", "date"), "settings": ()}
    days_changed = {"before": {"days": days}, "after": {"days": (days[0], moved)}, "row_keys": keys}
    assert len(check_state({"days": [{"date": "2026-06-03"}]}, **days_changed).unlisted) == 1
    one = {"before": {"settings": (row(volume=3),)}, "after": {"settings": (row(volume=5),)}}
    final = {"settings": [{"volume": 5}]}
    assert len(check_state(final, **one).unlisted) == 1
    assert check_state(final, **one, row_keys=keys) == StateVerdict()
    (reason,) = check_state({}, **one, row_keys=keys).unlisted
    assert reason.endswith("volume: 3 → 5")


def test_check_state_reports_each_changed_row_once_with_its_changes() -> None:
    before = {"t": (row(id="a", n=1, kept=0), row(id="b", n=2), row(id="c", n=3))}
    after = {"t": (row(id="a", n=1.5, kept=0), row(id="c", n=3, more="x"))}
    assert check_state({}, before=before, after=after).unlisted == (
        't: unlisted change of the row {"id":"a"}: n: 1 → 1.5',
        't: unlisted change of the row {"id":"c"}: more: nothing → "x"',
        't: the row {"id":"b","n":2} is gone',
    )


def test_field_names_compare_in_nfc() -> None:
    verdict = check_state({"t": [{"\u1100\u1161": 1}]}, before={}, after={"t": ({"가": 1},)})
    assert verdict == StateVerdict()


ADD = """
- id: s
  ac: AC-1
  turns:
    - user: add milk
      confirm: accept
      expect: {calls: [{tool: add_note, args: {text: milk}}]}
  final: {notes: [{text: milk}]}
"""


@dataclass
class Ruled:
    """A toolset whose sessions have a rule."""

    inner: Any
    rule: Callable[[Any, Any], Any]

    def open(self, world: Mapping[str, Any], locale: str) -> Any:
        session = self.inner.open(world, locale)
        session.broken_rules = self.rule
        return session


def one_note_only(before: Any, after: Any) -> list[tuple[str, str]]:
    count = len(after["notes"])
    return [("r1_one", f"{count} notes")] if count > max(1, len(before["notes"])) else []


@pytest.mark.parametrize(
    ("world", "broken"),
    [("{}", ()), ("{notes: [{id: n, text: old}]}", (BrokenRule(code="r1_one", detail="2 notes"),))],
)
async def test_broken_rule_is_recorded_and_fails_the_sample(
    load: Load, toolset: Any, play: Play, world: str, broken: tuple[BrokenRule, ...]
) -> None:
    scenarios = load(f"{ADD}  world: {world}\n")
    run = await play(scenarios, toolset=Ruled(toolset, one_note_only))
    (record,) = run.records
    assert record.trajectory.broken_rules == broken
    assert record.score.verdict is (Verdict.FAIL if broken else Verdict.PASS)
    assert [(each.code, each.severity) for each in record.score.violations] == [
        ("r1_one", Severity.ESCAPED) for _ in broken
    ]


def deleted_unseen(before: Any, after: Any, calls: Any) -> list[tuple[str, str]]:
    """Notes are found before one is added."""
    seen, broken = False, []
    for made in calls:
        seen = seen or (made.tool == "find_notes" and made.outcome == "ok")
        if made.tool == "add_note" and made.run and not seen:
            broken.append(("r1_search_first", str(made.run["text"])))
    return [*broken, *one_note_only(before, after)]


class ByMethod:
    """The same rule with other signatures."""

    def by_keyword(self, before: Any, after: Any, *, calls: Any) -> list[tuple[str, str]]:
        return deleted_unseen(before, after, calls)

    def by_other_name(self, before: Any, after: Any, made: Any, /) -> list[tuple[str, str]]:
        return deleted_unseen(before, after, made)

    def by_default(self, before: Any, after: Any, calls: Any = ()) -> list[tuple[str, str]]:
        return deleted_unseen(before, after, calls)

    def without(self, before: Any, after: Any, limit: int = 1) -> list[tuple[str, str]]:
        return [("r1_limit", str(limit))]

    def anything(self, *states: Any, **more: Any) -> list[tuple[str, str]]:
        return [("r1_any", f"{len(states)} {more}")]


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        (deleted_unseen, "r1_search_first"),
        (ByMethod().by_keyword, "r1_search_first"),
        (ByMethod().by_other_name, "r1_search_first"),
        (ByMethod().by_default, "r1_search_first"),
        (ByMethod().without, "r1_limit"),
        (ByMethod().anything, "r1_any"),
        (one_note_only, None),
    ],
)
async def test_broken_rules_get_the_calls_if_they_take_them(
    load: Load, toolset: Any, play: Play, tmp_path: Path, rule: Any, broken: str | None
) -> None:
    run = await play(load(ADD), toolset=Ruled(toolset, rule), run_dir=tmp_path / "run")
    (record,) = run.records
    assert [each.code for each in record.score.violations] == ([broken] if broken else [])
    assert [call.outcome for call in record.trajectory.calls] == ["ok"]
    (again,) = rescore(run, load(ADD), Ruled(toolset, rule)).records
    assert again.trajectory.broken_rules == record.trajectory.broken_rules


async def test_broken_rule_over_calls_passes_a_right_order(
    load: Load, toolset: Any, play: Play
) -> None:
    replies = [call("find_notes"), call("add_note", text="milk"), say("done")]
    expected = ADD.replace("[{tool: add_note", "[{tool: find_notes}, {tool: add_note")
    run = await play(
        load(expected), lambda *_: ScriptedModel(replies), toolset=Ruled(toolset, deleted_unseen)
    )
    (record,) = run.records
    assert (record.score.violations, record.score.verdict) == ((), Verdict.PASS)


@pytest.mark.parametrize("rule", [(1, "2 notes"), ("r1_one", None), ("r1_one", {"notes": 2})])
async def test_invalid_broken_rules_make_the_sample_invalid(
    load: Load, toolset: Any, play: Play, rule: Any
) -> None:
    run = await play(load(ADD), toolset=Ruled(toolset, lambda *_: [rule]))
    (record,) = run.records
    assert record.score.verdict is Verdict.INVALID
    assert record.trajectory.error is not None
    assert record.trajectory.error.startswith("broken_rules() is invalid: ")
    assert "\n" not in record.trajectory.error
    assert decode_line(encode_record(record)) == record


def unreadable(_before: Any, after: Any) -> list[tuple[str, str]]:
    return [("r1_id", str(int(note["id"]))) for note in after["notes"]]


@dataclass
class Unclosable:
    """A toolset whose sessions cannot be closed once they have a note."""

    inner: Any

    def open(self, world: Mapping[str, Any], locale: str) -> Any:
        session = self.inner.open(world, locale)
        session.close = lambda: [int(note["id"]) for note in session.deps]
        return session


@pytest.mark.parametrize("kind", ["broken_rules", "close", "pattern"])
async def test_unlisted_write_counts_where_the_sample_ends_invalid(
    load: Load,
    toolset: Any,
    play: Play,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    if kind == "pattern":
        monkeypatch.setattr(values, "ALL_SEARCHES_CPU_S", -1.0)
    failing = {
        "broken_rules": Ruled(toolset, unreadable),
        "close": Unclosable(toolset),
        "pattern": toolset,
    }[kind]
    reply = "reply: {matches: x}" if kind == "pattern" else "reply: {}"
    scenarios = load(ADD.replace("confirm: accept", f"confirm: accept\n      {reply}"))
    replies = [call("add_note", text="bread"), say("done")]
    run = await play(
        scenarios,
        lambda *_: ScriptedModel(replies),
        toolset=failing,
        run_dir=tmp_path / "run",
    )
    (record,) = run.records
    assert record.score.verdict is Verdict.INVALID
    assert [each.code for each in record.score.violations] == ["unlisted_write"]
    assert tally("all", run.records).occurred == 1
    result = check_thresholds(run, ThresholdOptions(), load_catalog("en"))
    assert result.exit_code is ExitCode.FAILED
    if kind != "close":  # rescoring closes no session after a conversation
        again = rescore(tmp_path / "run", scenarios, failing)
        assert again.records[0].score == record.score


def numbered(n: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"물 {i}", "day": "2026-06-15", "twin": i // 3} for i in range(n)]


GROWING: Mapping[str, Callable[[int], tuple[Any, Any, Any, Any]]] = {
    "ids": lambda n: ([{"id": i} for i in range(n)], [], numbered(n), numbered(n)),
    "ids_of_new_rows": lambda n: ([{"id": i} for i in range(n)], [], [], numbered(n)),
    "ids_that_are_not_there": lambda n: ([{"id": -i - 1} for i in range(n)], [], [], numbered(n)),
    "no_rows": lambda n: ([{"id": i} for i in range(n)], [], [], []),
    "ids_gone": lambda n: ([], [{"id": i} for i in range(n)], numbered(n), []),
    "whole_rows": lambda n: ([{"equals": row} for row in numbered(n)], [], [], numbered(n)),
    "all_fields": lambda n: ([{"fields": row} for row in numbered(n)], [], [], numbered(n)),
    "texts": lambda n: ([{"name": {"text": f"물  {i}"}} for i in range(n)], [], [], numbered(n)),
    "spaces": lambda n: (
        [{"name": {"text": f"물{i}", "ignore": "spaces"}} for i in range(n)],
        [],
        [],
        numbered(n),
    ),
    "common_values_and_an_id": lambda n: (
        [{"day": {"date": "today"}, "id": i, "name": {"any": True}} for i in range(n)],
        [],
        [],
        numbered(n),
    ),
    "equal_ids": lambda n: ([{"twin": i // 3} for i in range(n)], [], [], numbered(n)),
    "equal_ids_and_a_pattern": lambda n: (
        [{"twin": i // 3, "name": {"matches": f" {i}$"}} for i in range(n)],
        [],
        [],
        numbered(n),
    ),
    "decomposed_names": lambda n: (
        [{NFD: i} for i in range(n)],
        [],
        [],
        [{unicodedata.normalize("NFC", NFD): i} for i in range(n)],
    ),
    "a_field_for_each": lambda n: (
        [{f"f{i}": 1} for i in range(n)],
        [],
        [],
        [{f"f{i}": 1} for i in range(n)],
    ),
}
NFD = "\u1109\u1173\u11b8\u1100\u116a\u11ab"  # 습관


@pytest.mark.longer
@check_rows("kind", GROWING)
def test_check_state_is_linear_in_rows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "_SMALL", 20)  # so that small tables are searched as large ones

    def check(n: int) -> Callable[[], StateVerdict]:
        final, gone, before, after = GROWING[kind](n)
        return lambda: check_state(
            {"t": final},
            gone={"t": gone},
            before={"t": tuple(before)},
            after={"t": tuple(after)},
            today=date(2026, 6, 15),
        )

    assert growth(check, 40) < 2.2
    verdict = check(80)()
    assert len(verdict.missing) == (80 if kind in {"ids_that_are_not_there", "no_rows"} else 0)


def test_check_state_refuses_rows_that_may_each_be_any_of_too_many() -> None:
    rows = tuple(numbered(1_000))
    with pytest.raises(ScenarioError, match=r"final\.t: 1000 listed rows may each be any of 1000"):
        check_state({"t": [{}] * 1_000}, before={"t": rows}, after={"t": rows})
    same = [{"name": {"matches": "물"}}] * 300
    assert check_state({"t": same}, before={"t": rows}, after={"t": rows}) == StateVerdict()


@pytest.mark.slow
def test_check_state_stops_at_a_number_of_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple(numbered(200))
    patterns = [{"name": {"matches": f" {i}$"}} for i in range(200)]
    monkeypatch.setattr(assignment, "MAX_PAIRS", 10_000)
    with pytest.raises(ScenarioError, match="takes too long to compare"):
        check_state({"t": patterns}, before={"t": rows}, after={"t": rows})


def test_check_state_compares_one_listed_row_with_a_long_table() -> None:
    rows = tuple({"name": f"n{i}"} for i in range(2_000))
    final = {"t": [{"name": {"matches": "^n1999$"}}, {"name": {"matches": "^n5$"}}]}
    assert check_state(final, before={"t": rows}, after={"t": rows}) == StateVerdict()


@pytest.mark.longer
def test_check_state_compares_lists_in_rows_in_linear_time() -> None:
    def prepare(size: int) -> Any:
        listed = [{"tags": {"items": [{"matches": f"tea {n}"}] * size}} for n in range(20)]
        after = tuple({"id": n, "tags": ["milk"] * size} for n in range(20))
        return lambda: check_state({"t": listed}, before={"t": ()}, after={"t": after})

    assert growth(prepare, 20) < 2.6
