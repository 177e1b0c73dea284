"""How far work on weights is: its stages, a line for people, and work that tells it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeVar

_T = TypeVar("_T")


class WeightsStage(StrEnum):
    """What is being done to the weights."""

    NOTICE = "notice"
    WAITING = "waiting"
    FETCHING = "fetching"
    CONVERTING = "converting"
    MERGING = "merging"
    CHECKING = "checking"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsProgress:
    """One step of progress: a line for people and, where bytes are counted, how many of how many.

    `total_bytes` is 0 where nothing is counted; `elapsed_s` is the time spent in this stage.
    """

    stage: WeightsStage
    text: str
    done_bytes: int = 0
    total_bytes: int = 0
    elapsed_s: float = 0.0


WeightsReport: TypeAlias = Callable[[WeightsProgress], None]


def silent(progress: WeightsProgress) -> None:
    """Report nothing."""


async def with_progress(
    work: Awaitable[None], report: WeightsReport, stage: WeightsStage, text: str
) -> None:
    """Wait for `work` and tell once a second how long it has taken; it ends with the waiter."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            report(WeightsProgress(stage=stage, text=text, elapsed_s=loop.time() - began_s))
            await asyncio.wait({task}, timeout=1.0)
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def in_thread(iterator: Iterator[_T]) -> AsyncIterator[_T]:
    """Yield what `iterator` yields; each step is taken in a thread. It must not yield None."""
    while (item := await asyncio.to_thread(next, iterator, None)) is not None:
        yield item
