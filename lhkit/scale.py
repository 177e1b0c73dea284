"""One run over many replicas, placed and watched by Ray: the only module that knows Ray.

A replica is an actor: it starts a server on its node (or talks to servers that are there), opens
the toolset and plays samples. The driver keeps what must be one: plan, hashes, journal, retries. A
replica that is lost gives back what it had not finished; it was never a verdict.
"""

import asyncio
import logging
import math
import os
import platform
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from lhkit import app
from lhkit.chat.controller import Assistant
from lhkit.errors import (
    LhkitError,
    MissingPackageError,
    ServerUnreachableError,
    SetupError,
    UsageError,
)
from lhkit.harness.author.gold import gold_models, silent_model
from lhkit.harness.log import versions
from lhkit.harness.plan import Job, Scene, plan_run
from lhkit.harness.run import Played, SampleStage, play_sample, warm_up
from lhkit.harness.scenario import Scenario
from lhkit.harness.stress import ModelSource, parse_stress, stressed
from lhkit.models import served
from lhkit.models.dialects.base import Constraint
from lhkit.models.embedded import EMBEDDED_NAMES
from lhkit.models.families import family_of
from lhkit.models.request import OPENAI
from lhkit.models.transport import Endpoint
from lhkit.models.vllm_server import GPU, ServerSettings, VllmServer, for_installed_vllm
from lhkit.models.weights_hash import require_unchanged, weights_sha256
from lhkit.precision import Dtype
from lhkit.responses import ModelIdentity
from lhkit.runtimes import VLLM, Runtime
from lhkit.settings import Settings, load_settings, quiet_ray
from lhkit.toolset import Session, Toolset, ToolsetAround, limited, load, registry_of

if TYPE_CHECKING:
    from types import ModuleType

SCRIPTED: Mapping[str | None, Callable[[], ModelSource]] = {
    "gold": gold_models,
    "silent": silent_model,
}
"""Models that are scripts: nothing is served for them."""

AT_ONCE_ON_GPUS = 64
"""Conversations at once that a server on graphics cards is started for where nobody says."""

LOCAL = "local"
"""An address: a cluster that is started here, for this command only."""

LOG = "replicas.log"
"""The file in a run's folder that tells of its replicas, their servers, and what Ray says."""

_log = logging.getLogger(__name__)

_GIVE_AFTER_S = 0.01
_TAKE_AFTER_S = 0.02
"""So long more is waited for what else is there, so that a message carries more than one sample.

What is asked next goes with the call that takes what comes next: messages are what a driver costs.
"""
_LOOK_S = 2.0
_TELL_AFTER_S = 20.0
_END_S = 25.0
_LOG_BYTES = 2**20
_STDERR = 2
_EVENT = ":event_summary:"
_DEATHS_A_REPLICA = 3
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
_SAID_CHARS = 300
_STARTS = 3
_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")
_STORE_BYTES = 80 * 2**20
"""Of a cluster of our own: records pass through it, none stays."""


# What a replica is, and what is asked of it: plain values, of which none is secret.


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where replicas are put: how many, and what each takes.

    `address` is `local`, `auto` (the cluster of this node) or the HOST:PORT of a cluster's head.
    A node that could hold a replica is waited for `patience_s` seconds.
    """

    address: str
    replicas: int = 1
    gpus: int = 0
    cpus: float = 1.0
    patience_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What every replica plays with. A key is not in it: each node has it in its environment.

    Without `base_urls` a replica starts a server of its own for `model`. `at_once` is how many
    conversations one has.
    """

    toolset: str
    max_tokens: int | None
    model: str | None = None
    base_urls: tuple[str, ...] = ()
    dialect: str = "json"
    constraint: Constraint = "off"
    dtype: Dtype | None = None
    stress: str = ""
    instructions: Mapping[str, str] = field(default_factory=dict)
    keep_prompts: bool = False
    keep_states: bool = False
    at_once: int = served.UNKNOWN_CONCURRENCY
    gpus: int = 0
    versions: Mapping[str, str] = field(default_factory=versions)

    @property
    def is_scripted(self) -> bool:
        """Whether a script plays."""
        return not self.base_urls and self.model in SCRIPTED


class Asked(NamedTuple):
    """One try of one sample, by the number of its scenario among those that a replica has."""

    ticket: int
    scenario: int
    repeat: int
    content_hash: str
    attempt: int


class Room(NamedTuple):
    """Graphics cards and cores."""

    gpus: float
    cpus: float


class Introduction(NamedTuple):
    """Who a replica is; `identity` is None of a script, and `server_s` how long it took."""

    identity: ModelIdentity | None
    server_s: float


def require_ray(address: str) -> None:
    """Tell before anything is started that Ray is not there, or is not reached so.

    Raises:
        UsageError: the address is that of Ray's client.
        MissingPackageError: it is not installed.
    """
    if "://" in address:
        raise UsageError(
            f"--ray {address}: the driver has to run on a node of the cluster: give the command "
            "there with --ray auto, for example by `ray job submit`"
        )
    if find_spec("ray") is None:
        raise MissingPackageError(
            "Ray is not installed here: `pip install 'lhkit[ray]'`, in the clone `pip install -e "
            "'.[ray]'`; several servers without it are given by --base-url"
        )


def require_model(choice: app.ModelChoice, runtime: Runtime = VLLM) -> None:
    """Refuse a model that no replica could have.

    Raises:
        UsageError: as `app.require_choice`; beside the embedded ones, `org/model` and a folder
            may be named, for which each replica starts a vLLM, and no other runtime.
    """
    if runtime != VLLM and choice.base_url is None:
        raise UsageError(
            f"the replicas of --ray are served by {VLLM}: leave --runtime {runtime} out, or name "
            "servers of your own by --base-url"
        )
    if choice.is_embedded and "/" in (choice.name or ""):
        served.require_constraint(choice.dialect, choice.constraint, choice.tools)
    else:
        app.require_choice(choice)


def told_instructions(toolset: Toolset, told: Mapping[str, str]) -> Toolset:
    """Return the toolset with other instructions, by language; the same one for none."""

    def assistant(session: Session, locale: str) -> Assistant:
        own = session.assistant
        return replace(own, instructions=told.get(locale, own.instructions))

    return ToolsetAround(inner=toolset, assistant=assistant) if told else toolset


# The actor's side. It is an ordinary class, so that it runs without Ray as well.


class Replica:
    """Plays samples where it is. `begin` it, `give` it samples, `take` what has become of them."""

    def __init__(self, part: Part, scenarios: Sequence[Scenario]) -> None:
        self._part = part
        self._scenarios = scenarios
        self._stack = AsyncExitStack()
        self._stage: SampleStage | None = None
        self._scenes: dict[int, Scene] = {}
        self._playing: set[asyncio.Task[None]] = set()
        self._done: list[tuple[int, Played]] = []
        self._server_log: Path | None = None
        self._fault: BaseException | None = None
        self._news = asyncio.Event()

    async def where(self) -> str:
        """Return the name of the machine, as soon as this has a place on one."""
        return platform.node()

    async def begin(self) -> Introduction:
        """Make all ready and tell who plays.

        Raises:
            UsageError: this node has another lhkit, or the toolset cannot be opened here.
            SetupError: the server cannot be had.
            ModelError: a server does not answer as it should.
        """
        _require_same(self._part.versions, versions())
        settings, began_s = load_settings(), time.perf_counter()
        toolset = limited(_loaded(self._part.toolset), self._part.max_tokens)
        source = await self._stack.enter_async_context(self._source(toolset, settings))
        server_s = time.perf_counter() - began_s
        stress = parse_stress(self._part.stress)
        model, toolset = stressed(
            source, told_instructions(toolset, self._part.instructions), stress
        )
        self._stage = SampleStage(
            model=model,
            toolset=toolset,
            clock=time.perf_counter,
            keep_prompts=self._part.keep_prompts,
            keep_states=self._part.keep_states,
            begun_s=time.perf_counter(),
            started_at=settings.now(),
        )
        return Introduction(None if callable(source) else source.identity, server_s)

    async def give(self, asked: Sequence[Asked]) -> None:
        """Take samples to play."""
        for each in asked:
            task = asyncio.create_task(self._play(each))
            self._playing.add(task)
            task.add_done_callback(self._playing.discard)

    async def take(self, asked: Sequence[Asked] = ()) -> list[tuple[int, Played]]:
        """Take samples to play, wait until one is done, return all that are, by their tickets.

        Raises:
            UsageError: a sample would be another question here than where it was planned.
        """
        await self.give(asked)
        await self._news.wait()
        await asyncio.sleep(_TAKE_AFTER_S)
        if self._fault is not None:
            raise self._fault
        self._news.clear()
        done, self._done = self._done, []
        return done

    async def warm(self, openings: Sequence[Asked]) -> int:
        """Have the server read what many samples begin with; return how many it did."""
        stage = self._ready()
        return sum(await asyncio.gather(*(warm_up(self._job(each), stage) for each in openings)))

    async def end(self) -> str:
        """Leave no server behind; return the end of what it has said."""
        for task in self._playing:
            task.cancel()
        await asyncio.gather(*self._playing, return_exceptions=True)
        await self._stack.aclose()
        return await asyncio.to_thread(_end_of, self._server_log)

    async def _play(self, asked: Asked) -> None:
        try:
            job = self._job(asked)
            record = await play_sample(job, self._ready(), attempt=asked.attempt)
            self._done.append((asked.ticket, Played.of(record)))
        except LhkitError as error:
            self._fault = error
        self._news.set()

    def _ready(self) -> SampleStage:
        if self._stage is None:
            raise UsageError("a replica was given samples before it began: call begin() first")
        return self._stage

    def _job(self, asked: Asked) -> Job:
        """Return the sample, which has to be the same question here as where it was planned.

        Raises:
            UsageError: it is another one.
        """
        scenario, stage = self._scenarios[asked.scenario], self._ready()
        if asked.scenario not in self._scenes:
            plan = plan_run([scenario], stage.model, stage.toolset, repeats=1)
            (self._scenes[asked.scenario],) = plan.scenes
        job = self._scenes[asked.scenario].job(asked.repeat)
        if job.content_hash != asked.content_hash:
            raise UsageError(
                f"{scenario.id} would be asked otherwise than where the run was planned: the "
                f"toolset {self._part.toolset} is another one here, or what it reads: give all "
                "nodes the same files"
            )
        return job

    @asynccontextmanager
    async def _source(self, toolset: Toolset, settings: Settings) -> AsyncIterator[ModelSource]:
        part = self._part
        if part.is_scripted:
            yield SCRIPTED[part.model]()
        elif part.base_urls:
            first, *beside = part.base_urls
            opening = self._scenarios[0]
            choice = app.ModelChoice(
                name=part.model,
                base_url=first,
                beside=tuple(beside),
                api_key=settings.api_key,
                dialect=part.dialect,
                constraint=part.constraint,
                tools=registry_of(toolset, opening.world, opening.locale).definitions,
            )
            async with app.open_model(choice, settings) as model:
                yield model
        else:
            plan = await _server_plan(part, settings)
            self._server_log = plan.log_path
            async with VllmServer(plan) as server:
                if plan.served_name in EMBEDDED_NAMES:
                    await require_unchanged(plan, settings.cache_dir)
                endpoint = Endpoint(
                    base_url=server.base_url,
                    model=plan.served_name,
                    dialect=part.dialect,
                    constraint=part.constraint,
                )
                model = await served.connect(endpoint)
                try:
                    yield model
                finally:
                    await model.aclose()


def _size_of(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _end_of(log: Path | None, begin: int = 0) -> str:
    """Return what a file holds behind its first bytes, at most the last MiB; nothing of none."""
    if log is None or not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(begin, file.seek(0, os.SEEK_END) - _LOG_BYTES))
        return file.read().decode(errors="replace")


def _loaded(reference: str) -> Toolset:
    try:
        return load(reference)
    except UsageError as error:
        raise UsageError(
            f"{error} - a toolset of FILE.py:NAME travels with all that lies in its folder, what "
            "it imports from elsewhere has to be installed on every node"
        ) from error


def _require_same(there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Refuse to play with other versions than the run was planned with.

    Raises:
        UsageError: one differs; the message names all that do.
    """
    different = [
        f"{name} {here.get(name, 'not installed')} instead of {version}"
        for name, version in there.items()
        if here.get(name) != version
    ]
    if different:
        raise UsageError(
            f"this node has {', '.join(different)}: install on all nodes what the driver has"
        )


async def _server_plan(part: Part, settings: Settings) -> ServerSettings:
    """Return how this node serves the model, on a free port."""
    settings = settings.model_copy(update={"dtype": part.dtype})
    is_parsing = part.dialect == OPENAI
    name = part.model or app.EMBEDDED
    if "/" not in name:
        embedded = app.embedded_name(part.model)
        plan = await app.embedded_server(settings, name=embedded, server_parser=is_parsing)
    else:
        family = family_of(name)
        is_folder = await asyncio.to_thread(Path(name).is_dir)
        plan = ServerSettings(
            model=Path(name),
            served_name=name,
            log_path=settings.cache_dir / "logs" / f"{Path(name).name}.log",
            extra_args=(
                *(family.serve_args if family else ()),
                *(family.parser_args if family and is_parsing else ()),
                *(("--tensor-parallel-size", str(part.gpus)) if part.gpus > 1 else ()),
            ),
            env={} if is_folder else {"HF_HUB_OFFLINE": "0"},
            weights_sha256=await weights_sha256(Path(name), settings.cache_dir)
            if is_folder
            else "",
            dtype=part.dtype or "auto",
        )
        plan = replace(plan, **GPU) if part.gpus else plan
        plan = await for_installed_vllm(plan, settings.cache_dir)
    log = plan.log_path.with_stem(f"{plan.log_path.stem}-{os.getpid()}")
    return replace(plan, log_path=log, max_num_seqs=max(plan.max_num_seqs, part.at_once))


# The driver's side.


class LostError(Exception):
    """An actor, or its node, is no longer there."""


@asynccontextmanager
async def connected(placement: Placement, toolset: str, log: Path) -> AsyncIterator["Cluster"]:
    """Yield the cluster, with the toolset's file sent to its nodes if it is one.

    What Ray and its nodes say meanwhile goes to the end of `log`.

    Raises:
        MissingPackageError: Ray is not installed.
        SetupError: there is no cluster at the address, or one that is not ours.
        UsageError: the toolset's folder cannot be sent, or the address is none.
    """
    require_ray(placement.address)
    quiet_ray()
    import ray  # noqa: TID251 - here; optional, and slow

    file, _, name = toolset.rpartition(":")
    travels = file.endswith(".py") and placement.address != LOCAL
    path = await asyncio.to_thread(Path(file).resolve)
    cores = math.ceil(placement.replicas * placement.cpus)
    local = {
        "num_cpus": max(os.cpu_count() or 1, cores),
        "object_store_memory": _STORE_BYTES,
        "include_dashboard": False,
    }
    options = {
        "address": placement.address,
        "configure_logging": False,
        "runtime_env": {"working_dir": str(path.parent)} if travels else None,
        **(local if placement.address == LOCAL else {}),
    }
    with logged(log):
        heard_from = _size_of(log)
        try:
            with standard_error_in(log):
                _join(ray, options)
        except Exception as error:  # Ray raises nothing more special
            said = _end_of(log, heard_from)
            raise _join_fault(error, placement, path.parent if travels else None, said) from error
        reference = toolset
        if file.endswith(".py"):
            reference = f"{path.name if travels else path}:{name}"
        try:
            yield Cluster(ray=ray, placement=placement, toolset=reference)
        finally:
            ray.shutdown()


@contextmanager
def standard_error_in(log: Path) -> Iterator[None]:
    """Put into a file what Ray's C++ writes to standard error while it connects."""
    with log.open("ab") as file:
        kept = os.dup(_STDERR)
        os.dup2(file.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(kept, _STDERR)
            os.close(kept)


def _join_fault(
    error: Exception, placement: Placement, folder: Path | None, said: str
) -> SetupError:
    """Return what to say of a cluster that did not let us in; `said` is all that Ray wrote."""
    address, told = placement.address, _one_line(error)
    if "InvalidAuthToken" in said:
        return SetupError(
            f"--ray {address}: the cluster asks for a token that this command does not have: set "
            "RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH as its head has them "
            "(by default it keeps the token in ~/.ray/auth_token)"
        )
    if isinstance(error, ConnectionError | TimeoutError):
        return SetupError(
            f"--ray {address}: no cluster answers there: start one with `ray start --head`, give "
            "its HOST:PORT, or `local` for one that ends with this command"
        )
    if "Version mismatch" in told and len(found := _VERSIONS.findall(str(error))) == 2:
        (ray, python), (our_ray, our_python) = found
        return SetupError(
            f"--ray {address}: the cluster has Ray {ray} on Python {python}, this command Ray "
            f"{our_ray} on Python {our_python}: install the same versions here and on all nodes"
        )
    if folder is not None and "exceeds the maximum size" in told:
        return SetupError(
            f"--ray {address}: the folder {folder} is too large to travel to the nodes with the "
            f"toolset ({told}): name what is not needed there in its .gitignore, or put the "
            "toolset into a folder of its own"
        )
    travelled = f"; the folder {folder} was to travel to the nodes" if folder else ""
    return SetupError(
        f"--ray {address} did not come about ({told}{travelled}): mend that, or give the same "
        "command again"
    )


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Have all that Ray and its nodes say go to a file, and nothing to the terminal.

    Ray prints what workers and nodes say, from threads of its own and without a public way to
    have it elsewhere; so the one function through which it does is another one meanwhile.
    """
    from ray._private import worker  # noqa: TID251 - here

    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    loggers = (_log, logging.getLogger("ray"))
    before = [(each.handlers[:], each.level, each.propagate) for each in loggers]
    prints = worker.print_worker_logs
    for each in loggers:
        each.handlers[:], each.propagate = [handler], False
        each.setLevel(logging.INFO)
    worker.print_worker_logs = _hear
    try:
        yield
    finally:
        worker.print_worker_logs = prints
        for each, (handlers, level, propagates) in zip(loggers, before, strict=True):
            each.handlers[:], each.propagate = handlers, propagates
            each.setLevel(level)
        handler.close()


def _hear(told: Mapping[str, Any], *_: Any, **__: Any) -> None:
    """Log lines of a worker or a node instead of printing them.

    The autoscaler tells all it does every few seconds; Ray itself prints only its events.
    """
    is_chatter = told.get("pid") == "autoscaler"
    who = " ".join(str(told[key]) for key in ("actor_name", "pid", "ip") if told.get(key))
    for line in told.get("lines", ()):
        if not is_chatter or _EVENT in line:
            _log.info("(%s) %s", who, line)


def _join(ray: "ModuleType", options: Mapping[str, Any]) -> None:
    """Connect; a cluster of our own is started again if it did not come up in Ray's own 30 s."""
    for _ in range(_STARTS - 1 if options["address"] == LOCAL else 0):
        try:
            ray.init(**options)
        except Exception:  # noqa: BLE001 - boundary: Ray raises nothing more special
            ray.shutdown()
        else:
            return
    ray.init(**options)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:_SAID_CHARS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster that we are connected to. `toolset` is the reference as nodes have to load it.

    `replica` is the class of what plays.
    """

    ray: "ModuleType"
    placement: Placement
    toolset: str
    replica: type[Replica] = Replica

    def keep(self, value: Any) -> Any:
        """Put a value where every replica can have it, once for all."""
        return self.ray.put(value)

    def start(self, part: Part, scenarios: Any) -> Any:
        """Ask for one more actor, on the node that has the most room."""
        asked = self.ray.remote(self.replica).options(
            num_cpus=self.placement.cpus,
            num_gpus=self.placement.gpus,
            scheduling_strategy="SPREAD",
            max_restarts=0,
            max_concurrency=8,
        )
        return asked.remote(part, scenarios)

    def end(self, actor: Any) -> None:
        """End an actor at once; what it started ends by itself."""
        with suppress(self.ray.exceptions.RayError):
            self.ray.kill(actor)

    async def answer(self, asked: Awaitable[Any]) -> Any:
        """Return what an actor answers.

        Raises:
            LostError: it is no longer there.
            LhkitError: as the actor raised it.
        """
        try:
            return await asked
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, LhkitError) else error from None
        except self.ray.exceptions.RayError as error:
            raise LostError(_one_line(error)) from error

    def fits(self) -> bool:
        """Whether a node that is there could hold a replica, if nothing else were on it."""
        place = self.placement
        return any(each.cpus >= place.cpus and each.gpus >= place.gpus for each in self._nodes())

    def unfit(self) -> str:
        """Return the sentence for when no node fits: what of it lacks."""
        place, nodes = self.placement, self._nodes()
        asked = (
            ("GPU", place.gpus, max((each.gpus for each in nodes), default=0)),
            ("CPU", place.cpus, max((each.cpus for each in nodes), default=0)),
        )
        lacking = [each for each in asked if each[2] < each[1]] or asked
        told = " and ".join(_counted(count, kind) for kind, count, _ in lacking)
        most = " and ".join(_counted(most, kind) for kind, _, most in lacking)
        options = " and ".join(f"--{kind.lower()}s-per-replica" for kind, *_ in lacking)
        return (
            f"a replica takes {told}, which no node of the cluster has (at most {most}): give "
            f"a smaller {options}, or add a node"
        )

    def free(self) -> Room:
        """Return what nobody has taken, on all nodes together."""
        told = self.ray.available_resources()
        return Room(told.get("GPU", 0), told.get("CPU", 0))

    def _nodes(self) -> list[Room]:
        nodes = [each["Resources"] for each in self.ray.nodes() if each["Alive"]]
        return [Room(each.get("GPU", 0), each.get("CPU", 0)) for each in nodes]


def _counted(count: float, kind: str) -> str:
    return f"{count:g} {kind}" if count == 1 else f"{count:g} {kind}s"


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


class RayPlayers:
    """The replicas of one run, kept up: `harness.run.Players` over a cluster.

    `async with RayPlayers(…) as players:` begins as soon as one of them is ready. `waits` is told
    what room is free where none of them has a place after a while.
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
        self._part = replace(part, toolset=cluster.toolset)
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
        if self._identity is None or self._part.base_urls:
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

    async def play(self, job: Job, attempt: int) -> Played:
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

    async def warm_up(self, openings: Sequence[Job]) -> int:
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

    def _asked(self, job: Job, attempt: int, ticket: int) -> Asked:
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
