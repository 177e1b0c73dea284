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
    from lhkit.base.errors import LhkitError as LhkitError
    from lhkit.base.errors import ModelError as ModelError
    from lhkit.base.errors import UsageError as UsageError
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
    from lhkit.confirm.policy import ApprovalPolicy as ApprovalPolicy
    from lhkit.confirm.policy import PolicyGate as PolicyGate
    from lhkit.confirm.terminal import TerminalGate as TerminalGate
    from lhkit.conversation.messages import ToolCall as ToolCall
    from lhkit.conversation.responses import Sampling as Sampling
    from lhkit.conversation.tool_results import ToolCancelled as ToolCancelled
    from lhkit.conversation.tool_results import ToolErr as ToolErr
    from lhkit.conversation.tool_results import ToolOk as ToolOk
    from lhkit.conversation.tool_results import ToolResult as ToolResult
    from lhkit.conversation.tool_results import encode_tool_result as encode_tool_result
    from lhkit.conversation.tool_results import parse_result as parse_result
    from lhkit.harness.authoring.reference import gold_model as gold_model
    from lhkit.harness.authoring.reference import silent_model as silent_model
    from lhkit.harness.chats.approvals import approvals as approvals
    from lhkit.harness.results.choosing import choose_on_half as choose_on_half
    from lhkit.harness.results.compare import compare as compare
    from lhkit.harness.results.history import History as History
    from lhkit.harness.results.results import Run as Run
    from lhkit.harness.running.judges import judge as judge
    from lhkit.harness.running.measured import measured_in_front as measured_in_front
    from lhkit.harness.running.rescore import rescore as rescore
    from lhkit.harness.running.run import replay as replay
    from lhkit.harness.running.run_options import RunOptions as RunOptions
    from lhkit.harness.running.score_run import add_scores as add_scores
    from lhkit.harness.running.scores import score as score
    from lhkit.harness.running.stopping import StopRule as StopRule
    from lhkit.harness.scenarios.loader import load_scenarios as load_scenarios
    from lhkit.harness.scenarios.scenario import Scenario as Scenario
    from lhkit.harness.scenarios.scenario_filter import ScenarioFilter as ScenarioFilter
    from lhkit.harness.scoring.matching import match_calls as match_calls
    from lhkit.harness.views.sample import Sample as Sample
    from lhkit.imports import Imported as Imported
    from lhkit.imports import ImportedFile as ImportedFile
    from lhkit.lifehelper.dates.mentions import find_dates as find_dates
    from lhkit.lifehelper.dates.times import find_times as find_times
    from lhkit.mcp.session import StateRead as StateRead
    from lhkit.mcp.toolset import McpToolset as McpToolset
    from lhkit.models.base import ModelRequest as ModelRequest
    from lhkit.models.client.public import connect as connect
    from lhkit.models.client.transport import Endpoint as Endpoint
    from lhkit.models.recorded.cassette import CassetteModel as CassetteModel
    from lhkit.models.recorded.cassette import RecordingModel as RecordingModel
    from lhkit.models.recorded.scripted import Reply as Reply
    from lhkit.models.recorded.scripted import ScriptedModel as ScriptedModel
    from lhkit.models.weights.weights import ensure_weights as ensure_weights
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
    "confirm.policy": "ApprovalPolicy PolicyGate",
    "confirm.terminal": "TerminalGate",
    "lifehelper.dates.mentions": "find_dates",
    "lifehelper.dates.times": "find_times",
    "base.errors": "LhkitError ModelError UsageError",
    "harness.authoring.reference": "gold_model silent_model",
    "harness.chats.approvals": "approvals",
    "harness.results.choosing": "choose_on_half",
    "harness.results.compare": "compare",
    "harness.results.history": "History",
    "harness.scenarios.loader": "load_scenarios",
    "harness.scoring.matching": "match_calls",
    "harness.running.judges": "judge",
    "harness.running.measured": "measured_in_front",
    "harness.running.rescore": "rescore",
    "harness.results.results": "Run",
    "harness.running.run": "replay",
    "harness.running.run_options": "RunOptions",
    "harness.running.score_run": "add_scores",
    "harness.running.scores": "score",
    "harness.running.stopping": "StopRule",
    "harness.views.sample": "Sample",
    "harness.scenarios.scenario": "Scenario",
    "harness.scenarios.scenario_filter": "ScenarioFilter",
    "imports": "Imported ImportedFile",
    "mcp.session": "StateRead",
    "mcp.toolset": "McpToolset",
    "conversation.messages": "ToolCall",
    "models.base": "ModelRequest",
    "models.recorded.cassette": "CassetteModel RecordingModel",
    "models.recorded.scripted": "Reply ScriptedModel",
    "models.client.public": "connect",
    "models.client.transport": "Endpoint",
    "models.weights.weights": "ensure_weights",
    "conversation.responses": "Sampling",
    "conversation.tool_results": """
        ToolCancelled ToolErr ToolOk ToolResult encode_tool_result parse_result
    """,
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
