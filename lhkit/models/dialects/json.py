"""The `json` dialect: calls as `{"name": …, "parameters": {…}}`, for Gemma 3 and 3n.

It is lhkit's own protocol, for models without a tool format; the embedded Gemma's adapter has
learnt it. Tools are in the first user turn, results in a user turn.

The codes in a call's `repairs`: around it `fence`, `tag`, `array`, `separator`, `in_object`; in it
those of `objects`.

Any object may be a call, so that its text is held back until its end. An answer is
text, and so are the calls in it; an object without end is text up to the calls in it.
"""

import re
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lhkit.base.json_values import JSON, NotJsonError, compact
from lhkit.conversation.messages import ToolCall, ToolCallMessage
from lhkit.models.decoding import Constraint
from lhkit.models.dialects.base import ToolSpec, tool_names
from lhkit.models.dialects.constraint import (
    CALL_END,
    call_start,
    constrained,
    unconstrained_tools,
)
from lhkit.models.dialects.objects import FIRST_KEYS, begins_call, loads, read_calls
from lhkit.models.dialects.parser import (
    BRACES,
    IncrementalParser,
    NextCall,
    OpenBrackets,
    OpenCall,
    ParseResult,
)
from lhkit.models.dialects.thinking import TaggedThinkingParser
from lhkit.models.dialects.turns import PromptedDialect

_START = re.compile(rf"""\{{\s{{0,99}}["'](?:{"|".join(FIRST_KEYS)})["']\s{{0,99}}:""")
_MAYBE_START = re.compile(r"""\{\s{0,99}(?:["'][a-z_]{0,10}(?:["']\s{0,99})?)?""")
_OBJECT = re.compile(r"""\{\s{0,99}["'][^"'\\\n]{1,40}["']\s{0,99}:""")
_MAYBE_OBJECT = re.compile(r"""\{\s{0,99}(?:["'][^"'\\\n]{0,40}(?:["']\s{0,99})?)?""")
_TAIL_CHARS = 8
_MEMBER = re.compile(r"""["']\s*:$""")
_INTERESTING = re.compile(r"(?<!\s)\s*+(?:[`<\[{]|\Z)")
"""Where a mark or an object may begin, with the white space before it, or at the end."""
_WORD = re.compile(r"\s*+[^`<\[{]")
"""Text after white space, before the first call."""

_FENCE = r"```[A-Za-z_]{0,20}"
_TAGS = ("tool_code", "tool_call", "tool_calls", "function_call", "function_calls")
_BEFORE_FIRST = re.compile(rf"\s+|{_FENCE}|<(?:{'|'.join(_TAGS)})>|\[")
_MARK = re.compile(rf"\s+|{_FENCE}|</?(?:{'|'.join(_TAGS)})>|[\[\],;]")

_LONG_MARKS = ("```", *(f"<{tag}>" for tag in _TAGS), *(f"</{tag}>" for tag in _TAGS))
_LONGEST_MARK = max(map(len, _LONG_MARKS))
_MARK_STARTS = frozenset(mark[:end] for mark in _LONG_MARKS for end in range(len(mark) + 1))

_CLOSERS = {"```": "fence", "]": "array"} | dict.fromkeys((f"</{tag}>" for tag in _TAGS), "tag")
_OPENERS = (("```", "fence"), ("<t", "tag"), ("<f", "tag"), ("[", "array"))


class JsonDialect(PromptedDialect):
    """Calls as `{"name": …, "parameters": {…}}`, for models without a native tool format."""

    name = "json"
    protocol = """\
To use a tool, answer with only this JSON: {"name": "tool", "parameters": {"argument": value}}
You then get its result. Otherwise answer in words.
Tools:"""

    def constrain(self, tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:
        """Return the request fields that constrain decoding, by a grammar.

        Raises:
            UsageError: a call is required but there is no tool, or no schema is supported.
        """
        return constrained(tools, constraint)

    def unconstrained_tools(self, tools: Sequence[ToolSpec]) -> Mapping[str, str]:
        """Return the tools whose schema is not supported by the grammar: name to reason."""
        return unconstrained_tools(tools)

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the text of a call.

        Raises:
            NotJsonError: the arguments are not JSON.
        """
        return call_start(name) + compact(args) + CALL_END

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response; of the tools it needs only the names."""
        return _JsonParser(tool_names(tools))

    def render_calls(self, calls: Sequence[ToolCallMessage]) -> Sequence[str]:
        """Return one line for each call."""
        return [self._line(call) for call in calls]

    def _line(self, call: ToolCallMessage) -> str:
        if not call.name or (call.raw and not isinstance(call.args, Mapping)):
            return call.raw
        try:
            return self.render_call(call.name, call.args)
        except NotJsonError:
            return call.raw


class _OpenObject(OpenBrackets):
    """A JSON object; if it lacks a quote or brace, it ends where the next call starts.

    The next call is recognised only where no value of valid JSON can start: in a string whose quote
    appears there without a backslash, or after a value of an object.
    """

    def __init__(self, *, may_be_text: bool) -> None:
        super().__init__(BRACES)
        self.may_be_text = may_be_text

    def _next_call(self, text: str, at: int) -> NextCall:
        if text[at] != "{" or not (self._quote or self._is_after_value()):
            return "no"
        if match := _START.match(text, at):
            return "yes" if self._quote in match.group() else "no"
        return "wait" if _MAYBE_START.fullmatch(text, at) else "no"

    def _is_after_value(self) -> bool:
        if self._open[-1:] != ["{"] or self._last in {"{", ":"}:
            return False
        return self._last not in {'"', "'"} or self._before_string == ":"


class _JsonParser(TaggedThinkingParser):
    """Parses one response; `known` are the names of the tools."""

    def __init__(self, known: Collection[str]) -> None:
        super().__init__()
        self._known = known
        self._held: list[str] = []  # the decided marks before `_at`
        self._run = ""  # the marks before the open object
        self._wrapping = _Wrapping()
        self._tail = ""  # the end of the text since the last call
        self._text_until = 0  # before this place only objects that begin like a call are calls

    def close(self) -> ParseResult:
        """Return the whole result; marks without a call after them are text."""
        self._scan(is_final=True)
        call = self._open
        if (
            isinstance(call, _OpenObject)
            and call.may_be_text
            and not begins_call(call.raw, self._known)
        ):
            call.boundary = len(call.raw)
            self._scan(is_final=True)
        if self._held:
            self._add_as_text(self._take_run(self._at), "")
        return super().close()

    def _another(self) -> TaggedThinkingParser:
        return _JsonParser(self._known)

    def _step_text(self, *, is_final: bool) -> bool:
        after_call = self._prose.is_after_call
        if not after_call and (word := _WORD.match(self._pending, self._at)):
            self._add_words(word.end() - 1)
            return True
        end, settled = _run_end(self._pending, self._at, after_call=after_call)
        if not is_final and _could_grow(self._pending, end):
            self._held.append(self._consume(settled))
            return False
        may_be_text = self._position - self._at + end >= self._text_until
        is_call = _START.match(self._pending, end) is not None
        if is_call or (may_be_text and _OBJECT.match(self._pending, end)):
            self._run = self._take_run(end)
            self._open = _OpenObject(may_be_text=not is_call)
            return True
        maybe = _MAYBE_OBJECT if may_be_text else _MAYBE_START
        if not is_final and maybe.fullmatch(self._pending, end):
            self._held.append(self._consume(settled))
            return False
        self._add_words(end)
        return True

    def _add_words(self, start: int) -> None:
        """Add the text from `start` on, up to where a call may begin, after its run of marks."""
        run = self._take_run(start)
        match = _INTERESTING.search(self._pending, start + 1)
        self._add_as_text(run, self._consume(match.start() if match else len(self._pending)))

    def _take_run(self, end: int) -> str:
        """Consume the run of marks up to `end`; return it with the marks held back before."""
        run = "".join((*self._held, self._consume(end)))
        self._held.clear()
        return run

    def _take(self, call: OpenCall) -> int:
        raw = call.raw
        may_be_text = isinstance(call, _OpenObject) and call.may_be_text
        calls = read_calls(raw.rstrip(), self._known) if call.is_complete else ()
        if not calls and may_be_text and (not call.is_complete or loads(raw) is None):
            self._text_until = self._position
            self._add_as_text(self._run, raw[0])
            return 1
        if not calls:
            self._add_as_text(self._run, raw)
            return len(raw)
        around = self._wrapping.enter(self._run)
        if _MEMBER.search(self._tail):
            around = ("in_object", *around)
        for name, args, repairs in calls:
            codes = dict.fromkeys((*around, *repairs))
            self._add_call(ToolCall(name=name, args=args, raw=raw.rstrip(), repairs=tuple(codes)))
        self._tail = ""
        return len(raw)

    def _add_as_text(self, run: str, rest: str) -> None:
        """Add marks and the text after them, which contain no call."""
        if self._prose.is_after_call:
            run = self._wrapping.close_in(run)
        self._tail = (self._tail + self._add_text(run + rest))[-_TAIL_CHARS:]


def _run_end(text: str, start: int, *, after_call: bool) -> tuple[int, int]:
    """Return (end of the run of marks at `start`, end of the part that cannot change)."""
    pattern = _MARK if after_call else _BEFORE_FIRST
    end = settled = start
    while match := pattern.match(text, end):
        settled = match.start() if match.group().startswith("`") else match.end()
        end = match.end()
    return end, settled


def _could_grow(text: str, end: int) -> bool:
    """Return True if more input could lengthen the run of marks that ends at `end`."""
    return text[end : end + _LONGEST_MARK + 1] in _MARK_STARTS


class _Wrapping:
    """The fences, tags and arrays that are open at the current position."""

    def __init__(self) -> None:
        self._open: dict[str, deque[int]] = {}  # the open marks of each kind, oldest first
        self._opened = 0

    def close_in(self, run: str) -> str:
        """Close the marks at the start of `run`, after a call; return the rest of it."""
        end = 0
        for mark in _MARK.finditer(run):
            if not self._closes(mark.group()):
                break
            end = mark.end()
        return run[end:]

    def enter(self, run: str) -> tuple[str, ...]:
        """Process `run`, the marks before a call; return the codes of repairs."""
        repairs = [
            "separator"
            for mark in _MARK.finditer(run)
            if not self._closes(mark.group()) and not self._opens(mark.group())
        ]
        oldest_first = sorted(self._open, key=lambda kind: self._open[kind][0])
        return tuple(dict.fromkeys([*oldest_first, *repairs]))

    def _closes(self, mark: str) -> bool:
        if mark.isspace():
            return True
        if mark == ",":
            return "array" in self._open
        kind = _CLOSERS.get(mark)
        if kind not in self._open:
            return False
        self._open[kind].popleft()
        if not self._open[kind]:
            del self._open[kind]
        return True

    def _opens(self, mark: str) -> bool:
        kind = next((kind for start, kind in _OPENERS if mark.startswith(start)), None)
        if kind is not None:
            self._open.setdefault(kind, deque()).append(self._opened)
            self._opened += 1
        return kind is not None
