"""Cassettes: a model's answers recorded with the time of each chunk, and played again."""

import asyncio
import difflib
import hashlib
import json
import math
import re
import time
import unicodedata
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, assert_never

from pydantic import Field, TypeAdapter, ValidationError

from lhkit.errors import CassetteError, UsageError
from lhkit.files import write_whole
from lhkit.json_values import NotJsonError, canonical, plain_json
from lhkit.messages import (
    Finished,
    Message,
    ModelEvent,
    ModelIdentity,
    SystemMessage,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolCallMessage,
    ToolCallParsed,
    ToolCancelled,
    UserMessage,
    envelope,
    envelope_bytes,
)
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.redaction import masked
from lhkit.text import printable

# JSON laid out for people: short things on one line, long texts as lists of their lines. Pure.
#
# Knows which fields of a cassette are long texts, and nothing else about cassettes.


WIDTH_CHARS = 100
_SHORT_TEXT_CHARS = 60
_TEXTS = {
    "context",
    "description",
    "fragment",
    "prompt_text",
    "raw",
    "raw_text",
    "text",
    "thinking",
}
_OPAQUE = {"args", "result", "server_metrics", "parameters"}
"""Fields whose content is anybody's JSON: a list in there is a list, never a text."""

_HALVES = r"(?<=[\ud800-\udbff])(?=[\udc00-\udfff])"
"""Between two lone surrogates that JSON would join into one character (elsewhere it does)."""
_CUTS = re.compile(rf"(?<=\n)(?!\Z)|{_HALVES}")


def laid_out(value: Any, indent: str = "") -> str:
    """Return plain JSON as indented text; what fits on a line stays on one, and so do numbers."""
    line = _one_line(value)
    if not isinstance(value, Mapping | list) or len(indent) + len(line) <= WIDTH_CHARS:
        return line
    if isinstance(value, list) and all(isinstance(item, int | float) for item in value):
        return line
    deeper = indent + "  "
    if isinstance(value, list):
        items = [laid_out(item, deeper) for item in value]
        brackets = "[]"
    else:
        items = [f"{_one_line(key)}: {laid_out(item, deeper)}" for key, item in value.items()]
        brackets = "{}"
    body = f",\n{deeper}".join(items)
    return f"{brackets[0]}\n{deeper}{body}\n{indent}{brackets[1]}"


def folded(value: Any) -> Any:
    """Return `value` with its long texts as lists of their lines."""
    if isinstance(value, Mapping):
        return {key: _folded_field(key, item) for key, item in value.items()}
    return [folded(item) for item in value] if isinstance(value, list) else value


def unfolded(value: Any) -> Any:
    """Return `value` with its long texts whole again: the inverse of `folded`."""
    if isinstance(value, Mapping):
        return {key: _unfolded_field(key, item) for key, item in value.items()}
    return [unfolded(item) for item in value] if isinstance(value, list) else value


def _folded_field(key: str, value: Any) -> Any:
    if key in _OPAQUE:
        return value
    if key not in _TEXTS or not isinstance(value, str):
        return folded(value)
    is_long = len(value) > _SHORT_TEXT_CHARS or re.search(_HALVES, value)
    lines = _CUTS.split(value)
    return lines if is_long and len(lines) > 1 else value


def _unfolded_field(key: str, value: Any) -> Any:
    if key in _OPAQUE:
        return value
    if key in _TEXTS and isinstance(value, list) and all(isinstance(x, str) for x in value):
        return "".join(value)
    return unfolded(value)


def _one_line(value: Any) -> str:
    """Return `value` on one line, with spaces after the separators."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(value, allow_nan=False)
    return text


# What a request is compared by, and how two requests differ. Pure.
#
# Only content counts: handlers, summaries and time limits of tools do not, nor hints to the user,
# which no model is sent. How they are kept stands in a part of its own.


_LABEL_CHARS = 12
_DIFF_LINES = 24
_LINE_CHARS = 120
_COMPARED_CHARS = 2000


@dataclass(frozen=True, kw_only=True)
class RequestParts:
    """What identifies a request, as plain JSON. Hints to the user, never sent, are left out."""

    instructions: str
    tools: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    sampling: dict[str, Any]

    @cached_property
    def key(self) -> str:
        """The hash of the content: equal requests have equal keys."""
        return _hash([self.instructions, self.tools, self.messages, self.sampling])


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestChange:
    """A part that differs: its name, and its content then and now (None where there is none)."""

    name: str
    recorded: Any
    asked: Any

    def diff(self) -> str:
        """Return a short unified diff, laid out as in the file."""
        lines = list(
            difflib.unified_diff(
                _lines(self.recorded),
                _lines(self.asked),
                f"recorded {self.name}",
                f"asked {self.name}",
                n=1,
                lineterm="",
            )
        )
        left_out = len(lines) - _DIFF_LINES
        more = [f"… {left_out} more lines"] if left_out > 0 else []
        if _composed(self.recorded) == _composed(self.asked):
            more.append("they look the same: one has Korean composed (NFC), one not (NFD)")
        return "\n".join([*map(printable, lines[:_DIFF_LINES]), *more])


def parts_of(request: ModelRequest) -> RequestParts:
    """Return what identifies a request.

    Raises:
        CassetteError: JSON cannot carry a part of it.
    """
    sampling = request.sampling
    try:
        return RequestParts(
            instructions=request.instructions,
            tools=[
                plain_json(
                    {"name": t.name, "description": t.description, "parameters": t.parameters}
                )
                for t in request.tools
            ],
            messages=[
                plain_json(_message(each))
                for each in request.messages
                if not isinstance(each, SystemMessage)
            ],
            sampling={
                "max_tokens": sampling.max_tokens,
                "temperature": float(sampling.temperature),  # 0 and 0.0 are one temperature
                "seed": sampling.seed,
            },
        )
    except NotJsonError as error:
        raise CassetteError(
            f"a cassette cannot hold this request ({error}): ask the model itself"
        ) from error


def nearest(asked: RequestParts, recorded: Sequence[RequestParts]) -> RequestParts:
    """Return the recorded request most like `asked`; there must be one."""
    return max(recorded, key=lambda each: _likeness(asked, each))


def changes(recorded: RequestParts, asked: RequestParts) -> list[RequestChange]:
    """Return the parts that differ; of the messages only the first that does."""
    found = [
        RequestChange(name=name, recorded=getattr(recorded, name), asked=getattr(asked, name))
        for name in ("instructions", "tools", "sampling")
        if canonical(getattr(recorded, name)) != canonical(getattr(asked, name))
    ]
    start = _shared_start(recorded, asked)
    pairs = list(zip_longest(recorded.messages, asked.messages))[start : start + 1]
    found += [
        RequestChange(name=f"message {start + 1}", recorded=then, asked=now) for then, now in pairs
    ]
    return found


def label(value: Any) -> str:
    """Return a short name for content, the same for the same content."""
    return _hash(value)[:_LABEL_CHARS]


def plain(value: Any) -> Any:
    """Return dataclasses as mappings, without the fields that are empty as they are by default."""
    if is_dataclass(value) and not isinstance(value, type):
        items = {each: plain(getattr(value, each.name)) for each in fields(value)}
        return {
            each.name: item
            for each, item in items.items()
            if item or getattr(value, each.name) != each.default
        }
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


_PLAIN_CALL = ToolCallMessage(name="", args={}, result=ToolCancelled())


def _message(message: Message) -> dict[str, Any]:
    match message:
        case ToolCallMessage(result=result, max_bytes=most):
            told = plain(message)
            is_whole = envelope_bytes(result) <= most
            for name in ("hint", "max_bytes"):
                if is_whole or getattr(message, name) == getattr(_PLAIN_CALL, name):
                    told.pop(name, None)  # no model reads it, or it is as it always was
            return {"from": "tool", **told, "result": envelope(result)}
        case UserMessage():
            return {"from": "user", **plain(message)}
        case _:
            return {"from": "model", **plain(message)}


def _likeness(asked: RequestParts, recorded: RequestParts) -> tuple[int, int, float]:
    changed = changes(recorded, asked)
    return (
        _shared_start(recorded, asked),
        -len(changed),
        _similarity(changed),
    )


def _similarity(changed: list[RequestChange]) -> float:
    last = changed[-1]
    then, now = (canonical(each)[:_COMPARED_CHARS] for each in (last.recorded, last.asked))
    return difflib.SequenceMatcher(None, then, now, autojunk=False).quick_ratio()


def _shared_start(one: RequestParts, other: RequestParts) -> int:
    """Return how many messages are the same from the first on."""
    pairs = list(zip(one.messages, other.messages, strict=False))
    same = (canonical(then) == canonical(now) for then, now in pairs)
    return next((i for i, is_same in enumerate(same) if not is_same), len(pairs))


def _lines(value: Any) -> list[str]:
    if value is None:
        return []
    text = laid_out(folded({"text": value} if isinstance(value, str) else value))
    return [
        line[start : start + _LINE_CHARS]
        for line in text.split("\n")
        for start in range(0, len(line), _LINE_CHARS)
    ]


def _composed(value: Any) -> str:
    return unicodedata.normalize("NFC", canonical(value))


def _hash(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


# The file of a cassette: recorded responses as JSON that a person can read and a diff can show.
#
# Short things stand on one line (token ids always do), long texts as a list of their lines, Korean
# as it is; instructions and tools stand once, however many requests share them. Recording and
# replaying are `cassette`'s business.


VERSION: Final = 1

_Shared = TypeVar("_Shared")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedEvent:
    """An event and when it came, in seconds since the request was sent."""

    at_s: float
    event: ModelEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One complete response to one request; its last event is `Finished`."""

    request: RequestParts
    events: tuple[TimedEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cassette:
    """Responses of one model, in the order in which they were complete."""

    identity: ModelIdentity
    responses: tuple[Response, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    instructions: str
    tools: str
    sampling: dict[str, Any]
    messages: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    at_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    text: str | None = None
    thinking: str | None = None
    call: ToolCall | None = None
    finished: Finished | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Response:
    request: _Request
    events: tuple[_Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The shape on disk. Requests name their instructions and tools by label."""

    cassette: Literal[1] = VERSION
    identity: ModelIdentity
    instructions: dict[str, _Text] = field(default_factory=dict)
    tools: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    responses: tuple[_Response, ...] = ()


_ADAPTER = TypeAdapter(_File)


def encode_cassette(cassette: Cassette) -> str:
    """Return the text of a cassette file.

    Raises:
        CassetteError: JSON cannot carry a part of a response.
    """
    requests = [each.request for each in cassette.responses]
    file = _File(
        identity=cassette.identity,
        instructions={label(r.instructions): _Text(text=r.instructions) for r in requests},
        tools={label(r.tools): r.tools for r in requests},
        responses=tuple(_stored(each) for each in cassette.responses),
    )
    try:
        return laid_out(folded({"cassette": VERSION, **plain_json(plain(file))})) + "\n"
    except NotJsonError as error:
        raise CassetteError(
            f"a cassette cannot hold this response ({error}): ask for another"
        ) from error


def write_cassette(path: Path, text: str) -> None:
    """Replace a file in one step: a reader sees the old one or the new one, never a half.

    Raises:
        CassetteError: the disk does not take it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, masked(text).encode())
    except OSError as error:
        raise CassetteError(
            f"the cassette {path} cannot be written ({error}): give another path"
        ) from error


def read_cassette(path: Path) -> Cassette:
    """Return what a cassette file holds.

    Raises:
        CassetteError: there is none, or it is broken or newer; the message names file and place.
    """
    if path.exists() and not path.is_file():  # a pipe, or a device without an end
        raise CassetteError(f"{path} is no file: give the path of a cassette")
    try:
        data = json.loads(path.read_bytes(), parse_constant=_no_constant)
    except OSError as error:
        raise CassetteError(
            f"no cassette can be read at {path} ({error}): record one with RecordingModel"
        ) from error
    except json.JSONDecodeError as error:
        raise _broken(f"{path}:{error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise _broken(f"{path}: {error}") from error
    version = data.get("cassette") if isinstance(data, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise CassetteError(
            f"{path}, field cassette: version {version} was written by a newer lhkit, this one "
            f"reads {VERSION}: update lhkit or record it again"
        )
    try:
        return _decoded(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "cassette"
        raise _broken(f"{path}, field {where}: {first['msg']}") from error
    except ValueError as error:
        raise _broken(f"{path}, field {error}") from error


def _stored(response: Response) -> _Response:
    request = response.request
    return _Response(
        request=_Request(
            instructions=label(request.instructions),
            tools=label(request.tools),
            sampling=request.sampling,
            messages=request.messages,
        ),
        events=tuple(_row(each) for each in response.events),
    )


def _row(timed: TimedEvent) -> _Row:
    match timed.event:
        case TextDelta(text=text):
            return _Row(at_s=timed.at_s, text=text)
        case ThinkingDelta(text=text):
            return _Row(at_s=timed.at_s, thinking=text)
        case ToolCallParsed(call=call):
            return _Row(at_s=timed.at_s, call=call)
        case Finished() as finished:
            return _Row(at_s=timed.at_s, finished=finished)
        case _:
            assert_never(timed.event)


def _decoded(data: Any) -> Cassette:
    file = _ADAPTER.validate_python(unfolded(data), extra="forbid")
    responses = []
    for i, each in enumerate(file.responses):
        asked = each.request
        where = f"responses.{i}.request"
        request = RequestParts(
            instructions=_shared(
                file.instructions, asked.instructions, f"{where}.instructions"
            ).text,
            tools=_shared(file.tools, asked.tools, f"{where}.tools"),
            messages=asked.messages,
            sampling=asked.sampling,
        )
        responses.append(Response(request=request, events=_events(each.events, i)))
    return Cassette(identity=file.identity, responses=tuple(responses))


def _shared(table: Mapping[str, _Shared], name: str, where: str) -> _Shared:
    if name not in table:
        raise ValueError(f"{where}: nothing is labelled {name!r}")
    return table[name]


def _events(rows: tuple[_Row, ...], response: int) -> tuple[TimedEvent, ...]:
    where = f"responses.{response}.events"
    events = tuple(
        TimedEvent(at_s=row.at_s, event=_event(row, f"{where}.{i}")) for i, row in enumerate(rows)
    )
    ends = [i for i, each in enumerate(events) if isinstance(each.event, Finished)]
    if ends != [len(events) - 1]:
        raise ValueError(f"{where}: the last event and no other must be finished")
    return events


def _event(row: _Row, where: str) -> ModelEvent:
    found: list[ModelEvent] = []
    if row.text is not None:
        found.append(TextDelta(text=row.text))
    if row.thinking is not None:
        found.append(ThinkingDelta(text=row.thinking))
    if row.call is not None:
        found.append(ToolCallParsed(call=row.call))
    if row.finished is not None:
        found.append(row.finished)
    if len(found) != 1:
        raise ValueError(f"{where}: give one of text, thinking, call and finished")
    return found[0]


def _broken(fault: str) -> CassetteError:
    return CassetteError(f"{fault}: mend the cassette or record it again")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# Recorded responses of a model: one wrapper records them, its twin replays them exactly.
#
# For notebooks and tests that must run without a server. It proves nothing about a model: a
# request that was not recorded is refused, never guessed.


_TIME_DIGITS = 6


class RecordingModel:
    """Passes everything on to a model and from it, and records each complete response.

    The file at `path` is replaced after every response, beginning with the first: what stood
    there is gone then, and stays if nothing is recorded. Responses that failed or were abandoned
    are not recorded. Conversations may run at once: responses stand in the order in which they
    were complete. One recorder at a time writes to a path, and writes all of it each time: a
    cassette is for dozens of responses, not for a run.
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
        """Who answers: the inner model."""
        return self._inner.identity

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of the inner model; the response is on disk before its last one.

        Raises:
            ModelError: as the inner model.
            CassetteError: JSON cannot carry the request or the response, or the file cannot be
                written.
        """
        parts = parts_of(request)
        heard: list[TimedEvent] = []
        sent = self._clock()
        async with aclosing(self._inner.stream(request)) as events:
            async for event in events:
                heard.append(
                    TimedEvent(at_s=round(self._clock() - sent, _TIME_DIGITS), event=event)
                )
                if isinstance(event, Finished):
                    self._keep(Response(request=parts, events=tuple(heard)))
                yield event

    async def aclose(self) -> None:
        """Write what a full disk may have refused, and close the inner model.

        Raises:
            CassetteError: the file still cannot be written.
        """
        try:
            self._save()
        finally:
            await self._inner.aclose()

    def _keep(self, response: Response) -> None:
        cassette = Cassette(
            identity=self._cassette.identity, responses=(*self._cassette.responses, response)
        )
        self._unsaved = encode_cassette(cassette)
        self._cassette = cassette
        self._save()

    def _save(self) -> None:
        if self._unsaved:
            write_cassette(self._path, self._unsaved)
            self._unsaved = ""


class CassetteModel:
    """Replays the responses of a cassette: the same events, the same evidence. Use `open`.

    A request is found by its content. Recorded several times, it is answered in the recorded
    order, and after that always with the last answer, so that a notebook cell can be run again.
    Each model object starts at the first answer.

    `clock` is its recorded time: seconds that advance by what each response took when it was
    recorded, whatever the pace now. `replay` measures with it while conversations play one at a
    time, so that latencies are those of the recording.
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
            raise UsageError(
                f"pace={pace} is no pace: give 0 (at once), 1 (as recorded) or between"
            )
        self._cassette = cassette
        self._path = path
        self._pace = pace
        self._sleep = sleep
        self._recorded_s = 0.0
        self._answers: defaultdict[str, list[Response]] = defaultdict(list)
        self._played: Counter[str] = Counter()
        for response in cassette.responses:
            self._answers[response.request.key].append(response)

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
            path: what `RecordingModel` wrote.
            pace: 0 replays at once, 1 in recorded time, 2 in twice that time.
            sleep: waits so many seconds.

        Raises:
            CassetteError: there is none, or it is broken or newer.
            UsageError: `pace` is negative or no number.
        """
        return cls(read_cassette(Path(path)), Path(path), pace=pace, sleep=sleep)

    @property
    def identity(self) -> ModelIdentity:
        """Who answered when it was recorded."""
        return self._cassette.identity

    def clock(self) -> float:
        """Return the recorded time that has been played so far, in seconds."""
        return self._recorded_s

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the recorded events.

        Raises:
            CassetteError: the request was not recorded; the message shows what changed.
        """
        now_s = 0.0
        for timed in self._next_answer(parts_of(request)).events:
            gap_s = max(0.0, timed.at_s - now_s)
            if self._pace and gap_s:
                await self._sleep(gap_s * self._pace)
            self._recorded_s += gap_s
            now_s += gap_s
            yield timed.event

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    def _next_answer(self, asked: RequestParts) -> Response:
        answers = self._answers.get(asked.key)
        if not answers:
            raise self._miss(asked)
        turn = min(self._played[asked.key], len(answers) - 1)
        self._played[asked.key] += 1
        return answers[turn]

    def _miss(self, asked: RequestParts) -> CassetteError:
        recorded = [response.request for response in self._cassette.responses]
        if not recorded:
            return CassetteError(f"the cassette {self._path} is empty: record it again")
        changed = changes(nearest(asked, recorded), asked)
        names = " and ".join(change.name for change in changed)
        diffs = "\n".join(change.diff() for change in changed)
        return CassetteError(
            f"the cassette {self._path} has no answer to this request, which differs from the "
            f"nearest recorded one in {names}: record it again with RecordingModel\n{diffs}"
        )
