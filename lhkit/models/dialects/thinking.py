"""Split off thinking in tags, with which some models begin a response: `<think>…</think>`.

A call in it is only mentioned, not made, if the tag is closed after it. If the tag is never
closed, whole and well-formed calls in it are calls, with the repair `in_thinking`; they stay in the
text of the thinking too.
"""

import re
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace

from lhkit.conversation.messages import ToolCall
from lhkit.models.dialects.parser import IncrementalParser, ParseResult

_NAMES = ("think", "thinking", "thought", "reasoning")
_OPEN = re.compile(rf"\s{{0,99}}<(?P<name>{'|'.join(_NAMES)})>")
_LONGEST = 120
_BEGUN = {f"<{name}>"[:end] for name in _NAMES for end in range(len(name) + 2)}


def calls_in_thinking(parser: IncrementalParser, text: str) -> Iterable[ToolCall]:
    """Yield the well-formed calls in thinking that was never closed."""
    for call in parser.whole(text).calls:
        if "malformed" not in call.repairs:
            yield replace(call, repairs=("in_thinking", *call.repairs))


class TaggedThinkingParser(IncrementalParser):
    """A parser of responses that may begin with thinking in tags."""

    def __init__(self) -> None:
        super().__init__()
        self._is_first = True
        self._closing = ""  # the tag that ends the thinking

    @abstractmethod
    def _step_text(self, *, is_final: bool) -> bool:
        """Decide the next piece after the thinking, as `_step`."""

    @abstractmethod
    def _another(self) -> "TaggedThinkingParser":
        """Return a new parser for the same tools."""

    def close(self) -> ParseResult:
        """Return the whole result, with the calls in thinking that was never closed."""
        self._scan(is_final=True)
        if self._closing:
            self._closing = ""
            parser = self._another()
            parser._is_first = False
            text = "".join(self._thinking)
            self._begin_source(text)
            for call in calls_in_thinking(parser, text):
                self._add_call(call)
        return super().close()

    def _step(self, *, is_final: bool) -> bool:
        if self._closing:
            return self._step_thinking(is_final=is_final)
        if self._is_first and (opening := _OPEN.match(self._pending, self._at)):
            self._is_first = False
            self._at = opening.end()
            self._closing = f"</{opening.group('name')}>"
            return True
        if self._is_first and not is_final and self._may_open():
            return False
        self._is_first = False
        return self._step_text(is_final=is_final)

    def _may_open(self) -> bool:
        """Return True if more input could make a tag of the text so far."""
        text = self._pending[self._at : self._at + _LONGEST]
        return len(text) < _LONGEST and text.lstrip() in _BEGUN

    def _step_thinking(self, *, is_final: bool) -> bool:
        end = self._pending.find(self._closing, self._at)
        if end >= 0:
            self._add_thinking(self._consume(end))
            self._at = end + len(self._closing)
            self._closing = ""
            return True
        safe = len(self._pending)
        begun = self._pending.rfind("<", max(self._at, safe - len(self._closing) + 1))
        if not is_final and begun >= 0 and self._closing.startswith(self._pending[begun:]):
            safe = begun
        has_advanced = safe > self._at
        self._add_thinking(self._consume(safe))
        return has_advanced
