"""A page of documentation as its blocks, and its console as one shell session.

What a block is for stands in its first line or its language: a comment with a file's name makes it
that file (or its next part); `console` is run; `sh` is only read, and says first what it needs.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.children import search_paths

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ([\w-]+\.(?:py|yaml|yml|toml))\n")
_LEFT_OUT = "…"
_BEGIN, _END = "\x1e", "\x1f"
_PART = re.compile(rf"{_BEGIN}\d+{_BEGIN}\n(.*?){_END}(\d+){_END}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block."""

    language: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command of a console, and the lines that must be in its output, in this order."""

    command: str
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The outcome of a command."""

    output: str
    code: int


def blocks(page: Path) -> tuple[Block, ...]:
    """Return the fenced blocks of a page, in order."""
    fences = _FENCE.findall(page.read_text(encoding="utf-8"))
    return tuple(Block(language=language, text=text) for language, text in fences)


def files(page: Path) -> dict[str, str]:
    """Return the files that a page tells to write, by name."""
    written: dict[str, str] = {}
    for block in blocks(page):
        named = _FILE.match(block.text)
        if named:
            body = block.text[named.end() :]
            before = written.get(named[1])
            written[named[1]] = body if before is None else f"{before}\n\n{body}"
    return written


def steps(page: Path) -> tuple[Step, ...]:
    """Return the commands of a page's consoles, in order."""
    text = "".join(block.text for block in blocks(page) if block.language == "console")
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return tuple(_steps(parts))


def _steps(parts: Sequence[str]) -> Iterator[Step]:
    for part in parts:
        command, _, shown = part.replace("\\\n", "").partition("\n")
        yield Step(command=command, shown=tuple(filter(str.strip, shown.splitlines())))


def run(
    commands: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    first: Path | None = None,
) -> tuple[Done, ...]:
    """Run commands in one shell, so that `export` and `$?` mean what they say.

    Args:
        commands: lines of a shell.
        folder: where they run.
        environment: their environment, to which search paths are added.
        first: a folder that goes before the others of their PATH.
    """
    lines = ["exec 2>&1", "code=0"]
    for number, command in enumerate(commands):
        lines += [f"printf '{_BEGIN}{number}{_BEGIN}\\n'", "(exit $code)", command, "code=$?"]
        lines += [f"printf '{_END}%d{_END}' $code"]
    paths = search_paths()
    search = ":".join([*([str(first)] if first else []), paths["PATH"]])
    shell = subprocess.run(
        ["/bin/bash", "-c", "\n".join(lines)],
        cwd=folder,
        env={**environment, **paths, "PATH": search},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return tuple(Done(output=out, code=int(code)) for out, code in _PART.findall(shell.stdout))


def missing(shown: Sequence[str], output: str) -> str | None:
    """Return the first line that is not in the output after the one before it; None if all are.

    `…` in a line stands for whatever was left out there.
    """
    at = 0
    for line in shown:
        pattern = ".*?".join(re.escape(" ".join(part.split())) for part in line.split(_LEFT_OUT))
        match = re.compile(pattern.replace(r"\ ", r"\s+")).search(output, at)
        if match is None:
            return line
        at = match.end()
    return None
