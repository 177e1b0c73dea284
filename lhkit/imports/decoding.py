"""Decode JSON files, and JSON text within JSON."""

import json
from pathlib import Path
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.files import read_text_file
from lhkit.base.json_values import parse_json, plain_json


def to_utf8_json(value: Any) -> Any:
    """Return `value` as plain JSON that can be encoded as UTF-8.

    Raises:
        ValueError: it contains a lone surrogate or is not JSON (NotJsonError).
    """
    plain = plain_json(value)
    json.dumps(plain, ensure_ascii=False).encode()
    return plain


def decode_json(value: Any) -> Any:
    """Return the object or list that a JSON string encodes; any other value unchanged.

    Invalid JSON (NaN, lone surrogates, too deep nesting) stays a string.
    """
    if not isinstance(value, str):
        return value
    try:
        decoded = to_utf8_json(json.loads(value))
    except (ValueError, RecursionError):
        return value
    return decoded if isinstance(decoded, dict | list) else value


def parse_unambiguous(text: str) -> Any:
    """Parse JSON without a key that has two values.

    Raises:
        ValueError: it is not valid JSON, or has such a key.
        RecursionError: it is nested too deep.
    """

    def to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if any(values[key] != value for key, value in pairs):
            raise ValueError("a key has two values")
        return values

    return parse_json(text, to_object=to_object)


def read_json(file: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        UsageError: the file cannot be read or is not valid JSON.
    """
    try:
        return json.loads(read_text_file(file, "utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not valid JSON: {error}.") from error
