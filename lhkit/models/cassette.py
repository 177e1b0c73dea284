"""Cassettes: a model's responses recorded with the time of each event, and replayed exactly.

For notebooks and tests that must run without a server. It proves nothing about a model: a request
that was not recorded is refused, never guessed.

A cassette is a file of JSON lines. The first line has the version of the format and the identity of
the model, each other line one response: its request and its events. Members of a request that are
the same as on the line before (instructions, tools, sampling) are left out. Only what a model is
sent identifies a request: handlers, summaries and time limits of tools do not, nor hints to the
user.
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

from lhkit.errors import CassetteError, UsageError
from lhkit.files import write_whole
from lhkit.json_values import NotJsonError, canonical, compact, plain_json
from lhkit.messages import Message, SystemMessage, ToolCall, ToolCallMessage, UserMessage
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.redaction import masked
from lhkit.responses import (
    Finished,
    ModelEvent,
    ModelIdentity,
    TextDelta,
    ThinkingDelta,
    ToolCallParsed,
)
from lhkit.text import printable
from lhkit.tool_results import MAX_RESULT_BYTES, encoded_size, result_to_dict

VERSION: Final = 2

_TIME_DIGITS = 6
_DIFF_LINES = 24
_LINE_CHARS = 120
_COMPARED_CHARS = 2000


@dataclass(frozen=True, kw_only=True)
class RequestParts:
    """What identifies a request, as plain JSON."""

    instructions: str
    tools: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    sampling: dict[str, Any]

    @cached_property
    def key(self) -> str:
        """The hash of the content: equal requests have equal keys."""
        return hashlib.sha256(canonical(plain(self)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedEvent:
    """An event, and when it came in seconds since the request was sent."""

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
class _Head:
    cassette: Literal[2]
    identity: ModelIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """One event on disk: the time and one of the other fields."""

    at_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    text: str | None = None
    thinking: str | None = None
    call: ToolCall | None = None
    finished: Finished | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    request: RequestParts
    events: tuple[_Event, ...]


_HEAD = TypeAdapter(_Head)
_LINE = TypeAdapter(_Line)


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
        events: list[TimedEvent] = []
        sent_s = self._clock()
        async with aclosing(self._inner.stream(request)) as stream:
            async for event in stream:
                at_s = round(self._clock() - sent_s, _TIME_DIGITS)
                events.append(TimedEvent(at_s=at_s, event=event))
                if isinstance(event, Finished):
                    self._keep(Response(request=parts, events=tuple(events)))
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
            write_whole(self._path, masked(self._unsaved).encode())
        except OSError as error:
            raise CassetteError(
                f"the cassette {self._path} cannot be written ({error}): give another path"
            ) from error
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
            CassetteError: there is none, or it is broken.
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
        asked = parts_of(request)
        answers = self._answers.get(asked.key)
        if not answers:
            raise self._miss(asked)
        turn = min(self._played[asked.key], len(answers) - 1)
        self._played[asked.key] += 1
        now_s = 0.0
        for timed in answers[turn].events:
            gap_s = max(0.0, timed.at_s - now_s)
            if self._pace and gap_s:
                await self._sleep(gap_s * self._pace)
            self._recorded_s += gap_s
            now_s += gap_s
            yield timed.event

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    def _miss(self, asked: RequestParts) -> CassetteError:
        if not self._cassette.responses:
            return CassetteError(f"the cassette {self._path} is empty: record it again")
        recorded = (each.request for each in self._cassette.responses)
        changed = _changes(max(recorded, key=lambda each: _likeness(each, asked)), asked)
        diffs = "\n".join(_diff(name, *pair) for name, pair in changed.items())
        return CassetteError(
            f"the cassette {self._path} has no answer to this request, which differs from the "
            f"nearest recorded one in {' and '.join(changed)}: record it again with "
            f"RecordingModel\n{diffs}"
        )


def encode_cassette(cassette: Cassette) -> str:
    """Return the text of a cassette file.

    Raises:
        CassetteError: JSON cannot carry a part of a response.
    """
    lines: list[Any] = [{"cassette": VERSION, "identity": plain(cassette.identity)}]
    before: dict[str, str] = {}
    for response in cassette.responses:
        request = {each.name: getattr(response.request, each.name) for each in fields(RequestParts)}
        texts = {name: canonical(value) for name, value in request.items()}
        new = {name: request[name] for name in request if texts[name] != before.get(name)}
        before = texts
        lines.append({"request": new, "events": list(map(_encoded, response.events))})
    try:
        return "".join(f"{compact(line)}\n" for line in lines)
    except NotJsonError as error:
        raise CassetteError(
            f"a cassette cannot hold this response ({error}): ask for another"
        ) from error


def read_cassette(path: Path) -> Cassette:
    """Return what a cassette file holds.

    Raises:
        CassetteError: there is none, or it is broken; the message names file, line and field.
    """
    if path.exists() and not path.is_file():  # a pipe, or a device without an end
        raise CassetteError(f"{path} is no file: give the path of a cassette")
    try:
        lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    except OSError as error:
        raise CassetteError(
            f"no cassette can be read at {path} ({error}): record one with RecordingModel"
        ) from error
    head: _Head | None = None
    responses: list[Response] = []
    request: dict[str, Any] = {}
    try:
        head = _HEAD.validate_python(_json(lines[0]), extra="forbid")
        for text in lines[1:]:
            line = _json(text)
            if isinstance(line, dict) and isinstance(line.get("request"), dict):
                request |= line["request"]
                line["request"] = dict(request)
            responses.append(_response(_LINE.validate_python(line, extra="forbid")))
    except (ValueError, RecursionError) as error:
        place = f"{path}:{1 if head is None else len(responses) + 2}"
        raise CassetteError(
            f"{place}: {_fault(error)}: mend the cassette or record it again"
        ) from error
    return Cassette(identity=head.identity, responses=tuple(responses))


def parts_of(request: ModelRequest) -> RequestParts:
    """Return what identifies a request.

    Raises:
        CassetteError: JSON cannot carry a part of it.
    """
    sampling = request.sampling
    tools = (
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in request.tools
    )
    sent = (each for each in request.messages if not isinstance(each, SystemMessage))
    try:
        return RequestParts(
            instructions=request.instructions,
            tools=list(map(plain_json, tools)),
            messages=[plain_json(_message(each)) for each in sent],
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


def _message(message: Message) -> dict[str, Any]:
    if not isinstance(message, ToolCallMessage):
        return {"from": "user" if isinstance(message, UserMessage) else "model", **plain(message)}
    call = message.call
    members = {"text": message.text, "index": message.index, "raw": call.raw}
    if encoded_size(message.result) > message.max_bytes:  # else no model reads these
        members["hint"] = message.hint
        if message.max_bytes != MAX_RESULT_BYTES:
            members["max_bytes"] = message.max_bytes
    members = {name: each for name, each in members.items() if each}
    args = plain(call.args)
    result = result_to_dict(message.result)
    return {"from": "tool", "name": call.name, "args": args, **members, "result": result}


def _encoded(timed: TimedEvent) -> dict[str, Any]:
    match timed.event:
        case TextDelta(text=text):
            content: dict[str, Any] = {"text": text}
        case ThinkingDelta(text=text):
            content = {"thinking": text}
        case ToolCallParsed(call=call):
            content = {"call": plain(call)}
        case Finished() as finished:
            content = {"finished": plain(finished)}
    return {"at_s": timed.at_s, **content}


def _response(line: _Line) -> Response:
    events = tuple(TimedEvent(at_s=each.at_s, event=_decoded(each)) for each in line.events)
    ends = [i for i, each in enumerate(events) if isinstance(each.event, Finished)]
    if ends != [len(events) - 1]:
        raise ValueError("field events: the last event and no other must be finished")
    return Response(request=line.request, events=events)


def _decoded(row: _Event) -> ModelEvent:
    events: list[ModelEvent] = []
    if row.text is not None:
        events.append(TextDelta(text=row.text))
    if row.thinking is not None:
        events.append(ThinkingDelta(text=row.thinking))
    if row.call is not None:
        events.append(ToolCallParsed(call=row.call))
    if row.finished is not None:
        events.append(row.finished)
    if len(events) != 1:
        raise ValueError("field events: give one of text, thinking, call and finished")
    return events[0]


def _json(line: bytes) -> Any:
    return json.loads(line, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _fault(error: Exception) -> str:
    match error:
        case ValidationError():
            first = error.errors(include_url=False)[0]
            return f"field {'.'.join(map(str, first['loc'])) or 'cassette'}: {first['msg']}"
        case json.JSONDecodeError(msg=message):
            return message
        case _:
            return str(error)


def _changes(recorded: RequestParts, asked: RequestParts) -> dict[str, tuple[Any, Any]]:
    """Return the parts that differ, then and now; of the messages only the first that does."""
    changed = {
        name: (getattr(recorded, name), getattr(asked, name))
        for name in ("instructions", "tools", "sampling")
        if canonical(getattr(recorded, name)) != canonical(getattr(asked, name))
    }
    same = _same_messages(recorded, asked)
    for pair in list(zip_longest(recorded.messages, asked.messages))[same : same + 1]:
        changed[f"message {same + 1}"] = pair
    return changed


def _likeness(recorded: RequestParts, asked: RequestParts) -> tuple[int, int, float]:
    changed = _changes(recorded, asked)
    last = list(changed.values())[-1]
    then, now = (canonical(each)[:_COMPARED_CHARS] for each in last)
    ratio = difflib.SequenceMatcher(None, then, now, autojunk=False).quick_ratio()
    return _same_messages(recorded, asked), -len(changed), ratio


def _same_messages(recorded: RequestParts, asked: RequestParts) -> int:
    """Return how many messages are the same from the first on."""
    pairs = zip(recorded.messages, asked.messages, strict=False)
    return len(list(takewhile(lambda pair: canonical(pair[0]) == canonical(pair[1]), pairs)))


def _diff(name: str, recorded: Any, asked: Any) -> str:
    """Return a short unified diff of a part (None where there is none)."""
    then, now = (list(_lines(each)) for each in (recorded, asked))
    titles = (f"recorded {name}", f"asked {name}")
    lines = list(difflib.unified_diff(then, now, *titles, n=1, lineterm=""))
    left_out = len(lines) - _DIFF_LINES
    more = [f"… {left_out} more lines"] if left_out > 0 else []
    if unicodedata.normalize("NFC", canonical(recorded)) == unicodedata.normalize(
        "NFC", canonical(asked)
    ):
        more.append("they look the same: one has Korean composed (NFC), one not (NFD)")
    return "\n".join([*map(printable, lines[:_DIFF_LINES]), *more])


def _lines(value: Any) -> Iterator[str]:
    if value is None:
        return
    is_text = isinstance(value, str)
    text = value if is_text else json.dumps(value, ensure_ascii=False, indent=1)
    for line in text.splitlines():
        yield from (line[at : at + _LINE_CHARS] for at in range(0, len(line), _LINE_CHARS))
