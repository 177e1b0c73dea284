"""What is said and done in a conversation: messages, results, traces, streams, events of a turn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias, assert_never

from lhkit.json_values import JSON, NotJsonError, compact, read_only_json

# The envelope: what a tool call came to, and its text for the model.
#
# Knows nothing about tools, gates or locales. Source: seeds, `encodeToolResult`; ours counts UTF-8
# bytes and always returns valid JSON.


MAX_RESULT_BYTES = 2048
"""Default budget of one encoded result, in UTF-8 bytes (seed ADR-0005)."""

MIN_RESULT_BYTES = 256
"""The smallest budget that holds every fixed envelope together with its code."""

TRUNCATION_HINT = (
    "the result of {bytes} bytes was left out: it is too long to read; ask for less at once, such "
    "as a single item"
)
"""What the model is told in place of such a result, where the assistant has no sentence of its own.

It names no tool: nobody knows here which there are.
"""
CANCELLED_REASON = "user did not confirm"


@dataclass(frozen=True, slots=True)
class ToolOk:
    """The tool did its work; `data` is a JSON object."""

    data: Mapping[str, JSON]


@dataclass(frozen=True, slots=True)
class ToolErr:
    """The call was refused or failed, in a way that the model may mend.

    `code` is a stable word (`validation`, `r3_quota`, …); `reason` says what would be accepted.
    """

    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolCancelled:
    """The user did not confirm: nothing happened."""


ToolResult: TypeAlias = ToolOk | ToolErr | ToolCancelled


def envelope(result: ToolResult) -> dict[str, Any]:
    """Return the envelope as a plain mapping with its `status` first."""
    match result:
        case ToolOk(data=data):
            return {"status": "ok", "data": data}
        case ToolErr(code=code, reason=reason):
            return {"status": "error", "code": code, "reason": reason}
        case ToolCancelled():
            return {"status": "cancelled", "reason": CANCELLED_REASON}
        case _:
            assert_never(result)


def result_in(told: Any) -> ToolResult | None:
    """Return the result that plain data is the envelope of; None if they are none of ours."""
    match told:
        case {"status": "ok", "data": Mapping() as data, **more} if not more:
            return ToolOk(data)
        case {"status": "error", "code": str(code), "reason": str(reason), **more} if not more:
            return ToolErr(code=code, reason=reason)
        case {"status": "cancelled", "reason": str(reason), **more} if not more:
            return ToolCancelled() if reason == CANCELLED_REASON else None
        case _:
            return None


def serialisable(result: ToolResult) -> ToolResult:
    """Return `result`, or a `ToolErr("handler_error")` where JSON cannot carry it.

    The data of a `ToolOk` is a copy that nobody can change: whoever made it may keep it and go on
    with it, and what a tool answered stays what it answered.
    """
    try:
        if isinstance(result, ToolOk):
            return ToolOk(read_only_json(result.data))
        if isinstance(result, ToolErr) and not (type(result.code) is type(result.reason) is str):
            return ToolErr(code=_text(result.code), reason=_text(result.reason))
    except NotJsonError as error:
        return ToolErr(code="handler_error", reason=f"the result is not JSON: {error}")
    return result


def _text(value: Any) -> str:
    """Return a value that should be a text as one."""
    return str.__str__(value) if isinstance(value, str) else compact(value)


def encode_tool_result(
    result: ToolResult, max_bytes: int = MAX_RESULT_BYTES, *, hint: str = TRUNCATION_HINT
) -> str:
    """Return the JSON text sent to the model, at most `max_bytes` UTF-8 bytes long.

    A `ToolOk` that is too large keeps its status and loses its data, for `_truncated` and `_hint`.
    Anything else that is too large keeps its code and gets a shorter reason.

    Args:
        result: the envelope; data that JSON cannot carry becomes `ToolErr("handler_error")`.
        max_bytes: budget in UTF-8 bytes, at least `MIN_RESULT_BYTES`.
        hint: what a left-out result says; `{bytes}` is replaced by the original size.

    Raises:
        ValueError: if `max_bytes` is below `MIN_RESULT_BYTES` (the programmer's error).
    """
    if max_bytes < MIN_RESULT_BYTES:
        raise ValueError(f"max_bytes={max_bytes} is too small: give at least {MIN_RESULT_BYTES}")
    safe = serialisable(result)
    text = compact(envelope(safe))
    size_bytes = _size(text)
    if size_bytes <= max_bytes:
        return text
    match safe:
        case ToolOk():
            return _left_out(hint.replace("{bytes}", str(size_bytes)), max_bytes)
        case ToolErr(code=code, reason=reason):
            return _shortened(code, reason, max_bytes)
        case ToolCancelled():
            raise AssertionError("a cancelled envelope is always small")
        case _:
            assert_never(safe)


def envelope_bytes(result: ToolResult) -> int:
    """Return how many UTF-8 bytes the whole envelope takes. JSON must be able to carry it."""
    return _size(compact(envelope(result)))


def _left_out(hint: str, max_bytes: int) -> str:
    def build(text: str) -> str:
        return compact(envelope(ToolOk(data={"_truncated": True, "_hint": text})))

    return build(_longest_prefix(hint, build, max_bytes))


def _shortened(code: str, reason: str, max_bytes: int) -> str:
    short_code = _longest_prefix(code, compact, max_bytes // 2)

    def build(text: str) -> str:
        return compact(envelope(ToolErr(code=short_code, reason=text)))

    return build(_longest_prefix(reason, build, max_bytes))


def _longest_prefix(text: str, build: Callable[[str], str], max_bytes: int) -> str:
    """Return the longest prefix of `text` whose built JSON fits (bisection: size grows with it)."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if _size(build(text[:middle])) <= max_bytes:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def _size(text: str) -> int:
    return len(text.encode("utf-8"))


# What stands in a conversation: messages as values. No identity, no storage, no rendering.


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A complete call as parsed from the model's text.

    `args` is whatever stood there (normally an object): nothing has been validated yet.
    `raw` is the text it was parsed from; `repairs` names what the parser had to mend.
    """

    name: str
    args: Any
    raw: str = ""
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """What the user said. `context` is a line for the model only, such as the present date."""

    text: str
    context: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMessage:
    """Words of the model that end a turn. `stopped` if the user stopped it midway."""

    text: str
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallMessage:
    """One call and its result.

    `index` is the call's place among the calls of one model message, `text` what the model said
    before the calls (kept on the first). `raw` is what the model wrote: the only trace of a call
    that was cut off, whose `name` is then empty. `hint` is what the model reads in place of a
    result of more than `max_bytes` (`truncation_hint` and `max_result_bytes` of the `Assistant`);
    empty for the general sentence.
    """

    name: str
    args: Any
    result: ToolResult
    text: str = ""
    index: int = 0
    raw: str = ""
    hint: str = ""
    max_bytes: int = MAX_RESULT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMessage:
    """A hint of the application to the user. It is never sent to the model."""

    text: str


Message: TypeAlias = UserMessage | ModelMessage | ToolCallMessage | SystemMessage


# The record of one dispatch. Times are seconds of a monotonic clock, as durations.


class GateOutcome(StrEnum):
    """What became of the question to the user."""

    NOT_NEEDED = "not_needed"  # read-only, or it never came to the question
    ABSENT = "absent"  # destructive, and nobody there to ask
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    FAILED = "failed"  # the gate raised: counts as no
    NOT_ASKED = "not_asked"  # another destructive call of the same message came first


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchTrace:
    """What one call went through.

    `args` holds the validated arguments (None if validation failed), `extra_args` the keys that
    were dropped. `ran` tells whether the handler was started. `waiting_s` is time spent waiting
    for a person and is no part of the tool's latency. `summary` is what that person read of the
    call; empty where nobody was asked.
    """

    name: str
    raw_args: Any
    args: Mapping[str, JSON] | None
    extra_args: tuple[str, ...]
    gate: GateOutcome
    ran: bool
    result: ToolResult
    validation_s: float = 0.0
    waiting_s: float = 0.0
    handler_s: float = 0.0
    summary: str = ""


# What a model gives back for one request: typed events and the evidence kept of them.
#
# Times are seconds on a monotonic clock, relative to the moment the request was sent.


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
class Footprint:
    """What a server that lhkit started takes; None where nobody could know.

    `start_s`: seconds until it answered. `memory_bytes`: the most that its processes were seen to
    have in memory while it was asked. `weights_bytes`: the file or files that it loaded. `cores`:
    on how many processors it may compute.
    """

    start_s: float | None = None
    memory_bytes: int | None = None
    weights_bytes: int | None = None
    cores: int | None = None


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


# What happens in a chat, as values. The state of a chat is a fold of these and nothing else.


class EndReason(StrEnum):
    """Why a turn ended."""

    ANSWERED = "answered"
    TOO_LONG = "too_long"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    """A user turn began. `message` is None when a failed turn is retried."""

    message: UserMessage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalled:
    """A request went to the model; `turn` counts from 1 within the user turn."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TextStreamed:
    """More words arrived."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingStreamed:
    """More reasoning arrived; not part of the answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReady:
    """A call is complete and will be dispatched when the model has finished."""

    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFinished:
    """The model's message is complete."""

    response: Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettled:
    """A call has its result. `trace` is None where nothing was dispatched."""

    message: ToolCallMessage
    trace: DispatchTrace | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HintAdded:
    """The application has a hint for the user."""

    message: SystemMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The turn is over. `error` is a sentence for the user where `reason` is a fault.

    `cause` is the exception's type name, and `detail` its message, for logs and records.
    """

    reason: EndReason
    error: str | None = None
    cause: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class HistoryCleared:
    """The user cleared the conversation."""


ChatEvent: TypeAlias = (
    TurnStarted
    | ModelCalled
    | TextStreamed
    | ThinkingStreamed
    | CallReady
    | ModelFinished
    | CallSettled
    | HintAdded
    | TurnEnded
    | HistoryCleared
)
