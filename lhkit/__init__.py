"""lhkit: a small local model in front of tools that change real data.

The public door. Names are loaded when first used, so that `import lhkit` stays light.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lhkit.chat.controller import Assistant, ChatController
    from lhkit.confirm.gate import ConfirmGate, ConfirmRequest, DenyGate, GuardedGate, ScriptedGate
    from lhkit.confirm.summary import summarize
    from lhkit.confirm.terminal import TerminalGate
    from lhkit.dates.mentions import DateMention, find_dates
    from lhkit.dates.times import TimeMention, find_times
    from lhkit.errors import LhkitError, ModelError, SetupError, UsageError
    from lhkit.harness.author.reference import gold_model
    from lhkit.harness.compare import compare
    from lhkit.harness.loader import load_scenarios
    from lhkit.harness.matching import match_calls, values_equal
    from lhkit.harness.pairs import Comparison
    from lhkit.harness.rescore import rescore
    from lhkit.harness.results import Run
    from lhkit.harness.run import replay
    from lhkit.harness.scenario import Scenario
    from lhkit.mcp.toolset import McpToolset
    from lhkit.messages import ToolCall
    from lhkit.models.base import ChatModel, ModelRequest
    from lhkit.models.cassette import CassetteModel, RecordingModel
    from lhkit.models.openai_chat import OpenAiHttp
    from lhkit.models.scripted import Reply, ScriptedModel
    from lhkit.models.served import connect
    from lhkit.models.transport import Endpoint
    from lhkit.models.vllm import VllmHttp
    from lhkit.models.vllm_server import ServerSettings, VllmServer
    from lhkit.models.weights import ensure_tuned, ensure_weights
    from lhkit.responses import Sampling
    from lhkit.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult, encode_tool_result
    from lhkit.tools.definition import ToolDefinition
    from lhkit.tools.dispatcher import ToolDispatcher
    from lhkit.tools.registry import ToolRegistry
    from lhkit.toolset import Session, Toolset

__all__ = [
    "Assistant",
    "CassetteModel",
    "ChatController",
    "ChatModel",
    "Comparison",
    "ConfirmGate",
    "ConfirmRequest",
    "DateMention",
    "DenyGate",
    "Endpoint",
    "GuardedGate",
    "LhkitError",
    "McpToolset",
    "ModelError",
    "ModelRequest",
    "OpenAiHttp",
    "RecordingModel",
    "Reply",
    "Run",
    "Sampling",
    "Scenario",
    "ScriptedGate",
    "ScriptedModel",
    "ServerSettings",
    "Session",
    "SetupError",
    "TerminalGate",
    "TimeMention",
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
    "VllmHttp",
    "VllmServer",
    "compare",
    "connect",
    "encode_tool_result",
    "ensure_tuned",
    "ensure_weights",
    "find_dates",
    "find_times",
    "gold_model",
    "load_scenarios",
    "match_calls",
    "replay",
    "rescore",
    "summarize",
    "values_equal",
]

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())

_HOMES = {
    "Assistant": "chat.controller",
    "CassetteModel": "models.cassette",
    "ChatController": "chat.controller",
    "ChatModel": "models.base",
    "Comparison": "harness.pairs",
    "ConfirmGate": "confirm.gate",
    "ConfirmRequest": "confirm.gate",
    "DenyGate": "confirm.gate",
    "Endpoint": "models.transport",
    "GuardedGate": "confirm.gate",
    "LhkitError": "errors",
    "McpToolset": "mcp.toolset",
    "ModelError": "errors",
    "ModelRequest": "models.base",
    "OpenAiHttp": "models.openai_chat",
    "RecordingModel": "models.cassette",
    "Reply": "models.scripted",
    "Run": "harness.results",
    "DateMention": "dates.mentions",
    "TimeMention": "dates.times",
    "Sampling": "responses",
    "ScriptedGate": "confirm.gate",
    "Scenario": "harness.scenario",
    "ScriptedModel": "models.scripted",
    "ServerSettings": "models.vllm_server",
    "Session": "toolset",
    "SetupError": "errors",
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
    "VllmHttp": "models.vllm",
    "VllmServer": "models.vllm_server",
    "compare": "harness.compare",
    "connect": "models.served",
    "encode_tool_result": "tool_results",
    "ensure_tuned": "models.weights",
    "ensure_weights": "models.weights",
    "gold_model": "harness.author.reference",
    "load_scenarios": "harness.loader",
    "match_calls": "harness.matching",
    "replay": "harness.run",
    "rescore": "harness.rescore",
    "find_dates": "dates.mentions",
    "find_times": "dates.times",
    "summarize": "confirm.summary",
    "values_equal": "harness.matching",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its home when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'lhkit' has no attribute {name!r}")
    value = getattr(import_module(f"lhkit.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return [*__all__, "__version__"]
