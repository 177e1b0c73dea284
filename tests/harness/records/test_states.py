"""read_state(): copies of a session's state that share unchanged rows."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.base.errors import UsageError
from lhkit.base.json_values import NotJsonError, compact, json_or_repr, plain_json, plain_or_repr
from lhkit.harness.scoring.state import state_diff, with_diff
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import read_state
from tests.harness.build import PlainSession
from tests.rows import check_rows

VALUES = st.sampled_from([1, True, 1.0, -0.0, 0, "a", "é", "e\u0301", None, [1], [True], {"x": 1}])
ROWS = st.lists(st.dictionaries(st.sampled_from(["id", "n", "가"]), VALUES, max_size=3), max_size=6)


def live(tables: dict[str, Any]) -> PlainSession:
    """Return a session whose state is the very objects that its tools change."""
    return PlainSession(registry=ToolRegistry(), seen=lambda: tables)


def people(n: int) -> list[dict[str, Any]]:
    return [{"id": i, "tags": ["a"]} for i in range(n)]


def test_state_copy_is_not_changed_by_tools() -> None:
    session = live({"people": people(600)})
    before = read_state(session)
    session.state()["people"][300]["tags"].append("b")
    after = read_state(session, before=before)
    session.state()["people"][300]["tags"].append("c")
    session.state()["people"][0]["tags"].append("c")
    assert before["people"][300] == {"id": 300, "tags": ["a"]}
    assert after["people"][300] == {"id": 300, "tags": ["a", "b"]}
    assert after["people"][0] == {"id": 0, "tags": ["a"]}


def test_state_copy_shares_unchanged_rows() -> None:
    session = live({"people": people(600)})
    before = read_state(session)
    session.state()["people"][300]["id"] = "new"
    session.state()["people"].append({"id": 600})
    after = read_state(session, before=before)
    others = [i for i in range(600) if after["people"][i] is not before["people"][i]]
    assert others == [300]
    assert len(after["people"]) == 601


class Word(str):
    """A `str` subclass of user code."""

    __slots__ = ()


ANYTHING = st.recursive(
    VALUES | st.builds(Word, st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3) | st.builds(Word, st.text(max_size=3)), inner),
    ),
    max_leaves=12,
)


def containers(value: Any) -> Iterator[int]:
    if isinstance(value, dict | list | tuple):
        yield id(value)
        for each in value.values() if isinstance(value, dict) else value:
            yield from containers(each)


@given(value=ANYTHING)
def test_plain_json_equals_json_round_trip_and_copies(value: Any) -> None:
    plain = plain_json(value)
    assert repr(plain) == repr(json.loads(json.dumps(value)))
    assert not {*containers(plain)} & {*containers(value)}


LONG = 10**5_000
"""More digits than Python makes a text of."""


@check_rows(
    "value",
    [LONG, -LONG, [LONG], {"deep": [LONG]}],
    ids=["positive", "negative", "in a list", "deep"],  # pytest cannot print it either
)
def test_state_refuses_too_long_number_with_path(value: Any) -> None:
    with pytest.raises(UsageError, match=r"state\(\): people\[1\]\.n.* is an int .*4,300 digits"):
        read_state(live({"people": [{"id": 0}, {"id": 1, "n": value}]}))
    before = read_state(live({"people": [{"id": 0}]}))
    with pytest.raises(UsageError, match=r"people\[1\]\.n.*4,300 digits"):
        read_state(live({"people": [{"id": 0}, {"id": 1, "n": value}]}), before=before)


def test_state_keeps_longest_writable_number() -> None:
    longest = 10**4_300 - 1
    state = read_state(live({"people": [{"n": longest}, {"n": -longest}]}))
    assert [row["n"] for row in state["people"]] == [longest, -longest]
    assert str(longest) in json.dumps(state)


@check_rows("value", [LONG, [LONG], {LONG}, {"a": {LONG: 1}}], ids=["int", "list", "set", "dict"])
def test_json_or_repr_shows_type_of_too_long_number(value: Any) -> None:
    assert json_or_repr(value) == f"<{type(value).__name__}: a number of more than 4,300 digits>"


class Detached:
    """A value whose repr fails."""

    def __repr__(self) -> str:
        raise ValueError("detached instance")


def test_state_error_survives_failing_repr() -> None:
    with pytest.raises(
        UsageError, match=r"t\[0\]\.a is a Detached \(<Detached: detached instance>\)"
    ):
        read_state(live({"t": [{"a": Detached()}]}))


def test_number_limit_follows_python_setting() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        with pytest.raises(NotJsonError):
            compact({"n": 10**1_000})
        assert json_or_repr([10**1_000]).startswith("<list: ")
        assert str(plain_or_repr([10**1_000])).startswith("<list: ")
    finally:
        sys.set_int_max_str_digits(before)


@given(before=ROWS, after=ROWS)
def test_state_is_independent_of_earlier_state(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    earlier = read_state(live({"t": before}))
    alone, shared = read_state(live({"t": after})), read_state(live({"t": after}), before=earlier)
    assert repr(shared) == repr(alone) == repr({"t": tuple(plain_json(after))})
    assert state_diff(earlier, shared) == state_diff(earlier, alone)
    again = with_diff(earlier, state_diff(earlier, shared))
    assert not state_diff(again, shared)


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        ({"id": 1, "tags": {1}}, r"state\(\): people\[1\]\.tags is a set"),
        ({"id": float("nan")}, r"state\(\): people\[1\]\.id is a float"),
        ("no row", r"state\(\): people\[1\] is a str"),
    ],
)
def test_state_names_invalid_row_in_second_copy(invalid: object, message: str) -> None:
    session = live({"people": people(3)})
    before = read_state(session)
    session.state()["people"][1] = invalid
    with pytest.raises(UsageError, match=message):
        read_state(session, before=before)
