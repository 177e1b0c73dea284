"""What the time of an invocation goes into: the model, or the writing of records."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lhkit.events import ChatEvent, ModelCalled, TurnEnded
from lhkit.responses import Finished


class WallClock:
    """What an invocation's time goes into: the model while any request is open, else the writing.

    All conversations share one. `clock` gives monotonic seconds of the machine.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun_s = self._since_s = clock()
        self._requests = self._writes = 0
        self._model_s = self._writing_s = 0.0

    def seconds(self) -> dict[str, Any]:
        """Return what has gone by and into what, by the names that an invocation has for it."""
        whole_s = self._clock() - self._begun_s
        return {"wall_s": whole_s, "model_s": self._model_s, "writing_s": self._writing_s}

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Count the block as a request that is open."""
        self._shift(requests=1)
        try:
            yield
        finally:
            self._shift(requests=-1)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count the block as records that are being written."""
        self._shift(writes=1)
        try:
            yield
        finally:
            self._shift(writes=-1)

    def listener(self) -> Callable[[ChatEvent], None]:
        """Return a subscriber for one conversation: its requests count while they are open."""
        is_open = False

        def hear(event: ChatEvent) -> None:
            nonlocal is_open
            if isinstance(event, ModelCalled):
                is_open = True
                self._shift(requests=1)
            elif is_open and isinstance(event, Finished | TurnEnded):
                is_open = False
                self._shift(requests=-1)

        return hear

    def _shift(self, *, requests: int = 0, writes: int = 0) -> None:
        now_s = self._clock()
        if self._requests:
            self._model_s += now_s - self._since_s
        elif self._writes:
            self._writing_s += now_s - self._since_s
        self._since_s = now_s
        self._requests += requests
        self._writes += writes
