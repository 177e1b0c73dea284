"""The lines of a person: typed into a terminal, or of a pipe or a file in its place."""

import asyncio
import os
import select
import sys
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from lhkit.confirm.terminal import discard_pending_input

LineReader: TypeAlias = Callable[[str], Awaitable[str]]
"""Shows a prompt and returns one line.

Raises EOFError at the end of input, KeyboardInterrupt on Ctrl-C.
"""

_PIECE_BYTES = 4096


class InputLines(Protocol):
    """Where the lines of a person come from."""

    async def read(self, prompt: str) -> str:
        """Show a prompt and return one line, as `LineReader`."""
        ...

    async def forget(self) -> bool:
        """Make sure that no line from before now answers a question, as `TerminalGate` asks."""
        ...


class TypedLines:
    """Lines that are typed into a terminal, with editing and history.

    What is typed while the model speaks is the next line of the chat, unless a question comes
    first: then it is thrown away, and the chat says so.
    """

    def __init__(self) -> None:
        from prompt_toolkit import PromptSession

        self._session: PromptSession[str] = PromptSession()

    async def read(self, prompt: str) -> str:
        """Show a prompt and return one line, as `LineReader`."""
        return str(await self._session.prompt_async(prompt))

    async def forget(self) -> bool:
        """Throw away what was typed so far, and for the length of the guard."""
        return await discard_pending_input()


class PipedLines:
    """Lines of a pipe or a file in place of a terminal, for scripts.

    Each prompt takes one line, each question too, so that a script stays in step with the chat. A
    line that could be read before the question was shown is no answer to it, whatever it says: the
    question then takes that line and is answered no. So a file, or text piped in at once, can say
    no but never yes; a program that waits for the question before it writes can say both.

    Args:
        descriptor: the file descriptor to read from; UTF-8.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self._has_ended = False
        self._is_early = False

    async def read(self, prompt: str) -> str:
        """Show a prompt and return one line, which is shown, too; empty for an early answer."""
        is_early, self._is_early = self._is_early, False
        sys.stdout.write(prompt)
        sys.stdout.flush()
        while b"\n" not in self._rest and not self._has_ended:
            await self._until_readable()
            piece = os.read(self._descriptor, _PIECE_BYTES)
            self._rest += piece
            self._has_ended = not piece
        if not self._rest:
            raise EOFError
        line, _, self._rest = self._rest.partition(b"\n")
        text = line.decode("utf-8", "replace")
        sys.stdout.write(f"{text}\n")
        return "" if is_early else text

    async def forget(self) -> bool:
        """Make the next line, if there is one already, no answer."""
        if not self._rest and self._is_readable():
            self._rest = os.read(self._descriptor, _PIECE_BYTES)
            self._has_ended = not self._rest
        self._is_early = bool(self._rest)
        return self._is_early

    def _is_readable(self) -> bool:
        return bool(select.select([self._descriptor], [], [], 0)[0])

    async def _until_readable(self) -> None:
        if self._is_readable():  # also: a file, which no event loop can wait for
            return
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._descriptor, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._descriptor)


def input_lines() -> InputLines:
    """Return the lines of the terminal, or of what stands in its place."""
    return TypedLines() if sys.stdin.isatty() else PipedLines(sys.stdin.fileno())
