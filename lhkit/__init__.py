"""lhkit: a small local model in front of tools that change real data.

The public names, each imported from its module when it is first used, so that `import lhkit` stays
quick. Everything else is imported from its own module, such as `lhkit.models.vllm`.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lhkit.chat.assistant import Assistant
    from lhkit.chat.controller import ChatController
    from lhkit.confirm.decision import Approve, Decision, Edit, Reject
    from lhkit.confirm.gate import ConfirmGate, ConfirmRequest, DenyGate, GuardedGate, ScriptedGate
    from lhkit.confirm.terminal import TerminalGate
    from lhkit.dates.mentions import find_dates
    from lhkit.dates.times import find_times
    from lhkit.errors import LhkitError, ModelError, UsageError
    from lhkit.harness.author.reference import gold_model
    from lhkit.harness.compare import compare
    from lhkit.harness.history import History
    from lhkit.harness.loader import load_scenarios
    from lhkit.harness.matching import match_calls
    from lhkit.harness.rescore import rescore
    from lhkit.harness.results import Run
    from lhkit.harness.run import replay
    from lhkit.harness.scenario import Scenario
    from lhkit.mcp.toolset import McpToolset
    from lhkit.messages import ToolCall
    from lhkit.models.base import ModelRequest
    from lhkit.models.cassette import CassetteModel, RecordingModel
    from lhkit.models.scripted import Reply, ScriptedModel
    from lhkit.models.served import connect
    from lhkit.models.transport import Endpoint
    from lhkit.models.weights import ensure_weights
    from lhkit.responses import Sampling
    from lhkit.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult, encode_tool_result
    from lhkit.tools.definition import ToolDefinition
    from lhkit.tools.dispatcher import ToolDispatcher
    from lhkit.tools.registry import ToolRegistry
    from lhkit.toolset import Session, Toolset

__all__ = [
    "Approve",
    "Assistant",
    "CassetteModel",
    "ChatController",
    "ConfirmGate",
    "ConfirmRequest",
    "Decision",
    "DenyGate",
    "Edit",
    "Endpoint",
    "GuardedGate",
    "History",
    "LhkitError",
    "McpToolset",
    "ModelError",
    "ModelRequest",
    "RecordingModel",
    "Reject",
    "Reply",
    "Run",
    "Sampling",
    "Scenario",
    "ScriptedGate",
    "ScriptedModel",
    "Session",
    "TerminalGate",
    "ToolCall",
    "ToolCancelled",
    "ToolDefinition",
    "ToolDispatcher",
    "ToolErr",
    "ToolOk",
    "ToolRegistry",
    "ToolResult",
    "Toolset",
    "UsageError",
    "compare",
    "connect",
    "encode_tool_result",
    "ensure_weights",
    "find_dates",
    "find_times",
    "gold_model",
    "load_scenarios",
    "match_calls",
    "replay",
    "rescore",
]

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())

_MODULES = {
    "Approve": "confirm.decision",
    "Assistant": "chat.assistant",
    "CassetteModel": "models.cassette",
    "ChatController": "chat.controller",
    "ConfirmGate": "confirm.gate",
    "ConfirmRequest": "confirm.gate",
    "Decision": "confirm.decision",
    "DenyGate": "confirm.gate",
    "Edit": "confirm.decision",
    "Endpoint": "models.transport",
    "GuardedGate": "confirm.gate",
    "History": "harness.history",
    "LhkitError": "errors",
    "McpToolset": "mcp.toolset",
    "ModelError": "errors",
    "ModelRequest": "models.base",
    "RecordingModel": "models.cassette",
    "Reject": "confirm.decision",
    "Reply": "models.scripted",
    "Run": "harness.results",
    "Sampling": "responses",
    "Scenario": "harness.scenario",
    "ScriptedGate": "confirm.gate",
    "ScriptedModel": "models.scripted",
    "Session": "toolset",
    "TerminalGate": "confirm.terminal",
    "ToolCall": "messages",
    "ToolCancelled": "tool_results",
    "ToolDefinition": "tools.definition",
    "ToolDispatcher": "tools.dispatcher",
    "ToolErr": "tool_results",
    "ToolOk": "tool_results",
    "ToolRegistry": "tools.registry",
    "ToolResult": "tool_results",
    "Toolset": "toolset",
    "UsageError": "errors",
    "compare": "harness.compare",
    "connect": "models.served",
    "encode_tool_result": "tool_results",
    "ensure_weights": "models.weights",
    "find_dates": "dates.mentions",
    "find_times": "dates.times",
    "gold_model": "harness.author.reference",
    "load_scenarios": "harness.loader",
    "match_calls": "harness.matching",
    "replay": "harness.run",
    "rescore": "harness.rescore",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module 'lhkit' has no attribute {name!r}")
    value = getattr(import_module(f"lhkit.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return [*__all__, "__version__"]
