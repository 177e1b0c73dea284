"""The embedded Gemma models: their names, vLLM settings and identities.

`weights` builds their files, `server` runs them.
"""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

from lhkit.base.errors import UsageError
from lhkit.base.files import installed_version
from lhkit.conversation.responses import ModelIdentity
from lhkit.models.client.chat_template import folder_family
from lhkit.models.client.identity import weights_name
from lhkit.models.decoding import Constraint
from lhkit.models.families import parser_args
from lhkit.models.names import EMBEDDED_NAMES
from lhkit.models.precision import Dtype, Precision, ServedDtype, choose_precision
from lhkit.models.serving.vllm_server import GPU, PACKAGES, ServerSettings

TUNED, BASE = EMBEDDED_NAMES
EMBEDDED = TUNED
"""The default model."""


def embedded_name(name: str | None) -> str:
    """Return the served name of an embedded model; None means the default.

    Raises:
        UsageError: there is no embedded model of that name.
    """
    if name is None:
        return EMBEDDED
    if name in EMBEDDED_NAMES:
        return name
    known = ", ".join(EMBEDDED_NAMES)
    raise UsageError(
        f"Invalid embedded model {name!r}: choose one of {known}, or give the address of its "
        "server with --base-url."
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
    """Return vLLM settings for a Gemma 3 270M, whose weights need not exist yet.

    Args:
        name: served name.
        weights: folder of the weights.
        cache_dir: lhkit's cache, for the log and compiled code.
        now: time of the start, for the log's name.
        dtype: number type.
        port: None takes a free one.
        server_parser: the server also parses calls, which the `openai` dialect needs; all other
            dialects work as well.
        compiled: start later and answer faster; compiled code is cached for the next start.
        weights_sha256: hash that the server reports; empty if the folder may change before.
    """
    plan = ServerSettings(
        model=weights,
        served_name=name,
        log_path=cache_dir / "logs" / f"{name}-{now:%Y%m%d-%H%M%S}.log",
        port=port,
        enforce_eager=not compiled,
        env={"VLLM_CACHE_ROOT": str(cache_dir / "vllm")} if compiled else {},
        extra_args=_parser_args(name, weights) if server_parser else (),
        weights_sha256=weights_sha256,
        dtype=dtype,
    )
    return replace(plan, **GPU) if is_for_gpu() else plan


def _parser_args(name: str, weights: Path) -> tuple[str, ...]:
    family = folder_family(weights)
    return parser_args(name) if family is None else family.parser_args


def is_for_gpu() -> bool:
    """Return True if the installed vLLM is a build for graphics cards."""
    version = installed_version("vllm")
    return version is not None and not version.endswith("+cpu")


def served_precision(dtype: Dtype | None) -> Precision | None:
    """Return the number type to serve with; None if vLLM chooses for a graphics card."""
    if dtype is None and is_for_gpu():
        return None
    return choose_precision(dtype)


def served_dtype(dtype: Dtype | None) -> ServedDtype:
    """Return the value of vLLM's `--dtype`."""
    precision = served_precision(dtype)
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
    """Predict the identity of a server before it starts; None if impossible.

    It has no address. Cached answers are looked up with it: a wrong version only means that none
    is found.
    """
    versions = list(filter(None, map(installed_version, PACKAGES)))
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
