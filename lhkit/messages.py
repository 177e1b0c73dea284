"""What stands in a conversation: messages as values. No identity, no storage, no rendering."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from lhkit.tool_results import MAX_RESULT_BYTES, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A complete call as parsed from the model's text.

    `args` is whatever stood there (normally an object): nothing has been validated yet.
    `raw` is the text it was parsed from; `repairs` names what the parser had to mend.
    """

    name: str
    args: Any
    raw: str = ""
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """What the user said. `context` is a line for the model only, such as the present date."""

    text: str
    context: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMessage:
    """Words of the model that end a turn. `stopped` if the user stopped it midway."""

    text: str
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallMessage:
    """One call and its result.

    `index` is the call's place among the calls of one model message, `text` what the model said
    before the calls (kept on the first). `raw` is what the model wrote: the only trace of a call
    that was cut off, whose `name` is then empty. `hint` is what the model reads in place of a
    result of more than `max_bytes` (`truncation_hint` and `max_result_bytes` of the `Assistant`);
    empty for the general sentence.
    """

    name: str
    args: Any
    result: ToolResult
    text: str = ""
    index: int = 0
    raw: str = ""
    hint: str = ""
    max_bytes: int = MAX_RESULT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMessage:
    """A hint of the application to the user. It is never sent to the model."""

    text: str


Message: TypeAlias = UserMessage | ModelMessage | ToolCallMessage | SystemMessage
