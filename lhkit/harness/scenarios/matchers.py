"""Matchers of values, arguments and rows in scenarios: pydantic models in discriminated unions.

A plain value matches itself. A mapping with one of the keys below is a matcher; everything
inside a plain value is literal. Parser, errors, JSON Schema and the table of the documentation
derive from the classes: to add a matcher, add a class here and a member of the union `Matcher`.

Pure: `matching` compares whole calls with them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar, get_args

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetPydanticSchema,
    Tag,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import core_schema
from typing_extensions import TypeAliasType

from lhkit.base.errors import ScenarioError
from lhkit.base.json_values import shown
from lhkit.base.schema import (
    ABSENT,
    SchemaNode,
    item_schema,
    property_default,
    property_schema,
    spelling,
)
from lhkit.harness.scenarios.assignment import (
    Problem,
    assign,
    assign_ordered,
    require_few_pairs,
    strictly_ordered,
)
from lhkit.harness.scenarios.issues import (
    TAG,
    Issue,
    Many,
    Path,
    StrictModel,
    checked_by,
    format_path,
    validation_issues,
)
from lhkit.harness.scenarios.relative_dates import date_error, resolve_date
from lhkit.harness.scenarios.values import (
    equal,
    fold_text,
    is_found,
    is_number,
    pattern_error,
    remove_spaces,
)

_T = TypeVar("_T")
ANY_OF = "any_of"
DEFAULT_REL = 1e-9
"""Relative tolerance of `approx` without `abs` and `rel`: rounding of binary fractions only."""


def _keep_value(value: Any, validate: Callable[[Any], Any]) -> Any:
    """Validate a value and return it unchanged."""
    validate(value)
    return value


_Number = Annotated[float, Field(allow_inf_nan=False), WrapValidator(_keep_value)]
_Tolerance = Annotated[float, Field(allow_inf_nan=False, ge=0), WrapValidator(_keep_value)]

Today: TypeAlias = date | None


@dataclass(frozen=True, slots=True)
class Place:
    """The context of a comparison: the schema node, and the scenario's day for `date`."""

    node: SchemaNode
    today: Today = None

    def at(self, schema: Any) -> "Place":
        """Return the place of another schema node of the same root."""
        return Place(self.node.at(schema), self.today)


class UnderivableError(Exception):
    """Raised where no example follows from a matcher; the message is the path to it."""


_OfSchema: TypeAlias = Callable[[Place], Any]
"""Returns a value that the schema of a place accepts."""


class _Matcher(StrictModel, ABC):
    """A matcher: overrides `fits`, or `mismatch` for a more precise reason.

    The docstring of a class is its line in editors and in the documentation.
    """

    EXAMPLE: ClassVar[Mapping[str, Any]]

    optional: Annotated[bool, Field(description="The argument may be left out.")] = False

    def fits(self, actual: Any, place: Place) -> bool:
        """Return whether the matcher accepts a value."""
        return self.mismatch(actual, place) is None

    def mismatch(self, actual: Any, place: Place) -> str | None:
        """Return why the matcher rejects a value, or None if it accepts it."""
        if self.fits(actual, place):
            return None
        return f"expected {self.describe(place.today)}, got {shown(actual)}"

    @abstractmethod
    def describe(self, today: Today) -> str:
        """Return in a few words which values the matcher accepts."""

    @abstractmethod
    def example(self, place: Place, of_schema: _OfSchema) -> Any:
        """Return an accepted value; `of_schema` makes one where any value is.

        Raises:
            UnderivableError: none can be derived.
        """

    def literal_values(self, _today: Today) -> Iterator[Any]:
        """Yield each value that the matcher states literally."""
        yield from ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        reference: dict[str, Any] = handler(core)
        schema = handler.resolve_ref_schema(reference)
        key, about = next(iter(cls.EXAMPLE)), " ".join((cls.__doc__ or "").split())
        schema |= {"title": key, "description": about, "examples": [cls.EXAMPLE]}
        schema["properties"][key]["description"] = about
        return reference


class Equals(_Matcher):
    """Exactly this value, also if it looks like a matcher."""

    EXAMPLE: ClassVar = {"equals": {"date": "today"}}
    equals: Any

    def fits(self, actual: Any, place: Place) -> bool:
        return equal(self.equals, actual, place.node)

    def describe(self, today: Today) -> str:
        return shown(self.equals)

    def example(self, place: Place, of_schema: _OfSchema) -> Any:
        return self.equals

    def literal_values(self, _today: Today) -> Iterator[Any]:
        yield self.equals


class Literally(Equals):
    """A literal value."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, raw: Any) -> Any:
        return {"equals": raw}

    @classmethod
    def __get_pydantic_json_schema__(cls, *_: Any) -> dict[str, Any]:
        return {"not": {"type": "object", "anyOf": [{"required": [key]} for key in MATCHER_KEYS]}}


class OneOf(_Matcher):
    """One of these values or matchers."""

    EXAMPLE: ClassVar = {"one_of": ["morning", {"text": "in the morning"}]}
    one_of: Annotated[
        Many["Matcher"],
        Field(min_length=1),
        checked_by(
            lambda options: (
                Issue((i,), "'optional' belongs next to 'one_of'")
                for i, option in enumerate(options)
                if option.optional
            )
        ),
    ]

    def fits(self, actual: Any, place: Place) -> bool:
        return any(option.fits(actual, place) for option in self.one_of)

    def describe(self, today: Today) -> str:
        return "one of " + ", ".join(option.describe(today) for option in self.one_of)

    def example(self, place: Place, of_schema: _OfSchema) -> Any:
        return self.one_of[0].example(place, of_schema)

    def literal_values(self, today: Today) -> Iterator[Any]:
        for option in self.one_of:
            yield from option.literal_values(today)


class AnyValue(_Matcher):
    """Any value, but there must be one."""

    EXAMPLE: ClassVar = {"any": True}
    any: Annotated[
        bool,
        checked_by(lambda value: () if value else [Issue((), "must be true")]),
        WithJsonSchema({"const": True}),
    ]

    def fits(self, actual: Any, place: Place) -> bool:
        return True

    def describe(self, today: Today) -> str:
        return "any value"

    def example(self, place: Place, of_schema: _OfSchema) -> Any:
        return of_schema(place)


SearchPattern: TypeAlias = Annotated[
    str,
    checked_by(lambda text: [Issue((), error)] if (error := pattern_error(text)) else ()),
    Field(json_schema_extra={"format": "regex"}),
]


class Matches(_Matcher):
    """A text in which this regular expression is found."""

    EXAMPLE: ClassVar = {"matches": "^010-[0-9]{4}"}
    matches: SearchPattern

    def fits(self, actual: Any, place: Place) -> bool:
        return isinstance(actual, str) and is_found(self.matches, actual)

    def describe(self, today: Today) -> str:
        return f"a text matching /{self.matches}/"

    def example(self, place: Place, of_schema: _OfSchema) -> Any:
        raise UnderivableError("matches")


class Approx(_Matcher):
    """A number as near as this; without `abs` and `rel` only rounding is forgiven."""

    EXAMPLE: ClassVar = {"approx": 37.5, "abs": 0.1}
    approx: _Number
    abs: Annotated[_Tolerance, Field(description="The largest difference.")] = 0.0
    rel: Annotated[_Tolerance, Field(description="The largest difference, as a share of it.")] = 0.0

    def fits(self, actual: Any, place: Place) -> bool:
        is_loose = self.model_fields_set & {"abs", "rel"}
        rel = self.rel if is_loose else DEFAULT_REL
        try:
            return is_number(actual) and math.isclose(
                actual, self.approx, rel_tol=rel, abs_tol=self.abs
            )
        except OverflowError:  # an integer beyond the range of floats
            return False

    def describe(self, today: Today) -> str:
        return f"about {self.approx}"

    def example(self, place: Place, of_schema: _OfSchema) -> Any:
        return self.approx


class DateIs(_Matcher):
    """A day: YYYY-MM-DD, or relative to the scenario's day.

    today, yesterday, tomorrow, weekstart (this week's Monday), weekendstart (its Saturday, on a
    Sunday that day), monthstart, monthend; friday (today or the first after it), next friday (the
    first after today), last friday (the last before it); each with +Nd, -Nw, +Nm (days, weeks,
    months).
    """

    EXAMPLE: ClassVar = {"date": "last friday"}
    date: Annotated[
        str, checked_by(lambda day: [Issue((), error)] if (error := date_error(day)) else ())
    ]

    def fits(self, actual: Any, place: Place) -> bool:
        return bool(actual == resolve_date(self.date, place.today))

    def describe(self, today: Today) -> str:
        return f"{resolve_date(self.date, today)} ({self.date})"

    def example(self, place: Place, of_schema: _OfSchema) -> Any:
        return resolve_date(self.date, place.today)

    def literal_values(self, today: Today) -> Iterator[Any]:
        yield resolve_date(self.date, today)


class Text(_Matcher):
    """This text, in any case, Unicode form and width of white space."""

    EXAMPLE: ClassVar = {"text": "I drink water", "ignore": "spaces"}
    text: str
    ignore: Annotated[
        Literal["spaces"], Field(description="White space does not count at all.")
    ] = None  # type: ignore[assignment]  # left out; no null can be written

    def fits(self, actual: Any, place: Place) -> bool:
        if not isinstance(actual, str):
            return False
        texts = fold_text(self.text), fold_text(actual)
        first, second = map(remove_spaces, texts) if "ignore" in self.model_fields_set else texts
        return first == second

    def describe(self, today: Today) -> str:
        return f"the text {shown(self.text)}"

    def example(self, place: Place, of_schema: _OfSchema) -> Any:
        return self.text

    def literal_values(self, _today: Today) -> Iterator[Any]:
        yield self.text


class Fields(_Matcher):
    """An object with these fields and no others."""

    EXAMPLE: ClassVar = {"fields": {"lat": {"approx": 37.5, "abs": 0.1}}, "extra": True}
    fields: Mapping[str, "Matcher"]
    extra: Annotated[bool, Field(description="Others do not matter.")] = False

    def fits(self, actual: Any, place: Place) -> bool:
        return isinstance(actual, Mapping) and any(
            all(
                reason is None
                for _, reason in _compare_fields(
                    self.fields, actual, place.at(branch), extra=self.extra, is_brief=True
                )
            )
            for branch in place.node.branches()
        )

    def mismatch(self, actual: Any, place: Place) -> str | None:
        if not isinstance(actual, Mapping):
            return f"expected an object, got {shown(actual)}"
        issues: list[str] = []
        for branch in place.node.branches():
            reasons = dict(_compare_fields(self.fields, actual, place.at(branch), extra=self.extra))
            issues = [f"{name}: {reason}" for name, reason in reasons.items() if reason is not None]
            if not issues:
                return None
        return issues[0]

    def describe(self, today: Today) -> str:
        return f"an object with {', '.join(self.fields)}"

    def example(self, place: Place, of_schema: _OfSchema) -> Any:
        return example_arguments(self.fields, place, of_schema)


class Items(_Matcher):
    """A list of just these, in this order."""

    EXAMPLE: ClassVar = {"items": ["milk", {"matches": "^egg"}], "unordered": True}
    items: Many["Matcher"]
    unordered: Annotated[bool, Field(description="In any order.")] = False

    def fits(self, actual: Any, place: Place) -> bool:
        return isinstance(actual, list | tuple) and any(
            self._fits(actual, place, branch) for branch in place.node.branches()
        )

    def mismatch(self, actual: Any, place: Place) -> str | None:
        if not isinstance(actual, list | tuple):
            return f"expected an array, got {shown(actual)}"
        issues = [self._mismatch(actual, place, branch) for branch in place.node.branches()]
        return None if None in issues else issues[0]

    def _fits(self, actual: Sequence[Any], place: Place, branch: Mapping[str, Any]) -> bool:
        if self._fit_in_order(actual, place, branch):
            return True
        if not self.unordered and not any(item.optional for item in self.items):
            return False  # no other pairs are possible
        require_few_pairs("items", len(self.items), len(actual))
        places = [place.at(item_schema(branch, j)) for j in range(len(actual))]
        return (
            all(
                item.optional or any(item.fits(*pair) for pair in zip(actual, places, strict=True))
                for item in self.items
            )
            and self._mismatch(actual, place, branch) is None
        )

    def _fit_in_order(self, actual: Sequence[Any], place: Place, branch: Mapping[str, Any]) -> bool:
        return len(actual) == len(self.items) and all(
            item.fits(value, place.at(item_schema(branch, j)))
            for j, (item, value) in enumerate(zip(self.items, actual, strict=True))
        )

    def _mismatch(
        self, actual: Sequence[Any], place: Place, branch: Mapping[str, Any]
    ) -> str | None:
        if self._fit_in_order(actual, place, branch):
            return None
        require_few_pairs("items", len(self.items), len(actual))
        places = [place.at(item_schema(branch, j)) for j in range(len(actual))]
        problem = Problem(
            costs=[
                [0 if item.fits(*pair) else None for pair in zip(actual, places, strict=True)]
                for item in self.items
            ],
            left_expected=[0 if item.optional else 1 for item in self.items],
            left_actual=[1] * len(actual),
        )
        order = () if self.unordered else strictly_ordered(len(self.items))
        pairs = assign_ordered(problem, order) if order else assign(problem)
        paired, used = {i for i, _ in pairs}, {j for _, j in pairs}
        for i, item in enumerate(self.items):
            if i not in paired and not item.optional:
                reason = item.mismatch(actual[i], places[i]) if i < len(actual) else None
                return f"item {i}: {reason or 'missing'}"
        unexpected = next((j for j in range(len(actual)) if j not in used), None)
        return None if unexpected is None else f"item {unexpected}: unexpected"

    def describe(self, today: Today) -> str:
        return f"an array of {len(self.items)}"

    def example(self, place: Place, of_schema: _OfSchema) -> Any:
        branch = place.node.branches()[0]
        return [
            _example_at(f"items[{i}]", item, place.at(item_schema(branch, i)), of_schema)
            for i, item in enumerate(self.items)
            if not item.optional
        ]


def _matcher_tag(raw: Any) -> str:
    keys = (key for key in raw if key in MATCHER_KEYS) if isinstance(raw, Mapping) else ()
    return TAG + next(iter(keys), "")


Matcher = TypeAliasType(
    "Matcher",
    Annotated[
        Annotated[Equals, Tag(TAG + "equals")]
        | Annotated[OneOf, Tag(TAG + "one_of")]
        | Annotated[AnyValue, Tag(TAG + "any")]
        | Annotated[Matches, Tag(TAG + "matches")]
        | Annotated[Approx, Tag(TAG + "approx")]
        | Annotated[DateIs, Tag(TAG + "date")]
        | Annotated[Text, Tag(TAG + "text")]
        | Annotated[Fields, Tag(TAG + "fields")]
        | Annotated[Items, Tag(TAG + "items")]
        | Annotated[Literally, Tag(TAG)],
        Discriminator(_matcher_tag),
        Field(description="A literal value, or one of the matchers."),
    ],
)
"""A literal value, or one of the matchers."""

_MEMBERS = get_args(get_args(Matcher.__value__)[0])
MATCHER_KEYS = tuple(get_args(member)[1].tag.removeprefix(TAG) for member in _MEMBERS)[:-1]


ArgumentSet: TypeAlias = Mapping[str, Matcher]


def arguments_reasons(
    expected: ArgumentSet,
    args: Mapping[str, Any],
    schema: Mapping[str, Any],
    *,
    extra: bool,
    today: Today,
    is_brief: bool = False,
) -> dict[str, str | None]:
    """Return why each argument of a call is wrong, under the best-fitting branch.

    Names compare in NFC. Of two spellings of one name the expected one counts.

    Args:
        expected: the expected arguments.
        args: the actual arguments.
        schema: JSON Schema of the tool's arguments; `{}` compares them untyped.
        extra: whether unexpected arguments are allowed.
        today: the scenario's day.
        is_brief: whether any text will do as a reason, which takes less time.

    Returns:
        A reason for every expected or actual argument; None where it is right.
    """
    top = Place(SchemaNode.of(schema), today)
    candidates = (
        dict(_compare_fields(expected, args, top.at(branch), extra=extra, is_brief=is_brief))
        for branch in top.node.branches()
    )
    return min(candidates, key=lambda reasons: sum(map(bool, reasons.values())))


def arguments_fit(
    alternatives: Iterable[ArgumentSet],
    args: Mapping[str, Any],
    schema: Mapping[str, Any],
    *,
    extra: bool,
    today: Today,
) -> bool:
    """Return whether one of several sets of arguments is right, as `arguments_reasons` compares."""
    return any(
        not any(
            arguments_reasons(
                expected, args, schema, extra=extra, today=today, is_brief=True
            ).values()
        )
        for expected in alternatives
    )


def _compare_fields(
    expected: ArgumentSet,
    actual: Mapping[str, Any],
    place: Place,
    *,
    extra: bool,
    is_brief: bool = False,
) -> Iterator[tuple[str, str | None]]:
    """Yield each field of an object and why it is wrong; `place` has no choices."""
    branch, root = place.node.schema, place.node.root
    taken: set[str] = set()
    for name, matcher in expected.items():
        inner = place.at(property_schema(branch, name))
        actual_name = spelling(name, actual)
        taken.add(actual_name)
        default = property_default(branch, name, root)
        if actual_name in actual:
            value = actual[actual_name]
            if is_brief:
                yield name, None if matcher.fits(value, inner) else "wrong"
            else:
                yield name, matcher.mismatch(value, inner)
        elif matcher.optional or (default is not ABSENT and matcher.fits(default, inner)):
            yield name, None
        else:
            yield name, f"missing: expected {matcher.describe(place.today)}"
    for name, value in actual.items():
        if name not in taken and not extra:
            default, inner = (
                property_default(branch, name, root),
                place.at(property_schema(branch, name)),
            )
            is_default = default is not ABSENT and equal(default, value, inner.node)
            yield name, None if is_default else f"unexpected: got {shown(value)}"


def example_arguments(expected: ArgumentSet, place: Place, of_schema: _OfSchema) -> dict[str, Any]:
    """Return arguments that fit every matcher; optional ones are left out.

    Raises:
        UnderivableError: no value of a required one can be derived.
    """
    branch = place.node.branches()[0]
    return {
        name: _example_at(name, matcher, place.at(property_schema(branch, name)), of_schema)
        for name, matcher in expected.items()
        if not matcher.optional
    }


def _example_at(name: str, matcher: Matcher, place: Place, of_schema: _OfSchema) -> Any:
    try:
        return matcher.example(place, of_schema)
    except UnderivableError as inner:
        raise UnderivableError(f"{name}.{inner}") from inner


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
                _keep_value,
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

MATCHER = TypeAdapter[Matcher](Matcher)
_ROW: TypeAdapter[Equals | Fields] = TypeAdapter[Any](_RowMatcher)


def parse_row(raw: Mapping[str, Any]) -> Equals | Fields:
    """Return the matcher of a row of data: of some of its fields, or of the whole row.

    Raises:
        ScenarioError: a matcher is invalid; one line per issue.
    """
    return parse(_ROW, raw)


def parse(adapter: TypeAdapter[_T], raw: Any) -> _T:
    """Return the validated value of plain data.

    Raises:
        ScenarioError: the data are invalid; one line per issue.
    """
    try:
        return adapter.validate_python(raw)
    except ValidationError as error:
        issues = validation_issues(error, adapter, raw)
        message = "\n".join(f"{format_path(issue.path)}: {issue.message}" for issue in issues)
        raise ScenarioError(message) from error
