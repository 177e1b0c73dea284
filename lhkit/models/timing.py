"""The moments of one response, noted as they happen, in seconds since the request was sent."""

from dataclasses import dataclass, field

from lhkit.models.dialects.parser import ParsedEvent
from lhkit.responses import TextDelta, Timing, ToolCallParsed


@dataclass(slots=True, kw_only=True)
class Moments:
    """What becomes a `Timing`: the first of each kind counts, of tokens and data also the last."""

    headers_s: float | None = None
    first_chunk_s: float | None = None
    first_token_s: float | None = None
    first_text_s: float | None = None
    call_ready_s: float | None = None
    last_token_s: float | None = None
    done_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)

    def note_token(self, now_s: float) -> None:
        """A chunk with something generated has come."""
        if self.last_token_s is None:
            self.first_token_s = now_s
        else:
            self.gaps_s.append(now_s - self.last_token_s)
        self.last_token_s = now_s

    def take_tokens(self, other: "Moments") -> None:
        """Have the tokens' moments of `other`."""
        self.first_token_s, self.last_token_s = other.first_token_s, other.last_token_s
        self.gaps_s = other.gaps_s

    def note_event(self, event: ParsedEvent, now_s: float) -> None:
        """Something has become certain."""
        match event:
            case TextDelta() if self.first_text_s is None:
                self.first_text_s = now_s
            case ToolCallParsed() if self.call_ready_s is None:
                self.call_ready_s = now_s

    def timing(self, *, retries: int, retried_s: float) -> Timing:
        """Return all of it as a value."""
        return Timing(
            headers_s=self.headers_s,
            first_chunk_s=self.first_chunk_s,
            first_token_s=self.first_token_s,
            first_text_s=self.first_text_s,
            call_ready_s=self.call_ready_s,
            last_token_s=self.last_token_s,
            done_s=self.done_s,
            chunk_gaps_s=tuple(self.gaps_s),
            retries=retries,
            retried_s=retried_s,
        )
