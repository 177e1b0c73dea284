"""The demo's scripted assistant: calls by user message, replies by what the tools returned."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lhkit.base.files import read_text_file
from lhkit.conversation.messages import ToolCall, ToolCallMessage, UserMessage
from lhkit.conversation.tool_results import ToolErr, ToolOk
from lhkit.harness.scenarios.documents import read_yaml
from lhkit.models.base import ModelRequest
from lhkit.models.recorded.scripted import Reply, ScriptedModel, say

_FOLDER = Path(__file__).parent


def demo_model(
    locale: str, *, pause: Callable[[], Awaitable[object]] | None = None
) -> ScriptedModel:
    """Return the assistant in a language; `pause` is awaited before every piece of its text."""
    script = read_yaml(read_text_file(_FOLDER / f"{locale}.script.yaml")).value
    assistant = _Assistant(calls=script["calls"], says=script["says"])
    return ScriptedModel(assistant.reply, name="scripted-demo", chunk_chars=3, pause=pause)


def scenario_file(locale: str) -> Path:
    """Return the file of the demo's scenarios in a language."""
    return _FOLDER / f"{locale}.scenario.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assistant:
    calls: dict[str, list[dict[str, Any]]]
    says: dict[str, str]

    def reply(self, request: ModelRequest) -> Reply:
        """Return the next planned call of the turn, then what became of the last one in words."""
        messages = request.messages
        last = max(i for i, message in enumerate(messages) if isinstance(message, UserMessage))
        message = messages[last]
        planned = self.calls[message.text] if isinstance(message, UserMessage) else []
        done = [m for m in messages[last:] if isinstance(m, ToolCallMessage)]
        if len(done) < len(planned):
            step = planned[len(done)]
            return Reply(calls=(ToolCall(name=step["tool"], args=step["args"]),))
        return say(self._say(done[-1]) if done else self.says["none"])

    def _say(self, call: ToolCallMessage) -> str:
        match call.result:
            case ToolOk(data=data):
                rows: Any = data.get("items", ())
                items = ", ".join(f"{row['id']} ({row['quantity']})" for row in rows)
                return self.says[call.name].format(**{**data, "items": items})
            case ToolErr():
                return self.says["error"]
            case _:
                return self.says["cancelled"]
