"""The event loop that owns a panel, reached from any thread.

Callbacks of widgets may run in another thread with another loop (ipykernel's subshells), so they
only hand over to this one.
"""

import asyncio
from collections.abc import Callable
from typing import Any


class HomeLoop:
    """The loop that ran when this was made, or the first one that `bind` meets."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # made outside a loop: bound by the first awaited method
            return

    def bind(self) -> asyncio.AbstractEventLoop:
        """Return the loop; it must be called from a coroutine on it."""
        running = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = running
        return self._loop

    def hand_over(self, call: Callable[..., Any], *args: Any) -> None:
        """Run `call` on the loop, soon. Any thread; nothing happens where there is no loop."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)

    def later(self, delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle | None:
        """Run `call` on the loop after `delay_s`; None where no loop runs. The loop's thread."""
        if self._loop is None or not self._loop.is_running():
            return None
        return self._loop.call_later(delay_s, call)
