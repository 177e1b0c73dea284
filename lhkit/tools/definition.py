"""What a tool is: a name, words for the model, a JSON Schema and a handler."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from lhkit.confirm.summary import Summarizer
from lhkit.json_values import JSON
from lhkit.tool_results import ToolResult
from lhkit.tools.schema import with_defaults
from lhkit.tools.validation import Check

DEFAULT_TIMEOUT_S = 10.0

TODAY: Final[Mapping[str, JSON]] = MappingProxyType({"date": "today"})
"""In `implied`: the day of the conversation, written as in scenarios."""

Handler: TypeAlias = Callable[[Mapping[str, JSON], Any], Awaitable[ToolResult] | ToolResult]
"""(validated arguments, dependencies) to a result. May be a coroutine function; a plain function
must be short, because it runs on the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """One tool. `parameters` is a Draft 2020-12 object schema and the only truth about arguments.

    `is_destructive` means that it changes data, so a person is asked first. `summarize` overrides
    what that person reads. `timeout_s` bounds the handler, in seconds. `check` refuses arguments
    that the schema cannot (the end before the start), before that person is asked.

    `implied` says what an optional argument means that is left out, where the handler fills it in
    and the schema does not tell (or tells `null`): a value, or `TODAY`. The model is not told;
    whoever compares two calls is (`schema_on`). Example: `implied={"day": TODAY, "unit": "kg"}`.

    `repeatable`: the same call twice in a row is meant twice (`cd ..`), so the second one runs,
    too. Otherwise it is answered with `repeated_call`, because small models repeat themselves.

    `claims` names, by language, the words in which the success of a write is reported, as words or
    regular expressions: `{"ko": ["보냈"], "en": ["sent", "texted"]}`. The model does not see them.
    A reply that contains them where no such write ran fails its turn.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    handler: Handler
    is_destructive: bool = False
    summarize: Summarizer | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    check: Check | None = None
    implied: Mapping[str, JSON] = field(default_factory=dict)
    repeatable: bool = False
    claims: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def schema_on(self, today: date | None) -> Mapping[str, Any]:
        """Return `parameters` with what is implied as defaults: what a call means, for comparing.

        Args:
            today: the conversation's day; without one, `TODAY` stays untold.
        """
        if not self.implied:
            return self.parameters
        told = {name: each for name, each in self.implied.items() if each != TODAY}
        if today is not None:
            days = self.implied.keys() - told.keys()
            told |= dict.fromkeys(days, today.isoformat())
        return with_defaults(self.parameters, told) if told else self.parameters
