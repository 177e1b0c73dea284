"""Editing arguments in a terminal: choices by typed lines, null, output."""

from collections.abc import Mapping
from typing import Any

import pytest

from lhkit.base.locales import load_catalog
from lhkit.confirm.form import Choice
from lhkit.confirm.terminal import TerminalGate, named_choices, numbered
from lhkit.conversation.tool_results import ToolOk
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

Pair = tuple[str, str]


def choices(*pairs: str | Pair) -> list[Choice]:
    both = [pair if isinstance(pair, tuple) else (pair, "") for pair in pairs]
    return [Choice(value=value, title=title) for value, title in both]


@check_rows(
    ("pairs", "marks"),
    [
        (["a", "b"], ["1", "2"]),
        (["2", "1"], ["#1", "#2"]),
        (["3", "4"], ["1", "2"]),  # no number of a choice
        ([("a", "2"), ("b", "x")], ["#1", "#2"]),
        ([("a", " 1 "), "b"], ["#1", "#2"]),
        (["\uff11", "b"], ["#1", "#2"]),  # a full-width 1
        (["1.", "b"], ["#1", "#2"]),
        (["1", "#2"], ["##1", "##2"]),
        (["1", "\uff032"], ["##1", "##2"]),
        ([str(n) for n in range(1, 12)], [f"#{n}" for n in range(1, 12)]),
    ],
)
def test_terminal_numbers_of_choices_are_no_values_or_titles(
    pairs: list[Any], marks: list[str]
) -> None:
    assert [mark for mark, _ in numbered(choices(*pairs))] == marks


@check_rows(
    ("pairs", "line", "values"),
    [
        (["a", "b"], "2", ["b"]),
        (["a", "b"], " 2. ", ["b"]),
        (["a", "b"], "A", ["a"]),
        (["a", "b"], "3", []),
        (["a", "b"], "#2", []),
        (["2", "1"], "1", ["1"]),
        (["2", "1"], "#1", ["2"]),
        (["10", "5"], "1", ["10"]),
        (["Red", "red"], "red", ["red"]),
        (["Red", "red"], "RED", ["Red", "red"]),
        (["in progress", "done"], " In   Progress ", ["in progress"]),
        ([("se", "Seoul"), ("bu", "Busan")], "busan", ["bu"]),
        ([("a", "b"), ("b", "a")], "a", ["a", "b"]),  # a value and the title of another
        ([("a", "Same"), ("b", "Same")], "same", ["a", "b"]),
        ([("a", "Same"), ("b", "Same")], "2", ["b"]),
        (["서울", "부산"], "부산", ["부산"]),
        (["\u1109\u1165\u110b\u116e\u11af"], "서울", ["\u1109\u1165\u110b\u116e\u11af"]),
    ],
)
def test_terminal_line_names_a_choice_or_several(
    pairs: list[Any], line: str, values: list[str]
) -> None:
    assert named_choices(choices(*pairs), line) == values


SCHEMA = object_schema(
    "size",
    size={"enum": ["2", "1"]},
    level={"enum": [1, 2], "enumNames": ["2", "1"]},
    note={"type": ["string", "null"]},
    count={"type": ["integer", "null"], "default": 7},
    when={"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    flag={"type": ["boolean", "null"]},
)
ARGS = {"size": "2", "level": 1, "note": "x", "count": 3, "when": None, "flag": True}


async def edited(*lines: str, locale: str = "en") -> tuple[Mapping[str, Any], str]:
    """Return the arguments that ran after an edit in these lines, and the output."""
    ran: list[Mapping[str, Any]] = []
    shown: list[str] = []
    rest = iter(lines)

    async def read(prompt: str) -> str:
        shown.append(prompt)
        return next(rest)

    async def nothing_typed() -> bool:
        return False

    async def run(args: Mapping[str, Any], _deps: Any) -> Any:
        ran.append(args)
        return ToolOk({})

    catalog = load_catalog(locale)
    tool = echo_tool("put", parameters=SCHEMA, is_destructive=True, handler=run)
    dispatcher = ToolDispatcher(ToolRegistry([tool]), catalog=catalog)
    gate = TerminalGate(read, shown.append, catalog, forget=nothing_typed)
    await dispatcher.dispatch("put", ARGS, confirm=gate)
    return (ran[0] if ran else {}), "\n".join(shown)


async def test_terminal_edit_takes_values_where_numbers_would_be_ambiguous() -> None:
    ran, shown = await edited("e", "1", "", "", "", "", "", "y")
    assert (ran["size"], "  #1. 2\n  #2. 1" in shown) == ("1", True)
    ran, shown = await edited("e", "#1", "", "", "", "", "", "y")
    assert ran["size"] == "2"


async def test_terminal_edit_asks_again_where_a_line_names_several_choices() -> None:
    ran, shown = await edited("e", "", "1", "#2", "", "", "", "", "y")
    assert ran["level"] == 2
    assert "1 could be #1, #2. Type the number." in shown
    _, shown = await edited("e", "", "1", "#2", "", "", "", "", "y", locale="ko")
    assert "1은(는) #1, #2 중 어느 것인지 알 수 없습니다." in shown


async def test_terminal_edit_can_make_values_null_and_leave_them_out() -> None:
    ran, shown = await edited("e", "", "", "/null", "/none", "2026-11-25", "n", "y")
    assert (ran["note"], ran["when"], ran["flag"]) == (None, "2026-11-25", False)
    assert ran.get("count", 7) == 7  # left out, the default applies
    for text in (
        "/null sets a value to null",
        "a text or null",
        "default: 7",
        "current value: null",
        "  /null",
    ):
        assert text in shown
    ran, _ = await edited("e", "", "", "null", "null", "", "null", "y")
    assert (ran["note"], ran["count"], ran["when"], ran["flag"]) == ("null", None, None, None)


async def test_terminal_edit_names_the_allowed_values() -> None:
    _, shown = await edited("e", "3", "", "", "", "ten", "", "", "", "y")
    assert "Invalid value. Expected: one of 2, 1." in shown
    assert "Invalid value. Expected: a whole number or null." in shown
    _, shown = await edited("e", "3", "", "", "", "", "", "", "y", locale="ko")
    assert "필요한 것: 2, 1 중 하나." in shown
