"""A run while it plays: what can be said of it so far, seldom enough said to cost it nothing."""

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from lhkit.harness.log import (
    MANIFEST,
    RECORDS,
    Questions,
    asked_of,
    open_records,
    read_manifest,
    record_of_line,
)
from lhkit.harness.rates import counted_interval
from lhkit.harness.record import SampleId, SampleRecord, Verdict
from lhkit.harness.shares import Interval
from lhkit.locales import Catalog
from lhkit.text import one_line, percent, percents, printable, seconds

MOST = 5
"""So many of the slowest samples and of the newest failures are held."""

_REASON_CHARS = 80


@dataclass(slots=True)
class Rate:
    """Passes of a group so far; the repeats of a scenario belong together."""

    valid: int = 0
    passed: int = 0
    _sizes: dict[str, int] = field(default_factory=dict)
    _passes: dict[str, int] = field(default_factory=dict)

    def take(self, scenario: str, *, is_pass: bool) -> None:
        """Count one more result."""
        self.valid += 1
        self.passed += is_pass
        self._sizes[scenario] = self._sizes.get(scenario, 0) + 1
        self._passes[scenario] = self._passes.get(scenario, 0) + is_pass

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the pass rate, as in the table at the end."""
        return counted_interval(tuple(self._passes.values()), tuple(self._sizes.values()))


class Watched:
    """What can be said of a run so far. It takes a sample in some microseconds.

    Args:
        asked: how many samples there will be; None if nobody said.
    """

    def __init__(self, asked: int | None = None) -> None:
        self.asked = asked
        self.ended = 0
        self.invalid = 0
        self.total = Rate()
        self.by_ac: dict[str, Rate] = {}
        self.last: SampleRecord | None = None
        self._slow: list[tuple[float, int, SampleRecord]] = []
        self._failures: deque[SampleRecord] = deque(maxlen=MOST)

    @property
    def is_over(self) -> bool:
        """True when all that were asked for have ended."""
        return self.asked is not None and self.ended >= self.asked

    @property
    def slowest(self) -> tuple[SampleRecord, ...]:
        """The slowest samples, the slowest first."""
        return tuple(record for *_, record in sorted(self._slow, reverse=True))

    @property
    def failures(self) -> tuple[SampleRecord, ...]:
        """The newest samples that did not pass, the newest last."""
        return tuple(self._failures)

    def take(self, record: SampleRecord) -> None:
        """Count a sample that has ended."""
        self.ended += 1
        self.last = record
        slow = (turns_s(record), -self.ended, record)  # of equals the first one
        if len(self._slow) < MOST:
            heapq.heappush(self._slow, slow)
        elif slow > self._slow[0]:
            heapq.heapreplace(self._slow, slow)
        verdict = record.judgement.verdict
        if verdict is not Verdict.PASS:
            self._failures.append(record)
        if verdict is Verdict.INVALID:
            self.invalid += 1
            return
        scenario, is_pass = record.sample_id.scenario, verdict is Verdict.PASS
        self.total.take(scenario, is_pass=is_pass)
        if record.ac not in self.by_ac:
            self.by_ac[record.ac] = Rate()
        self.by_ac[record.ac].take(scenario, is_pass=is_pass)


def turns_s(record: SampleRecord) -> float:
    """Return how long a sample's turns took beside waiting for a person."""
    return sum(turn.active_s for turn in record.evidence.turns)


# The same in words, for a terminal and for a page.


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is shown of a run so far; nothing in it could hide or move a letter.

    `rates` are the criteria with their rates; of `slowest` and `failures` a sample's name, and what
    is said of it.
    """

    title: str
    rates: tuple[tuple[str, str], ...]
    slowest: tuple[tuple[str, str], ...]
    failures: tuple[tuple[str, str], ...]


def shown(state: Watched, catalog: Catalog) -> Shown:
    """Return what can be said of a run so far, in words."""
    return Shown(
        title=title(state, catalog),
        rates=tuple((printable(ac), rate_words(state.by_ac[ac])) for ac in sorted(state.by_ac)),
        slowest=tuple((name(each), sample_words(each)) for each in state.slowest),
        failures=tuple((name(each), sample_words(each)) for each in state.failures),
    )


def title(state: Watched, catalog: Catalog) -> str:
    """Return how many have ended, and the rate of all."""
    if state.asked is None:
        counts = catalog.text("watch.so_far", ended=state.ended)
    else:
        counts = catalog.text("watch.ended", ended=state.ended, asked=state.asked)
    invalid = catalog.text("matrix.invalid", count=state.invalid) if state.invalid else ""
    return " · ".join(filter(None, (counts, rate_words(state.total), invalid)))


def rate_words(rate: Rate) -> str:
    """Return a rate with its interval."""
    if not rate.valid:
        return "–"
    interval = rate.interval
    ends = f" [{percents(interval.low, interval.high)}]" if interval else ""
    return f"{rate.passed}/{rate.valid} {percent(rate.passed / rate.valid)}{ends}"


def name(record: SampleRecord) -> str:
    """Return what a sample is called."""
    return printable(str(record.sample_id))


def sample_words(record: SampleRecord, *, timed: bool = True) -> str:
    """Return a sample's verdict, time and first reason."""
    reason = next(iter(record.judgement.reasons), "")
    parts = (
        str(record.judgement.verdict),
        seconds(turns_s(record)) if timed else "",
        one_line(reason, max_chars=_REASON_CHARS),
    )
    return printable(" · ".join(filter(None, parts)))


# Seldom enough: drawing may take a hundredth of the time, however long a drawing takes.


FRAME_S = 0.25
"""At least so many seconds between two drawings."""

_SHARE = 100

Later: TypeAlias = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


class Watching:
    """Takes samples as they end, and has the state drawn: soon, but seldom.

    It is what `replay(…, watch=…)` is given. Called on the loop that plays. `spent_s` is what
    taking and drawing took, and `drawn` how often it was drawn.

    Args:
        state: what is watched.
        draw: shows the state.
        clock: monotonic seconds.
        later: calls what it is given after so many seconds; by default the loop that plays.
    """

    def __init__(
        self,
        state: Watched,
        draw: Callable[[Watched], object],
        *,
        clock: Callable[[], float] = time.perf_counter,
        later: Later | None = None,
    ) -> None:
        self.state = state
        self._show = draw
        self._clock = clock
        self._later = later
        self.spent_s = 0.0
        self.drawn = 0
        self._next_s = clock()
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, record: SampleRecord) -> None:
        """Take a sample that ended."""
        begun_s = self._clock()
        self.state.take(record)
        self.soon()
        self.spent_s += self._clock() - begun_s

    def soon(self) -> None:
        """Have the state drawn as soon as it may be."""
        if self._timer is None:
            wait_s = max(0.0, self._next_s - self._clock())
            later = self._later or asyncio.get_running_loop().call_later
            self._timer = later(wait_s, self.draw)

    def draw(self) -> None:
        """Draw the state now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        begun_s = self._clock()
        self._show(self.state)
        ended_s = self._clock()
        self.drawn += 1
        self.spent_s += ended_s - begun_s
        self._next_s = ended_s + max(FRAME_S, _SHARE * (ended_s - begun_s))


# A run that another process plays, by its folder.


class Followed:
    """A run folder that grows: what can be said of it is brought up to date by `read`.

    As in `Run.load`, the newest answer to what the newest invocation asked counts, a valid one
    before an invalid one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = Watched()
        self.is_over = False
        self._asked: Questions | None = None
        self._manifest: tuple[int, int] | None = None
        self._read_bytes = 0
        self._places: dict[SampleId, tuple[bool, int]] = {}

    def read(self) -> bool:
        """Take in what was written since; return whether anything was.

        Raises:
            RunError: the manifest is no manifest, or a line no record.
            OSError: the folder cannot be read.
        """
        is_told_anew = self._read_manifest()
        is_new = is_corrected = False
        path = self.folder / RECORDS
        if path.stat().st_size < self._read_bytes:  # somebody put others in their place
            self._begin()
        for place, line in _lines(path, self._read_bytes):
            self._read_bytes = place + len(line)
            record = record_of_line(line, str(path))
            if self._asked and self._asked.get(record.sample_id) != record.content_hash:
                continue
            is_valid = record.judgement.verdict is not Verdict.INVALID
            earlier = self._places.get(record.sample_id)
            if earlier is not None and earlier[0] and not is_valid:
                continue
            self._places[record.sample_id] = (is_valid, place)
            is_new = True
            if earlier is None:
                self.state.take(record)
            else:
                is_corrected = True
        if is_corrected:
            self._count_again(path)
        return is_new or is_told_anew

    def _read_manifest(self) -> bool:
        """Read what was asked, if that has changed; return whether it has."""
        path = self.folder / MANIFEST
        told = path.stat() if path.exists() else None
        mark = (told.st_mtime_ns, told.st_size) if told else None
        if mark == self._manifest:
            return False
        self._manifest = mark
        manifest = read_manifest(self.folder)
        asked = asked_of(manifest)
        last = (manifest.get("invocations") or [{}])[-1]  # written when it begins, and when it ends
        self.is_over = bool(last.get("ended_at") or last.get("wall_s")) or not asked
        if self._asked is None or dict(asked) != dict(self._asked):
            self._asked = asked
            self._begin()
        return True

    def _begin(self) -> None:
        self.state = Watched(len(self._asked) if self._asked else None)
        self._read_bytes = 0
        self._places = {}

    def _count_again(self, path: Path) -> None:
        self.state = Watched(self.state.asked)
        with open_records(path) as file:
            for _, place in sorted(self._places.values(), key=lambda each: each[1]):
                file.seek(place)
                self.state.take(record_of_line(file.readline(), str(path)))


def _lines(path: Path, begin: int) -> Iterator[tuple[int, bytes]]:
    """Yield the whole lines behind a place, each with its own place."""
    with open_records(path) as file:
        file.seek(begin)
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield begin, line
            begin += len(line)
