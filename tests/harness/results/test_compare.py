"""Comparisons of two runs: pairs, statistics, first divergence, and the view in the terminal."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.base.errors import UsageError
from lhkit.base.locales import load_catalog
from lhkit.conversation.responses import ModelIdentity, Timing
from lhkit.harness.figures.pairs import Comparison, Divergence, ViolationChange, first_divergence
from lhkit.harness.figures.statistics import sign_flip
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import (
    CallRecord,
    ModelCallRecord,
    SampleRecord,
    Severity,
    Verdict,
    Violation,
)
from lhkit.harness.report.markdown import markdown
from lhkit.harness.report.terminal import comparison_view
from lhkit.harness.results.compare import compare, compare_arms
from lhkit.harness.results.results import Run
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.views.tables import matrix_table
from tests.harness.build import (
    FAIL,
    INVALID,
    PASS,
    blocked,
    model_call,
    occurred,
    printed,
    sample,
    turn_of,
)
from tests.rows import check_rows

LETTERS = {"p": PASS, "f": FAIL, "i": INVALID}


def record(
    scenario: str,
    letter: str,
    repeat: int = 0,
    *,
    turn_s: float = 1.0,
    violations: tuple[Violation, ...] = (),
) -> SampleRecord:
    call = CallRecord(tool="add", raw_args={"x": 1}, result={"status": "ok"}, waiting_s=100.0)
    turn = turn_of(
        model_call(timing=Timing(first_token_s=turn_s / 2)),
        user="please",
        calls=(call,),
        reply="done",
        duration_s=turn_s + 100.0,
    )
    reasons = () if letter == "p" else ("wrong",)
    verdict = LETTERS[letter]
    return sample(scenario, verdict, repeat, turn, reasons=reasons, violations=violations)


def run(*columns: str, name: str = "", manifest: Manifest | None = None) -> Run:
    """Return a run of scenarios s0, s1 …: one string of verdicts per repeat."""
    records = [
        record(f"s{s}", letter, repeat)
        for repeat, letters in enumerate(columns)
        for s, letter in enumerate(letters)
    ]
    return Run(records=tuple(records), manifest=manifest or Manifest(), name=name)


def names(samples: Iterable[SampleId]) -> list[str]:
    return [each.scenario for each in samples]


def test_compare_pairs_samples_valid_in_both_runs() -> None:
    a = Run(records=(*run("pfip").records, record("x", "p"), record("s0", "f", 1)))
    b = Run(records=(*run("fpfi").records[::-1], record("y", "p")))
    comparison = compare(a, b)
    assert names(pair.sample_id for pair in comparison.pairs) == ["s0", "s1"]
    assert names(comparison.invalid) == ["s2", "s3"]
    assert comparison.only_a == (SampleId(scenario="x"), SampleId(scenario="s0", repeat=1))
    assert comparison.only_b == (SampleId(scenario="y"),)


@pytest.mark.longer
def test_compare_without_repeats_is_the_exact_mcnemar_test() -> None:
    from statsmodels.stats.contingency_tables import mcnemar

    comparison = compare(run("pppppppppffp"), run("fffffffpppfp"))
    assert (comparison.passed_a, comparison.passed_b) == (10, 4)
    assert (len(comparison.improvements), len(comparison.regressions)) == (1, 7)
    reference = mcnemar([[3, 7], [1, 1]], exact=True).pvalue
    assert comparison.p_value == pytest.approx(reference)
    assert comparison.mid_p == pytest.approx(sign_flip([1] + [-1] * 7, mid_p=True))
    assert comparison.difference == pytest.approx(-0.5)
    assert comparison.interval is not None
    assert -0.5 in comparison.interval
    assert comparison.interval.high == pytest.approx(0.0, abs=0.01)  # p is 0.07


def test_compare_does_not_take_repeats_as_independent() -> None:
    """Five scenarios flipped in each of four repeats: 20 pairs, and still 5 scenarios."""
    comparison = compare(run(*["ppppp" + "p" * 9] * 4), run(*["fffff" + "p" * 9] * 4))
    assert sign_flip([1] * 20) < 0.001
    assert comparison.p_value == pytest.approx(sign_flip([1] * 5))
    assert comparison.outcome == "no_difference"


@given(st.lists(st.tuples(st.sampled_from("pfi"), st.sampled_from("pfi")), max_size=30))
def test_compare_is_antisymmetric(pairs: list[tuple[str, str]]) -> None:
    a, b = (run("".join(pair[side] for pair in pairs)) for side in (0, 1))
    there, back = compare(a, b), compare(b, a)
    assert (there.passed_a, there.passed_b) == (back.passed_b, back.passed_a)
    assert there.p_value == back.p_value
    assert names(p.sample_id for p in there.regressions) == names(
        p.sample_id for p in back.improvements
    )
    turned = {"better": "worse", "worse": "better"}
    assert back.outcome == turned.get(there.outcome, there.outcome)
    valid = sum("i" not in pair for pair in pairs)
    assert len(there.pairs) == valid
    if there.interval is not None and there.difference is not None:
        assert there.difference in there.interval


@given(st.text("pfi", max_size=30))
def test_compare_of_a_run_with_itself_has_no_difference(letters: str) -> None:
    comparison = compare(run(letters), run(letters))
    assert (comparison.p_value, comparison.improvements, comparison.regressions) == (1.0, (), ())
    assert comparison.outcome in {"no_difference", "no_pairs"}
    if comparison.interval is not None:
        assert comparison.interval.low < 0 < comparison.interval.high


@check_rows(
    ("a", "b", "outcome"),
    [
        ("pppppp", "ffffff", "worse"),
        ("ffffff", "pppppp", "better"),
        ("ppppp", "fffff", "no_difference"),
        ("i", "p", "no_pairs"),
        ("", "", "no_pairs"),
    ],
)
def test_compare_outcome_depends_on_p_below_5_percent(a: str, b: str, outcome: str) -> None:
    assert compare(run(a), run(b)).outcome == outcome


@pytest.mark.longer
@check_rows(
    ("improved", "regressed", "n", "repeats", "margin", "outcome", "needed"),
    [
        (0, 0, 200, 1, 3, "no_worse", None),
        (0, 0, 60, 1, 3, "cannot_tell", 130),
        (0, 0, 60, 3, 3, "cannot_tell", 130),  # equal repeats do not replace scenarios
        (0, 40, 100, 1, 20, "worse_than_margin", None),
        (0, 40, 100, 1, 60, "no_worse", None),
        (2, 6, 100, 1, 3, "cannot_tell", 6200),
        (0, 3, 100, 1, 3, "cannot_tell", None),  # exactly at the margin: never decided
        (9, 0, 20, 1, 0, "no_worse", None),
        (0, 9, 20, 1, 0, "worse_than_margin", None),
    ],
)
def test_compare_with_margin(
    improved: int,
    regressed: int,
    n: int,
    repeats: int,
    margin: float,
    outcome: str,
    needed: int | None,
) -> None:
    same = "p" * (n - improved - regressed)
    a = run(*["f" * improved + "p" * regressed + same] * repeats)
    b = run(*["p" * improved + "f" * regressed + same] * repeats)
    comparison = compare(a, b, margin=margin)
    assert (comparison.outcome, comparison.needed_scenarios) == (outcome, needed)


@pytest.mark.longer
@check_rows("locale", ["en", "ko"])
@check_rows(
    ("b", "repeats", "texts"),
    [
        ("p" * 60, 1, ("Cannot tell whether b is more than 3", "about 130 scenarios would")),
        ("p" * 60, 2, ("Cannot tell", "about 130 scenarios with 2 repeats each")),
        ("p" * 97 + "fff", 1, ("Cannot tell", "Not even 100,000 scenarios")),
        ("p" * 200, 1, ("b is at most 3 points worse than a: +0.0 (-1.8 … +1.8) points",)),
        ("f" * 60, 1, ("b is more than 3 points worse than a: -100.0",)),
    ],
)
def test_comparison_sentence_with_margin(
    b: str, repeats: int, texts: tuple[str, ...], locale: str
) -> None:
    comparison = compare(run(*["p" * len(b)] * repeats), run(*[b] * repeats), margin=3)
    sentence = " ".join(comparison_text(comparison, locale).splitlines()[-1:])
    assert all(text in sentence for text in texts) or locale == "ko"
    assert "3%p" in sentence or locale == "en"


@check_rows(
    ("arms", "first_p", "equal"),
    [
        (["p" * 20, "p" * 20, "f" * 20], [None, 1.0, 3 * 2**-19], ["b"]),
        (["f" * 20, "p" * 13 + "f" * 7, "p" * 20], [None, 2 * 2**-12, 3 * 2**-19], []),
        (["p" * 14 + "f" * 6, "p" * 20], [None, 2**-5], []),  # two runs need no correction
        (["p" * 14 + "f" * 6, "p" * 20, "p" * 20], [None, 3 * 2**-5, 3 * 2**-5], ["a", "c"]),
    ],
)
def test_compare_arms_corrects_for_all_pairs(
    arms: list[str], first_p: list[float | None], equal: list[str]
) -> None:
    compared = compare_arms([(name, run(arm)) for name, arm in zip("abc", arms, strict=False)])
    assert [arm.p_first for arm in compared] == pytest.approx(first_p)
    assert [a.name for a in compared if a.p_best is not None and a.p_best >= 0.05] == equal
    table = matrix_table(compared, load_catalog("en"), title="")
    pairs = "3 pairs" if len(arms) == 3 else "1 pair"
    assert f"corrected (Holm) for all {pairs} of arms." in table.notes[0]
    assert all(name in "".join(table.notes[1:]) for name in equal)


@check_rows(
    ("arms", "unknown", "equal"),
    [
        (["ppppp", "fffff"], "b", ""),
        (["pppppp", "ffffff"], "", ""),
        (["p" * 7, "f" * 7, "p" * 7], "", "c"),
        (["p" * 6, "f" * 6, "f" * 6], "b, c", ""),  # 6 are enough for two arms, and not for three
        (["p" * 6 + "f" * 9, "f" * 15, "p" * 6 + "f" * 9], "b, c", ""),
        (["p" * 8, "f" * 8, "iiiiiiip"], "c", ""),  # one valid pair
    ],
)
@check_rows("locale", ["en", "ko"])
def test_matrix_names_arms_that_could_not_have_been_separated(
    arms: list[str], unknown: str, equal: str, locale: str
) -> None:
    compared = compare_arms([(name, run(arm)) for name, arm in zip("abc", arms, strict=False)])
    assert ", ".join(arm.name for arm in compared if arm.is_powerless) == unknown
    notes = matrix_table(compared, load_catalog(locale), title="").notes
    (cannot_tell,) = [note for note in notes if "annot tell" in note or "판단" in note] or [""]
    assert unknown in cannot_tell
    assert bool(cannot_tell) == bool(unknown)
    if unknown and not equal:  # neither "significantly worse" nor "not different"
        assert len(notes) == 2


def test_compare_refuses_invalid_margin() -> None:
    with pytest.raises(UsageError, match=r"margin is invalid: -1\. Give points from 0 to 100"):
        compare(run("p"), run("p"), margin=-1)


def test_compare_latency_is_the_median_paired_ratio() -> None:
    a = [record(f"s{n}", "p", turn_s=1.0 + n) for n in range(9)]
    b = [record(f"s{n}", "p", turn_s=(1.0 + n) * (0.5 if n < 8 else 50)) for n in range(9)]
    comparison = compare(Run(records=tuple(a)), Run(records=tuple(b)))
    assert comparison.turn is not None
    assert (comparison.turn.n, comparison.turn.median) == (9, pytest.approx(0.5))
    assert (comparison.turn.interval.low, comparison.turn.interval.high) == pytest.approx(
        (0.5, 0.5)
    )
    assert comparison.first_token is not None
    assert comparison.first_token.median == pytest.approx(0.5)
    assert comparison.call_ready is None


def test_compare_counts_violations_occurred_first() -> None:
    tried, written = blocked("r7_framing"), occurred("unconfirmed_write")
    a = (record("s0", "f", violations=(tried, tried)), record("s1", "p"), record("s2", "i"))
    b = (
        record("s0", "p", violations=(tried,)),
        record("s1", "f", violations=(written,)),
        record("s2", "i", violations=(written,)),
    )
    comparison = compare(Run(records=a), Run(records=b))
    assert comparison.violations == (
        ViolationChange(code="unconfirmed_write", severity=Severity.ESCAPED, a=0, b=1),
        ViolationChange(code="r7_framing", severity=Severity.ATTEMPTED, a=2, b=1),
    )
    assert names(pair.sample_id for pair in comparison.newly_occurred) == ["s1"]


def manifest_of(**hashes: str) -> Manifest:
    models = [{"model": "gemma", "dialect": hashes.pop("dialect", "json")}]
    return Manifest(models=models, scenarios=hashes)


def comparison_text(comparison: Comparison, locale: str = "en") -> str:
    return printed(comparison_view(comparison, load_catalog(locale)), soft_wrap=True)


def test_comparison_view_is_complete() -> None:
    a = run("ppppppppfi", name="old", manifest=manifest_of(s1="1", dialect="json"))
    b = run("ppfpppppp", name="new", manifest=manifest_of(s1="2", dialect="gemma4"))
    text = comparison_text(compare(a, b))
    for words in (
        "8/9 89%",
        "+0.0 (",
        "-1 · +1",
        "p = 1.000",
        "x1.00 (1.00 … 1.00), n = 9",
        "Warning: 1 scenario differs between the two runs: s1. ",
        "Only in old (1): s9",
        "dialect: json → gemma4",
        "Regressions (1):\n  s2\n    old · pass",
        '    new · fail · wrong\n      > please\n      add {"x":1} → ok\n      < done',
        "Improvements (1):\n  s8",
    ):
        assert words in text
    assert text.splitlines()[-1] == (
        "No significant difference between old and new (p = 1.000) over 9 pairs."
    )


def test_comparison_view_truncates_long_lists_of_flips() -> None:
    text = comparison_text(compare(run("p" * 30), run("f" * 30)))
    assert "Regressions (30):" in text
    assert text.count("    a · pass") == 10
    assert "… and 20 more" in text


def test_comparison_view_shows_one_repeat_per_scenario() -> None:
    text = comparison_text(compare(run("p", "p", "p", name="old"), run("f", "f", "f", name="new")))
    assert "Regressions (3):\n  s0, s0#2, s0#3\n    old · pass" in text
    assert text.count("new · fail") == 1


def test_comparison_view_escapes_markup() -> None:
    bad = record("s0", "f")
    hostile = Run(records=(bad,), name="[bold]x[/bold]\x1b[31m")
    text = comparison_text(compare(run("p"), hostile))
    assert "\x1b" not in text
    assert "[bold]x[/bold]" in text


def test_comparison_repr() -> None:
    assert repr(compare(run("ppf", name="x"), run("pff"))) == (
        "<Comparison of x and b: 2 and 1 of 3 pairs passed, p = 1, no difference>"
    )


def test_compare_names_runs_without_folder_by_model() -> None:
    free, required = (
        ModelIdentity(model="gemma", constraint=constraint) for constraint in ("off", "required")
    )
    a, b = answered_by(free), answered_by(required)
    assert (compare(a, b).name_a, compare(a, b).name_b) == ("gemma", "gemma required")
    assert (compare(a, a).name_a, compare(a, a).name_b) == ("a", "b")


def answered_by(identity: ModelIdentity) -> Run:
    """Return a run with one request to this model."""
    return Run(records=(sample("s0", PASS, 0, turn_of(model_call(identity=identity))),))


Turn = tuple[ModelCallRecord, ...]
CALL = '{"name": "search_protocols", "parameters": {"query": "'


def response(text: str, *ids: int) -> ModelCallRecord:
    return model_call(raw_text=text, token_ids=ids)


def conversation(*turns: Turn, verdict: Verdict = PASS) -> SampleRecord:
    return sample("s", verdict, 0, *(turn_of(*responses) for responses in turns))


SAME = (response("same", 1, 2),)


@check_rows(
    ("a", "b", "turn", "message", "token", "quotes"),
    [
        (
            (SAME, (response("one", 1), response("ab", 5, 6))),
            (SAME, (response("one", 1), response("ac", 5, 7))),
            1,
            1,
            1,
            ("ab", "ac"),
        ),
        ((SAME,), ((response("same!", 1, 2, 3),),), 0, 0, 2, ("same", "same!")),
        (((response("one"),),), (SAME,), 0, 0, None, ("one", "same")),
        (((response("x", 1, 9),),), ((response("x", 1, 8),),), 0, 0, 1, ("#9", "#8")),
        ((SAME,), ((*SAME, response("more", 3)),), 0, 1, None, ("", "more")),
        ((SAME,), (SAME, SAME), 1, 0, None, ("", "same")),
        (((response("a\nb"),),), ((response("a b"),),), 0, 0, None, ("a\\nb", "a b")),
    ],
)
def test_divergence_is_the_first_differing_token_or_character(
    a: tuple[Turn, ...],
    b: tuple[Turn, ...],
    turn: int,
    message: int,
    token: int | None,
    quotes: tuple[str, str],
) -> None:
    divergence = first_divergence(conversation(*a), conversation(*b))
    assert divergence == Divergence(
        turn=turn, message=message, token=token, a=quotes[0], b=quotes[1]
    )


def test_divergence_of_equal_texts_is_none() -> None:
    assert first_divergence(conversation(SAME, SAME), conversation(SAME, SAME)) is None


def test_divergence_quotes_text_around_the_place() -> None:
    texts = [f"{CALL}{query}{' and so on' * 20}" for query in ("coffee", "tea")]
    a, b = (conversation((response(text),)) for text in texts)
    divergence = first_divergence(a, b)
    assert divergence is not None
    assert divergence.a == '…rs": {"query": "coffee and so on and so on and s…'
    assert divergence.b == '…rs": {"query": "tea and so on and so on and so o…'


@pytest.mark.parametrize(
    ("ids", "words"), [((1, 2), "message 1, token 2"), ((), "message 1")], ids=["ids", "text"]
)
def test_comparison_view_shows_the_first_divergence(ids: tuple[int, ...], words: str) -> None:
    a = conversation((response(f"{CALL}coffee", *ids),))
    b = (response(f"{CALL}tea", *(each * 3 - 2 for each in ids)),)
    old = Run(records=(a,), name="old")
    new = Run(records=(conversation(b, verdict=FAIL),), name="new")
    where = f"first divergence: turn 1, {words}"
    text = comparison_text(compare(old, new))
    assert f'    {where}\n      old · …rs": {{"query": "coffee\n      new · …' in text
    text = markdown(new, load_catalog("en"), name="new", comparison=compare(old, new))
    assert f"  - `s` {where}: `…" in text
