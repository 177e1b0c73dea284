"""The engines that serve embedded models."""

from typing import Literal, TypeAlias

Runtime: TypeAlias = Literal["vllm", "llama.cpp"]
"""An engine that serves embedded models."""
VLLM: Runtime = "vllm"
LLAMA_CPP: Runtime = "llama.cpp"
"""Starts in seconds, from one quantised file, without torch and vLLM."""
