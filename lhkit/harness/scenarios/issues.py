"""Strict pydantic models, and their validation errors by path in plain words."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Strict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from lhkit.base.schema import SchemaNode, item_schema, property_schema

Path: TypeAlias = tuple[str | int, ...]
"""A place in plain data: keys and indices from the top."""


@dataclass(frozen=True, slots=True)
class Issue:
    """A validation error of plain data and its place."""

    path: Path
    message: str


def format_path(path: Path) -> str:
    """Return a path as text: `turns[0].expect.calls[1].args.date`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).lstrip(".") or "(top)"


TAG = "matcher:"
"""Prefix of the tags of union members, which pydantic puts into the location of an error."""

_T = TypeVar("_T")

Many: TypeAlias = Annotated[tuple[_T, ...], Strict(False)]
"""A list or tuple, in a strict model."""


class StrictModel(BaseModel):
    """A frozen model that rejects unknown fields and converts no values."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def checked_by(check: Callable[[_T], Iterable[Issue]]) -> AfterValidator:
    """Return a validator that raises every issue that `check` yields for a value."""

    def validate(value: _T) -> _T:
        errors = [
            InitErrorDetails(
                type=PydanticCustomError("issue", "{message}", {"message": issue.message}),
                loc=issue.path,
                input=None,
            )
            for issue in check(value)
        ]
        if errors:
            raise ValidationError.from_exception_data("issues", errors)
        return value

    return AfterValidator(validate)


def validation_issues(
    error: ValidationError, adapter: TypeAdapter[Any], value: Any, at: Path = ()
) -> tuple[Issue, ...]:
    """Return the errors of a validation in plain words, one issue for each place.

    Args:
        error: raised by the adapter.
        adapter: its JSON Schema has the known fields.
        value: the validated plain data.
        at: the path of the value in its document.
    """
    places, by_path = set(paths_in(value)), dict[Path, list[ErrorDetails]]()
    listed = error.errors(include_url=False)
    has_unknown = any(details["type"] == "extra_forbidden" for details in listed)
    schema = adapter.json_schema() if has_unknown else {}
    for details in listed:
        if details["type"] == "too_short" and details["input"]:
            continue  # its items are invalid, and reported themselves
        if details["type"] == "default_factory_not_called":
            continue  # it derives from fields that are reported themselves
        path = _error_path(details["loc"], details["type"], places)
        by_path.setdefault(path, []).append(details)
    return tuple(
        Issue((*at, *path), _error_message(errors, _known_fields(schema, path[:-1])))
        for path, errors in by_path.items()
    )


def _error_path(location: Path, kind: str, places: Container[Path]) -> Path:
    """Return pydantic's location without the tags of union members."""
    path: Path = ()
    for part in location:
        if (*path, part) in places and not str(part).startswith(TAG):
            path = (*path, part)
    return (*path, location[-1]) if kind == "missing" else path


def paths_in(value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the path of a value and of everything inside it."""
    yield at
    if isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from paths_in(item, (*at, key))


_UNKNOWN = "unknown field"
_MESSAGES: Mapping[str, str] = {
    "extra_forbidden": _UNKNOWN,
    "missing": "is required",
}
_KINDS: Mapping[str, str] = {
    "string_type": "a text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "tuple_type": "a list",
    "dict_type": "a mapping (`key: value`)",
    "mapping_type": "a mapping (`key: value`)",
    "model_type": "a mapping (`key: value`)",
    "greater_than_equal": "{ge:g} or more",
    "less_than_equal": "{le:g} or less",
    "too_short": "a list of {min_length} or more",
    "too_long": "a list of {max_length} or less",
}


def _error_message(errors: Sequence[ErrorDetails], known: Sequence[str]) -> str:
    """Return the expected type of a field, and the closest known name.

    Args:
        errors: all errors of the place; of a union, one or more for each member.
        known: the known fields there, for an unknown one.
    """
    allowed = [choice for error in errors for choice in _allowed_choices(error)]
    kinds = dict.fromkeys(filter(None, map(_required_kind, errors)))
    others = dict.fromkeys(
        _MESSAGES.get(error["type"], error["msg"].removeprefix("Value error, "))
        for error in errors
        if error["type"] != "literal_error" and _required_kind(error) is None
    )
    one_of = "one of " if len(allowed) > 1 else ""
    required = " or ".join([*([one_of + ", ".join(allowed)] if allowed else []), *kinds])
    message = " or ".join([*([f"must be {required}"] if required else []), *others])
    if _UNKNOWN not in others:
        return message + did_you_mean(errors[0]["input"], allowed)
    *_, parent, name = ("", *errors[0]["loc"])
    if str(parent).startswith(TAG):
        matcher = str(parent).removeprefix(TAG)
        return f"a matcher with {matcher!r} has no key {name!r}; a literal goes into 'equals'"
    return message + did_you_mean(name, known)


def did_you_mean(written: Any, known: Sequence[str]) -> str:
    """Return `: did you mean …?` with the closest known word, or an empty text."""
    if not isinstance(written, str):
        return ""
    close = get_close_matches(written.lower(), known, n=1)
    return f": did you mean {close[0]}?" if close else ""


def _known_fields(schema: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    nodes = [SchemaNode.of(schema)]
    for part in path:
        nodes = [
            node.at(item_schema(at, part) if isinstance(part, int) else property_schema(at, part))
            for node in nodes
            for at in node.branches()
        ]
    branches = (branch for node in nodes for branch in node.branches())
    return tuple(dict.fromkeys(name for node in branches for name in node.get("properties", {})))


def _required_kind(error: ErrorDetails) -> str | None:
    """Return the expected type of the value, to follow the words `must be`."""
    context: Mapping[str, Any] = error.get("ctx", {})
    if error["type"] == "string_pattern_mismatch":
        pattern = context["pattern"]
        return "more than white space" if pattern == r"\S" else f"a text like {pattern}"
    kind = _KINDS.get(error["type"])
    return None if kind is None else kind.format(**context)


def _allowed_choices(error: ErrorDetails) -> Iterator[str]:
    """Yield the values of a `Literal`, which pydantic lists as `'a', 'b' or 'c'`."""
    if error["type"] == "literal_error":
        listed = str(error["ctx"]["expected"]).replace(" or ", ", ").split(", ")
        yield from (choice.strip("'") for choice in listed)
