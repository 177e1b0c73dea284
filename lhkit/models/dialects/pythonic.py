"""The `pythonic` dialect: calls as `[f(a="x", b=1)]`, a comparison arm for Gemma 3 and 3n.

Tools in the first user turn, results as a user turn, as in `json`. Not vLLM's template, which
leaves out the commas of calls in the history, nor its parser, which refuses fences and words.

A list of calls is made as a whole, when its bracket closes, or not at all. Repairs besides those
of the values: `fence`, `bare` (no list around it), `malformed`.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lhkit.json_values import JSON, NotJsonError
from lhkit.messages import Message, ToolCall, ToolCallMessage
from lhkit.models.dialects.base import Constraint, ToolSpec, spec_of, unconstrained
from lhkit.models.dialects.brackets import NextCall, OpenBrackets
from lhkit.models.dialects.parser import IncrementalParser, OpenCall, ParseResult
from lhkit.models.dialects.pythonic_calls import read_calls, write_call
from lhkit.models.dialects.pythonic_starts import Start, start_at
from lhkit.models.dialects.transcript import is_writable
from lhkit.models.dialects.turns import END_OF_TURN_ID, START_OF_TURN_ID, render_told_calls

_PROTOCOL = """\
To use tools, answer with only this list: [tool(argument="value", other=1)]
You then get the results. Otherwise answer in words.
Tools:"""


class PythonicDialect:
    """Speaks `[f(a="x")]` with models that have no tool format of their own."""

    name = "pythonic"
    stop_token_ids = (START_OF_TURN_ID, END_OF_TURN_ID)
    """A base model may open the next turn itself instead of ending its own."""
    stop_texts = ()

    def constrain(self, tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:
        """Return no fields: decoding is free.

        Raises:
            UsageError: any constraint but `off`.
        """
        return unconstrained(self.name, constraint)

    def encode(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str = ""
    ) -> str:
        """Return the prompt: instructions and tools first, so that all chats share a prefix."""
        return render_told_calls(
            messages, tools, instructions, protocol=_PROTOCOL, written=_written
        )

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the call as a list of one.

        Raises:
            NotJsonError: if JSON cannot carry the arguments.
        """
        return f"[{write_call(name, args)}]"

    def parse(self, raw: str, tools: Sequence[ToolSpec] = ()) -> ParseResult:
        """Return text and calls of a complete response. Never raises."""
        return self.incremental(tools).whole(raw)

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response; of the tools it needs only the names."""
        return _PythonicParser(frozenset(str(spec_of(tool).get("name")) for tool in tools))


def _written(calls: Sequence[ToolCallMessage]) -> list[str]:
    """Return the calls as one list, and those that cannot be written as the model wrote them."""
    written: list[str] = []
    raws: list[str] = []
    for call in calls:
        try:
            good = write_call(call.name, call.args) if is_writable(call) else ""
        except NotJsonError:
            good = ""
        (written if good else raws).append(good or call.raw)
    return [*([f"[{', '.join(written)}]"] if written else []), *raws]


_SPACE = re.compile(r"\s*")
_INTERESTING = re.compile(r"[`\[\n]")
_FENCE_END = re.compile(r"\s{0,99}```")
_MAYBE_FENCE_END = re.compile(r"\s{0,99}`{0,2}")

_MOST_SPLITS = 8


class _OpenCalls(OpenBrackets):
    """A list that lacks a quote or a bracket ends where the next list of calls begins.

    Inside of a string that is so only if the whole makes no sense, unless `is_hasty`.
    """

    def __init__(self, known: Collection[str], *, is_hasty: bool) -> None:
        super().__init__()
        self._known = known
        self._is_hasty = is_hasty

    def _next_call(self, text: str, at: int) -> NextCall:
        before = self._last_inside if self._quote else self._last
        if text[at] != "[" or before not in {")", "]"} or (self._quote and before == ")"):
            return "no"
        found = start_at(text, at, self._known, may_be_bare=False)
        if isinstance(found, Start):
            return "yes" if self._is_hasty or not self._quote else "maybe"
        return found


class _PythonicParser(IncrementalParser):
    """`known` are the names of the tools on offer."""

    def __init__(self, known: Collection[str]) -> None:
        super().__init__()
        self._known = known
        self._name = ""  # of the first open call
        self._splits = 0
        self._in_fence = False
        self._awaits_fence_end = False
        self._at_line_start = True

    def _step(self, *, is_final: bool) -> bool:
        if self._awaits_fence_end:
            return self._step_out_of_fence(is_final=is_final)
        if blank := _SPACE.match(self._pending, self._at):
            self._say(self._consume(blank.end()))
        if self._at == len(self._pending):
            return True
        found = start_at(self._pending, self._at, self._known, may_be_bare=self._at_line_start)
        if isinstance(found, Start):
            self._begin(found)
        elif found == "wait" and not is_final:
            return False
        else:
            ahead = _INTERESTING.search(self._pending, self._at + 1)
            self._say(self._consume(ahead.start() if ahead else len(self._pending)))
        return True

    def _step_out_of_fence(self, *, is_final: bool) -> bool:
        """Leave out the end of a fence that stands directly after its calls."""
        end = _FENCE_END.match(self._pending, self._at)
        if end is None and not is_final and _MAYBE_FENCE_END.fullmatch(self._pending, self._at):
            return False
        self._awaits_fence_end = False
        if end is not None:
            self._in_fence = False
            self._at = end.end()
        return True

    def _say(self, text: str) -> str:
        is_new = "\n" in text or self._at_line_start
        self._at_line_start = is_new and not text.rpartition("\n")[2].strip()
        return super()._say(text)

    def _begin(self, start: Start) -> None:
        self._at = start.at
        self._in_fence = self._in_fence or start.has_fence
        self._name = start.name
        self._open = _OpenCalls(self._known, is_hasty=self._splits > _MOST_SPLITS)

    def _take(self, call: OpenCall) -> int:
        raw = call.raw
        calls = self._read(raw) if call.is_complete else ()
        if not calls:
            self._splits += call.boundary is not None
            raw = raw[: call.boundary]
            calls = self._malformed(raw.rstrip())
        if not calls:
            self._say(raw)
            return len(raw)
        around = ["fence"] if self._in_fence else []
        around += [] if raw.startswith("[") else ["bare"]
        for each in calls:
            self._make(replace(each, repairs=(*around, *each.repairs)))
        self._awaits_fence_end = self._in_fence
        self._at_line_start = True
        return len(raw)

    def _read(self, raw: str) -> tuple[ToolCall, ...]:
        try:
            return read_calls(raw)
        except (ValueError, RecursionError):
            return ()

    def _malformed(self, raw: str) -> tuple[ToolCall, ...]:
        """Return what names a tool but makes no sense, with its raw text, for validation."""
        if self._name not in self._known:
            return ()
        return (ToolCall(name=self._name, args=raw, raw=raw, repairs=("malformed",)),)
