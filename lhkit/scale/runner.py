"""The driver's side of the replicas of one run: it starts and replaces them and sends samples."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

from lhkit.base.errors import LhkitError, ServerUnreachableError, UsageError
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.running.plan import PlannedSample
from lhkit.harness.running.run import EncodedRecord
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.scale.cluster import Cluster, ReplicaLostError
from lhkit.scale.placement import LOCAL, ReplicaConfig, ReplicaInfo, Resources, SampleRequest

_log = logging.getLogger(__package__)

_SEND_AFTER_S = 0.01
"""The delay before samples are sent, so that one message carries several."""

_POLL_S = 2.0
_REPORT_WAIT_AFTER_S = 20.0
_NODE_TIMEOUT_S = 300.0
"""The wait for a node that is large enough; a cluster may be adding nodes."""

_STOP_TIMEOUT_S = 25.0
_LOSSES_PER_REPLICA = 3
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


@dataclass(slots=True, kw_only=True, eq=False)
class _Replica:
    """One actor from its start to its end; `unfinished` are its samples by ticket."""

    actor: Any
    is_up: bool = False
    has_finished_one: bool = False
    collects_soon: bool = False
    unfinished: dict[int, asyncio.Future[EncodedRecord]] = field(default_factory=dict)
    outbox: list[SampleRequest] = field(default_factory=list)


class RaySampleRunner:
    """Runs samples on replicas and replaces lost ones: a `harness.run.SampleRunner`.

    `async with RaySampleRunner(…) as runner:` starts as soon as one replica is ready.

    Args:
        cluster: the cluster.
        config: the configuration of the replicas.
        scenarios: the scenarios of the run, in their wordings.
        sleep: waits for so many seconds.
        on_wait: called once with the free resources if no replica can be placed for a while.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ReplicaConfig,
        scenarios: Sequence[Scenario],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_wait: Callable[[Resources], object] | None = None,
    ) -> None:
        self.losses: list[str] = []
        self.server_s = 0.0
        self._cluster = cluster
        self._config = config
        self._scenarios = list(scenarios)
        self._numbers = {each.name: number for number, each in enumerate(self._scenarios)}
        self._sleep = sleep
        self._on_wait = on_wait
        self._identity: ModelIdentity | None = None
        self._is_started = asyncio.Event()
        self._warm_up_requests: list[SampleRequest] = []
        self._replicas: set[_Replica] = set()
        self._free: deque[_Replica] = deque()  # one entry for each free conversation
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._keepers: list[asyncio.Task[None]] = []
        self._losses_in_a_row = 0
        self._tickets = 0
        self._error: LhkitError | None = None

    @property
    def concurrency(self) -> int:
        """The number of conversations at once on all replicas."""
        return self._cluster.placement.replicas * self._config.concurrency

    @property
    def identity(self) -> ModelIdentity | None:
        """The identity of the model, without the replicas' addresses; None if scripted."""
        if self._identity is None or self._config.options.base_url:
            return self._identity
        return replace(self._identity, base_url="ray")

    @property
    def status(self) -> str:
        """A short text for the progress bar."""
        lost = f", {len(self.losses)} lost" if self.losses else ""
        up = len(self._running())
        return f"{up} of {self._cluster.placement.replicas} replicas{lost}"

    def _running(self) -> list[_Replica]:
        return [replica for replica in self._replicas if replica.is_up]

    async def __aenter__(self) -> Self:
        """Request all replicas and wait until one is ready.

        Raises:
            LhkitError: no replica can be placed or started.
        """
        scenarios = self._cluster.put(self._scenarios)
        for _ in range(self._cluster.placement.replicas):
            self._keepers.append(asyncio.create_task(self._keep_up(scenarios)))
        try:
            await self._is_started.wait()
            self._raise_error()
        except BaseException:
            await self.aclose()
            raise
        return self

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    async def __aexit__(self, *_: object) -> None:
        """Stop all replicas and their servers."""
        await self.aclose()

    async def aclose(self) -> None:
        """Stop all replicas, and kill them after a timeout."""
        stopping = [asyncio.ensure_future(self._stop(replica)) for replica in self._running()]
        if stopping:
            await asyncio.wait(stopping, timeout=_STOP_TIMEOUT_S)
        for task in self._keepers:
            task.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    async def run_sample(self, sample: PlannedSample, attempt: int) -> EncodedRecord:
        """Run one sample once; if its replica is lost, on another one.

        Raises:
            ServerUnreachableError: too many replicas were lost in a row.
            UsageError: a sample has another content hash on a node than in the plan.
        """
        while True:
            replica = await self._free_replica()
            self._tickets += 1
            ticket = self._tickets
            result: asyncio.Future[EncodedRecord] = asyncio.get_running_loop().create_future()
            replica.unfinished[ticket] = result
            self._send(replica, self._request(sample, attempt, ticket))
            try:
                return await result
            except ReplicaLostError:
                continue
            finally:
                replica.unfinished.pop(ticket, None)

    async def warm_up(self, samples: Sequence[PlannedSample]) -> int:
        """Have every replica cache the prompt prefixes of `samples`, including later replicas."""
        self._warm_up_requests = [self._request(sample, 1, 0) for sample in samples]
        done = await asyncio.gather(*map(self._warm_up, self._running()))
        return max(done, default=0)

    async def _warm_up(self, replica: _Replica) -> int:
        if not self._warm_up_requests:
            return 0
        try:
            call = replica.actor.warm_up.remote(self._warm_up_requests)
            return int(await self._cluster.result(call))
        except ReplicaLostError:  # `_keep_up` notices it, too
            return 0

    def _request(self, sample: PlannedSample, attempt: int, ticket: int) -> SampleRequest:
        number = self._numbers[sample.scenario.name]
        return SampleRequest(ticket, number, sample.repeat, sample.content_hash, attempt)

    async def _free_replica(self) -> _Replica:
        """Wait for a replica with a free conversation, and take that."""
        while True:
            self._raise_error()
            while self._free:
                replica = self._free.popleft()
                if replica.is_up:
                    return replica
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def _release(self, replica: _Replica) -> None:
        if replica.is_up:
            self._free.append(replica)
            while self._waiting:
                waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    break

    def _send(self, replica: _Replica, request: SampleRequest) -> None:
        """Send a sample after a short delay, together with others."""
        if not replica.outbox and not replica.collects_soon:
            asyncio.get_running_loop().call_later(_SEND_AFTER_S, self._flush, replica)
        replica.outbox.append(request)

    def _flush(self, replica: _Replica) -> None:
        requests, replica.outbox = replica.outbox, []
        if requests and replica.is_up:
            replica.actor.submit.remote(requests)  # an error is raised by `collect`

    async def _keep_up(self, scenarios: Any) -> None:
        """Run a replica, and replace it whenever it is lost, until too many were."""
        pauses = 0
        while self._error is None:
            replica = _Replica(actor=self._cluster.start(self._config, scenarios))
            self._replicas.add(replica)
            try:
                await self._serve(replica)
            except ReplicaLostError as error:
                self._count_loss(str(error))
            except LhkitError as error:
                _log.warning("a replica failed: %s", error)
                if isinstance(error, UsageError) or not self._is_started.is_set():
                    self._fail(error)
                else:
                    self._count_loss(str(error))
            finally:
                self._remove(replica)
            pauses = 0 if replica.has_finished_one else pauses + 1
            if pauses > 1 and self._error is None:
                await self._sleep(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (pauses - 2)))

    async def _serve(self, replica: _Replica) -> None:
        """Start a replica, and collect its records until it is lost."""
        info = await self._start(replica)
        if self._is_started.is_set():
            first, other = self._identity, info.identity
            if first and other and replace(other, base_url=first.base_url) != first:
                raise UsageError(
                    f"Two replicas serve different models ({first} and {other}). Give all nodes "
                    "the same weights and the same vLLM."
                )
        else:
            self._identity, self.server_s = info.identity, info.server_s
        await self._warm_up(replica)
        replica.is_up = True
        self._is_started.set()
        for _ in range(self._config.concurrency):
            self._release(replica)
        while True:
            replica.collects_soon = True
            await asyncio.sleep(_SEND_AFTER_S)  # workers that got a record send their next sample
            requests, replica.outbox, replica.collects_soon = replica.outbox, [], False
            call = replica.actor.collect.remote(requests)
            for ticket, record in await self._cluster.result(call):
                self._losses_in_a_row, replica.has_finished_one = 0, True
                result = replica.unfinished.pop(ticket, None)
                if result is not None and not result.done():
                    result.set_result(record)
                self._release(replica)

    async def _start(self, replica: _Replica) -> ReplicaInfo:
        """Start a replica once it is placed.

        Raises:
            ReplicaLostError: it no longer exists, or no node is large enough.
            LhkitError: it cannot start; the message names the node.
        """
        node = await self._wait_for_node(replica)
        try:
            info: ReplicaInfo = await self._cluster.result(replica.actor.start.remote())
        except LhkitError as error:
            error.args = (f"on node {node}: {error}",)
            await self._stop(replica)
            raise
        _log.info("a replica runs on node %s, its server took %.1f s", node, info.server_s)
        return info

    async def _wait_for_node(self, replica: _Replica) -> str:
        """Return the node; give up if no node is large enough for `_NODE_TIMEOUT_S`."""
        placed = asyncio.ensure_future(self._cluster.result(replica.actor.node.remote()))
        is_local = self._cluster.placement.address == LOCAL
        timeout_s = 0.0 if is_local else _NODE_TIMEOUT_S
        missing_s = waited_s = 0.0
        try:
            while not (await asyncio.wait({placed}, timeout=_POLL_S))[0]:
                waited_s += _POLL_S
                missing = self._cluster.missing_resources()
                missing_s = missing_s + _POLL_S if missing else 0.0
                if missing_s > timeout_s and not self._running():
                    self._fail(ServerUnreachableError(missing))
                    raise ReplicaLostError(missing)
                if waited_s > _REPORT_WAIT_AFTER_S and self._on_wait and not self._running():
                    on_wait, self._on_wait = self._on_wait, None  # once
                    on_wait(self._cluster.free_resources())
            node: str = placed.result()
        finally:
            placed.cancel()
        return node

    async def _stop(self, replica: _Replica) -> None:
        """Stop a replica, and log the end of its server's log."""
        with suppress(ReplicaLostError, LhkitError):
            server_log: str = await self._cluster.result(replica.actor.stop.remote())
            for line in server_log.splitlines():
                _log.info("(server) %s", line)

    def _count_loss(self, reason: str) -> None:
        _log.warning("a replica was lost: %s", reason)
        self.losses.append(reason)
        self._losses_in_a_row += 1
        if self._losses_in_a_row >= _LOSSES_PER_REPLICA * self._cluster.placement.replicas:
            self._fail(
                ServerUnreachableError(
                    f"{self._losses_in_a_row} replicas were lost in a row without a finished "
                    f"sample ({reason})"
                )
            )

    def _fail(self, error: LhkitError) -> None:
        """End the run of samples with an error."""
        self._error = self._error or error
        self._is_started.set()
        for replica in self._replicas:
            _give_back(replica, str(error))
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _remove(self, replica: _Replica) -> None:
        replica.is_up = False
        self._replicas.discard(replica)
        self._cluster.kill(replica.actor)
        _give_back(replica, "the replica was lost")


def _give_back(replica: _Replica, reason: str) -> None:
    """Have the unfinished samples of a replica run again."""
    for result in replica.unfinished.values():
        if not result.done():
            result.set_exception(ReplicaLostError(reason))
