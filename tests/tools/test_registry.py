from dataclasses import replace
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from lhkit.errors import RegistrationError
from lhkit.messages import ToolErr, ToolOk
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.definition import TODAY
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry


@pytest.mark.promise("registry.name")
@pytest.mark.parametrize("name", ["", "add.habit", "습관", "a" * 65, "a b", "a\n", None, 3])
def test_a_bad_name_is_refused_at_once(name: Any) -> None:
    with pytest.raises(RegistrationError, match="name must match"):
        ToolRegistry([echo_tool(name)])


@pytest.mark.anyio
@pytest.mark.promise("registry.name")
@pytest.mark.parametrize("name", ["startEngine", "add-habit", "3d", "_", "-x", "Z" * 64])
async def test_a_name_is_one_that_openai_and_mcp_allow(name: str) -> None:
    registry = ToolRegistry([echo_tool(name)])
    result = await ToolDispatcher(registry).dispatch(name, {}, confirm=None)
    assert isinstance(result, ToolOk)


@pytest.mark.promise("registry.duplicate")
def test_a_name_can_be_registered_once() -> None:
    with pytest.raises(RegistrationError, match=r"'echo'.*already"):
        ToolRegistry([echo_tool(), echo_tool()])


@pytest.mark.promise("registry.schema")
@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": "array"}, "object"),
        ({"properties": {}}, "object"),
        ("object", "object"),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, "properties/a/type"),
        ({"type": "object", "required": "a"}, "required"),
    ],
)
def test_a_bad_schema_is_refused_naming_tool_and_fault(schema: Any, fault: str) -> None:
    with pytest.raises(RegistrationError, match=f"'echo'.*{fault}"):
        ToolRegistry([replace(echo_tool(), parameters=schema)])


@pytest.mark.parametrize(
    "change", [{"description": " "}, {"handler": "not callable"}, {"timeout_s": 0}]
)
def test_other_bad_fields_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError, match="'echo'"):
        ToolRegistry([replace(echo_tool(), **change)])


def test_the_registry_is_a_mapping_in_order_of_registration() -> None:
    registry = ToolRegistry([echo_tool("b"), echo_tool("a", is_destructive=True)])
    assert list(registry) == ["b", "a"]
    assert registry.destructive == {"a"}
    assert "c" not in registry


@pytest.mark.anyio
@pytest.mark.promise("registry.from_function")
async def test_a_typed_documented_function_becomes_a_tool() -> None:
    registry = ToolRegistry()

    @registry.tool(destructive=True)
    async def book(
        day: date,
        seats: Annotated[int, Field(ge=1, le=4, description="how many")] = 1,
        kind: Literal["aisle", "window"] = "aisle",
        *,
        deps: Any,
    ) -> dict[str, Any]:
        """Book seats
        on a train.

        More for the reader of the code.
        """
        return {"day": day.isoformat(), "seats": seats, "kind": kind, "deps": deps}

    tool = registry["book"]
    assert tool.description == "Book seats on a train."
    assert tool.is_destructive
    assert tool.parameters["required"] == ["day"]
    assert tool.parameters["properties"]["seats"] == {
        "default": 1, "description": "how many", "maximum": 4, "minimum": 1, "type": "integer",
    }  # fmt: skip
    handled = await ToolDispatcher(registry).dispatch(
        "book", {"day": "2026-06-15", "seats": 2.0}, confirm=YesGate(), deps="db"
    )
    assert handled == ToolOk({"day": "2026-06-15", "seats": 2, "kind": "aisle", "deps": "db"})


@pytest.mark.promise("registry.from_function")
def test_one_function_is_a_tool_in_each_language_by_a_description_of_its_own() -> None:
    def look(query: str) -> dict[str, str]:
        return {"query": query}

    for said in ("찾는다", "Look it up"):
        registry = ToolRegistry()
        registry.tool(description=said)(look)
        assert registry["look"].description == said


class YesGate:
    async def confirm(self, request: Any) -> bool:  # noqa: ARG002 - protocol
        return True


@pytest.mark.anyio
async def test_a_function_tool_refuses_what_pydantic_refuses_although_the_schema_did_not() -> None:
    registry = ToolRegistry()

    @registry.tool()
    def look(day: date) -> dict[str, Any]:
        """Look at a day."""
        return {"day": str(day)}

    result = await ToolDispatcher(registry).dispatch("look", {"day": "gestern"}, confirm=None)
    assert isinstance(result, ToolErr)


def test_a_parameter_named_title_survives() -> None:
    registry = ToolRegistry()

    @registry.tool()
    def note(title: str) -> dict[str, Any]:
        """Write a note."""
        return {"title": title}

    assert registry["note"].parameters["properties"] == {"title": {"type": "string"}}


def test_functions_that_cannot_be_tools_are_refused() -> None:
    def undocumented(a: int) -> None: ...

    def untyped(a) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        """Do it."""

    def open_ended(*args: int) -> None:
        """Do it."""

    for function, fault in (
        (undocumented, "docstring"), (untyped, "no type"), (open_ended, "JSON"),
    ):  # fmt: skip
        with pytest.raises(RegistrationError, match=fault):
            ToolRegistry().tool()(function)


def test_deps_may_have_a_type_that_comes_later_and_an_argument_may_not() -> None:
    registry = ToolRegistry()

    @registry.tool()
    def look(name: str, deps: "Later") -> dict[str, str]:  # type: ignore[name-defined]  # noqa: F821 - the point
        """Look."""
        return {"name": name, "deps": str(deps)}

    assert list(registry["look"].parameters["properties"]) == ["name"]
    with pytest.raises(RegistrationError, match=r"'see': the type 'Later' of an argument is not"):

        @registry.tool()
        def see(what: "Later") -> dict[str, str]:  # type: ignore[name-defined]  # noqa: F821 - the point
            """See."""
            return {"what": str(what)}


def test_a_decorator_without_parentheses_is_told_to_have_some() -> None:
    registry = ToolRegistry()

    def look(day: date) -> dict[str, Any]:
        """Look at a day."""
        return {"day": str(day)}

    with pytest.raises(RegistrationError, match=r"tool 'look': write @registry\.tool\(\) with its"):
        registry.tool(look)
    with pytest.raises(RegistrationError, match=r"tool 'see': .*options stand in them by name"):
        registry.tool("see")
    assert not registry


DAYS = object_schema("kind", day={"type": "string"}, kind={"type": "string"})


@pytest.mark.promise("registry.implied")
def test_what_a_left_out_argument_means_is_a_default_for_those_who_compare() -> None:
    tool = replace(echo_tool(parameters=DAYS), implied={"day": TODAY})
    assert ToolRegistry([tool])["echo"].parameters is DAYS, "the model reads no default"
    told = tool.schema_on(date(2026, 6, 15))
    assert told["properties"]["day"] == {"type": "string", "default": "2026-06-15"}
    assert {**told, "properties": DAYS["properties"]} == DAYS
    assert tool.schema_on(None) == DAYS, "without a clock, today is not known"
    fixed = replace(tool, implied={"day": "2026-01-01"})
    assert fixed.schema_on(None)["properties"]["day"]["default"] == "2026-01-01"


@pytest.mark.parametrize(
    ("implied", "fault"),
    [
        ({"days": TODAY}, "implied 'days': there is no such argument"),
        ({"kind": "x"}, "implied 'kind': it is required"),
        ({"day": 3}, "implied 'day': 3 is not of type 'string'"),
        ({"day": {"date": "tomorrow"}}, "implied 'day': .* is not of type 'string'"),
    ],
)
def test_what_cannot_be_implied_is_refused(implied: dict[str, Any], fault: str) -> None:
    with pytest.raises(RegistrationError, match=f"'echo': {fault}"):
        ToolRegistry([replace(echo_tool(parameters=DAYS), implied=implied)])


def test_a_function_says_what_it_fills_in() -> None:
    registry = ToolRegistry()

    @registry.tool(implied={"day": TODAY})
    def look(day: date | None = None) -> dict[str, Any]:
        """Look at a day."""
        return {"day": str(day)}

    look_at = registry["look"]
    assert look_at.parameters["properties"]["day"]["default"] is None
    assert look_at.schema_on(date(2026, 6, 15))["properties"]["day"]["default"] == "2026-06-15"


@pytest.mark.promise("eval.claims_of_tools")
@pytest.mark.parametrize(
    ("claims", "is_write", "said"),
    [
        ({"en": "sent"}, True, "give a list of words"),
        ({"en": ["se(nt"]}, True, r"'se\(nt' is neither words nor a regular expression"),
        ({"en": ["(?:sent)?"]}, True, "matches an empty text"),
        ({"en": [3]}, True, "neither words nor"),
        ({"en": ["sent"]}, False, "the tool changes nothing"),
    ],
)
def test_claims_that_cannot_be_are_refused_with_tool_and_language(
    claims: Any, is_write: bool, said: str
) -> None:
    tool = replace(echo_tool("send"), is_destructive=is_write, claims=claims)
    with pytest.raises(RegistrationError, match=rf"tool 'send': claims\['en'\]: .*{said}"):
        ToolRegistry([tool])


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        ({"default": 10**5_000}, "a number of more than 4,300 digits"),
        ({"maximum": 10**5_000}, "a number of more than 4,300 digits"),
        ({"minLength": -(10**5_000)}, "a number of more than 4,300 digits"),
        ({"enum": 10**5_000}, "a number of more than 4,300 digits"),
        ({"default": float("nan")}, "nan is not a JSON number"),
    ],
    ids=["default", "bound", "length", "choices", "nan"],
)
def test_a_schema_that_no_model_can_be_told_is_refused_with_the_argument(
    part: dict[str, Any], fault: str
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number", **part}}}
    with pytest.raises(RegistrationError, match=f"tool 'echo': argument 'n': {fault}"):
        ToolRegistry([echo_tool(parameters=schema)])
