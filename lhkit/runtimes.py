"""Which engine serves a model that lhkit starts itself: vLLM by default, or the lighter llama.cpp.

A server that somebody else started is recognised by what it answers, and needs no name here.
"""

from typing import Literal, TypeAlias, get_args

Runtime: TypeAlias = Literal["vllm", "llama.cpp"]

RUNTIMES: tuple[Runtime, ...] = get_args(Runtime)
"""What `--runtime` takes."""

VLLM: Runtime = "vllm"
"""The default, and the reference of every figure."""
LLAMA_CPP: Runtime = "llama.cpp"
"""Starts in seconds, from one quantised file; needs neither torch nor vLLM."""
