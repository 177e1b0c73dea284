"""Input lines of a chat: from a terminal, a pipe or a file."""

import asyncio
import os
import select
import sys
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from lhkit.confirm.terminal import discard_pending_input

LineReader: TypeAlias = Callable[[str], Awaitable[str]]
"""Shows a prompt and returns one line.

Raises EOFError at the end of input, KeyboardInterrupt on Ctrl-C.
"""

_CHUNK_BYTES = 4096


class TypedLines:
    """Lines typed into a terminal, with editing and history.

    What is typed while the model answers is the next message, unless a question comes first: then
    it is discarded.
    """

    def __init__(self) -> None:
        from prompt_toolkit import PromptSession

        self._session: PromptSession[str] = PromptSession()

    async def read(self, prompt: str) -> str:
        """Show a prompt and return one line, as `LineReader`."""
        return str(await self._session.prompt_async(prompt))

    async def forget(self) -> bool:
        """Discard what was typed until now and during the guard time."""
        return await discard_pending_input()


class PipedLines:
    """Lines of a pipe or a file, for scripts.

    A prompt takes one line, and so does a question. A line that was readable before the question
    was shown is taken, but the answer is no. So a file can never confirm a write; a program that
    waits for the question can.

    Args:
        descriptor: file descriptor to read UTF-8 from.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self._has_ended = False
        self._is_early = False

    async def read(self, prompt: str) -> str:
        """Show a prompt, then return and echo one line; empty for an early answer."""
        is_early, self._is_early = self._is_early, False
        sys.stdout.write(prompt)
        sys.stdout.flush()
        while b"\n" not in self._buffer and not self._has_ended:
            await self._wait_readable()
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
            self._buffer += chunk
            self._has_ended = not chunk
        if not self._buffer:
            raise EOFError
        line, _, self._buffer = self._buffer.partition(b"\n")
        text = line.decode("utf-8", "replace")
        sys.stdout.write(f"{text}\n")
        return "" if is_early else text

    async def forget(self) -> bool:
        """Mark a line that is already readable as an early answer."""
        if not self._buffer and self._is_readable():
            self._buffer = os.read(self._descriptor, _CHUNK_BYTES)
            self._has_ended = not self._buffer
        self._is_early = bool(self._buffer)
        return self._is_early

    def _is_readable(self) -> bool:
        return bool(select.select([self._descriptor], [], [], 0)[0])

    async def _wait_readable(self) -> None:
        if self._is_readable():  # also a file, which an event loop cannot watch
            return
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._descriptor, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._descriptor)


InputLines: TypeAlias = TypedLines | PipedLines


def input_lines() -> InputLines:
    """Return lines of the terminal, or of the pipe or file on standard input."""
    return TypedLines() if sys.stdin.isatty() else PipedLines(sys.stdin.fileno())
