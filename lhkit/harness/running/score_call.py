"""Calling a score of one sample: within its limit, and whatever it does is a result.

A function that is not async runs in a thread of its own. Async ones share an event loop in a thread
of lhkit, so that a client works for all of them. What exceeds its limit is left behind in its
thread; another loop replaces one that is blocked.
"""

import asyncio
import concurrent.futures
import contextvars
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from itertools import islice
from numbers import Real
from threading import Thread
from typing import Any, ClassVar, Final, TypeVar, cast

from lhkit.base.json_values import safe_repr
from lhkit.base.text import one_line
from lhkit.harness.records.score_record import JudgeAnswer, ScoreValue
from lhkit.harness.running.scores import (
    JudgeFunction,
    Score,
    ScoreFailure,
    is_async,
    name_issue,
)
from lhkit.harness.views.sample import Sample
from lhkit.toolset import user_code_location

MAX_REASON_CHARS = 2_000
MAX_VALUES = 100
MAX_NUMBER = 1e100
"""Of larger ones no mean can be computed."""

TIMEOUT = "it took longer than"

_CALLS = 4
"""Calls for one sample, if each time another score blocks the event loop."""
_ANSWER_S = 1.0
"""An event loop that does not answer for so long is blocked."""
_CLOSE_S = 10.0
_ERROR_CHARS = 300
_T = TypeVar("_T")

_log = logging.getLogger(__name__)

_calls: Final[dict[asyncio.Task[Any], Score]] = {}
"""The calls in event loops: an event loop does not keep its tasks alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a call of a score resulted in: values, or why there are none."""

    values: tuple[ScoreValue, ...] = ()
    error: str = ""
    answer: JudgeAnswer | None = None


async def call_score(score: Score, sample: Sample) -> Outcome:
    """Return the outcome of a score of one sample."""
    function = score.function

    def call() -> Outcome | Awaitable[Any]:
        try:
            returned = function(sample)
            return returned if inspect.isawaitable(returned) else _read(score, returned)
        except BaseException as error:  # noqa: BLE001 - boundary: the user's code
            return _failed(error)

    outcome: Outcome | Awaitable[Any] | None = None
    if _is_callers(function):
        task = asyncio.ensure_future(_awaited(score, lambda: function(sample)))
        outcome = await _within(task, score.limit_s)
    elif is_async(function):
        outcome = await _in_loop(score, lambda: function(sample))
    else:
        outcome = await _within(_in_thread(call), score.limit_s)
        if outcome is not None and not isinstance(outcome, Outcome):
            awaitable = outcome
            outcome = await _in_loop(score, lambda: awaitable)
    return outcome or Outcome(error=f"{TIMEOUT} {score.limit_s:g} seconds")


async def close_score(score: Score) -> None:
    """Close the model of a judge."""
    function = score.function
    if not isinstance(function, JudgeFunction):
        return
    closing = function.aclose()
    is_callers = _is_callers(function)
    future = asyncio.ensure_future(closing) if is_callers else ScoreLoop.running().submit(closing)
    try:
        await asyncio.wait({future}, timeout=_CLOSE_S)
        if future.done() and not future.cancelled() and (error := future.exception()):
            _log.warning("the model of the judge %s cannot be closed: %s", score.name, error)
    finally:
        future.cancel()


def _is_callers(function: Any) -> bool:
    return isinstance(function, JudgeFunction) and function.is_callers


class ScoreLoop:
    """An event loop in a thread of its own, for the calls of async scores.

    Attributes:
        culprit: the score that blocks it, once it is replaced; None if that is not known.
    """

    _running: ClassVar["ScoreLoop | None"] = None

    def __init__(self) -> None:
        self.culprit: Score | None = None
        self._loop = asyncio.new_event_loop()
        self._jobs = set[asyncio.Future[Any]]()
        self._thread = Thread(target=self._work, name="lhkit-scores", daemon=True)
        self._thread.start()

    @classmethod
    def running(cls) -> "ScoreLoop":
        """Return the event loop of this process."""
        if cls._running is None or not cls._running._thread.is_alive():  # a fork has no threads
            cls._running = cls()
        return cls._running

    def _work(self) -> None:
        while True:  # a score may stop the loop
            self._loop.run_forever()

    def submit(self, call: Coroutine[Any, Any, _T]) -> "asyncio.Future[_T]":
        """Run a coroutine in this event loop, in the context of the caller."""
        job = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return job

    @property
    def is_replaced(self) -> bool:
        """Whether another event loop has replaced this one, since it was blocked."""
        return ScoreLoop._running is not self

    async def find_blocking(self, late: Score) -> Score | None:
        """Return the score that blocks the event loop, if one does; the loop is replaced then.

        Args:
            late: a score that exceeded its limit; the one that blocks, if no other is known to.
        """
        answer = self.submit(asyncio.sleep(0, result=True))
        if await _within(answer, min(_ANSWER_S, late.limit_s)):
            return None
        if not self.is_replaced:
            ScoreLoop._running = None
            task = asyncio.current_task(self._loop)
            self.culprit = None if task is None else _calls.get(task)
            for job in tuple(self._jobs):
                job.get_loop().call_soon_threadsafe(job.cancel)
        return self.culprit or late


async def _in_loop(score: Score, make: Callable[[], Awaitable[Any]]) -> Outcome | None:
    """Return the outcome of an async call; None after its limit.

    It is called again if another score blocked the event loop.
    """
    for _ in range(_CALLS):
        loop = ScoreLoop.running()
        if outcome := await _within(loop.submit(_awaited(score, make)), score.limit_s):
            return outcome
        blocking = loop.culprit if loop.is_replaced else await loop.find_blocking(score)
        if blocking is score or (blocking is None and not loop.is_replaced):
            break
    return None


async def _awaited(score: Score, make: Callable[[], Awaitable[Any]]) -> Outcome:
    task = cast("asyncio.Task[Outcome]", asyncio.current_task())
    _calls[task] = score
    try:
        return _read(score, await make())
    except asyncio.CancelledError:  # after the limit this is not seen
        return Outcome(error="it was cancelled")
    except BaseException as error:  # noqa: BLE001 - boundary: an exit would end the event loop
        return _failed(error)
    finally:
        del _calls[task]


async def _within(future: "asyncio.Future[_T]", limit_s: float) -> _T | None:
    """Return the result of a future; None if it has none after so many seconds."""
    try:
        await asyncio.wait({future}, timeout=limit_s)
        return future.result() if future.done() and not future.cancelled() else None
    finally:
        future.cancel()


def _in_thread(call: Callable[[], _T]) -> "asyncio.Future[_T]":
    """Call a function in a thread that does not keep the process alive."""
    future: concurrent.futures.Future[_T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()  # its thread sets a result in any case
    context = contextvars.copy_context()

    def work() -> None:
        future.set_result(context.run(call))

    Thread(target=work, name="lhkit-score", daemon=True).start()
    return asyncio.wrap_future(future)


def _failed(error: BaseException) -> Outcome:
    if isinstance(error, ScoreFailure):
        return Outcome(error=str(error), answer=error.answer)
    return Outcome(error=_error_text(error))


def _error_text(error: BaseException) -> str:
    """Return type, message and place of an exception, on one line."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - of the user's class
        message = ""
    text = f"{type(error).__name__}: {message}".rstrip(": ")
    location = user_code_location(error)
    return one_line(text, max_chars=_ERROR_CHARS) + (f" ({location})" if location else "")


def _read(score: Score, returned: Any) -> Outcome:
    """Return the values in what a score returned, and the answer of a judge.

    Raises:
        ScoreFailure: it is invalid.
    """
    answer: JudgeAnswer | None = None
    if isinstance(score.function, JudgeFunction) and isinstance(returned, JudgeAnswer):
        answer = returned
        try:
            returned = score.function.value(answer)
        except ScoreFailure as failure:
            failure.answer = answer
            raise
    return Outcome(values=tuple(score_values(score, returned)), answer=answer)


def score_values(score: Score, returned: Any) -> Iterator[ScoreValue]:
    """Yield the values in what a score returned; none if it does not apply.

    Raises:
        ScoreFailure: it is not valid; the message says why.
    """
    if returned is None:
        return
    if not isinstance(returned, Mapping):
        yield _value(score.name, returned, is_check=score.fails)
        return
    items = list(islice(returned.items(), MAX_VALUES + 1))  # of the user's class, even without end
    if (count := max(len(items), len(returned))) > MAX_VALUES:
        raise ScoreFailure(f"it returned {count} values, more than {MAX_VALUES}")
    for key, value in items:
        if issue := name_issue(key):
            raise ScoreFailure(f"it returned a mapping with an invalid key: {issue}")
        yield _value(f"{score.name}.{key}", value, is_check=score.fails)


def _value(name: str, value: Any, *, is_check: bool) -> ScoreValue:
    if getattr(value, "shape", None) == ():  # of NumPy and the like
        value = value.item()
    if value is None or isinstance(value, bool):
        return ScoreValue(name=name, value=value)
    if isinstance(value, str) and not isinstance(value, Enum):
        return ScoreValue(name=name, value=False, reason=_reason(value))
    shown = one_line(safe_repr(value), max_chars=80)
    if not isinstance(value, Real | Decimal):
        raise ScoreFailure(
            f"it returned {type(value).__name__} ({shown}). Return a bool, a number, a text, None, "
            "or a mapping of names to these"
        )
    if is_check:
        raise ScoreFailure(
            f"a check returned the number {shown}. Return True, False, a text (the reason) or None"
        )
    try:
        number = float(value)
    except (OverflowError, ValueError) as error:
        raise ScoreFailure(f"it returned {shown}, which is not a number of this machine") from error
    if abs(number) > MAX_NUMBER and math.isfinite(number):
        raise ScoreFailure(f"it returned {shown}, which is not a number of this machine")
    if not math.isfinite(number):
        raise ScoreFailure(f"it returned {number}. Return None if it does not apply")
    return ScoreValue(name=name, value=number)


def _reason(text: str) -> str:
    if not text.strip():
        raise ScoreFailure("it returned an empty text. Return True, or the reason of a False")
    if len(text) > MAX_REASON_CHARS:
        raise ScoreFailure(
            f"it returned a text of {len(text):,} characters, more than {MAX_REASON_CHARS:,}"
        )
    return str.__str__(text)
