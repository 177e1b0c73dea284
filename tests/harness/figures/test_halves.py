"""Choosing on one half of the scenarios and comparing on the other."""

import json
import random
from dataclasses import replace

import pytest

from lhkit.harness.figures.halves import (
    Choice,
    choose_on_halves,
    decide,
    group_of,
    halves_data,
    split_in_halves,
)
from lhkit.harness.figures.statistics import sign_flip
from lhkit.harness.records.record import SampleRecord
from lhkit.harness.scenarios.sample_id import SampleId
from tests.harness.build import sample

NAMES = [f"s{number}" for number in range(80)]
HALVES = split_in_halves({name: name for name in NAMES}, 0)


def arm(choosing: int, reporting: int, invalid: tuple[str, ...] = ()) -> list[SampleRecord]:
    """Return records of which the first so many of each half passed."""
    passed = {*HALVES.choosing[:choosing], *HALVES.reporting[:reporting]}
    return [
        sample(name, "invalid" if name in invalid else "pass" if name in passed else "fail")
        for name in NAMES
    ]


def choose(*arms: list[SampleRecord]) -> Choice:
    (choice,) = choose_on_halves([list(zip("abcdef", arms, strict=False))], 0)
    return choice


@pytest.mark.parametrize(
    ("scenario", "locale", "group"),
    [
        ("greet-ko-01", "ko", "greet-01"),
        ("greet-en-01", "en", "greet-01"),
        ("en.greet", "en", ".greet"),
        ("greet_ko", "ko", "greet"),
        ("greet-en-01", "ko", "greet-en-01"),
        ("token-01", "ko", "token-01"),
        ("a-ko-b-ko-1", "ko", "a-b-ko-1"),
    ],
)
def test_group_of_leaves_out_the_language(scenario: str, locale: str, group: str) -> None:
    assert group_of(scenario, locale) == group


def test_halves_keep_groups_together_and_differ_by_seed() -> None:
    groups = {f"s{n}-{locale}": f"s{n}" for n in range(41) for locale in ("ko", "en")}
    halves = split_in_halves(groups, 3)
    in_groups = [{groups[name] for name in half} for half in (halves.choosing, halves.reporting)]
    assert list(map(len, in_groups)) == [20, 21]
    assert not in_groups[0] & in_groups[1]
    assert {*halves.choosing, *halves.reporting} == groups.keys()
    assert split_in_halves(dict(reversed(groups.items())), 3).choosing == halves.choosing[::-1]
    assert split_in_halves(groups, 4).choosing != halves.choosing


def test_all_wordings_repeats_and_languages_are_in_one_half() -> None:
    ids = [
        (f"s{n}-{locale}", SampleId(scenario=f"s{n}-{locale}", wording=wording, repeat=repeat))
        for n in range(30)
        for locale in ("ko", "en")
        for wording in range(2)
        for repeat in range(2)
    ]
    records = [
        replace(sample(name, locale=name[-2:]), sample_id=sample_id) for name, sample_id in ids
    ]
    (choice,) = choose_on_halves([[("a", records), ("b", records)]], 0)
    halves = choice.halves
    assert (choice.choosing, choice.reporting) == (15 * 8, 15 * 8)
    assert {name[:-3] for name in halves.choosing}.isdisjoint(n[:-3] for n in halves.reporting)


def test_decide_takes_the_most_passed_and_of_equal_ones_the_first() -> None:
    assert decide([(1, 1, 0)], [(0, 1, 1)]) == (0, None)
    assert decide([(0, 2, 2)], [(0, 1, 1)] * 6) == (1, sign_flip([1] * 6))
    assert decide([], [(0, 1)]) == (0, None)


def test_choice_is_better_on_the_half_that_did_not_choose_it() -> None:
    choice = choose(arm(10, 10), arm(20, 24), arm(30, 30))
    assert (choice.chosen, choice.outcome) == ("c", "better")
    assert (choice.choosing, choice.reporting, choice.left_out) == (40, 40, 0)
    assert choice.difference == 0.5
    assert choice.p_value == pytest.approx(2 * 2**-20)
    assert choice.interval is not None
    assert choice.interval.low > 0
    assert [(each.choosing, each.reporting) for each in choice.arms] == [
        (10, 10),
        (20, 24),
        (30, 30),
    ]


@pytest.mark.parametrize(
    ("arms", "outcome"),
    [
        ([arm(10, 10), arm(40, 12)], "no_difference"),  # 30 more passed where it was chosen
        ([arm(10, 20), arm(40, 5)], "worse"),
        ([arm(10, 10), arm(10, 40)], "first_stays"),  # equal where arms are chosen
        ([arm(10, 10), arm(9, 40)], "first_stays"),
        ([arm(10, 36), arm(40, 40)], "cannot_tell"),  # 4 can improve
        ([arm(10, 34), arm(40, 40)], "better"),
    ],
)
def test_only_the_other_half_counts(arms: list[list[SampleRecord]], outcome: str) -> None:
    assert choose(*arms).outcome == outcome


def test_samples_that_are_invalid_in_an_arm_count_in_none() -> None:
    out = (*HALVES.choosing[:30], HALVES.reporting[0])
    choice = choose(arm(35, 5), arm(34, 20), arm(40, 0, invalid=out))
    assert (choice.choosing, choice.reporting, choice.left_out) == (10, 39, 31)
    assert choice.chosen == "c"
    assert choice.outcome == "no_difference"
    nothing = choose(arm(0, 0), arm(40, 40, invalid=HALVES.reporting))
    assert nothing.outcome == "no_samples"


def test_choices_that_are_reported_together_are_corrected() -> None:
    settings = [
        [("m-a", arm(0, 0)), ("m-b", arm(1, 6))],
        [("n-a", arm(0, 0)), ("n-b", arm(1, 8))],
        [("o-a", arm(1, 0)), ("o-b", arm(1, 40))],  # the first stays: nothing is tested
    ]
    (alone,) = choose_on_halves(settings[:1], 0)
    choices = choose_on_halves(settings, 0)
    assert (alone.p_value, alone.outcome) == (2**-5, "better")
    assert [choice.p_value for choice in choices] == [2**-5, 2 * 2**-7, None]
    first = choose_on_halves([settings[0], settings[0]], 0)
    assert [choice.p_value for choice in first] == [2 * 2**-5] * 2
    assert first[0].outcome == "no_difference"


def test_translations_are_one_cluster() -> None:
    def records(passed: bool) -> list[SampleRecord]:
        verdict = "pass" if passed else "fail"
        return [
            sample(f"s{n}-{locale}", verdict, locale=locale)
            for n in range(14)
            for locale in ("ko", "en")
        ]

    choice = choose(records(False), records(True))
    assert (choice.reporting, choice.p_value) == (14, 2**-6)


def test_halves_data_has_seed_scenarios_and_outcome() -> None:
    choice = choose(arm(10, 10), arm(30, 30))
    data = json.loads(json.dumps(halves_data([choice])))
    assert data["seed"] == 0
    assert (data["choosing"], data["reporting"]) == (
        list(HALVES.choosing),
        list(HALVES.reporting),
    )
    (row,) = data["choices"]
    assert (row["chosen"], row["outcome"], row["difference"]) == ("b", "better", 0.5)
    assert row["passed"]["b"] == {"choosing": 30, "reporting": 30}


@pytest.mark.longer
def test_equal_arms_are_rarely_called_better() -> None:
    """`evals/benchmarks/wording.py` has the figures."""
    rng = random.Random(0)
    wrong = 0
    for _ in range(400):
        rows = [[int(rng.random() < 0.5) for _ in range(6)] for _ in range(120)]
        chosen, p = decide(rows[:60], rows[60:])
        gain = sum(row[chosen] - row[0] for row in rows[60:])
        wrong += p is not None and p < 0.05 and gain > 0
    assert wrong <= 20
