"""The definition of a tool: name, description for the model, JSON Schema and handler."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from lhkit.base.json_values import JSON
from lhkit.base.schema import with_defaults
from lhkit.confirm.summary import Summarizer
from lhkit.conversation.tool_results import ToolErr, ToolResult
from lhkit.conversation.tool_spec import ToolSpec
from lhkit.tools.validation import Check

DEFAULT_TIMEOUT_S = 10.0

TODAY: Final[Mapping[str, JSON]] = MappingProxyType({"date": "today"})
"""In `implied`: the day of the conversation, written as in scenario files."""

Handler: TypeAlias = Callable[[Mapping[str, JSON], Any], Awaitable[ToolResult] | ToolResult]
"""Takes (validated arguments, dependencies), returns a result. May be a coroutine function; a plain
function must be quick, because it runs on the event loop."""

Rule: TypeAlias = Callable[..., Awaitable[ToolErr | None] | ToolErr | None]
"""Takes (a copy of the arguments as the card shows them) and, with a second parameter, the
dependencies; returns None to allow the call, or the `ToolErr` that refuses it. May be a coroutine
function. It must not write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition(ToolSpec):
    """One tool: what a model reads of it, and how its calls are run.

    Attributes:
        title: a short name for people, which heads the confirmation card in place of the
            description: a text, or one for each language (`{"en": "Share", "ko": "공유"}`; in
            another language the description heads it). Hidden from the model.
        handler: runs a call; see `Handler`.
        is_destructive: the tool changes data, so the user is asked before each call.
        summarize: returns the text of the confirmation card; by default the arguments as JSON.
        timeout_s: limit for the handler, in seconds.
        check: validates what the schema cannot express, such as that an end is after its start.
            Runs before the user is asked. Returns `invalid(field, expected, value)` to refuse.
            It sees the arguments alone; a check that needs the data is one of the `rules`.
        rules: refuse a call before the user is asked, by the data as it is: see `Rule`, and
            `ToolRegistry.tool(check=…)`. A rule that raises, or returns something else, refuses.
        implied: values of optional arguments that the handler fills in when they are left out and
            that the schema does not state as `default`, or `TODAY`. A destructive call gets them
            before the user is asked; for comparing calls; hidden from the model. Example:
            `{"day": TODAY, "unit": "kg"}`.
        repeatable: the same call twice in a row is intended (`cd ..`) and runs again. Otherwise,
            in a chat, the second one gets the result `repeated_call`, because small models repeat
            themselves.
        always_ask: no policy of approvals may let a call run without a question. Hidden from the
            model.
        claims: words or regular expressions in which a reply reports the success of this write,
            by language: `{"ko": ["보냈"], "en": ["sent", "texted"]}`. A reply that contains one
            without such a write fails its turn. Hidden from the model.
    """

    handler: Handler
    title: str | Mapping[str, str] = ""
    is_destructive: bool = False
    summarize: Summarizer | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    check: Check | None = None
    rules: Sequence[Rule] = ()
    implied: Mapping[str, JSON] = field(default_factory=dict)
    repeatable: bool = False
    always_ask: bool = False
    claims: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def title_in(self, locale: str) -> str:
        """Return the title in a language; empty if there is none."""
        return self.title if isinstance(self.title, str) else self.title.get(locale, "")

    def implied_on(self, today: date | None) -> dict[str, JSON]:
        """Return the implied values.

        Args:
            today: the day of the conversation, for `TODAY`; None leaves such arguments out.
        """
        day = {} if today is None else {TODAY["date"]: today.isoformat()}
        return {
            name: day["today"] if value == TODAY else value
            for name, value in self.implied.items()
            if value != TODAY or day
        }

    def schema_on(self, today: date | None) -> Mapping[str, Any]:
        """Return `parameters` with the implied values as defaults, for comparing calls.

        Args:
            today: the day of the conversation, for `TODAY`; None leaves such arguments without a
                default.
        """
        defaults = self.implied_on(today)
        return with_defaults(self.parameters, defaults) if defaults else self.parameters
