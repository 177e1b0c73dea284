"""A turn of a scenario: what the user says, and what is expected of the model then."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, WithJsonSchema

from lhkit.errors import ScenarioError
from lhkit.harness.matchers import Slot, parse_alternatives
from lhkit.harness.matching import Expectation
from lhkit.harness.text_forms import comparable

Words: TypeAlias = Annotated[str, Field(pattern=r"\S")]


def _searchable(phrase: str) -> str:
    if not comparable(phrase):
        raise ValueError("nothing of it can be seen in a reply: write a word or a number")
    return phrase


_Phrase: TypeAlias = Annotated[Words, AfterValidator(_searchable)]
ARGS_MARK = {"x-lhkit": "args"}
_Args: TypeAlias = Annotated[Mapping[str, Any], WithJsonSchema(ARGS_MARK)]
ROW_MARK = {"x-lhkit": "row"}
_Row: TypeAlias = Annotated[Mapping[str, Any], WithJsonSchema(ROW_MARK)]
Listed: TypeAlias = Mapping[str, tuple[_Row, ...]]
_Alternatives: TypeAlias = tuple[Mapping[str, Slot], ...]
_Answer: TypeAlias = Literal["accept", "reject"]


def about(text: str) -> Any:
    """Return a field with a description, for the JSON Schema."""
    return Field(description=text)


class Strict:
    """Tells pydantic to refuse unknown fields; a plain base so that values stay dataclasses."""

    __slots__ = ()
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - pydantic's name and type


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish(Strict):
    """A tool and matchers for its arguments: as they were written, and parsed, once."""

    tool: Annotated[Words, about("Name of the tool.")]
    args: Annotated[
        _Args, about("A matcher for each argument; or `any_of` with a list of such sets.")
    ] = field(default_factory=dict)
    _alternatives: _Alternatives | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parsed: _Alternatives | None = None
        with suppress(ScenarioError):  # who reads the file tells it with its line
            parsed = parse_alternatives(self.args)
        object.__setattr__(self, "_alternatives", parsed)

    @property
    def alternatives(self) -> _Alternatives:
        """The matchers of each set of arguments that is right; one, unless `any_of` lists several.

        Raises:
            ScenarioError: one of them is malformed.
        """
        return parse_alternatives(self.args) if self._alternatives is None else self._alternatives


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCall(_Wish):
    """A call that must happen, or may if it is `optional`."""

    optional: Annotated[bool, about("The call may be left out.")] = False
    result: Annotated[
        Words | None, about("What it comes to: ok, cancelled or an error code. Any if left out.")
    ] = None

    @property
    def expectation(self) -> Expectation:
        """The call as `match_calls` takes it.

        Raises:
            ScenarioError: a matcher is malformed.
        """
        return Expectation(
            tool=self.tool,
            alternatives=self.alternatives,
            optional=self.optional,
            result=self.result,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Before(Strict):
    """A partial order of the expected calls."""

    before: Annotated[
        tuple[tuple[int, int], ...], about("[i, j]: call i happens before call j (from 0).")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect(Strict):
    """The calls of one turn. Without it, a turn expects none."""

    calls: Annotated[tuple[ExpectedCall, ...], about("What must happen.")] = ()
    order: Annotated[Literal["any", "strict"] | Before, about("Order of the calls.")] = "any"
    extra: Annotated[
        Literal["none", "reads", "any"], about("Which unlisted calls are tolerated.")
    ] = "none"
    results: Annotated[
        tuple[_Row, ...],
        Field(
            description="What calls must have come to by the end of the turn, whichever calls they "
            "were, in this turn or before it: rows as under `final`, each held against the data "
            "of a call of its own that went well.",
            examples=[[{"celsius": {"approx": 21.5, "abs": 0.1}}, {"equals": {"count": 3}}]],
        ),
    ] = ()
    least: Annotated[
        int, Field(ge=0, description="So many calls at least, whichever they are.")
    ] = 0

    @property
    def asks_whichever(self) -> bool:
        """True if it asks for calls of which it does not say which they are."""
        return bool(self.results or self.least)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForbiddenCall(_Wish):
    """A minefield: a call of this tool whose listed arguments fit."""

    args: Annotated[
        _Args, about("Only with these arguments; others do not matter. `any_of` as expected.")
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyPart(Strict):
    """Words that must (not) stand in a reply, in any case and with any width of white space."""

    contains_any: Annotated[tuple[_Phrase, ...], about("At least one of these.")] = ()
    contains_all: Annotated[tuple[_Phrase, ...], about("Every one of these.")] = ()
    excludes: Annotated[tuple[_Phrase, ...], about("None of these.")] = ()
    matches: Annotated[str | None, about("A regular expression that is found.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedReply(ReplyPart):
    """What the user must (not) read."""

    all_of: Annotated[
        tuple[ReplyPart, ...],
        about("Each of these must hold too: `[{contains_any: [7, seven]}, {contains_any: …}]`."),
    ] = ()
    ignore: Annotated[
        Literal["spaces"] | None, about("White space does not count: 물 마시기 is 물마시기.")
    ] = None
    claims: Annotated[
        Literal["none"] | None,
        about("It claims no finished write, whatever was done in this conversation or before."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldCall(Strict):
    """A call of the gold trace, with its real arguments."""

    tool: Annotated[Words, about("Name of the tool.")]
    args: Annotated[
        Mapping[str, Any],
        about("Arguments as the model gives them; `{date: today+1d}` is the day that it means."),
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold(Strict):
    """What a perfect model does, where it cannot be derived from the expectation."""

    say: Annotated[str | None, about("The reply.")] = None
    calls: Annotated[tuple[GoldCall, ...] | None, about("The calls, one a model turn.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(Strict):
    """One thing the user says and what must come of it."""

    user: Annotated[Words, about("What the user says.")]
    confirm: Annotated[
        _Answer | Literal["absent", "careful"] | tuple[_Answer, ...],
        about(
            "The user's answers to the confirm gate: one word answers every question of the turn, "
            "a list answers in order and then says no, careful says yes to what this turn expects, "
            "each call once, and no to any other, absent means that there is no gate."
        ),
    ] = ()
    expect: Annotated[Expect, about("The calls; none if left out.")] = field(default_factory=Expect)
    forbid: Annotated[tuple[ForbiddenCall, ...], about("Calls that must not happen.")] = ()
    reply: Annotated[ExpectedReply, about("What the user reads.")] = field(
        default_factory=ExpectedReply
    )
    gold: Annotated[Gold, about("A perfect model's turn, where it cannot be derived.")] = field(
        default_factory=Gold
    )
    final: Annotated[
        Listed | None,
        about(
            "Rows that must be there after this turn and may be new or changed, by table; all "
            "others must be as they were before it. `{}`: it changes nothing. Left out: only the "
            "end is looked at."
        ),
    ] = None
    gone: Annotated[Listed | None, about("Rows that this turn must have deleted.")] = None

    @property
    def checks_state(self) -> bool:
        """True if it says what this turn does to the state."""
        return self.final is not None or self.gone is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedFault(Strict):
    """A tool that breaks: its first calls that are let through fail, as after an exception."""

    tool: Annotated[Words, about("Name of the tool.")]
    error: Annotated[
        Literal["handler_error"], about("What the model is told; only handler_error is known.")
    ] = "handler_error"
    times: Annotated[int, Field(ge=1, description="How many calls fail before it works.")] = 1
