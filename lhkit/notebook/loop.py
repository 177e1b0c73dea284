"""The event loop that owns a panel, and what runs on it: one turn at a time, and buttons' work.

Callbacks of widgets may run in another thread with another loop (ipykernel's subshells), so they
only hand over to this one.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias


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


HEARTBEAT_S = 0.25
"""How long an await may sleep: an Interrupt is only seen when the loop wakes."""

Work: TypeAlias = Coroutine[Any, Any, None]


class Running:
    """Owns the tasks of one panel, all of them on its loop.

    Args:
        loop: the loop of the panel.
        failed: is told of a fault in work that nobody awaits.
    """

    def __init__(self, loop: HomeLoop, failed: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._failed = failed
        self._turn: asyncio.Task[None] | None = None
        self._started: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """True while a turn runs."""
        return self._turn is not None

    @property
    def is_active(self) -> bool:
        """True while a turn runs or a button's work is about to begin one."""
        return self.is_busy or not all(task.done() for task in self._started)

    async def turn(self, work: Work, interrupt: Callable[[], None]) -> None:
        """Run a turn to its end. When the caller is cancelled, `interrupt` must end the turn."""
        self._loop.bind()
        self._turn = task = asyncio.create_task(work)
        try:
            with _ended_by_signal(lambda: self._loop.hand_over(interrupt)):
                while not task.done():
                    await asyncio.wait({task}, timeout=HEARTBEAT_S)
            task.result()
        except (asyncio.CancelledError, KeyboardInterrupt):
            while not task.done():
                interrupt()
                await asyncio.wait({task}, timeout=HEARTBEAT_S)
            raise
        finally:
            self._turn = None

    def start(self, work: Work) -> None:
        """Begin work for a button; its fault is told."""
        task = asyncio.ensure_future(work)
        self._started.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._started.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)


@contextmanager
def _ended_by_signal(interrupt: Callable[[], None]) -> Iterator[None]:
    """Let Jupyter's Interrupt end a turn that a button began.

    While no cell runs a kernel ignores the signal; while one does, the signal is the cell's.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    is_over = False

    def on_signal(*_: object) -> None:
        if not is_over:  # a cell that ran meanwhile may put this back when it ends
            interrupt()

    signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        is_over = True
        if signal.getsignal(signal.SIGINT) is on_signal:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
