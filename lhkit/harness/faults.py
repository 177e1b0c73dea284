"""Models of plain data, and what is wrong in it: by place, in plain words."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Strict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from lhkit.tools.schema import SchemaNode, item_schema, property_schema

Path: TypeAlias = tuple[str | int, ...]
"""Where something stands in plain data: keys and indices from the top."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and where."""

    path: Path
    message: str


def shown_path(path: Path) -> str:
    """Return a path as people write it: `turns[0].expect.calls[1].args.date`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).lstrip(".") or "(top)"


TAG = "matcher:"
"""Begins the name of each member of a tagged union: pydantic puts it into the place of an error."""

_T = TypeVar("_T")

Many: TypeAlias = Annotated[tuple[_T, ...], Strict(False)]
"""Any list or tuple, in a strict model."""


class StrictModel(BaseModel):
    """Refuses unknown fields, converts nothing, and cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def checked_by(check: Callable[[_T], Iterable[Fault]]) -> AfterValidator:
    """Return a validator that refuses a value with every fault that a check finds inside of it."""

    def checked(value: _T) -> _T:
        errors = [
            InitErrorDetails(
                type=PydanticCustomError("fault", "{words}", {"words": fault.message}),
                loc=fault.path,
                input=None,
            )
            for fault in check(value)
        ]
        if errors:
            raise ValidationError.from_exception_data("faults", errors)
        return value

    return AfterValidator(checked)


def shape_faults(
    error: ValidationError, adapter: TypeAdapter[Any], value: Any, at: Path = ()
) -> tuple[Fault, ...]:
    """Return what an adapter found wrong with a value, one fault a place.

    Args:
        error: what the adapter raised.
        adapter: knows which fields there are.
        value: plain data.
        at: where in a document it stands.
    """
    places, found = set(paths_in(value)), dict[Path, list[ErrorDetails]]()
    listed = error.errors(include_url=False)
    has_unknown = any(each["type"] == "extra_forbidden" for each in listed)
    schema = adapter.json_schema() if has_unknown else {}
    for each in listed:
        if each["type"] == "too_short" and each["input"]:
            continue  # its items are there and wrong: said elsewhere
        path = _path_of(each["loc"], each["type"], places)
        found.setdefault(path, []).append(each)
    return tuple(
        Fault((*at, *path), _sentence(errors, _known_fields(schema, path[:-1])))
        for path, errors in found.items()
    )


def _path_of(location: Path, kind: str, places: Container[Path]) -> Path:
    """Return pydantic's location without the names of union members, which are no keys."""
    path: Path = ()
    for part in location:
        if (*path, part) in places and not str(part).startswith(TAG):
            path = (*path, part)
    return (*path, location[-1]) if kind == "missing" else path


def paths_in(value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the place of a value and of all that is in it."""
    yield at
    if isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from paths_in(item, (*at, key))


_UNKNOWN = "unknown field"
_WORDS: Mapping[str, str] = {
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


def _sentence(errors: Sequence[ErrorDetails], known: Sequence[str]) -> str:
    """Return what a field must be, and what was probably meant.

    Args:
        errors: all that is wrong there; of a union, one or more for each member.
        known: the fields that may stand there, for one that is unknown.
    """
    allowed = [each for error in errors for each in _allowed(error)]
    kinds = dict.fromkeys(filter(None, map(_kind, errors)))
    others = dict.fromkeys(
        _WORDS.get(error["type"], error["msg"].removeprefix("Value error, "))
        for error in errors
        if error["type"] != "literal_error" and _kind(error) is None
    )
    one_of = "one of " if len(allowed) > 1 else ""
    told = " or ".join([*([one_of + ", ".join(allowed)] if allowed else []), *kinds])
    sentence = " or ".join([*([f"must be {told}"] if told else []), *others])
    location = errors[0]["loc"]
    if _UNKNOWN not in others:
        return sentence + did_you_mean(errors[0]["input"], allowed)
    *_, around, name = ("", *location)
    if str(around).startswith(TAG):
        matcher = str(around).removeprefix(TAG)
        return f"a matcher with {matcher!r} has no key {name!r}; a literal goes into 'equals'"
    return sentence + did_you_mean(name, known)


def did_you_mean(written: Any, known: Sequence[str]) -> str:
    """Return the end of a sentence that names what was probably meant; empty if nothing is near."""
    near = get_close_matches(written.lower(), known, n=1) if isinstance(written, str) else []
    return f": did you mean {near[0]}?" if near else ""


def _known_fields(schema: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """Return the fields that a JSON Schema names at a place."""
    nodes = [SchemaNode.of(schema)]
    for part in path:
        nodes = [
            node.at(item_schema(at, part) if isinstance(part, int) else property_schema(at, part))
            for node in nodes
            for at in node.branches()
        ]
    branches = (branch for node in nodes for branch in node.branches())
    return tuple(dict.fromkeys(name for each in branches for name in each.get("properties", {})))


def _kind(error: ErrorDetails) -> str | None:
    """Return what the value must be, for a sentence that begins with `must be`."""
    context: Mapping[str, Any] = error.get("ctx", {})
    if error["type"] == "string_pattern_mismatch":
        pattern = context["pattern"]
        return "more than white space" if pattern == r"\S" else f"a text like {pattern}"
    kind = _KINDS.get(error["type"])
    return None if kind is None else kind.format(**context)


def _allowed(error: ErrorDetails) -> Iterator[str]:
    """Yield the words that a choice takes; pydantic has them as `'a', 'b' or 'c'`."""
    if error["type"] == "literal_error":
        listed = str(error["ctx"]["expected"]).replace(" or ", ", ").split(", ")
        yield from (each.strip("'") for each in listed)
