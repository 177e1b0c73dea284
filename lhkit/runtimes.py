"""Which engine serves a model that lhkit starts itself: vLLM by default, or the lighter llama.cpp.

A server that somebody else started is recognised by what it answers, and needs no name here.
"""

from typing import Literal, TypeAlias, get_args

from lhkit.errors import UsageError

Runtime: TypeAlias = Literal["vllm", "llama.cpp"]

RUNTIMES: tuple[Runtime, ...] = get_args(Runtime)
"""What `--runtime` takes."""

VLLM: Runtime = "vllm"
"""The default, and the reference of every figure."""
LLAMA_CPP: Runtime = "llama.cpp"
"""Starts in seconds, from one quantised file; needs neither torch nor vLLM."""


def runtime_of(word: str) -> Runtime:
    """Return the runtime of that name.

    Raises:
        UsageError: there is no such runtime.
    """
    if word in RUNTIMES:
        return word
    raise UsageError(f"no runtime {word!r}: choose one of {', '.join(RUNTIMES)}")
