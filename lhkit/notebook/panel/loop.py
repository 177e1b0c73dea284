"""The event loop of a panel, and its tasks: one turn at a time, and work started by buttons.

Widget callbacks may run in another thread with another loop (ipykernel's subshells), so they only
schedule calls on this one.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias


class HomeLoop:
    """The loop that was running at construction, or at the first `bind`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # bound by the first awaited method
            return

    def bind(self) -> asyncio.AbstractEventLoop:
        """Return the loop, or bind the running one; call it from a coroutine."""
        running = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = running
        return self._loop

    def call_soon(self, call: Callable[..., Any], *args: Any) -> None:
        """Run `call` on the loop soon, from any thread; ignored without a loop."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle | None:
        """Run `call` after `delay_s` seconds; None if the loop is not running."""
        if self._loop is None or not self._loop.is_running():
            return None
        return self._loop.call_later(delay_s, call)


HEARTBEAT_S = 0.25
"""The longest sleep of an await: an interrupt is noticed only when the loop wakes."""

Work: TypeAlias = Coroutine[Any, Any, None]


class PanelTasks:
    """The tasks of a panel, on its loop.

    Args:
        loop: the loop of the panel.
        on_error: called with the error of work that is not awaited.
    """

    def __init__(self, loop: HomeLoop, on_error: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._on_error = on_error
        self._turn: asyncio.Task[None] | None = None
        self._started: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """True while a turn runs."""
        return self._turn is not None

    @property
    def is_active(self) -> bool:
        """True while a turn runs, or work of a button is about to begin one."""
        return self.is_busy or not all(task.done() for task in self._started)

    async def run_turn(self, work: Work, interrupt: Callable[[], None]) -> None:
        """Run a turn to its end; `interrupt` must end it when the caller is cancelled."""
        self._loop.bind()
        self._turn = task = asyncio.create_task(work)
        try:
            with _interrupted_by_signal(lambda: self._loop.call_soon(interrupt)):
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
        """Start work of a button in the background; an error goes to `on_error`."""
        task = asyncio.ensure_future(work)
        self._started.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._started.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_error(error)


@contextmanager
def _interrupted_by_signal(interrupt: Callable[[], None]) -> Iterator[None]:
    """Let Jupyter's Interrupt end a turn that a button started.

    A kernel ignores the signal while no cell runs; while one does, the signal belongs to the cell.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    is_over = False

    def on_signal(*_: object) -> None:
        if not is_over:  # a cell that ran meanwhile may restore this handler
            interrupt()

    signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        is_over = True
        if signal.getsignal(signal.SIGINT) is on_signal:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
