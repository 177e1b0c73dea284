"""From the name of an embedded model to its weights, its running server, or how to serve it.

It knows both, the tuned and the bare one; `models.embedded` knows only their names.
"""

from pathlib import Path

from lhkit.models import weights
from lhkit.models.embedded import EMBEDDED, TUNED, serving_plan
from lhkit.models.running_servers import RunningServer, find_running
from lhkit.models.vllm_server import ServerSettings, require_vllm
from lhkit.models.weights_hash import weights_sha256
from lhkit.models.weights_source import Report
from lhkit.settings import Settings
from lhkit.tuning.tuned_weights import ensure_tuned, tuned_folder


def embedded_folder(name: str, settings: Settings) -> Path:
    """Return where the weights of an embedded model lie, or will lie.

    Raises:
        TuningError: there is no adapter.
    """
    if name == TUNED:
        return tuned_folder(settings.cache_dir)
    return weights.weights_folder(settings.cache_dir)


async def running_server(name: str, settings: Settings) -> RunningServer | None:
    """Return the server that `lhkit serve` keeps of an embedded model; not one of older weights.

    Raises:
        TuningError: there is no adapter.
    """
    folder = embedded_folder(name, settings)
    return await find_running(settings.cache_dir, name, model=folder)


async def embedded_server(
    settings: Settings,
    report: Report = weights.silent,
    *,
    name: str = EMBEDDED,
    port: int | None = None,
    server_parser: bool = False,
    compiled: bool = False,
) -> ServerSettings:
    """Return how to serve an embedded model (see `serving_plan`), with its weights in place.

    Raises:
        SetupError: vLLM is not installed (told first), or the weights cannot be had.
        TuningError: the adapter cannot be used.
    """
    require_vllm()
    ensure = ensure_tuned if name == TUNED else weights.ensure_weights
    folder = await ensure(settings.cache_dir, report=report)
    now = settings.now()
    return serving_plan(
        name,
        folder,
        settings.cache_dir,
        now,
        port=port,
        server_parser=server_parser,
        compiled=compiled,
        weights_sha256=await weights_sha256(folder, settings.cache_dir, report=report),
    )
