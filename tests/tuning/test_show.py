"""`lhkit tune show`: drawn conversations as people read them."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lhkit.commands.tune import show_data
from lhkit.commands.tune_options import ShowOptions
from lhkit.errors import LhkitError
from lhkit.messages import Message, ModelMessage, ToolCallMessage, ToolOk, UserMessage
from lhkit.models.dialects import DIALECTS
from lhkit.settings import Settings
from lhkit.tuning.data import Exchange, TrainingSequence, sequences_of, write_sequences
from tests.children import search_paths

TOOL = {"name": "list_notes", "description": "List the notes.", "parameters": {"type": "object"}}
CALL = '{"name": "list_notes", "parameters": {"tag":"home"}}'
ASKED = UserMessage(text="What is on my list?", context="Today is Monday.")
LISTED = ToolCallMessage(name="list_notes", args={"tag": "home"}, result=ToolOk({"notes": ["tea"]}))


def talk(name: str, kind: str = "call", locale: str = "en") -> TrainingSequence:
    turns: list[tuple[list[Message], str]] = [
        ([ASKED], CALL),
        ([ASKED, LISTED], "Tea."),
        (
            [ASKED, LISTED, ModelMessage(text="Tea."), UserMessage(text="Thanks")],
            "You are welcome.",
        ),
    ]
    exchanges = [
        Exchange(
            prompt=DIALECTS["json"].encode(heard, [TOOL], "You keep notes.\n\nBe brief."),
            answer=said,
        )
        for heard, said in turns
    ]
    (sequence,) = sequences_of(name, locale, kind, exchanges)
    return sequence


@pytest.fixture
def data(tmp_path: Path) -> Path:
    kinds: Sequence[tuple[str, str]] = [("call", "en"), ("follow_ups", "en"), ("call", "ko")] * 9
    file = tmp_path / "train.jsonl"
    write_sequences(file, [talk(f"t.{i}", *each) for i, each in enumerate(kinds)])
    return file


async def shown(
    options: ShowOptions, capsys: pytest.CaptureFixture[str], locale: str = "en"
) -> list[str]:
    assert await show_data(options, Settings(locale=locale)) == 0
    return capsys.readouterr().out.splitlines()


def names(lines: Sequence[str]) -> list[str]:
    return [line.rpartition(" ")[2] for line in lines if " · " in line]


@pytest.mark.anyio
async def test_a_conversation_is_shown_with_everything_but_the_tools(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await shown(ShowOptions(data=data, count=1), capsys) == [
        "1 · call · en · t.0.0",
        "  User: Today is Monday.",
        "    What is on my list?",
        '  Call: list_notes {"tag":"home"}',
        '  Result: list_notes: {"status":"ok","data":{"notes":["tea"]}}',
        "  Model: Tea.",
        "  User: Thanks",
        "  Model: You are welcome.",
        "",
        f"1 to 1 of 27 conversations shown. {data} holds: call 18, follow_ups 9.",
    ]


@pytest.mark.anyio
async def test_labels_are_in_the_readers_language(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = await shown(ShowOptions(data=data, count=1), capsys, "ko")
    assert [line.split(": ")[0].strip() for line in lines[1:8]] == [
        *("사용자", "What is on my list?", "호출", "결과", "모델", "사용자", "모델")
    ]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [
        ({}, list(range(20))),
        ({"begin": 21}, list(range(20, 27))),
        ({"kind": "follow_ups", "count": 2}, [1, 4]),
        ({"locale": "ko", "begin": 2, "count": 3}, [5, 8, 11]),
        ({"kind": "call", "locale": "en", "count": 2}, [0, 3]),
    ],
)
async def test_the_chosen_ones_are_shown(
    data: Path, capsys: pytest.CaptureFixture[str], chosen: dict[str, Any], numbers: list[int]
) -> None:
    lines = await shown(replace(ShowOptions(data=data), **chosen), capsys)
    assert names(lines) == [f"t.{number}.0" for number in numbers]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"kind": "follow"}, r"--kind follow: .*train\.jsonl holds none: choose one of call, foll"),
        ({"locale": "fr"}, r"--locale fr: .*train\.jsonl holds none: choose one of en, ko"),
        ({"kind": "follow_ups", "locale": "ko"}, r"--kind follow_ups --locale ko: .* none of both"),
        ({"begin": 28}, "--from 28: only 27 conversations are there"),
    ],
)
async def test_what_is_not_there_is_told(data: Path, chosen: dict[str, Any], told: str) -> None:
    with pytest.raises(LhkitError, match=told):
        await show_data(replace(ShowOptions(data=data), **chosen), Settings())


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("worlds:\n  - {}\n", r"a\.jsonl:1: line: Invalid JSON.*: make it with `lhkit tune data`"),
        ('{"id": "a"}\n', r"a\.jsonl:1: group: Field required: make it with `lhkit tune data`"),
        ("", r"a\.jsonl holds no conversation: make it with `lhkit tune data`"),
        (
            '{"id": "a.0", "group": "en", "kind": "k", "text": "hi you", "answers": [[3, 6]]}\n',
            r"a\.jsonl: a\.0: text: no turns of Gemma 3: make it with `lhkit tune data`",
        ),
    ],
)
async def test_a_file_of_another_kind_is_one_sentence(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(LhkitError, match=told):
        await show_data(ShowOptions(data=file), Settings())


@pytest.mark.anyio
async def test_what_is_said_steers_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.jsonl"
    spoilt = talk("[red]")
    write_sequences(file, [replace(spoilt, text=spoilt.text.replace("You are", "[b]\x1b[2J"))])
    lines = await shown(ShowOptions(data=file), capsys)
    assert lines[0].endswith("[red].0")
    assert lines[-3] == "  Model: [b]\\x1b[2J welcome."


def test_a_reader_that_has_seen_enough_is_no_fault(data: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [sys.executable, "-m", "lhkit", "tune", "show", str(data)],
        env=search_paths() | {"HOME": str(data.parent), "LHKIT_CACHE_DIR": str(data.parent)},
        check=False,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert ended.stderr == ""
