"""A vLLM of our own: its command line, and how it is started and ended."""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from lhkit.errors import MissingPackageError
from lhkit.models.aliases import aliases_of
from lhkit.models.families import GPU_SEQS, GUIDANCE
from lhkit.models.server import HOST, LocalServer, ServerPlan
from lhkit.models.vllm_options import fitted, known_options
from lhkit.precision import ServedDtype

_log = logging.getLogger(__name__)

MAX_NUM_SEQS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(ServerPlan):
    """How to serve one model folder.

    Beside what every plan has: `kv_cache_gib` is the memory for keys and values; `max_num_seqs`
    how many requests run at once. `block_size` is in tokens: vLLM's CPU default of 128 hides
    short shared prefixes from its cache. None leaves either to vLLM (see `GPU`).
    `enforce_eager` starts without compiling. `env` is laid over the environment that lhkit itself
    sets. `entry` is what `python` runs: the `vllm` console script is broken in the CPU build.
    `weights_sha256` is the hash of what lies in `model` (see `weights_hash`): the server serves an
    alias that tells it, whatever the folder holds later.
    `dtype` is what it computes in (see `precision`), told by an alias, too; `auto`: vLLM chooses.
    Options that are not in `known_options` are left out; None leaves out nothing.
    `base_name` is the name of `model` where `served_name` is that of an adapter (see `lora`).
    """

    engine: ClassVar[str] = "vLLM"
    package: ClassVar[str] = "vllm"

    max_model_len: int = 8192
    max_num_seqs: int = MAX_NUM_SEQS
    block_size: int | None = 32
    kv_cache_gib: int | None = 2
    enforce_eager: bool = True
    chat_template: Path | None = None
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    entry: tuple[str, ...] = ("-m", "vllm.entrypoints.openai.api_server")
    dtype: ServedDtype = "auto"
    known_options: frozenset[str] | None = None
    base_name: str = ""

    def arguments(self, port: int) -> tuple[str, ...]:
        """Return what follows `python` on the command line."""
        return (*self.entry, *fitted(self._options(port), self.known_options)[0])

    @property
    def left_out(self) -> tuple[str, ...]:
        """The options that the installed vLLM does not know."""
        return fitted(self._options(0), self.known_options)[1]

    def _options(self, port: int) -> tuple[str, ...]:
        return (
            *("--model", str(self.model)),
            *("--served-model-name", self.base_name or self.served_name),
            *aliases_of(weights_sha256=self.weights_sha256, dtype=self.dtype),
            *("--host", HOST, "--port", str(port), "--dtype", self.dtype),
            *("--max-model-len", str(self.max_model_len)),
            *("--max-num-seqs", str(self.max_num_seqs)),
            *(() if self.block_size is None else ("--block-size", str(self.block_size))),
            *("--generation-config", "vllm"),  # the checkpoint's own sampling must not leak in
            *GUIDANCE,
            *("--enable-prompt-tokens-details", "--enable-per-request-metrics"),
            *("--enable-force-include-usage", "--disable-uvicorn-access-log"),
            *(("--enforce-eager",) if self.enforce_eager else ()),
            *(("--chat-template", str(self.chat_template)) if self.chat_template else ()),
            *self.extra_args,
        )

    def environment(self) -> dict[str, str]:
        """Return the variables that are set for the server: no network, no telemetry."""
        gib = self.kv_cache_gib
        return {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "PYTHONUNBUFFERED": "1",
            **({} if gib is None else {"VLLM_CPU_KVCACHE_SPACE": str(gib)}),
            **self.env,
        }

    def missing(self) -> MissingPackageError:
        """Return what to raise where vLLM is not installed."""
        return _no_vllm(self.python)


GPU: Mapping[str, Any] = MappingProxyType(
    {"enforce_eager": False, "max_num_seqs": GPU_SEQS, "block_size": None, "kv_cache_gib": None}
)
"""What differs in `ServerSettings` on a graphics card, where vLLM's own choices are good."""


async def for_installed_vllm(plan: ServerSettings, cache_dir: Path) -> ServerSettings:
    """Return the plan without the options that its vLLM does not know; they are logged."""
    known = await known_options((plan.python, *plan.entry), cache_dir)
    plan = replace(plan, known_options=known)
    if plan.left_out:
        _log.warning("vLLM does not know %s: left out", ", ".join(plan.left_out))
    return plan


def require_vllm() -> None:
    """Tell before anything is fetched or converted that nothing could serve it.

    Raises:
        MissingPackageError: vLLM is not installed here.
    """
    if find_spec("vllm") is None:
        raise _no_vllm(sys.executable)


VllmServer = LocalServer
"""`async with VllmServer(settings) as server:` serves at `server.base_url` until the end."""


def _no_vllm(python: str) -> MissingPackageError:
    return MissingPackageError(
        f"vLLM is not installed in {python}; run `make venv` (Linux on x86_64), or point "
        "--base-url at a running server."
    )
