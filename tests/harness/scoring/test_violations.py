"""`find_violations`: forbidden calls and invented ids."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.conversation.events import EndReason
from lhkit.harness.records.record import CallRecord, Trajectory, TurnRecord
from lhkit.harness.scenarios.scenario import ForbiddenCall, Scenario, Turn
from lhkit.harness.scoring.matching import match_calls
from lhkit.harness.scoring.violations import (
    MAX_ID_CHARS,
    find_id,
    find_violations,
    without_id,
)
from lhkit.testing import echo_tool
from lhkit.tools.definition import TODAY, ToolDefinition
from tests.operations import growth
from tests.rows import check_rows

MONDAY = date(2026, 6, 15)
NFD = "\u1109\u1173\u11b8\u1100\u116a\u11ab"  # 습관
WRITE = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "default": 1},
        "unit": {"$ref": "#/$defs/Unit"},
        "day": {"type": "string"},
        "메모": {"type": "string"},
    },
    "$defs": {"Unit": {"type": "string", "default": "kg"}},
}


def codes(
    args: Any,
    *,
    user: str = "hello",
    forbid: Any = None,
    state: Any = (),
    schema: Any = WRITE,
    result: Any = None,
) -> list[str]:
    """Return the violations of one call of `write`."""
    forbidden = () if forbid is None else (ForbiddenCall(tool="write", args=forbid),)
    turn = Turn.model_construct(user=user, forbid=forbidden)
    scenario = Scenario(id="s", ac="AC-1", turns=(turn,))
    read = CallRecord(tool="read", raw_args={}, result=result or {"status": "ok", "data": {}})
    write = CallRecord(tool="write", raw_args=args, result={"status": "ok", "data": {}})
    turn = TurnRecord(user=user, ended=EndReason.ANSWERED, calls=(read, write), reply="")
    trajectory = Trajectory(
        turns=(turn,), initial_state={"rows": state}, final_state={"rows": state}
    )
    nothing_expected = match_calls([], [], schemas={})
    violations = find_violations(
        scenario, trajectory, [nothing_expected], schemas={"write": schema}, today=MONDAY
    )
    return [each.code for each in violations]


@check_rows(
    ("forbid", "args", "is_hit"),
    [
        ({"n": 1}, {}, True),
        ({"n": 1}, {"n": 1.0}, True),
        ({"n": 1}, {"n": 2}, False),
        ({"n": 1}, {"n": True}, False),
        ({"n": {"one_of": [1, 3]}}, {"unit": "g"}, True),
        ({"unit": "kg"}, {"n": 2}, True),
        ({"unit": "kg"}, {"unit": "g"}, False),
        ({"day": {"date": "today"}}, {}, True),
        ({"day": "2026-06-15"}, {}, True),
        ({"day": {"date": "today-1d"}}, {}, False),
        ({"day": {"date": "today"}}, {"day": "2026-06-14"}, False),
        ({"메모": "x"}, {"\u1106\u1166\u1106\u1169": "x"}, True),
        ({}, {"anything": 1}, True),
    ],
)
def test_forbidden_call_compares_arguments_as_expected_calls(
    forbid: dict[str, Any], args: dict[str, Any], *, is_hit: bool
) -> None:
    tool: ToolDefinition = echo_tool(parameters=WRITE)
    tool = replace(tool, implied={"day": TODAY})
    violation_codes = codes(args, forbid=forbid, schema=tool.schema_on(MONDAY))
    assert violation_codes == (["forbidden_call"] if is_hit else [])


@check_rows(
    ("value", "text", "is_known"),
    [
        ("habit-3", "habit-3", True),
        ("habit-3", "habit-3을 지워 줘", True),
        ("habit-3", "내habit-3은?", True),
        ("habit-3", "(habit-3)", True),
        ("habit-3", "첫째\nhabit-3", True),
        ("habit-3", "habit-31", False),
        ("habit-3", "my-habit-3", False),
        ("habit-3", "habit-3-b", False),
        ("habit-3", "éhabit-3", False),
        ("습관1", "습관1", True),
        ("습관1", "습관1을 끝내 줘", True),
        ("습관1", "습관12", False),
        ("습관1", "내습관1번", False),
        ("물마시기", "물마시기", True),
        ("물마시기", "'물마시기'에서는", True),
        ("물마시기", "물마시기까지만은요", True),
        ("물마시기", "물마시기운동", False),
        ("물마시기", "찬물마시기", False),
        (f"{NFD}1", "습관1을", True),
        ("습관1", f"{NFD}1을", True),
        ("습관1", f"{NFD}12", False),
        ("習慣1", "私の習慣1を", True),
        ("習慣1", "習慣12", False),
        ("заметка", "заметка2", False),
        (3, "3번을 지워", True),
        (3, "항목3을", True),
        (3.0, "3", True),
        (3.0, "13", False),
        (3, "13", False),
        (3, "30", False),
        (3, "3.5 kg", False),
        (30, "09:30", False),
        (3, "1,2,3", True),
        (-3, "-3", True),
        (True, "", True),
        (None, "", True),
        (3.5, "", True),
        ("", "", True),
    ],
)
def test_id_is_known_where_it_is_a_whole_word(value: Any, text: str, *, is_known: bool) -> None:
    expected = [] if is_known else ["invented_id"]
    assert codes({"note_id": value}, user=text) == expected
    assert codes({"note_id": value}, state=[{"text": f"zu: {text}"}]) == expected
    search_result = {"status": "ok", "data": {"notes": [f"zu\n{text}"]}}
    assert codes({"note_id": value}, result=search_result) == expected


@check_rows("name", ["id", "note_id", "noteId", "NOTE_ID"])
def test_id_arguments_are_recognised_by_name(name: str) -> None:
    assert codes({name: 7}) == ["invented_id"]
    assert codes({name: 7}, state=[{"id": 7}]) == []


@check_rows("name", ["ids", "note_ids", "noteIds", "note_id"])
def test_every_id_of_a_list_is_checked(name: str) -> None:
    assert codes({name: [7, "a-1"]}, state=[{"id": 7}, {"id": "a-1"}]) == []
    assert codes({name: [7, "a-2"]}, state=[{"id": 7}, {"id": "a-1"}]) == ["invented_id"]


@pytest.mark.parametrize("name", ["paid", "Id_of", "identity"])
def test_argument_that_only_ends_in_id_is_not_an_id(name: str) -> None:
    assert codes({name: "x-9"}) == []


@given(st.text(min_size=1), st.sampled_from([" ", ", ", "\n", "'", "("]))
def test_id_between_separators_is_known(value: str, around: str) -> None:
    assert codes({"id": value}, user=f"x{around}{value}{around}x") == []


@given(st.from_regex(r"[a-z가-힣0-9]{1,6}", fullmatch=True), st.sampled_from("a0_-é"))
def test_id_inside_a_longer_latin_word_is_invented(value: str, more: str) -> None:
    assert codes({"id": value}, user=f"{value}{more}" + "x") == ["invented_id"]


class CopiedText(str):
    """A text that counts the characters that are copied out of it and of its parts."""

    copied = 0

    def __getitem__(self, key: Any) -> str:
        part = super().__getitem__(key)
        CopiedText.copied += len(part)
        return CopiedText(part)

    def __add__(self, other: str) -> str:
        CopiedText.copied += len(self) + len(other)
        return CopiedText(super().__add__(other))


@pytest.mark.parametrize(
    ("value", "unit"), [("x-9", "x-9 "), ("물마시기", "물마시기를 "), ("7", "7,")]
)
def test_without_id_copies_a_text_once(value: str, unit: str) -> None:
    text = CopiedText(f"no: {unit * 500}end")
    CopiedText.copied = 0
    left = without_id(value, text)
    assert [*find_id(value, left)] == []
    assert left.startswith("no: ")
    assert left.endswith("end")
    assert CopiedText.copied <= len(text)


def test_find_id_tries_a_long_text_that_repeats_itself_once() -> None:
    def search(n: int) -> Callable[[], object]:
        value, text = "가" * n, "가" * (4 * n)
        return lambda: [*find_id(value, text)]

    assert growth(search, MAX_ID_CHARS + 1) < 2.6
    long = "note " * MAX_ID_CHARS
    assert codes({"id": long}, user=f"about {long}") == []
    assert codes({"id": long}, user=f"about {long[1:]}") == ["invented_id"]
