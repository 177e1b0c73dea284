"""Who plays: a script, a served model, or nobody if nothing is left to play."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from lhkit import app
from lhkit.cli.progress import opened_model, setup_progress
from lhkit.errors import RunError
from lhkit.harness.plan import ModelSource
from lhkit.harness.run_options import MAX_CONCURRENCY
from lhkit.locales import Catalog
from lhkit.models.base import ModelRequest
from lhkit.models.pool import ServerPool
from lhkit.models.scripted import ScriptedModel
from lhkit.models.served import UNKNOWN_CONCURRENCY, default_concurrency
from lhkit.models.server import StartProgress
from lhkit.responses import ModelIdentity
from lhkit.scale import SCRIPTED, RaySampleRunner
from lhkit.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A model that is ready. `server_s` is how long a server started for it took, in seconds.

    With a `runner`, `source` only provides the identity.
    """

    source: ModelSource
    server_s: float = 0.0
    runner: RaySampleRunner | None = None

    @property
    def concurrency(self) -> int:
        """How many conversations to have at once if nobody says."""
        if self.runner is not None:
            return min(MAX_CONCURRENCY, self.runner.concurrency)
        return concurrency_for(self.source)


def concurrency_for(source: ModelSource) -> int:
    """Return how many conversations to have at once if nobody says: as many as the servers run."""
    if callable(source):
        return UNKNOWN_CONCURRENCY
    servers = len(source) if isinstance(source, ServerPool) else 1
    return min(MAX_CONCURRENCY, servers * default_concurrency(source.identity))


@asynccontextmanager
async def opened_source(
    choice: app.ModelChoice,
    settings: Settings,
    is_answered: Callable[[ModelSource], bool],
    replicas: AbstractAsyncContextManager[Opened] | None = None,
) -> AsyncIterator[Opened]:
    """Yield what plays; no server is started where `is_answered` says that nothing is left.

    Args:
        choice: which model; `gold` and `silent` are scripts, at an address they are names.
        settings: where weights and servers are.
        is_answered: whether a run of this model would have nothing to play.
        replicas: starts those who play, if it is not this process.

    Raises:
        LhkitError: the model cannot be had.
    """
    is_script = choice.is_embedded and choice.name in SCRIPTED
    if is_script and replicas is None:
        yield Opened(source=SCRIPTED[choice.name]())
        return
    identity = (
        None if is_script or "/" in (choice.name or "") else await _expected(choice, settings)
    )
    if identity:
        nobody = _named(identity)
        if is_answered(nobody):
            yield Opened(source=nobody)
            return
    if replicas is not None:
        async with replicas as opened:
            yield opened
        return
    start = _StartTime()
    async with opened_model(choice, settings, start) as model:
        yield Opened(source=model, server_s=start.elapsed_s)


async def _expected(choice: app.ModelChoice, settings: Settings) -> ModelIdentity | None:
    with setup_progress() as shown:
        return await app.expected_identity(choice, settings, shown.weights)


def _named(identity: ModelIdentity) -> ModelSource:
    """Return a model that only says who it is."""
    return ScriptedModel(_not_left_to_play, identity=identity)


def source_of(choice: app.ModelChoice, runner: RaySampleRunner) -> ModelSource:
    """Return who plays, as a model that says so and plays nothing itself."""
    if choice.is_embedded and choice.name in SCRIPTED:
        return SCRIPTED[choice.name]()
    return _named(runner.identity or ModelIdentity(model=""))


def _not_left_to_play(_: ModelRequest) -> NoReturn:
    raise RunError("records were taken away while the run began: give the same command again")


@dataclass(slots=True)
class _StartTime:
    """Hears how a server's start comes along, and keeps how long it has taken."""

    elapsed_s: float = field(default=0.0)

    def __call__(self, progress: StartProgress) -> None:
        """Keep the time."""
        self.elapsed_s = progress.elapsed_s


def left_lines(opened: Opened, catalog: Catalog) -> Iterator[str]:
    """Yield which of several servers were left, and how many replicas were lost."""
    if isinstance(opened.source, ServerPool):
        for address in opened.source.failed_addresses:
            yield catalog.text("eval.left", address=address)
    if opened.runner is not None and (losses := opened.runner.losses):
        yield catalog.text("eval.lost_replicas", count=len(losses), why=losses[-1])
