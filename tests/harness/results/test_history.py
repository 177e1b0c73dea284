"""The runs of a suite over time: what belongs to it, its frame, and `lhkit report --history`."""

import json
from pathlib import Path
from typing import Any

import pytest

import lhkit
from lhkit.base.errors import MissingRunError, RunError, UsageError
from lhkit.base.locales import load_catalog
from lhkit.cli.report import ReportOptions, report_run
from lhkit.harness.records.record import SCHEMA, encode_record
from lhkit.harness.results.history import HISTORY
from lhkit.harness.results.results import Run
from lhkit.settings import load_settings
from tests.harness.results.test_compare import record
from tests.rows import check_rows

pytestmark = pytest.mark.anyio


def write_run(folder: Path, letters: str, day: int = 1, **manifest: Any) -> None:
    """Write a run of scenarios s0, s1 …, with one letter for each verdict."""
    records = [record(f"s{number}", letter) for number, letter in enumerate(letters)]
    stored = {
        "schema": SCHEMA,
        "git_commit": f"{day:040x}",
        "scenarios": {each.sample_id.scenario: "1" for each in records},
        "invocations": [{"started_at": f"2026-11-{day:02d}T09:00:00+00:00"}],
        **manifest,
    }
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(stored), encoding="utf-8")
    lines = (f"{encode_record(each)}\n" for each in records)
    (folder / "records.jsonl").write_text("".join(lines), encoding="utf-8")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a folder with three runs of a suite, and others that do not belong to it."""
    folder = tmp_path / "runs"
    write_run(folder / "third", "pppf", 9)
    write_run(folder / "suite" / "first", "pfff", 2, scenarios=dict.fromkeys(HASHES, "0"))
    write_run(folder / "second", "ppfi", 5)
    write_run(folder / "part", "pp", 11)
    write_run(folder / "selected", "pppp", 12, selection={"taken": 4, "total": 9})
    write_run(folder / "unfinished", "ppp", 13, scenarios=HASHES)
    write_run(folder / "own-tools", "pppp", 8, toolset="mine.py:tools")
    write_run(folder / "renamed", "pppp", 7, scenarios={f"x{n}": "1" for n in range(4)})
    write_run(folder / "broken", "p", 14, repeats=0)
    return folder


HASHES = {f"s{number}": "1" for number in range(4)}


def test_history_has_whole_runs_of_the_newest_suite_by_date(runs: Path) -> None:
    history = lhkit.History.load(runs)
    frame = history.frame
    assert frame["run"].tolist() == ["first", "second", "third"]
    assert frame["pass_rate"].tolist() == [0.25, 2 / 3, 0.75]
    assert frame["invalid"].tolist() == [0, 1, 0]
    assert frame["commit"].str[-1].tolist() == ["2", "5", "9"]
    assert frame["changed_scenarios"].tolist() == [4, 0, 0]
    assert (frame["low"] < frame["pass_rate"]).all()
    assert (history.partial, history.other_suites, len(history.unreadable)) == (3, 2, 1)
    assert list(frame.columns) == [column.name for column in HISTORY]


def test_history_names_runs_that_cannot_be_read(runs: Path) -> None:
    for locale in ("ko", "en"):
        notes = lhkit.History.load(runs).table(load_catalog(locale)).notes
        assert any("broken" in note for note in notes)


def test_history_of_old_runs_only_gives_the_reason(tmp_path: Path) -> None:
    write_run(tmp_path / "old", "pp", schema=SCHEMA - 1)
    with pytest.raises(RunError, match="earlier lhkit"):
        lhkit.History.load(tmp_path)


def test_history_of_the_suite_of_a_run(runs: Path) -> None:
    history = lhkit.History.load(runs, like=Run.load(runs / "part"))
    assert [point.folder.name for point in history.points] == ["part"]
    assert (history.partial, history.other_suites) == (0, 7)


LIMIT = {"taken": 2, "total": 4, "filter": {"limit": 2}}


def test_history_of_parts_only_shows_the_newest_part(tmp_path: Path) -> None:
    write_run(tmp_path / "first", "pf", 2, selection=LIMIT)
    write_run(tmp_path / "three", "ppf", 3, selection={**LIMIT, "taken": 3})
    write_run(tmp_path / "second", "pp", 4, selection=LIMIT)
    write_run(tmp_path / "killed", "p", 5, scenarios=HASHES)
    history = lhkit.History.load(tmp_path)
    assert [point.folder.name for point in history.points] == ["first", "second"]
    notes = "\n".join(history.table(load_catalog("en")).notes)
    assert "2 runs of 2 scenarios of life-helper" in notes
    assert "A part of the suite: 2 of 4 scenarios (--limit 2); 2 left out." in notes
    assert "another suite: 2 runs" in notes
    like = Run.load(tmp_path / "three")
    (three,) = lhkit.History.load(tmp_path, like=like).points
    assert three.folder.name == "three"
    write_run(tmp_path / "whole", "pppf", 1)
    assert [point.folder.name for point in lhkit.History.load(tmp_path).points] == ["whole"]


@pytest.mark.parametrize(("locale", "text"), [("en", "run its command again"), ("ko", "같은 명령")])
def test_history_of_unfinished_runs_says_what_to_run(
    tmp_path: Path, locale: str, text: str
) -> None:
    write_run(tmp_path / "killed", "p", scenarios=HASHES)
    (_, unfinished, *_) = lhkit.History.load(tmp_path).table(load_catalog(locale)).notes
    assert text in unfinished


def test_history_of_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingRunError, match=r"has no run\. Give a folder of runs"):
        lhkit.History.load(tmp_path)


def test_history_in_a_notebook_escapes_names(tmp_path: Path) -> None:
    write_run(tmp_path / "<b>x", "p")
    assert "&lt;b&gt;x" in lhkit.History.load(tmp_path)._repr_html_()


@pytest.mark.longer
async def test_report_history_writes_a_page_and_prints_the_table(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    options = ReportOptions(history=runs)
    assert await report_run(options, load_settings()) == 0
    page, out = (runs / "history.html").read_text(encoding="utf-8"), capsys.readouterr().out
    for text in (page, out):
        assert "3 runs of 4 scenarios of life-helper" in text
        assert "only a part of the suite or are unfinished: 3 runs." in text
        assert "another suite: 2 runs." in text
        assert "cannot be read: 1 run (broken)." in text
        assert "Other scenario contents than in the newest run: 1 run (first)." in text
        assert text.rindex("third") < text.rindex("second")
    assert "data:image/svg+xml" in page
    assert "<script" not in page


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "RUN is missing"),
        ({"history": Path(), "margin": 3.0}, "--history takes RUN and --html"),
        ({"history": Path(), "is_whole": True}, "--history takes RUN and --html"),
        ({"folder": Path(), "is_whole": True, "markdown": Path("-")}, "--all is for the HTML page"),
    ],
)
async def test_report_refuses_missing_run_and_other_options(
    options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        await report_run(ReportOptions(**options), load_settings())


@check_rows(
    ("started_at", "shown"),
    [
        ("2026-11-28T20:00:00+09:00", "2026-11-28 20:00 UTC+09:00"),
        ("2026-11-28T11:00:00+00:00", "2026-11-28 11:00 UTC+00:00"),
        ("2026-11-28T11:00:00.250000Z", "2026-11-28 11:00 UTC+00:00"),
        ("2026-11-28T07:30:00-03:30", "2026-11-28 07:30 UTC-03:30"),
        ("2026-11-28T11:00:00", "2026-11-28 11:00"),
    ],
)
def test_history_names_the_time_zone_of_a_run(tmp_path: Path, started_at: str, shown: str) -> None:
    write_run(tmp_path / "one", "pp", invocations=[{"started_at": started_at}])
    (row,) = lhkit.History.load(tmp_path).table(load_catalog("en")).rows
    assert shown in [cell.text for cell in row]
