"""The replicas of one run on the side of the driver: started, kept up, given samples."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

from lhkit.errors import LhkitError, ServerUnreachableError, UsageError
from lhkit.harness.plan import PlannedSample
from lhkit.harness.run import Played
from lhkit.harness.scenario import Scenario
from lhkit.responses import ModelIdentity
from lhkit.scale.cluster import Cluster, LostError
from lhkit.scale.placement import LOCAL, Asked, Introduction, Part, Room

_log = logging.getLogger(__package__)

_GIVE_AFTER_S = 0.01
"""So long more is waited for what else is there, so that a message carries more than one sample."""

_LOOK_S = 2.0
_TELL_AFTER_S = 20.0
_END_S = 25.0
_DEATHS_A_REPLICA = 3
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


@dataclass(slots=True, kw_only=True, eq=False)
class _Life:
    """One actor from its start to its end, and what it has not finished yet, by ticket."""

    actor: Any
    is_up: bool = False
    has_finished: bool = False
    takes_soon: bool = False
    unfinished: dict[int, asyncio.Future[Played]] = field(default_factory=dict)
    outbox: list[Asked] = field(default_factory=list)


def _nobody_asks(_: Room) -> None:
    """Tell nobody."""


class RaySampleRunner:
    """The replicas of one run, kept up: `harness.run.SampleRunner` over a cluster.

    `async with RaySampleRunner(…) as runner:` begins as soon as one replica is ready. `waits` is
    called with the free room where none can be placed after a while.
    """

    def __init__(
        self,
        cluster: Cluster,
        part: Part,
        scenarios: Sequence[Scenario],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        waits: Callable[[Room], object] = _nobody_asks,
    ) -> None:
        self.deaths = 0
        self.server_s = 0.0
        self.causes: list[str] = []
        self._cluster = cluster
        self._part = part
        self._scenarios = scenarios
        self._numbers = {each.id: number for number, each in enumerate(scenarios)}
        self._sleep = sleep
        self._waits = waits
        self._has_waited = False
        self._identity: ModelIdentity | None = None
        self._has_begun = asyncio.Event()
        self._openings: list[Asked] = []
        self._lives: set[_Life] = set()
        self._room: deque[_Life] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._keepers: list[asyncio.Task[None]] = []
        self._in_a_row = 0
        self._tickets = 0
        self._fault: LhkitError | None = None

    @property
    def replicas(self) -> int:
        """How many there are to be."""
        return self._cluster.placement.replicas

    @property
    def up(self) -> int:
        """How many play."""
        return sum(each.is_up for each in self._lives)

    @property
    def at_once(self) -> int:
        """How many conversations all of them have together."""
        return self.replicas * self._part.at_once

    @property
    def identity(self) -> ModelIdentity | None:
        """What all of them say they are, None of a script; each has an address of its own."""
        if self._identity is None or self._part.options.base_urls:
            return self._identity
        return replace(self._identity, base_url="ray")

    @property
    def state(self) -> str:
        """A few words for the progress bar."""
        died = f", {self.deaths} died" if self.deaths else ""
        return f"{self.up} of {self.replicas} replicas{died}"

    async def __aenter__(self) -> Self:
        """Ask for all replicas and wait until one is ready.

        Raises:
            LhkitError: a replica says why it cannot be, or none can.
        """
        scenarios = self._cluster.keep(list(self._scenarios))
        for _ in range(self.replicas):
            self._keepers.append(asyncio.create_task(self._keep_up(scenarios)))
        try:
            await self._has_begun.wait()
            self._require_no_fault()
        except BaseException:
            await self.aclose()
            raise
        return self

    @property
    def _is_over(self) -> bool:
        return self._fault is not None

    def _require_no_fault(self) -> None:
        if self._fault is not None:
            raise self._fault

    async def __aexit__(self, *_: object) -> None:
        """End all replicas and their servers."""
        await self.aclose()

    async def aclose(self) -> None:
        """End all replicas: first as they like to, after a while for sure."""
        ending = [asyncio.ensure_future(self._ended(each)) for each in self._lives if each.is_up]
        if ending:
            await asyncio.wait(ending, timeout=_END_S)
        for task in self._keepers:
            task.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    async def play(self, job: PlannedSample, attempt: int) -> Played:
        """Have one sample played once; where its replica is lost, by another one.

        Raises:
            ServerUnreachableError: replicas were lost again and again and nothing got finished.
            UsageError: a node would ask another question.
        """
        while True:
            life = await self._with_room()
            self._tickets += 1
            ticket = self._tickets
            answer: asyncio.Future[Played] = asyncio.get_running_loop().create_future()
            life.unfinished[ticket] = answer
            self._send(life, self._asked(job, attempt, ticket))
            try:
                return await answer
            except LostError:
                continue
            finally:
                life.unfinished.pop(ticket, None)

    async def warm_up(self, openings: Sequence[PlannedSample]) -> int:
        """Have every replica read what many samples begin with, also those that come later."""
        self._openings = [self._asked(each, 1, 0) for each in openings]
        up = [each for each in self._lives if each.is_up]
        done = await asyncio.gather(*map(self._warm, up))
        return max(done, default=0)

    async def _warm(self, life: _Life) -> int:
        if not self._openings:
            return 0
        try:
            return int(await self._cluster.answer(life.actor.warm.remote(self._openings)))
        except LostError:  # whoever keeps it up is told as well
            return 0

    def _asked(self, job: PlannedSample, attempt: int, ticket: int) -> Asked:
        number = self._numbers[job.scenario.id]
        return Asked(ticket, number, job.repeat, job.content_hash, attempt)

    async def _with_room(self) -> _Life:
        """Return a replica that can take one more conversation, and count it there."""
        while True:
            self._require_no_fault()
            while self._room:
                life = self._room.popleft()
                if life.is_up:
                    return life
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def _make_room(self, life: _Life) -> None:
        if life.is_up:
            self._room.append(life)
            while self._waiting:
                waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    break

    def _send(self, life: _Life, asked: Asked) -> None:
        """Send a sample, with all others that come at the same time."""
        if not life.outbox and not life.takes_soon:
            asyncio.get_running_loop().call_later(_GIVE_AFTER_S, self._flush, life)
        life.outbox.append(asked)

    def _flush(self, life: _Life) -> None:
        asked, life.outbox = life.outbox, []
        if asked and life.is_up:
            life.actor.give.remote(asked)  # a fault shows where answers are taken

    async def _keep_up(self, scenarios: Any) -> None:
        """Have a replica, and another one whenever it is lost, until too many were."""
        pauses = 0
        while not self._is_over:
            life = _Life(actor=self._cluster.start(self._part, scenarios))
            self._lives.add(life)
            try:
                await self._live(life)
            except LostError as error:
                self._count_death(str(error))
            except LhkitError as error:
                _log.warning("a replica fails: %s", error)
                if isinstance(error, UsageError) or not self._has_begun.is_set():
                    self._stop(error)
                else:
                    self._count_death(str(error))
            finally:
                self._bury(life)
            pauses = 0 if life.has_finished else pauses + 1
            if pauses > 1 and not self._is_over:
                await self._sleep(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (pauses - 2)))

    async def _live(self, life: _Life) -> None:
        """Begin a replica, and hear what it has finished for as long as it is there."""
        told: Introduction = await self._begun(life)
        if self._has_begun.is_set():
            _require_one_model(self._identity, told.identity)
        else:
            self._identity, self.server_s = told.identity, told.server_s
        await self._warm(life)
        life.is_up = True
        self._has_begun.set()
        for _ in range(self._part.at_once):
            self._make_room(life)
        while True:
            life.takes_soon = True
            await asyncio.sleep(_GIVE_AFTER_S)  # whoever gets an answer has the next question
            asked, life.outbox, life.takes_soon = life.outbox, [], False
            for ticket, played in await self._cluster.answer(life.actor.take.remote(asked)):
                self._in_a_row, life.has_finished = 0, True
                answer = life.unfinished.pop(ticket, None)
                if answer is not None and not answer.done():
                    answer.set_result(played)
                self._make_room(life)

    async def _begun(self, life: _Life) -> Introduction:
        """Begin a replica where it has got a place; a fault names the node.

        Raises:
            LostError: it is gone, or no node could ever hold it.
            LhkitError: it says why it cannot be.
        """
        node = await self._placed(life)
        try:
            told: Introduction = await self._cluster.answer(life.actor.begin.remote())
        except LhkitError as error:
            error.args = (f"on node {node}: {error}",)
            await self._ended(life)
            raise
        _log.info("a replica plays on node %s, its server took %.1f s", node, told.server_s)
        return told

    async def _placed(self, life: _Life) -> str:
        """Wait for as long as a node could hold it, and for one that could a while only."""
        where = asyncio.ensure_future(self._cluster.answer(life.actor.where.remote()))
        is_local = self._cluster.placement.address == LOCAL
        patience_s = 0.0 if is_local else self._cluster.placement.patience_s
        unfit_s = waited_s = 0.0
        try:
            while not (await asyncio.wait({where}, timeout=_LOOK_S))[0]:
                waited_s += _LOOK_S
                unfit_s = 0.0 if self._cluster.fits() else unfit_s + _LOOK_S
                if unfit_s > patience_s and not self.up:
                    self._stop(ServerUnreachableError(self._cluster.unfit()))
                    raise LostError(self._cluster.unfit())
                if waited_s > _TELL_AFTER_S and not (self.up or self._has_waited):
                    self._has_waited = True
                    self._waits(self._cluster.free())
            node: str = where.result()
        finally:
            where.cancel()
        return node

    async def _ended(self, life: _Life) -> None:
        """Have a replica end as it likes to, and keep what its server has said."""
        with suppress(LostError, LhkitError):
            told: str = await self._cluster.answer(life.actor.end.remote())
            for line in told.splitlines():
                _log.info("(server) %s", line)

    def _count_death(self, why: str) -> None:
        _log.warning("a replica is lost: %s", why)
        self.deaths += 1
        self._in_a_row += 1
        if why not in self.causes:
            self.causes.append(why)
        if self._in_a_row >= _DEATHS_A_REPLICA * self.replicas:
            self._stop(
                ServerUnreachableError(
                    f"{self._in_a_row} replicas were lost in a row and nothing got finished ({why})"
                )
            )

    def _stop(self, fault: LhkitError) -> None:
        """Let nobody wait any more for a replica."""
        self._fault = self._fault or fault
        self._has_begun.set()
        for life in self._lives:
            for answer in life.unfinished.values():
                if not answer.done():
                    answer.set_exception(LostError(str(fault)))
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _bury(self, life: _Life) -> None:
        """Give back what a replica has not finished, and see that it is gone."""
        life.is_up = False
        self._lives.discard(life)
        self._cluster.end(life.actor)
        for answer in life.unfinished.values():
            if not answer.done():
                answer.set_exception(LostError("its replica is gone"))


def _require_one_model(first: ModelIdentity | None, other: ModelIdentity | None) -> None:
    """Refuse a replica that is another model than the first one.

    Raises:
        UsageError: it is.
    """
    if first is None or other is None or replace(other, base_url=first.base_url) == first:
        return
    raise UsageError(
        f"two replicas serve different models ({first} and {other}): give all nodes the same "
        "weights and the same vLLM"
    )
