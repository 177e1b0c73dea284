"""A pipe, a device, a folder, an empty or a binary file as input ends in a sentence, at once."""

import asyncio
import os
import re
from collections.abc import Coroutine
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from lhkit.cli.frame.parser import build_parser

pytestmark = pytest.mark.longer

SCENARIO = """
- id: list-it
  ac: AC-5
  locale: ko
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns: [{user: 내 습관 보여 줘, expect: {calls: [{tool: list_habits, args: {}}]}}]
"""
CHAT = '[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]'

LINES = {
    "lint FILE": "yaml",
    "eval FILE --model gold": "yaml",
    "mutate FILE": "yaml",
    "mutate one.yaml --survivors FILE": "toml",
    "matrix FILE": "toml",
    "chat --world FILE": "yaml",
    "eval one.yaml --model gold --toolset FILE:x": "py",
    "eval one.yaml --model gold --toolset mcp:FILE": "toml",
    "eval one.yaml --model gold --toolset mcp:FILE#a": "json",
    "eval one.yaml --model gold --baseline FILE": "jsonl",
    "rescore FILE": "jsonl",
    "report FILE": "jsonl",
    "export --sft out.jsonl --reviewed FILE": "jsonl",
    "import openai-messages FILE --into new": "json",
    "import openai-messages chat.json --tools FILE --into new": "json",
    "import openai-messages chat.json --handlers FILE:x --into new": "py",
    "import openai-messages chat.json --handlers fine.py:F --data FILE --into new": "json",
}


def make(kind: str, path: Path) -> Path:
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "binary":
            path.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe" * 9)
        case "empty":
            path.write_bytes(b"")
        case "unreadable":
            path.symlink_to(path)  # root may read every file, but no loop of links
    return path


def run(command: Coroutine[Any, Any, int]) -> int:
    with asyncio.Runner() as runner:
        return runner.run(command)


@cache
def parser() -> typer.Typer:
    return build_parser(run, "en")


@pytest.mark.timeout(60)  # a command that waits for a writer would wait for ever
@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (line, kind)
        for line in LINES
        for kind in ("pipe", "device", "folder", "binary", "empty", "unreadable")
        if not (kind == "empty" and "--survivors" in line)  # no survivor is accepted
    ],
)
def test_command_refuses_a_special_file_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    (tmp_path / "one.yaml").write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "chat.json").write_text(CHAT, encoding="utf-8")
    (tmp_path / "fine.py").write_text("F = {}", encoding="utf-8")
    name = make(kind, tmp_path / f"odd.{LINES[line]}").name
    shown = CliRunner().invoke(parser(), line.replace("FILE", name).split(), env={"COLUMNS": "300"})
    assert isinstance(shown.exception, SystemExit), shown.exception
    is_finding = line.startswith("lint") and kind == "empty"
    assert shown.exit_code == (1 if is_finding else 2), shown.output
    text = re.sub(r"[│╭╮╰╯─\s]+", " ", shown.output)
    assert name in text
    assert "Traceback" not in text
    assert "unforeseen" not in text
    assert not (tmp_path / "new").exists()


def test_import_messages_reads_standard_input_from_a_file(tmp_path: Path) -> None:
    chat = tmp_path / "chat.json"
    chat.write_text(CHAT, encoding="utf-8")
    with chat.open("rb") as file:
        source = f"/dev/fd/{file.fileno()}"
        into = str(tmp_path / "new")
        words = ["import", "openai-messages", source, "--into", into]
        shown = CliRunner().invoke(parser(), words)
    assert shown.exit_code == 0, shown.output
