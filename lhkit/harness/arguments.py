"""Arguments of calls and rows of data in scenarios: pydantic types with matchers."""

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
from lhkit.harness.faults import TAG, Many, Path, StrictModel, format_path, validation_faults
from lhkit.harness.matchers import ArgumentSet, Equals, Fields, Matcher, keep_value

_T = TypeVar("_T")
ANY_OF = "any_of"


class AnyOf(StrictModel):
    """Several sets of arguments, any of which is correct."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{ANY_OF: [{"day": "monday"}, {"from": "monday", "to": "monday"}]}]
        },
    )
    any_of: Annotated[Many[ArgumentSet], Field(min_length=1)]


def alternatives(args: Mapping[str, Any]) -> tuple[tuple[Path, Any], ...]:
    """Return each correct set of arguments as it was written, with its path in `args`."""
    listed = args.get(ANY_OF) if len(args) == 1 else None
    if isinstance(listed, list | tuple):
        return tuple(((ANY_OF, i), item) for i, item in enumerate(listed))
    return (((), args),)


def _args_tag(args: Any) -> str:
    is_single = not isinstance(args, Mapping) or alternatives(args)[:1] == (((), args),)
    return TAG + ("" if is_single else ANY_OF)


def _open_choice(core: Any, handler: Any) -> Any:
    schema = handler(core)
    schema["anyOf"] = schema.pop("oneOf")  # both fit a set of one argument that is called any_of
    return schema


_ArgsUnion = Annotated[
    Annotated[AnyOf, AfterValidator(lambda alternatives: alternatives.any_of), Tag(TAG + ANY_OF)]
    | Annotated[ArgumentSet, AfterValidator(lambda only: (only,)), Tag(TAG)],
    Discriminator(_args_tag),
]

Args = TypeAliasType(
    "Args",
    Annotated[
        tuple[ArgumentSet, ...],
        GetPydanticSchema(lambda _type, handler: handler(_ArgsUnion), _open_choice),
        Field(description="A matcher for each argument, or several sets of which one must fit."),
    ],
)
"""The correct sets of arguments: one, or several where written as `{any_of: [{…}, {…}]}`.

An argument named `any_of` whose value is a list is written as `{any_of: {equals: […]}}`.
"""


def _row_tag(row: Any) -> str:
    """Return the tag of a row: whole (`equals`, `fields`) or some of its fields."""
    keys = row if isinstance(row, Mapping) else {}
    kinds = [kind for kind in ("equals", "fields") if isinstance(keys.get(kind), Mapping)]
    is_whole = len(kinds) == 1 and keys.keys() <= {kinds[0], "extra" if "fields" in kinds else ""}
    return TAG + (kinds[0] if is_whole else "")


_RowMatcher = Annotated[
    Annotated[Equals, Tag(TAG + "equals")]
    | Annotated[Fields, Tag(TAG + "fields")]
    | Annotated[
        ArgumentSet,
        AfterValidator(lambda some: Fields.model_construct(fields=some, extra=True)),
        Tag(TAG),
    ],
    Discriminator(_row_tag),
    GetPydanticSchema(get_pydantic_json_schema=_open_choice),
]

Row = TypeAliasType(
    "Row",
    Annotated[
        Mapping[str, Any],
        GetPydanticSchema(
            lambda _type, handler: core_schema.no_info_wrap_validator_function(
                keep_value,
                handler(_RowMatcher),
                serialization=core_schema.plain_serializer_function_ser_schema(lambda row: row),
            )
        ),
        Field(
            description="Matchers for some fields of a row (of a table, or of the data of a "
            "result), others do not matter; or `equals` with the whole row, or `fields` with all "
            "of its fields.",
            examples=[{"title": "tea"}, {"equals": {"id": 1, "title": "tea"}}],
        ),
    ],
)
"""A row as it was written; `parse_row` returns its matchers."""

_MATCHER = TypeAdapter[Matcher](Matcher)
_ROW: TypeAdapter[Equals | Fields] = TypeAdapter[Any](_RowMatcher)


def parse_matcher(raw: Any) -> Matcher:
    """Return the matcher that plain data describes.

    Raises:
        ScenarioError: the matcher is invalid; one line per fault.
    """
    return parse(_MATCHER, raw)


def parse_row(raw: Mapping[str, Any]) -> Equals | Fields:
    """Return the matcher of a row of data: of some of its fields, or of the whole row.

    Raises:
        ScenarioError: a matcher is invalid; one line per fault.
    """
    return parse(_ROW, raw)


def parse(adapter: TypeAdapter[_T], raw: Any) -> _T:
    """Return the validated value of plain data.

    Raises:
        ScenarioError: the data are invalid; one line per fault.
    """
    try:
        return adapter.validate_python(raw)
    except ValidationError as error:
        faults = validation_faults(error, adapter, raw)
        message = "\n".join(f"{format_path(fault.path)}: {fault.message}" for fault in faults)
        raise ScenarioError(message) from error
