"""A person at `lhkit chat`, played over a pipe: talks, answers questions, counts the yeses."""

import random
import sqlite3
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from lhkit.locales import load_catalog

_TEXTS = load_catalog("en")
YOU = f"{_TEXTS.text('terminal.you')}> "
QUESTION = _TEXTS.text("confirm.prompt", title=_TEXTS.text("confirm.title"))

_NOES = ("n", "", "later", "yes please no", "y y")
_PIECE_BYTES = 4096
_LEFT_OPEN = 0.15
"""How often a question is not answered at all, and the input ended instead."""


@dataclass(slots=True, kw_only=True)
class Talk:
    """One conversation over a pipe; `yeses` were sent to it, whatever became of them."""

    process: Process
    rng: random.Random
    yeses: int = 0
    asked: int = 0
    heard: str = ""

    async def say(self, lines: Sequence[str]) -> None:
        """Say some lines one after the other, answer what is asked between, and end the input."""
        for line in lines:
            if not await self._ready():
                return
            await self._type(line)
        await self._ready()
        if self.process.stdin is not None:
            self.process.stdin.close()

    async def _ready(self) -> bool:
        """Answer questions until it is our turn to speak; False if nobody listens any more."""
        while await self._hear():
            if self.heard.endswith(YOU):
                return True
            self.asked += 1
            if self.rng.random() < _LEFT_OPEN and self.process.stdin is not None:
                self.process.stdin.close()
                return False
            is_yes = self.rng.random() < 0.5  # noqa: PLR2004 - one of two
            self.yeses += is_yes
            await self._type("y" if is_yes else self.rng.choice(_NOES))
        return False

    async def _hear(self) -> bool:
        """Read until a prompt stands at the end; False at the end of the output."""
        self.heard = ""
        while self.process.stdout is not None:
            piece = await self.process.stdout.read(_PIECE_BYTES)
            if not piece:
                return False
            self.heard += piece.decode("utf-8", "replace")
            if self.heard.endswith((YOU, QUESTION)):
                return True
        return False

    async def _type(self, line: str) -> None:
        if self.process.stdin is None:
            return
        try:
            self.process.stdin.write(f"{line}\n".encode())
            await self.process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            return


async def rest_of(process: Process) -> None:
    """Read what is left of the output, so that the process can end."""
    if process.stdout is not None:
        await process.stdout.read()


def rows_of(database: Path) -> Counter[tuple[str, ...]]:
    """Return what a person's data is: habits and tracker entries, each as often as it stands."""
    if not database.exists():
        return Counter()
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
        rows: Counter[tuple[str, ...]] = Counter()
        for table in sorted({"habit", "tracker_entry"} & tables):
            query = f"SELECT * FROM {table}"  # noqa: S608 - one of two names
            rows.update((table, *map(str, row)) for row in connection.execute(query))
        return rows


def is_sound(database: Path) -> str:
    """Return what SQLite finds wrong with the file; empty if nothing."""
    if not database.exists():
        return ""
    try:
        with closing(sqlite3.connect(database, timeout=30)) as connection:
            told = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
            broken = connection.execute("PRAGMA foreign_key_check").fetchall()
    except sqlite3.DatabaseError as error:
        return str(error)
    return "; ".join([*(each for each in told if each != "ok"), *map(str, broken)])
