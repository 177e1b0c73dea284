"""Validate options, and the defaults that several of them share."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from lhkit.base.errors import UsageError

_Options = TypeVar("_Options", bound=BaseModel)

DEFAULT_TOOLSET = "life-helper"
"""The default of toolset options."""

REPLY_TOKENS: Final = 128
"""Default token limit of one model message in an evaluation."""


def validate_options(options: type[_Options], **values: Any) -> _Options:
    """Return validated options.

    Raises:
        UsageError: a value is invalid; the message names the option.
    """
    try:
        return options(**values)
    except ValidationError as error:
        raise UsageError(_describe_invalid_option(error)) from error


def _describe_invalid_option(error: ValidationError) -> str:
    """Return a message about the first invalid option."""
    detail = error.errors(include_url=False)[0]
    name, value = str(detail["loc"][0]), detail["input"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    match detail["type"]:
        case "literal_error":
            choices = str(context["expected"]).replace(" or ", ", ").replace("'", "")
            return f"Invalid {name} {value!r}: choose one of {choices}."
        case "greater_than_equal":
            return f"{name}={value}: give at least {context['ge']:g}"
        case "less_than_equal":
            return f"{name}={value}: give at most {context['le']:g}"
        case _:
            return f"{name}={value!r}: {detail['msg']}"
