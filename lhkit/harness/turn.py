"""A turn of a scenario: what the user says, and what is expected of the model then."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from lhkit.errors import ScenarioError
from lhkit.harness.arguments import Args, Row
from lhkit.harness.assignment import Problem, assign_ordered
from lhkit.harness.comparison import normalize_reply
from lhkit.harness.faults import Fault, Many, StrictModel, checked_by
from lhkit.harness.matchers import SearchPattern
from lhkit.harness.relative_dates import misspelt_days

Words: TypeAlias = Annotated[str, Field(pattern=r"\S")]


def _searchable(phrase: str) -> str:
    if not normalize_reply(phrase):
        raise ValueError("nothing of it can be seen in a reply: write a word or a number")
    return phrase


_Phrases: TypeAlias = Many[Annotated[Words, AfterValidator(_searchable)]]
Listed: TypeAlias = Mapping[str, Many[Row]]
_Answer: TypeAlias = Literal["accept", "reject"]


class _Call(StrictModel):
    """A tool and matchers for its arguments: as they were written, and parsed, from one key."""

    tool: Words = Field(description="Name of the tool.")
    args: Mapping[str, Any] = {}
    alternatives: Args = Field(
        default_factory=lambda: ({},),
        validation_alias="args",
        exclude=True,
        description="A matcher for each argument; or `any_of` with a list of such sets.",
    )


class ExpectedCall(_Call):
    """A call that must happen, or may if it is `optional`."""

    optional: bool = Field(default=False, description="The call may be left out.")
    result: Words | None = Field(
        default=None,
        description="What it comes to: ok, cancelled or an error code. Any if left out.",
    )


class ForbiddenCall(_Call):
    """A minefield: a call of this tool whose listed arguments fit; others do not matter."""


class Before(StrictModel):
    """A partial order of the expected calls."""

    before: Many[Annotated[tuple[int, int], Field(strict=False)]] = Field(
        description="[i, j]: call i happens before call j (from 0)."
    )


class Expect(StrictModel):
    """The calls of one turn. Without it, a turn expects none."""

    calls: Many[ExpectedCall] = Field(default=(), description="What must happen.")
    order: Literal["any", "strict"] | Before = Field(
        default="any", description="Order of the calls."
    )
    extra: Literal["none", "reads", "any"] = Field(
        default="none", description="Which unlisted calls are tolerated."
    )
    results: Many[Row] = Field(
        default=(),
        description="What calls must have come to by the end of the turn, whichever calls they "
        "were, in this turn or before it: rows as under `final`, each held against the data "
        "of a call of its own that went well.",
        examples=[[{"celsius": {"approx": 21.5, "abs": 0.1}}, {"equals": {"count": 3}}]],
    )
    least: int = Field(default=0, ge=0, description="So many calls at least, whichever they are.")

    @property
    def asks_whichever(self) -> bool:
        """True if it asks for calls of which it does not say which they are."""
        return bool(self.results or self.least)

    @field_validator("order")
    @classmethod
    def _can_be_kept(cls, order: str | Before, info: ValidationInfo) -> str | Before:
        if isinstance(order, Before) and "calls" in info.data:
            n = len(info.data["calls"])
            try:
                assign_ordered(
                    Problem(costs=[[]] * n, left_expected=[0] * n, left_actual=[]), order.before
                )
            except ScenarioError as error:
                raise ValueError(str(error).removeprefix("order: ")) from error
        return order

    @field_validator("results", "least")
    @classmethod
    def _can_be_made(cls, asked: Any, info: ValidationInfo) -> Any:
        if asked and info.data.get("calls") == () and info.data.get("extra") == "none":
            raise ValueError(
                "asks for calls, and none may be made: say which with extra: reads or extra: any"
            )
        return asked


class ReplyPart(StrictModel):
    """Words that must (not) stand in a reply, in any case and with any width of white space."""

    contains_any: _Phrases = Field(default=(), description="At least one of these.")
    contains_all: _Phrases = Field(default=(), description="Every one of these.")
    excludes: _Phrases = Field(default=(), description="None of these.")
    matches: SearchPattern | None = Field(
        default=None, description="A regular expression that is found."
    )


class ExpectedReply(ReplyPart):
    """What the user must (not) read."""

    all_of: Many[ReplyPart] = Field(
        default=(),
        description="Each of these must hold too: "
        "`[{contains_any: [7, seven]}, {contains_any: …}]`.",
    )
    ignore: Literal["spaces"] | None = Field(
        default=None, description="White space does not count: 물 마시기 is 물마시기."
    )
    claims: Literal["none"] | None = Field(
        default=None,
        description="It claims no finished write, whatever was done in this conversation or "
        "before.",
    )


def _misspelt_days(args: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the misspelt days of a call; an argument that is called date is one."""
    return (fault for fault in misspelt_days(args) if fault.path)


class ReferenceCall(StrictModel):
    """A call of the gold trace, with its real arguments."""

    tool: Words = Field(description="Name of the tool.")
    args: Annotated[Mapping[str, Any], checked_by(_misspelt_days)] = Field(
        default={},
        description="Arguments as the model gives them; `{date: today+1d}` is the day that it "
        "means.",
    )


class Reference(StrictModel):
    """What a perfect model does, where it cannot be derived from the expectation."""

    say: str | None = Field(default=None, description="The reply.")
    calls: Many[ReferenceCall] | None = Field(
        default=None, description="The calls, one a model turn."
    )


class Turn(StrictModel):
    """One thing the user says and what must come of it."""

    user: Words = Field(description="What the user says.")
    confirm: _Answer | Literal["absent", "careful"] | Many[_Answer] = Field(
        default=(),
        description="The user's answers to the confirm gate: one word answers every question of "
        "the turn, a list answers in order and then says no, careful says yes to what this turn "
        "expects, each call once, and no to any other, absent means that there is no gate.",
    )
    expect: Expect = Field(default=Expect(), description="The calls; none if left out.")
    forbid: Many[ForbiddenCall] = Field(default=(), description="Calls that must not happen.")
    reply: ExpectedReply = Field(default=ExpectedReply(), description="What the user reads.")
    gold: Reference = Field(
        default=Reference(), description="A perfect model's turn, where it cannot be derived."
    )
    final: Listed | None = Field(
        default=None,
        description="Rows that must be there after this turn and may be new or changed, by table; "
        "all others must be as they were before it. `{}`: it changes nothing. Left out: only the "
        "end is looked at.",
    )
    gone: Listed | None = Field(default=None, description="Rows that this turn must have deleted.")

    @property
    def checks_state(self) -> bool:
        """True if it says what this turn does to the state."""
        return self.final is not None or self.gone is not None


class ScriptedFault(StrictModel):
    """A tool that breaks: its first calls that are let through fail, as after an exception."""

    tool: Words = Field(description="Name of the tool.")
    error: Literal["handler_error"] = Field(
        default="handler_error", description="What the model is told; only handler_error is known."
    )
    times: int = Field(default=1, ge=1, description="How many calls fail before it works.")
