"""lhkit: a small local model in front of tools that change real data.

The public door. Names are loaded when first used, so that `import lhkit` stays light.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lhkit.chat.controller import Assistant, ChatController
    from lhkit.confirm.gate import (
        ConfirmGate,
        ConfirmRequest,
        DenyGate,
        GuardedGate,
        ScriptedGate,
        TerminalGate,
    )
    from lhkit.confirm.summary import summarize
    from lhkit.errors import LhkitError, ModelError, SetupError, UsageError
    from lhkit.harness.authoring.gold import gold_model
    from lhkit.harness.expectations.matching import match_calls, values_equal
    from lhkit.harness.replay.rescore import rescore
    from lhkit.harness.replay.runner import replay
    from lhkit.harness.results.compare import Comparison, compare
    from lhkit.harness.results.run import Run
    from lhkit.harness.scenarios.scenario import load_scenarios
    from lhkit.models.base import ChatModel, ModelRequest
    from lhkit.models.cassette import CassetteModel, RecordingModel
    from lhkit.models.connection import Endpoint
    from lhkit.models.openai_http import OpenAiHttp
    from lhkit.models.scripted import Reply, ScriptedModel
    from lhkit.models.served import connect
    from lhkit.models.vllm_http import VllmHttp
    from lhkit.models.vllm_server import ServerSettings, VllmServer
    from lhkit.models.weights import ensure_weights
    from lhkit.tools.definition import ToolDefinition
    from lhkit.tools.dispatcher import ToolDispatcher
    from lhkit.tools.registry import ToolRegistry
    from lhkit.tuning.tuned_weights import ensure_tuned
    from lhkit.vocab.generation import Sampling
    from lhkit.vocab.results import (
        ToolCancelled,
        ToolErr,
        ToolOk,
        ToolResult,
        encode_tool_result,
    )

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())

_HOMES = {
    "Assistant": "chat.controller",
    "CassetteModel": "models.cassette",
    "ChatController": "chat.controller",
    "ChatModel": "models.base",
    "Comparison": "harness.results.compare",
    "ConfirmGate": "confirm.gate",
    "ConfirmRequest": "confirm.gate",
    "DenyGate": "confirm.gate",
    "Endpoint": "models.connection",
    "GuardedGate": "confirm.gate",
    "LhkitError": "errors",
    "ModelError": "errors",
    "ModelRequest": "models.base",
    "OpenAiHttp": "models.openai_http",
    "RecordingModel": "models.cassette",
    "Reply": "models.scripted",
    "Run": "harness.results.run",
    "Sampling": "vocab.generation",
    "ScriptedGate": "confirm.gate",
    "ScriptedModel": "models.scripted",
    "ServerSettings": "models.vllm_server",
    "SetupError": "errors",
    "TerminalGate": "confirm.gate",
    "ToolCancelled": "vocab.results",
    "ToolDefinition": "tools.definition",
    "ToolDispatcher": "tools.dispatcher",
    "ToolErr": "vocab.results",
    "ToolOk": "vocab.results",
    "ToolRegistry": "tools.registry",
    "ToolResult": "vocab.results",
    "UsageError": "errors",
    "VllmHttp": "models.vllm_http",
    "VllmServer": "models.vllm_server",
    "compare": "harness.results.compare",
    "connect": "models.served",
    "encode_tool_result": "vocab.results",
    "ensure_tuned": "tuning.tuned_weights",
    "ensure_weights": "models.weights",
    "gold_model": "harness.authoring.gold",
    "load_scenarios": "harness.scenarios.scenario",
    "match_calls": "harness.expectations.matching",
    "replay": "harness.replay.runner",
    "rescore": "harness.replay.rescore",
    "summarize": "confirm.summary",
    "values_equal": "harness.expectations.matching",
}

__all__ = [
    "Assistant",
    "CassetteModel",
    "ChatController",
    "ChatModel",
    "Comparison",
    "ConfirmGate",
    "ConfirmRequest",
    "DenyGate",
    "Endpoint",
    "GuardedGate",
    "LhkitError",
    "ModelError",
    "ModelRequest",
    "OpenAiHttp",
    "RecordingModel",
    "Reply",
    "Run",
    "Sampling",
    "ScriptedGate",
    "ScriptedModel",
    "ServerSettings",
    "SetupError",
    "TerminalGate",
    "ToolCancelled",
    "ToolDefinition",
    "ToolDispatcher",
    "ToolErr",
    "ToolOk",
    "ToolRegistry",
    "ToolResult",
    "UsageError",
    "VllmHttp",
    "VllmServer",
    "compare",
    "connect",
    "encode_tool_result",
    "ensure_tuned",
    "ensure_weights",
    "gold_model",
    "load_scenarios",
    "match_calls",
    "replay",
    "rescore",
    "summarize",
    "values_equal",
]


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
