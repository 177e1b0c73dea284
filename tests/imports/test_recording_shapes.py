"""The import of recorded chats in the shapes of other tools: all in, or left out by name.

Every taken shape tells the same conversation: the user asks for a note, `add_note` is called, and
the assistant replies.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lhkit.base.errors import UsageError
from lhkit.cli import imports
from lhkit.cli.imports import import_with
from lhkit.harness.authoring.checks import Level
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.running.run import replay
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.loader import read_sources
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.settings import load_settings
from lhkit.toolset import load
from tests.rows import some_by_day

pytestmark = [pytest.mark.anyio, pytest.mark.longer]

Chat = Any


class Result(NamedTuple):
    code: int
    scenarios: tuple[Scenario, ...]
    notes: str
    output: str


@pytest.fixture
def import_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Return a function that imports a file, and checks what every import must keep."""
    monkeypatch.setenv("LHKIT_LOCALE", "en")

    async def run(content: str | bytes, name: str = "c.jsonl", **more: Any) -> Result:
        file, into = tmp_path / name, tmp_path / "mine"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        code = await import_with("openai-messages", load_settings(), file=file, into=into, **more)
        sources, toolset = (
            read_sources([into / "scenarios.yaml"]),
            load(f"{into}/toolset.py:toolset"),
        )
        findings = await lint(sources, toolset)
        assert [str(finding) for finding in findings if finding.level is Level.ERROR] == []
        scenarios = sources.scenarios
        replayed = await replay(scenarios, gold_model, toolset=toolset, progress=False)
        assert all(record.is_passed for record in replayed.records)
        output = capsys.readouterr().out
        notes = (into / "NOTES.md").read_text(encoding="utf-8")
        left_out = notes.partition("## Left out\n\n")[2].partition("\n\n")[0].count("\n- ") + (
            "## Left out" in notes
        )
        total = len(scenarios) + left_out
        assert output.splitlines()[-1].startswith(f"{len(scenarios)} of {total} conversation")
        assert code == (1 if left_out else 0)
        return Result(code, scenarios, notes, output)

    return run


def function(name: str, parameters: Any, **more: Any) -> dict[str, Any]:
    inner = {"name": name, "description": "A tool.", "parameters": parameters}
    return {"type": "function", "function": inner, **more}


TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [function("list_notes", {"type": "object", "properties": {}}), function("add_note", TEXT)]
USER = {"role": "user", "content": "Please note tea."}
ARGS = {"text": "tea"}
CALL = {
    "id": "a",
    "type": "function",
    "function": {"name": "add_note", "arguments": '{"text":"tea"}'},
}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
DONE = {"role": "tool", "tool_call_id": "a", "content": "ok"}
REPLY = {"role": "assistant", "content": "The list has tea on it."}
TRUTH = [USER, CALLS, DONE, REPLY]


def assistant(**keys: Any) -> dict[str, Any]:
    return {"role": "assistant", **keys}


def called(arguments: Any, **keys: Any) -> dict[str, Any]:
    inner = {"name": "add_note", "arguments": arguments} | keys
    return assistant(tool_calls=[{"id": "a", "type": "function", "function": inner}])


def chat(*middle: Any, tools: Any = TOOLS) -> dict[str, Any]:
    return {"tools": tools, "messages": [USER, *middle, REPLY]}


def block_chat(calls: Any, results: Any, *, role: str = "user") -> dict[str, Any]:
    return chat(assistant(content=calls), {"role": role, "content": results})


HERMES = '<tool_call>\n{"name": "add_note", "arguments": {"text": "tea"}}\n</tool_call>'
PADDED = {"text": "tea", "title": None}

MESSAGES: dict[str, Chat] = {
    "openai": chat(CALLS, DONE),
    "arguments as object": chat(called(ARGS), DONE),
    "arguments encoded twice": chat(called(json.dumps(json.dumps(ARGS))), DONE),
    "arguments padded": chat(called(PADDED), DONE),
    "calls as JSON text": chat(assistant(tool_calls=json.dumps([CALL])), DONE),
    "one call without a list": chat(assistant(tool_calls=CALL), DONE),
    "a null among the calls": chat(assistant(tool_calls=[None, CALL]), DONE),
    "bare call": chat(assistant(tool_calls=[{"name": "add_note", "arguments": ARGS}]), DONE),
    "args (LangChain)": chat(
        assistant(tool_calls=[{"name": "add_note", "args": ARGS, "id": "a", "type": "tool_call"}]),
        DONE,
    ),
    "block without a type": block_chat(
        [{"name": "add_note", "input": ARGS, "id": "a"}], "ok", role="tool"
    ),
    "keys of the message": chat(assistant(name="add_note", arguments=ARGS), DONE),
    "additional_kwargs": chat(
        assistant(content="", additional_kwargs={"tool_calls": [CALL]}), DONE
    ),
    "function_call": chat(
        assistant(function_call={"name": "add_note", "arguments": '{"text": "tea"}'}),
        {"role": "function", "name": "add_note", "content": "ok"},
    ),
    "function_call of nulls": chat(
        assistant(tool_calls=[CALL], function_call={"name": None, "arguments": None}), DONE
    ),
    "functions. before the name": chat(called(ARGS, name="functions.add_note"), DONE),
    "Anthropic": block_chat(
        [
            {"type": "text", "text": ""},
            {"type": "tool_use", "id": "a", "name": "add_note", "input": ARGS},
        ],
        [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "ok"}]}],
    ),
    "Bedrock": block_chat(
        [{"toolUse": {"toolUseId": "a", "name": "add_note", "input": ARGS}}],
        [{"toolResult": {"toolUseId": "a", "content": [{"text": "ok"}], "status": "success"}}],
    ),
    "Gemini": {
        "tools": [{"functionDeclarations": [tool["function"] for tool in TOOLS]}],
        "contents": [
            {"role": "user", "parts": [{"text": "Please note tea."}]},
            {"role": "model", "parts": [{"functionCall": {"name": "add_note", "args": ARGS}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "add_note", "response": "ok"}}],
            },
            {"role": "model", "parts": [{"text": REPLY["content"]}]},
        ],
    },
    "Gemma's tool message": chat(
        CALLS, {"role": "tool", "content": [{"name": "add_note", "response": "ok"}]}
    ),
    "items of a response": {
        "tools": [{"type": "function", **TOOLS[1]["function"]}],
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Tea."}],
            },
            {"type": "reasoning", "summary": []},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "a",
                "name": "add_note",
                "arguments": '{"text": "tea"}',
            },
            {"type": "function_call_output", "call_id": "a", "output": "ok"},
            assistant(content=[{"type": "output_text", "text": "The list has tea on it."}]),
        ],
    },
    "response apart": {
        "request": {"tools": TOOLS, "messages": [USER, CALLS, DONE]},
        "response": {"choices": [{"index": 0, "message": REPLY}]},
    },
    "ShareGPT": {
        "tools": json.dumps([tool["function"] for tool in TOOLS]),
        "conversations": [
            {"from": "human", "value": "Please note tea."},
            {"from": "function_call", "value": json.dumps({"name": "add_note", "arguments": ARGS})},
            {"from": "observation", "value": "ok"},
            {"from": "gpt", "value": "The list has tea on it."},
        ],
    },
    "LangChain": {
        "tools": TOOLS,
        "messages": [
            {"type": "human", "data": {"content": "Please note tea."}},
            {
                "type": "ai",
                "content": "",
                "tool_calls": [{"name": "add_note", "args": ARGS, "id": "a"}],
            },
            {"type": "tool", "content": "ok", "tool_call_id": "a", "status": "success"},
            {"type": "ai", "content": "The list has tea on it."},
        ],
    },
    "Hermes text": chat(assistant(content=HERMES), {"role": "tool", "content": "ok"}),
    "Hermes text and tags around the result": chat(
        assistant(content=f"I will.\n{HERMES}"),
        {"role": "user", "content": "<tool_response>\nok\n</tool_response>"},
    ),
    "JSON as text": chat(
        assistant(content='{"name": "add_note", "arguments": {"text": "tea"}}'), DONE
    ),
    "python as text": chat(assistant(content='[add_note(text="tea")]'), DONE),
    "gemma4 as text": chat(
        assistant(content='<|tool_call>call:add_note{text:<|"|>tea<|"|>}<tool_call|>'), DONE
    ),
    "functiongemma as text": chat(
        assistant(
            content="<start_function_call>call:add_note{text:<escape>tea<escape>}<end_function_call>"
        ),
        DONE,
    ),
    "developer": chat(CALLS, DONE)
    | {"messages": [{"role": "developer", "content": "Be."}, *TRUTH]},
    "names and unknown keys": chat(
        {**CALLS, "name": "bot", "refusal": None, "audio": None, "annotations": []}, DONE
    ),
    "conversation": {"tools": TOOLS, "conversation": TRUTH},
    "messages as JSON text": {"tools": TOOLS, "messages": json.dumps(TRUTH)},
    "functions": {"functions": [tool["function"] for tool in TOOLS], "messages": TRUTH},
    "row": {"row_idx": 0, "row": chat(CALLS, DONE)},
}


def recorded(scenario: Scenario) -> Any:
    rows: Any = scenario.world.get("recorded", ())
    return [(row["tool"], dict(row["args"]), row["result"]) for row in rows if "result" in row]


def expected_calls(scenario: Scenario) -> Any:
    return [[(c.tool, dict(c.args)) for c in turn.expect.calls] for turn in scenario.turns]


@pytest.mark.parametrize("name", some_by_day(MESSAGES))
async def test_import_messages_takes_the_call_of_each_shape(import_file: Any, name: str) -> None:
    result = await import_file(json.dumps(MESSAGES[name]))
    (scenario,) = result.scenarios
    assert expected_calls(scenario) == [[("add_note", ARGS)]]
    assert recorded(scenario) == [("add_note", ARGS, "ok")]
    assert scenario.turns[0].gold.say == REPLY["content"]


TOOL_LISTS: dict[str, Any] = {
    "types in capitals": [function("add_note", {**TEXT, "type": "OBJECT"})],
    "inner types in capitals": [
        function(
            "add_note",
            {
                "type": "OBJECT",
                "properties": {
                    "text": {"type": "STRING"},
                    "type": {"type": ["STRING", "NULL"]},
                    "tags": {"type": "ARRAY", "items": {"type": "STRING", "items": None}},
                    "place": {"type": "OBJECT", "properties": {"zip": {"type": "Integer"}}},
                    "kind": {"anyOf": [{"type": "STRING"}, {"type": "NULL"}]},
                },
            },
        )
    ],
    "nulls": [
        function(
            "add_note",
            {
                "type": "object",
                "properties": {
                    "text": {"type": "string", "enum": None, "items": None, "default": None},
                    "title": None,
                },
                "required": ["text"],
                "$defs": None,
                "additionalProperties": None,
            },
            strict=None,
        ),
        None,
    ],
    "no type": [function("add_note", {"properties": {"text": {"type": "string"}}})],
    "null type": [function("add_note", {**TEXT, "type": None})],
    "Python's types": [
        function("add_note", {"type": "dict", "properties": {"text": {"type": "str"}}})
    ],
    "bare": [{"name": "add_note", "description": "Add.", "parameters": TEXT}],
    "flat": [{"type": "function", "name": "add_note", "parameters": TEXT, "function": None}],
    "input_schema": [{"name": "add_note", "description": None, "input_schema": TEXT}],
    "custom": [{"type": "custom", "name": "add_note", "input_schema": TEXT}],
    "inputSchema": [{"name": "add_note", "inputSchema": TEXT}],
    "toolSpec": [{"toolSpec": {"name": "add_note", "inputSchema": {"json": TEXT}}}],
    "declarations": [{"function_declarations": [{"name": "add_note", "parameters": TEXT}]}],
    "JSON text": json.dumps(TOOLS),
    "each as JSON text": [json.dumps(tool) for tool in TOOLS],
    "parameters as JSON text": [function("add_note", json.dumps(TEXT))],
    "under tools": {"tools": TOOLS},
    "null parameters": [
        *TOOLS,
        function("ping", None),
        {"type": "function", "function": {"name": "x"}},
    ],
    "empty": [],
}


@pytest.mark.parametrize("name", some_by_day(TOOL_LISTS))
async def test_import_messages_reads_the_tools_of_each_shape(import_file: Any, name: str) -> None:
    result = await import_file(json.dumps(chat(CALLS, DONE, tools=TOOL_LISTS[name])))
    assert expected_calls(result.scenarios[0]) == [[("add_note", ARGS)]]


@pytest.mark.parametrize(
    ("parameters", "arguments", "stored"),
    some_by_day(
        [
            (TEXT, {"text": "tea", "title": None}, ARGS),
            (
                {**TEXT, "properties": {**TEXT["properties"], "n": {"type": "integer"}}},
                {"text": "tea", "n": None},
                ARGS,
            ),
            (
                {
                    **TEXT,
                    "properties": {"text": {"type": "STRING"}, "n": {"type": ["STRING", "NULL"]}},
                },
                {"text": "tea", "n": None},
                ARGS,
            ),
            (
                {
                    "type": "object",
                    "properties": {"text": {"type": "string"}, "n": {"type": ["string", "null"]}},
                    "required": ["text", "n"],
                },
                {"text": "tea", "n": None},
                {"text": "tea", "n": None},
            ),
            (
                {
                    "type": "object",
                    "properties": {
                        "at": {
                            "type": "object",
                            "properties": {"zip": {"type": "string"}},
                        },
                        "all": {"type": "array", "items": {"$ref": "#/$defs/row"}},
                    },
                    "$defs": {"row": {"type": "object", "properties": {"x": {"type": "number"}}}},
                },
                {"at": {"zip": None, "city": None}, "all": [{"x": 1, "y": None}], "text": None},
                {"all": [{"x": 1}]},
            ),
            (
                {"type": "object", "properties": {"o": {"type": "object"}}},
                {"o": {"k": None}},
                {"o": {"k": None}},
            ),
            (
                {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
                {"a": None},
                {"a": None},
            ),
            ({"type": "object"}, {"text": None}, {}),
            (None, {"text": "tea", "title": None}, ARGS),
        ]
    ),
)
async def test_import_messages_drops_padding_from_arguments(
    import_file: Any, parameters: Any, arguments: Any, stored: Any
) -> None:
    tools = [] if parameters is None else [function("add_note", parameters)]
    result = await import_file(json.dumps(chat(called(arguments), DONE, tools=tools)))
    assert expected_calls(result.scenarios[0]) == [[("add_note", stored)]]
    assert ("  - c.jsonl[0]: add_note: " in result.notes) == (arguments != stored)


REFUSED: dict[str, Any] = {
    "broken arguments": called('{"text": "te'),
    "text": called("tea"),
    "number": called("3"),
    "list": called("[]"),
    "list of an object": called('[{"text": "tea"}]'),
    "NaN": called('{"text": NaN}'),
    "refused by the schema": called({"text": 3}),
    "missing argument": called({}),
    "unknown argument": called({"text": "tea", "colour": "red"}),
    "no name": assistant(tool_calls=[{"id": "a", "function": {"arguments": '{"text": "tea"}'}}]),
    "null name": called(ARGS, name=None),
    "blank name": called(ARGS, name=" "),
    "invalid name": called(ARGS, name="add note"),
    "arguments under an unknown key": assistant(
        tool_calls=[{"id": "a", "function": {"name": "list_notes", "payload": {"text": "tea"}}}]
    ),
    "calls as text": assistant(tool_calls="add_note(tea)"),
    "call as text in a list": assistant(tool_calls=["add_note"]),
    "empty call": assistant(tool_calls=[{}]),
    "free text": assistant(
        tool_calls=[{"id": "a", "type": "custom", "custom": {"name": "add_note", "input": "tea"}}]
    ),
    "unknown key": assistant(content="", tool_uses=[{"name": "add_note", "with": ARGS}]),
    "invalid calls": assistant(content="", invalid_tool_calls=[{"name": "add_note", "args": "{"}]),
    "unknown block": assistant(content=[{"type": "mcp_tool_use", "id": "a", "name": "add_note"}]),
    "block of the provider": assistant(
        content=[{"type": "server_tool_use", "id": "a", "name": "web_search", "input": {}}]
    ),
    "item of the provider": {"type": "web_search_call", "id": "a", "status": "completed"},
    "block without a name": assistant(content=[{"type": "tool_use", "id": "a", "input": ARGS}]),
    "Hermes text cut off": assistant(content='<tool_call>\n{"name": "add_note", "arguments": {"te'),
    "Hermes text without JSON": assistant(content="<tool_call>add_note tea</tool_call>"),
    "XML": assistant(content="<function=add_note><parameter=text>tea</parameter></function>"),
    "invoke": assistant(content='<invoke name="add_note"></invoke>'),
    "ReAct": assistant(content="Action: add_note\nAction Input: tea"),
    "python that is no literal": assistant(content="add_note(text=tea)"),
    "fenced python": assistant(content="```tool_code\nadd_note(text=tea)\n```"),
    "in a user's message": {"role": "user", "content": "x", "tool_calls": [CALL]},
    "only null": assistant(tool_calls=[None]),
    "unknown block of the assistant": assistant(content=[{"type": "act", "name": "add_note"}]),
    "unknown block with arguments": assistant(content=[{"x": {"name": "add_note", "args": ARGS}}]),
    "lost": assistant(content="Wait."),
    "unknown role": {"role": "planner", "content": "", "tool_calls": [CALL]},
}


@pytest.mark.parametrize("name", some_by_day(REFUSED))
async def test_import_messages_leaves_out_a_conversation_whose_call_it_cannot_take(
    import_file: Any, name: str
) -> None:
    lines = [chat(CALLS, DONE), chat(REFUSED[name], DONE), chat(CALLS, DONE)]
    result = await import_file("\n".join(map(json.dumps, lines)))
    assert [scenario.id for scenario in result.scenarios] == ["c-1", "c-3"]
    last = result.output.splitlines()[-1]
    assert last.startswith("2 of 3 conversations; 1 left out: c.jsonl:2: ")
    assert result.notes.count("\n- c.jsonl:2: ") == 1


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("Thought: note it.\nAction: add_note[tea]", TOOLS),
        ('✿FUNCTION✿: add_note\n✿ARGS✿: {"text": "tea"}', TOOLS),
        ('{"name": "buy", "arguments": {"what": "tea"}}', TOOLS),
        ('```json\n[{"name": "buy", "arguments": {}}]\n```', TOOLS),
        ('{"id": "a", "name": "add_note", "parameters": {"text": "tea"}}', []),
    ],
)
async def test_import_messages_leaves_out_a_call_as_text_without_a_result(
    import_file: Any, text: str, tools: Any
) -> None:
    asked = chat(assistant(content=text), {"role": "user", "content": "It says: ok"}, tools=tools)
    result = await import_file("\n".join(map(json.dumps, [chat(CALLS, DONE), asked])))
    assert [scenario.id for scenario in result.scenarios] == ["c-1"]
    assert "1 of 2 conversations; 1 left out: c.jsonl:2: " in result.output


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Bob", "parameters": {"age": 3}}',
        '{"name": "Bob", "arguments": "none"}',
        '{"arguments": {"for": "tea"}, "name": "Bob", "age": 3}',
        '["name", "arguments"]',
        "Action: none needed (so far).",
    ],
)
async def test_import_messages_keeps_an_answer_that_is_no_call(import_file: Any, text: str) -> None:
    result = await import_file(
        json.dumps({"tools": TOOLS, "messages": [USER, assistant(content=text)]})
    )
    assert [scenario.turns[0].gold.say for scenario in result.scenarios] == [text]


async def test_import_messages_infers_a_tool_that_the_list_lacks(import_file: Any) -> None:
    result = await import_file(json.dumps(chat(CALLS, DONE, tools=TOOLS[:1])))
    assert expected_calls(result.scenarios[0]) == [[("add_note", ARGS)]]
    assert "Tools without a description get a schema inferred from their calls" in result.notes


@pytest.mark.parametrize("name", some_by_day(REFUSED))
async def test_import_messages_refuses_a_file_of_which_nothing_is_left(
    import_file: Any, tmp_path: Path, name: str
) -> None:
    with pytest.raises(UsageError, match=r"0 of 1 conversation|not a valid conversation"):
        await import_file(json.dumps(chat(REFUSED[name], DONE)))
    assert not (tmp_path / "mine").exists()


def two(*results: Any, ids: tuple[Any, Any] = ("a", "b"), name: str = "get_sky") -> Any:
    calls = [
        {"function": {"name": "get_sky", "arguments": {"city": "Oslo"}}} | _id(ids[0]),
        {"function": {"name": name, "arguments": {"city": "Bonn"}}} | _id(ids[1]),
    ]
    return [USER, assistant(tool_calls=calls), *results, REPLY]


def _id(value: Any) -> dict[str, Any]:
    return {} if value is None else {"id": value}


def named(key: str, value: Any, content: Any, content_key: str = "content") -> dict[str, Any]:
    return {"role": "tool", key: value, content_key: content}


BOTH = {"Oslo": "sun", "Bonn": "rain"}
NONE: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("messages", "results", "note"),
    some_by_day(
        [
            *(
                (two(named(key, "b", "rain"), named(key, "a", "sun")), BOTH, "")
                for key in (
                    "tool_call_id",
                    "call_id",
                    "id",
                    "tool_use_id",
                    "toolCallId",
                    "in_reply_to",
                )
            ),
            (two(named("call_id", 2, "rain"), named("call_id", 1, "sun"), ids=(1, 2)), BOTH, ""),
            (
                two(
                    named("metadata", {"tool_call_id": "b"}, "rain"),
                    named("metadata", {"tool_call_id": "a"}, "sun"),
                ),
                BOTH,
                "",
            ),
            (
                two(
                    named("name", "get_wind", "rain"),
                    named("name", "get_sky", "sun"),
                    name="get_wind",
                ),
                BOTH,
                "",
            ),
            (
                two(named("x", 0, "sun"), named("x", 1, "rain")),
                BOTH,
                "Results without a call id are assigned by their order (1)",
            ),
            (
                two(
                    {"role": "tool", "content": json.dumps({"tool_call_id": "b", "sky": "rain"})},
                    {"role": "tool", "content": json.dumps({"tool_call_id": "a", "sky": "sun"})},
                ),
                {
                    "Bonn": {"tool_call_id": "b", "sky": "rain"},
                    "Oslo": {"tool_call_id": "a", "sky": "sun"},
                },
                "",
            ),
            (
                two(DONE | {"content": "sun"}, DONE | {"content": "rain"}, ids=("a", "a")),
                BOTH,
                "by their",
            ),
            (two(named("id", "m-9", "sun"), named("id", "m-10", "rain")), BOTH, "by their order"),
            (two(named("x", 0, "rain")), NONE, "Omitted results without a recorded call (1)"),
            (
                two(named("name", "get_sky", "rain")),
                NONE,
                "Omitted results without a recorded call (1)",
            ),
            (
                two(named("tool_call_id", "b", "rain"), named("tool_call_id", "z", "sun")),
                {"Bonn": "rain"},
                "Omitted results without a recorded call (1)",
            ),
            (
                two(*(named("x", i, text) for i, text in enumerate(("sun", "rain", "snow")))),
                NONE,
                "Omitted results without a recorded call (3)",
            ),
            (
                two(
                    {
                        "role": "tool",
                        "content": [
                            named("tool_call_id", "b", "rain"),
                            named("tool_call_id", "a", "sun"),
                        ],
                    }
                ),
                BOTH,
                "",
            ),
        ]
    ),
)
async def test_import_messages_gives_results_to_the_call_that_they_name(
    import_file: Any, messages: Any, results: dict[str, Any], note: str
) -> None:
    result = await import_file(json.dumps(messages))
    recorded_results = {args["city"]: value for _, args, value in recorded(result.scenarios[0])}
    assert recorded_results == results
    assert note in result.notes
    if len(results) < len(BOTH):
        assert "Calls without a recorded result" in result.notes


@pytest.mark.parametrize(
    ("message", "value"),
    some_by_day(
        [
            *(
                ({key: "SUN"}, "SUN")
                for key in (
                    "output",
                    "result",
                    "response",
                    "value",
                    "data",
                    "text",
                    "weather_report",
                )
            ),
            ({"content": None, "output": "SUN"}, "SUN"),
            ({"content": "", "result": {"sky": "blue"}}, {"sky": "blue"}),
            ({"content": False}, False),
            ({"content": 0}, 0),
            ({"content": 0.0}, 0.0),
            ({"content": ""}, ""),
            ({"content": []}, []),
            ({"content": {}}, {}),
            ({"content": None}, None),
            ({"output": None}, None),
            ({"output": False}, False),
            ({"content": "null"}, "null"),
            ({"content": [{"type": "text", "text": "SUN"}, {"type": "image_url"}]}, "SUN"),
            (
                {"content": None, "error": "no"},
                {"status": "error", "code": "error", "reason": "no"},
            ),
            (
                {"content": "no", "is_error": True},
                {"status": "error", "code": "error", "reason": "no"},
            ),
        ]
    ),
)
async def test_import_messages_keeps_the_value_of_a_result(
    import_file: Any, message: Any, value: Any
) -> None:
    answer = {"role": "tool", "tool_call_id": "a", **message}
    result = await import_file(json.dumps(chat(CALLS, answer)))
    (row,) = recorded(result.scenarios[0])
    assert (row[2], type(row[2])) == (value, type(value)) or dict(row[2]) == value
    if message.keys() != {"content"}:
        assert "add_note" in result.notes or "is_error" in message
    if value is None:
        assert "Results that are null (1)" in result.notes


async def test_import_messages_notes_a_result_without_a_known_key(import_file: Any) -> None:
    answer = {"role": "tool", "tool_call_id": "a", "sky": "blue", "wind": 3}
    result = await import_file(json.dumps(chat(CALLS, answer)))
    assert "no known key for the result among" in result.notes
    assert "Calls without a recorded result: the turn ends after them (1)" in result.notes


LINE = json.dumps(chat(CALLS, DONE))


@pytest.mark.parametrize(
    ("content", "ids"),
    some_by_day(
        [
            ("\ufeff" + LINE, ["c-1"]),
            (f"{LINE}\r\n\r\n{LINE}\r\n", ["c-1", "c-2"]),
            (f"{LINE}\n".encode("utf-16"), ["c-1"]),
            (f"{LINE}\n{LINE}".encode("utf-16-le"), ["c-1", "c-2"]),
            (f"[{LINE}, {LINE}]", ["c-1", "c-2"]),
            (f"// chats\n{LINE}\n# more\n\n{LINE}", ["c-1", "c-2"]),
            (json.dumps(chat(CALLS, DONE), indent=1), ["c-1"]),
            (json.dumps(chat(CALLS, DONE), indent=1) * 2, ["c-1", "c-2"]),
            (f'{{"data": [{LINE}]}}', ["c-1"]),
            (f'{{"conversations": [{json.dumps(TRUTH)}, {json.dumps(TRUTH)}]}}', ["c-1", "c-2"]),
            (f"{json.dumps(TRUTH)}\n{json.dumps(TRUTH)}", ["c-1", "c-2"]),
            ("\n".join(map(json.dumps, TRUTH)), ["c-1"]),
            (f'{{"version": 2}}\n{LINE}', ["c-2"]),
            (f'{{"type": "chat", "log": []}}\n{{"type": "chat", "log": []}}\n{LINE}', ["c-3"]),
            (f"{LINE},\n{LINE}", ["c-1", "c-2"]),
            (f"{LINE}\n{LINE[:-1]},}}", ["c-1"]),
            (f"[{LINE},]", ["c-1"]),
        ]
    ),
)
@pytest.mark.parametrize("name", ["c.json", "c.jsonl"])
async def test_import_messages_reads_files_of_each_form(
    import_file: Any, content: Any, ids: list[str], name: str
) -> None:
    result = await import_file(content, name)
    assert [scenario.id for scenario in result.scenarios] == ids


HALF = LINE[:-20]
UNQUOTED = LINE.replace('"messages":', '"messages:', 1)
UNCLOSED = LINE.replace('"}', "}", 1)
WIDE = LINE.replace('{"', '{ "').replace('": ', '" : ')


@pytest.mark.parametrize(
    ("content", "count", "total"),
    some_by_day(
        [
            (f"[{LINE},\n{LINE},\n]", 2, 2),
            (f"[\n{LINE},\n{LINE},\n{LINE}", 3, 3),
            (f"[{LINE}, {LINE}, {HALF}", 2, 3),
            (f"[{LINE}, {HALF}, {LINE}]", 2, 3),
            (f"[{LINE}, {UNCLOSED}, {LINE}, {LINE}]", 3, 4),
            (f"[{LINE}, {UNQUOTED}, {LINE}]", 2, 3),
            (f"[{LINE}, {HALF}, {WIDE}]", 2, 3),
            (f"[{HALF}, {LINE}]", 1, 2),
            (f"[[{json.dumps(USER)}, {json.dumps(REPLY)}], [{json.dumps(USER)}, {{]]", 1, 2),
            (f"{LINE}\n{HALF}\n{LINE}", 2, 3),
            (f"{json.dumps(json.loads(LINE), indent=1)}\n{{ 'x': 1 }}\n", 1, 2),
            (LINE.replace(", {", ",\n{") + "\n" + LINE.replace(", {", ",\n{"), 2, 2),
            ("\n".join([LINE.replace(", ", ",\n ")] * 2) + f"\n{HALF}\n{LINE}", 3, 4),
        ]
    ),
)
async def test_import_messages_keeps_the_rows_beside_a_broken_one(
    import_file: Any, content: str, count: int, total: int
) -> None:
    result = await import_file(content, "c.json")
    assert len(result.scenarios) == count
    assert result.output.splitlines()[-1].startswith(f"{count} of {total} conversation")


async def test_import_messages_names_comments_and_invalid_lines(import_file: Any) -> None:
    result = await import_file(f"# a\n{LINE}\n{LINE[:-1]},}}\n{{}}\n")
    assert "Ignored lines that are comments (1)\n  - c.jsonl:1\n" in result.notes
    assert "\n- c.jsonl:3: not valid JSON: " in result.notes
    assert "\n- c.jsonl:4: not a valid conversation: " in result.notes
    assert result.output.splitlines()[-1].startswith("1 of 3 conversations; 2 left out: c.jsonl:3")


READS = [function(name, {"type": "object", "properties": {}}) for name in ("list_notes", "get_day")]


@pytest.mark.parametrize(
    ("conversation", "is_easy"),
    [
        (
            {
                "tools": READS,
                "messages": [USER, assistant(function_call={"name": "list_notes"}), DONE, REPLY],
            },
            True,
        ),
        ({"messages": [{"role": "user", "content": "Hello"}, REPLY]}, True),
        ({"tools": [], "messages": [{"role": "user", "content": "안녕"}, REPLY]}, True),
        ({"tools": READS, "messages": [{"role": "user", "content": "Hello"}, REPLY]}, False),
        (
            {
                "tools": [function("clear_notes", {"type": "object", "properties": {}})],
                "messages": [USER, assistant(function_call={"name": "clear_notes"}), REPLY],
            },
            True,
        ),
        (chat(CALLS, DONE), False),
    ],
)
async def test_import_messages_keeps_easy_conversations_with_a_note(
    import_file: Any, conversation: Any, is_easy: bool
) -> None:
    result = await import_file(json.dumps(conversation))
    assert len(result.scenarios) == 1
    assert ("cannot tell models apart" in result.notes) == is_easy


SYSTEM = {"role": "system", "content": "Be kind."}


@pytest.mark.parametrize(
    ("messages", "turns", "note"),
    some_by_day(
        [
            ([SYSTEM, USER, REPLY, SYSTEM, USER, REPLY], 2, "Instructions within the conversation"),
            ([USER, CALLS, DONE], 1, "Turns without a final reply"),
            ([USER, CALLS], 1, "Calls without a recorded result"),
            ([DONE, USER, CALLS, DONE, REPLY], 1, "Omitted results without a recorded call"),
            ([CALLS, DONE, *TRUTH], 1, "Omitted messages before the first user message"),
            ([*TRUTH, USER], 1, "Omitted a last user message that has no answer"),
            ([*TRUTH, *TRUTH], 2, ""),
            ([USER, CALLS, DONE, CALLS, DONE, REPLY], 1, "Omitted a repetition"),
            ([{**USER, "content": ["x", {"type": "image_url"}]}, REPLY], 1, "image_url"),
            ([USER, USER, REPLY], 1, "User messages that follow each other are joined"),
            ([USER, REPLY, REPLY], 1, "the earlier ones are omitted"),
            ([USER, assistant(content=None), REPLY], 1, "without text or calls"),
            ([USER, {**REPLY, "reasoning_content": "Hm."}], 1, "Omitted reasoning of the model"),
            ([USER, assistant(content=[{"type": "thinking"}, "Yes."])], 1, "Omitted reasoning"),
            (
                [USER, {**CALLS, "content": ["Wait."]}, DONE, REPLY],
                1,
                "Omitted text that accompanies",
            ),
        ]
    ),
)
async def test_import_messages_notes_what_it_changes(
    import_file: Any, messages: Any, turns: int, note: str
) -> None:
    result = await import_file(json.dumps({"tools": TOOLS, "messages": messages}))
    assert result.code == 0
    assert len(result.scenarios[0].turns) == turns
    assert note in result.notes


async def test_import_messages_imports_all_shapes_of_one_file_or_names_them(
    import_file: Any,
) -> None:
    inputs = [*MESSAGES.values(), *(chat(message, DONE) for message in REFUSED.values())]
    result = await import_file("\n".join(map(json.dumps, inputs)))
    assert len(result.scenarios) == len(MESSAGES)
    left_out = result.notes.partition("## Left out")[2].partition("##")[0]
    places = [f"c.jsonl:{number}" for number in range(1 + len(MESSAGES), len(inputs) + 1)]
    assert sorted(re.findall(r"^- ([^ ]+): ", left_out, re.MULTILINE)) == sorted(places)


async def test_import_messages_splits_scenarios_into_files_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "MAX_FILE_BYTES", 4_000)
    huge = chat(CALLS, {**DONE, "content": "milk " * 1_000})
    lines = [*(chat(CALLS, DONE) for _ in range(9)), huge]
    file, into = tmp_path / "c.jsonl", tmp_path / "parts"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert await import_with("openai-messages", load_settings(), file=file, into=into) == 1
    parts = sorted(into.glob("scenarios*.yaml"))
    assert len(parts) > 1
    assert all(part.stat().st_size <= 4_000 for part in parts)
    ids = [scenario.id for scenario in read_sources([into]).scenarios]
    assert sorted(ids) == [f"c-{number:02}" for number in range(1, 10)]
    notes = (into / "NOTES.md").read_text(encoding="utf-8")
    assert "\n- c.jsonl:10: larger than 4,000 bytes\n" in notes


async def test_import_messages_leaves_out_only_the_conversation_that_yaml_cannot_contain(
    import_file: Any,
) -> None:
    odd = chat(called({"k" * 2_000: 1}), DONE, tools=[])
    odd["tools"] = [function("add_note", {"type": "object", "additionalProperties": True})]
    result = await import_file("\n".join(map(json.dumps, [chat(CALLS, DONE), odd])))
    assert "c-1" in [scenario.id for scenario in result.scenarios]


@pytest.mark.parametrize("args", [ARGS, {"text": "tea", "title": None}])
async def test_replayed_tool_takes_null_for_an_omission(
    import_file: Any, tmp_path: Path, args: Any
) -> None:
    parameters = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "title": {"type": ["string", "null"]}},
        "required": ["text"],
    }
    tools = [function("add_note", parameters)]
    result = await import_file(json.dumps(chat(called(PADDED), DONE, tools=tools)))
    model = ScriptedModel([call("add_note", **args), say("Done.")])
    record = await run_sample(
        result.scenarios[0], model, load(f"{tmp_path / 'mine'}/toolset.py:toolset")
    )
    assert record.is_passed
    assert record.trajectory.turns[0].calls[0].result["data"] == {"result": "ok"}


@pytest.mark.parametrize("inner", [{"type": 3}, {"anyOf": 3}, {"type": ["string", 3]}, 3, []])
async def test_import_messages_names_a_conversation_with_an_invalid_tool(
    import_file: Any, inner: Any
) -> None:
    odd = function("odd", {"type": "object", "properties": {"x": inner}, "required": ["x"]})
    lines = [chat(CALLS, DONE), chat(CALLS, DONE, tools=[*TOOLS, odd])]
    result = await import_file("\n".join(map(json.dumps, lines)))
    assert "\n- c.jsonl:2: not a valid conversation: tool 'odd': " in result.notes
