"""Registering the same tools again, as each session does, costs little and shares nothing."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from lhkit.base.errors import RegistrationError
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.same_types import is_same_type
from tests.operations import count_operations


class Person(BaseModel):
    name: str
    mail: str | None = None


def opened(texts: str = "Who", least: int = 1) -> ToolRegistry:
    """Return what a session registers: functions of its own, and a definition."""
    registry = ToolRegistry()

    @registry.tool(destructive=True)
    def share(
        event: str,
        who: Annotated[Person, texts],
        count: Annotated[int, Field(ge=least)] = 1,
        kind: Literal["a", "b"] | None = "a",
        days: list[date] | None = None,
    ) -> list[str]:
        """Share.

        Args:
            event: the event
        """
        return [event, who.name, str(count), str(kind), str(days)]

    registry.register(
        echo_tool("echo", parameters=object_schema("n", n={"type": "integer", "nullable": True}))
    )
    return registry


def test_registering_again_costs_a_fraction() -> None:
    assert count_operations(opened) < 5_000  # a single pydantic model takes more
    known = ToolRegistry(opened().definitions)
    assert count_operations(lambda: ToolRegistry(known.definitions)) < 1_000


def test_registering_again_shares_no_schema() -> None:
    one, other = opened(), opened()
    for name in one:
        assert one[name].parameters == other[name].parameters
        changed: Any = one[name].parameters["properties"]
        changed.clear()
        assert other[name].parameters["properties"]
        assert opened()[name].parameters["properties"]


def test_registering_again_with_other_types_makes_another_schema() -> None:
    def shown(registry: ToolRegistry) -> Mapping[str, Any]:
        properties: Mapping[str, Any] = registry["share"].parameters["properties"]
        return {"who": properties["who"]["description"], "least": properties["count"]["minimum"]}

    assert shown(opened()) == {"who": "Who", "least": 1}
    assert shown(opened("누구", 2)) == {"who": "누구", "least": 2}
    assert shown(opened()) == {"who": "Who", "least": 1}


def test_registering_again_with_another_docstring_or_default() -> None:
    def made(doc: str, default: Any) -> Mapping[str, Any]:
        def find(word: str = default) -> dict[str, Any]:
            return {"word": word}

        find.__doc__ = f"Find.\n\nArgs:\n    word: {doc}"
        registry = ToolRegistry()
        registry.tool()(find)
        part: Mapping[str, Any] = registry["find"].parameters["properties"]["word"]
        return part

    assert [made(doc, default) for doc, default in (("one", "x"), ("zwei", "x"), ("one", "y"))] == [
        {"type": "string", "description": "one", "default": "x"},
        {"type": "string", "description": "zwei", "default": "x"},
        {"type": "string", "description": "one", "default": "y"},
    ]


def test_invalid_schema_is_refused_each_time_by_its_tool() -> None:
    for name in ("a", "b", "a"):
        with pytest.raises(RegistrationError, match=f"tool '{name}': 'x' is required but not"):
            ToolRegistry([echo_tool(name, parameters=object_schema("x"))])
        with pytest.raises(RegistrationError, match=f"tool '{name}': invalid JSON Schema at prop"):
            ToolRegistry([echo_tool(name, parameters=object_schema(x={"type": "text"}))])


def upper(text: str) -> str:
    return text.upper()


class Own:
    """A type that says it equals everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


SAME: list[tuple[Any, Any]] = [
    (list[int], list[int]),
    (int | None, int | None),
    (Annotated[int, Field(ge=1, description="d")], Annotated[int, Field(ge=1, description="d")]),
    (Annotated[str, StringConstraints(max_length=3)],) * 2,
    (Annotated[int, Field(gt=3)], Annotated[int, Field(gt=3)]),
    (Annotated[str, AfterValidator(upper)], Annotated[str, AfterValidator(upper)]),
    (Annotated[int, Ge(2)], Annotated[int, Ge(2)]),
    (Literal["a", 1], Literal["a", 1]),
    (Field([1], json_schema_extra={"a": 1}), Field([1], json_schema_extra={"a": 1})),
    (Person, Person),
]  # fmt: skip
OTHER: list[tuple[Any, Any]] = [
    (list[int], list[bool]),
    (list[int], set[int]),
    (int | None, int | str),
    (Annotated[int, Field(ge=1)], Annotated[int, Field(ge=2)]),
    (Annotated[int, Field(ge=1)], Annotated[int, Field(gt=1)]),
    (Annotated[int, "a"], Annotated[int, "b"]),
    (Annotated[int, "a"], int),
    (Annotated[str, AfterValidator(lambda t: t)], Annotated[str, AfterValidator(lambda t: t + "")]),
    (Literal[1], Literal[True]),
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    ([1], [True]),
    ({"a": 1}, {"a": 2}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (Field(default_factory=list), Field(default_factory=dict)),
    (Field(1), Field(1.0)),
    (Own(), Own()),
    ([Own()], [Own()]),
    (Person(name="a"), Person(name="a")),
]


@pytest.mark.parametrize(("pairs", "is_same"), [(SAME, True), (OTHER, False)])
def test_types_are_the_same_only_if_that_is_certain(pairs: Any, is_same: bool) -> None:
    assert [pair for pair in pairs if is_same_type(*pair) is not is_same] == []
