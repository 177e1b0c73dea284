"""One sample as HTML: all that explains a verdict is there, and none of it is markup of its own."""

from collections.abc import Callable
from typing import Any

import pytest

from lhkit.harness.html.markup import MAX_CHARS, Html, join, tag, text
from lhkit.harness.html.trace import trace_html
from lhkit.harness.record import SampleRecord, TurnScore
from lhkit.harness.results import Run
from lhkit.locales import Catalog

OURS = {
    *("div", "p", "b", "ul", "li", "span", "code", "section", "h4", "small", "pre", "i", "ol"),
    *("table", "thead", "tbody", "tr", "th", "td", "ins", "del"),
}
"""The elements a transcript is made of."""


def test_what_is_no_markup_is_escaped_and_markup_joined_to_text_is_text_again() -> None:
    assert tag("p", "<b>", tag("i", "&"), None) == "<p>&lt;b&gt;<i>&amp;</i></p>"
    assert tag("p", tag("i", "x") + "!") == "<p>&lt;i&gt;x&lt;/i&gt;!</p>"
    assert tag("a", title='"><script>', hidden=True, lang=None) == (
        '<a title="&quot;&gt;&lt;script&gt;" hidden></a>'
    )
    assert isinstance(join(["<", Html("<br>")]), Html)
    assert join(["<", Html("<br>")]) == "&lt;<br>"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("\u2028\u2029", "\\u2028\\u2029"),
        ("\x00\ud800", "\\x00\\ud800"),
        ("가\n나\t다 👨‍👩‍👧", "가\n나\t다 👨‍👩‍👧"),
    ],
)
def test_characters_that_trick_the_eye_are_shown_as_escapes(raw: str, shown: str) -> None:
    assert text(raw) == shown


def test_an_endless_text_is_cut_and_says_how_long_it_was() -> None:
    shown = text("가" * (MAX_CHARS + 1))
    assert len(shown) < MAX_CHARS + 20
    assert shown.endswith("… [20,001]")


@pytest.mark.parametrize(
    "words",
    [
        "우유 사기라고 적어 줘",  # the user
        '좋아요. {"name": "add_note"',  # raw text
        'add_note({"text": "우유 사기"})',  # as it was read
        "trailing_comma",  # a repair
        "고쳐서 읽음",
        "잘림",
        '{"name": "add',  # a call that was cut off
        '{"status": "ok", "result": {"id": "note-1"}}',  # the envelope
        "사용자가 승인",
        "사용자가 거절",
        "버린 인자: colour",
        "첫 토큰 0.200 s",
        "프롬프트 900 (캐시 800), 생성 40",
        "모델 1.80 s, 도구 0.010 s, 사람을 기다림 0.600 s, 하네스 0.090 s",
        "does not match 우유",
        '{"matches": "우유"}',
        "부르지 않음",
        "예상에 없는 호출",
        "일어난 위반",
        "unconfirmed_write",
        '+ {"id": "note-1"}',
        '− {"id": "note-0"}',
        "대화가 길어졌어요",
        "sentence · ServerFailedError · 500",
        "a fault",
    ],
)
def test_a_transcript_says(
    words: str, make_record: Callable[..., SampleRecord], korean: Catalog, parse: Callable[..., Any]
) -> None:
    shown = parse(trace_html(make_record(), korean))
    assert words in "".join(shown.words)


def test_text_and_number_look_different_in_a_diff(
    make_record: Callable[..., SampleRecord], english: Catalog
) -> None:
    html = trace_html(make_record(), english)
    assert "<td><code>&quot;1&quot;</code></td><td><code>1</code></td>" in html


def test_a_record_of_an_earlier_version_without_a_comparison_is_shown_too(
    make_record: Callable[..., SampleRecord], korean: Catalog
) -> None:
    html = trace_html(make_record(scores=(TurnScore(passed=False, due_calls=1),)), korean)
    assert "lhr-diff" not in html
    assert "턴 1" in html


def test_a_sample_that_never_began_is_shown_with_its_fault(
    make_record: Callable[..., SampleRecord], korean: Catalog
) -> None:
    html = trace_html(make_record(turns=(), scores=(), state_diff={}, reasons=()), korean)
    assert "a fault" in html
    assert "데이터는 바뀌지 않았습니다." in html


@pytest.mark.promise("report.escapes")
def test_hostile_text_in_any_field_makes_no_element_and_no_attribute(
    hostile_run: Run, korean: Catalog, parse: Callable[..., Any]
) -> None:
    for record in hostile_run.records:
        shown = parse(trace_html(record, korean))
        assert {name for name, _ in shown.elements} <= OURS
        attributes = {key for _, each in shown.elements for key in each}
        assert attributes <= {*("class", "style", "role", "tabindex", "scope", "rowspan"),
                              *("colspan", "aria-label")}  # fmt: skip
        assert shown.text.count("window.pwned=1") > 20  # all of it can be read


def test_all_tables_name_their_columns_and_rows(
    make_record: Callable[..., SampleRecord], korean: Catalog, parse: Callable[..., Any]
) -> None:
    heads = parse(trace_html(make_record(), korean)).all("th")
    assert heads
    assert all(head.get("scope") in {"col", "row", "rowgroup"} for head in heads)
