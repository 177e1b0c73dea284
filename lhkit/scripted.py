"""Scripted models, for demos and tests of tools: they say and call what they are given."""

from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say

__all__ = ["Reply", "ScriptedModel", "call", "say"]
