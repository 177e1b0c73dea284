"""Scores of one's own: what a score may be and return, where it is stored, what is computed."""

import asyncio
import decimal
import fractions
import itertools
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lhkit import (
    Run,
    Sample,
    ScriptedModel,
    add_scores,
    judge,
    load_scenarios,
    replay,
    rescore,
    score,
)
from lhkit.base.errors import RunError, UsageError
from lhkit.harness.authoring.reference import gold_model, silent_model
from lhkit.harness.records.score_record import decode_score, encode_score
from lhkit.harness.records.store import MANIFEST, RECORDS, SCORES, failed_scenarios, prune_records
from lhkit.harness.running.score_run import score_record
from lhkit.harness.running.scores import Score, load_scores
from lhkit.models.recorded.scripted import say
from tests.harness.build import FAIL, PASS, Load, Play
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]

CHATS = "".join(
    f"""
- id: add-{n}
  ac: AC-4
  tags: [plain]
  world: {{now: "2026-06-15T09:00:00+09:00", notes: [{{id: note-0, text: old}}]}}
  turns:
    - user: add milk
      confirm: accept
      expect: {{calls: [{{tool: add_note, args: {{text: milk}}, result: ok}}]}}
  final: {{notes: [{{text: milk}}]}}
"""
    for n in range(4)
)


@score
def writes(sample: Sample) -> int:
    return sum(call.writes and call.run is not None for call in sample.calls)


@score(fails=True)
def not_first(sample: Sample) -> bool | str:
    return sample.scenario != "add-0" or "it is the first"


@score
async def rows(sample: Sample) -> dict[str, Any]:
    await asyncio.sleep(0)
    before, after = len(sample.state_before["notes"]), len(sample.state_after["notes"])
    return {"grown": after > before, "count": after, "never": None}


THREE = (writes, not_first, rows)


def figures(run: Run) -> dict[str, tuple[float | None, int]]:
    return {figure.name: (figure.value, figure.n) for figure in run.summary().scores}


EXPECTED = {
    "writes": (1.0, 4),
    "not_first": (0.75, 4),
    "rows.grown": (1.0, 4),
    "rows.count": (2.0, 4),
    "rows.never": (None, 0),
}


async def test_scores_are_computed_and_a_failed_check_fails_its_sample(
    play: Play, load: Load
) -> None:
    run = await play(load(CHATS), scores=THREE)
    assert figures(run) == EXPECTED
    assert [record.score.verdict for record in run.records] == [FAIL, PASS, PASS, PASS]
    assert run.records[0].score.reasons == ("not_first: it is the first",)
    assert run.summary().total.passed == 3
    assert list(run.scores["score"].unique()) == list(EXPECTED)
    sample = run.sample("add-0")
    assert (sample.verdict, sample.reasons) == ("fail", ("not_first: it is the first",))
    assert [result.score for result in sample.scores] == ["writes", "not_first", "rows"]
    assert "it is the first" in sample._repr_html_()


@pytest.mark.longer
async def test_replay_computes_nothing_twice_and_only_what_changed(
    play: Play, load: Load, tmp_path: Path
) -> None:
    calls: list[str] = []

    def counting(name: str, sample: Sample) -> bool:
        calls.append(name)
        return bool(sample.turns)

    one, two = (score(partial(counting, name), name=name) for name in "ab")
    scenarios, folder = load(CHATS), tmp_path / "run"
    await play(scenarios[:2], run_dir=folder, scores=[one])
    records = (folder / RECORDS).read_bytes()
    assert calls == ["a"] * 2
    await play(scenarios[:2], run_dir=folder, scores=[one])
    assert calls == ["a"] * 2
    run = await play(scenarios, run_dir=folder, scores=[one, two])
    assert sorted(calls) == ["a"] * 4 + ["b"] * 4
    assert figures(run) == figures(Run.load(folder)) == {"a": (1.0, 4), "b": (1.0, 4)}
    changed = score(partial(counting, "a", other=1), name="a")  # fails: there is no such argument
    again = await play(scenarios, run_dir=folder, scores=[changed, two])
    assert len(calls) == 8
    assert {figure.name: figure.failed for figure in again.summary().scores} == {"a": 4, "b": 0}
    assert (folder / RECORDS).read_bytes().startswith(records)
    without = await play(scenarios, run_dir=folder)
    assert figures(without) == figures(Run.load(folder)) == {}


async def test_changed_record_is_scored_anew(play: Play, load: Load, tmp_path: Path) -> None:
    scenarios, folder = load(CHATS), tmp_path / "run"
    assert figures(await play(scenarios, run_dir=folder, scores=[writes]))["writes"] == (1.0, 4)
    run = await play(scenarios, silent_model(), run_dir=folder, scores=[writes])
    assert figures(run)["writes"] == figures(Run.load(folder))["writes"] == (0.0, 4)


@pytest.mark.longer
async def test_same_figures_in_a_run_in_memory_on_disk_and_added_later(
    play: Play, load: Load, toolset: Any, tmp_path: Path
) -> None:
    scenarios = load(CHATS)
    old = await play(scenarios, run_dir=tmp_path / "old")
    before = (tmp_path / "old" / RECORDS).read_bytes()
    added = await add_scores(tmp_path / "old", THREE, scenarios=scenarios, toolset=toolset)
    kept = await play(scenarios, run_dir=tmp_path / "kept", scores=THREE, keep_records=False)
    states = await play(scenarios, scores=THREE, keep_states=True)
    loaded = Run.load(tmp_path / "kept", keep_records=False)
    for run in (added, kept, states, Run.load(tmp_path / "old"), loaded):
        assert figures(run) == EXPECTED
        assert [record.score.verdict for record in run.records] == [FAIL, PASS, PASS, PASS]
        assert figures(run.select(only=["add-0"]))["not_first"] == (0.0, 1)
    assert figures(await add_scores(old, [writes])) == EXPECTED
    assert (tmp_path / "old" / RECORDS).read_bytes() == before
    assert failed_scenarios(tmp_path / "old") == {"add-0"}
    unknown = await add_scores(tmp_path / "kept", [score(lambda s: len(s.state_after), name="x")])
    (figure,) = [figure for figure in unknown.summary().scores if figure.name == "x"]
    assert (figure.n, figure.failed) == (0, 4)
    assert "--keep-states" in figure.error


async def test_rescore_judges_without_scores_until_they_are_added(
    play: Play, load: Load, toolset: Any, tmp_path: Path
) -> None:
    scenarios = load(CHATS)
    await play(scenarios, run_dir=tmp_path / "old", scores=THREE)
    again = rescore(tmp_path / "old", scenarios, toolset)
    assert [record.score.verdict for record in again.records] == [PASS] * 4
    assert (figures(again), again.manifest.scores) == ({}, {})
    scored = await add_scores(again, THREE, scenarios=scenarios, toolset=toolset)
    assert figures(scored) == EXPECTED


async def test_partial_run_keeps_the_manifest_of_the_whole(
    play: Play, load: Load, tmp_path: Path
) -> None:
    await play(load(CHATS), run_dir=tmp_path / "run")
    await add_scores(Run.load(tmp_path / "run").select(only=["add-1"]), [writes])
    whole = Run.load(tmp_path / "run")
    assert len(whole.records) == 4
    (figure,) = whole.summary().scores
    assert (figure.n, figure.missing) == (1, 3)


class Shouts(str):
    """A text of the user's own class."""


def raising(_: Sample) -> bool:
    raise ValueError("two\nlines")


def exiting(_: Sample) -> bool:
    raise SystemExit(3)


async def exiting_later(_: Sample) -> bool:
    raise SystemExit(3)


async def cancelling(_: Sample) -> bool:
    raise asyncio.CancelledError


async def raising_base(_: Sample) -> bool:
    raise GeneratorExit


class ExitingMapping(dict[str, Any]):
    """A result that ends the process when it is read."""

    def items(self) -> Any:
        raise SystemExit(4)


class EndlessMapping(dict[str, Any]):
    """A result that says to be short."""

    def items(self) -> Any:
        return ((f"n{n}", n) for n in itertools.count())


def unprintable(_: Sample) -> bool:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    raise MuteError


def mutating(sample: Sample) -> bool:
    sample.calls[0].result["status"] = "error"
    return True


def assigning(sample: Sample) -> bool:
    sample.verdict = "pass"  # type: ignore[misc]
    return True


RETURNED: dict[str, tuple[Any, Any]] = {
    "bool": (True, True),
    "int": (3, 3.0),
    "negative": (-1.5, -1.5),
    "numpy bool": (np.bool_(False), False),
    "numpy int": (np.int64(3), 3.0),
    "numpy array of one": (np.array(2.5), 2.5),
    "decimal": (decimal.Decimal("1.5"), 1.5),
    "fraction": (fractions.Fraction(1, 2), 0.5),
}
REFUSED: dict[str, tuple[Any, str]] = {
    "nan": (float("nan"), "nan"),
    "infinity": (float("inf"), "inf"),
    "numpy nan": (np.float64("nan"), "nan"),
    "huge": (10**400, "not a number"),
    "too large for a mean": (1.7e308, "not a number"),
    "complex": (1j, "complex"),
    "list": ([1], "list"),
    "bytes": (b"x", "bytes"),
    "object": (object(), "object"),
    "numpy array": (np.array([1, 2]), "ndarray"),
    "empty text": (" ", "empty text"),
    "long text": ("x" * 10_000, "10,000 characters"),
    "verdict": (PASS, "Verdict"),
    "nested mapping": ({"a": {"b": 1}}, "dict"),
    "key": ({1: True}, "key"),
    "key with a line": ({"a\nb": True}, "key"),
    "many": ({f"n{n}": n for n in range(101)}, "101 values"),
    "generator": ((n for n in range(3)), "generator"),
}


async def one_result(run: Run, each: Score) -> Any:
    return await score_record(each, run.records[0])


@pytest.fixture
async def scored_run(play: Play, load: Load) -> Run:
    return await play(load(CHATS)[:1])


@pytest.mark.longer
async def test_score_returns_values_or_fails_alone(scored_run: Run) -> None:
    for name, (returned, expected) in RETURNED.items():
        result = await one_result(scored_run, score(lambda _, r=returned: r, name="x"))
        (value,) = result.values
        assert (type(value.value), value.value, result.error) == (type(expected), expected, ""), (
            name
        )
        assert decode_score(encode_score(result)) == result, name
    import pandas as pd

    refused = REFUSED | {"pandas NA": (pd.NA, "NAType"), "pandas NaT": (pd.NaT, "NaTType")}
    for name, (returned, reason) in refused.items():
        result = await one_result(scored_run, score(lambda _, r=returned: r, name="x"))
        assert result.values == (), name
        assert reason in result.error, name
    reasons = {"text": "why", "shout": Shouts("why"), "한국어": "이유"}
    result = await one_result(scored_run, score(lambda _: reasons, name="x"))
    assert [(v.name, v.value, v.reason) for v in result.values] == [
        ("x.text", False, "why"),
        ("x.shout", False, "why"),
        ("x.한국어", False, "이유"),
    ]
    for nothing in ({}, None):
        result = await one_result(scored_run, score(lambda _, r=nothing: r, name="x"))
        assert (result.values, result.error) == ((), "")
    result = await one_result(scored_run, score(lambda _: 0, name="x", fails=True))
    assert (result.values, result.failures) == ((), ())
    assert "a check returned the number 0" in result.error


@pytest.mark.longer
@pytest.mark.parametrize(
    ("function", "error"),
    [
        (raising, r"ValueError: two lines \(.*test_scores.py:"),
        (exiting, "SystemExit: 3"),
        (exiting_later, "SystemExit: 3"),
        (cancelling, "it was cancelled"),
        (raising_base, "GeneratorExit"),
        (lambda _: ExitingMapping(), "SystemExit: 4"),
        (lambda _: EndlessMapping(), "101 values"),
        (unprintable, "MuteError"),
        (mutating, "TypeError: this value is read-only"),
        (assigning, "FrozenInstanceError"),
    ],
)
async def test_failing_score_is_counted_and_no_verdict(
    play: Play, load: Load, function: Any, error: str
) -> None:
    check = score(function, name="broken", fails=True)
    run = await play(load(CHATS), scores=[check, writes])
    broken, other = run.summary().scores
    assert (broken.n, broken.failed, other.n) == (0, 4, 4)
    assert broken.error.startswith("add-0: ")
    assert re.search(error, broken.error)
    assert all(record.score.verdict is PASS for record in run.records)


async def test_hanging_score_reaches_its_limit_and_is_not_called_again_and_again(
    play: Play, load: Load
) -> None:
    release, calls = threading.Event(), []

    def hanging(sample: Sample) -> bool:
        calls.append(sample.id)
        return release.wait()

    async def stubborn(_: Sample) -> bool:
        await asyncio.Event().wait()
        return True

    limits = {"limit_s": 0.05, "concurrency": 1}
    try:
        run = await play(load(CHATS), scores=[score(hanging, **limits), score(stubborn, **limits)])
    finally:
        release.set()
    one, two = run.summary().scores
    assert (one.failed, two.failed) == (4, 4)
    assert calls == ["add-0", "add-1", "add-2"]
    errors = list(run.scores.loc[run.scores["score"] == "stubborn", "error"])
    assert errors == ["it took longer than 0.05 seconds"] * 3 + [
        "not called: it exceeded its limit 3 times in a row"
    ]


class Blocking:
    """Blocks every thread that it is used in, until it is released."""

    def __init__(self) -> None:
        self.released, self.calls = threading.Event(), list[str]()

    async def stuck(self, sample: Sample) -> bool:
        self.calls.append(sample.id)
        return self.released.wait()

    async def stuck_in_a_task(self, sample: Sample) -> bool:
        return (await asyncio.gather(self.stuck(sample)))[0]

    async def stuck_after_a_step(self, sample: Sample) -> bool:
        await asyncio.sleep(0)
        return await self.stuck(sample)

    def awaitable(self, sample: Sample) -> Any:
        return self.stuck(sample)

    def mapping(self, _: Sample) -> Any:
        waiting = self

        class Stuck(dict[str, Any]):
            def items(self) -> Any:
                return [("a", waiting.released.wait())]

        return Stuck()

    async def async_mapping(self, sample: Sample) -> Any:
        return self.mapping(sample)

    def message(self, _: Sample) -> bool:
        waiting = self

        class StuckError(Exception):
            def __str__(self) -> str:
                return str(waiting.released.wait())

        raise StuckError

    async def async_message(self, sample: Sample) -> bool:
        return self.message(sample)

    def judge(self) -> Score:
        waiting = self

        class StuckModel(ScriptedModel):
            async def stream(self, request: Any) -> Any:
                waiting.released.wait()
                yield say("yes")

        return judge(lambda: StuckModel([]), "Polite?", name="stuck", limit_s=0.05)


@pytest.mark.longer
@pytest.mark.parametrize(
    "kind",
    [
        "stuck",
        "stuck_in_a_task",
        "stuck_after_a_step",
        "awaitable",
        "mapping",
        "async_mapping",
        "message",
        "async_message",
        "judge",
    ],
)
async def test_score_that_blocks_for_ever_reaches_its_limit_and_holds_up_no_other(
    play: Play, load: Load, kind: str
) -> None:
    blocking = Blocking()
    scores = [
        blocking.judge()
        if kind == "judge"
        else score(getattr(blocking, kind), name="stuck", limit_s=0.05),
        score(lambda sample: bool(sample.turns), name="plain"),
        rows,
    ]
    try:
        run = await play(load(CHATS), scores=scores, keep_states=True)
    finally:
        blocking.released.set()
    stuck, *others = run.summary().scores
    assert (stuck.name, stuck.n, stuck.failed) == ("stuck", 0, 4)
    assert "it took longer than 0.05 seconds" in stuck.error
    assert {figure.name: (figure.value, figure.failed) for figure in others} == {
        "plain": (1.0, 0),
        "rows.grown": (1.0, 0),
        "rows.count": (2.0, 0),
        "rows.never": (None, 0),
    }


async def test_async_scores_of_several_runs_share_a_client(scored_run: Run) -> None:
    loops = set[Any]()

    async def client(_: Sample) -> bool:
        loops.add(asyncio.get_running_loop())
        asyncio.get_running_loop().stop()  # has no effect
        await asyncio.sleep(0)
        return True

    for name in ("a", "b"):
        result = await one_result(scored_run, score(client, name=name))
        assert result.error == ""
    assert len(loops) == 1


VARIABLE = ContextVar("VARIABLE", default="unset")


def passing(function: Any, sample: Sample) -> Any:
    return function(sample)


async def test_score_sees_context_variables_of_its_caller(scored_run: Run) -> None:
    VARIABLE.set("set")

    async def later(_: Sample) -> bool:
        return VARIABLE.get() == "set"

    for function in (later, lambda _: VARIABLE.get() == "set", partial(passing, later)):
        (value,) = (await one_result(scored_run, score(function, name="x"))).values
        assert value.value is True


async def test_cancelling_a_run_cancels_its_scores(scored_run: Run) -> None:
    started, ended = threading.Event(), threading.Event()

    async def waiting(_: Sample) -> bool:
        try:
            started.set()
            return await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.ensure_future(one_result(scored_run, score(waiting)))
    await asyncio.to_thread(started.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 30)


REFUSING = """
import asyncio
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from lhkit import add_scores, score

@score(limit_s=0.05)
async def refusing(_):
    while True:
        with suppress(BaseException):
            await asyncio.Event().wait()

async def main():
    run = await add_scores("run", [refusing])
    print(run.summary().scores[0].error)

asyncio.run(main())
"""


@pytest.mark.longer
async def test_score_that_refuses_to_end_does_not_hold_up_the_end_of_the_process(
    play: Play, load: Load, tmp_path: Path
) -> None:
    await play(load(CHATS)[:1], run_dir=tmp_path / "run")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        REFUSING,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert out.decode() == "add-0: it took longer than 0.05 seconds\n"
    assert (process.returncode, err.decode()) == (0, "")


async def test_late_async_score_may_clean_up(scored_run: Run) -> None:
    steps: list[str] = []
    cleaned = threading.Event()

    async def tidy(_: Sample) -> bool:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("clean")
            cleaned.set()
        return True

    result = await one_result(scored_run, score(tidy, limit_s=0.05))
    assert await asyncio.to_thread(cleaned.wait, 30)
    assert (steps, result.error) == (["clean"], "it took longer than 0.05 seconds")


async def test_score_that_changes_the_folder_of_the_process_is_stored(
    play: Play, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    await play(load(CHATS), run_dir=Path("run"))

    @score
    def moving(_: Sample) -> bool:
        os.chdir(elsewhere)
        return True

    await add_scores("run", [moving])
    (figure,) = Run.load(tmp_path / "run").summary().scores
    assert (figure.n, figure.missing) == (4, 0)


async def test_failed_score_is_tried_again(play: Play, load: Load, tmp_path: Path) -> None:
    answers = iter([False] * 4 + [True] * 4)

    @score
    def flaky(_: Sample) -> bool:
        if not next(answers):
            raise ConnectionError("no server")
        return True

    run = await play(load(CHATS), run_dir=tmp_path / "run", scores=[flaky])
    assert figures(run) == {"flaky": (None, 0)}
    run = await play(load(CHATS), run_dir=tmp_path / "run", scores=[flaky])
    assert figures(run) == figures(Run.load(tmp_path / "run")) == {"flaky": (1.0, 4)}


def generator(_: Sample) -> Iterator[bool]:
    yield True


class Rater:
    """An object that scores."""

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def __call__(self, sample: Sample) -> bool:
        return len(sample.turns) > self.least

    def method(self, sample: Sample) -> bool:
        return self(sample)

    @staticmethod
    def plain(sample: Sample) -> bool:
        return bool(sample)


def named(sample: Sample, least: int) -> bool:
    return len(sample.turns) > least


@check_rows(
    ("function", "options", "issue"),
    [
        (generator, {}, "generator"),
        (Rater, {}, "is a class"),
        (3, {}, "not a function"),
        (lambda: True, {"name": "x"}, "one argument"),
        (named, {}, "one argument"),
        (lambda _: True, {}, "not a valid name"),
        (writes, {"name": "a=b"}, "not a valid name"),
        (writes, {"name": "a.b"}, "not a valid name"),
        (writes, {"name": "x" * 61}, "61 characters"),
        (writes, {"limit_s": 0}, "limit_s"),
        (writes, {"limit_s": float("nan")}, "limit_s"),
        (writes, {"concurrency": 0}, "concurrency"),
    ],
)
def test_invalid_score_is_refused_when_it_is_made(
    function: Any, options: dict[str, Any], issue: str
) -> None:
    with pytest.raises(UsageError, match=issue):
        score(function, **options)


async def test_score_may_be_method_object_partial_or_other_score(scored_run: Run) -> None:
    scores = [
        score(Rater()),
        score(Rater(least=1).method),
        score(Rater.plain),
        score(partial(named, least=0)),
        score(writes, name="again", fails=True),
    ]
    assert [each.name for each in scores] == ["Rater", "method", "plain", "named", "again"]
    assert scores[-1].fails is True
    assert not writes.fails
    values = [(await one_result(scored_run, each)).values for each in scores[:4]]
    assert [value.value for (value,) in values] == [True, False, True, True]
    sample = scored_run.sample("add-0")
    assert writes(sample) == 1  # a score is called like its function
    sources = {score(partial(named, least=n), name="n").source.source_sha256 for n in (0, 1, 0)} | {
        score(Rater(n)).source.source_sha256 for n in (0, 1, 0)
    }
    assert len(sources) == 4


def test_same_name_of_different_scores_is_refused(toolset: Any) -> None:
    toolset.scores = [writes]
    assert load_scores([writes, writes], toolset) == (writes,)
    with pytest.raises(UsageError, match="Two scores have the name 'writes'"):
        load_scores([score(Rater(), name="writes")], toolset)
    with pytest.raises(UsageError, match="is not a score"):
        load_scores([3])  # type: ignore[list-item]


CODE = """
LIMIT = {limit}
def helper(sample):
    return len(sample.turns) > LIMIT
scores = [lambda sample: helper(sample) in {{True, "a", "b", "c"}}]
"""


def test_source_of_code_without_a_file_covers_what_it_uses() -> None:
    def source(text: str) -> str:
        names: dict[str, Any] = {"__name__": "cell"}
        exec(text, names)  # noqa: S102 - as in a notebook
        return score(names["scores"][0], name="x").source.source_sha256

    first = source(CODE.format(limit=0))
    assert source("# a comment\n" + CODE.format(limit=0)) == first
    assert source(CODE.format(limit=1)) != first
    assert source(CODE.format(limit=0).replace("> LIMIT", ">= LIMIT")) != first


async def test_invalid_line_of_results_is_named(play: Play, load: Load, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    await play(load(CHATS), run_dir=folder, scores=[writes])
    with (folder / SCORES).open("a", encoding="utf-8") as file:
        file.write('{"score": "half')
    assert figures(Run.load(folder)) == {"writes": (1.0, 4)}  # a half-written line is ignored
    with (folder / SCORES).open("a", encoding="utf-8") as file:
        file.write("\n")
    with pytest.raises(RunError, match=r"scores\.jsonl:5 is not a valid result"):
        Run.load(folder)


async def test_results_of_deleted_records_are_deleted(
    play: Play, load: Load, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    await play(load(CHATS), run_dir=folder, scores=[not_first])
    prune_records(folder, lambda record: record.sample_id.scenario != "add-0")
    assert "it is the first" not in (folder / SCORES).read_text(encoding="utf-8")
    assert figures(Run.load(folder)) == {"not_first": (1.0, 3)}


async def test_run_without_scores_is_written_as_before(
    play: Play, load: Load, tmp_path: Path
) -> None:
    run = await play(load(CHATS), run_dir=tmp_path / "run")
    assert not (tmp_path / "run" / SCORES).exists()
    assert "scores" not in json.loads((tmp_path / "run" / MANIFEST).read_text(encoding="utf-8"))
    assert (run.summary().scores, len(run.scores)) == ((), 0)


PANTRY = ROOT / "evals" / "pantry"


@pytest.mark.longer
async def test_scores_work_on_a_foreign_toolset(tmp_path: Path) -> None:
    scenarios = load_scenarios([PANTRY / "scenarios"])
    run = await replay(
        scenarios,
        gold_model,
        toolset=f"{PANTRY / 'pantry.py'}:toolset",
        scores=[writes],
        run_dir=tmp_path / "run",
        progress=False,
    )
    assert figures(run)["writes"][1] == len(run.records)
