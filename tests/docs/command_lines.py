"""Reads a line of `lhkit` with the real parser, and runs nothing."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from lhkit.cli.frame.parser import LazyCommand, build_parser


def lhkit_lines(text: str) -> Iterator[str]:
    """Yield each line of a block that calls `lhkit`, with lines that go on joined to one.

    `make eval ARGS="…"` is `lhkit eval …`; other programs are not ours.
    """
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        command_line = re.sub(r"^\s*(- run: |\$ )?", "", line)
        made = re.match(r'make (eval|chat|serve) ARGS="([^"]*)"', command_line)
        if made:
            yield f"lhkit {made[1]} {made[2]}"
        elif re.match(r"([A-Z_]+=\S+ )*(\.venv/bin/)?lhkit\s", command_line):
            yield command_line[command_line.index("lhkit") :]


def read_line(line: str) -> str:
    """Return the command that a line calls, such as `chats show`.

    Raises:
        Exception: the parser's own, for an option or a value that it does not know.
        KeyError: there is no such command.
    """
    words = shlex.split(re.split(r" >+ | \| |\s# ", line)[0])[1:]
    command, path = _root(), []
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        path.append(words.pop(0))
        command = command.commands[path[-1]]
        command = command.load() if isinstance(command, LazyCommand) else command
    if words not in (["--help"], ["--version"]):
        command.make_context(" ".join(path), words)
    return " ".join(path)


@cache
def _root() -> Any:
    return get_command(build_parser(_never))


def _never(command: Any) -> int:
    raise AssertionError(f"{command} was to be read, not run")
