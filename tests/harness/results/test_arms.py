"""Always-valid tests of several arms: what is corrected, and what a running arm decides."""

from dataclasses import replace
from itertools import permutations
from math import exp, log
from random import Random

import pytest

from lhkit.base.locales import load_catalog
from lhkit.harness.figures.sequential import SequentialTest
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.results.arms import WorseArms, gains_in_order
from lhkit.harness.results.compare import compare_arms
from lhkit.harness.results.results import Run
from lhkit.harness.running.stopping import DropRule
from lhkit.harness.scenarios.scenario_filter import ScenarioSelection, StoppedRun, random_key
from lhkit.harness.views.tables import matrix_table
from tests.harness.build import FAIL, INVALID, PASS, sample

NAMES = [f"s{n:02}" for n in range(40)]
ORDER = sorted(NAMES, key=lambda name: random_key(3, name))
KINDS = {"p": PASS, "f": FAIL, "i": INVALID}


def arm(verdicts: str, *, repeats: int = 1) -> Run:
    """Return a run of the first scenarios in the random order, with these verdicts."""
    records = [
        replace(sample(name, KINDS[verdict]), sample_id=sample_id)
        for name, verdict in zip(ORDER, verdicts, strict=False)
        for sample_id in (sample(name, PASS, repeat).sample_id for repeat in range(repeats))
    ]
    manifest = Manifest(content_hashes={name: ["hash"] for name in NAMES}, repeats=repeats)
    return Run(records=tuple(records), manifest=manifest)


def dropped(run: Run, better: str, looked: int) -> Run:
    part = ScenarioSelection(
        taken=len(run.records),
        total=40,
        stopped=StoppedRun(seed=3, baseline=better, planned=40, looked=looked, decision=-1, arms=3),
    )
    return replace(run, manifest=run.manifest.model_copy(update={"selection": part}))


def test_two_arms_have_the_p_value_of_the_two_sided_test() -> None:
    losses = SequentialTest(margin=0.0, largest=1, limit=log(2 / 0.05))
    for _ in range(7):
        losses.add([-1])
    assert losses.direction == -1
    worse = WorseArms([arm("p" * 40), arm("f" * 7)], seed=3)
    assert worse.p_value(1) < 0.05
    assert worse.p_difference(0, 1) == worse.p_value(1)
    assert WorseArms([arm("p" * 40), arm("f" * 6)], seed=3).p_value(1) >= 0.05


def test_p_values_are_corrected_for_all_ordered_pairs_step_by_step() -> None:
    runs = [arm("p" * 40), arm("f" * 40), arm("f" * 12 + "p" * 28)]
    alone = {
        (a, b): WorseArms([runs[b], runs[a]], seed=3).corrected[1, 0] / 2
        for a, b in permutations(range(3), 2)
    }
    smallest = sorted(alone, key=lambda pair: alone[pair])
    found = WorseArms(runs, seed=3).corrected
    steps = [min(1.0, alone[pair] * (6 - step)) for step, pair in enumerate(smallest)]
    highest = [max(steps[: step + 1]) for step in range(6)]
    shown = [found[pair] for pair in smallest]
    assert shown[:3] == pytest.approx(highest[:3])


def test_limit_of_the_next_arm_counts_arms_that_are_not_run_yet() -> None:
    first = [arm("p" * 40)]
    assert exp(WorseArms(first, seed=3, arms=3).log_limit) == pytest.approx(6 / 0.05)
    after = [*first, dropped(arm("f" * 9), "a", 9)]
    assert exp(WorseArms(after, seed=3, arms=3).log_limit) == pytest.approx(5 / 0.05)
    rule = DropRule.after(after, arms=3, seed=3)
    assert rule.runs == first  # a dropped one is no rival
    assert exp(rule.log_limit) == pytest.approx(5 / 0.05)


def test_gains_end_before_a_scenario_that_an_arm_does_not_have() -> None:
    """Of later ones only the fastest may be there."""
    a, b = arm("p" * 40), arm("f" * 10)
    gaps = replace(b, records=tuple(r for r in b.records if r.sample_id.scenario != ORDER[4]))
    assert gains_in_order(a, b, 3) == ([[-1]] * 10, 1)
    assert gains_in_order(a, gaps, 3) == ([[-1]] * 4, 1)
    missing = replace(
        b, records=b.records[:1] + b.records[3:]
    )  # not run where the first is invalid
    assert gains_in_order(arm("piippppppp"), missing, 3)[0] == [[-1], [], [], *[[-1]] * 7]
    assert gains_in_order(a, arm("fif"), 3)[0] == [[-1], [], [-1]]
    assert gains_in_order(arm("p" * 5, repeats=2), arm("f" * 5, repeats=2), 3) == (
        [[-1, -1]] * 5,
        2,
    )


@pytest.mark.longer
def test_running_arm_decides_as_the_table_says() -> None:
    """An arm that was dropped has a corrected p-value below 5 %, whatever the others did."""
    drops = 0
    for seed in range(30):
        rng = Random(seed)
        rates = [rng.choice((0.2, 0.5, 0.95)) for _ in range(4)]
        runs: list[Run] = []
        for rate in rates:
            whole = arm("".join(rng.choices("pf", weights=(rate, 1 - rate), k=40)))
            rule = DropRule.after(runs, arms=4, seed=3)
            test = scenarios_run(rule, whole)
            if test is None:
                runs.append(whole)
            else:
                drops += 1
                part = replace(whole, records=whole.records[: test + 2])  # samples under way
                runs.append(dropped(part, "x", test))
        worse = WorseArms(runs, seed=3)
        for number, run in enumerate(runs):
            assert run.manifest.selection is None or worse.p_value(number) < 0.05
    assert drops > 10


def scenarios_run(rule: DropRule, run: Run) -> int | None:
    """Return after how many scenarios an arm is dropped."""
    passed = {record.sample_id.scenario: record.is_passed for record in run.records}
    tests = [SequentialTest(margin=0.0, largest=1, limit=rule.log_limit) for _ in rule.runs]
    rivals = [{r.sample_id.scenario: r.is_passed for r in rival.records} for rival in rule.runs]
    for number, name in enumerate(ORDER, start=1):
        for test, rival in zip(tests, rivals, strict=True):
            test.add([passed[name] - rival[name]])
        if any(test.direction < 0 for test in tests):
            return number
    return None


@pytest.mark.parametrize("locale", ["en", "ko"])
def test_table_says_which_arm_was_dropped_after_how_many_and_why(locale: str) -> None:
    runs = [
        ("first", arm("p" * 20 + "f" * 20)),
        ("bad", dropped(arm("f" * 9), "first", 9)),
        ("good", arm("p" * 38 + "ff")),
    ]
    arms = compare_arms(runs)
    assert [a.p_best is None for a in arms] == [False, False, True]
    notes = matrix_table(arms, load_catalog(locale), title="").notes
    (line,) = [note for note in notes if note.startswith("bad")]
    assert "first" in line
    assert {"40", "9"} <= set(line.replace("개", " ").replace(".", " ").split())
    rate, difference = (arms[1].summary.total.pass_rate, arms[1].comparison)
    assert rate == 0.0
    assert difference is not None
    assert difference.sequential is not None
    assert arms[1].p_best is not None
    assert arms[1].p_best < 0.05


def test_best_arm_is_one_that_was_run_to_the_end() -> None:
    """The first scenarios may be easy: 9 of 10 there are worse than 10 of 10, and 10 of 40."""
    easy = dropped(arm("p" * 9 + "f"), "first", 10)
    arms = compare_arms([("first", arm("p" * 10 + "f" * 30)), ("easy", easy)])
    assert arms[0].p_best is None
    assert arms[1].p_best is not None


def test_arms_that_could_not_have_been_dropped_are_named() -> None:
    few = [("a", arm("p" * 8)), ("b", arm("f" * 8)), ("c", arm("p" * 8))]
    arms = compare_arms(few, order_seed=3)
    assert [a.is_powerless for a in arms] == [False, True, True]
    assert not any(a.is_powerless for a in compare_arms([few[0], few[1]], order_seed=3))
