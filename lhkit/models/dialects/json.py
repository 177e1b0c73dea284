"""The `json` dialect: calls as `{"name": …, "parameters": {…}}`, for Gemma 3 and 3n.

The protocol is the original app's (seeds): tools in the first user turn, results as a user turn.
The wording is ours. Calls are found in what a model writes while it writes.

Whatever is mended is listed in the call's `repairs`. What stood around it: `fence`, `tag`,
`array`, `separator`, `in_object`. Its shape: `name_key`, `arguments_key`, `no_parameters`,
`flat_parameters`, `nested_function`, `string_parameters`, `extra_keys`, `duplicate_key`. Its
notation: `control_character`, `bad_escape`, `trailing_comma`, `python_literal`, `malformed`.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lhkit.json_values import JSON, NotJsonError, compact
from lhkit.messages import Message, ToolCall, ToolCallMessage
from lhkit.models.dialects.base import Constraint, ToolSpec, spec_of
from lhkit.models.dialects.brackets import BRACES, NextCall, OpenBrackets
from lhkit.models.dialects.constraint import CALL_END, call_start, constrained
from lhkit.models.dialects.json_calls import read_call
from lhkit.models.dialects.parser import IncrementalParser, OpenCall, ParseResult
from lhkit.models.dialects.turns import END_OF_TURN_ID, START_OF_TURN_ID, render_told_calls
from lhkit.models.dialects.wrapping import Wrapping, could_grow, run_end

_PROTOCOL = """\
To use a tool, answer with only this JSON: {"name": "tool", "parameters": {"argument": value}}
You then get its result. Otherwise answer in words.
Tools:"""


class JsonDialect:
    """Speaks `{"name": …, "parameters": {…}}` with models that have no tool format of their own."""

    name = "json"
    stop_token_ids = (START_OF_TURN_ID, END_OF_TURN_ID)
    """A base model may open the next turn itself instead of ending its own."""
    stop_texts = ()

    def constrain(self, tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:
        """Return the request fields that constrain decoding: a grammar of our own.

        Raises:
            UsageError: a call is required and there is no tool, or a schema cannot be constrained.
        """
        return constrained(tools, constraint)

    def encode(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str = ""
    ) -> str:
        """Return the prompt: instructions and tools first, so that all chats share a prefix."""
        return render_told_calls(
            messages, tools, instructions, protocol=_PROTOCOL, written=self._written
        )

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the call as compact JSON with the separators a model would write.

        Raises:
            NotJsonError: if JSON cannot carry the arguments.
        """
        return call_start(name) + compact(args) + CALL_END

    def parse(self, raw: str, tools: Sequence[ToolSpec] = ()) -> ParseResult:
        """Return text and calls of a complete response. Never raises."""
        return self.incremental(tools).whole(raw)

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response; of the tools it needs only the names."""
        return _JsonParser(frozenset(str(spec_of(tool).get("name")) for tool in tools))

    def _written(self, calls: Sequence[ToolCallMessage]) -> list[str]:
        """Return each call as it should have been written, or as it was if that cannot be."""
        return [self._line(call) for call in calls]

    def _line(self, call: ToolCallMessage) -> str:
        if not call.name or (call.raw and not isinstance(call.args, Mapping)):
            return call.raw
        try:
            return self.render_call(call.name, call.args)
        except NotJsonError:
            return call.raw


_START = re.compile(
    r"""\{\s{0,99}["'](?:name|tool|tool_name|function|parameters|arguments|args)["']\s{0,99}:"""
)
_MAYBE_START = re.compile(r"""\{\s{0,99}(?:["'][a-z_]{0,10}(?:["']\s{0,99})?)?""")
_TAIL_CHARS = 8
_MEMBER = re.compile(r"""["']\s*:$""")
_INTERESTING = re.compile(r"[\s`<\[{]")


class _OpenObject(OpenBrackets):
    """An object that lacks a quote or a brace ends where the next call begins.

    Only at places where no value of valid JSON can begin, so that a whole object is never cut: in
    a string, whose quote stands there without a backslash, or after a value of an object.
    """

    def __init__(self) -> None:
        super().__init__(BRACES)

    def _next_call(self, text: str, at: int) -> NextCall:
        if text[at] != "{" or not (self._quote or self._is_after_value()):
            return "no"
        if found := _START.match(text, at):
            return "yes" if self._quote in found.group() else "no"
        return "wait" if _MAYBE_START.fullmatch(text, at) else "no"

    def _is_after_value(self) -> bool:
        if self._open[-1:] != ["{"] or self._last in {"{", ":"}:
            return False
        return self._last not in {'"', "'"} or self._before_string == ":"


class _JsonParser(IncrementalParser):
    """`known` are the names of the tools on offer."""

    def __init__(self, known: Collection[str]) -> None:
        super().__init__()
        self._known = known
        self._held: list[str] = []  # the marks before `_at` that need not be read again
        self._run = ""  # the marks before the open object
        self._wrapping = Wrapping()
        self._tail = ""  # the end of the text since the last call

    def close(self) -> ParseResult:
        """Return the whole result; marks that were held back are text, as nothing follows."""
        self._scan(is_final=True)
        if self._held:
            self._pass_over(self._taken(self._at), "")
        return super().close()

    def _step(self, *, is_final: bool) -> bool:
        after_call = self._prose.at_seam
        end, settled = run_end(self._pending, self._at, after_call=after_call)
        if not is_final and could_grow(self._pending, end):
            self._held.append(self._consume(settled))
            return False
        if _START.match(self._pending, end):
            self._run = self._taken(end)
            self._open = _OpenObject()
            return True
        if not is_final and _MAYBE_START.fullmatch(self._pending, end):
            self._held.append(self._consume(settled))
            return False
        run = self._taken(end)
        self._pass_over(run, self._consume(self._next_interesting(end)))
        return True

    def _taken(self, end: int) -> str:
        """Return the whole run of marks that ends at `end`, with what was held back of it."""
        run = "".join((*self._held, self._consume(end)))
        self._held.clear()
        return run

    def _next_interesting(self, start: int) -> int:
        match = _INTERESTING.search(self._pending, start + 1)
        return match.start() if match else len(self._pending)

    def _take(self, call: OpenCall) -> int:
        raw = call.raw
        taken = len(raw)
        found = read_call(raw.rstrip(), self._known)
        if found is None:
            self._pass_over(self._run, raw)
            return taken
        name, args, repairs = found
        around = self._wrapping.enter(self._run)
        if _MEMBER.search(self._tail):
            around = ("in_object", *around)
        self._make(ToolCall(name=name, args=args, raw=raw.rstrip(), repairs=(*around, *repairs)))
        self._tail = ""
        return taken

    def _pass_over(self, run: str, rest: str) -> None:
        """Take marks and what follows them, which is no call, as text."""
        if self._prose.at_seam:
            run = self._wrapping.close_in(run)
        self._tail = (self._tail + self._say(run + rest))[-_TAIL_CHARS:]
