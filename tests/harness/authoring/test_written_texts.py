"""Pasted texts: a saved scenario reads back as exactly the same messages."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lhkit.base.errors import UsageError
from lhkit.conversation.messages import ModelMessage, UserMessage
from lhkit.harness.authoring.from_chat import scenario_from_chat
from lhkit.harness.authoring.scenario_yaml import yaml_text
from lhkit.harness.chats.corrections import (
    CorrectedConversation,
    CorrectedTurn,
    conversation_line,
    read_conversations,
)
from lhkit.harness.scenarios.documents import read_json_lines, read_yaml
from tests.rows import check_rows

HOSTILE = [
    "a\u2028b",
    "a\u2029b",
    "a\u0085b",
    "a\x0bb\x0cc\x1cd",
    "a\r\nb",
    "a\rb",
    "\n\n a\n\n",
    f"{'x' * 90}\tb",
    f"{'x' * 90} b  c {'y' * 120}",
    f"{'가' * 99}\u3000나",
    "  - a: b\n  c",
    " ",
    "\ufeffa",
    "\u00a0",
    "#",
    "null",
    "'\"\\",
    "\x7f\x80\x9f",
    "😀\u200d",
    "\uffff",
]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=150) | st.sampled_from(HOSTILE)


def saved(text: str) -> str:
    return scenario_from_chat(
        [UserMessage(text=text), ModelMessage(text=text)],
        initial_state={"now": "2026-06-15T09:00:00+09:00", "rows": [{text: text}]},
        final_state={"rows": []},
        destructive=(),
        locale="en",
        scenario_id="chat",
    )


def examples(test: object) -> object:
    for text in HOSTILE:
        test = example(text)(test)  # type: ignore[arg-type] - a decorator
    return test


@pytest.mark.longer
@examples
@given(TEXTS)
def test_yaml_text_round_trips(text: str) -> None:
    read = read_yaml(saved(text))
    assert read.issues == ()
    scenario = read.value[0]
    assert scenario["turns"][0]["user"] == text
    assert scenario["world"]["rows"] == [{text: text}]
    if text:
        assert scenario["turns"][0]["gold"] == {"say": text}


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_yaml_text_refuses_lone_surrogate(text: str) -> None:
    with pytest.raises(UsageError, match="half a surrogate pair"):
        saved(text)
    with pytest.raises(UsageError, match="half a surrogate pair"):
        yaml_text([{text: 1}])


@check_rows("text", HOSTILE)
def test_read_conversations_reads_lines(tmp_path: Path, text: str) -> None:
    conversation = CorrectedConversation(
        name=text, locale="en", world={}, turns=(CorrectedTurn(user=text),)
    )
    file = tmp_path / "chats.jsonl"
    file.write_text(conversation_line(conversation) * 2, encoding="utf-8")
    assert read_conversations(file) == (conversation, conversation)


@check_rows("text", HOSTILE)
def test_load_scenarios_keeps_texts_of_json_lines(text: str) -> None:
    lines = json.dumps({"id": text}, ensure_ascii=False)
    read = read_json_lines(f"{lines}\n\n{lines}\n")
    assert read.issues == ()
    assert read.value == [{"id": text}, {"id": text}]
    assert {read.line(at) for at in [(0,), (1,)]} == {1, 3}
