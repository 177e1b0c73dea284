"""A record as one line of strict JSON, and back. Files are `journal`'s business."""

from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from lhkit.harness.record import SampleRecord
from lhkit.vocab.json_values import compact

_ADAPTER = TypeAdapter(SampleRecord)


def encode_record(record: SampleRecord) -> str:
    """Return the record as one line of strict JSON, without its newline."""
    try:
        return _ADAPTER.dump_json(record, warnings=False).decode()
    except PydanticSerializationError:  # a lone surrogate, which has to be escaped
        return compact(_ADAPTER.dump_python(record, warnings=False))


def decode_record(data: Any) -> SampleRecord:
    """Return the record that parsed JSON describes.

    Raises:
        ValueError: it is no record of this version; the message names the field.
    """
    try:
        return _ADAPTER.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "record"
        raise ValueError(f"{where}: {first['msg']}") from error
