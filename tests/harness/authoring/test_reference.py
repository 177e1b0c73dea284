"""Reference models: their calls for a scenario, and scenarios that allow no derivation."""

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lhkit.base.errors import ScenarioError
from lhkit.base.schema import SchemaNode
from lhkit.conversation.messages import Message, ToolCallMessage, UserMessage
from lhkit.conversation.responses import Finished
from lhkit.conversation.tool_results import ToolOk
from lhkit.harness.authoring.examples import example, texts_of
from lhkit.harness.authoring.reference import always_call_model, gold_model, gold_models
from lhkit.harness.running.sample import run_sample
from lhkit.models.base import ModelRequest
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from tests.harness.build import Load
from tests.rows import check_rows

pytestmark = pytest.mark.anyio


HEAD = """
- id: s
  ac: AC-1
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns:
    - user: hello
"""


async def next_message(model: Any, *messages: Message) -> Finished:
    events = [event async for event in model.stream(ModelRequest(messages=messages))]
    assert isinstance(events[-1], Finished)
    return events[-1]


def after(*tools: str) -> list[Message]:
    calls = [ToolCallMessage.of(name=tool, args={}, result=ToolOk({})) for tool in tools]
    return [UserMessage(text="hello"), *calls]


@pytest.mark.parametrize(
    ("matcher", "value"),
    [
        ("plain", "plain"),
        ("{equals: {any: true}}", {"any": True}),
        ("{one_of: [{text: b}, c]}", "b"),
        ("{date: today-1d}", "2026-06-14"),
        ("{text: Hello}", "Hello"),
        ("{approx: 1.5}", 1.5),
        ("{fields: {a: 1, b: {matches: x, optional: true}}}", {"a": 1}),
        ("{items: [1, {equals: 2}]}", [1, 2]),
    ],
)
async def test_gold_derives_value_from_matcher(
    load: Load, registry: ToolRegistry, matcher: str, value: Any
) -> None:
    text = (
        f"{HEAD}      expect: {{calls: [{{tool: any_tool, args: {{v: {matcher}}}, result: x}}]}}\n"
    )
    text = text.replace("any_tool", "nope").replace("result: x", "result: unknown_tool")
    (scenario,) = load(text)
    response = await next_message(gold_model(scenario, registry), *after())
    assert response.calls[0].args == {"v": value}


async def test_gold_derives_value_of_any_from_schema(load: Load, registry: ToolRegistry) -> None:
    args = "{text: {any: true}, tag: {any: true}}"
    (scenario,) = load(f"{HEAD}      expect: {{calls: [{{tool: add_note, args: {args}}}]}}\n")
    response = await next_message(gold_model(scenario, registry), *after())
    assert response.calls[0].args == {"text": "sample", "tag": "home"}


async def test_gold_makes_required_calls_in_order(load: Load, registry: ToolRegistry) -> None:
    (scenario,) = load(
        HEAD
        + "      expect:\n"
        + "        calls:\n"
        + "          - {tool: find_notes, args: {query: b}}\n"
        + "          - {tool: find_notes, args: {query: c}, optional: true}\n"
        + "          - {tool: find_notes, args: {query: a}}\n"
        + "        order: {before: [[2, 0]]}\n"
        + "      reply: {contains_all: [one], contains_any: [two, three]}\n"
        + "    - user: bye\n"
    )
    model = gold_model(scenario, registry)
    first = await next_message(model, *after())
    second = await next_message(model, *after("find_notes"))
    third = await next_message(model, *after("find_notes", "find_notes"))
    other = await next_message(model, *after("find_notes", "find_notes"), UserMessage(text="bye"))
    assert [call.args for call in (*first.calls, *second.calls)] == [{"query": "a"}, {"query": "b"}]
    assert (third.text, third.calls) == ("one two", ())
    assert other.text == "OK."


async def test_gold_uses_given_calls_and_reply(load: Load, registry: ToolRegistry) -> None:
    (scenario,) = load(
        HEAD
        + "      expect: {calls: [{tool: add_note, args: {text: {matches: milk}}}]}\n"
        + "      reply: {matches: '^Done'}\n"
        + "      gold: {say: Done., calls: [{tool: add_note, args: {text: buy milk}}]}\n"
    )
    model = gold_model(scenario, registry)
    assert (await next_message(model, *after())).calls[0].args == {"text": "buy milk"}
    assert (await next_message(model, *after("add_note"))).text == "Done."


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        (
            "expect: {calls: [{tool: add_note, args: {text: {matches: x}}}]}",
            r"s\.turns\[0\]\.expect\.calls\[0\]\.args\.text\.matches: give the call under gold",
        ),
        (
            "expect: {calls: [{tool: add_note, args: {text: {fields: {a: {matches: x}}}}}]}",
            r"args\.text\.a\.matches",
        ),
        (
            "expect: {calls: [{tool: nope}]}",
            r"s\.turns\[0\]\.expect\.calls\[0\]\.tool: tool 'nope' does not exist",
        ),
        (
            "expect: {calls: [{tool: add_note}]}",
            r"calls\[0\]\.args: add_note refuses this: text is missing: expected string",
        ),
        (
            "expect: {calls: [{tool: add_note, args: {text: milk, tag: shop}}]}",
            r'add_note refuses this: tag is "shop": expected one of "home", "work"$',
        ),
        ("reply: {matches: x}", r"s\.turns\[0\]\.reply: .*: write a reply under gold\.say"),
        ("reply: {contains_all: [a], excludes: [a]}", r"the reply says 'a'"),
        ("reply: {excludes: [a]}\n      gold: {say: a}", r"correct gold\.say"),
    ],
)
def test_gold_names_field_that_cannot_be_derived(
    load: Load, registry: ToolRegistry, turn: str, message: str
) -> None:
    (scenario,) = load(f"{HEAD}      {turn}\n")
    with pytest.raises(ScenarioError, match=message):
        gold_model(scenario, registry)


ANY_KIND = "{tool: add, args: {kind: {any: true}}}"


def only_add(kind: str) -> ToolRegistry:
    """One tool that takes one kind of thing."""
    registry = ToolRegistry()
    registry.register(
        ToolDefinition(
            name="add",
            description="Add something.",
            parameters={
                "type": "object",
                "properties": {"kind": {"type": "string", "enum": [kind]}},
                "required": ["kind"],
            },
            handler=lambda _args, _deps: ToolOk({}),
        )
    )
    return registry


async def test_gold_models_plan_per_tools(load: Load) -> None:
    """One of whatever the tool names: another tool of that name, asked later, is another plan."""
    (scenario,) = load(f"{HEAD}      expect: {{calls: [{ANY_KIND}]}}\n")
    make = gold_models()
    registries = [only_add("tea"), only_add("milk"), only_add("tea")]
    spoken = [await next_message(make(scenario, each), *after()) for each in registries]
    assert [each.calls[0].args for each in spoken] == [
        {"kind": "tea"},
        {"kind": "milk"},
        {"kind": "tea"},
    ]


async def test_gold_models_raise_every_time(load: Load) -> None:
    (scenario,) = load(f"{HEAD}      expect: {{calls: [{ANY_KIND}]}}\n")
    make = gold_models()
    for _ in range(2):
        with pytest.raises(ScenarioError, match="tool 'add' does not exist"):
            make(scenario, ToolRegistry())
    assert (await next_message(make(scenario, only_add("tea")), *after())).calls


@pytest.mark.slow
def test_gold_models_release_tools_of_finished_samples(load: Load) -> None:
    """Each session may have tools of its own, which hold its world."""
    scenarios = [load(f"{HEAD}      expect: {{calls: [{ANY_KIND}]}}\n")[0] for _ in range(3)]
    make = gold_models()
    registries = [only_add("tea") for _ in scenarios]
    gone = [weakref.ref(each["add"].handler) for each in registries]
    for scenario, registry in zip(scenarios, registries, strict=True):
        make(scenario, registry)
    del registry
    registries.clear()
    gc.collect()
    assert [each() is None for each in gone] == [True, True, False]


@check_rows(
    "schema",
    [
        {},
        {"const": 3},
        {"enum": ["b", "a"]},
        {"default": 7, "type": "integer"},
        {"examples": ["x@y"]},
        {"type": "string", "maxLength": 3},
        {"type": "string", "minLength": 20},
        {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
        {"type": "string", "pattern": r"^[A-Z]{2}-(?:red|blue)\d+\.$"},
        {"type": "string", "pattern": r"^((a|b)c){3}[^x]?\w$"},
        {"type": "integer"},
        {"type": "integer", "minimum": 5, "maximum": 9},
        {"type": "integer", "maximum": -3},
        {"type": "integer", "exclusiveMinimum": 4},
        {"type": "number", "maximum": 0.5},
        {"type": "boolean"},
        {"type": "null"},
        {"type": ["integer", "null"]},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
        {"type": "object", "properties": {"a": {"type": "null"}, "b": {}}, "required": ["a"]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"$ref": "#/$defs/N", "$defs": {"N": {"type": "integer", "minimum": 2}}},
    ],
)
def test_example_matches_schema(schema: dict[str, Any]) -> None:
    Draft202012Validator(schema).validate(example(SchemaNode.of(schema)))


@check_rows(
    ("pattern", "texts"),
    [
        ("taken", ["taken"]),
        ("(?:moved|pushed) it", ["moved it", "pushed it"]),
        (r"\d{2}:[0-5]", ["00:0", "11:5"]),
        ("no (?=way)", []),
        ("(", []),
        ("a{99}", []),
    ],
)
def test_texts_of_match_pattern(pattern: str, texts: list[str]) -> None:
    assert list(texts_of(pattern)) == texts


LAX = """\
- id: a-en-01
  ac: AC-1
  locale: en
  turns:
    - user: "Jot it down."
      confirm: accept
      expect: {extra: any}
      reply: {contains_any: [logged]}
  final: {notes: [{}]}
"""
TEXT = {"type": "string", "maxLength": 80}


def writing(name: str, argument: str) -> ToolDefinition:
    return ToolDefinition(
        name=name,
        description="Write",
        parameters={"type": "object", "properties": {argument: TEXT}, "required": [argument]},
        handler=lambda _args, _notes: ToolOk({"done": True}),
        is_destructive=True,
    )


@pytest.mark.parametrize(
    ("more", "calls"),
    [
        ([], ["find_notes", "add_note", "finish_note"]),
        (["text"], ["find_notes", "add_note", "finish_note", "write_0"]),
        (["page_id", "text"], ["find_notes", "add_note", "finish_note", "write_1"]),
        (["text", "text", "text"], ["find_notes", "add_note", "write_0", "write_1"]),
    ],
)
async def test_always_call_model_claims_success_within_message_limit(
    toolset: Any, load: Load, more: list[str], calls: list[str]
) -> None:
    added = [writing(f"write_{number}", argument) for number, argument in enumerate(more)]
    larger = replace(toolset, registry=ToolRegistry([*toolset.registry.definitions, *added]))
    (scenario,) = load(LAX)
    record = await run_sample(scenario, always_call_model(scenario, larger), larger)
    assert [call.tool for call in record.trajectory.turns[0].calls] == calls
    assert "It is all done!" in record.trajectory.turns[0].reply
