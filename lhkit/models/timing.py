"""The moments of one response, noted as they happen, in seconds since the request was sent."""

from dataclasses import dataclass, field

from lhkit.models.dialects.parser import ParsedEvent
from lhkit.responses import TextDelta, Timing, ToolCallParsed


@dataclass(slots=True, kw_only=True)
class Tokens:
    """When chunks came that hold something generated."""

    first_s: float | None = None
    last_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)

    def note(self, now_s: float) -> None:
        """A chunk with something generated has come."""
        if self.last_s is None:
            self.first_s = now_s
        else:
            self.gaps_s.append(now_s - self.last_s)
        self.last_s = now_s


@dataclass(slots=True, kw_only=True)
class Moments:
    """What becomes a `Timing`, by the names of its fields: the first of each kind counts."""

    firsts: dict[str, float] = field(default_factory=dict)

    def note(self, name: str, now_s: float) -> None:
        """Note a moment, if it is the first of its kind."""
        self.firsts.setdefault(name, now_s)

    def note_event(self, event: ParsedEvent, now_s: float) -> None:
        """Something has become certain."""
        if isinstance(event, TextDelta):
            self.note("first_text_s", now_s)
        elif isinstance(event, ToolCallParsed):
            self.note("call_ready_s", now_s)

    def timing(self, tokens: Tokens, *, retries: int, retried_s: float) -> Timing:
        """Return all of it as a value."""
        return Timing(
            **self.firsts,
            first_token_s=tokens.first_s,
            last_token_s=tokens.last_s,
            chunk_gaps_s=tuple(tokens.gaps_s),
            retries=retries,
            retried_s=retried_s,
        )
