"""The fine-tuning data set: hash, rows and well-formed conversations."""

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
STRIDE = 25
"""Every 25th row is checked in detail."""


@pytest.fixture(scope="module")
def frame() -> Any:
    from fastparquet import ParquetFile

    with FILE.open("rb") as opened:
        return ParquetFile(opened).to_pandas()


def test_sft_card_contains_the_hash_of_the_file() -> None:
    card = (FOLDER / "card.md").read_text(encoding="utf-8")
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() in card


@pytest.mark.slow
def test_sft_rows_have_unique_ids_and_messages(frame: Any) -> None:
    assert list(frame.columns) == ["id", "kind", "locale", "messages", "tools"]
    assert len(frame) == ROWS
    assert frame["id"].is_unique
    assert frame["messages"].is_unique
    assert Counter(frame["locale"]) == {"ko": 12_016, "en": 7_984}
    assert frame["kind"].nunique() == 96
    assert frame.groupby("locale")["tools"].nunique().to_dict() == {"ko": 1, "en": 1}


def find_errors(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[str]:
    """Return the errors of a conversation."""
    errors: list[str] = []
    validators = {
        tool["function"]["name"]: Draft202012Validator(tool["function"]["parameters"])
        for tool in tools
    }
    roles = "".join(message["role"][0] for message in messages)
    if not re.fullmatch(r"s(u(at+)*a)+", roles):
        errors.append(f"order: {roles}")
    call_ids: list[str] = []
    for message in messages:
        for call in message.get("tool_calls", ()):
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            call_ids.append(call["id"])
            if message.get("weight") == 0:
                continue
            if name not in validators or not validators[name].is_valid(arguments):
                errors.append(f"call: {call}")
    result_ids = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    if call_ids != result_ids or len({*call_ids}) < len(call_ids):
        errors.append(f"ids: {call_ids}, {result_ids}")
    if messages[-1].get("tool_calls") or not messages[-1]["content"]:
        errors.append("does not end with a reply")
    return errors


@pytest.mark.longer
def test_sft_calls_are_valid_and_have_results(frame: Any) -> None:
    for row in frame.iloc[::STRIDE].itertuples():
        assert not find_errors(json.loads(row.messages), json.loads(row.tools)), row.id
