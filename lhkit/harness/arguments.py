"""The arguments of a call, and rows of data, as a scenario writes them: with matchers."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetPydanticSchema,
    Tag,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import core_schema
from typing_extensions import TypeAliasType

from lhkit.errors import ScenarioError
from lhkit.harness.faults import TAG, Many, Path, StrictModel, shape_faults, shown_path
from lhkit.harness.matchers import ArgumentSet, Equals, Fields, Matcher, as_written

_T = TypeVar("_T")
ANY_OF = "any_of"


class AnyOf(StrictModel):
    """Several sets of arguments that are right."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{ANY_OF: [{"day": "monday"}, {"from": "monday", "to": "monday"}]}]
        },
    )
    any_of: Annotated[Many[ArgumentSet], Field(min_length=1)]


def alternatives(args: Mapping[str, Any]) -> tuple[tuple[Path, Any], ...]:
    """Return each set of arguments that is right as it was written, with its place in `args`."""
    listed = args.get(ANY_OF) if len(args) == 1 else None
    if isinstance(listed, list | tuple):
        return tuple(((ANY_OF, i), each) for i, each in enumerate(listed))
    return (((), args),)


def _args_kind(args: Any) -> str:
    is_one = not isinstance(args, Mapping) or alternatives(args)[:1] == (((), args),)
    return TAG + ("" if is_one else ANY_OF)


def _open_choice(core: Any, handler: Any) -> Any:
    schema = handler(core)
    schema["anyOf"] = schema.pop("oneOf")  # a set of one argument that is called any_of is one, too
    return schema


_Written = Annotated[
    Annotated[AnyOf, AfterValidator(lambda listed: listed.any_of), Tag(TAG + ANY_OF)]
    | Annotated[ArgumentSet, AfterValidator(lambda only: (only,)), Tag(TAG)],
    Discriminator(_args_kind),
]

Args = TypeAliasType(
    "Args",
    Annotated[
        tuple[ArgumentSet, ...],
        GetPydanticSchema(lambda _type, handler: handler(_Written), _open_choice),
        Field(description="A matcher for each argument, or several sets of which one must fit."),
    ],
)
"""Each set of arguments that is right: one, unless they are written as `{any_of: [{…}, {…}]}`.

An argument of that name that is a list is written as `{any_of: {equals: […]}}`.
"""


def _row_kind(row: Any) -> str:
    """Return whether a row is told whole, by `equals` or `fields`, or by some of its fields."""
    given = row if isinstance(row, Mapping) else {}
    kinds = [kind for kind in ("equals", "fields") if isinstance(given.get(kind), Mapping)]
    is_whole = len(kinds) == 1 and given.keys() <= {kinds[0], "extra" if "fields" in kinds else ""}
    return TAG + (kinds[0] if is_whole else "")


_RowMatcher = Annotated[
    Annotated[Equals, Tag(TAG + "equals")]
    | Annotated[Fields, Tag(TAG + "fields")]
    | Annotated[
        ArgumentSet,
        AfterValidator(lambda some: Fields.model_construct(fields=some, extra=True)),
        Tag(TAG),
    ],
    Discriminator(_row_kind),
    GetPydanticSchema(get_pydantic_json_schema=_open_choice),
]

Row = TypeAliasType(
    "Row",
    Annotated[
        Mapping[str, Any],
        GetPydanticSchema(
            lambda _type, handler: core_schema.no_info_wrap_validator_function(
                as_written,
                handler(_RowMatcher),
                serialization=core_schema.plain_serializer_function_ser_schema(lambda row: row),
            )
        ),
        Field(
            description="Matchers for some fields of a row (of a table, or of the data that a call "
            "came to), others do not matter; or `equals` with the whole row, or `fields` with all "
            "of its fields.",
            examples=[{"title": "tea"}, {"equals": {"id": 1, "title": "tea"}}],
        ),
    ],
)
"""A row as it was written; `parse_row` has its matchers."""

_MATCHER = TypeAdapter[Matcher](Matcher)
_ROW: TypeAdapter[Equals | Fields] = TypeAdapter[Any](_RowMatcher)


def parse_matcher(raw: Any) -> Matcher:
    """Return the matcher that plain data describes.

    Raises:
        ScenarioError: it looks like a matcher and is none; one line per fault.
    """
    return parsed(_MATCHER, raw)


def parse_row(raw: Mapping[str, Any]) -> Equals | Fields:
    """Return the matcher of a row of data: of some of its fields, or of the whole row.

    Raises:
        ScenarioError: a matcher is malformed; one line per fault.
    """
    return parsed(_ROW, raw)


def parsed(adapter: TypeAdapter[_T], raw: Any) -> _T:
    """Return what plain data says.

    Raises:
        ScenarioError: it is malformed; one line per fault.
    """
    try:
        return adapter.validate_python(raw)
    except ValidationError as error:
        faults = shape_faults(error, adapter, raw)
        told = "\n".join(f"{shown_path(fault.path)}: {fault.message}" for fault in faults)
        raise ScenarioError(told) from error
