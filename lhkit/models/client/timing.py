"""Record the timestamps of one response, in seconds since the request was sent."""

from dataclasses import dataclass, field

from lhkit.conversation.responses import TextDelta, Timing, ToolCallParsed
from lhkit.models.dialects.parser import ParsedEvent


@dataclass(slots=True, kw_only=True)
class ChunkTimes:
    """Arrival times of chunks with generated content: first, last, and the gaps between them."""

    first_s: float | None = None
    last_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)

    def record(self, now_s: float) -> None:
        """Record the arrival of a chunk."""
        if self.last_s is None:
            self.first_s = now_s
        else:
            self.gaps_s.append(now_s - self.last_s)
        self.last_s = now_s


@dataclass(slots=True, kw_only=True)
class FirstTimes:
    """The first time of each kind of event, by field name of `Timing`."""

    times: dict[str, float] = field(default_factory=dict)

    def record(self, name: str, now_s: float) -> None:
        """Record a time, if it is the first of its kind."""
        self.times.setdefault(name, now_s)

    def record_event(self, event: ParsedEvent, now_s: float) -> None:
        """Record the time of the first visible text or complete call."""
        if isinstance(event, TextDelta):
            self.record("first_text_s", now_s)
        elif isinstance(event, ToolCallParsed):
            self.record("call_ready_s", now_s)

    def timing(self, tokens: ChunkTimes, *, retries: int, retried_s: float) -> Timing:
        """Return the recorded times as a `Timing`."""
        return Timing(
            **self.times,
            first_token_s=tokens.first_s,
            last_token_s=tokens.last_s,
            chunk_gaps_s=tuple(tokens.gaps_s),
            retries=retries,
            retried_s=retried_s,
        )
