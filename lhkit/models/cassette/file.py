"""The file of a cassette: recorded responses as JSON that a person can read and a diff can show.

Short things stand on one line (token ids always do), long texts as a list of their lines, Korean
as it is; instructions and tools stand once, however many requests share them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, assert_never

from pydantic import Field, TypeAdapter, ValidationError

from lhkit.errors import CassetteError
from lhkit.files import write_whole
from lhkit.json_values import NotJsonError, plain_json
from lhkit.messages import ToolCall
from lhkit.models.cassette.layout import folded, laid_out, unfolded
from lhkit.models.cassette.request_parts import RequestParts, label, plain
from lhkit.redaction import masked
from lhkit.responses import (
    Finished,
    ModelEvent,
    ModelIdentity,
    TextDelta,
    ThinkingDelta,
    ToolCallParsed,
)

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
        CassetteError: there is none, or it is broken; the message names file and place.
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
