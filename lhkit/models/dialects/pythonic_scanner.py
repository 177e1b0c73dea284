"""Finds `[f(a="x"), g()]` calls in what a model writes, while it writes.

One scanner serves streaming and whole texts, so both agree at every chunking. A list of calls is
made as a whole, when its bracket closes, or not at all. Repairs besides those of
`pythonic_values`: `fence`, `bare` (no list around it), `malformed`.
"""

import re
from collections.abc import Collection

from lhkit.models.dialects.base import ParsedEvent, ParseResult
from lhkit.models.dialects.open_brackets import OpenBrackets
from lhkit.models.dialects.prose import Prose
from lhkit.models.dialects.pythonic_start import Start, start_at
from lhkit.models.dialects.pythonic_values import read_calls
from lhkit.vocab.generation import TextDelta, ToolCallParsed
from lhkit.vocab.messages import ToolCall

_SPACE = re.compile(r"\s*")
_INTERESTING = re.compile(r"[`\[\n]")
_FENCE_END = re.compile(r"\s{0,99}```")
_MAYBE_FENCE_END = re.compile(r"\s{0,99}`{0,2}")


class PythonicScanner:
    """Reads one response, chunk by chunk, in time linear in its length.

    `known` are the names of the tools on offer.
    """

    def __init__(self, known: Collection[str] = ()) -> None:
        self._known = known
        self._pending = ""  # what is not decided yet begins at `_at`
        self._at = 0
        self._open: OpenBrackets | None = None
        self._name = ""  # of the first open call
        self._in_fence = False
        self._awaits_fence_end = False
        self._at_line_start = True
        self._prose = Prose()
        self._calls: list[ToolCall] = []
        self._events: list[ParsedEvent] = []

    def feed(self, chunk: str) -> list[ParsedEvent]:
        """Return the text and calls that have become certain."""
        self._events = []
        self._pending += chunk
        self._scan(is_final=False)
        return self._events

    def close(self) -> ParseResult:
        """Return the whole result; what was undecided is decided now."""
        self._scan(is_final=True)
        return ParseResult(
            text=self._prose.text,
            calls=tuple(self._calls),
            fragment=self._open.raw if self._open else "",
        )

    def _scan(self, *, is_final: bool) -> None:
        while self._at < len(self._pending):
            if self._open is not None:
                self._follow(self._open)
            elif not self._step(is_final=is_final):
                break
        self._pending = self._pending[self._at :]
        self._at = 0

    def _step(self, *, is_final: bool) -> bool:
        """Decide one piece at the present position; False if more input is needed."""
        if self._awaits_fence_end:
            return self._step_out_of_fence(is_final=is_final)
        if blank := _SPACE.match(self._pending, self._at):
            self._consume(blank.end())
        if self._at == len(self._pending):
            return True
        found = start_at(self._pending, self._at, self._known, may_be_bare=self._at_line_start)
        if isinstance(found, Start):
            self._begin(found)
        elif found == "wait" and not is_final:
            return False
        else:
            ahead = _INTERESTING.search(self._pending, self._at + 1)
            self._consume(ahead.start() if ahead else len(self._pending))
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

    def _consume(self, end: int) -> None:
        text = self._pending[self._at : end]
        self._at = end
        self._say(text)

    def _say(self, text: str) -> None:
        is_new = "\n" in text or self._at_line_start
        self._at_line_start = is_new and not text.rpartition("\n")[2].strip()
        if shown := self._prose.say(text):
            self._events.append(TextDelta(text=shown))

    def _begin(self, start: Start) -> None:
        self._at = start.at
        self._in_fence = self._in_fence or start.has_fence
        self._name = start.name
        self._open = OpenBrackets()

    def _follow(self, brackets: OpenBrackets) -> None:
        end = brackets.feed(self._pending, self._at)
        self._at = len(self._pending) if end is None else end
        if end is not None:
            self._open = None
            self._take(brackets.raw)

    def _take(self, raw: str) -> None:
        calls = self._calls_in(raw)
        if not calls:
            self._say(raw)
            return
        around = ["fence"] if self._in_fence else []
        around += [] if raw.startswith("[") else ["bare"]
        self._prose.cut()
        for call in calls:
            repairs = (*around, *call.repairs)
            whole = ToolCall(name=call.name, args=call.args, raw=call.raw, repairs=repairs)
            self._calls.append(whole)
            self._events.append(ToolCallParsed(call=whole))
        self._awaits_fence_end = self._in_fence
        self._at_line_start = True

    def _calls_in(self, raw: str) -> tuple[ToolCall, ...]:
        """Return the calls; none if it is no call.

        What makes no sense but names a tool keeps its raw text as arguments: the model is told.
        """
        try:
            return read_calls(raw)
        except (ValueError, RecursionError):
            if self._name not in self._known:
                return ()
            return (ToolCall(name=self._name, args=raw, raw=raw, repairs=("malformed",)),)
