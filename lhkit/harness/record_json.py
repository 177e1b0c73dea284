"""A record as one line of strict JSON, and back."""

import json
import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from lhkit.harness.record import SCHEMA, SampleRecord
from lhkit.harness.tool_specs import TOOL_SPECS
from lhkit.json_values import compact

_ADAPTER = TypeAdapter(SampleRecord)
_READER = TypeAdapter(tuple[SampleRecord], config=ConfigDict(allow_inf_nan=False))
"""In a tuple, because a dataclass takes its configuration only from what is around it."""

_ALL: Final = "__all__"
_CALLS: Final[Any] = {"response": {"calls": {_ALL: {"id"}}}}
_CALL_IDS: Final[Any] = {"evidence": {"turns": {_ALL: {"model_calls": {_ALL: _CALLS}}}}}
"""No part of a record: the place of a call in its turn is enough."""


class OtherSchemaError(ValueError):
    """A record of another version's shape."""


def encode_record(record: SampleRecord) -> str:
    """Return the record as one line of strict JSON, without its newline."""
    try:
        return _ADAPTER.dump_json(record, warnings=False, exclude=_CALL_IDS).decode()
    except PydanticSerializationError:  # a lone surrogate, which has to be escaped
        return compact(_ADAPTER.dump_python(record, warnings=False, exclude=_CALL_IDS))


def decode_line(line: str | bytes) -> SampleRecord:
    """Return the record that a line of strict JSON describes.

    Raises:
        OtherSchemaError: it was written in another version's shape.
        ValueError: it is no JSON, or no record of this version; the message names the field.
        RecursionError: it is nested too deep to be read.
    """
    return decode_record(read_json(line))


def read_json(text: str | bytes) -> Any:
    """Return the value of strict JSON, which has no NaN and no infinite number.

    Raises:
        ValueError: it is none.
        RecursionError: it is nested too deep to be read.
    """
    return json.loads(text, parse_constant=_no_number, parse_float=_finite)


def decode_record(data: Any) -> SampleRecord:
    """Return the record that parsed JSON describes.

    Raises:
        OtherSchemaError: it was written in another version's shape.
        ValueError: it is no record of this version; the message names the field.
    """
    schema = data.get("schema", SCHEMA) if isinstance(data, dict) else SCHEMA
    if schema != SCHEMA:
        raise OtherSchemaError(f"its record schema is {schema}, and this one reads {SCHEMA}")
    try:
        record = _READER.validate_python((data,))[0]
    except ValidationError as error:
        raise ValueError(_first_fault(error, drop=1)) from error
    for number, turn in enumerate(record.evidence.turns):
        try:
            if turn.new_tools:
                TOOL_SPECS.validate_python(turn.new_tools)
        except ValidationError as error:
            where = f"evidence.turns.{number}.new_tools"
            raise ValueError(f"{where}.{_first_fault(error)}") from error
    for fault in chain(_numbers_beyond(record, ""), _wrong_places(record)):
        raise ValueError(fault)
    return record


def _first_fault(error: ValidationError, *, drop: int = 0) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"][drop:])) or "record"
    return f"{where}: {first['msg']}"


MAX_SECONDS = 1e8
"""Three years: a longer duration is none that was measured."""

_MAX_COUNT = 2**53
_MAX_TOTAL_S = 1e9


def moment_of(text: str | None) -> datetime | None:
    """Return the moment that ISO 8601 tells; None for other texts, and far from all calendars."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if 1000 <= moment.year <= 9000 else None


def _numbers_beyond(value: Any, where: str) -> Iterator[str]:
    """Yield which counts and durations of a record are none."""
    for each in fields(value):
        part, place = getattr(value, each.name), f"{where}{each.name}"
        if type(part) is int and not 0 <= part <= _MAX_COUNT:
            yield f"{place}: {part:.9g} is no count"
        elif type(part) is float and not -MAX_SECONDS <= part <= MAX_SECONDS:
            yield f"{place}: {part:.9g} seconds are more than can be"
        elif is_dataclass(part):
            yield from _numbers_beyond(part, f"{place}.")
        elif isinstance(part, tuple) and part and is_dataclass(part[0]):
            for number, inner in enumerate(part):
                yield from _numbers_beyond(inner, f"{place}.{number}.")


def _wrong_places(record: SampleRecord) -> Iterator[str]:
    """Yield what points to a call, a message or a row that is not in the record."""
    turns, scores = record.evidence.turns, record.judgement.scores
    total_s = record.wall_s
    for t, turn in enumerate(turns):
        total_s += turn.duration_s
        total_s += sum(each.offset_s + each.duration_s for each in turn.model_calls)
        for c, call in enumerate(turn.calls):
            total_s += call.validation_s + call.waiting_s + call.handler_s
            if call.model_call is not None and call.model_call >= len(turn.model_calls):
                yield f"evidence.turns.{t}.calls.{c}.model_call: there is no such message"
    if total_s > _MAX_TOTAL_S:
        yield f"evidence.turns: {total_s:.9g} seconds are more than can be"
    for t, score in enumerate(scores):
        made = len(turns[t].calls) if t < len(turns) else 0
        for c, row in enumerate(score.calls):
            if row.actual is not None and row.actual >= made:
                yield f"judgement.scores.{t}.calls.{c}.actual: there is no such call"
    diffs = [("", record.state_diff)]
    diffs += [(f"evidence.turns.{t}.", turn.state_diff or {}) for t, turn in enumerate(turns)]
    for where, tables in diffs:
        for name, diff in tables.items():
            for rows, at in ((diff.added, diff.added_at), (diff.removed, diff.removed_at)):
                if at and (len(at) != len(rows) or not 0 <= min(at) <= max(at) <= _MAX_COUNT):
                    yield f"{where}state_diff.{name}: rows and their places do not fit"


def _finite(text: str) -> float:
    """Return a number that can be written again: 1e999 is infinite, which JSON cannot say."""
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _no_number(text: str) -> float:
    raise ValueError(f"{text[:20]} is no JSON number")
