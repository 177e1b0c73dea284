"""The shown, executed and recorded arguments are equal: defaults, conversions, edits."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NotRequired

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    TypeAdapter,
    computed_field,
    field_serializer,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from lhkit.base.errors import RegistrationError
from lhkit.base.json_values import plain_json, without_pointers
from lhkit.base.locales import load_catalog
from lhkit.confirm.decision import Approve, Decision, Edit
from lhkit.confirm.gate import ConfirmRequest, ScriptedGate
from lhkit.confirm.terminal import TerminalGate
from lhkit.conversation.messages import GateOutcome, ToolCallOutcome
from lhkit.conversation.tool_results import ToolErr, ToolOk, ToolResult
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.definition import TODAY
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

DAY = date(2026, 3, 4)
EN = load_catalog("en")


class Person(BaseModel):
    name: str
    admin: bool = True


class Aliased(BaseModel):
    user_name: str = Field(alias="userName")
    times: int = Field(3, alias="N")


class TwoNames(BaseModel):
    inner: int = Field(1, validation_alias=AliasChoices("in", "inner"), serialization_alias="out")
    last: int = 9


class Computed(BaseModel):
    low: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def high(self) -> int:
        return self.low + 1


class Rewritten(BaseModel):
    cents: int = 5

    @field_serializer("cents")
    def euros(self, cents: int) -> str:
        return f"{cents / 100} EUR"


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    size: int = 1


@dataclass
class Trip:
    to: str
    stops: list[str] = field(default_factory=lambda: ["Bonn"])
    guest: Person = field(default_factory=lambda: Person(name="Bo"))


class Titled(BaseModel):
    """Its validator changes its own results."""

    name: Annotated[str, AfterValidator(lambda name: f"Mr {name}")]
    role: str = "root"


class Summed(BaseModel):
    n: int = 1
    total: int = 0

    @model_validator(mode="after")
    def add(self) -> "Summed":
        self.total += self.n * 100
        return self


@pydantic_dataclass
class Counted:
    name: str
    size: int = Field(default=0, init=False)


@dataclass(eq=False)
class Unequal:
    a: int
    b: int = 2


class Deep(BaseModel):
    x: int = Field(1, validation_alias=AliasPath("in", "x"))
    y: int = 2


@dataclass
class Sized:
    name: str
    size: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.size = len(self.name)


class Row(TypedDict):
    a: int
    b: NotRequired[str]


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Clock:
    """Counts how often it was read."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> int:
        self.reads += 1
        return self.reads


def pay(to: str, amount: int = 100000, *, currency: str = "BTC") -> None:
    """Pay."""


def tool_of(
    function: Callable[..., Any], **options: Any
) -> tuple[ToolRegistry, list[dict[str, Any]]]:
    """Return a registry with the function as a write, and the arguments of its runs."""
    ran: list[dict[str, Any]] = []

    def act(*args: Any, **passed: Any) -> dict[str, Any]:
        assert not args
        ran.append(passed)
        return {}

    act.__wrapped__ = function  # type: ignore[attr-defined]
    registry = ToolRegistry()
    registry.tool(destructive=True, name="act", description="Act.", **options)(act)
    return registry, ran


async def dispatched(
    registry: ToolRegistry, args: Mapping[str, Any], *decisions: Decision
) -> tuple[ToolResult, list[ConfirmRequest], ToolCallOutcome]:
    gate, seen = ScriptedGate(decisions or [Approve()]), []
    dispatcher = ToolDispatcher(registry, catalog=EN, today=lambda: DAY)
    result = await dispatcher.dispatch("act", args, confirm=gate, observe=seen.append)
    return result, gate.asked, seen[0]


def nested(p: Person) -> None: ...
def aliased(p: Aliased) -> None: ...
def two_names(p: TwoNames) -> None: ...
def computed(p: Computed) -> None: ...
def rewritten(p: Rewritten) -> None: ...
def opened(p: Open) -> None: ...
def trip(p: Trip) -> None: ...
def sized(p: Sized) -> None: ...
def with_count(p: Counted) -> None: ...
def rows(p: Row, q: list[Person], r: dict[str, Person]) -> None: ...
def union(x: Person | str | int = 5) -> None: ...
def implicit(title: str = None, n: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013
def default_model(p: Person = Person(name="Bo")) -> None: ...  # noqa: B008
def stripped(s: Annotated[str, StringConstraints(strip_whitespace=True)]) -> None: ...
def words(d: datetime, c: Color = Color.RED, t: timedelta = timedelta(hours=1)) -> None: ...
def money(x: Decimal = Decimal("1.50"), y: float = 2.0) -> None: ...
def named(a: int = Field(7, alias="b"), _x: int = 2, model_config: str = "q") -> None: ...
def lazy(xs: Iterable[int], n: int = 1) -> None: ...
def titled(p: Titled) -> None: ...
def summed(p: Summed, n: int = 1) -> None: ...
def unequal(p: Unequal) -> None: ...
def deep(p: Deep) -> None: ...
def counted(a: Annotated[int, AfterValidator(lambda a: a + 1)]) -> None: ...
def parsed(p: Person, d: Annotated[str, AfterValidator(lambda d: int(d[:-1]) * 60)]) -> None: ...


BO = {"name": "Bo", "admin": True}
CASES: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = {
    "defaults": (pay, {"to": "Bo"}, {"to": "Bo", "amount": 100000, "currency": "BTC"}),
    "nested": (nested, {"p": {"name": "Bo"}}, {"p": BO}),
    "unknown key": (nested, {"p": {"name": "Bo", "admn": False}}, {"p": BO}),
    "alias": (aliased, {"p": {"userName": "a"}}, {"p": {"userName": "a", "N": 3}}),
    "two names": (two_names, {"p": {"in": 4}}, {"p": {"in": 4, "last": 9}}),
    "other name": (two_names, {"p": {"inner": 4}}, {"p": {"inner": 4, "last": 9}}),
    "computed": (computed, {"p": {}}, {"p": {"low": 1}}),
    "serializer": (rewritten, {"p": {}}, {"p": {"cents": 5}}),
    "extra allowed": (opened, {"p": {"k": 4}}, {"p": {"size": 1, "k": 4}}),
    "dataclass": (
        trip,
        {"p": {"to": "Ulm"}},
        {"p": {"to": "Ulm", "stops": ["Bonn"], "guest": BO}},
    ),
    "field that is no argument": (sized, {"p": {"name": "Bo"}}, {"p": {"name": "Bo"}}),
    "field that pydantic sets": (with_count, {"p": {"name": "Bo"}}, {"p": {"name": "Bo"}}),
    "in lists and tables": (
        rows,
        {"p": {"a": 1, "c": 4}, "q": [{"name": "Bo", "x": 1}], "r": {"k": {"name": "Bo"}}},
        {"p": {"a": 1}, "q": [BO], "r": {"k": BO}},
    ),
    "union": (union, {"x": {"name": "Bo"}}, {"x": BO}),
    "union default": (union, {}, {"x": 5}),
    "default of another type": (implicit, {}, {"title": None, "n": None}),
    "model as default": (default_model, {}, {"p": BO}),
    "converted text": (stripped, {"s": "  a "}, {"s": "a"}),
    "words of the model": (
        words,
        {"d": "2026-06-15T09:00Z"},
        {"d": "2026-06-15T09:00Z", "c": "red", "t": "PT1H"},
    ),
    "numbers": (money, {}, {"x": "1.50", "y": 2.0}),
    "names that pydantic has": (named, {}, {"b": 7, "_x": 2, "model_config": "q"}),
    "validator that adds": (
        titled,
        {"p": {"name": "Bo", "rle": "x"}},
        {"p": {"name": "Mr Bo", "role": "root"}},
    ),
    "validator of the model": (summed, {"p": {}}, {"p": {"n": 1, "total": 100}, "n": 1}),
    "without equality": (unequal, {"p": {"a": 1}}, {"p": {"a": 1, "b": 2}}),
    "alias of a path": (deep, {"p": {"in": {"x": 4}}}, {"p": {"x": 4, "y": 2}}),
    "validator of an argument": (counted, {"a": 1}, {"a": 2}),
    "text that becomes a number": (
        parsed,
        {"p": {"name": "Bo"}, "d": "2h"},
        {"p": BO, "d": "2h"},
    ),
    "iterator": (lazy, {"xs": [1, 2]}, {"xs": [1, 2], "n": 1}),
}
"""By name: the function, the arguments of the model, and those that the card shows."""

ONE_WAY = {
    "default of another type",
    "validator that adds",
    "validator of the model",
    "validator of an argument",
    "alias of a path",
}
"""The cases whose card shows what would convert to something else."""


@pytest.mark.longer
@check_rows("case", CASES)
async def test_card_shows_the_defaults_that_run(case: str) -> None:
    function, args, shown = CASES[case]
    registry, ran = tool_of(function)
    result, cards, outcome = await dispatched(registry, args)
    assert isinstance(result, ToolOk)
    assert [card.args for card in cards] == [outcome.args] == [shown]
    assert outcome.run_args is None
    (passed,) = ran
    if case not in ONE_WAY:  # what is shown, written by the model itself, runs the same
        again, ran_again = tool_of(function)
        await dispatched(again, shown)
        assert str(ran_again) == str(ran) or case == "iterator"
    assert len(passed) == len(shown)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (
            {"to": "Bo"},
            '{\n  "to": "Bo",\n  "amount": 100000 (default),\n  "currency": "BTC" (default)\n}',
        ),
        (
            {"to": "1 (default)", "currency": "EUR"},
            '{\n  "to": "1 (default)",\n  "amount": 100000 (default),\n  "currency": "EUR"\n}',
        ),
        (
            {"to": "Bo", "amount": 1, "currency": "X"},
            '{\n  "to": "Bo",\n  "amount": 1,\n  "currency": "X"\n}',
        ),
    ],
)
async def test_card_marks_what_the_model_left_out(args: dict[str, Any], text: str) -> None:
    registry, _ = tool_of(pay)
    _, cards, outcome = await dispatched(registry, args)
    assert cards[0].texts == (text,)
    assert outcome.summary == text
    registry, _ = tool_of(pay, summarize=lambda values, _catalog: f"Pay {values['to']}")
    _, cards, outcome = await dispatched(registry, args)
    assert cards[0].texts == (f"Pay {args['to']}", text)


async def test_card_marks_defaults_within_arguments() -> None:
    registry, _ = tool_of(rows)
    _, cards, outcome = await dispatched(
        registry,
        {"p": {"a": 1, "c": 4}, "q": [{"name": "Bo", "x": 1}], "r": {"a/b~": {"name": "Al"}}},
    )
    assert cards[0].filled_in == outcome.filled_in == ("/q/0/admin", "/r/a~1b~0/admin")
    assert cards[0].details.count('"admin": true (default)') == 2
    assert outcome.extra_args == ("p.c", "q.0.x")


@pytest.mark.parametrize("locale", ["en", "ko"])
async def test_terminal_and_form_show_defaults(locale: str) -> None:
    registry, ran = tool_of(pay, summarize=lambda _args, _catalog: "Pay somebody")
    catalog, shown = load_catalog(locale), []

    async def read(_prompt: str) -> str:
        return "y"

    async def quiet() -> bool:
        return False

    gate = TerminalGate(read, shown.append, catalog, forget=quiet)
    await ToolDispatcher(registry, catalog=catalog).dispatch("act", {"to": "Bo"}, confirm=gate)
    word = {"en": "default", "ko": "기본값"}[locale]
    assert f'"amount": 100000 ({word})' in "\n".join(shown)
    assert ran == [{"to": "Bo", "amount": 100000, "currency": "BTC"}]


async def test_card_shows_values_of_the_clock_that_run_later() -> None:
    clock = Clock()

    def log(text: str, at: int = Field(default_factory=clock)) -> None: ...

    registry, ran = tool_of(log)
    _, cards, outcome = await dispatched(registry, {"text": "a"})
    assert cards[0].args == outcome.args == ran[0] == {"text": "a", "at": ran[0]["at"]}
    args = {"text": "b", "at": 1000}
    _, cards, outcome = await dispatched(registry, {"text": "a"}, Edit(args))
    assert ran[1] == outcome.run_args == args


class Later:
    """Approves after the clock went on, with another text."""

    async def confirm(self, request: ConfirmRequest) -> Decision:
        edited = request.edited({**request.args, "text": "b"})
        assert edited.args["at"] == request.args["at"]
        return Edit(edited.args)


async def test_edit_keeps_the_value_of_the_clock_that_was_shown() -> None:
    clock = Clock()

    def log(text: str, at: int = Field(default_factory=clock)) -> None: ...

    registry, ran = tool_of(log)
    seen: list[ToolCallOutcome] = []
    await ToolDispatcher(registry).dispatch(
        "act", {"text": "a"}, confirm=Later(), observe=seen.append
    )
    assert seen[0].args is not None
    assert ran == [seen[0].run_args] == [{"text": "b", "at": seen[0].args["at"]}]
    assert isinstance(seen[0].result, ToolOk)
    assert seen[0].result.edited == {"text": "b"}


async def test_card_shows_the_day_that_is_implied_when_it_is_asked() -> None:
    today, days = [date(2026, 3, 4)], []

    def log(day: date | None = None, unit: str | None = None) -> dict[str, Any]:
        """Log."""
        days.append((day, unit))
        return {}

    class Midnight:
        async def confirm(self, request: ConfirmRequest) -> bool:
            days.append(request.args)
            today[0] += timedelta(days=1)
            return True

    registry = ToolRegistry()
    registry.tool(destructive=True, implied={"day": TODAY, "unit": "kg"})(log)
    dispatcher = ToolDispatcher(registry, today=lambda: today[0])
    await dispatcher.dispatch("log", {}, confirm=Midnight())
    assert days == [{"day": "2026-03-04", "unit": "kg"}, (date(2026, 3, 4), "kg")]


async def test_defaults_of_a_schema_reach_its_handler() -> None:
    ran: list[Mapping[str, Any]] = []

    def keep(args: Mapping[str, Any], _deps: Any) -> ToolResult:
        ran.append(args)
        return ToolOk({})

    schema = object_schema(
        "to",
        to={"type": "string"},
        amount={"type": "integer", "default": 7},
        tags={"type": "array", "items": {"type": "string"}, "default": []},
        note={"type": "string", "default": None},  # the schema refuses its own default
        person={"type": "object", "properties": {"admin": {"type": "boolean", "default": True}}},
    )
    tool = echo_tool("act", parameters=schema, is_destructive=True, handler=keep)
    registry = ToolRegistry([replace(tool, implied={"note": "-"})])
    _, cards, outcome = await dispatched(registry, {"to": "Bo", "person": {}})
    shown = {"to": "Bo", "person": {"admin": True}, "amount": 7, "tags": [], "note": "-"}
    assert cards[0].args == outcome.args == ran[0] == shown
    registry = ToolRegistry([tool])
    _, cards, outcome = await dispatched(registry, {"to": "Bo", "person": {}})
    del shown["note"]
    assert cards[0].args == outcome.args == ran[1] == shown


CAT_OR_DOG = {
    "oneOf": [
        {
            "properties": {"kind": {"const": kind}, name: {"default": value}},
            "required": ["kind"],
        }
        for kind, name, value in [("cat", "lives", 9), ("dog", "barks", True)]
    ]
}


@check_rows(
    ("schema", "args", "expected"),
    [
        ({"pet": CAT_OR_DOG}, {"pet": {"kind": "dog"}}, {"pet": {"kind": "dog", "barks": True}}),
        (
            {"pets": {"type": "array", "items": {"anyOf": [CAT_OR_DOG, {"type": "string"}]}}},
            {"pets": ["Rex", {"kind": "cat"}]},
            {"pets": ["Rex", {"kind": "cat", "lives": 9}]},
        ),
        ({"pet": {"anyOf": [{"properties": {"a": {"default": 1}}}, {}]}}, {"pet": {}}, {"pet": {}}),
        (
            {
                "pet": {
                    "properties": {"n": {"default": 3}, "to": {}, "by": {}},
                    "anyOf": [{"required": ["to"]}, {"required": ["by"]}],
                }
            },
            {"pet": {"to": 1, "by": 2}},
            {"pet": {"to": 1, "by": 2, "n": 3}},
        ),
    ],
    ids=["variant", "variants in a list", "either", "beside choices"],
)
async def test_defaults_of_a_schema_with_choices_stand_on_the_card(
    schema: dict[str, Any], args: dict[str, Any], expected: dict[str, Any]
) -> None:
    tool = echo_tool("act", parameters=object_schema(**schema), is_destructive=True)
    _, cards, outcome = await dispatched(ToolRegistry([tool]), args)
    assert cards[0].args == outcome.args == expected


async def test_reads_keep_the_arguments_of_the_model() -> None:
    registry = ToolRegistry()
    registry.tool(name="act", description="Read.")(lambda: {})
    schema = object_schema(n={"type": "integer", "default": 7})
    registry = ToolRegistry([echo_tool("act", parameters=schema)])
    _, cards, outcome = await dispatched(registry, {})
    assert (cards, outcome.args, outcome.filled_in) == ([], {}, ())


@check_rows("destructive", [True, False])
@check_rows(
    ("kind", "value", "field"),
    [
        (float, 10**400, "x"),
        (float, -(10**309), "x"),
        (float, 9007199254740993, "x"),
        (float | None, -9007199254740993, "x"),
        (list[dict[str, float]], [{"k": 2**53 + 1}], "x.0.k"),
        (tuple[float, str], [2**63 + 1, "a"], "x.0"),
        (dict[str, Annotated[float, Field(ge=0)]], {"a": 1, "b": 10**17 + 1}, "x.b"),
    ],
)
async def test_float_refuses_an_integer_that_it_would_change(
    kind: Any, value: Any, field: str, *, destructive: bool
) -> None:
    registry, ran = ToolRegistry(), []

    def act(x: Any) -> dict[str, Any]:
        """Act."""
        ran.append(x)
        return {}

    act.__annotations__["x"] = kind
    registry.tool(destructive=destructive)(act)
    result, cards, _ = await dispatched(registry, {"x": value})
    assert isinstance(result, ToolErr)
    assert (result.code, cards, ran) == ("validation", [], [])
    assert f"'{field}'" in result.reason


@check_rows("value", [2**53, -(2**53), 2**60, 5, 0.1, 10**22])
async def test_float_takes_each_number_that_it_can_be(value: Any) -> None:
    def measure(x: float) -> None: ...

    registry, ran = tool_of(measure)
    _, cards, _ = await dispatched(registry, {"x": value})
    assert cards[0].args == ran[0] == {"x": value}


async def test_big_integer_that_becomes_a_list_is_no_error() -> None:
    listed = BeforeValidator(lambda given: [given], json_schema_input_type=int)

    def measure(x: Annotated[list[int], listed]) -> None: ...

    registry, ran = tool_of(measure)
    await dispatched(registry, {"x": 2**53 + 1})
    assert ran == [{"x": [2**53 + 1]}]


async def test_secret_default_runs_as_it_is() -> None:
    def login(pin: SecretStr, key: SecretStr = SecretStr("k")) -> None: ...  # noqa: B008

    registry, ran = tool_of(login)
    _, cards, _ = await dispatched(registry, {"pin": "12"})
    assert cards[0].args == {"pin": "12", "key": "**********"}
    assert [secret.get_secret_value() for secret in ran[0].values()] == ["12", "k"]
    await dispatched(registry, {"pin": "12"}, Edit({"pin": "34", "key": "**********"}))
    assert [secret.get_secret_value() for secret in ran[1].values()] == ["34", "k"]


@check_rows("default", [object(), float("nan"), float("inf"), {1: object()}])
def test_registration_refuses_a_default_that_no_card_can_show(default: Any) -> None:
    def act(x: float = default) -> dict[str, Any]:  # noqa: ARG001
        """Act."""
        return {}

    with pytest.raises(RegistrationError, match=r"(?i)default.* JSON"):
        ToolRegistry().tool(destructive=True)(act)


def _never(value: Any) -> Any:
    return value, object()


async def test_type_of_ones_own_is_shown_as_it_was_given() -> None:
    def act(x: Annotated[str, AfterValidator(_never)], n: int = 1) -> None: ...

    registry, ran = tool_of(act)
    result, cards, _ = await dispatched(registry, {"x": "a"})
    assert isinstance(result, ToolOk)
    assert cards[0].args == {"x": "a", "n": 1}
    assert ran[0]["x"][0] == "a"


async def test_replaced_handler_gets_what_the_card_showed() -> None:
    def act(title: str = None, n: int = 1) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    registry, ran = tool_of(act)
    got: list[Any] = []

    def wrapped(handler: Any) -> Any:
        async def run(args: Mapping[str, Any], deps: Any) -> ToolResult:
            got.append(args)
            result: ToolResult = await handler(args, deps)
            return result

        return run

    others = registry.mapped(lambda tool: replace(tool, handler=wrapped(tool.handler)))
    result, cards, _ = await dispatched(others, {"n": 2})
    assert isinstance(result, ToolOk)
    assert [card.args for card in cards] == got == ran == [{"title": None, "n": 2}]


class Reviser:
    """Approves edited arguments as the card shows them."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments, self.shown = arguments, dict[str, Any]()

    async def confirm(self, request: ConfirmRequest) -> Decision:
        self.shown = request.edited(self.arguments).args  # type: ignore[assignment]
        return Edit(self.shown)


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        ({"p": {"n": 3, "total": 0}, "n": 1}, {"p": {"n": 3, "total": 300}, "n": 1}),
        ({"p": {"n": 2, "total": 200}, "n": 5}, {"p": {"n": 2, "total": 200}, "n": 5}),
        ({"p": {"n": 2, "total": 200}}, None),
    ],
    ids=["changed", "another changed", "default removed"],
)
async def test_edit_runs_as_its_card_shows_despite_a_validator_that_adds(
    edit: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    registry, ran = tool_of(summed)
    gate, seen = Reviser(edit), list[ToolCallOutcome]()
    await ToolDispatcher(registry).dispatch(
        "act", {"p": {"n": 2}}, confirm=gate, observe=seen.append
    )
    (passed,) = ran
    assert {**passed, "p": passed["p"].model_dump()} == gate.shown
    assert seen[0].run_args == expected


async def test_wrapped_handler_runs_what_the_card_showed_once() -> None:
    registry, ran = tool_of(titled)

    def twice(handler: Any) -> Any:
        async def run(args: Mapping[str, Any], deps: Any) -> ToolResult:
            await handler(args, deps)
            result: ToolResult = await handler({"p": {"name": "Al"}}, deps)
            return result

        return run

    others = registry.mapped(lambda tool: replace(tool, handler=twice(tool.handler)))
    _, cards, _ = await dispatched(others, {"p": {"name": "Bo"}})
    assert cards[0].args["p"] == {"name": "Mr Bo", "role": "root"}
    assert [passed["p"].name for passed in ran] == ["Mr Bo", "Mr Al"]


async def test_call_that_was_asked_keeps_values_of_the_clock_within_arguments() -> None:
    clock = Clock()

    class Stamped(BaseModel):
        n: int = 1
        at: int = Field(default_factory=clock)

    def act(p: list[Stamped]) -> None: ...

    registry, _ = tool_of(act)
    gate, args = ScriptedGate([False, False]), {"p": [{}, {"n": 2, "m": 3}]}
    dispatcher = ToolDispatcher(registry)
    await dispatcher.dispatch("act", args, confirm=gate)
    await dispatcher.dispatch("act", args, confirm=gate, asked=gate.asked[0])
    first, second = gate.asked
    assert (second.args, second.texts) == (first.args, first.texts)


async def test_call_that_was_asked_is_completed_anew_if_its_card_would_be_converted_again() -> None:
    clock = Clock()

    def act(
        a: Annotated[int, AfterValidator(lambda a: a + 1)], at: int = Field(default_factory=clock)
    ) -> None: ...

    registry, _ = tool_of(act)
    gate, dispatcher = ScriptedGate([False, False]), ToolDispatcher(registry)
    await dispatcher.dispatch("act", {"a": 1}, confirm=gate)
    await dispatcher.dispatch("act", {"a": 1}, confirm=gate, asked=gate.asked[0])
    first, second = gate.asked
    assert (first.args["a"], second.args["a"]) == (2, 2)
    assert first.args["at"] != second.args["at"]


class Vandal:
    """Changes the request that it is shown, and approves."""

    def __init__(self, *, is_bound: bool, is_edit: bool) -> None:
        self.is_bound, self.is_edit = is_bound, is_edit

    async def confirm(self, request: ConfirmRequest) -> Decision:
        dict.__setitem__(request.args, "to", "Eve")  # type: ignore[arg-type]
        list.append(request.args["who"], "Eve")  # type: ignore[arg-type]
        if self.is_edit:
            args = {"to": "Al", "who": ["Al"]}
            decision = Edit(request.edited(args).args)
            dict.__setitem__(decision.arguments, "to", "Eve")  # type: ignore[arg-type]
            return decision
        return Approve(binding=request.binding if self.is_bound else "")


@pytest.mark.parametrize(("bound", "edit"), [(True, False), (False, False), (False, True)])
async def test_gate_that_changes_the_request_changes_neither_record_nor_run(
    *, bound: bool, edit: bool
) -> None:
    def send(to: str, who: list[str]) -> None: ...

    registry, ran = tool_of(send)
    dispatcher, seen = ToolDispatcher(registry), []
    args = {"to": "Bo", "who": ["Bo"]}
    gate = Vandal(is_bound=bound, is_edit=edit)
    await dispatcher.dispatch("act", args, confirm=gate, observe=seen.append)
    assert seen[0].args == args
    if bound:  # it approved something else
        assert (ran, seen[0].gate) == ([], GateOutcome.FAILED)
    elif edit:
        assert ran == [seen[0].run_args] == [{"to": "Eve", "who": ["Al"]}]  # its own decision
    else:
        assert (ran, "Eve" in seen[0].summary) == ([args], False)


KINDS: Mapping[str, tuple[Any, st.SearchStrategy[Any], list[Any]]] = {
    "text": (str, st.text(max_size=3), ["", "d"]),
    "number": (int, st.integers(-9, 9), [0, None]),
    "float": (float, st.floats(allow_nan=False, allow_infinity=False), [1, 2.5]),
    "day": (date, st.dates().map(str), [DAY]),
    "optional": (list[int] | None, st.none() | st.lists(st.integers(0, 3)), [None, [1]]),
    "person": (
        Person,
        st.fixed_dictionaries(
            {"name": st.text(max_size=2)},
            optional={"admin": st.booleans(), "x": st.booleans()},
        ),
        [Person(name="Bo", admin=False)],
    ),
    "trips": (
        list[Trip],
        st.lists(
            st.fixed_dictionaries(
                {"to": st.text(max_size=2)},
                optional={"stops": st.lists(st.text(max_size=1)), "y": st.none()},
            ),
            max_size=2,
        ),
        [[]],
    ),
    "color": (Color | int, st.sampled_from(["red", 4]), [Color.BLUE, 3]),
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[Callable[..., Any], dict[str, Any], dict[str, Any] | None]:
    """Return a function, arguments for it, and those of an edit."""
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    names = [f"{kind}_{i}" for i, kind in enumerate(kinds)]
    by_name = dict(zip(names, map(KINDS.__getitem__, kinds), strict=True))
    has_default = {name: draw(st.booleans()) for name in names}
    defaults = {n: draw(st.sampled_from(by_name[n][2])) for n in names if has_default[n]}
    signature = ", ".join(
        f"{n}: Any = defaults[{n!r}]" if n in defaults else f"{n}: Any" for n in names
    )
    scope: dict[str, Any] = {"defaults": defaults, "Any": Any}
    exec(f"def act(*, {signature}): 'Act.'", scope)  # noqa: S102 - our own text
    act = scope["act"]
    act.__annotations__ = {name: by_name[name][0] for name in names}

    def arguments() -> dict[str, Any]:
        return {
            name: draw(by_name[name][1])
            for name in names
            if name not in defaults or draw(st.booleans())
        }

    return act, arguments(), draw(st.none() | st.builds(arguments))


@pytest.mark.longer
@given(calls())
async def test_shown_is_run_is_recorded(
    drawn: tuple[Callable[..., Any], dict[str, Any], dict[str, Any] | None],
) -> None:
    function, args, edit = drawn
    registry, ran = tool_of(function)
    shown: list[Mapping[str, Any]] = []

    class Editor:
        async def confirm(self, request: ConfirmRequest) -> Decision:
            shown.append(request.args)
            if edit is None:
                return Approve()
            known = {**request.args, **_known(edit)}  # an edit refuses unknown keys
            shown.append(request.edited(known).args)
            return Edit(known)

    seen: list[ToolCallOutcome] = []
    dispatcher = ToolDispatcher(registry, catalog=EN)
    result = await dispatcher.dispatch("act", args, confirm=Editor(), observe=seen.append)
    assert isinstance(result, ToolOk), result
    (passed,), (outcome,) = ran, seen
    assert outcome.args == shown[0]
    if outcome.run_args is not None:
        assert outcome.run_args == shown[-1]
    last = shown[-1] if edit is not None else shown[0]
    assert passed.keys() == last.keys()
    for name, value in passed.items():
        kind: Any = TypeAdapter(function.__annotations__[name])
        if last[name] is None and value is None:
            continue  # the default of an argument that does not accept it
        assert kind.validate_json(json.dumps(plain_json(last[name])), strict=True) == value


def _known(args: Mapping[str, Any]) -> dict[str, Any]:
    def known(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: item for key, item in value.items() if key not in ("x", "y")}
        return [known(item) for item in value] if isinstance(value, list) else value

    return {name: known(value) for name, value in args.items()}


async def test_edit_keeps_the_mark_of_a_default_within_an_unchanged_argument() -> None:
    args = {"p": {"to": "Ulm"}, "n": 1}

    def more(p: Trip, n: int) -> None: ...

    registry, _ = tool_of(more)
    shown: list[tuple[str, ...]] = []

    class Editor:
        async def confirm(self, request: ConfirmRequest) -> bool:
            shown.append(request.filled_in)
            shown.append(request.edited({**request.args, "n": 2}).filled_in)
            person = {**request.args["p"], "stops": []}  # type: ignore[dict-item]
            shown.append(request.edited({**request.args, "p": person}).filled_in)
            return False

    await ToolDispatcher(registry).dispatch("act", args, confirm=Editor())
    assert shown == [("/p/stops", "/p/guest"), ("/p/stops", "/p/guest"), ()]


class Searched(tuple[str, ...]):
    """Pointers whose search would take time for each key."""

    def __contains__(self, _pointer: object) -> bool:
        raise AssertionError("searched one by one")


def test_without_pointers_looks_them_up() -> None:
    value = {"a": 1, "b": [{"c": 2, "d": 3}]}
    assert without_pointers(value, Searched(["/b/0/c"])) == {"a": 1, "b": [{"d": 3}]}


MODE = {"mode": {"enum": ["fast", "slow"], "default": "slow"}, "n": {"type": "integer"}}
BY_MODE = {
    "properties": MODE,
    "if": {"properties": {"mode": {"const": "fast"}}},
    "then": {"properties": {"n": {"default": 1}}},
    "else": {"properties": {"limit": {"default": 2, "type": "integer"}}},
}
CARD = {
    "card": {"properties": {"zip": {"default": "0"}, "at": {"properties": {"k": {"default": 5}}}}}
}
NAMED = {"type": "object", "properties": {"a": {"default": 1}}}
REF = {"$ref": "#/$defs/K"}
IF_KIND = {
    "type": "object",
    "properties": {"kind": {"enum": ["p", "q"]}},
    "if": {"properties": {"kind": {"const": "p"}}, "required": ["kind"]},
    "then": {"properties": {"d": {"default": 7}}},
}


@check_rows(
    ("schema", "given", "ran"),
    [
        (BY_MODE, {}, {"mode": "slow", "limit": 2}),
        (BY_MODE, {"mode": "fast"}, {"mode": "fast", "n": 1}),
        (BY_MODE, {"mode": "fast", "n": 9}, {"mode": "fast", "n": 9}),
        ({"dependentSchemas": CARD, "properties": {"card": {}}}, {}, {}),
        (
            {"dependentSchemas": CARD, "properties": {"card": {}}},
            {"card": "x", "at": {}},
            {"card": "x", "at": {"k": 5}, "zip": "0"},
        ),
        (
            {  # a default that fulfils the next condition
                "properties": {"a": {}},
                "dependentSchemas": {
                    "a": {"properties": {"b": {"default": 1}}},
                    "b": {"properties": {"c": {"default": 2}}},
                },
            },
            {"a": 0},
            {"a": 0, "b": 1, "c": 2},
        ),
        ({"patternProperties": {"^x": NAMED}}, {"x1": {}}, {"x1": {"a": 1}}),
        (
            {
                "properties": {"x": {"properties": {"b": {"default": 2}}}},
                "patternProperties": {"x": NAMED},
            },
            {"x": {}},
            {"x": {"b": 2, "a": 1}},
        ),
        ({"allOf": [REF], "$defs": {"K": IF_KIND}}, {"kind": "p"}, {"kind": "p", "d": 7}),
        ({"allOf": [REF], "$defs": {"K": IF_KIND}}, {"kind": "q"}, {"kind": "q"}),
        ({"properties": {"o": IF_KIND}}, {"o": {"kind": "p"}}, {"o": {"kind": "p", "d": 7}}),
        (
            {"properties": {"l": {"type": "array", "items": IF_KIND}}},
            {"l": [{"kind": "p"}, {}]},
            {"l": [{"kind": "p", "d": 7}, {}]},
        ),
        ({"anyOf": [IF_KIND]}, {"kind": "p"}, {"kind": "p", "d": 7}),
        (  # conditions that contradict each other end
            {
                "properties": {"a": {}},
                "if": {"required": ["a"]},
                "then": {"properties": {"b": {"default": 1}}},
                "else": {"properties": {"a": {"default": 2}}},
            },
            {},
            {"a": 2, "b": 1},
        ),
    ],
)  # fmt: skip
async def test_conditional_defaults_are_shown_run_and_recorded(
    schema: Mapping[str, Any], given: Mapping[str, Any], ran: Mapping[str, Any]
) -> None:
    handled: list[Any] = []

    def handle(args: Mapping[str, Any], _deps: Any) -> ToolResult:
        handled.append(args)
        return ToolOk({})

    tool = replace(
        echo_tool("t", parameters={"type": "object", **schema}, is_destructive=True), handler=handle
    )
    gate, seen = ScriptedGate([True]), []
    await ToolDispatcher(ToolRegistry([tool]), catalog=EN).dispatch(
        "t", given, confirm=gate, observe=seen.append
    )
    (outcome,), (request,) = seen, gate.asked
    assert outcome.args == ran
    assert handled == [ran]
    assert request.args == ran
    assert without_pointers(request.args, request.filled_in) == given
