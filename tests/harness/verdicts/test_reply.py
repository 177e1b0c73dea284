"""What the user must and must not read."""

from typing import Any

import pytest

from lhkit.harness.scenarios.script import ExpectedReply
from lhkit.harness.verdicts.reply import reply_reasons


@pytest.mark.parametrize(
    ("expected", "fitting", "wrong"),
    [
        ({}, ["", "anything"], []),
        ({"contains_any": ("a", "b")}, ["xbx", "A"], ["c", ""]),
        ({"contains_all": ("a", "b")}, ["b a"], ["a", "b"]),
        ({"excludes": ("추가했",)}, ["추가 못 했어요"], ["추가했어요"]),
        ({"matches": r"\S"}, ["."], ["", " \n"]),
        ({"contains_any": ("두  번",)}, ["두\n번"], ["두번"]),
        ({"contains_any": ("각",)}, ["\u1100\u1161\u11a8"], ["가"]),
        ({"contains_any": ("10",)}, ["10번", "(10)", "10, 11", "10."], ["1,100", "100", "10.5"]),
        ({"excludes": ("5",)}, ["15", "5.5", "0.5"], ["5", "=5%"]),
    ],
)
def test_a_reply_fits_or_says_why_not(expected: Any, fitting: list[str], wrong: list[str]) -> None:
    wanted = ExpectedReply(**expected)
    assert [text for text in fitting if reply_reasons(wanted, text)] == []
    assert [text for text in wrong if not reply_reasons(wanted, text)] == []


def test_a_curly_apostrophe_is_an_apostrophe() -> None:
    refused = ExpectedReply(contains_any=("couldn't",), excludes=("I've added",))
    assert reply_reasons(refused, "Sorry, I couldn\u2019t do that.") == []
    assert reply_reasons(refused, "I couldn't, but I\u2019ve added it.") != []
    assert reply_reasons(ExpectedReply(matches="^it's"), "it\u2019s") == []
