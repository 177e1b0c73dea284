"""What a model gives back for one request: typed events and the evidence kept of them.

Times are seconds on a monotonic clock, relative to the moment the request was sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lhkit.messages import ToolCall

WEIGHTS_CHARS = 12
"""So much of a hash is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts as the server reports them; `cached_tokens` is None where it does not."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The client's timestamps of one response, in seconds since it was sent.

    `headers_s`: response headers. `first_chunk_s`: first event of the stream. `first_token_s`:
    first generated token. `first_text_s`: first text a user can see. `call_ready_s`: the first
    call is complete. `last_token_s`: last token. `done_s`: end of the stream.
    `chunk_gaps_s`: gaps between successive token-bearing chunks.

    All of these count from the try that was answered. Before it, `retries` tries had failed; the
    user has waited `retried_s` longer than the other times say.
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
    """Who answered: written into every record.

    `model` is the name the server serves, `server` its software and version, `base_url` its
    address (empty for an in-memory model; of several servers that are one model all addresses,
    with blanks between them), `dialect` how it was spoken to, `constraint` whether
    decoding was constrained (`off`, `auto`, `required`), `stress` what was made harder on purpose.
    `weights` is the folder or repository that the server loaded, where its name is another, and
    `weights_sha256` the hash of their content: two trainings under one name are two models. `dtype`
    is the type of number that it computes in (`bfloat16`, `float32`): the same weights may answer
    otherwise in another. These two are empty where nobody could tell (a server that lhkit did not
    start).
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

    @property
    def is_sure(self) -> bool:
        """Whether the same identity means the same weights; a script needs none."""
        return bool(self.weights_sha256 or not self.base_url)

    @property
    def title(self) -> str:
        """The model for people: with its weights, where their content is known."""
        if not self.weights_sha256:
            return self.model
        told = weights_label(self.weights or self.model, self.weights_sha256)
        return f"{self.model} ({told})" if self.weights else told


def weights_label(name: str, sha256: str) -> str:
    """Return weights for people: their name, and the first letters of their hash if it is known."""
    return f"{name}@{sha256[:WEIGHTS_CHARS]}" if sha256 else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to decode. Temperature 0 is greedy; `seed` matters only above it."""

    max_tokens: int = 256
    temperature: float = 0.0
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """More words of the answer, ready to be shown."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    """More of the model's reasoning: kept in the trace, not shown as answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallParsed:
    """A call that is complete and parses. A call that was cut off is never one of these."""

    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The last event of a response, with the evidence.

    `reason` is the server's word; `truncated` is computed (`length`, or as many tokens as were
    allowed). `text` is the answer without calls, `fragment` the raw text of a call that was cut
    off. `raw_text` and `token_ids` are what the model produced, unparsed.
    `prompt_ids_sha256` is of the prompt's ids in decimal, joined by commas; empty where none
    were told.
    `strict` is true when no repair was needed. `server_metrics` is the server's own account.

    `refused_fields` are the request fields that the server refused, so that the request went
    without them: `stream_options`, `temperature` (then the server's default), `max_tokens` (sent as
    `max_completion_tokens`).
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

    @property
    def repairs(self) -> tuple[str, ...]:
        """Every repair the parser made, in order of the calls."""
        return tuple(repair for call in self.calls for repair in call.repairs)

    @property
    def strict(self) -> bool:
        """True if the raw output parsed as it stood, with nothing mended and nothing cut."""
        return not self.repairs and not self.fragment


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallParsed | Finished
