import functools
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

import pytest
from pydantic import AliasChoices, BaseModel, Field
from pydantic_core import PydanticUndefined

from lhkit.base.errors import RegistrationError
from lhkit.conversation.tool_results import ToolErr, ToolOk
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.definition import TODAY
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from tests.rows import check_rows


@check_rows("name", ["", "add.habit", "습관", "a" * 65, "a b", "a\n", None, 3])
def test_registry_refuses_an_invalid_name(name: Any) -> None:
    with pytest.raises(RegistrationError, match="name must match"):
        ToolRegistry([echo_tool(name)])


@pytest.mark.anyio
@check_rows("name", ["startEngine", "add-habit", "3d", "_", "-x", "Z" * 64])
async def test_registry_takes_names_of_openai_and_mcp(name: str) -> None:
    registry = ToolRegistry([echo_tool(name)])
    result = await ToolDispatcher(registry).dispatch(name, {}, confirm=None)
    assert isinstance(result, ToolOk)


def test_registry_refuses_a_duplicate_name() -> None:
    with pytest.raises(RegistrationError, match=r"'echo'.*already"):
        ToolRegistry([echo_tool(), echo_tool()])


@check_rows(
    ("schema", "issue"),
    [
        ({"type": "array"}, "object"),
        ({"properties": {}}, "object"),
        ("object", "object"),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, "properties/a/type"),
        ({"type": "object", "required": "a"}, "required"),
    ],
)
def test_registry_names_tool_and_issue_of_an_invalid_schema(schema: Any, issue: str) -> None:
    with pytest.raises(RegistrationError, match=f"'echo'.*{issue}"):
        ToolRegistry([replace(echo_tool(), parameters=schema)])


@pytest.mark.parametrize(
    "change", [{"description": " "}, {"handler": "not callable"}, {"timeout_s": 0}]
)
def test_registry_refuses_other_invalid_fields(change: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError, match="'echo'"):
        ToolRegistry([replace(echo_tool(), **change)])


def test_the_registry_is_a_mapping_in_order_of_registration() -> None:
    registry = ToolRegistry([echo_tool("b"), echo_tool("a", is_destructive=True)])
    assert list(registry) == ["b", "a"]
    assert registry.destructive == {"a"}
    assert "c" not in registry


@pytest.mark.anyio
async def test_tool_registers_a_typed_function() -> None:
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


class YesGate:
    async def confirm(self, request: Any) -> bool:
        return True


def test_tool_refuses_unsuitable_functions() -> None:
    def undocumented(a: int) -> None: ...

    def untyped(a) -> None:  # type: ignore[no-untyped-def]
        """Do it."""

    def open_ended(*args: int) -> None:
        """Do it."""

    for function, issue in (
        (undocumented, "docstring"), (untyped, "no type"), (open_ended, "JSON"),
    ):  # fmt: skip
        with pytest.raises(RegistrationError, match=issue):
            ToolRegistry().tool()(function)


def test_tool_resolves_later_types_only_for_deps() -> None:
    registry = ToolRegistry()

    @registry.tool()
    def look(name: str, deps: "Later") -> dict[str, str]:  # type: ignore[name-defined]  # noqa: F821 - the point
        """Look."""
        return {"name": name, "deps": str(deps)}

    assert list(registry["look"].parameters["properties"]) == ["name"]
    with pytest.raises(
        RegistrationError, match=r"'see': the type 'Later' of an argument is unknown"
    ):

        @registry.tool()
        def see(what: "Later") -> dict[str, str]:  # type: ignore[name-defined]  # noqa: F821 - the point
            """See."""
            return {"what": str(what)}


def test_tool_refuses_a_decorator_without_parentheses() -> None:
    registry = ToolRegistry()

    def look(day: date) -> dict[str, Any]:
        """Look at a day."""
        return {"day": str(day)}

    with pytest.raises(RegistrationError, match=r"tool 'look': write @registry\.tool\(\) with"):
        registry.tool(look)
    with pytest.raises(RegistrationError, match=r"tool 'see': .*options go in them by name"):
        registry.tool("see")
    assert not registry


DAYS = object_schema("kind", day={"type": "string"}, kind={"type": "string"})


def test_schema_on_adds_implied_values_as_defaults() -> None:
    tool = replace(echo_tool(parameters=DAYS), implied={"day": TODAY})
    assert ToolRegistry([tool])["echo"].parameters is DAYS, "the model reads no default"
    schema = tool.schema_on(date(2026, 6, 15))
    assert schema["properties"]["day"] == {"type": "string", "default": "2026-06-15"}
    assert {**schema, "properties": DAYS["properties"]} == DAYS
    assert tool.schema_on(None) == DAYS, "without a clock, today is not known"
    fixed = replace(tool, implied={"day": "2026-01-01"})
    assert fixed.schema_on(None)["properties"]["day"]["default"] == "2026-01-01"


@check_rows(
    ("implied", "issue"),
    [
        ({"days": TODAY}, "implied 'days': there is no such argument"),
        ({"kind": "x"}, "implied 'kind': it is required"),
        ({"day": 3}, "implied 'day': 3 is not of type 'string'"),
        ({"day": {"date": "tomorrow"}}, "implied 'day': .* is not of type 'string'"),
    ],
)
def test_registry_refuses_invalid_implied_values(implied: dict[str, Any], issue: str) -> None:
    with pytest.raises(RegistrationError, match=f"'echo': {issue}"):
        ToolRegistry([replace(echo_tool(parameters=DAYS), implied=implied)])


def test_tool_passes_implied_values() -> None:
    registry = ToolRegistry()

    @registry.tool(implied={"day": TODAY})
    def look(day: date | None = None) -> dict[str, Any]:
        """Look at a day."""
        return {"day": str(day)}

    look_at = registry["look"]
    assert look_at.parameters["properties"]["day"]["default"] is None
    assert look_at.schema_on(date(2026, 6, 15))["properties"]["day"]["default"] == "2026-06-15"


@check_rows(
    ("claims", "is_write", "issue"),
    [
        ({"en": "sent"}, True, "give a list of words"),
        ({"en": ["se(nt"]}, True, r"'se\(nt' is neither words nor a regular expression"),
        ({"en": ["(?:sent)?"]}, True, "matches an empty text"),
        ({"en": [3]}, True, "neither words nor"),
        ({"en": ["sent"]}, False, "the tool changes nothing"),
    ],
)
def test_registry_refuses_invalid_claims(claims: Any, is_write: bool, issue: str) -> None:
    tool = replace(echo_tool("send"), is_destructive=is_write, claims=claims)
    with pytest.raises(RegistrationError, match=rf"tool 'send': claims\['en'\]: .*{issue}"):
        ToolRegistry([tool])


@check_rows(
    ("part", "issue"),
    [
        ({"default": 10**5_000}, "a number of more than 4,300 digits"),
        ({"maximum": 10**5_000}, "a number of more than 4,300 digits"),
        ({"minLength": -(10**5_000)}, "a number of more than 4,300 digits"),
        ({"enum": 10**5_000}, "a number of more than 4,300 digits"),
        ({"default": float("nan")}, "nan is not a JSON number"),
    ],
    ids=["default", "bound", "length", "choices", "nan"],
)
def test_registry_refuses_a_schema_that_is_not_json(part: dict[str, Any], issue: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number", **part}}}
    with pytest.raises(RegistrationError, match=f"tool 'echo': argument 'n': {issue}"):
        ToolRegistry([echo_tool(parameters=schema)])


def registered(function: Callable[..., Any], **options: Any) -> tuple[ToolRegistry, str]:
    registry = ToolRegistry()
    registry.tool(**options)(function)
    return registry, next(iter(registry))


async def called(function: Callable[..., Any], args: Any, **options: Any) -> Any:
    registry, name = registered(function, **options)
    return await ToolDispatcher(registry).dispatch(name, args, confirm=YesGate())


def with_default(annotation: Any, default: Any) -> Callable[..., dict[str, Any]]:
    def pay(amount: Any = default) -> dict[str, Any]:
        """Pay."""
        return {"paid": amount}

    pay.__annotations__["amount"] = annotation
    return pay


FIVE = {"default": 5, "minimum": 1, "type": "integer"}


@pytest.mark.longer
@pytest.mark.anyio
@check_rows(
    ("annotation", "default", "schema", "left_out", "refused"),
    [
        (
            int,
            Field(..., ge=1, le=100, description="in euros"),
            {"description": "in euros", "maximum": 100, "minimum": 1, "type": "integer"},
            None,
            99_999,
        ),
        (int, Field(ge=1), {"minimum": 1, "type": "integer"}, None, 0),
        (int, Field(default=5, ge=1), FIVE, 5, 0),
        (int, Field(5, ge=1), FIVE, 5, 0),
        (int, Field(default_factory=lambda: 7, ge=1), {"minimum": 1, "type": "integer"}, 7, 0),
        (Annotated[int, Field(ge=1)], 5, FIVE, 5, 0),
        (Annotated[int, Field(ge=1)], Field(default=5), FIVE, 5, 0),
        (Annotated[int, Field(ge=1, default=5)], Field(), FIVE, 5, 0),
        (
            Annotated[int, Field(ge=1, description="a")],
            Field(default=5, le=9, description="b"),
            {**FIVE, "description": "b", "maximum": 9},
            5,
            10,
        ),
        (int, PydanticUndefined, {"type": "integer"}, None, "x"),
        (int, ..., {"type": "integer"}, None, "x"),
        (list[int], Field(default_factory=list, max_length=1),
         {"items": {"type": "integer"}, "maxItems": 1, "type": "array"}, [], [1, 2]),
        (int | None, Field(None, ge=1),
         {"anyOf": [{"minimum": 1, "type": "integer"}, {"type": "null"}], "default": None},
         "null", 0),
    ],
)  # fmt: skip
async def test_tool_converts_arguments_as_pydantic_does(
    annotation: Any, default: Any, schema: Mapping[str, Any], left_out: Any, refused: Any
) -> None:
    pay = with_default(annotation, default)
    registry, name = registered(pay, destructive=True)
    parameters = registry[name].parameters
    assert parameters["properties"]["amount"] == schema
    assert parameters.get("required", []) == (["amount"] if left_out is None else [])
    result = await called(pay, {}, destructive=True)
    if left_out is None:
        assert isinstance(result, ToolErr)
        assert result.code == "validation"
    else:
        assert result == ToolOk({"paid": None if left_out == "null" else left_out})
    result = await called(pay, {"amount": refused}, destructive=True)
    assert isinstance(result, ToolErr)
    assert result.code == "validation"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "default",
    [
        Field(alias="sum"),
        Field(validation_alias="sum"),
        Field(validation_alias=AliasChoices("sum", "total")),
    ],
    ids=["alias", "validation_alias", "choices"],
)
async def test_tool_takes_an_argument_under_the_alias_of_its_field(default: Any) -> None:
    pay = with_default(int, default)
    registry, name = registered(pay)
    assert registry[name].parameters["required"] == ["sum"]
    assert await called(pay, {"sum": 3}) == ToolOk({"paid": 3})
    assert isinstance(await called(pay, {"amount": 3}), ToolErr)


class Doc:
    """Stands for `typing_extensions.Doc`."""

    def __init__(self, documentation: str) -> None:
        self.documentation = documentation


@check_rows(
    ("annotation", "described"),
    [
        (Annotated[str, "a town"], {"description": "a town", "type": "string"}),
        (Annotated[str, Doc("a town")], {"description": "a town", "type": "string"}),
        (
            Annotated[str, "a town", Field(max_length=4)],
            {"description": "a town", "maxLength": 4, "type": "string"},
        ),
        (
            Annotated[str, "a town", Field(description="a city")],
            {"description": "a city", "type": "string"},
        ),
        (
            Annotated[str, "a town"] | None,
            {"anyOf": [{"description": "a town", "type": "string"}, {"type": "null"}]},
        ),
        (
            list[Annotated[str, "a town"]],
            {"items": {"description": "a town", "type": "string"}, "type": "array"},
        ),
    ],
)
def test_tool_takes_the_text_of_an_annotation_as_description(
    annotation: Any, described: Mapping[str, Any]
) -> None:
    registry, name = registered(with_default(annotation, PydanticUndefined))
    assert registry[name].parameters["properties"]["amount"] == described


RESERVED = [
    "model_config", "model_dump", "model_validate", "model_fields", "_path", "__root__", "_",
    "__init__", "schema", "json", "copy", "dict", "validate", "register", "__config__", "cls",
    "function", "args",
]  # fmt: skip


@pytest.mark.longer
@pytest.mark.anyio
@check_rows("name", RESERVED)
@check_rows("default", ["", " = 3"])
async def test_tool_takes_argument_names_reserved_by_pydantic(name: str, default: str) -> None:
    space: dict[str, Any] = {}
    exec(f"def echo(first: str, {name}: int{default}): return {{{name!r}: {name}}}", space)  # noqa: S102 - names of the table
    options: dict[str, Any] = {"description": "Echo."}
    result = await called(space["echo"], {"first": "a", name: 7}, **options)
    assert result == ToolOk({name: 7})
    if default:
        assert await called(space["echo"], {"first": "a"}, **options) == ToolOk({name: 3})
    refused = await called(space["echo"], {"first": "a", name: "x"}, **options)
    assert isinstance(refused, ToolErr)
    assert name in refused.reason


class Shop:
    """A shop."""

    def sell(self, count: int) -> dict[str, Any]:
        """Sell some."""
        return {"sold": count, "by": type(self).__name__}

    def __call__(self, count: int) -> dict[str, Any]:
        return self.sell(count)


def transfer(account: str, amount: Annotated[int, Field(ge=1)], note: str = "") -> dict[str, Any]:
    """Transfer money."""
    return {"account": account, "amount": amount, "note": note}


@pytest.mark.anyio
async def test_tool_may_be_a_bound_method_or_a_callable_object() -> None:
    assert await called(Shop().sell, {"count": 2}) == ToolOk({"sold": 2, "by": "Shop"})
    assert await called(Shop(), {"count": 2}, name="sell") == ToolOk({"sold": 2, "by": "Shop"})
    registry, _ = registered(Shop(), name="sell")
    assert registry["sell"].description == "A shop."
    with pytest.raises(RegistrationError, match="give name="):
        registered(Shop())


@pytest.mark.anyio
@check_rows(
    "bound",
    [
        functools.partial(transfer, "mine"),
        functools.partial(transfer, account="mine"),
        functools.partial(functools.partial(transfer, account="mine"), note=""),
        functools.update_wrapper(functools.partial(transfer, "mine"), transfer),
        functools.partial(functools.lru_cache(transfer), "mine"),
    ],
)
async def test_tool_of_a_partial_offers_no_bound_argument(bound: Any) -> None:
    registry, name = registered(bound)
    assert name == "transfer"
    assert registry[name].description == "Transfer money."
    assert list(registry[name].parameters["required"]) == ["amount"]
    wanted = ToolOk({"account": "mine", "amount": 5, "note": ""})
    assert await called(bound, {"amount": 5}) == wanted
    assert await called(bound, {"amount": 5, "account": "theirs"}) == wanted


class Place(TypedDict):
    """A place."""

    town: str
    street: NotRequired[str]


class Unknown:
    pass


def test_tool_that_pydantic_cannot_describe_is_refused_when_it_is_registered() -> None:
    def go(to: Place) -> dict[str, Any]:
        """Go."""
        return dict(to)

    def meet(who: Unknown) -> dict[str, Any]:
        """Meet."""
        return {"who": str(who)}

    def bound(count: Annotated[int, Field(pattern="(")]) -> dict[str, Any]:
        """Count."""
        return {"count": count}

    def invalid(count: "int)") -> dict[str, Any]:  # type: ignore  # noqa: F722 - the point
        """Count."""
        return {"count": count}

    def twice() -> Unknown:
        """Count."""
        return Unknown()

    for function, issue in (
        *(
            []
            if sys.version_info >= (3, 12)
            else [(go, r"'go': no .*typing_extensions\.TypedDict")]
        ),
        (meet, "'meet': no JSON Schema: .*Unknown"),
        (bound, "'bound': no JSON Schema"),
        (invalid, "'invalid': the type of an argument is invalid"),
        (twice, "'twice': a Unknown cannot be written as JSON"),
        (Shop, "Shop.*not a function"),
        (3, "3: it is not a function"),
        (Shop.sell, "'sell': 'self' has no type: register the bound method"),
        (dict.fromkeys, "'fromkeys': "),
    ):
        with pytest.raises(RegistrationError, match=issue):
            ToolRegistry().tool()(cast("Any", function))


class Row(BaseModel):
    day: date


@dataclass
class Pair:
    left: int
    day: date


def answering(annotation: Any, value: Any) -> Callable[..., Any]:
    def answer() -> Any:
        """Answer."""
        return value

    answer.__annotations__["return"] = annotation
    return answer


DAY = date(2026, 6, 15)


@pytest.mark.anyio
@check_rows(
    ("annotation", "value", "data"),
    [
        (str, "done", {"result": "done"}),
        ("str", "done", {"result": "done"}),
        (int, 3, {"result": 3}),
        (float, 3.5, {"result": 3.5}),
        (bool, True, {"result": True}),
        (None, None, {"result": None}),
        (str | None, None, {"result": None}),
        (list[str], ["a"], {"result": ["a"]}),
        (list, ["a"], {"result": ["a"]}),
        (list[dict[str, int]], [{"a": 1}], {"result": [{"a": 1}]}),
        (tuple[int, int], (1, 2), {"result": [1, 2]}),
        (date, DAY, {"result": "2026-06-15"}),
        (Literal["a"], "a", {"result": "a"}),
        (str | ToolErr, "a", {"result": "a"}),
        (dict[str, Any] | str, "a", {"result": "a"}),
        (dict[str, Any] | str, {"a": 1}, {"a": 1}),
        (Annotated[str, "a word"], "a", {"result": "a"}),
        (Row, Row(day=DAY), {"day": "2026-06-15"}),
        (Pair, Pair(1, DAY), {"left": 1, "day": "2026-06-15"}),
        (list[Row], [Row(day=DAY)], {"result": [{"day": "2026-06-15"}]}),
        (str, {"a": 1}, {"a": 1}),
    ],
)
async def test_tool_result_of_an_annotated_type_is_in_result(
    annotation: Any, value: Any, data: Mapping[str, Any]
) -> None:
    assert await called(answering(annotation, value), {}) == ToolOk(data)

    async def answer() -> Any:
        """Answer."""
        return value

    answer.__annotations__["return"] = annotation
    assert await called(answer, {}) == ToolOk(data)

    def later() -> Any:
        """Answer."""
        return answer()

    later.__annotations__["return"] = Awaitable[annotation]
    assert await called(later, {}) == ToolOk(data)


@pytest.mark.anyio
@check_rows(
    ("annotation", "value"),
    [
        (Any, "a"),
        (object, "a"),
        (int, "a"),
        (list[int], ["a"]),
        (dict[str, Any], "a"),
        (ToolOk | ToolErr, "a"),
        ("Missing", "a"),
        (float, float("nan")),
    ],
)
async def test_tool_result_of_another_type_is_a_handler_error(annotation: Any, value: Any) -> None:
    result = await called(answering(annotation, value), {})
    assert isinstance(result, ToolErr)
    assert result.code == "handler_error"


@pytest.mark.anyio
async def test_tool_result_without_an_annotation_is_a_handler_error() -> None:
    def answer():  # type: ignore[no-untyped-def]
        """Answer."""
        return "a"

    result = await called(answer, {})
    assert isinstance(result, ToolErr)
    assert "returned str" in result.reason


@pytest.mark.parametrize(
    ("always_ask", "is_write", "issue"),
    [(True, False, "only a destructive tool"), ("yes", True, "True or False"), (1, True, "True")],
)
def test_registry_refuses_invalid_always_ask(always_ask: Any, is_write: bool, issue: str) -> None:
    tool = replace(echo_tool("send"), is_destructive=is_write, always_ask=always_ask)
    with pytest.raises(RegistrationError, match=f"tool 'send': always_ask: .*{issue}"):
        ToolRegistry([tool])


def test_registry_takes_always_ask_from_the_decorator() -> None:
    registry = ToolRegistry()

    @registry.tool(destructive=True, always_ask=True)
    def pay(amount: int) -> dict[str, int]:
        "Pay."
        return {"paid": amount}

    assert registry["pay"].always_ask
