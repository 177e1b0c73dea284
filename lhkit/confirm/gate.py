"""The confirm gate: one question, answered yes only by an explicit "run".

Fail closed: cancel, dismissal, a time-out, a second question while one is open and any internal
error all mean no. Not covered: a person who clicks Run without reading.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from lhkit.locales import Catalog, load_catalog
from lhkit.vocab.json_values import JSON
from lhkit.vocab.printable import printable

_log = logging.getLogger(__name__)

_YES = frozenset({"y", "yes", "ㅛ", "네", "예"})  # ㅛ is the Y key of a Korean layout


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmRequest:
    """What the user is asked: the tool, what it does, its validated arguments, a summary."""

    tool: str
    description: str
    args: Mapping[str, JSON]
    summary: str


class ConfirmGate(Protocol):
    """Asks the user about one destructive call."""

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return True only if the user explicitly said to run it."""
        ...


class DenyGate:
    """Says no to everything."""

    async def confirm(self, request: ConfirmRequest) -> bool:  # noqa: ARG002 - the protocol's name
        """Return False."""
        return False


class ScriptedGate:
    """Answers from a script, for tests and replay; keeps what it was asked.

    When the script has run out, the answer is no.
    """

    def __init__(self, answers: Iterable[bool]) -> None:
        self._answers = iter(answers)
        self.asked: list[ConfirmRequest] = []

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return the script's next answer."""
        self.asked.append(request)
        return next(self._answers, False) is True


class GuardedGate:
    """Wraps a gate that waits for a person: one question at a time, optional time-out, no raise."""

    def __init__(self, inner: ConfirmGate, *, timeout_s: float | None = None) -> None:
        self._inner = inner
        self._timeout_s = timeout_s
        self._is_open = False

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return the inner gate's answer; False if busy, too late or broken."""
        if self._is_open:
            return False
        self._is_open = True
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._inner.confirm(request) is True
        except Exception:  # noqa: BLE001 - boundary: a broken gate means no
            _log.warning("the confirm gate failed for %s: answered no", request.tool, exc_info=True)
            return False
        finally:
            self._is_open = False


def is_yes(line: str) -> bool:
    """Return True if what a person typed is an explicit yes."""
    return line.strip().casefold() in _YES


class TerminalGate:
    """Asks `[y/N]` in a terminal. End of input and Ctrl-C mean no.

    Args:
        read: shows a prompt and returns one line; raises EOFError at the end of input.
        write: shows a line of text.
        catalog: the texts.
    """

    def __init__(
        self,
        read: Callable[[str], Awaitable[str]],
        write: Callable[[str], None],
        catalog: Catalog | None = None,
    ) -> None:
        self._read = read
        self._write = write
        self._catalog = catalog or load_catalog()

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Show what would be done and return True for an explicit yes."""
        self._write(printable(f"{request.tool}: {request.description}"))
        self._write(printable(request.summary))
        title = self._catalog.text("confirm.title")
        try:
            answer = await self._read(self._catalog.text("confirm.prompt", title=title))
        except (EOFError, KeyboardInterrupt):
            return False
        return is_yes(answer)
