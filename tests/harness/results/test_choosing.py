"""`choose_on_half`: the best of several runs, and what the other half says of it."""

from dataclasses import replace

import pytest

from lhkit.base.errors import UsageError
from lhkit.base.locales import load_catalog
from lhkit.harness.figures.halves import Choice
from lhkit.harness.report.markdown import table_lines
from lhkit.harness.report.terminal import halves_view
from lhkit.harness.results.choosing import choose_on_half, choose_runs
from lhkit.harness.results.results import Run
from lhkit.harness.scenarios.scenario_filter import ScenarioSelection, StoppedRun
from lhkit.harness.views.halves import choice_table, outcome_line
from tests.harness.build import printed, sample

NAMES = [f"s{number}" for number in range(40)]
HALVES = choose_on_half({name: Run(records=tuple(map(sample, NAMES))) for name in "ab"}).halves


def run(choosing: int, reporting: int, invalid: int = 0) -> Run:
    """Return a run that passed the first so many of each half."""
    passed = {*HALVES.choosing[:choosing], *HALVES.reporting[:reporting]}
    out = HALVES.reporting[len(HALVES.reporting) - invalid :]
    verdicts = {
        name: "invalid" if name in out else "pass" if name in passed else "fail" for name in NAMES
    }
    return Run(records=tuple(sample(name, verdict) for name, verdict in verdicts.items()))


OUTCOMES = [
    (run(5, 5), run(9, 15), "better"),
    (run(5, 15), run(9, 5), "worse"),
    (run(5, 5), run(20, 6), "no_difference"),
    (run(5, 18), run(9, 20), "cannot_tell"),
    (run(5, 5), run(5, 20), "first_stays"),
    (run(5, 5), run(9, 9, invalid=20), "no_samples"),
]
SENTENCES = {
    "better": (
        "new is better than old on the half that did not choose it: +50.0 (",
        "new 쪽이 old보다 낫습니다. 고르는 데 쓰지 않은 절반에서",
    ),
    "worse": (
        "new was chosen, but is worse than old on the half that did not choose it: -50.0 (",
        "고른 것은 new이지만, 고르는 데 쓰지 않은 절반에서는 old보다 못합니다",
    ),
    "no_difference": (
        "new was chosen, but is not significantly different from old on the half that did not "
        "choose it: +5.0 (",
        "더 나은 것이 있다고 말할 수 없습니다.",
    ),
    "cannot_tell": ("Cannot tell: new was chosen, but", "판단할 수 없음: 고른 것은 new이지만"),
    "first_stays": (
        "old stays: no other arm passed more on the half that chooses.",
        "그대로 둘 것: old.",
    ),
    "no_samples": ("Cannot tell: a half has no samples", "판단할 수 없음: 모든 조건에서"),
}


@pytest.mark.parametrize("locale", ["en", "ko"])
@pytest.mark.parametrize(("old", "new", "outcome"), OUTCOMES, ids=[row[2] for row in OUTCOMES])
def test_choice_is_said_in_words(old: Run, new: Run, outcome: str, locale: str) -> None:
    choice = choose_on_half({"old": old, "new": new})
    assert choice.outcome == outcome
    line = outcome_line(choice, load_catalog(locale))
    assert SENTENCES[outcome][locale == "ko"] in line


@pytest.mark.parametrize("locale", ["en", "ko"])
def test_counts_of_the_half_that_chooses_have_no_difference(locale: str) -> None:
    choice = choose_on_half({"old": run(5, 5), "new": run(20, 6, invalid=1)})
    table = choice_table([choice], load_catalog(locale))
    old, new = table.rows
    assert [cell.text for cell in old] == ["old", "5/20 25%", "5/19 26%", "–"]
    assert new[1].text.startswith("20/20 100%\n")
    assert new[3].text.startswith("+5 (")
    caption, left_out, _ = table.notes
    assert "0" in caption
    assert "1" in left_out
    sentence = {
        "en": "The half that chooses does not show that an arm is better",
        "ko": "고르는 절반은 어느 조건이 낫다는 근거가 되지 못합니다.",
    }[locale]
    assert sentence in caption


def test_choice_is_shown_in_terminal_markdown_and_notebook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    runs = {"old": run(5, 5), "<new>": run(9, 15)}
    choice = choose_on_half(runs)
    catalog = load_catalog("en")
    sentence = "is better than old on the half that did not choose it: +50.0 ("
    terminal = printed(halves_view([*runs.items()], [choice], catalog, title="t"), width=120)
    assert sentence in " ".join(terminal.split())
    assert terminal.count("<new>") == 3
    markdown = "\n".join(table_lines(choice_table([choice], catalog)))
    assert sentence in markdown
    html = choice._repr_html_()  # type: ignore[attr-defined]
    assert f"&lt;new&gt; {sentence}" in html
    assert "<new>" not in html
    assert repr(choice) == "<Choice of <new>: better>"


def test_several_choices_are_corrected_and_say_so() -> None:
    pair = [("a", run(0, 0)), ("b", run(1, 6))]
    choices = choose_runs([pair, [("c", run(0, 0)), ("d", run(1, 6))]])
    assert [choice.outcome for choice in choices] == ["no_difference"] * 2
    notes = choice_table(choices, load_catalog("en")).notes
    assert notes[-1] == "The p-values are corrected (Holm) for 2 choices."
    (alone,) = choose_runs([pair])
    assert alone.outcome == "better"


def test_choose_refuses_one_run_and_runs_that_stopped() -> None:
    with pytest.raises(UsageError, match="at least two runs"):
        choose_on_half({"a": run(1, 1)})
    whole = run(1, 1)
    stopped = StoppedRun(seed=0, baseline="b", planned=40, looked=9, decision=1)
    selection = ScenarioSelection(taken=9, total=40, stopped=stopped)
    manifest = whole.manifest.model_copy(update={"selection": selection})
    part = replace(whole, manifest=manifest)
    with pytest.raises(UsageError, match="b stops when decided: choosing on one half needs whole"):
        choose_on_half({"a": whole, "b": part})


def test_choose_takes_seed() -> None:
    runs = {"a": run(1, 1), "b": run(2, 2)}
    halves: list[Choice] = [choose_on_half(runs, seed=seed) for seed in (0, 0, 1)]
    assert halves[0].halves == halves[1].halves
    assert halves[0].halves.choosing != halves[2].halves.choosing
