"""`reply_reasons`: phrases, numbers and patterns that a reply must (not) contain."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.base.errors import ScenarioError
from lhkit.harness.scenarios.scenario import ExpectedReply
from lhkit.harness.scoring.reply import REPLY_BORDER, reply_reasons
from tests.rows import check_rows


@check_rows(
    ("expected", "fitting", "wrong"),
    [
        ({}, ["", "anything"], []),
        ({"contains_any": ("a", "b")}, ["x b x", "A"], ["c", "", "xbx"]),
        ({"contains_all": ("a", "b")}, ["b a"], ["a", "b"]),
        ({"excludes": ("추가했",)}, ["추가 못 했어요"], ["추가했어요"]),
        ({"matches": r"\S"}, ["."], ["", " \n"]),
        ({"contains_any": ("두  번",)}, ["두\n번"], ["두번"]),
        ({"contains_any": ("각",)}, ["\u1100\u1161\u11a8"], ["가"]),
        ({"contains_any": ("10",)}, ["10번", "(10)", "10, 11", "10."], ["1,100", "100", "10.5"]),
        ({"excludes": ("5",)}, ["15", "5.5", "0.5"], ["5", "=5%"]),
    ],
)
def test_reply_reasons_of_each_condition(
    expected: Any, fitting: list[str], wrong: list[str]
) -> None:
    wanted = ExpectedReply(**expected)
    assert [text for text in fitting if reply_reasons(wanted, text)] == []
    assert [text for text in wrong if not reply_reasons(wanted, text)] == []


@check_rows(
    ("phrase", "found", "not_found"),
    [
        ("1000", ["$1,000", "1,000원", "1000", "1\u00a0000", "1\u202f000", "1\u2009000개",
                  "1000.00", "$1,000.00.", "(1,000)", "합계,1,000원", "1,000, 2,000"],
         ["1 000", "11,000", "1,0001", "1,000,000", "1000.5", "1000.005", "1.000", "01,000",
          "21000"]),
        ("1,000", ["1000", "$1,000", "1,000.00"], ["1,000,000", "21,000", "1,000.5"]),
        ("$1000", ["$1,000"], ["$ 1,000"]),
        ("10", ["10", "10.00", "10,", "10번"], ["1,100", "10.5", "10,500", "1,010", "110"]),
        ("0.5", ["0.5", "0.50", "0,5", "0.500"], ["10.5", "0.05", "0.55"]),
        ("7.30", ["7.30", "7.3", "7,3"], ["7.300", "7.03", "17.3", "7.3 pm"]),
        ("2,10", ["2,10"], ["210"]),
        ("2026,001", ["2026,001"], ["2026001"]),
    ],
)  # fmt: skip
def test_reply_numbers_match_with_any_thousands_separator(
    phrase: str, found: list[str], not_found: list[str]
) -> None:
    wanted, unwanted = ExpectedReply(contains_all=(phrase,)), ExpectedReply(excludes=(phrase,))
    assert [text for text in found if reply_reasons(wanted, text)] == []
    assert [text for text in not_found if not reply_reasons(wanted, text)] == []
    assert [text for text in found if not reply_reasons(unwanted, text)] == []
    assert [text for text in not_found if reply_reasons(unwanted, text)] == []


@given(st.integers(0, 10**12), st.sampled_from(["", ".00"]), st.sampled_from(["", "$", "약 "]))
def test_reply_finds_every_formatted_whole_number(n: int, cents: str, sign: str) -> None:
    for phrase, text in ((f"{n}", f"{sign}{n:,}{cents}원"), (f"{n:,}", f"{sign}{n}{cents}원")):
        assert reply_reasons(ExpectedReply(contains_all=(phrase,)), text) == ()
    other = f"{sign}{n * 10 + 1:,}원"
    assert reply_reasons(ExpectedReply(contains_all=(f"{n}",)), other) != ()


@check_rows(
    ("phrase", "found", "not_found"),
    [
        (
            "5",
            ["5 degrees", "3-5 days", "(5)", "5,7,9", "5개", "5도입니다", "~5", "D-5", "3~5", "3–5",
             "- 5 eggs", "5.", "**5**", "５", "4, 5", "x=5;", "+5"],
            ["-5 degrees", "−5", "(-5)", "-$5", "15", "5.5", "1,005", "0.5", "a: -5", "\u22125도"],
        ),
        ("-5", ["-5 degrees", "−5", "it is -5.", "(-5)", "**-5**", "3 to -5"], ["3-5 days", "5",
            "2026-5", "-55", "-5.5", "A-5"]),
        ("17", ["17.06.2026", "06.17.2026", "17일"], ["1.17", "117"]),
        ("4.5", ["$4.50", "€4.50.", "4.50 dollars", "4.50달러", "4.5%"],
            ["4.55", "14.50", "-$4.50", "$4.505", "v4.50"]),
        ("4.50", ["4.50", "$4.50", "4.5"], ["45.0", "4.05"]),
        ("3.5", ["3.5,4.5,5.5", "3.5"], ["13.5,4.5"]),
        ("2026-06-15", ["`2026-06-15`", "2026\u201106\u201115",
            "**2026-06-15**입니다"], ["12026-06-15"]),
        ("11 eggs", ["**11** eggs", "_11_ eggs", "11\u00a0eggs", "１１ eggs", "11 eg\u00adgs",
            "***11*** eggs", "11\u200b eggs"], ["111 eggs", "-11 eggs"]),
        ("I've", ["and I\u2019ve"], ["I have"]),
        ("it's \"on\"", ["it\u2019s \u201con\u201d", "it's \"on\""], ["its on"]),
        ("3*4*5", ["3*4*5"], ["345"]),
        ("snake_case_name", ["snake_case_name"], ["snakecasename"]),
    ],
)  # fmt: skip
def test_reply_finds_a_number_and_no_part_of_one(
    phrase: str, found: list[str], not_found: list[str]
) -> None:
    wanted = ExpectedReply(contains_any=(phrase,))
    assert [text for text in found if reply_reasons(wanted, text)] == []
    assert [text for text in not_found if not reply_reasons(wanted, text)] == []


@check_rows(
    ("phrase", "found", "not_found"),
    [
        ("1.5", ["1.50 kg", "1,50 €", "1,5 kg", "1.50kg", "1.5", "1.50.", "a 1,50-liter jug",
                 "01:30, 1.5"],
         ["11.5", "1.55", "1,500", "1.500", "15", "v1.50", "version 1.50", "버전 1.50",
          "1.50 p.m.", "1.50(화)", "1.50.3", "-1.50", "1.05"]),
        ("1,50", ["1.5", "1.50", "1,5"], ["150", "1,500", "11,50"]),
        ("2", ["2.0 kg", "2,00 €", "2.00"], ["2.05", "v2.0", "20", "2.000"]),
        ("1000", ["1'000", "1\u2019000", "1'000.00", "1\u2007000", "1.000,00"],
         ["1.000", "1,0000", "1'0000"]),
        ("1234567", ["1'234'567", "1.234.567", "1,234,567", "1\u202f234\u202f567",
                     "1.234.567,00"],
         ["1.234.5678", "1.234,567", "1'234,567"]),
        ("1234.5", ["1,234.50", "1.234,50", "1'234.5", "1234,5", "1\u00a0234,50"],
         ["1.234.5", "1,234,5"]),
        ("1.000", ["1.000"], ["1000", "1,000", "1", "1.0"]),
        ("1,000", ["1000", "1'000"], ["1.000", "1"]),
        ("1.10", ["v1.10", "version 1.10", "1.10(화)"], ["v1.1", "1.11"]),
        ("1.1", ["v1.1", "1.10 kg"], ["v1.10", "version 1.10", "1.10(월)"]),
        ("10", ["10.0", "10.00", "10,0"], ["1.0", "100"]),
        ("2.", ["it is 2."], ["it is 2.5", "12."]),
        (".5", ["about .5 kg"], ["1.5 kg"]),
        ("A1", ["A1.", "(A1)"], ["A10", "BA1", "A1.5"]),
    ],
)  # fmt: skip
def test_reply_numbers_compare_by_value(
    phrase: str, found: list[str], not_found: list[str]
) -> None:
    wanted = ExpectedReply(contains_any=(phrase,))
    assert [text for text in found if reply_reasons(wanted, text)] == []
    assert [text for text in not_found if not reply_reasons(wanted, text)] == []


@given(st.decimals(0, 10**6, places=2), st.sampled_from([",", "'", "\u00a0", "\u202f"]))
def test_reply_finds_an_amount_in_any_notation(amount: Any, mark: str) -> None:
    plain = format(amount, "f")
    whole, _, cents = format(amount, ",.2f").partition(".")
    point = ".,"[mark == "\u202f"]
    for text in (plain, f"{whole.replace(',', mark)}{point}{cents}", f"{amount.normalize():f}"):
        for phrase in (plain, f"{amount.normalize():f}"):
            assert reply_reasons(ExpectedReply(contains_all=(phrase,)), f"it is {text} kg") == ()
    other = ExpectedReply(contains_all=(f"{amount + 1:f}",))
    assert reply_reasons(other, f"it is {plain} kg")


@check_rows(
    ("phrase", "found", "not_found"),
    [
        ("no", ["No.", "oh no!", "no-one", "(no)", "no\u2014never", "no습니다"],
         ["I know", "nothing", "another", "now", "piano"]),
        ("sent", ["sent.", "was sent", "'sent'"], ["presented", "sentence", "unsent"]),
        ("art", ["art, music", "Art!"], ["start", "article", "arts", "party"]),
        ("log", ["my log:", "log2", "log_entry"], ["catalog", "logs", "logged", "blog"]),
        ("can", ["I can.", "can do", "can's"], ["can't", "can\u2019t", "cannot", "scan"]),
        ("don", ["Don Juan"], ["don't", "done"]),
        ("n't", ["I can't", "didn't", "I don\u2019t"], ["not", "n'the"]),
        ("it", ["it's", "it\u2019ll do"], ["its", "item"]),
        ("cancel*", ["cancelled", "Cancel", "cancelling it"], ["uncancelled", "can cel"]),
        ("add it", ["I'll add it."], ["add items", "I padd it"]),
        ("tea", ["tea를 샀어요", "녹tea", "tea-time", "my tea"], ["team", "steal", "teas"]),
        ("습관", ["습관을", "습관이", "새습관"], ["습도"]),
        ("했", ["했어요", "추가했습니다"], ["해요"]),
        ("add 좀", ["add 좀요"], ["padd 좀"]),
        ("茶", ["緑茶を", "お茶"], ["水"]),
        ("ชา", ["ดื่มชาทุกวัน"], ["น้ำ"]),
        ("café", ["cafe\u0301", "a café."], ["cafe", "cafés", "cafeteria"]),
        ("naïve", ["nai\u0308ve"], ["naive"]),
        ("дом", ["мой дом."], ["домой", "том"]),
        ("été", ["l'été dernier"], ["étés", "complété"]),
        ("kg", ["5kg", "5 kg", "1.50kg."], ["kgs"]),
        ("3일", ["3일에", "(3일)"], ["13일", "23일"]),
        ("not done*", ["not done", "was not donee"], ["not do"]),
        ("done!", ["done!", "all done!"], ["undone!", "done"]),
        ("*now*", ["now", "**now**"], ["know", "nowhere"]),
    ],
)  # fmt: skip
def test_reply_phrases_are_whole_words(phrase: str, found: list[str], not_found: list[str]) -> None:
    wanted, unwanted = ExpectedReply(contains_any=(phrase,)), ExpectedReply(excludes=(phrase,))
    assert [text for text in found if reply_reasons(wanted, text)] == []
    assert [text for text in not_found if not reply_reasons(wanted, text)] == []
    assert [text for text in found if not reply_reasons(unwanted, text)] == []


def test_reply_without_spaces_keeps_the_edges_of_words() -> None:
    for phrase, text, is_found in (
        ("물 마시기", "물마시기를", True),
        ("물마시기", "물 마시기", True),
        ("no", "say no more", True),
        ("no", "I know it", False),
        ("no", "an owl", False),
        ("to do", "a todo list", True),
        ("to do", "the photo dog", False),
    ):
        wanted = ExpectedReply(contains_any=(phrase,), ignore="spaces")
        assert (not reply_reasons(wanted, text)) is is_found, (phrase, text)


def test_reply_patterns_stay_as_written() -> None:
    assert not reply_reasons(ExpectedReply(matches="no"), "I know")
    assert reply_reasons(ExpectedReply(matches=r"\bno\b"), "I know")


def test_reply_without_spaces_distinguishes_minus_and_hyphen() -> None:
    wanted = ExpectedReply(contains_any=("5도",), ignore="spaces")
    assert reply_reasons(wanted, "기온은 -5 도")
    assert not reply_reasons(wanted, "기온은 5 도")


def test_reply_of_a_conversation_has_no_phrase_across_two_replies() -> None:
    whole = REPLY_BORDER.join(["I have 7", "5 cups"])
    for phrase, ignore in (("75", "spaces"), ("7 5 cups", None), ("75", None)):
        wanted = ExpectedReply(contains_any=(phrase,), ignore=ignore)  # type: ignore[arg-type]
        assert reply_reasons(wanted, whole), phrase
    assert not reply_reasons(ExpectedReply(contains_all=("7", "5 cups")), whole)
    assert not reply_reasons(ExpectedReply(matches=r"7\n5"), whole)


@pytest.mark.parametrize("phrase", ["\\x1c", "\\u200b", "\\u00ad\\u00ad"])
def test_scenario_refuses_a_phrase_that_no_reply_can_show(load: Any, phrase: str) -> None:
    body = (
        f'- id: s\n  ac: A\n  turns:\n    - user: hi\n      reply: {{contains_any: ["{phrase}"]}}\n'
    )
    with pytest.raises(ScenarioError, match=r":5: .*nothing of it is visible in a reply"):
        load(body)


@pytest.mark.longer
@check_rows("unit", ["1", "`", "1.", "1,111", "`a", "*", "_a", "-", "1 "])
def test_reply_of_a_model_that_repeats_itself_is_searched_once(unit: str) -> None:
    """Were the run searched again from each place in it, this would take far too long."""
    text = unit * (300_000 // len(unit))
    assert reply_reasons(ExpectedReply(contains_all=("1000",)), f"{text}\n1,000 it") == ()
