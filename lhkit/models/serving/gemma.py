"""The embedded Gemma models: their names, vLLM settings and identities.

`weights` builds their files, `server` runs them.
"""

import json
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from lhkit.base.accelerators import accelerators
from lhkit.base.errors import UsageError
from lhkit.base.files import installed_version
from lhkit.conversation.responses import ModelIdentity
from lhkit.models.client.chat_template import folder_family
from lhkit.models.client.identity import weights_name
from lhkit.models.decoding import Constraint
from lhkit.models.families import parser_args
from lhkit.models.names import EMBEDDED_NAMES
from lhkit.models.precision import (
    Dtype,
    Precision,
    ServedDtype,
    choose_card_precision,
    choose_precision,
)
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
    return replace(plan, **GPU, device=served_device()) if is_for_gpu() else plan


def _parser_args(name: str, weights: Path) -> tuple[str, ...]:
    family = folder_family(weights)
    return parser_args(name) if family is None else family.parser_args


def is_for_gpu() -> bool:
    """Return True if the installed vLLM is a build for graphics cards."""
    version = installed_version("vllm")
    return version is not None and not version.endswith("+cpu")


def served_device() -> str:
    """Return the graphics card that a server of this machine would use; empty for a CPU."""
    cards = accelerators() if is_for_gpu() else ()
    return cards[0].name if cards else ""


def served_precision(dtype: Dtype | None, weights: Path | None = None) -> Precision:
    """Return the number type to serve with, and why.

    Args:
        dtype: None chooses by processor or graphics card.
        weights: a folder of weights, whose number type counts on a graphics card; None for an
            embedded model, which is stored in bf16.
    """
    if not is_for_gpu():
        return choose_precision(dtype)
    weights_dtype = "bfloat16" if weights is None else _weights_dtype(weights)
    return choose_card_precision(dtype, accelerators(), weights_dtype)


def served_dtype(dtype: Dtype | None, weights: Path | None = None) -> ServedDtype:
    """Return the value of vLLM's `--dtype`; arguments as of `served_precision`."""
    return served_precision(dtype, weights).dtype


def _weights_dtype(folder: Path) -> str:
    """Return the number type of a folder's weights; empty if unknown, or if they are quantised."""
    with suppress(OSError, ValueError):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if isinstance(config, dict) and not config.get("quantization_config"):
            return str(config.get("dtype") or config.get("torch_dtype") or "")
    return ""


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
        device=served_device(),
    )
