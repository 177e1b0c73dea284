"""Training conversations in the formats of TRL and of Google's mobile-actions."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.chat.assistant import Assistant
from lhkit.cli.export import ExportOptions, export_run
from lhkit.conversation.messages import ModelMessage, ToolCall, ToolCallMessage, UserMessage
from lhkit.conversation.responses import ModelIdentity
from lhkit.conversation.tool_results import ToolOk
from lhkit.harness.exports.sft import (
    SftConversation,
    reference_conversations,
    run_conversations,
)
from lhkit.harness.exports.sft_formats import FORMATS, capital_types, formatted
from lhkit.harness.running.run import replay
from lhkit.models.client.request import request_body
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.training import prompt_completions
from lhkit.models.recorded.scripted import Reply, ScriptedModel
from lhkit.settings import load_settings
from tests.harness.build import Load
from tests.harness.conftest import NotesSession, NotesToolset
from tests.harness.results.runs import lines
from tests.harness.results.test_sft import NOTES
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

TWO_CALLS = r"""
- id: both
  tags: [recorded, mobile-actions, eval, "kind:two"]
  locale: en
  turns:
    - user: Milk and bread, please
      confirm: accept
      expect:
        calls: [{tool: find_notes, args: {query: milk}}, {tool: find_notes, args: {query: bread}}]
"""
HISTORY = (
    UserMessage(text="Is there a note about tea?"),
    ToolCallMessage.of(name="find_notes", args={"query": "tea"}, result=ToolOk({"notes": []})),
    ModelMessage(text="There is none."),
)


class OneResponseSession(NotesSession):
    """A session that ends a turn after its calls, and begins with earlier messages."""

    @property
    def assistant(self) -> Assistant:
        return replace(super().assistant, stops_after_calls=True, history=HISTORY)


class OneResponseToolset(NotesToolset):
    def open(self, world: Any, locale: str) -> OneResponseSession:
        inner = super().open(world, locale)
        return OneResponseSession(
            registry=inner.registry,
            seen=inner.seen,
            deps=inner.deps,
            today=inner.today,
            sampling=inner.sampling,
        )


async def conversations_of(load: Load, toolset: Any, text: str = NOTES) -> list[SftConversation]:
    return list(await reference_conversations(load(text), toolset))


def data_of(conversations: Any, form: str, dialect: str | None = None) -> list[Any]:
    return [each.data for each in formatted(conversations, form, dialect)]


async def test_mobile_actions_rows_have_googles_form(load: Load, toolset: Any) -> None:
    (row,) = data_of(await conversations_of(load, toolset), "mobile-actions")
    assert row["metadata"] == "train"
    assert row["messages"] == [
        {"role": "developer", "content": "Keep notes."},
        {"role": "user", "content": "우유 메모 찾아 줘"},
        {
            "role": "assistant",
            "tool_calls": [{"function": {"name": "find_notes", "arguments": {"query": "우유"}}}],
        },
        {
            "role": "tool",
            "content": [
                {
                    "name": "find_notes",
                    "response": {"notes": [{"done": False, "id": "n1", "text": "우유"}]},
                }
            ],
        },
        {"role": "assistant", "content": "우유 메모가 있어요."},
        {"role": "user", "content": "빵도 적어 줘"},
        {
            "role": "assistant",
            "tool_calls": [{"function": {"name": "add_note", "arguments": {"text": "빵"}}}],
        },
        {"role": "tool", "content": [{"name": "add_note", "response": {"id": "note-1"}}]},
        row["messages"][-1],
    ]
    assert row["tools"][1] == {
        "function": {
            "name": "add_note",
            "description": "Add a note",
            "parameters": {
                "type": "OBJECT",
                "properties": {
                    "text": {"type": "STRING", "maxLength": 80},
                    "tag": {"enum": ["home", "work"]},
                },
                "required": ["text"],
            },
        }
    }
    assert all(prompt_completions(row, dialect) for dialect in DIALECTS.values())


async def test_prompt_completion_rows_are_the_texts_of_the_messages(
    load: Load, toolset: Any
) -> None:
    conversations = await conversations_of(load, toolset)
    rows = data_of(conversations, "prompt-completion", "gemma4")
    messages = data_of(conversations, "messages")
    assert rows == [
        pair for each in messages for pair in prompt_completions(each, DIALECTS["gemma4"])
    ]
    assert len(rows) == 3  # not the reply that the scenario does not specify
    assert all(row["prompt"].startswith("<bos>") and row["completion"] for row in rows)


@check_rows(
    ("form", "dialect", "sentence"),
    [
        ("alpaca", None, "Unknown format 'alpaca': give one of messages, prompt-completion"),
        ("prompt-completion", None, "--dialect belongs to --format prompt-completion"),
        ("messages", "json", "--dialect belongs to --format prompt-completion"),
        ("mobile-actions", "json", "--dialect belongs to --format prompt-completion"),
        ("prompt-completion", "openai", "Invalid dialect 'openai': choose one of"),
    ],
)
async def test_command_refuses_a_format_that_does_not_fit(
    form: str, dialect: str | None, sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "x.jsonl"
    options = ExportOptions(
        sft=file, scenarios=(Path("datasets/ac/dev/ac01.yaml"),), format=form, dialect=dialect
    )
    with pytest.raises(UsageError, match=sentence):
        await export_run(options, load_settings())
    assert not file.exists()


@pytest.mark.longer
@pytest.mark.parametrize("form", FORMATS)
async def test_command_writes_each_format(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    file = tmp_path / "rows.jsonl"
    options = ExportOptions(
        sft=file,
        scenarios=(Path("datasets/ac/dev/ac01.yaml"),),
        format=form,
        dialect="json" if form == "prompt-completion" else None,
    )
    assert await export_run(options, load_settings()) == 0
    unit = "rows" if form == "prompt-completion" else "conversations"
    assert f"({len(lines(file))} {unit})" in capsys.readouterr().out


async def test_last_calls_of_one_response_have_no_results(load: Load) -> None:
    toolset, scenarios = OneResponseToolset(), load(TWO_CALLS)
    models: list[ScriptedModel] = []

    def model(*_: Any) -> ScriptedModel:
        calls = [ToolCall(name="find_notes", args={"query": query}) for query in ("milk", "bread")]
        models.append(ScriptedModel((Reply(calls=tuple(calls)),)))
        return models[-1]

    run = await replay(scenarios, model, toolset=toolset, progress=False)
    (conversation,) = run_conversations(run, toolset, scenarios)
    roles = [message["role"] for message in conversation.data["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
    calls = conversation.data["messages"][-1]["tool_calls"]
    assert [call["id"] for call in calls] == ["call00001", "call00002"]
    (row,) = data_of([conversation], "mobile-actions")
    assert row["metadata"] == "eval"
    calls = row["messages"][-1]["tool_calls"]
    assert [call["function"]["arguments"]["query"] for call in calls] == ["milk", "bread"]
    (request,) = (request for made in models for request in made.requests)
    for name, dialect in DIALECTS.items():
        identity = ModelIdentity(model="m", server="s", dialect=name)
        last = prompt_completions(conversation.data, dialect)[-1]
        assert last["prompt"] == request_body(request, identity)["prompt"]
        assert "milk" in last["completion"]
        assert "bread" in last["completion"]


@check_rows(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"type": "STRING"}),
        (
            {"type": ["string", "null"], "enum": ["a", None]},
            {"type": "STRING", "nullable": True, "enum": ["a"]},
        ),
        ({"type": ["string", "integer"]}, {"type": ["STRING", "INTEGER"]}),
        (
            {"anyOf": [{"type": "integer"}, {"$ref": "#/x"}]},
            {"anyOf": [{"type": "INTEGER"}, {"$ref": "#/x"}]},
        ),
        (
            {"type": "object", "properties": {"type": {"type": "string", "enum": ["type"]}}},
            {"type": "OBJECT", "properties": {"type": {"type": "STRING", "enum": ["type"]}}},
        ),
        (
            {"const": {"type": "a"}, "items": {"type": "array"}},
            {"const": {"type": "a"}, "items": {"type": "ARRAY"}},
        ),
        (True, True),
    ],
)
def test_capital_types_leaves_names_and_values(schema: Any, expected: Any) -> None:
    assert capital_types(schema) == expected
