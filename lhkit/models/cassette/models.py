"""Recorded responses of a model: one wrapper records them, its twin replays them exactly.

For notebooks and tests that must run without a server. It proves nothing about a model: a
request that was not recorded is refused, never guessed.
"""

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

from lhkit.errors import CassetteError, UsageError
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.cassette.file import (
    Cassette,
    Response,
    TimedEvent,
    encode_cassette,
    read_cassette,
    write_cassette,
)
from lhkit.models.cassette.request_parts import RequestParts, changes, nearest, parts_of
from lhkit.responses import Finished, ModelEvent, ModelIdentity

_TIME_DIGITS = 6


class RecordingModel:
    """Passes everything on to a model and from it, and records each complete response.

    The file at `path` is replaced after every response, beginning with the first: what stood
    there is gone then, and stays if nothing is recorded. Responses that failed or were abandoned
    are not recorded. Conversations may run at once: responses stand in the order in which they
    were complete. One recorder at a time writes to a path, and writes all of it each time: a
    cassette is for dozens of responses, not for a run.
    """

    def __init__(
        self, inner: ChatModel, path: str | Path, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._inner = inner
        self._path = Path(path)
        self._clock = clock
        self._cassette = Cassette(identity=inner.identity)
        self._unsaved = ""

    @property
    def identity(self) -> ModelIdentity:
        """Who answers: the inner model."""
        return self._inner.identity

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of the inner model; the response is on disk before its last one.

        Raises:
            ModelError: as the inner model.
            CassetteError: JSON cannot carry the request or the response, or the file cannot be
                written.
        """
        parts = parts_of(request)
        heard: list[TimedEvent] = []
        sent = self._clock()
        async with aclosing(self._inner.stream(request)) as events:
            async for event in events:
                heard.append(
                    TimedEvent(at_s=round(self._clock() - sent, _TIME_DIGITS), event=event)
                )
                if isinstance(event, Finished):
                    self._keep(Response(request=parts, events=tuple(heard)))
                yield event

    async def aclose(self) -> None:
        """Write what a full disk may have refused, and close the inner model.

        Raises:
            CassetteError: the file still cannot be written.
        """
        try:
            self._save()
        finally:
            await self._inner.aclose()

    def _keep(self, response: Response) -> None:
        cassette = Cassette(
            identity=self._cassette.identity, responses=(*self._cassette.responses, response)
        )
        self._unsaved = encode_cassette(cassette)
        self._cassette = cassette
        self._save()

    def _save(self) -> None:
        if self._unsaved:
            write_cassette(self._path, self._unsaved)
            self._unsaved = ""


class CassetteModel:
    """Replays the responses of a cassette: the same events, the same evidence. Use `open`.

    A request is found by its content. Recorded several times, it is answered in the recorded
    order, and after that always with the last answer, so that a notebook cell can be run again.
    Each model object starts at the first answer.

    `clock` is its recorded time: seconds that advance by what each response took when it was
    recorded, whatever the pace now. `replay` measures with it while conversations play one at a
    time, so that latencies are those of the recording.
    """

    def __init__(
        self,
        cassette: Cassette,
        path: Path,
        *,
        pace: float = 0.0,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        if not (math.isfinite(pace) and pace >= 0):
            raise UsageError(
                f"pace={pace} is no pace: give 0 (at once), 1 (as recorded) or between"
            )
        self._cassette = cassette
        self._path = path
        self._pace = pace
        self._sleep = sleep
        self._recorded_s = 0.0
        self._answers: defaultdict[str, list[Response]] = defaultdict(list)
        self._played: Counter[str] = Counter()
        for response in cassette.responses:
            self._answers[response.request.key].append(response)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        pace: float = 0.0,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> "CassetteModel":
        """Read a cassette.

        Args:
            path: what `RecordingModel` wrote.
            pace: 0 replays at once, 1 in recorded time, 2 in twice that time.
            sleep: waits so many seconds.

        Raises:
            CassetteError: there is none, or it is broken.
            UsageError: `pace` is negative or no number.
        """
        return cls(read_cassette(Path(path)), Path(path), pace=pace, sleep=sleep)

    @property
    def identity(self) -> ModelIdentity:
        """Who answered when it was recorded."""
        return self._cassette.identity

    def clock(self) -> float:
        """Return the recorded time that has been played so far, in seconds."""
        return self._recorded_s

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the recorded events.

        Raises:
            CassetteError: the request was not recorded; the message shows what changed.
        """
        now_s = 0.0
        for timed in self._next_answer(parts_of(request)).events:
            gap_s = max(0.0, timed.at_s - now_s)
            if self._pace and gap_s:
                await self._sleep(gap_s * self._pace)
            self._recorded_s += gap_s
            now_s += gap_s
            yield timed.event

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    def _next_answer(self, asked: RequestParts) -> Response:
        answers = self._answers.get(asked.key)
        if not answers:
            raise self._miss(asked)
        turn = min(self._played[asked.key], len(answers) - 1)
        self._played[asked.key] += 1
        return answers[turn]

    def _miss(self, asked: RequestParts) -> CassetteError:
        recorded = [response.request for response in self._cassette.responses]
        if not recorded:
            return CassetteError(f"the cassette {self._path} is empty: record it again")
        changed = changes(nearest(asked, recorded), asked)
        names = " and ".join(change.name for change in changed)
        diffs = "\n".join(change.diff() for change in changed)
        return CassetteError(
            f"the cassette {self._path} has no answer to this request, which differs from the "
            f"nearest recorded one in {names}: record it again with RecordingModel\n{diffs}"
        )
