"""A record as one line of strict JSON, and back. Files are `journal`'s business."""

import json
import math
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from lhkit.harness.records.record import SampleRecord
from lhkit.vocab.json_values import compact

_ADAPTER = TypeAdapter(SampleRecord)
_READER = TypeAdapter(tuple[SampleRecord], config=ConfigDict(allow_inf_nan=False))
"""In a tuple, because a dataclass takes its configuration only from what is around it."""


def encode_record(record: SampleRecord) -> str:
    """Return the record as one line of strict JSON, without its newline."""
    try:
        return _ADAPTER.dump_json(record, warnings=False).decode()
    except PydanticSerializationError:  # a lone surrogate, which has to be escaped
        return compact(_ADAPTER.dump_python(record, warnings=False))


def decode_line(line: str | bytes) -> SampleRecord:
    """Return the record that a line of strict JSON describes.

    Raises:
        ValueError: it is no JSON, or no record of this version; the message names the field.
        RecursionError: it is nested too deep to be read.
    """
    return decode_record(json.loads(line, parse_constant=_no_number, parse_float=_finite))


def decode_record(data: Any) -> SampleRecord:
    """Return the record that parsed JSON describes.

    Raises:
        ValueError: it is no record of this version; the message names the field.
    """
    try:
        return _READER.validate_python((data,))[0]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"][1:])) or "record"
        raise ValueError(f"{where}: {first['msg']}") from error


def _finite(text: str) -> float:
    """Return a number that can be written again: 1e999 is infinite, which JSON cannot say."""
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _no_number(text: str) -> float:
    raise ValueError(f"{text[:20]} is no JSON number")
