"""Finds `{"name": …, "parameters": {…}}` calls in what a model writes, while it writes.

One scanner serves streaming and whole texts, so both agree at every chunking. Whatever is mended
is listed in the call's `repairs`. What stood around it: `fence`, `tag`, `array`, `separator`,
`in_object`. Its shape: `name_key`, `arguments_key`, `no_parameters`, `flat_parameters`,
`nested_function`, `string_parameters`, `extra_keys`, `duplicate_key`. Its notation:
`control_character`, `bad_escape`, `trailing_comma`, `python_literal`, `malformed`.
"""

import re
from collections.abc import Collection

from lhkit.models.dialects.base import ParseResult
from lhkit.models.dialects.json_object import read_call
from lhkit.models.dialects.json_wrapping import (
    Wrapping,
    could_grow,
    run_end,
)
from lhkit.models.dialects.open_brackets import BRACES, OpenBrackets
from lhkit.vocab.generation import TextDelta, ToolCallParsed
from lhkit.vocab.messages import ToolCall

_START = re.compile(
    r"""\{\s{0,99}["'](?:name|tool|tool_name|function|parameters|arguments|args)["']\s{0,99}:"""
)
_MAYBE_START = re.compile(r"""\{\s{0,99}(?:["'][a-z_]{0,10}(?:["']\s{0,99})?)?""")
_TAIL_CHARS = 8
_MEMBER = re.compile(r"""["']\s*:$""")
_INTERESTING = re.compile(r"[\s`<\[{]")


class JsonScanner:
    """Reads one response, chunk by chunk, in time linear in its length.

    `known` are the names of the tools on offer.
    """

    def __init__(self, known: Collection[str] = ()) -> None:
        self._known = known
        self._pending = ""  # what is not decided yet begins at `_at`
        self._at = 0
        self._held: list[str] = []  # the marks before `_at` that need not be read again
        self._object: OpenBrackets | None = None
        self._run = ""  # the marks before the open object
        self._wrapping = Wrapping()
        self._after_call = False
        self._text: list[str] = []
        self._tail = ""  # the end of the text since the last call
        self._calls: list[ToolCall] = []
        self._fragment = ""
        self._events: list[TextDelta | ToolCallParsed] = []

    def feed(self, chunk: str) -> list[TextDelta | ToolCallParsed]:
        """Return the text and calls that have become certain."""
        self._events = []
        self._pending += chunk
        self._scan(is_final=False)
        return self._events

    def close(self) -> ParseResult:
        """Return the whole result; what was undecided is decided now."""
        self._scan(is_final=True)
        if self._held:
            self._say(self._taken(self._at), "")
        if self._object is not None:
            self._fragment = self._object.raw
            self._object = None
        return ParseResult(
            text="".join(self._text), calls=tuple(self._calls), fragment=self._fragment
        )

    def _scan(self, *, is_final: bool) -> None:
        while self._at < len(self._pending):
            if self._object is not None:
                self._follow(self._object)
            elif not self._step(is_final=is_final):
                break
        self._pending = self._pending[self._at :]
        self._at = 0

    def _step(self, *, is_final: bool) -> bool:
        """Decide one piece at the present position; False if more input is needed."""
        end, settled = run_end(self._pending, self._at, after_call=self._after_call)
        if not is_final and could_grow(self._pending, end):
            self._held.append(self._consume(settled))
            return False
        if _START.match(self._pending, end):
            self._run = self._taken(end)
            self._object = OpenBrackets(BRACES)
            return True
        if not is_final and _MAYBE_START.fullmatch(self._pending, end):
            self._held.append(self._consume(settled))
            return False
        run = self._taken(end)
        self._say(run, self._consume(self._next_interesting(end)))
        return True

    def _taken(self, end: int) -> str:
        """Return the whole run of marks that ends at `end`, with what was held back of it."""
        run = "".join((*self._held, self._consume(end)))
        self._held.clear()
        return run

    def _consume(self, end: int) -> str:
        taken = self._pending[self._at : end]
        self._at = end
        return taken

    def _next_interesting(self, start: int) -> int:
        match = _INTERESTING.search(self._pending, start + 1)
        return match.start() if match else len(self._pending)

    def _follow(self, open_object: OpenBrackets) -> None:
        end = open_object.feed(self._pending, self._at)
        self._at = len(self._pending) if end is None else end
        if end is not None:
            self._object = None
            self._take(open_object.raw)

    def _take(self, raw: str) -> None:
        found = read_call(raw, self._known)
        if found is None:
            self._say(self._run, raw)
            return
        name, args, repairs = found
        around = self._wrapping.enter(self._run)
        if _MEMBER.search(self._tail):
            around = ("in_object", *around)
        call = ToolCall(name=name, args=args, raw=raw, repairs=(*around, *repairs))
        self._calls.append(call)
        self._events.append(ToolCallParsed(call=call))
        self._after_call = True
        self._tail = ""

    def _say(self, run: str, rest: str) -> None:
        """Take marks and what follows them, which is no call, as text."""
        if self._after_call:
            run = self._wrapping.close_in(run)
        text = run + rest if rest else run.rstrip()  # nothing follows only at the end
        if not self._text or self._after_call:
            text = text.lstrip()
        if not text:
            return
        if self._text and self._after_call:
            text = "\n" + text
        self._after_call = False
        self._text.append(text)
        self._tail = (self._tail + text)[-_TAIL_CHARS:]
        self._events.append(TextDelta(text=text))
