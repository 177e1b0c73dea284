"""The response of a model: events, token usage, timing, model identity.

Times are seconds on a monotonic clock since the request was sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lhkit.conversation.messages import ToolCall

WEIGHTS_CHARS = 12
"""Displayed length of a hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts reported by the server; `cached_tokens` is None if unknown."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The client's timestamps, in seconds since the successful attempt.

    Args:
        headers_s: response headers.
        first_chunk_s: first event of the stream.
        first_token_s: first generated token.
        first_text_s: first visible text.
        call_ready_s: first complete call.
        last_token_s: last generated token.
        done_s: end of the stream.
        chunk_gaps_s: gaps between successive chunks with tokens.
        retries: number of failed attempts before.
        retried_s: duration of the failed attempts, not included in the other times.
    """

    headers_s: float | None = None
    first_chunk_s: float | None = None
    first_token_s: float | None = None
    first_text_s: float | None = None
    call_ready_s: float | None = None
    last_token_s: float | None = None
    done_s: float | None = None
    chunk_gaps_s: tuple[float, ...] = ()
    retries: int = 0
    retried_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelIdentity:
    """The identity of a model, which is written into every record.

    Args:
        model: served name.
        server: software and version of the server.
        base_url: its address; empty for a model in memory. In a summary, the addresses that a run
            used one after another or by replicas, with spaces between them.
        dialect: how prompts are rendered and calls parsed.
        constraint: whether decoding is constrained (`off`, `auto`, `required`).
        stress: stress tests that were applied.
        weights: folder or repository of the weights, if its name differs from the served name.
        weights_sha256: hash of the weights; empty if unknown (a server that lhkit did not start).
        dtype: number type (`bfloat16`, `float32`), which may change answers; empty if unknown.
        device: graphics card of a server that lhkit started; empty for a CPU, or if unknown.
        template_sha256: hash of the model's chat template, if it renders the prompts; empty for
            lhkit's own rendering.
    """

    model: str
    server: str = ""
    base_url: str = ""
    dialect: str = ""
    constraint: str = "off"
    stress: str = ""
    weights: str = field(default="", repr=False)
    weights_sha256: str = field(default="", repr=False)
    dtype: str = field(default="", repr=False)
    device: str = field(default="", repr=False)
    template_sha256: str = field(default="", repr=False)

    @property
    def title(self) -> str:
        """The model's name for display, with its weights if their hash is known."""
        if not self.weights_sha256:
            return self.model
        label = weights_label(self.weights or self.model, self.weights_sha256)
        return f"{self.model} ({label})" if self.weights else label


def weights_label(name: str, sha256: str) -> str:
    """Return the name of weights for display, with the first letters of a known hash."""
    return f"{name}@{sha256[:WEIGHTS_CHARS]}" if sha256 else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Decoding parameters. Temperature 0 is greedy; then `seed` has no effect."""

    max_tokens: int = 256
    temperature: float = 0.0
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A chunk of the answer's text, ready to be shown."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    """A chunk of the model's reasoning, which is recorded but not shown as answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallParsed:
    """A complete, parsed call, never one that was cut off."""

    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The last event of a response, with the complete data.

    Args:
        reason: finish reason reported by the server.
        text: the answer without calls.
        calls: the parsed calls.
        fragment: raw text of a call that was cut off.
        truncated: the reason is `length`, or the token limit was reached.
        usage: token counts.
        timing: the client's timestamps.
        raw_text: the model's output, unparsed.
        token_ids: ids of the output's tokens.
        prompt_token_ids: ids of the prompt's tokens.
        prompt_text: the rendered prompt.
        prompt_sha256: its hash.
        prompt_ids_sha256: hash of the prompt's ids as little-endian integers of 64 bits; empty
            without ids.
        identity: identity of the server that answered.
        server_metrics: metrics reported by the server.
        refused_fields: request fields left out because the server refuses them: `stream_options`,
            `logprobs` or `n_probs`, `temperature` (its default applies), `max_tokens` or
            `max_completion_tokens` (the limit has both names in a chat request, and goes on under
            the other one).
        notes: deviations of the answer: `refusal` (the text is the server's refusal),
            `other_choices` (the server sent several choices; only the first is read),
            `cumulative_text` (every event repeated the text so far), `no_logprobs` (they were
            requested, and the server reports none), `incomplete_logprobs` (not those of every token
            of a call).
    """

    reason: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    fragment: str = ""
    truncated: bool = False
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    raw_text: str = ""
    token_ids: tuple[int, ...] = ()
    prompt_token_ids: tuple[int, ...] = ()
    prompt_text: str = ""
    prompt_sha256: str = ""
    prompt_ids_sha256: str = ""
    identity: ModelIdentity | None = None
    server_metrics: Mapping[str, Any] | None = None
    refused_fields: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def repairs(self) -> tuple[str, ...]:
        """The parser's repairs, in the order of the calls."""
        return tuple(repair for call in self.calls for repair in call.repairs)

    @property
    def strict(self) -> bool:
        """Whether the raw output was parsed without repairs and is not cut."""
        return not self.repairs and not self.fragment


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallParsed | Finished
