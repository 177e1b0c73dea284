"""Runs, samples and comparisons as HTML: complete, in one language, inert."""

from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.harness.records.record import SampleRecord, TurnScore, Verdict
from lhkit.harness.results.compare import compare
from lhkit.harness.views.html import MAX_CHARS
from lhkit.harness.views.sample import Sample
from tests.harness.report.runs import FULL_RUN, HOSTILE_RUN, Parsed, full_record, run_of

pytestmark = pytest.mark.usefixtures("korean")

ELEMENTS = {
    *("div", "p", "b", "ul", "li", "span", "code", "section", "h3", "h4", "small", "pre", "i"),
    *("table", "thead", "tbody", "tr", "th", "td", "ins", "del", "style"),
}
"""The elements of a transcript."""


def html_of(value: Any) -> str:
    """Return the notebook HTML of a value, without its style."""
    html: str = value._repr_html_()
    return html.partition("</style>")[2]


def sample_html(record: SampleRecord) -> str:
    return html_of(Sample.of(record))


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("<b>&\"'", "&lt;b&gt;&amp;&#34;&#39;"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("\x00\ud800", "\\x00\\ud800"),
        ("가\n나\t다 👨‍👩‍👧", "가\n나\t다 👨‍👩‍👧"),
    ],
)
def test_sample_html_escapes_markup_and_control_characters(raw: str, shown: str) -> None:
    assert f"<li>{shown}</li>" in sample_html(full_record(reasons=(raw,)))


def test_sample_html_truncates_long_text_and_shows_its_length() -> None:
    html = sample_html(full_record(reasons=("가" * (MAX_CHARS + 1),)))
    assert "가" * MAX_CHARS + " … [20,001]" in html
    assert "가" * (MAX_CHARS + 1) not in html


EXPLAINED = (
    "우유 사기라고 적어 줘",  # the user
    '좋아요. {"name": "add_note"',  # raw text
    'add_note({"text": "우유 사기"})',  # as it was read
    "trailing_comma",  # a repair
    "보정해서 읽음",
    "잘림",
    '{"name": "add',  # a call that was cut off
    '{"status": "ok", "result": {"id": "note-1"}}',  # the tool result
    "사용자가 승인",
    "사용자가 취소",
    "버린 인자: colour",
    "첫 토큰 0.200초",
    "프롬프트 900 (캐시 800), 생성 40",
    "모델 1.80초, 도구 0.010초, 사람을 기다림 0.600초, 하네스 0.090초",
    "우유에 맞지 않습니다",
    '{"matches": "우유"}',
    "부르지 않음",
    "예상에 없는 호출",
    "일어난 위반",
    "unconfirmed_write",
    '+ {"id": "note-1"}',
    '− {"id": "note-0"}',
    "대화가 길어졌어요",
    "sentence · ServerFailedError · 500",
    "an error",
)


def test_sample_html_explains_the_verdict() -> None:
    shown = "".join(Parsed(sample_html(full_record())).words)
    assert [words for words in EXPLAINED if words not in shown] == []


def test_sample_html_distinguishes_text_and_number() -> None:
    html = sample_html(full_record())
    assert "<td><code>&#34;1&#34;</code></td><td><code>1</code></td>" in html


def test_sample_html_without_call_scores() -> None:
    html = sample_html(full_record(turn_scores=(TurnScore(passed=False, due_calls=1),)))
    assert "lhr-diff" not in html
    assert "턴 1" in html


def test_sample_html_without_turns_shows_the_error() -> None:
    html = sample_html(full_record(turns=(), turn_scores=(), state_diff={}, reasons=()))
    assert "an error" in html
    assert "데이터는 바뀌지 않았습니다." in html


def test_sample_html_of_hostile_text_has_no_foreign_element() -> None:
    for record in HOSTILE_RUN.records:
        shown = Parsed(sample_html(record))
        assert {name for name, _ in shown.elements} <= ELEMENTS
        attributes = {key for _, each in shown.elements for key in each}
        assert attributes <= {*("class", "style", "role", "tabindex", "scope", "rowspan"),
                              *("colspan", "aria-label")}  # fmt: skip
        assert shown.text.count("window.pwned=1") > 20  # all of it can be read


def test_run_html_shows_rates_with_intervals_and_failures_first() -> None:
    html = html_of(FULL_RUN)
    assert "50% " in html
    assert "lhr-interval" in html
    assert html.index("fail-ko-01") < html.index("invalid-ko-01") < html.index("pass-ko-01")
    assert "<details" in html
    assert "<noscript" not in html


def test_notebook_html_has_no_script_and_no_handler() -> None:
    shapes = (HOSTILE_RUN, HOSTILE_RUN.sample(HOSTILE_RUN.records[0].sample_id.scenario),
              compare(FULL_RUN, HOSTILE_RUN))  # fmt: skip
    for value in shapes:
        shown = Parsed(html_of(value))
        assert shown.all("script") == []
        assert [k for _, attributes in shown.elements for k in attributes if k[:2] == "on"] == []
        assert {name for name, _ in shown.elements}.isdisjoint({"img", "svg", "a", "iframe"})


@pytest.mark.longer
def test_run_html_limits_samples_and_counts_the_rest() -> None:
    html = html_of(run_of(*(full_record(f"s-{n}") for n in range(40))))
    assert html.count('<details class="lhr-sample"') == 30
    assert "샘플 10개" in html


def test_run_html_shows_what_decides_and_folds_the_tables() -> None:
    shown, _, folded = html_of(FULL_RUN).rpartition("<details>")
    assert "lhr-tiles" in shown
    assert "모델: " in shown
    assert "scripted model" not in shown
    assert "<table>" not in shown.partition('<details class="lhr-sample"')[0]
    assert "<table>" in folded
    assert "첫 토큰 p50" in folded


def test_run_sample_is_shown_open() -> None:
    view = FULL_RUN.sample("fail-ko-01")
    html = html_of(view)
    assert "lhr-turn" in html
    assert "<details" not in html
    assert repr(view) == (
        "Sample(fail-ko-01: AC-4, fail)\n"
        "  turn 0: add_note.text: does not match 우유\n"
        "  turn 0: the reply has none of 'x'"
    )


def test_run_sample_that_is_missing_names_others() -> None:
    with pytest.raises(UsageError, match=r"no sample .x. with repeat 0"):
        FULL_RUN.sample("x")


def test_comparison_html_shows_numbers_and_flips() -> None:
    before = run_of(full_record("one"), full_record("two"), name="before")
    after = run_of(full_record("one", verdict=Verdict.PASS), full_record("two"), name="after")
    html = html_of(compare(before, after))
    assert "before → after" in html
    assert "1/2 50%" in html
    assert html.count('class="lhr-trace"') == 2  # of the one that flipped


@pytest.mark.longer
def test_comparison_html_limits_flips_and_counts_the_rest() -> None:
    names = [f"s-{n}" for n in range(20)]
    before = run_of(*(full_record(name) for name in names))
    after = run_of(*(full_record(name, verdict=Verdict.PASS) for name in names))
    html = html_of(compare(before, after))
    assert html.count("<details") == 15
    assert "그리고 5개 더" in html
