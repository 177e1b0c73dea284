"""Scenarios: scripted conversations with expected calls, replies and state.

`loader` reads files of them. Whether a scenario fits the tools and data of a domain is checked by
`author.lint`.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from lhkit.base.errors import ScenarioError
from lhkit.base.json_values import CLOCK_YEARS, NotJsonError, plain_json
from lhkit.base.locales import available_locales, written_locale
from lhkit.confirm.decision import Approve, Decision, Edit, Reject
from lhkit.harness.scenarios.assignment import transitive
from lhkit.harness.scenarios.issues import (
    Issue,
    Many,
    Path,
    StrictModel,
    checked_by,
    format_path,
    validation_issues,
)
from lhkit.harness.scenarios.matchers import Args, Row, SearchPattern
from lhkit.harness.scenarios.relative_dates import misspelt_dates, resolve_dates
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.user import User
from lhkit.harness.scenarios.values import normalize_reply

DIFFICULTIES = ("plain", "hard")
"""Tags that state the difficulty. A plain conversation has one or two turns, one request and no
trap; tables show both apart, because a rate over easy and adversarial conversations says little."""

NonBlank: TypeAlias = Annotated[str, Field(pattern=r"\S")]


_INVISIBLE = Issue((), "nothing of it is visible in a reply: write a word or a number")
_Phrases: TypeAlias = Many[
    Annotated[NonBlank, checked_by(lambda text: () if normalize_reply(text) else [_INVISIBLE])]
]
_Tables: TypeAlias = Mapping[str, Many[Row]]


class RejectAnswer(StrictModel):
    """The user rejects the call and says why."""

    reject: NonBlank = Field(description="What the user says; the model reads it.")


def _edit_issues(args: Mapping[str, Any]) -> Iterator[Issue]:
    if not args:
        yield Issue((), "changes nothing: name an argument and its new value")
    yield from (issue for issue in misspelt_dates(args) if issue.path)


class EditAnswer(StrictModel):
    """The user changes some arguments and runs the call."""

    edit: Annotated[
        Mapping[str, Any],
        checked_by(_edit_issues),
    ] = Field(
        description="The changed arguments; null leaves one out, and `{date: today+1d}` is the "
        "day that it means.",
        examples=[{"day": "2026-06-16"}],
    )


def _answer_tag(answer: Any) -> str:
    if isinstance(answer, list | tuple):
        return "<list>"
    is_edit = isinstance(answer, EditAnswer) or (isinstance(answer, Mapping) and "edit" in answer)
    if is_edit or isinstance(answer, RejectAnswer | Mapping):
        return "<edit>" if is_edit else "<reject>"
    return "<word>"


_Reject: TypeAlias = Annotated[RejectAnswer, Tag("<reject>")]
_Edit: TypeAlias = Annotated[EditAnswer, Tag("<edit>")]
_Word: TypeAlias = Literal["accept", "reject"]
Answer: TypeAlias = Annotated[
    Annotated[_Word, Tag("<word>")] | _Reject | _Edit, Discriminator(_answer_tag)
]
"""The user's answer to a confirmation."""

ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)
"""Parses an answer as it is written in a file."""

_Answers: TypeAlias = Annotated[
    Annotated[_Word | Literal["absent", "careful"], Tag("<word>")]
    | Annotated[Many[Answer], Tag("<list>")]
    | _Reject
    | _Edit,
    Discriminator(_answer_tag),
]


def decide(answer: Answer, args: Mapping[str, Any], today: date | None) -> Decision:
    """Return the decision of an answer on a call with these arguments.

    Args:
        answer: the answer of a scenario.
        args: the validated arguments of the call.
        today: the day of the conversation, for relative dates.
    """
    match answer:
        case RejectAnswer(reject=reason):
            return Reject(reason)
        case EditAnswer(edit=changes):
            resolved = {name: resolve_dates(value, today) for name, value in changes.items()}
            edited = {**args, **resolved}
            return Edit({name: value for name, value in edited.items() if value is not None})
        case _:
            return Approve() if answer == "accept" else Reject()


class _Call(StrictModel):
    """A tool and matchers for its arguments, both as written and parsed, from one key."""

    tool: NonBlank = Field(description="Name of the tool.")
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
    result: NonBlank | None = Field(
        default=None,
        description="Its result: ok, cancelled or an error code. Any if left out.",
    )


class ForbiddenCall(_Call):
    """A call that must not happen. Arguments that are not listed do not matter."""


class Before(StrictModel):
    """A partial order of the expected calls."""

    before: Many[Annotated[tuple[int, int], Field(strict=False)]] = Field(
        description="[i, j]: call i happens before call j (from 0)."
    )


class Expect(StrictModel):
    """The calls of one turn. Without it, a turn expects none."""

    calls: Many[ExpectedCall] = Field(default=(), description="The expected calls.")
    order: Literal["any", "strict"] | Before = Field(
        default="any", description="Order of the calls."
    )
    extra: Literal["none", "reads", "any"] = Field(
        default="none", description="Which unlisted calls are allowed."
    )
    results: Many[Row] = Field(
        default=(),
        description="Data that calls must have returned by the end of the turn, whichever calls "
        "they were, in this turn or before it: rows as under `final`, each compared with the data "
        "of another successful call.",
        examples=[[{"celsius": {"approx": 21.5, "abs": 0.1}}, {"equals": {"count": 3}}]],
    )
    least: int = Field(default=0, ge=0, description="The least number of calls, of any tools.")

    @field_validator("order")
    @classmethod
    def _check_order(cls, order: str | Before, info: ValidationInfo) -> str | Before:
        if isinstance(order, Before) and "calls" in info.data:
            try:
                transitive(len(info.data["calls"]), order.before)
            except ScenarioError as error:
                raise ValueError(str(error).removeprefix("order: ")) from error
        return order

    @field_validator("results", "least")
    @classmethod
    def _check_calls_are_allowed(cls, value: Any, info: ValidationInfo) -> Any:
        if value and info.data.get("calls") == () and info.data.get("extra") == "none":
            raise ValueError("needs calls, and none are allowed: write extra: reads or extra: any")
        return value


class ReplyPart(StrictModel):
    """Text that a reply must (not) contain, in any case and width of white space."""

    contains_any: _Phrases = Field(
        default=(),
        description="At least one of these phrases: whole words, or the beginning of one "
        "(`cancel*`).",
    )
    contains_all: _Phrases = Field(default=(), description="Every one of these.")
    excludes: _Phrases = Field(default=(), description="None of these.")
    matches: SearchPattern | None = Field(
        default=None, description="A regular expression that is found."
    )


class ExpectedReply(ReplyPart):
    """What the user must (not) read."""

    all_of: Many[ReplyPart] = Field(
        default=(),
        description="Further conditions, all of which apply: "
        "`[{contains_any: [7, seven]}, {contains_any: …}]`.",
    )
    ignore: Literal["spaces"] | None = Field(
        default=None, description="White space does not count: 물 마시기 is 물마시기."
    )
    claims: Literal["none"] | None = Field(
        default=None,
        description="The reply claims no completed write, whatever was done in this conversation "
        "or before.",
    )


class ReferenceCall(StrictModel):
    """A call of the reference solution, with its actual arguments."""

    tool: NonBlank = Field(description="Name of the tool.")
    args: Annotated[
        Mapping[str, Any],
        # the path is empty where `args` itself is an argument called date
        checked_by(lambda args: (issue for issue in misspelt_dates(args) if issue.path)),
    ] = Field(
        default={},
        description="Arguments as the model gives them; `{date: today+1d}` is the day that it "
        "means.",
    )
    parallel: bool = Field(
        default=False, description="It is in the same message as the call before it."
    )


class Reference(StrictModel):
    """The reference solution of a turn, where it cannot be derived."""

    say: str | None = Field(default=None, description="The reply.")
    calls: Many[ReferenceCall] | None = Field(
        default=None, description="The calls, one a message unless they are `parallel`."
    )
    recorded: bool = Field(
        default=False,
        description="This is what a data set has: samples with exactly these calls are counted.",
    )


class Turn(StrictModel):
    """A user message with the expected calls and reply."""

    user: NonBlank = Field(description="The user's message.")
    variants: Many[NonBlank] = Field(
        default=(),
        description="The same message in other words, run with `--variants` against the same "
        "expectations.",
    )
    confirm: _Answers = Field(
        default=(),
        description="The user's answers to the confirm gate: one answers every question of the "
        "turn, a list answers in order and then rejects. careful accepts what this turn expects, "
        "each call once, corrects a call that differs in one argument, and rejects any other. "
        "absent means that there is no gate.",
    )
    expect: Expect = Field(default=Expect(), description="The calls; none if left out.")
    forbid: Many[ForbiddenCall] = Field(default=(), description="Calls that must not happen.")
    reply: ExpectedReply = Field(default=ExpectedReply(), description="What the user reads.")
    gold: Reference = Field(
        default=Reference(),
        description="The reference solution of the turn, where it cannot be derived.",
    )
    final: _Tables | None = Field(
        default=None,
        description="Rows that must be there after this turn and may be new or changed, by table; "
        "all others must be as they were before it. `{}`: it changes nothing. Left out: only the "
        "state at the end is checked.",
    )
    gone: _Tables | None = Field(default=None, description="Rows that this turn must have deleted.")

    @field_validator("variants")
    @classmethod
    def _check_texts_differ(cls, variants: tuple[str, ...], info: ValidationInfo) -> Any:
        texts = [normalize_reply(text) for text in (info.data.get("user", ""), *variants)]
        if len(set(texts)) < len(texts):
            raise ValueError("two wordings have the same text: write each once")
        return variants

    @property
    def texts(self) -> tuple[str, ...]:
        """The user's message in each wording."""
        return (self.user, *self.variants)

    @property
    def checks_state(self) -> bool:
        """Whether it specifies what this turn does to the state."""
        return self.final is not None or self.gone is not None


class ToolFailure(StrictModel):
    """A failing tool: its first calls fail, as if the handler raised an exception."""

    tool: NonBlank = Field(description="Name of the tool.")
    error: Literal["handler_error"] = Field(
        default="handler_error", description="The error code; only handler_error is known."
    )
    times: int = Field(default=1, ge=1, description="How many calls fail before it works.")


def _is_moment(value: Any) -> bool:
    """Return True for a time with an offset, in a year that a clock may show."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return moment.tzinfo is not None and moment.year in CLOCK_YEARS


def _resolve_world_dates(world: Any) -> Any:
    """Return an initial state with the dates that are relative to its clock resolved."""
    if not isinstance(world, Mapping):
        return world
    now: Any = world.get("now")
    try:
        return resolve_dates(world, datetime.fromisoformat(now).date() if _is_moment(now) else None)
    except ScenarioError as error:
        raise ValueError(str(error)) from error


def _world_issues(world: Mapping[str, Any]) -> Iterator[Issue]:
    """Yield an invalid clock, tables that are not lists of rows, and misspelt dates.

    An object `{date: …}` that is a whole row is an ordinary row, with any value.
    """
    for name, value in world.items():
        if name == "now":
            if not _is_moment(value):
                yield Issue(
                    ("now",),
                    "must be a time with offset, from the year "
                    f"{CLOCK_YEARS[0]} to {CLOCK_YEARS[-1]}: 2026-06-15T09:00:00+09:00",
                )
        elif not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            yield Issue((name,), "must be a list of rows")
    for issue in misspelt_dates(world):
        match issue.path:
            case () | (_, int()):
                pass
            case _:
                yield issue


_World: TypeAlias = Annotated[
    Mapping[str, Any],
    BeforeValidator(_resolve_world_dates),
    checked_by(_world_issues),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {"now": {"type": "string", "format": "date-time"}},
            "additionalProperties": {"type": "array", "items": {"type": "object"}},
        }
    ),
]


def _unknown_locale(locale: str) -> Iterable[Issue]:
    known = available_locales()
    return () if locale in known else [Issue((), f"must be one of {', '.join(known)}")]


def _uneven_variants(turns: Sequence[Turn]) -> Iterator[Issue]:
    counts = {number: len(turn.variants) for number, turn in enumerate(turns) if turn.variants}
    for number, count in counts.items():
        if count != max(counts.values()):
            message = f"has {count}, another turn {max(counts.values())}: write as many"
            yield Issue((number, "variants"), message)


def _repeated_tools(failures: Sequence[ToolFailure]) -> Iterator[Issue]:
    tools = [failure.tool for failure in failures]
    for number, tool in enumerate(tools):
        if tool in tools[:number]:
            yield Issue((number, "tool"), f"{tool} is listed twice: write one entry with times")


def _written_locale(fields: dict[str, Any]) -> str:
    """Return the language of the user's messages, for a scenario that does not specify it."""
    return written_locale(turn.user for turn in fields.get("turns", ()))


class Scenario(StrictModel):
    """A scripted conversation and its expected outcome.

    `world` is the initial state, in the terms of the toolset; its `now` is the clock.
    `tool_failures` are tools that fail during the run.
    `final` lists, by table, the rows that must be there at the end and may be new or changed,
    `gone` those of the start that must have been deleted. All other rows must be unchanged.
    `reply` is what all replies together must (not) contain.
    """

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", description="Unique name.")
    ac: NonBlank | None = Field(
        default=None, description="The acceptance criterion it belongs to, such as AC-6."
    )
    turns: Annotated[Many[Turn], checked_by(_uneven_variants)] = Field(
        min_length=1, description="The conversation."
    )
    locale: Annotated[str, checked_by(_unknown_locale)] = Field(
        default_factory=_written_locale,
        description="Language of the conversation; by default ko if the user writes Hangul, else "
        "en.",
    )
    tags: Many[NonBlank] = Field(default=(), description="Free labels.")
    world: _World = Field(
        default={},
        description="The initial state: `now`, and rows by table. `{date: today-1d}` is that "
        "day of its clock, in place of any value.",
    )
    tool_failures: Annotated[Many[ToolFailure], checked_by(_repeated_tools)] = Field(
        default=(), description="Tools that fail, each listed once."
    )
    final: _Tables = Field(default={}, description="Rows expected at the end, by table.")
    gone: _Tables = Field(default={}, description="Rows of the start that must have been deleted.")
    reply: ExpectedReply = Field(
        default=ExpectedReply(),
        description="What the user reads in the whole conversation, in any turn.",
    )
    _wording: int = PrivateAttr(default=0)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Scenario":
        """Return the scenario that plain data describes, as a file's entry would.

        Example:
            >>> Scenario.from_data({"id": "hello", "turns": [{"user": "hi"}]}).id
            'hello'

        Raises:
            ScenarioError: the data are invalid; a line for each issue, with the field.
        """
        try:
            value = plain_json(data)
        except (NotJsonError, RecursionError) as error:
            raise ScenarioError(f"a scenario must be plain JSON data: {error}") from error
        issues: list[Issue] = []
        scenario = validate_entry([value], 0, issues)
        if scenario is None:
            lines = [f"{format_entry_path([value], each.path)}: {each.message}" for each in issues]
            raise ScenarioError("\n".join(lines))
        return scenario

    @property
    def wording(self) -> int:
        """The wording of its messages: 0 is `user`, 1 the first of `variants`."""
        return self._wording

    @property
    def name(self) -> str:
        """The id, for a further wording with its number from 1: `add-01`, `add-01~2`."""
        return str(SampleId(scenario=self.id, wording=self._wording))

    def wordings(self) -> Iterator["Scenario"]:
        """Yield the scenario in each of its wordings, without `variants`."""
        for number in range(1 + max(len(turn.variants) for turn in self.turns)):
            turns = (
                turn.model_copy(update={"user": turn.texts[number], "variants": ()})
                if turn.variants
                else turn
                for turn in self.turns
            )
            scenario = self.model_copy(update={"turns": tuple(turns)})
            scenario._wording = number or self._wording
            yield scenario

    @property
    def checks_each_turn(self) -> bool:
        """Whether a turn specifies its changes of the state."""
        return any(turn.checks_state for turn in self.turns)

    @property
    def called_tools(self) -> frozenset[str]:
        """The tools of its expected and reference calls."""
        turns = self.turns
        reference = (call.tool for turn in turns for call in turn.gold.calls or ())
        return frozenset(reference) | {call.tool for turn in turns for call in turn.expect.calls}

    def unavailable_calls(self, tools: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield place and tool of each required call whose tool is not in `tools`."""
        for t, turn in enumerate(self.turns):
            for c, call in enumerate(turn.expect.calls):
                if not (call.tool in tools or call.optional or call.result == "unknown_tool"):
                    yield f"{self.id}.turns[{t}].expect.calls[{c}].tool", call.tool

    @property
    def today(self) -> date | None:
        """The day of the scenario's clock, in its own zone; None without a clock."""
        now = self.world.get("now")
        return None if now is None else datetime.fromisoformat(now).date()

    def with_user(self, user: User) -> "Scenario":
        """Return the scenario as another simulated user would answer its confirm gate.

        A plain `accept` becomes `careful`, or the other way round. Where a turn expects no
        question, the hasty user accepts one, too: such a write is an unexpected one. Rejections,
        lists of answers and an absent gate are the subject of a scenario, and stay.
        """
        if user == "script":
            return self
        answer: Literal["accept", "careful"] = "careful" if user == "careful" else "accept"

        def is_replaced(turn: Turn) -> bool:
            if turn.confirm == () and user == "hasty":
                return all(call.result != "cancelled" for call in turn.expect.calls)
            return turn.confirm in ("accept", "careful")

        turns = (
            turn.model_copy(update={"confirm": answer}) if is_replaced(turn) else turn
            for turn in self.turns
        )
        return self.model_copy(update={"turns": tuple(turns)})


_ADAPTER = TypeAdapter(Scenario)


def format_entry_path(entries: list[Any], path: Path) -> str:
    """Return a path as text that begins with the scenario's id, if it has one."""
    entry = entries[path[0]] if path and isinstance(path[0], int) and entries else None
    name = entry.get("id") if isinstance(entry, dict) else None
    return format_path((name, *path[1:]) if isinstance(name, str) else path)


def validate_entry(entries: list[Any], index: int, issues: list[Issue]) -> Scenario | None:
    """Return the scenario of an entry, or None after adding its issues to `issues`.

    Args:
        entries: the list of a document.
        index: of the entry.
        issues: to add to.
    """
    try:
        json.dumps(entries[index], ensure_ascii=False).encode()
        return Scenario.model_validate(entries[index])
    except UnicodeEncodeError:
        issues.append(Issue((index,), "contains an unpaired surrogate, which is not valid text"))
        return None
    except ValidationError as error:
        issues += validation_issues(error, _ADAPTER, entries[index], (index,))
        return None
