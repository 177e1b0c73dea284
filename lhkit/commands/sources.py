"""Who plays in `lhkit eval`: a script, a served model, or nobody if nothing is left to play."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from lhkit import app
from lhkit.commands.progress import opened_model, setup_progress
from lhkit.errors import RunError
from lhkit.harness.authoring.gold import gold_model, silent_model
from lhkit.harness.replay.plan import ModelSource
from lhkit.models.base import ModelRequest
from lhkit.models.scripted import ScriptedModel
from lhkit.models.served import UNKNOWN_CONCURRENCY, fitting_concurrency
from lhkit.models.vllm_server import StartProgress
from lhkit.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A model that is ready. `server_s` is how long a server started for it took, in seconds."""

    source: ModelSource
    server_s: float = 0.0


def concurrency_for(source: ModelSource) -> int:
    """Return how many conversations to have at once if nobody says: as many as the server runs."""
    return UNKNOWN_CONCURRENCY if callable(source) else fitting_concurrency(source.identity)


@asynccontextmanager
async def opened_source(
    choice: app.ModelChoice, settings: Settings, is_answered: Callable[[ModelSource], bool]
) -> AsyncIterator[Opened]:
    """Yield what plays; no server is started where `is_answered` says that nothing is left.

    Args:
        choice: which model; `gold` and `silent` are scripts, at an address they are names.
        settings: where weights and servers are.
        is_answered: whether a run of this model would have nothing to play.

    Raises:
        LhkitError: the model cannot be had.
    """
    if choice.is_embedded and choice.name in SCRIPTED:
        yield Opened(source=SCRIPTED[choice.name]())
        return
    with setup_progress() as shown:
        identity = await app.expected_identity(choice, settings, shown.weights)
    if identity:
        nobody = ScriptedModel(_not_left_to_play, identity=identity)
        if is_answered(nobody):
            yield Opened(source=nobody)
            return
    start = _StartTime()
    async with opened_model(choice, settings, start) as model:
        yield Opened(source=model, server_s=start.elapsed_s)


SCRIPTED: dict[str | None, Callable[[], ModelSource]] = {
    "gold": lambda: gold_model,
    "silent": silent_model,
}


def _not_left_to_play(_: ModelRequest) -> NoReturn:
    raise RunError("records were taken away while the run began: give the same command again")


@dataclass(slots=True)
class _StartTime:
    """Hears how a server's start comes along, and keeps how long it has taken."""

    elapsed_s: float = field(default=0.0)

    def __call__(self, progress: StartProgress) -> None:
        """Keep the time."""
        self.elapsed_s = progress.elapsed_s
