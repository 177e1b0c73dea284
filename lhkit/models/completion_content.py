"""The choices of `/v1/completions`: plain text, which a dialect's parser reads as it comes.

Source of the format: vLLM's `/v1/completions` with `return_token_ids` (one chunk a step).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from lhkit.errors import StreamBrokenError
from lhkit.models.dialects.parser import IncrementalParser, ParsedEvent, ParseResult
from lhkit.models.payload import typed
from lhkit.responses import TextDelta, ToolCallParsed


class CompletionContent:
    """Feeds one response's text to a parser and keeps it."""

    def __init__(self, parser: IncrementalParser) -> None:
        self._parser = parser
        self._pieces: list[str] = []
        self._shown_chars = 0
        self._shown_calls = 0
        self.result: ParseResult | None = None

    @property
    def raw_text(self) -> str:
        """All of the text."""
        return "".join(self._pieces)

    def has_token(self, choice: Mapping[str, Any]) -> bool:
        """Return True if the choice has text."""
        return bool(choice.get("text"))

    def feed(self, choice: Mapping[str, Any]) -> Iterator[ParsedEvent]:
        """Yield what has become certain.

        Raises:
            StreamBrokenError: there is text after the end, or it is no text.
        """
        text = typed(choice, "text", str)
        if not text:
            return
        if self.result is not None:
            raise StreamBrokenError(
                "the server went on after the end: give --base-url of the server itself, without a "
                "proxy that changes its streams"
            )
        self._pieces.append(text)
        for event in self._parser.feed(text):
            if isinstance(event, TextDelta):
                self._shown_chars += len(event.text)
            elif isinstance(event, ToolCallParsed):
                self._shown_calls += 1
            yield event

    def end(self) -> Iterator[ParsedEvent]:
        """Yield what the parser held back, as soon as the model has ended."""
        self.result = self._parser.close()
        if rest := self.result.text[self._shown_chars :]:
            yield TextDelta(text=rest)
        for call in self.result.calls[self._shown_calls :]:
            yield ToolCallParsed(call=call)

    def close(self, *, truncated: bool) -> Iterator[ParsedEvent]:
        """Yield nothing: in the text itself every call is complete, or is a fragment."""
        return iter(())
