"""Runs that stop when their comparison with a baseline is decided."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import lhkit
from lhkit.base.errors import ServerOverloadedError, UsageError
from lhkit.base.locales import load_catalog
from lhkit.harness.figures.sequential import in_random_order
from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.records.store import read_manifest
from lhkit.harness.results.compare import compare, compare_arms
from lhkit.harness.results.results import Run
from lhkit.harness.running.plan import Plan, plan_run
from lhkit.harness.running.run import EncodedRecord
from lhkit.harness.running.scores import score
from lhkit.harness.running.stopping import Stopping, StopRule
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.scenarios.scenario_filter import (
    ScenarioSelection,
    StoppedRun,
    random_key,
)
from lhkit.harness.views.tables import comparison_sentence, part_lines
from lhkit.models.base import ModelRequest
from lhkit.models.recorded.scripted import Reply, ScriptedModel, say
from tests.harness.build import FAIL, INVALID, PASS, Load, Play, sample

pytestmark = pytest.mark.anyio

CHAT = """
- id: chat-{n}
  ac: AC-12
  turns: [{{user: hello, reply: {{matches: '\\S'}}}}]
"""
WORDED = """
- id: chat-{n}
  ac: AC-12
  turns: [{{user: hello, variants: [hi, good day], reply: {{matches: '\\S'}}}}]
"""
NAMES = [f"chat-{n}" for n in range(30)]


def chats(load: Load, n: int = 30, text: str = CHAT) -> tuple[Scenario, ...]:
    return load("".join(text.format(n=number) for number in range(n)))


def baseline(
    verdicts: Mapping[str, Verdict | str] | None = None, *, repeats: int = 1, wordings: int = 1
) -> Run:
    """Return a run in which every scenario failed, or those given have other verdicts."""
    verdicts = verdicts or dict.fromkeys(NAMES, FAIL)
    records = [
        replace(sample(name, verdict), sample_id=SampleId(scenario=name, repeat=r, wording=w))
        for name, verdict in verdicts.items()
        for w in range(wordings)
        for r in range(repeats)
    ]
    return Run(records=tuple(records), name="before")


def says(answers: Callable[[str], str]) -> Callable[..., ScriptedModel]:
    """Return a factory of models that give one answer to each scenario."""
    return lambda scenario, _: ScriptedModel([say(answers(scenario.id))] * 3)


HI = says(lambda _: "hi")
IN_ORDER = sorted(NAMES, key=lambda name: random_key(0, name))


def names(run: Run) -> list[str]:
    return list(dict.fromkeys(record.sample_id.scenario for record in run.records))


def stopped_of(run: Run) -> StoppedRun:
    assert run.manifest.selection is not None
    assert run.manifest.selection.stopped is not None
    return run.manifest.selection.stopped


@pytest.mark.parametrize("seed", [0, 7])
async def test_run_stops_when_it_is_decided_and_records_that(
    play: Play, load: Load, seed: int
) -> None:
    rule = StopRule(baseline=baseline(), seed=seed)
    run = await play(chats(load), HI, stop=rule)
    first = sorted(NAMES, key=lambda name: random_key(seed, name))[:7]
    assert sorted(names(run)) == sorted(first)
    assert stopped_of(run) == StoppedRun(
        seed=seed, baseline="before", planned=30, looked=7, decision=1
    )
    selection = run.manifest.selection
    assert selection is not None
    assert (selection.taken, selection.total) == (7, 30)
    assert run.manifest.invocations[-1].order_seed == seed
    assert not run.manifest.invocations[-1].finished
    comparison = compare(rule.baseline, run)
    assert (comparison.outcome, comparison.is_better) == ("better", True)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("before", "answer", "margin", "outcome", "played"),
    [
        (FAIL, "hi", None, "better", 7),
        (FAIL, "hi", 3.0, "no_worse", 7),
        (PASS, "", None, "worse", 7),
        (PASS, "", 3.0, "worse_than_margin", 7),
        (PASS, "hi", None, "no_difference", 30),
        (PASS, "hi", 3.0, "cannot_tell", 30),
        (PASS, "hi", 40.0, "no_worse", 9),
        (FAIL, "", None, "no_difference", 30),
    ],
)
async def test_outcomes_of_a_run_that_may_stop(
    play: Play,
    load: Load,
    before: Verdict,
    answer: str,
    margin: float | None,
    outcome: str,
    played: int,
) -> None:
    rule = StopRule(baseline=baseline(dict.fromkeys(NAMES, before)), margin=margin)
    run = await play(chats(load), says(lambda _: answer), stop=rule)
    assert len(run.records) == played
    comparison = compare(rule.baseline, run, margin=margin, order_seed=0)
    assert comparison.outcome == outcome
    assert (run.manifest.selection is None) == (played == 30)
    if played < 30:
        assert compare(rule.baseline, run, margin=margin) == comparison  # it says that it stopped


@pytest.mark.longer
async def test_stopped_run_is_continued_to_an_ordinary_whole_run(
    play: Play, load: Load, tmp_path: Path
) -> None:
    rule, folder = StopRule(baseline=baseline()), tmp_path / "r"
    await play(chats(load), HI, stop=rule, run_dir=folder)
    again = await play(chats(load), HI, stop=rule, run_dir=folder)
    assert (len(again.records), again.kept) == (7, 7)  # the decision stands
    assert stopped_of(again).looked == 7
    whole = await play(chats(load), HI, run_dir=folder)
    assert (names(whole), whole.kept) == (NAMES, 7)
    assert whole.manifest.selection is None
    assert whole.manifest.invocations[-1].finished
    assert whole.manifest.invocations[-1].order_seed is None
    assert compare(rule.baseline, whole).sequential is None


async def test_run_that_may_stop_is_a_part_already_while_it_runs(
    play: Play, load: Load, tmp_path: Path
) -> None:
    """A run that is killed has the manifest of its start."""
    parts: list[Any] = []

    def answer(_: ModelRequest) -> Reply:
        parts.append(read_manifest(tmp_path / "r").selection)
        return say("hi")

    model = ScriptedModel(answer)
    await play(chats(load), model, stop=StopRule(baseline=baseline()), run_dir=tmp_path / "r")
    assert all(part is not None and part.stopped is not None for part in parts)
    assert (parts[0].taken, parts[0].stopped.decision) == (0, 0)


@pytest.mark.longer
async def test_run_that_may_stop_replaces_no_whole_run(
    play: Play, load: Load, tmp_path: Path
) -> None:
    folder, rule = tmp_path / "r", StopRule(baseline=baseline())
    await play(chats(load), HI, run_dir=folder)
    changed = chats(load, text=CHAT.replace("hello", "good day"))
    with pytest.raises(UsageError, match="may stop early would replace"):
        await play(changed, HI, stop=rule, run_dir=folder)
    assert read_manifest(folder).selection is None
    assert len(Run.load(folder).records) == 30
    with pytest.raises(UsageError, match="may stop early would replace"):
        await play(chats(load, n=40), HI, stop=rule, run_dir=folder)
    kept = await play(chats(load), HI, stop=rule, run_dir=folder)
    assert (kept.kept, kept.manifest.selection) == (30, None)  # nothing is left out
    assert compare(rule.baseline, kept, order_seed=0).outcome == "better"


@pytest.mark.longer
async def test_invalid_samples_of_a_whole_run_are_retried(
    play: Play, load: Load, tmp_path: Path
) -> None:
    before = baseline(dict.fromkeys(NAMES, PASS))
    tries = iter(range(10**6))
    broken = ScriptedModel(
        lambda _: Reply(error=ServerOverloadedError("gone")) if next(tries) < 3 else say("hi")
    )
    options = {"stop": StopRule(baseline=before), "run_dir": tmp_path / "r", "max_attempts": 1}
    first = await play(chats(load), broken, **options)
    assert {record.score.verdict for record in first.records} >= {PASS, INVALID}
    second = await play(chats(load), ScriptedModel(lambda _: say("hi")), **options)
    assert {record.score.verdict for record in second.records} == {PASS}


async def test_invalid_samples_say_nothing(play: Play, load: Load) -> None:
    verdicts: dict[str, Verdict | str] = dict.fromkeys(NAMES, FAIL)
    verdicts |= dict.fromkeys(IN_ORDER[:2], INVALID)  # in the baseline: they are run last
    broken = set(IN_ORDER[3:5])
    run = await play(
        chats(load),
        lambda scenario, _: ScriptedModel(
            [Reply(error=ValueError("x"))] if scenario.id in broken else [say("hi")]
        ),
        stop=StopRule(baseline=baseline(verdicts)),
    )
    assert sorted(names(run)) == sorted(IN_ORDER[2:11])
    assert stopped_of(run).looked == 7


@pytest.mark.parametrize(("repeats", "text"), [(3, CHAT), (1, WORDED), (2, WORDED)])
async def test_repeats_and_wordings_of_a_scenario_are_one_cluster(
    play: Play, load: Load, repeats: int, text: str
) -> None:
    wordings = 3 if text == WORDED else 1
    before = baseline(repeats=repeats, wordings=wordings)
    run = await play(
        chats(load, text=text),
        HI,
        stop=StopRule(baseline=before),
        repeats=repeats,
        variants=wordings > 1,
        concurrency=4,
    )
    assert stopped_of(run).looked == 7
    played = dict.fromkeys(names(run), 0)
    for record in run.records:
        played[record.sample_id.scenario] += 1
    assert set(played.values()) == {repeats * wordings}  # what has begun is completed


async def test_baseline_with_fewer_repeats_is_no_weaker_evidence(play: Play, load: Load) -> None:
    run = await play(chats(load), HI, stop=StopRule(baseline=baseline()), repeats=3)
    assert stopped_of(run).looked == 7


@pytest.mark.parametrize("keep_records", [True, False])
async def test_samples_under_way_finish_and_count(
    play: Play, load: Load, tmp_path: Path, keep_records: bool
) -> None:
    rule, folder = StopRule(baseline=baseline()), tmp_path / "r"
    options = {"run_dir": folder, "keep_records": keep_records, "stop": rule}
    run = await play(chats(load), HI, concurrency=6, **options)
    assert 7 <= len(run.records) <= 12
    assert sorted(names(run)) == sorted(IN_ORDER[: len(run.records)])
    assert (stopped_of(run).looked, stopped_of(run).decision) == (7, 1)
    again = await play(chats(load), HI, concurrency=6, **options)
    assert (again.kept, len(again.records)) == (len(run.records), len(run.records))


class Elsewhere:
    """Runs the samples elsewhere, as replicas do: all pass."""

    status = "elsewhere"

    async def run_sample(self, sample: Any, attempt: int) -> EncodedRecord:
        passed = SampleRecord(
            sample_id=sample.sample_id,
            content_hash=sample.content_hash,
            ac="AC-12",
            locale="en",
            tags=(),
            trajectory=baseline().records[0].trajectory,
            score=sample_score(),
        )
        return EncodedRecord.from_record(passed)

    async def warm_up(self, samples: Sequence[Any]) -> int:
        return 0


def sample_score() -> Any:
    return sample("s", PASS).score


async def test_run_on_replicas_stops_too(play: Play, load: Load, tmp_path: Path) -> None:
    run = await play(
        chats(load),
        ScriptedModel([]),
        runner=Elsewhere(),
        run_dir=tmp_path / "r",
        concurrency=3,
        stop=StopRule(baseline=baseline()),
    )
    assert stopped_of(run).looked == 7
    assert 7 <= len(run.records) <= 9


async def test_checks_are_refused_because_they_follow_the_run(play: Play, load: Load) -> None:
    @score(fails=True)
    def polite(_: lhkit.Sample) -> bool:
        return True

    with pytest.raises(UsageError, match=r"checks \(polite\) cannot stop"):
        await play(chats(load), HI, stop=StopRule(baseline=baseline()), scores=[polite])


@pytest.mark.parametrize("bad", [{"margin": -1.0}, {"margin": 101.0}, {"seed": -1}])
def test_stop_rule_refuses_values(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(bad))} is invalid"):
        StopRule(baseline=baseline(), **bad)


def finish(
    plan: Plan,
    rule: StopRule,
    verdicts: Mapping[SampleId, Verdict],
    concurrency: int,
    choose: Callable[[list[SampleId]], SampleId],
) -> tuple[int, int]:
    """Return the looks and the decision, if samples end in an order that depends on them."""
    stopping = Stopping(rule, plan)
    samples = stopping.samples(())
    under_way: list[SampleId] = []
    while True:
        while len(under_way) < concurrency and (planned := next(samples, None)) is not None:
            under_way.append(planned.sample_id)
        if not under_way:
            break
        ended = choose(under_way)
        under_way.remove(ended)
        stopping.record(ended, verdicts[ended])
    return stopping.looked, stopping.direction


@pytest.mark.longer
def test_order_in_which_samples_end_does_not_change_the_decision(load: Load, toolset: Any) -> None:
    """Also if those that pass are the fastest: the first six would look much better."""
    before = baseline({name: PASS if n % 3 else FAIL for n, name in enumerate(NAMES)}, repeats=2)
    plan = plan_run(chats(load), ScriptedModel([say("hi")]), toolset, repeats=2)
    for seed in range(6):
        rng = Random(seed)
        rates = rng.choice([(6, 1), (1, 6), (4, 4)])
        kinds = (PASS, FAIL, INVALID)
        verdicts = {s: rng.choices(kinds, weights=(*rates, 1))[0] for s in plan.hashes}
        rule = StopRule(baseline=before, margin=rng.choice([None, 3.0]), seed=seed)
        expected = finish(plan, rule, verdicts, 1, lambda under_way: under_way[0])
        orders: list[tuple[int, Callable[[list[SampleId]], SampleId]]] = [
            (8, lambda under_way: under_way[-1]),
            (8, partial(max, key=lambda s, own=verdicts: own[s] is PASS)),
            (8, partial(min, key=lambda s, own=verdicts: own[s] is PASS)),
            *((k, rng.choice) for k in (2, 5, 60)),
        ]
        for concurrency, choose in orders:
            assert finish(plan, rule, verdicts, concurrency, choose) == expected


@pytest.mark.longer
def test_comparison_of_a_run_decides_as_the_run_did(load: Load, toolset: Any) -> None:
    before = baseline({name: PASS if n % 2 else FAIL for n, name in enumerate(NAMES)}, repeats=2)
    plan = plan_run(chats(load), ScriptedModel([say("hi")]), toolset, repeats=2)
    for seed in range(6):
        rng = Random(seed)
        verdicts = {s: rng.choices((PASS, FAIL), weights=(9, 1))[0] for s in plan.hashes}
        rule = StopRule(baseline=before, margin=3.0, seed=seed)
        looked, decision = finish(plan, rule, verdicts, 4, rng.choice)
        records = tuple(
            replace(sample(s.scenario, verdict), sample_id=s) for s, verdict in verdicts.items()
        )
        run = Run(records=records, manifest=plan.manifest)
        found = compare(before, run, margin=3.0, order_seed=seed).sequential
        assert found is not None
        assert (found.looked, found.direction) == (looked, decision)


def test_comparison_of_an_interrupted_run_ends_before_the_first_gap(
    load: Load, toolset: Any
) -> None:
    """Of later scenarios only the fastest may be there."""
    plan = plan_run(chats(load), ScriptedModel([say("hi")]), toolset, repeats=1)
    order = list(in_random_order(plan.hashes, 0))
    records = tuple(sample(name, PASS) for name in order if name != order[4])
    run = Run(records=records, manifest=plan.manifest)
    comparison = compare(baseline(), run, order_seed=0)
    assert comparison.sequential is not None
    assert (comparison.sequential.looked, comparison.outcome) == (4, "no_difference")
    part = ScenarioSelection(taken=4, total=30, stopped=StoppedRun(seed=0, planned=30))
    manifest = plan.manifest.model_copy(update={"selection": part})
    stopped = compare(baseline(), replace(run, manifest=manifest))
    assert stopped.sequential == comparison.sequential
    lines = " ".join(part_lines(stopped, load_catalog("en")))
    assert "interrupted before it was decided" in lines
    assert "stopped when" not in lines
    nothing = compare(baseline(), replace(run, records=records[4:]), order_seed=0)
    assert (nothing.outcome, nothing.p_value) == ("no_difference", 1.0)


async def test_part_of_a_stopped_run_says_that_it_stopped(play: Play, load: Load) -> None:
    run = await play(chats(load), HI, stop=StopRule(baseline=baseline()))
    part = run.select(only=IN_ORDER[:3])
    assert part.manifest.selection is not None
    assert part.manifest.selection.words[-1] == "--stop-when-decided"
    assert compare(baseline(), part).sequential is not None


@pytest.mark.parametrize("locale", ["en", "ko"])
async def test_sentence_of_a_stopped_run_has_how_many_of_how_many(
    play: Play, load: Load, locale: str
) -> None:
    run = await play(chats(load), HI, stop=StopRule(baseline=baseline()))
    sentence = comparison_sentence(compare(baseline(), run), load_catalog(locale))
    expected = {
        "en": "Decided after 7 of 30 scenarios in random order",
        "ko": "무작위 순서로 시나리오 30개 가운데 7개 뒤에 결론이 났습니다",
    }
    assert expected[locale] in sentence


async def test_stopped_run_among_several_is_compared_by_the_always_valid_test(
    play: Play, load: Load
) -> None:
    stopped = await play(chats(load), HI, stop=StopRule(baseline=baseline()))
    arms = compare_arms([("before", baseline()), ("now", stopped), ("again", baseline())])
    assert all(arm.comparison.sequential for arm in arms if arm.comparison is not None)
    alone = compare(baseline(), stopped).p_value
    assert (arms[1].p_first, arms[2].p_first) == (pytest.approx(3 * alone), 1.0)  # three pairs
    assert arms[0].p_best is None  # of those that did not stop


async def test_runs_in_different_random_orders_cannot_be_compared_together(
    play: Play, load: Load
) -> None:
    rules = [StopRule(baseline=baseline(), seed=seed) for seed in (0, 1)]
    one, other = [await play(chats(load), HI, stop=rule) for rule in rules]
    with pytest.raises(UsageError, match="one, other stop when decided, and their scenarios were"):
        compare_arms([("before", baseline()), ("one", one), ("other", other)])


@pytest.mark.longer
async def test_history_leaves_stopped_runs_out_and_counts_them(
    play: Play, load: Load, tmp_path: Path
) -> None:
    await play(chats(load), HI, run_dir=tmp_path / "runs" / "whole")
    rule = StopRule(baseline=baseline())
    await play(chats(load), HI, stop=rule, run_dir=tmp_path / "runs" / "stopped")
    history = lhkit.History.load(tmp_path / "runs")
    assert [point.folder.name for point in history.points] == ["whole"]
    assert history.partial == 1
