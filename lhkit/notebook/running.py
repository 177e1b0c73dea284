"""What runs for a panel: one turn at a time, and the work that buttons started."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from lhkit.notebook.home_loop import HomeLoop

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
        return self.is_busy or bool(self._started)

    async def turn(self, work: Work, interrupt: Callable[[], None]) -> None:
        """Run a turn to its end. When the caller is cancelled, `interrupt` must end the turn."""
        self._loop.bind()
        self._turn = task = asyncio.create_task(work)
        try:
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
