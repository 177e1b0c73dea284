"""Rows that `lhkit import calls` reads come back from `lhkit export --sft`, as training data."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lhkit.cli.export import ExportOptions, export_run
from lhkit.cli.imports import import_with
from lhkit.harness.exports.sft_formats import ROW_SHAPES
from lhkit.imports.row_shapes import FORMATS
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.training import prompt_completions
from lhkit.settings import load_settings

pytestmark = pytest.mark.anyio

DEVELOPER = (
    "Current date and time given in YYYY-MM-DDTHH:MM:SS format: 2026-03-04T10:11:12\n"
    "Day of week is Wednesday\n"
    "You are a model that can do function calling with the following functions\n"
)
PLACE = {"type": "STRING", "description": "What to show."}
BOX = {"type": "ARRAY", "items": {"type": "NUMBER"}, "description": "Its corners."}
KIND = {"type": "STRING", "nullable": True, "enum": ["road", "rail"], "description": "Its kind."}
SHOW = {"type": "OBJECT", "properties": {"query": PLACE}, "required": ["query"]}
OTHER_SHOW = {"type": "OBJECT", "properties": {"query": KIND, "box": BOX}, "required": ["query"]}
NAMES = {"first": {"type": "STRING", "description": "Given name."}}


def tool(name: str, parameters: Any, text: str = "") -> dict[str, Any]:
    description = text or f"Does {name}."
    return {
        "function": {"name": name, "description": description, "parameters": parameters},
    }


MAP, LIGHT = tool("show_map", SHOW), tool("turn_on_light", {"type": "OBJECT", "properties": {}})
CONTACT = tool("create_contact", {"type": "OBJECT", "properties": NAMES, "required": ["first"]})


def call(name: str, **args: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": args}}


def mobile(user: str, *calls: Any, split: str = "eval", tools: Any = (), **more: Any) -> Any:
    after = more.get("after", ())
    return {
        "metadata": split,
        "tools": list(tools) or [MAP, LIGHT, CONTACT],
        "messages": [
            {"role": "developer", "content": more.get("developer", DEVELOPER)},
            {"role": "user", "content": user},
            {"role": "assistant", "tool_calls": list(calls)},
            *after,
        ],
    }


MOBILE = [
    mobile("Show me Bonn", call("show_map", query="Bonn"), split="train"),
    mobile("불 켜 줘", call("turn_on_light")),
    mobile(
        "Add Ann and Bo", call("create_contact", first="Ann"), call("create_contact", first="Bo")
    ),
    mobile("Bonn, twice", call("show_map", query="Bonn"), call("show_map", query="Bonn")),
    mobile("Light here", call("turn_on_light"), tools=[LIGHT], developer="Be quick."),
    mobile(
        "By rail",
        call("show_map", query="rail", box=[1.5, 2]),
        tools=[tool("show_map", OTHER_SHOW, "Another map."), LIGHT],
    ),
    mobile(
        "Map of A",
        call("show_map", query="A"),
        after=(
            {"role": "user", "content": "and of B"},
            {
                "role": "assistant",
                "tool_calls": [call("show_map", query="B"), call("turn_on_light")],
            },
        ),
    ),
    mobile(
        "Where is 7?",
        call("show_map", query="7"),
        call("show_map", query="8"),
        after=(
            {
                "role": "tool",
                "content": [
                    {"name": "show_map", "response": {"city": "Ulm"}},
                    {"name": "show_map", "response": {"city": "Jena"}},
                ],
            },
            {"role": "assistant", "content": "In Ulm and Jena."},
        ),
    ),
]
PLAIN_SHOW = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
OPENAI_TOOLS = [
    {
        "type": "function",
        "function": {"name": "find_map", "description": "Find.", "parameters": PLAIN_SHOW},
    }
]


def openai_calls(*queries: str) -> dict[str, Any]:
    function = [
        {"name": "find_map", "arguments": json.dumps({"query": query})} for query in queries
    ]
    calls = [
        {"id": q, "type": "function", "function": f} for q, f in zip(queries, function, strict=True)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(id_: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


OPENAI = [
    [{"role": "user", "content": "One"}, openai_calls("a")],
    [
        {"role": "system", "content": "Help.\n"},
        {"role": "user", "content": "Two"},
        openai_calls("a", "b"),
    ],
    [
        {"role": "system", "content": "Help.\n"},
        {"role": "user", "content": "Look"},
        openai_calls("a", "b"),
        result("b", "plain text"),
        result("a", '{"city":"Ulm"}'),
        {"role": "assistant", "content": "Both."},
        {"role": "user", "content": "셋"},
        openai_calls("c"),
        result("c", "[1,2]"),
        {"role": "assistant", "content": "Found."},
    ],
    [{"role": "user", "content": "Sing"}, {"role": "assistant", "content": "I cannot sing."}],
]


def padded(value: Any) -> Any:
    """Return a row as a table gives it back: nulls where other rows have a value."""
    if isinstance(value, list):
        return [padded(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    fields = {key: padded(inner) for key, inner in value.items()}
    if "role" in value:
        return {"content": None, "tool_calls": None, **fields}
    if "arguments" in value:
        names = ("query", "first", "box")
        fields["arguments"] = {**dict.fromkeys(names), **fields["arguments"]}
    return fields


def comparable(row: Any) -> Any:
    """Return a row without nulls, with numbers for ids and parsed arguments."""
    if isinstance(row, list):
        return [comparable(item) for item in row]
    if not isinstance(row, Mapping):
        return row
    known = {key: comparable(value) for key, value in row.items() if value is not None}
    if isinstance(known.get("arguments"), str):
        known["arguments"] = json.loads(known["arguments"])
    if "messages" in known:
        ids: dict[str, int] = {}
        for message in known["messages"]:
            for made in message.get("tool_calls", ()):
                if "id" in made:
                    made["id"] = ids.setdefault(made["id"], len(ids))
            if "tool_call_id" in message:
                message["tool_call_id"] = ids[message["tool_call_id"]]
    return known


async def there_and_back(rows: list[Any], form: str, folder: Path) -> list[Any]:
    """Import rows, and export the scenarios in a format."""
    settings = load_settings()
    file, into, out = folder / "rows.jsonl", folder / "mine", folder / "out.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert await import_with("calls", settings, files=[file], into=into) == 0
    options = ExportOptions(
        sft=out,
        scenarios=(into / "scenarios.yaml",),
        toolset=f"{into}/toolset.py:toolset",
        format=form,
    )
    assert await export_run(options, settings) == 0
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


@pytest.mark.longer
@pytest.mark.parametrize("shape", ["plain", "padded"])
async def test_mobile_actions_rows_come_back_equal(shape: str, tmp_path: Path) -> None:
    rows = MOBILE if shape == "plain" else [padded(row) for row in MOBILE]
    back = await there_and_back(rows, "mobile-actions", tmp_path)
    assert back == MOBILE
    for row, original in zip(back, MOBILE[:6], strict=False):
        for dialect in DIALECTS.values():
            assert prompt_completions(row, dialect) == prompt_completions(original, dialect)


async def test_openai_rows_come_back_equal(tmp_path: Path) -> None:
    rows = [{"messages": messages, "tools": OPENAI_TOOLS} for messages in OPENAI]
    rows[0]["split"] = "test"
    back = await there_and_back(rows, "openai", tmp_path)
    assert [row.get("split") for row in back] == ["test", None, None, None]
    rows[2]["messages"][3:5] = rows[2]["messages"][4:2:-1]  # results in the order of the calls
    assert comparable(back) == comparable(rows)


async def test_rows_keep_their_split_in_another_format(tmp_path: Path) -> None:
    """A row that measures must not come back as one that trains."""
    rows = [
        {"messages": messages, "tools": OPENAI_TOOLS, "split": split, "level": 3}
        for messages, split in zip(OPENAI, ("test", "", "eval", None), strict=True)
    ]
    back = await there_and_back(rows, "mobile-actions", tmp_path)
    assert [row["metadata"] for row in back] == ["test", "train", "eval", "train"]
    assert frozenset(FORMATS) == ROW_SHAPES


@pytest.mark.longer
async def test_rows_train_on_the_prompts_that_are_served(tmp_path: Path) -> None:
    """The default format has the results as the served model reads them."""
    messages = await there_and_back(MOBILE, "messages", tmp_path)
    rows = [row for row in messages for row in prompt_completions(row, DIALECTS["functiongemma"])]
    assert rows[0]["prompt"].count("You are a model that can do function calling") == 1
    assert rows[0]["completion"].startswith("<start_function_call>call:show_map{query:")
    assert rows[2]["completion"].count("<start_function_call>") == 2
