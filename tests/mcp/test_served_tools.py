"""Registering what a server lists: names, repeated and broken tools, schemas, descriptions."""

from collections.abc import Mapping
from typing import Any

import pytest
from mcp_types import CallToolResult, Tool

from lhkit.base.errors import UsageError
from lhkit.base.locales import load_catalog
from lhkit.mcp.names import ToolNames, shortened_names
from lhkit.mcp.results import output_error
from lhkit.mcp.toolset import MAX_DESCRIPTION, McpToolset
from lhkit.tools.notices import tool_notices
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import Accepted
from tests.rows import check_rows

WORD = {"type": "string"}


def tool(name: str, schema: Mapping[str, Any] | None = None, **more: Any) -> Tool:
    listed = {"name": name, "description": "d", "inputSchema": {"type": "object", **(schema or {})}}
    return Tool.model_validate({**listed, **more})


def registered(*tools: Tool, **declared: Any) -> tuple[ToolRegistry, list[str]]:
    """Return the registry, and the server's name of each tool whose handler was requested."""
    called: list[str] = []

    def handler(name: str) -> Any:
        called.append(name)
        return lambda _args, _deps: {}

    return McpToolset(server="x", **declared).registry(tools, handler), called


def test_title_of_a_served_tool_is_for_people_only() -> None:
    registry, _ = registered(
        tool("a", title="Delete\na note"),
        tool("b", annotations={"title": "Second"}),
        tool("c", title="First", annotations={"title": "Second"}),
        tool("d", title="x" * 200),
        tool("e"),
        tool("f", description="", title="Only a title"),
    )
    assert [one.title[:20] for one in registry.definitions] == [
        *("Delete a note", "Second", "First", "x" * 20, "", "Only a title")
    ]
    assert len(registry["d"].title) == 101
    assert [registry[name].description for name in "af"] == ["d", "Only a title"]


@check_rows(
    ("served", "shown"),
    [
        (["notes.get", "notes_get"], ["notes_get_2", "notes_get"]),
        (["notes_get", "notes.get"], ["notes_get", "notes_get_2"]),
        (["a.b", "a/b", "a b"], ["a_b", "a_b_2", "a_b_3"]),
        (["a.b", "a_b_2", "a/b"], ["a_b", "a_b_2", "a_b_3"]),
        (["x" * 70, "x" * 71], ["x" * 64, "x" * 62 + "_2"]),
        (["add", "add"], ["add"]),
    ],
)
def test_tool_names_are_unique(served: list[str], shown: list[str]) -> None:
    names = ToolNames(served)
    assert [names.shown(name) for name in names] == shown
    for name in served:
        assert names.served(name) == name
        assert names.served(names.shown(name)) in {name, names.shown(name)}


def test_registry_keeps_tools_whose_names_look_alike_to_models() -> None:
    registry, called = registered(
        tool("notes.get"), tool("notes_get"), tool("notes.add"), reads=["notes_get", "notes_add"]
    )
    assert list(registry) == ["notes_get_2", "notes_get", "notes_add"]
    assert called == ["notes.get", "notes_get", "notes.add"]
    assert registry.destructive == {"notes_get_2"}
    assert registry.left_out == {}
    summarize = registry["notes_get_2"].summarize
    assert summarize is not None
    assert summarize({}, load_catalog("en")).startswith("notes.get\n")


@pytest.mark.parametrize("declared", ["notes.get", "notes_get"])
def test_registry_takes_declared_names_in_either_writing(declared: str) -> None:
    claims = {declared: {"en": ["saved"]}}
    registry, _ = registered(tool("notes.get"), tool("b"), reads=[declared])
    assert registry.destructive == {"b"}
    registry, _ = registered(tool("notes.get"), tool("b"), claims=claims, tools=[declared])
    assert list(registry) == ["notes_get"]
    assert registry["notes_get"].claims == {"en": ["saved"]}


def test_registry_refuses_declared_tools_that_the_server_lacks() -> None:
    for declared in ({"reads": ["c"]}, {"tools": ["c"]}, {"claims": {"c": {"en": ["x"]}}}):
        with pytest.raises(UsageError, match="no tool 'c': it has a, b"):
            registered(tool("a"), tool("b"), **declared)
    many = [tool(f"tool_{number:03}") for number in range(200)]
    with pytest.raises(UsageError, match=r"tool_000, .* and \d+ more"):
        registered(*many, reads=["c"])
    assert shortened_names([]) == "none"


def test_registry_names_what_it_leaves_out() -> None:
    registry, _ = registered(
        tool("add", {"properties": {"a": WORD}}),
        tool("add", {"properties": {"b": WORD}}),
        tool("lost", {"properties": {"q": {"$ref": "#/$defs/none"}}}),
        tool("bad", {"properties": {"q": {"type": "any"}}}),
        tool("fine"),
    )
    assert list(registry) == ["add", "fine"]
    assert registry["add"].parameters["properties"] == {"a": WORD}
    assert registry.left_out.keys() == {"add", "lost", "bad"}
    for locale in ("en", "ko"):
        lines = [*tool_notices(registry, load_catalog(locale))]
        assert len(lines) == 3
        for name, line in zip(registry.left_out, lines, strict=True):
            assert name in line
            assert load_catalog(locale).translate(registry.left_out[name]) in line
            assert "\n" not in line
    assert registry.mapped(lambda one: one).left_out == registry.left_out


def test_registry_names_what_it_leaves_out_of_selected_tools() -> None:
    listed = [tool("add"), tool("add"), tool("bad", {"properties": {"q": {"type": "any"}}})]
    registry, _ = registered(*listed, tools=["add"])
    assert registry.left_out.keys() == {"add"}


BROKEN = {"properties": {"t": {"$ref": "#/$defs/missing"}}}


@check_rows(
    ("schema", "used"),
    [
        ({"properties": {"q": WORD}, "$defs": {"R": BROKEN}}, set()),
        ({"properties": {"q": WORD}, "$defs": {"R": {"type": "any"}}}, set()),
        ({"properties": {"q": WORD}, "definitions": {"R": 5, "S": {"$ref": "#/x"}}}, set()),
        ({"properties": {"q": {"$ref": "#/$defs/A"}}, "$defs": {"A": WORD, "R": BROKEN}}, {"A"}),
        (
            {
                "properties": {"q": {"items": {"$ref": "#/$defs/A"}, "type": "array"}},
                "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/B"}]}, "B": WORD, "R": BROKEN},
            },
            {"A", "B"},
        ),
        (
            {
                "properties": {"q": {"$ref": "#/$defs/a~1b/properties/c"}},
                "$defs": {"a/b": {"properties": {"c": WORD}}, "R": BROKEN},
            },
            {"a/b"},
        ),
    ],
)
def test_registry_ignores_definitions_that_nothing_uses(
    schema: dict[str, Any], used: set[str]
) -> None:
    registry, _ = registered(tool("a", schema), tool("b"))
    assert list(registry) == ["a", "b"]
    assert registry["a"].parameters.get("$defs", {}).keys() == used
    accepted = registry.validator("a").check({"q": ["x"] if "items" in str(schema) else "x"})
    assert isinstance(accepted, Accepted)


@check_rows(
    ("format_", "value"),
    [
        ("date-time", "2026-03-04"),
        ("date", "tomorrow"),
        ("time", "noon"),
        ("ipv4", "localhost"),
        ("ipv6", "::ffff"),
        ("uuid", "latest"),
        ("email", "me"),
        ("uri", "example.org"),
        ("json", "{"),
    ],
)
def test_registry_leaves_formats_to_the_server(format_: str, value: str) -> None:
    noted = {"type": "string", "format": format_}
    schema = {
        "properties": {"x": noted, "l": {"type": "array", "items": noted}, "format": WORD},
        "additionalProperties": {"anyOf": [noted, {"type": "null"}]},
    }
    registry, _ = registered(tool("t", schema))
    args = {"x": value, "l": [value], "format": "any", "more": value}
    assert isinstance(registry.validator("t").check(args), Accepted)
    assert format_ in str(registry["t"].parameters)  # the model reads it
    assert not isinstance(registry.validator("t").check({"x": 5}), Accepted)


def test_own_tools_keep_their_formats() -> None:
    from datetime import date

    registry = ToolRegistry()

    @registry.tool()
    def log(day: date) -> dict[str, str]:
        """Log a day."""
        return {"day": day.isoformat()}

    assert isinstance(registry.validator("log").check({"day": "2026-03-04"}), Accepted)
    assert not isinstance(registry.validator("log").check({"day": "tomorrow"}), Accepted)


REF = {"$ref": "#/$defs/S"}
NULLABLE: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"type": "string", "nullable": True}, [None, "a"], [5]),
    ({"type": "string", "nullable": False}, ["a"], [None]),
    ({"type": ["string", "integer"], "nullable": True}, [None, "a", 5], [[]]),
    ({"type": "string", "enum": ["a"], "nullable": True}, [None, "a"], ["b"]),
    ({"type": "string", "enum": ["a", None], "nullable": True}, [None, "a"], ["b"]),
    ({"enum": ["a"], "nullable": True}, [None, "a"], ["b"]),
    ({"type": "string", "const": "a", "nullable": True}, [None, "a"], ["b"]),
    ({**REF, "nullable": True}, [None, "s"], ["t", 5]),
    ({"allOf": [REF], "nullable": True, "description": "d"}, [None, "s"], ["t"]),
    ({"anyOf": [REF, {"type": "integer"}], "nullable": True}, [None, "s", 5], ["t"]),
    ({"oneOf": [REF, {"type": "null"}], "nullable": True}, [None, "s"], ["t"]),
    ({"oneOf": [REF, {"type": "integer"}], "nullable": True}, [None, "s", 5], ["t"]),
    ({"type": "array", "items": {"type": "string", "nullable": True}}, [["a", None]], [None, [5]]),
    (
        {"type": "object", "properties": {"z": {"type": "number", "nullable": True}}},
        [{"z": None}, {"z": 1.5}],
        [None, {"z": "a"}],
    ),
    ({"type": "object", "properties": {"nullable": WORD}}, [{"nullable": "a"}], [None]),
    ({"type": "string", "default": None, "nullable": True}, [None], [5]),
]


@pytest.mark.longer
@check_rows(("schema", "right", "wrong"), NULLABLE)
def test_nullable_values_may_be_null(
    schema: dict[str, Any], right: list[Any], wrong: list[Any]
) -> None:
    whole = {"properties": {"x": schema}, "$defs": {"S": {"type": "string", "enum": ["s"]}}}
    registry, _ = registered(tool("t", {**whole, "nullable": True}))
    check = registry.validator("t").check
    assert [value for value in right if not isinstance(check({"x": value}), Accepted)] == []
    assert [value for value in wrong if isinstance(check({"x": value}), Accepted)] == []
    output = tool("t", outputSchema={"type": "object", **whole})

    def failure(value: Any) -> str:
        answer = {"content": [], "structuredContent": {"x": value}}
        return output_error(output, CallToolResult.model_validate(answer))

    assert [value for value in right if failure(value)] == []
    assert [value for value in wrong if not failure(value)] == []


def test_nullable_in_a_definition_holds_wherever_it_is_used() -> None:
    schema = {
        "properties": {"x": {"$ref": "#/$defs/N"}},
        "$defs": {"N": {"type": "string", "nullable": True}},
    }
    registry, _ = registered(tool("t", schema))
    assert isinstance(registry.validator("t").check({"x": None}), Accepted)


@pytest.mark.parametrize("length", [10, 2_500, MAX_DESCRIPTION])
def test_description_is_kept_whole(length: int) -> None:
    registry, _ = registered(tool("t", description="x" * length))
    assert registry["t"].description == "x" * length
    assert [*tool_notices(registry, load_catalog("en"))] == []


def test_description_is_cut_with_a_notice() -> None:
    registry, _ = registered(tool("a.b", description="x" * (MAX_DESCRIPTION + 1)), tool("c"))
    assert len(registry["a_b"].description) == MAX_DESCRIPTION
    (english,) = tool_notices(registry, load_catalog("en"))
    (korean,) = tool_notices(registry, load_catalog("ko"))
    for line in (english, korean):
        assert [word for word in ("a_b", "16,001", "16,000") if word not in line] == []
