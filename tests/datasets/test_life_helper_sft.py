"""The conversations to fine-tune on are whole: their hash, their rows, their calls."""

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parents[2] / "datasets" / "life_helper_sft"
FILE = FOLDER / "train.parquet"
ROWS = 20_000
LOOKED_AT = 25
"""Every so many rows are looked at one by one."""


@pytest.fixture(scope="module")
def frame() -> Any:
    from fastparquet import ParquetFile

    with FILE.open("rb") as opened:
        return ParquetFile(opened).to_pandas()


def test_the_card_names_the_hash_of_the_file() -> None:
    card = (FOLDER / "card.md").read_text(encoding="utf-8")
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() in card


@pytest.mark.slow
def test_every_row_has_an_id_of_its_own_a_language_and_messages(frame: Any) -> None:
    assert list(frame.columns) == ["id", "kind", "locale", "messages", "tools"]
    assert len(frame) == ROWS
    assert frame["id"].is_unique
    assert frame["messages"].is_unique
    assert Counter(frame["locale"]) == {"ko": 12_016, "en": 7_984}
    assert frame["kind"].nunique() == 96
    assert frame.groupby("locale")["tools"].nunique().to_dict() == {"ko": 1, "en": 1}


def faults(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[str]:
    """Return what is not well-formed in a conversation."""
    found: list[str] = []
    validators = {
        tool["function"]["name"]: Draft202012Validator(tool["function"]["parameters"])
        for tool in tools
    }
    roles = "".join(message["role"][0] for message in messages)
    if not re.fullmatch(r"s(u(at+)*a)+", roles):
        found.append(f"order: {roles}")
    asked: list[str] = []
    for message in messages:
        for call in message.get("tool_calls", ()):
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            asked.append(call["id"])
            if message.get("weight") == 0:
                continue
            if name not in validators or not validators[name].is_valid(arguments):
                found.append(f"call: {call}")
    answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    if asked != answered or len({*asked}) < len(asked):
        found.append(f"ids: {asked}, {answered}")
    if messages[-1].get("tool_calls") or not messages[-1]["content"]:
        found.append("does not end with words")
    return found


def test_calls_are_valid_for_the_tools_and_answered_each_in_turn(frame: Any) -> None:
    for row in frame.iloc[::LOOKED_AT].itertuples():
        assert not faults(json.loads(row.messages), json.loads(row.tools)), row.id
