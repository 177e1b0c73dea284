"""Record a model's responses with timestamps to a file, and replay them exactly.

For notebooks and tests that must run without a server. A request that was not recorded is an
error; answers are never made up.

A cassette is a file of JSON lines. The first line has the version of the format and the identity of
the model, each other line the request and the events of one response. Fields of a request that are
the same as on the previous line (instructions, tools, sampling) are left out. A request is
identified by what is sent to the model, so not by handlers, summaries and time limits of tools, nor
by notices to the user.
"""

import asyncio
import difflib
import hashlib
import json
import math
import time
import unicodedata
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from lhkit.base.errors import CassetteError, UsageError
from lhkit.base.files import write_atomically
from lhkit.base.json_values import NotJsonError, canonical, compact, plain_json
from lhkit.base.redaction import masked
from lhkit.base.text import printable
from lhkit.conversation.messages import (
    Message,
    SystemMessage,
    ToolCall,
    ToolCallMessage,
    UserMessage,
)
from lhkit.conversation.responses import (
    Finished,
    ModelEvent,
    ModelIdentity,
    TextDelta,
    ThinkingDelta,
    ToolCallParsed,
)
from lhkit.conversation.tool_results import MAX_RESULT_BYTES, encoded_size, result_to_dict
from lhkit.models.base import ChatModel, ModelRequest

VERSION: Final = 2

_TIME_DIGITS = 6
_DIFF_LINES = 24
_LINE_CHARS = 120
_COMPARED_CHARS = 2000


@dataclass(frozen=True, kw_only=True)
class RequestContent:
    """The content of a request that identifies it, as plain JSON."""

    instructions: str
    tools: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    sampling: dict[str, Any]

    @cached_property
    def key(self) -> str:
        """The hash of the content."""
        return hashlib.sha256(canonical(plain(self)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedEvent:
    """An event in a cassette: its time, in seconds since the request was sent, and its content.

    One of the other fields is set.
    """

    at_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    text: str | None = None
    thinking: str | None = None
    call: ToolCall | None = None
    finished: Finished | None = None

    @classmethod
    def of(cls, at_s: float, event: ModelEvent) -> "TimedEvent":
        """Return an event of a model with its time."""
        match event:
            case TextDelta(text=text):
                return cls(at_s=at_s, text=text)
            case ThinkingDelta(text=text):
                return cls(at_s=at_s, thinking=text)
            case ToolCallParsed(call=call):
                return cls(at_s=at_s, call=call)
            case Finished():
                return cls(at_s=at_s, finished=event)

    @property
    def event(self) -> ModelEvent:
        """The event as the model yielded it."""
        if self.finished is not None:
            return self.finished
        if self.call is not None:
            return ToolCallParsed(call=self.call)
        if self.thinking is not None:
            return ThinkingDelta(text=self.thinking)
        return TextDelta(text=self.text or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One complete response to one request; its last event is `Finished`."""

    request: RequestContent
    events: tuple[TimedEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cassette:
    """Responses of one model, in the order of their completion."""

    identity: ModelIdentity
    responses: tuple[Response, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    cassette: Literal[2]
    identity: ModelIdentity


_HEAD = TypeAdapter(_Head)
_RESPONSE = TypeAdapter(Response)


class RecordingModel:
    """Wraps a model and records each complete response to a cassette.

    The whole file is rewritten after every response, so a cassette is for dozens of responses, not
    for a run. An existing file is replaced by the first response. Failed and abandoned responses
    are not recorded. Conversations may run concurrently; only one recorder may write to a path.

    Args:
        inner: the model.
        path: the cassette file.
        clock: monotonic clock in seconds.
    """

    def __init__(
        self, inner: ChatModel, path: str | Path, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._inner = inner
        self._path = Path(path)
        self._clock = clock
        self._cassette = Cassette(identity=inner.identity)
        self._unsaved = ""

    @property
    def identity(self) -> ModelIdentity:
        """The identity of the inner model."""
        return self._inner.identity

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of the inner model; the response is saved before its last one.

        Raises:
            ModelError: as the inner model.
            CassetteError: the request or the response is not valid JSON, or the file cannot be
                written.
        """
        content = request_content(request)
        events: list[TimedEvent] = []
        sent_s = self._clock()
        async with aclosing(self._inner.stream(request)) as stream:
            async for event in stream:
                at_s = round(self._clock() - sent_s, _TIME_DIGITS)
                events.append(TimedEvent.of(at_s, event))
                if isinstance(event, Finished):
                    self._append(Response(request=content, events=tuple(events)))
                yield event

    async def aclose(self) -> None:
        """Retry a failed write, and close the inner model.

        Raises:
            CassetteError: the file still cannot be written.
        """
        try:
            self._save()
        finally:
            await self._inner.aclose()

    def _append(self, response: Response) -> None:
        responses = (*self._cassette.responses, response)
        cassette = Cassette(identity=self._cassette.identity, responses=responses)
        self._unsaved = encode_cassette(cassette)
        self._cassette = cassette
        self._save()

    def _save(self) -> None:
        if not self._unsaved:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, masked(self._unsaved).encode())
        except OSError as error:
            raise CassetteError(
                f"the cassette {self._path} cannot be written ({error}): give another path"
            ) from error
        self._unsaved = ""


class CassetteModel:
    """A model that replays the responses of a cassette. Open one with `open`.

    Responses are found by the content of the request. If it was recorded several times, they are
    returned in the recorded order, and then always the last one, so that a notebook cell can be
    run again. Each model object starts at the first response.
    """

    def __init__(
        self,
        cassette: Cassette,
        path: Path,
        *,
        pace: float = 0.0,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        if not (math.isfinite(pace) and pace >= 0):
            raise UsageError(f"Invalid pace {pace}: give 0 (at once), 1 (as recorded) or between.")
        self._cassette = cassette
        self._path = path
        self._pace = pace
        self._sleep = sleep
        self._recorded_s = 0.0
        self._responses: defaultdict[str, list[Response]] = defaultdict(list)
        self._replayed: Counter[str] = Counter()
        for response in cassette.responses:
            self._responses[response.request.key].append(response)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        pace: float = 0.0,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> "CassetteModel":
        """Read a cassette.

        Args:
            path: a file that `RecordingModel` wrote.
            pace: 0 replays at once, 1 in recorded time, 2 in twice that time.
            sleep: waits for a number of seconds.

        Raises:
            CassetteError: the file is missing or invalid.
            UsageError: `pace` is negative or not finite.
        """
        return cls(read_cassette(Path(path)), Path(path), pace=pace, sleep=sleep)

    @property
    def identity(self) -> ModelIdentity:
        """The identity of the recorded model."""
        return self._cassette.identity

    def clock(self) -> float:
        """Return the recorded duration of the responses replayed so far, in seconds.

        `replay` takes it as clock while it runs one conversation at a time, so that latencies are
        those of the recording, at any pace.
        """
        return self._recorded_s

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the recorded events.

        Raises:
            CassetteError: the request was not recorded; the message shows what changed.
        """
        content = request_content(request)
        responses = self._responses.get(content.key)
        if not responses:
            raise self._unknown_request(content)
        index = min(self._replayed[content.key], len(responses) - 1)
        self._replayed[content.key] += 1
        now_s = 0.0
        for timed in responses[index].events:
            gap_s = max(0.0, timed.at_s - now_s)
            if self._pace and gap_s:
                await self._sleep(gap_s * self._pace)
            self._recorded_s += gap_s
            now_s += gap_s
            yield timed.event

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    def _unknown_request(self, content: RequestContent) -> CassetteError:
        if not self._cassette.responses:
            return CassetteError(f"the cassette {self._path} is empty: record it again")
        recorded = (response.request for response in self._cassette.responses)
        nearest = max(recorded, key=lambda candidate: _similarity(candidate, content))
        changes = _changes(nearest, content)
        diffs = "\n".join(_diff(name, *pair) for name, pair in changes.items())
        return CassetteError(
            f"the cassette {self._path} has no answer to this request, which differs from the "
            f"nearest recorded one in {' and '.join(changes)}: record it again with "
            f"RecordingModel\n{diffs}"
        )


def encode_cassette(cassette: Cassette) -> str:
    """Return the text of a cassette file.

    Raises:
        CassetteError: a response is not valid JSON.
    """
    lines: list[Any] = [{"cassette": VERSION, "identity": plain(cassette.identity)}]
    previous: dict[str, str] = {}
    names = [field.name for field in fields(RequestContent)]
    for response in cassette.responses:
        request = {name: getattr(response.request, name) for name in names}
        texts = {name: canonical(value) for name, value in request.items()}
        new = {name: request[name] for name in request if texts[name] != previous.get(name)}
        previous = texts
        lines.append({"request": new, "events": plain(response.events)})
    try:
        return "".join(f"{compact(line)}\n" for line in lines)
    except NotJsonError as error:
        raise CassetteError(f"This response cannot be recorded: {error}.") from error


def read_cassette(path: Path) -> Cassette:
    """Read a cassette file.

    Raises:
        CassetteError: it is missing or invalid; the message names file, line and field.
    """
    if path.exists() and not path.is_file():  # reading a pipe or a device may never end
        raise CassetteError(f"{path} is not a regular file: give the path of a cassette")
    try:
        lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    except OSError as error:
        raise CassetteError(
            f"the cassette {path} cannot be read ({error}): record one with RecordingModel"
        ) from error
    head: _Head | None = None
    responses: list[Response] = []
    request: dict[str, Any] = {}
    try:
        head = _HEAD.validate_python(_parse_json(lines[0]), extra="forbid")
        for text in lines[1:]:
            line = _parse_json(text)
            if isinstance(line, dict) and isinstance(line.get("request"), dict):
                request |= line["request"]
                line["request"] = dict(request)
            response = _RESPONSE.validate_python(line, extra="forbid")
            _require_complete(response.events)
            responses.append(response)
    except (ValueError, RecursionError) as error:
        place = f"{path}:{1 if head is None else len(responses) + 2}"
        raise CassetteError(
            f"{place}: {_describe(error)}: fix the cassette or record it again"
        ) from error
    return Cassette(identity=head.identity, responses=tuple(responses))


def request_content(request: ModelRequest) -> RequestContent:
    """Return the content of a request that identifies it.

    Raises:
        CassetteError: it is not valid JSON.
    """
    sampling = request.sampling
    tools = (
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in request.tools
    )
    sent = (message for message in request.messages if not isinstance(message, SystemMessage))
    try:
        return RequestContent(
            instructions=request.instructions,
            tools=list(map(plain_json, tools)),
            messages=[plain_json(_encode_message(message)) for message in sent],
            sampling={
                "max_tokens": sampling.max_tokens,
                "temperature": float(sampling.temperature),  # 0 and 0.0 are equal
                "seed": sampling.seed,
            },
        )
    except NotJsonError as error:
        raise CassetteError(
            f"This request cannot be recorded or replayed: {error}. Use the model itself."
        ) from error


def plain(value: Any) -> Any:
    """Return dataclasses as mappings, without empty fields that have their default."""
    if is_dataclass(value) and not isinstance(value, type):
        items = {field: plain(getattr(value, field.name)) for field in fields(value)}
        return {
            field.name: item
            for field, item in items.items()
            if item or getattr(value, field.name) != field.default
        }
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def _encode_message(message: Message) -> dict[str, Any]:
    if not isinstance(message, ToolCallMessage):
        return {"from": "user" if isinstance(message, UserMessage) else "model", **plain(message)}
    call = message.call
    optional = {"text": message.text, "index": message.index, "raw": call.raw}
    if encoded_size(message.result) > message.max_bytes:  # only then the model reads these
        optional["hint"] = message.hint
        if message.max_bytes != MAX_RESULT_BYTES:
            optional["max_bytes"] = message.max_bytes
    optional = {name: value for name, value in optional.items() if value}
    args = plain(call.args)
    result = result_to_dict(message.result)
    return {"from": "tool", "name": call.name, "args": args, **optional, "result": result}


def _require_complete(events: tuple[TimedEvent, ...]) -> None:
    for event in events:
        contents = (event.text, event.thinking, event.call, event.finished)
        if sum(content is not None for content in contents) != 1:
            raise ValueError("field events: give one of text, thinking, call and finished")
    ends = [i for i, event in enumerate(events) if event.finished is not None]
    if ends != [len(events) - 1]:
        raise ValueError("field events: the last event and no other must be finished")


def _parse_json(line: bytes) -> Any:
    return json.loads(line, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _describe(error: Exception) -> str:
    match error:
        case ValidationError():
            first = error.errors(include_url=False)[0]
            return f"field {'.'.join(map(str, first['loc'])) or 'cassette'}: {first['msg']}"
        case json.JSONDecodeError(msg=message):
            return message
        case _:
            return str(error)


def _changes(recorded: RequestContent, new: RequestContent) -> dict[str, tuple[Any, Any]]:
    """Return the recorded and new values that differ; of messages only the first pair."""
    changes = {
        name: (getattr(recorded, name), getattr(new, name))
        for name in ("instructions", "tools", "sampling")
        if canonical(getattr(recorded, name)) != canonical(getattr(new, name))
    }
    same = _common_messages(recorded, new)
    for pair in list(zip_longest(recorded.messages, new.messages))[same : same + 1]:
        changes[f"message {same + 1}"] = pair
    return changes


def _similarity(recorded: RequestContent, new: RequestContent) -> tuple[int, int, float]:
    changes = _changes(recorded, new)
    last = list(changes.values())[-1]
    old_text, new_text = (canonical(value)[:_COMPARED_CHARS] for value in last)
    ratio = difflib.SequenceMatcher(None, old_text, new_text, autojunk=False).quick_ratio()
    return _common_messages(recorded, new), -len(changes), ratio


def _common_messages(recorded: RequestContent, new: RequestContent) -> int:
    """Return the number of equal messages at the beginning."""
    pairs = zip(recorded.messages, new.messages, strict=False)
    return len(list(takewhile(lambda pair: canonical(pair[0]) == canonical(pair[1]), pairs)))


def _diff(name: str, recorded: Any, new: Any) -> str:
    """Return a short unified diff of a value; None if it is missing."""
    old_lines, new_lines = (list(_diff_lines(value)) for value in (recorded, new))
    titles = (f"recorded {name}", f"new {name}")
    lines = list(difflib.unified_diff(old_lines, new_lines, *titles, n=1, lineterm=""))
    left_out = len(lines) - _DIFF_LINES
    more = [f"… {left_out} more lines"] if left_out > 0 else []
    if unicodedata.normalize("NFC", canonical(recorded)) == unicodedata.normalize(
        "NFC", canonical(new)
    ):
        more.append("they look the same: one has composed Korean (NFC), the other not (NFD)")
    return "\n".join([*map(printable, lines[:_DIFF_LINES]), *more])


def _diff_lines(value: Any) -> Iterator[str]:
    if value is None:
        return
    is_text = isinstance(value, str)
    text = value if is_text else json.dumps(value, ensure_ascii=False, indent=1)
    for line in text.splitlines():
        yield from (line[at : at + _LINE_CHARS] for at in range(0, len(line), _LINE_CHARS))
