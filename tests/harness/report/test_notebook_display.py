"""What a cell shows of a run, a sample and a comparison."""

from collections.abc import Callable
from typing import Any

import pytest

from lhkit.errors import UsageError
from lhkit.harness.compare import compare
from lhkit.harness.html.display import catalog_of
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.results import Run


def html_of(value: Any) -> str:
    html: str = value._repr_html_()
    return html


def test_a_run_shows_rates_with_intervals_and_failures_first(full_run: Run) -> None:
    html = html_of(full_run)
    assert "50% " in html
    assert "lhr-interval" in html
    assert html.index("fail-ko-01") < html.index("invalid-ko-01") < html.index("pass-ko-01")
    assert "<details" in html
    assert "<noscript" not in html


@pytest.mark.promise("report.escapes")
def test_a_notebook_gets_no_script_and_no_handler(
    hostile_run: Run, full_run: Run, parse: Callable[..., Any]
) -> None:
    shapes = (hostile_run, hostile_run.sample(hostile_run.records[0].sample_id.scenario),
              compare(full_run, hostile_run))  # fmt: skip
    for value in shapes:
        shown = parse(html_of(value))
        assert shown.all("script") == []
        assert [k for _, attributes in shown.elements for k in attributes if k[:2] == "on"] == []
        assert {name for name, _ in shown.elements}.isdisjoint({"img", "svg", "a", "iframe"})


def test_a_long_run_shows_its_first_failures_and_how_many_more_there_are(
    make_run: Callable[..., Run], make_record: Callable[..., SampleRecord]
) -> None:
    html = html_of(make_run(*(make_record(f"s-{n}") for n in range(40))))
    assert html.count("<details") == 30
    assert "샘플 10개" in html


def test_a_sample_is_found_by_name_and_shown_open(full_run: Run) -> None:
    view = full_run.sample("fail-ko-01")
    html = html_of(view)
    assert "lhr-turn" in html
    assert "<details" not in html
    assert repr(view) == (
        "Sample(fail-ko-01: AC-4, fail)\n"
        "  turn 0: add_note.text: does not match 우유\n"
        "  turn 0: the reply has none of 'x'"
    )


def test_a_sample_that_is_not_there_names_some_that_are(full_run: Run) -> None:
    with pytest.raises(UsageError, match="no sample 'x' with repeat 0: there is fail-ko-01"):
        full_run.sample("x")


def test_a_comparison_shows_numbers_and_flips(
    make_run: Callable[..., Run], make_record: Callable[..., SampleRecord]
) -> None:
    before = make_run(make_record("one"), make_record("two"), name="before")
    after = make_run(make_record("one", verdict=Verdict.PASS), make_record("two"), name="after")
    html = html_of(compare(before, after))
    assert "before → after" in html
    assert "1/2 50%" in html
    assert html.count('class="lhr-trace"') == 2  # of the one that flipped


def test_a_comparison_with_many_flips_shows_the_first_and_counts_the_rest(
    make_run: Callable[..., Run], make_record: Callable[..., SampleRecord]
) -> None:
    names = [f"s-{n}" for n in range(20)]
    before = make_run(*(make_record(name) for name in names))
    after = make_run(*(make_record(name, verdict=Verdict.PASS) for name in names))
    html = html_of(compare(before, after))
    assert html.count("<details") == 15
    assert "그리고 5개 더" in html


@pytest.mark.parametrize(
    ("locales", "chosen"), [(["en"], "en"), (["ko"], "ko"), (["ko", "en"], "ko"), (["fr"], "ko")]
)
def test_the_language_is_that_of_the_conversations(
    locales: list[str], chosen: str, make_record: Callable[..., SampleRecord]
) -> None:
    assert catalog_of([make_record(locale=each) for each in locales]).locale == chosen
