"""Scripted models, for demos and tests of tools: they send given replies and calls."""

from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say

__all__ = ["Reply", "ScriptedModel", "call", "say"]
