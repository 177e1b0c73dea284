"""lhkit: a small local model in front of tools that change real data.

The public names, each imported from its module when it is first used, so that `import lhkit` stays
quick. More public names are in `lhkit.notebook`, `lhkit.testing`, `lhkit.scripted`,
`lhkit.reports`, `lhkit.sft` and `lhkit.settings`; all other modules may move.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers, the same names as below
    from lhkit.app import shipped_scenarios as shipped_scenarios
    from lhkit.chat.assistant import Assistant as Assistant
    from lhkit.chat.controller import ChatController as ChatController
    from lhkit.confirm.decision import Approve as Approve
    from lhkit.confirm.decision import Decision as Decision
    from lhkit.confirm.decision import Edit as Edit
    from lhkit.confirm.decision import Reject as Reject
    from lhkit.confirm.gate import ConfirmGate as ConfirmGate
    from lhkit.confirm.gate import ConfirmRequest as ConfirmRequest
    from lhkit.confirm.gate import DenyGate as DenyGate
    from lhkit.confirm.gate import GuardedGate as GuardedGate
    from lhkit.confirm.gate import ScriptedGate as ScriptedGate
    from lhkit.confirm.terminal import TerminalGate as TerminalGate
    from lhkit.dates.mentions import find_dates as find_dates
    from lhkit.dates.times import find_times as find_times
    from lhkit.errors import LhkitError as LhkitError
    from lhkit.errors import ModelError as ModelError
    from lhkit.errors import UsageError as UsageError
    from lhkit.harness.author.reference import gold_model as gold_model
    from lhkit.harness.author.reference import silent_model as silent_model
    from lhkit.harness.compare import compare as compare
    from lhkit.harness.history import History as History
    from lhkit.harness.loader import load_scenarios as load_scenarios
    from lhkit.harness.matching import match_calls as match_calls
    from lhkit.harness.rescore import rescore as rescore
    from lhkit.harness.results import Run as Run
    from lhkit.harness.run import replay as replay
    from lhkit.harness.scenario import Scenario as Scenario
    from lhkit.imports import Imported as Imported
    from lhkit.imports import ImportedFile as ImportedFile
    from lhkit.mcp.session import StateRead as StateRead
    from lhkit.mcp.toolset import McpToolset as McpToolset
    from lhkit.messages import ToolCall as ToolCall
    from lhkit.models.base import ModelRequest as ModelRequest
    from lhkit.models.cassette import CassetteModel as CassetteModel
    from lhkit.models.cassette import RecordingModel as RecordingModel
    from lhkit.models.scripted import Reply as Reply
    from lhkit.models.scripted import ScriptedModel as ScriptedModel
    from lhkit.models.served import connect as connect
    from lhkit.models.transport import Endpoint as Endpoint
    from lhkit.models.weights import ensure_weights as ensure_weights
    from lhkit.responses import Sampling as Sampling
    from lhkit.tool_results import ToolCancelled as ToolCancelled
    from lhkit.tool_results import ToolErr as ToolErr
    from lhkit.tool_results import ToolOk as ToolOk
    from lhkit.tool_results import ToolResult as ToolResult
    from lhkit.tool_results import encode_tool_result as encode_tool_result
    from lhkit.tool_results import parse_result as parse_result
    from lhkit.tools.definition import ToolDefinition as ToolDefinition
    from lhkit.tools.dispatcher import ToolDispatcher as ToolDispatcher
    from lhkit.tools.registry import ToolRegistry as ToolRegistry
    from lhkit.toolset import Session as Session
    from lhkit.toolset import Toolset as Toolset
    from lhkit.toolset import load_toolset as load_toolset
    from lhkit.toolset import opened as opened

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())

_NAMES = {
    "app": "shipped_scenarios",
    "chat.assistant": "Assistant",
    "chat.controller": "ChatController",
    "confirm.decision": "Approve Decision Edit Reject",
    "confirm.gate": "ConfirmGate ConfirmRequest DenyGate GuardedGate ScriptedGate",
    "confirm.terminal": "TerminalGate",
    "dates.mentions": "find_dates",
    "dates.times": "find_times",
    "errors": "LhkitError ModelError UsageError",
    "harness.author.reference": "gold_model silent_model",
    "harness.compare": "compare",
    "harness.history": "History",
    "harness.loader": "load_scenarios",
    "harness.matching": "match_calls",
    "harness.rescore": "rescore",
    "harness.results": "Run",
    "harness.run": "replay",
    "harness.scenario": "Scenario",
    "imports": "Imported ImportedFile",
    "mcp.session": "StateRead",
    "mcp.toolset": "McpToolset",
    "messages": "ToolCall",
    "models.base": "ModelRequest",
    "models.cassette": "CassetteModel RecordingModel",
    "models.scripted": "Reply ScriptedModel",
    "models.served": "connect",
    "models.transport": "Endpoint",
    "models.weights": "ensure_weights",
    "responses": "Sampling",
    "tool_results": "ToolCancelled ToolErr ToolOk ToolResult encode_tool_result parse_result",
    "tools.definition": "ToolDefinition",
    "tools.dispatcher": "ToolDispatcher",
    "tools.registry": "ToolRegistry",
    "toolset": "Session Toolset load_toolset opened",
}
"""The public names, by their module."""

_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*sorted(_MODULES)]  # noqa: PLE0604 - names, as the table has them


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
