"""What a tool's schema says of arguments, and which schemas cannot be a tool's."""

import enum
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Annotated, Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import AfterValidator, BaseModel, Field

from lhkit.base.errors import RegistrationError
from lhkit.confirm.gate import ConfirmRequest
from lhkit.conversation.tool_results import ToolErr, ToolOk, ToolResult
from lhkit.testing import echo_tool
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registration import schema_issue
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import (
    Accepted,
    ArgumentsVerdict,
    ArgumentValidator,
    Invalid,
    Missing,
    value_issue,
)
from tests.rows import check_rows

NFC, NFD = "메모", "\u1106\u1166\u1106\u1169"
INTEGER = {"type": "integer"}


def checked(schema: Mapping[str, Any], args: Mapping[str, Any]) -> ArgumentsVerdict:
    return ArgumentValidator({"type": "object", **schema}).check(args)


def accepted(schema: Mapping[str, Any], args: Mapping[str, Any]) -> Accepted:
    verdict = checked(schema, args)
    assert isinstance(verdict, Accepted), verdict
    return verdict


class Person:
    """Says yes, and remembers the cards."""

    def __init__(self) -> None:
        self.cards: list[ConfirmRequest] = []

    async def confirm(self, request: ConfirmRequest) -> bool:
        self.cards.append(request)
        return True


class Size(enum.Enum):
    SMALL = 1
    LARGE = "large"


class Order(BaseModel):
    day: date
    amount: float = 1


def _even(number: int) -> int:
    if number % 2:
        raise ValueError("must be even")
    return number


async def _called(kind: Any, value: Any) -> tuple[ToolResult, list[ConfirmRequest], list[Any]]:
    registry, ran = ToolRegistry(), []

    def act(x: Any) -> dict[str, Any]:
        """Act."""
        ran.append(x)
        return {}

    act.__annotations__["x"] = kind
    registry.tool(destructive=True)(act)
    person = Person()
    result = await ToolDispatcher(registry).dispatch("act", {"x": value}, confirm=person)
    return result, person.cards, ran


@pytest.mark.longer
@pytest.mark.anyio
@check_rows(
    ("kind", "value"),
    [
        (date, "soon"),
        (date, 0),
        (date, "2026-02-30"),
        (date | None, "86400"),
        (datetime, "2026-06-15"),
        (time, "25:00"),
        (timedelta, 30),
        (UUID, "12345678123456781234567812345678"),
        (Decimal, "much"),
        (IPv4Address, "1.2.3"),
        (Size, "SMALL"),
        (int, "5"),
        (Order, {"day": "0"}),
        (list[date], ["2026-06-15", "1"]),
        (Annotated[int, AfterValidator(_even)], 3),
    ],
)
async def test_validation_refuses_a_value_that_its_type_refuses(kind: Any, value: Any) -> None:
    result, cards, ran = await _called(kind, value)
    assert isinstance(result, ToolErr)
    assert result.code == "validation"
    assert "x" in result.reason
    assert (cards, ran) == ([], [])


@pytest.mark.anyio
@check_rows(
    ("kind", "value", "runs"),
    [
        (date, "2026-06-15", date(2026, 6, 15)),
        (date | None, None, None),
        (date | str, "soon", "soon"),
        (datetime, "2026-06-15T09:00:00", datetime(2026, 6, 15, 9)),
        (datetime, "2026-06-15T09:00", datetime(2026, 6, 15, 9)),
        (time, "09:30", time(9, 30)),
        (timedelta, "PT30M", timedelta(minutes=30)),
        (
            UUID,
            "12345678-1234-5678-1234-567812345678",
            UUID(int=0x12345678123456781234567812345678),
        ),
        (Decimal, "1.50", Decimal("1.50")),
        (Decimal, 2, Decimal(2)),
        (Size, 1, Size.SMALL),
        (Size, "large", Size.LARGE),
        (float, 1, 1.0),
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[int], [1, 2], {1, 2}),
        (Order, {"day": "2026-06-15", "amount": 1.0}, Order(day=date(2026, 6, 15), amount=1.0)),
        (Annotated[int, AfterValidator(_even)], 4.0, 4),
    ],
)
async def test_validation_converts_the_value_that_the_card_showed(
    kind: Any, value: Any, runs: Any
) -> None:
    result, cards, ran = await _called(kind, value)
    assert result == ToolOk({})
    assert [card.args for card in cards] == [{"x": value}]
    assert ran == [runs]


@check_rows(
    ("name", "fits", "refused"),
    [
        ("date", ["2026-06-15", "0001-01-01"], ["soon", "0", "20260615", "2026-W25-1", "2026-13-01",
                                                "٢٠٢٦-٠٦-١٥", "2026-06-15 ", "2026-6-15"]),
        ("date-time", ["2026-06-15T09:00:00Z", "2026-06-15t09:00:00.5+09:00", "2026-06-15 09:00"],
         ["2026-06-15", "2026-06-15T24:01", "2026-06-15T09", "0", "2026-06-15T09:00:00+0900"]),
        ("time", ["09:00", "23:59:59Z"], ["9:00", "24:01", "noon", "0900"]),
        ("uuid", ["12345678-ABCD-5678-1234-567812345678"],
         ["{12345678-1234-5678-1234-567812345678}", "1234"]),
        ("ipv4", ["192.0.2.1"], ["192.0.2", "192.0.2.256", "::1"]),
        ("ipv6", ["::1"], ["fe80::1%eth0", "192.0.2.1"]),
        ("email", ["not checked"], []),
    ],
)  # fmt: skip
def test_validation_checks_formats(name: str, fits: list[str], refused: list[str]) -> None:
    schema = {"properties": {"x": {"type": ["string", "integer"], "format": name}}}
    for text in fits:
        assert accepted(schema, {"x": text}).args == {"x": text}
    for text in refused:
        verdict = checked(schema, {"x": text})
        assert isinstance(verdict, Invalid), text
        assert (verdict.field, name in verdict.expected) == ("x", True)
    assert accepted(schema, {"x": 0}).args == {"x": 0}  # a format speaks of texts only


def test_validation_runs_the_tools_own_check() -> None:
    issue = Invalid(field="end", expected="a day after the start", actual="1")
    schema = {"type": "object", "properties": {"end": INTEGER}, "required": ["end"]}
    tool = replace(
        echo_tool(parameters=schema), check=lambda args: None if args["end"] == 2 else issue
    )
    validator = ToolRegistry([tool]).validator(tool.name)
    assert validator.check({"end": 1}) == issue
    assert isinstance(validator.check({"end": 2}), Accepted)
    assert isinstance(validator.check({}), Missing), "the schema is asked first"


A, B = {"properties": {"a": INTEGER}}, {"properties": {"b": {"type": "string"}}}


@check_rows(
    ("schema", "args", "accepted_names"),
    [
        ({"$ref": "#/$defs/A", "$defs": {"A": A}}, {"a": 1}, {"a"}),
        ({"$ref": "#/$defs/x~1y%20z", "$defs": {"x/y z": A}}, {"a": 1}, {"a"}),
        ({"$ref": "#/x/0/y", "x": [{"y": A}]}, {"a": 1}, {"a"}),
        ({"allOf": [A, {"allOf": [B]}]}, {"a": 1, "b": "x"}, {"a", "b"}),
        ({"anyOf": [A, B]}, {"b": "x"}, {"b"}),
        ({"oneOf": [{**A, "required": ["a"]}, {**B, "required": ["b"]}]}, {"b": "x"}, {"b"}),
        ({"if": A, "then": B}, {"a": 1, "b": "x"}, {"a", "b"}),
        ({**A, "if": {"required": ["a"]}, "else": B}, {"b": "x"}, {"b"}),
        ({**A, "dependentSchemas": {"a": B}}, {"a": 1, "b": "x"}, {"a", "b"}),
        ({"additionalProperties": True}, {"b": "x", "c": 2}, {"b", "c"}),
        ({"additionalProperties": INTEGER}, {"c": 2}, {"c"}),
        ({"unevaluatedProperties": True}, {"c": 2}, {"c"}),
        ({**A, "unevaluatedProperties": False}, {"a": 2, "c": 2}, {"a"}),
        ({**A, "additionalProperties": False}, {"a": 2, "c": 2}, {"a"}),
        ({"patternProperties": {"^x": INTEGER}}, {"x1": 2, "y": 2}, {"x1"}),
        (A, {"a": 1, "b": "x"}, {"a"}),
    ],
)
def test_validation_keeps_keys_declared_in_any_subschema(
    schema: dict[str, Any], args: dict[str, Any], accepted_names: set[str]
) -> None:
    assert schema_issue({"type": "object", **schema}) is None
    verdict = accepted(schema, args)
    assert set(verdict.args) == accepted_names
    assert set(verdict.extra) == set(args) - accepted_names


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"oneOf": [{**A, "required": ["a"]}, {**B, "required": ["b"]}]}, {"a": 1, "b": "x"}),
        ({"if": {"properties": {"a": {"const": 1}}, "required": ["a"]}, "then": {
            "properties": {"b": INTEGER}, "required": ["b"]}}, {"a": 1}),
    ],
)  # fmt: skip
def test_validation_refuses_what_all_branches_refuse(
    schema: dict[str, Any], field: dict[str, Any]
) -> None:
    assert not isinstance(checked(schema, field), Accepted)


def test_validation_describes_a_missing_field() -> None:
    schema = {"required": ["a"], "allOf": [{"$ref": "#/$defs/A"}],
              "$defs": {"A": {"properties": {"a": {"$ref": "#/$defs/N"}}},
                        "N": {"type": "integer", "minimum": 1, "maximum": 9}}}  # fmt: skip
    assert checked(schema, {}) == Missing(field="a", expected="integer 1..9")


ONE = {"n": 1.0}
REFERRED = {"$ref": "#/$defs/N"}


@check_rows(
    ("schema", "args", "expected"),
    [
        ({"properties": {"n": INTEGER}}, ONE, {"n": 1}),
        ({"properties": {"n": {"type": ["integer", "null"]}}}, ONE, {"n": 1}),
        ({"properties": {"n": REFERRED}}, ONE, {"n": 1}),
        ({"properties": {"n": {"allOf": [{"type": "number"}, REFERRED]}}}, ONE, {"n": 1}),
        ({"properties": {"n": {"anyOf": [REFERRED, {"type": "null"}]}}}, ONE, {"n": 1}),
        ({"properties": {"n": {"oneOf": [INTEGER, {"type": "string"}]}}}, ONE, {"n": 1}),
        ({"properties": {"n": {"anyOf": [INTEGER, {"type": "number"}]}}}, ONE, {"n": 1.0}),
        ({"properties": {"n": {"type": "number"}}}, ONE, {"n": 1.0}),
        ({"properties": {"n": {"type": "array", "items": REFERRED}}}, {"n": [2.0]}, {"n": [2]}),
        (
            {"properties": {"n": {"prefixItems": [INTEGER], "items": {"type": "number"}}}},
            {"n": [2.0, 2.0]},
            {"n": [2, 2.0]},
        ),
        ({"additionalProperties": INTEGER}, ONE, {"n": 1}),
        ({"properties": {"n": {"anyOf": [True, INTEGER]}}}, ONE, {"n": 1.0}),
        ({"patternProperties": {"^n": INTEGER}}, ONE, {"n": 1}),
        ({"properties": {"n": {"patternProperties": {"": INTEGER}}}}, ONE, {"n": 1.0}),
        ({"allOf": [{"properties": {"n": INTEGER}}]}, ONE, {"n": 1}),
        (
            {
                "properties": {"kind": {}},
                "oneOf": [
                    {"properties": {"kind": {"const": "i"}, "n": INTEGER}},
                    {"properties": {"kind": {"const": "f"}, "n": {"type": "number"}}},
                ],
            },
            {"kind": "f", "n": 1.0},
            {"kind": "f", "n": 1.0},
        ),
        (
            {
                "properties": {"kind": {}, "n": {}},
                "if": {"properties": {"kind": {"const": "i"}}},
                "then": {"properties": {"n": INTEGER}},
            },
            {"kind": "i", "n": 1.0},
            {"kind": "i", "n": 1},
        ),
    ],
)
def test_validation_converts_whole_floats_where_an_integer_is_wanted(
    schema: dict[str, Any], args: dict[str, Any], expected: dict[str, Any]
) -> None:
    accepted_args = accepted({**schema, "$defs": {"N": INTEGER}}, args).args
    assert repr(accepted_args) == repr(expected), "1 == 1.0, so the types are compared, too"


def test_validation_compares_names_in_nfc() -> None:
    for declared, given_name in ((NFC, NFD), (NFD, NFC)):
        inner = {"properties": {declared: INTEGER}, "required": [declared]}
        schema = {"properties": {declared: inner}, "required": [declared]}
        args = accepted(schema, {given_name: {given_name: 1}})
        assert args == Accepted(args={declared: {declared: 1}})


def test_validation_prefers_the_schemas_spelling_of_a_name() -> None:
    schema = {"properties": {NFC: INTEGER}}
    for args in ({NFC: 1, NFD: 2}, {NFD: 2, NFC: 1}):
        assert accepted(schema, args) == Accepted(args={NFC: 1}, extra=(NFD,))


def test_validation_fetches_nothing() -> None:
    validator = ArgumentValidator(
        {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x.json"}}}
    )
    with pytest.raises(Exception, match=r"Unresolvable.*127\.0\.0\.1:9"):
        validator.check({"a": 1})


DEFS = {"$defs": {"N": INTEGER, "T": {"required": ["t"], "type": "object",
        "properties": {"t": {"$ref": "#/$defs/T"}}}}}  # fmt: skip


@check_rows(
    ("schema", "issue"),
    [
        ({"properties": {"a": {"$ref": "https://example.com/a.json"}}}, "nothing is fetched"),
        ({"properties": {"a": {"$ref": "file:///etc/hosts"}}}, "nothing is fetched"),
        ({"properties": {"a": {"$ref": "a.json"}}}, "nothing is fetched"),
        ({"properties": {"a": {"$ref": "#name"}}}, "nothing is fetched"),
        ({"properties": {"a": {"$dynamicRef": "#name"}}}, r"\$dynamicRef '#name' is not supported"),
        ({"properties": {"a": {"$id": "https://x.org/", "items": {"$ref": "#/$defs/N"}}}}, r"\$id"),
        ({"properties": {"a": {"$ref": "#/$defs/Missing"}}}, "does not point to a schema"),
        ({"properties": {"a": {"$ref": "#/x/a"}}, "x": {"a": {"type": "strin"}}}, "does not point"),
        ({"properties": {"a": {"$ref": "#/$defs/L"}}, "$defs": {"L": {"$ref": "#/$defs/L"}}},
         "itself without end"),
        ({"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}, {}]}}}, "itself without end"),
        ({"required": ["a"]}, "'a' is required but not declared"),
        ({**A, "anyOf": [{"required": ["a"]}, {"required": ["z"]}]}, "'z' is required but not"),
        ({**A, "dependentRequired": {"a": ["z"]}}, "'z' is required but not declared"),
        ({"properties": {"a": False}}, "'a' accepts no value"),
        ({"allOf": [{**A, "additionalProperties": False}, B]}, "'b' is refused by an additional"),
        ({"properties": {NFC: {}, NFD: {}}}, "two spellings"),
    ],
)  # fmt: skip
def test_registry_refuses_unusable_schemas(schema: dict[str, Any], issue: str) -> None:
    tool = replace(echo_tool(), parameters={"type": "object", **DEFS, **schema})
    with pytest.raises(RegistrationError, match=f"tool 'echo': .*{issue}"):
        ToolRegistry([tool])


@check_rows(
    "schema",
    [
        {"properties": {"a": {"enum": []}}},
        {"properties": {"a": {"minLength": 3, "maxLength": 2}}, "required": ["a"]},
        {"properties": {"a": {"default": {"$ref": "http://x.org"}, "examples": [{"$ref": "#/x"}]}}},
        {"properties": {"$ref": {"type": "string"}, "$id": {}}, "required": ["$ref"]},
        {"$id": "https://x.org/a", "properties": {"a": {"$ref": "#/$defs/N"}}},
        {"properties": {"a": {"anyOf": [{"type": "null"}, {"items": {"$ref": "#/properties/a"}}]}}},
        {**A, "if": {"required": ["a"]}, "then": {"properties": {"b": False}}},
        {"required": ["a"], "additionalProperties": True},
        {"required": ["a1"], "patternProperties": {"^a": {}}},
        {**A, "additionalProperties": False, "allOf": [{"required": ["a"]}]},
        {"$ref": "#/$defs/N/type"} | {"$ref": "#/$defs/O"},
        {"required": ["a"], "properties": {"a": {"minimum": 2, "maximum": 2, "type": "integer"}}},
    ],
)
def test_registry_accepts_usable_schemas(schema: dict[str, Any]) -> None:
    definitions = {"N": INTEGER, "O": {"type": "object"}}
    full = {"type": "object", "$defs": definitions, **schema}
    assert ToolRegistry([replace(echo_tool(), parameters=full)])


@pytest.mark.parametrize("default", [{"title": "x", "type": "y"}, [{"title": 1}], "title"])
def test_tool_keeps_titles_in_default_values(default: Any) -> None:
    registry = ToolRegistry()

    def note(
        title: Annotated[Any, Field(examples=[{"title": "e"}], title="dropped")] = default,
    ) -> dict[str, Any]:
        """Write a note."""
        return {"title": title}

    registry.tool()(note)
    title = registry["note"].parameters["properties"]["title"]
    assert title == {"default": default, "examples": [{"title": "e"}]}


def test_value_issue_resolves_references_and_branches() -> None:
    schema = {"properties": {"n": {"$ref": "#/$defs/N"}}, "$defs": {"N": INTEGER},
              "oneOf": [{"properties": {"k": {"const": k}}} for k in (1, 2)]}  # fmt: skip
    assert value_issue(schema, "n", 1) is None
    assert value_issue(schema, "n", "x") == "'x' is not of type 'integer'"
    assert value_issue(schema, "k", 2) is None
    assert value_issue(schema, "k", 3) is not None


LEAVES = st.sampled_from(
    [INTEGER, {"type": "string"}, {"type": "number"}, {"$ref": "#/$defs/N"}, {}]
)
NAMES = st.sampled_from(["a", "b", NFC, "id"])
OBJECTS = st.recursive(
    st.fixed_dictionaries({"properties": st.dictionaries(NAMES, LEAVES, max_size=3)}),
    lambda inner: (
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)})
        | st.fixed_dictionaries({"if": inner, "then": inner, "else": inner})
        | st.fixed_dictionaries({"dependentSchemas": st.dictionaries(NAMES, inner, max_size=2)})
    ),
    max_leaves=6,
)
VALUES = st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from([1.0, "x", "1"]) | st.none()


def _declared(schema: Any) -> set[str]:
    """Return the declared names: every name under any `properties`."""
    if isinstance(schema, list):
        return {name for each in schema for name in _declared(each)}
    if not isinstance(schema, dict):
        return set()
    inner = [each for key, each in schema.items() if key != "properties"]
    return set(schema.get("properties", ())) | _declared(inner)


@given(OBJECTS, st.dictionaries(NAMES | st.just("zz"), VALUES, max_size=4))
@settings(deadline=None)
def test_validation_keeps_declared_keys_and_values(
    schema: dict[str, Any], args: dict[str, Any]
) -> None:
    full = {"type": "object", "$defs": {"N": INTEGER}, **schema}
    names = _declared(schema)
    verdict = ArgumentValidator(full).check(args)
    known = {key: value for key, value in args.items() if key in names}
    assert isinstance(verdict, Accepted) is Draft202012Validator(full).is_valid(known)
    if isinstance(verdict, Accepted):
        assert verdict.args == known
        assert set(verdict.extra) == args.keys() - known.keys()
        assert Draft202012Validator(full).is_valid(verdict.args)


def number(**bounds: Any) -> dict[str, Any]:
    return {"properties": {"n": {"type": "number", **bounds}}}


def nested(**bounds: Any) -> dict[str, Any]:
    return {"properties": {"o": {"type": "object", **bounds}}}


def listed(**bounds: Any) -> dict[str, Any]:
    return {"properties": {"l": {"type": "array", **bounds}}}


STRING = {"type": "string"}
ANY_OF = [{"required": ["a"]}, {"required": ["b"]}]
AB = {"a": {}, "b": {}}

BROKEN_BOUNDS: list[tuple[str, dict[str, Any], Any, str]] = [
    ("type", {"properties": {"s": STRING}}, {"s": 1}, "string"),
    ("const", {"properties": {"s": {"const": "x"}}}, {"s": 1}, '"x"'),
    ("enum", {"properties": {"s": {"enum": ["x", 2]}}}, {"s": 1}, 'one of "x", 2'),
    ("minimum", number(minimum=3), {"n": 2}, "number 3.."),
    ("maximum", number(maximum=3), {"n": 4}, "number ..3"),
    ("exclusiveMinimum", number(exclusiveMinimum=0), {"n": 0}, "number above 0"),
    ("exclusiveMaximum", number(exclusiveMaximum=9.5), {"n": 9.5}, "number below 9.5"),
    ("multipleOf", number(multipleOf=0.01), {"n": 0.005}, "number that is a multiple of 0.01"),
    ("minLength", {"properties": {"s": {"minLength": 2}}}, {"s": "a"}, "string of 2.. characters"),
    ("maxLength", {"properties": {"s": {"maxLength": 2}}}, {"s": "abc"}, "of ..2 characters"),
    ("pattern", {"properties": {"s": {"pattern": "^a$"}}}, {"s": "b"}, "string matching ^a$"),
    ("format", {"properties": {"s": {"format": "date"}}}, {"s": "b"}, "date (YYYY-MM-DD)"),
    ("minItems", listed(minItems=2), {"l": [1]}, "array of 2.. items"),
    ("maxItems", listed(maxItems=2), {"l": [1, 2, 3]}, "array of ..2 items"),
    ("uniqueItems", listed(uniqueItems=True), {"l": [1, 1]}, "array with no item twice"),
    ("contains", listed(contains=STRING), {"l": [1]}, "array with 1.. items that are string"),
    (
        "contains",
        listed(contains=STRING, minContains=2, maxContains=3),
        {"l": ["a"]},
        "array with 2..3 items that are string",
    ),
    ("contains", listed(contains=STRING, maxContains=1), {"l": ["a", "b"]}, "with 1..1 items"),
    ("prefixItems", listed(prefixItems=[STRING]), {"l": [1]}, "string"),
    ("items", listed(items=STRING), {"l": [1]}, "string"),
    ("items", listed(prefixItems=[STRING], items=False), {"l": ["a", 1]}, "of at most 1 items"),
    (
        "unevaluatedItems",
        listed(prefixItems=[STRING], unevaluatedItems=False),
        {"l": ["a", 1]},
        "of at most 1 items",
    ),
    ("properties", nested(properties={"s": STRING}), {"o": {"s": 1}}, "string"),
    ("properties", nested(properties={"s": False}), {"o": {"s": 1}}, "left out"),
    ("patternProperties", nested(patternProperties={"^s": STRING}), {"o": {"s": 1}}, "string"),
    (
        "additionalProperties",
        nested(properties=AB, additionalProperties=False),
        {"o": {"c": 1}},
        "object with no other keys than 'a', 'b'",
    ),
    (
        "additionalProperties",
        nested(patternProperties={"^x": {}}, additionalProperties=False),
        {"o": {"c": 1}},
        "object with no other keys than keys matching ^x",
    ),
    ("additionalProperties", nested(additionalProperties=False), {"o": {"c": 1}}, "without keys"),
    ("additionalProperties", nested(additionalProperties=STRING), {"o": {"c": 1}}, "string"),
    (
        "unevaluatedProperties",
        nested(allOf=[{"properties": AB}], unevaluatedProperties=False),
        {"o": {"c": 1}},
        "object with no other keys than 'a', 'b'",
    ),
    (
        "propertyNames",
        nested(propertyNames={"pattern": "^x"}),
        {"o": {"c": 1}},
        "named as string matching ^x",
    ),
    ("required", nested(required=["a"]), {"o": {}}, "o.a"),
    ("minProperties", nested(minProperties=2), {"o": {"a": 1}}, "object of 2.. keys"),
    ("maxProperties", nested(maxProperties=0), {"o": {"a": 1}}, "object of ..0 keys"),
    (
        "dependentRequired",
        nested(dependentRequired={"a": ["b"]}),
        {"o": {"a": 1}},
        "object with 'b' if with 'a'",
    ),
    (
        "dependentSchemas",
        nested(dependentSchemas={"a": {"required": ["b"]}}),
        {"o": {"a": 1}},
        "o.b",
    ),
    ("not", {"properties": {"s": {"not": {"const": 1}}}}, {"s": 1}, "that is not 1"),
    ("not", nested(**{"not": {"required": ["a"]}}), {"o": {"a": 1}}, "not object with 'a'"),
    ("allOf", number(allOf=[{"minimum": 3}, {"maximum": 9}]), {"n": 2}, "number 3.."),
    ("anyOf", {"properties": AB, "anyOf": ANY_OF}, {}, "object with 'a' or object with 'b'"),
    ("anyOf", {"properties": {"s": {"anyOf": [STRING, {"type": "null"}]}}}, {"s": 1}, "or null"),
    ("oneOf", {"properties": AB, "oneOf": ANY_OF}, {}, "object with 'a' or object with 'b'"),
    (
        "oneOf",
        {"properties": AB, "oneOf": ANY_OF},
        {"a": 1, "b": 1},
        "exactly one of object with 'a' or object with 'b'",
    ),
    (
        "if",
        number(**{"if": {"minimum": 5}, "then": {"maximum": 9}, "else": {"multipleOf": 2}}),
        {"n": 10},
        "number ..9",
    ),
    (
        "if",
        number(**{"if": {"minimum": 5}, "then": {"maximum": 9}, "else": {"multipleOf": 2}}),
        {"n": 3},
        "multiple of 2",
    ),
    (
        "$ref",
        {"$defs": {"N": {"exclusiveMinimum": 0}}, "properties": {"n": {"$ref": "#/$defs/N"}}},
        {"n": 0},
        "number above 0",
    ),
    ("enum", number(enum=[1, 2], multipleOf=2), {"n": 1}, "multiple of 2"),
    ("anyOf", number(anyOf=[{}], exclusiveMinimum=0), {"n": 0}, "above 0"),
]


@check_rows(("keyword", "schema", "args", "named"), BROKEN_BOUNDS)
def test_validation_message_names_the_bound(
    keyword: str, schema: dict[str, Any], args: dict[str, Any], named: str
) -> None:
    assert keyword in str(schema)
    verdict = checked(schema, args)
    assert isinstance(verdict, Invalid | Missing), verdict
    assert named in f"{verdict.field} must be {verdict.expected}"


def test_validation_message_covers_every_keyword() -> None:
    tried = {keyword for keyword, *_ in BROKEN_BOUNDS}
    assert set(Draft202012Validator.VALIDATORS) - tried == {"$dynamicRef"}


@check_rows(
    ("unit", "fitting", "others"),
    [
        (0.01, [19.99, 4.35, 0.29, 0, 7, 1e20, -19.99, 1.1, 10**400], [19.995, 0.001, -0.005]),
        (0.1, [0.3, 0.7, 1e16], [0.05, 0.30000000000000004]),
        (0.5, [1.5, 2], [0.25]),
        (3, [9, 9.0, 0], [10, 9.5]),
        (1e-8, [12391239123, 0.00000001], [1e-9]),
        (2.5e300, [5e300], [1]),
    ],
)
def test_validation_checks_multiples_in_decimals(
    unit: float, fitting: list[float], others: list[float]
) -> None:
    for value in fitting:
        accepted(number(multipleOf=unit), {"n": value})
    for value in others:
        assert isinstance(checked(number(multipleOf=unit), {"n": value}), Invalid)


@check_rows(
    ("pattern", "fitting", "others"),
    [
        ("^[0-9]{3}$", ["123"], ["123\n", "1234", "\n123"]),
        (r"^\d{3}$", ["123"], ["１２３", "١٢٣", "123\n"]),
        (r"^[\d-]+$", ["1-3"], ["１-３"]),
        (r"^\D+$", ["１２３", "abc"], ["1"]),
        (r"^\w+$", ["a_1"], ["é", "a\n"]),
        (r"^\s$", [" ", "\u00a0", "\ufeff", "\u3000", "\n"], ["\x1c", "a"]),
        (r"^[\s]$", ["\u00a0"], ["\x1c", "s"]),
        (r"^\S$", ["a", "\x1c"], ["\u00a0"]),
        (r"^a.b$", ["a b", "a[b"], ["a\nb", "a\rb", "a\u2028b"]),
        (r"^[$.]$", ["$", "."], ["a", ""]),
        (r"^\$\.$", ["$."], ["$a", ""]),
        (r"^(?<year>[0-9]{4})-\k<year>$", ["2026-2026"], ["2026-2027"]),
        (r"(?<=a)b(?<!c)", ["ab"], ["cb"]),
        (r"^[[a]$", ["[", "a"], ["]"]),
        (r"^[^]$", ["a", "\n"], ["ab"]),
        (r"^[]$", [], ["a", ""]),
        (r"a|$", ["a", "b"], []),
        (r"^\p{L}+$", ["가나"], ["1"]),
    ],
)
def test_validation_matches_ecmascript_patterns(
    pattern: str, fitting: list[str], others: list[str]
) -> None:
    schema = {"properties": {"s": {"pattern": pattern}}}
    names = nested(patternProperties={pattern: {}}, additionalProperties=False)
    for text in fitting:
        accepted(schema, {"s": text})
        accepted(names, {"o": {text: 1}})
    for text in others:
        assert isinstance(checked(schema, {"s": text}), Invalid)
        assert isinstance(checked(names, {"o": {text: 1}}), Invalid)
        top = {"patternProperties": {pattern: {}}}
        assert accepted(top, {text: 1}).extra == (text,)
