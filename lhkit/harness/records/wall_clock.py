"""Where the wall time of an invocation went, measured while it runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lhkit.conversation.events import ChatEvent, ModelCalled, TurnEnded
from lhkit.conversation.responses import Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBreakdown:
    """Where the wall time of one invocation went, in seconds; the parts add up to `wall_s`.

    Attributes:
        setup_s: start-up, reading of files and weights, without `server_s`.
        server_s: waiting for the server that was started for it.
        model_s: at least one request was open.
        writing_s: no request was open, and a record was being written.
        harness_s: the rest: initial states, rules, scoring.
    """

    setup_s: float = 0.0
    server_s: float = 0.0
    model_s: float = 0.0
    writing_s: float = 0.0
    harness_s: float = 0.0

    @property
    def wall_s(self) -> float:
        """The sum of the parts."""
        return self.setup_s + self.server_s + self.model_s + self.writing_s + self.harness_s

    @property
    def own_share(self) -> float | None:
        """The share of the wall time outside the model; None if it is zero."""
        return 1 - self.model_s / self.wall_s if self.wall_s else None


class WallClock:
    """Measures how long requests are open and, while none is, how long records are written.

    All conversations of an invocation share one.

    Args:
        clock: monotonic seconds of the machine.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started_s = self._since_s = clock()
        self._requests = self._writes = 0
        self._model_s = self._writing_s = 0.0
        self._unanswered = 0

    @property
    def is_reading(self) -> bool:
        """Whether requests are open, and nothing of any answer has arrived yet."""
        return self._requests > 0 and self._unanswered == self._requests

    def seconds(self) -> dict[str, Any]:
        """Return the elapsed seconds under the names of the fields of `Invocation`."""
        elapsed_s = self._clock() - self._started_s
        return {"wall_s": elapsed_s, "model_s": self._model_s, "writing_s": self._writing_s}

    @contextmanager
    def request(self, *, is_reading: bool = False) -> Iterator[None]:
        """Count the block as an open request.

        Args:
            is_reading: the model only reads: nothing of an answer arrives before its end.
        """
        self._shift(requests=1)
        self._unanswered += is_reading
        try:
            yield
        finally:
            self._unanswered -= is_reading
            self._shift(requests=-1)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count the block as writing of records."""
        self._shift(writes=1)
        try:
            yield
        finally:
            self._shift(writes=-1)

    def listener(self) -> Callable[[ChatEvent], None]:
        """Return an event handler that counts the requests of one conversation."""
        is_open = is_answered = False

        def handle(event: ChatEvent) -> None:
            nonlocal is_open, is_answered
            if isinstance(event, ModelCalled):
                is_open, is_answered = True, False
                self._shift(requests=1)
                self._unanswered += 1
            elif is_open:
                self._unanswered -= not is_answered
                is_answered = True
                if isinstance(event, Finished | TurnEnded):
                    is_open = False
                    self._shift(requests=-1)

        return handle

    def _shift(self, *, requests: int = 0, writes: int = 0) -> None:
        now_s = self._clock()
        if self._requests:
            self._model_s += now_s - self._since_s
        elif self._writes:
            self._writing_s += now_s - self._since_s
        self._since_s = now_s
        self._requests += requests
        self._writes += writes
