"""What a tool is: a name, words for the model, a JSON Schema and a handler."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lhkit.confirm.summary import Summarizer
from lhkit.tools.validation import Check
from lhkit.vocab.json_values import JSON
from lhkit.vocab.results import ToolResult

DEFAULT_TIMEOUT_S = 10.0

Handler: TypeAlias = Callable[[Mapping[str, JSON], Any], Awaitable[ToolResult] | ToolResult]
"""(validated arguments, dependencies) to a result. May be a coroutine function; a plain function
must be short, because it runs on the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """One tool. `parameters` is a Draft 2020-12 object schema and the only truth about arguments.

    `is_destructive` means that it changes data, so a person is asked first. `summarize` overrides
    what that person reads. `timeout_s` bounds the handler, in seconds. `check` refuses arguments
    that the schema cannot (the end before the start), before that person is asked.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    handler: Handler
    is_destructive: bool = False
    summarize: Summarizer | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    check: Check | None = None
