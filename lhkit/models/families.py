"""Which Gemma family a model's name says it is, what dialect fits, and how to serve it. Pure.

No server parser is ever asked for: lhkit renders prompts and reads calls itself. Sources: vLLM
0.32's options; Gemma model cards (names, modalities).
"""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Device: TypeAlias = Literal["gpu", "cpu"]

_COMMON = (
    *("--host", "127.0.0.1"),  # nobody else may use it, unless its owner says so
    *("--max-model-len", "8192", "--generation-config", "vllm"),
    *("--enable-prompt-tokens-details", "--enable-per-request-metrics"),
    "--enable-force-include-usage",
)
_CPU = (
    *("--dtype", "bfloat16", "--block-size", "32", "--max-num-seqs", "16"),
    "--enforce-eager",
)
_CPU_ENV = ("VLLM_CPU_KVCACHE_SPACE=4",)
_CPU_SERVER = ("python", "-m", "vllm.entrypoints.openai.api_server")
"""The CPU build's `vllm` command asks for the metadata of another package and fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One Gemma family. `serve_args` is what its models need beside the common options."""

    name: str
    pattern: str
    dialect: str
    serve_args: tuple[str, ...] = ()


FAMILIES = (
    Family(name="FunctionGemma", pattern=r"function-?gemma", dialect="functiongemma"),
    Family(
        name="Gemma 4",
        pattern=r"gemma-?4",
        dialect="gemma4",
        serve_args=("--language-model-only",),
    ),
    Family(
        name="Gemma 3n",
        pattern=r"gemma-?3n",
        dialect="json",
        serve_args=("--limit-mm-per-prompt", '{"image":0,"audio":0}'),
    ),
    Family(name="Gemma 3 (text only)", pattern=r"gemma-?3-(270m|1b)|gemma-base", dialect="json"),
    Family(
        name="Gemma 3",
        pattern=r"gemma-?3",
        dialect="json",
        serve_args=("--language-model-only",),
    ),
)
"""The first row whose pattern is found in a model's name decides."""


def family_of(model: str) -> Family | None:
    """Return the family that the name of a model tells, None if it tells none."""
    lowered = model.casefold()
    return next((row for row in FAMILIES if re.search(row.pattern, lowered)), None)


def serve_command(model: str, device: Device) -> tuple[str, ...]:
    """Return the command line that serves `model` with what lhkit wants to see of a server.

    On a CPU it begins with environment variables, as for `env`.
    """
    family = family_of(model)
    extra = family.serve_args if family else ()
    if device == "gpu":
        return ("vllm", "serve", model, *_COMMON, *extra)
    return ("env", *_CPU_ENV, *_CPU_SERVER, "--model", model, *_CPU, *_COMMON, *extra)
