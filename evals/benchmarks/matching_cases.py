"""Calls that two matchers judge: what was expected and what was made, once for each of them.

A case is told in BFCL's terms (every argument with the values that are right) and translated for
`match_calls` and for BFCL's AST checker; neither side gets anything the other does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Right: TypeAlias = Mapping[str, Sequence[Any]]
"""The values that are right, by argument."""

_BFCL_TYPES = {"number": "float", "object": "dict"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`expected` and `actual` are (tool, arguments); `is_right` is what a person would say."""

    name: str
    expected: Sequence[tuple[str, Right]]
    actual: Sequence[tuple[str, Mapping[str, Any]]]
    is_right: bool


def _tool(**properties: Any) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


TOOLS: Mapping[str, Mapping[str, Any]] = {
    "add": _tool(x={"type": "integer"}, y={"type": "integer"}),
    "find": _tool(text={"type": "string"}, limit={"type": "integer"}),
    "log": _tool(
        habit={"type": "string"},
        amount={"type": "number"},
        tags={"type": "array", "items": {"type": "string"}},
        done={"type": "boolean"},
    ),
}
"""JSON Schema of the arguments, by tool."""


def _added(*numbers: int) -> list[tuple[str, Right]]:
    return [("add", {"x": [n], "y": [1]}) for n in numbers]


def _made(*numbers: int) -> list[tuple[str, Mapping[str, Any]]]:
    return [("add", {"x": n, "y": 1}) for n in numbers]


_LOGGED = {"habit": "daily-walk", "amount": 2.5, "tags": ["morning", "park"], "done": True}
_TO_LOG = {name: [value] for name, value in _LOGGED.items()}
_EIGHT = tuple(range(8))

TIMED = (
    Case(name="1 call, right", expected=_added(1), actual=_made(1), is_right=True),
    Case(name="1 call, a wrong value", expected=_added(1), actual=_made(2), is_right=False),
    Case(
        name="1 call, 4 arguments, right",
        expected=[("log", _TO_LOG)],
        actual=[("log", _LOGGED)],
        is_right=True,
    ),
    Case(
        name="2 tools, in another order",
        expected=[*_added(1), ("log", _TO_LOG)],
        actual=[("log", _LOGGED), *_made(1)],
        is_right=True,
    ),
    Case(
        name="8 calls of a tool, reversed",
        expected=_added(*_EIGHT),
        actual=_made(*reversed(_EIGHT)),
        is_right=True,
    ),
    Case(
        name="8 calls of a tool, one wrong",
        expected=_added(*_EIGHT),
        actual=_made(*_EIGHT[:-1], 99),
        is_right=False,
    ),
)
"""Both have to be right about these."""


def _found(text: str, limit: float = 1) -> tuple[str, Mapping[str, Any]]:
    return ("find", {"text": text, "limit": limit})


def _to_find(*texts: str) -> tuple[str, Right]:
    return ("find", {"text": list(texts), "limit": [1]})


JUDGED = (
    Case(name='"-5" for "5"', expected=[_to_find("5")], actual=[_found("-5")], is_right=False),
    Case(name='"1.5" for "15"', expected=[_to_find("15")], actual=[_found("1.5")], is_right=False),
    Case(
        name="1.0 for the integer 1",
        expected=[_to_find("a")],
        actual=[_found("a", 1.0)],
        is_right=True,
    ),
    Case(
        name="a for a or b, b for a: only one way to assign",
        expected=[_to_find("a", "b"), _to_find("a")],
        actual=[_found("a"), _found("b")],
        is_right=True,
    ),
)
"""Where quick answers go wrong."""


def for_lhkit(case: Case) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the expected and the actual calls as `match_calls` takes them."""
    wanted = [
        {"tool": tool, "args": {name: _matcher(values) for name, values in args.items()}}
        for tool, args in case.expected
    ]
    return wanted, [{"tool": tool, "args": dict(args)} for tool, args in case.actual]


def _matcher(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else {"one_of": list(values)}


def for_bfcl(case: Case) -> dict[str, Any]:
    """Return the case as the arguments of BFCL's `ast_checker`, but for language and model."""
    return {
        "func_description": [
            {"name": name, "description": "", "parameters": _described(schema)}
            for name, schema in TOOLS.items()
            if name in {tool for tool, _ in case.expected}
        ],
        "model_output": [{tool: dict(args)} for tool, args in case.actual],
        "possible_answer": [
            {tool: {name: list(values) for name, values in args.items()}}
            for tool, args in case.expected
        ],
        "test_category": "parallel" if len(case.expected) > 1 else "simple",
    }


def _described(schema: Any) -> Any:
    """Return a JSON Schema in the type names of BFCL's data."""
    if isinstance(schema, Mapping):
        told = {key: _described(value) for key, value in schema.items()}
        kind = told.get("type")
        return {**told, "type": _BFCL_TYPES.get(kind, kind)} if isinstance(kind, str) else told
    return list(schema) if isinstance(schema, (list, tuple)) else schema
