"""Which calls were expected, which happened, and which argument is wrong.

Pure: no model, no notebook, no server. Arguments are compared by typed equality, calls are assigned
optimally (`assignment`), and nothing missing or surplus goes unreported.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter

from lhkit.errors import ScenarioError
from lhkit.harness.arguments import parse
from lhkit.harness.assignment import (
    Pairs,
    Problem,
    assign,
    assign_ordered,
    strictly_ordered,
    transitive,
)
from lhkit.harness.comparison import equal
from lhkit.harness.matchers import arguments_reasons
from lhkit.harness.scenario import ExpectedCall
from lhkit.json_values import shown
from lhkit.tools.schema import SchemaNode

Order: TypeAlias = Literal["any", "strict"] | Sequence[Sequence[int]]
Extra: TypeAlias = Literal["none", "reads", "any"]

_ALONE = 1_000_000  # a required call that is missing, or a call that nobody expected
_EXACT = -1  # also takes an optional expectation, where that costs nothing
_SIMILAR = (100_000, 900_000)  # discount on two who stay alone, from none to all right


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentVerdict:
    """One argument of one pair; `reason` says why it is wrong and is empty where it is right.

    `alternative` says which set of expected arguments it was held against, from 0: the one that
    fits best.
    """

    expected: int
    actual: int
    tool: str
    name: str
    ok: bool
    reason: str = ""
    alternative: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchResult:
    """How calls and expectations fit together. All numbers are indices into the two lists.

    `pairs` are (expected, actual) of the same tool, right or not; `arguments` says what is wrong
    in them. `missing` are required expectations without a call, `surplus` calls that nobody
    expected, `tolerated` those that `extra` allows. `disorder` are (first, second) expectations
    that happened the other way round, `outcomes` reasons of calls that came to another result.
    """

    matched: bool
    pairs: Pairs = ()
    missing: tuple[int, ...] = ()
    surplus: tuple[int, ...] = ()
    tolerated: tuple[int, ...] = ()
    arguments: tuple[ArgumentVerdict, ...] = ()
    disorder: Pairs = ()
    outcomes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def right(self) -> Pairs:
        """The pairs in which every argument is right."""
        wrong = {verdict.expected for verdict in self.arguments if not verdict.ok}
        return tuple(pair for pair in self.pairs if pair[0] not in wrong)


def values_equal(expected: Any, actual: Any, schema: Mapping[str, Any]) -> bool:
    """Return True if two JSON values mean the same under a JSON Schema.

    `1` equals `1.0`, `true` never equals `1`, `"1"` never equals `1`; text compares in NFC; an
    optional property that is left out equals its default; arrays are ordered.
    """
    return equal(expected, actual, SchemaNode.of(schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActualCall:
    """A call that was made; `result` is what it came to, None where nobody knows.

    `is_deferred`: it was cancelled without asking and proposed again later in the turn. It is
    neither taken for an expectation nor unexpected: the later one is.
    """

    tool: str
    args: Any
    result: str | None = None
    is_deferred: bool = False

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "ActualCall":
        """Return the call in plain data, as `match_calls` takes it."""
        tool = raw.get("tool")
        return cls(
            tool=tool if isinstance(tool, str) else "",
            args=raw.get("args", {}),
            result=raw.get("result"),
        )


def match_calls(
    expected: Sequence[ExpectedCall | Mapping[str, Any]],
    actual: Sequence[ActualCall | Mapping[str, Any]],
    *,
    schemas: Mapping[str, Mapping[str, Any]],
    order: Order = "any",
    extra: Extra = "none",
    reads: Collection[str] = (),
    today: date | None = None,
) -> MatchResult:
    """Compare the calls that were expected with those that were made.

    Args:
        expected: calls of a scenario, or plain data: `{"tool": name, "args": {argument: matcher},
            "optional"?: bool, "result"?: ok | cancelled | error code}` each; see `matchers` for the
            grammar. `args` may list several sets that are right: `{"any_of": [{…}, {…}]}`.
        actual: calls, or plain data: `{"tool": name, "args": {…}, "result"?: …}` each, in order of
            time.
        schemas: JSON Schema of the arguments, by tool; a tool without one is compared untyped. An
            argument that is left out equals its `default`, wherever the schema states it (`$ref`,
            `allOf`, a branch). For a `ToolDefinition` pass `tool.schema_on(today)`, which also
            has the defaults that the model is not told.
        order: `any`, `strict` (as listed), or pairs (i, j) of expectations: i before j.
        extra: which calls beyond the expected ones are tolerated.
        reads: the tools that only read.
        today: the day that `{date: "today-1d"}` counts from.

    Raises:
        ScenarioError: an expectation or the order is malformed.
    """
    wishes = [
        each if isinstance(each, ExpectedCall) else _expectation(index, each)
        for index, each in enumerate(expected)
    ]
    calls = [each if isinstance(each, ActualCall) else ActualCall.of(each) for each in actual]
    readers = frozenset(reads)
    tolerated = [
        extra == "any" or call.is_deferred or (extra == "reads" and call.tool in readers)
        for call in calls
    ]
    table = [[_reasons(wish, call, schemas, today) for call in calls] for wish in wishes]
    problem = _problem(wishes, tolerated, table)
    before = _before(order, len(wishes))
    pairs = assign_ordered(problem, before) if before else assign(problem)
    verdict = _Verdict(wishes=wishes, calls=calls, tolerated=tolerated, table=table, before=before)
    result = verdict.of(pairs)
    return result if result.matched or not before else verdict.of(assign(problem))


_EXPECTED = TypeAdapter(ExpectedCall)


def _expectation(index: int, raw: Mapping[str, Any]) -> ExpectedCall:
    given = {key: raw[key] for key in ExpectedCall.model_fields if raw.get(key) is not None}
    try:
        return parse(_EXPECTED, given)
    except ScenarioError as error:
        raise ScenarioError(f"expected[{index}]: {error}") from error


@dataclass(frozen=True, slots=True)
class _Reasons:
    """Why each argument of a possible pair is wrong, None where it is right; and the result."""

    arguments: Mapping[str, str | None]
    outcome: str | None = None
    alternative: int = 0

    @property
    def is_exact(self) -> bool:
        return self.outcome is None and not any(self.arguments.values())

    @property
    def share_right(self) -> float:
        verdicts = [*self.arguments.values(), self.outcome]
        return sum(reason is None for reason in verdicts) / len(verdicts)


def _reasons(
    wish: ExpectedCall,
    call: ActualCall,
    schemas: Mapping[str, Mapping[str, Any]],
    today: date | None,
) -> _Reasons | None:
    """Return what is wrong if `call` is taken for `wish`; None for another tool."""
    if wish.tool != call.tool or call.is_deferred:
        return None
    outcome = None
    if wish.result is not None and wish.result != call.result:
        outcome = f"expected the result {wish.result}, got {call.result or 'none'}"
    if not isinstance(call.args, Mapping):
        return _Reasons({"(all)": f"expected an object, got {shown(call.args)}"}, outcome)
    schema = schemas.get(wish.tool, {})
    found = (
        arguments_reasons(matchers, call.args, schema, extra=False, today=today)
        for matchers in wish.alternatives
    )
    each = (_Reasons(reasons, outcome, i) for i, reasons in enumerate(found))
    return max(each, key=lambda reasons: (reasons.is_exact, reasons.share_right))


def _problem(
    wishes: Sequence[ExpectedCall],
    tolerated: Sequence[bool],
    table: Sequence[Sequence[_Reasons | None]],
) -> Problem:
    """Return what pairing costs: an inexact pair less than two alone, and never nothing.

    A wrong call is rather taken for a required expectation than for an optional one.
    """
    left_expected = [0 if wish.optional else _ALONE for wish in wishes]
    left_actual = [0 if each else _ALONE for each in tolerated]
    low, high = _SIMILAR

    def cost(i: int, j: int, reasons: _Reasons | None) -> int | None:
        if reasons is None:
            return None
        if reasons.is_exact:
            return _EXACT
        both_alone = left_expected[i] + left_actual[j]
        if both_alone == 0:
            return None
        return both_alone - low - int((high - low) * reasons.share_right) + wishes[i].optional

    costs = [[cost(i, j, each) for j, each in enumerate(row)] for i, row in enumerate(table)]
    return Problem(costs=costs, left_expected=left_expected, left_actual=left_actual)


def _before(order: Order, n: int) -> Pairs:
    """Return every pair of expectations of which one must come before the other."""
    if order == "any":
        return ()
    if order == "strict":
        return transitive(n, strictly_ordered(n))
    try:
        return transitive(n, [(int(first), int(second)) for first, second in order])
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"order must be any, strict or index pairs, not {order!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """Turns an assignment into a `MatchResult`."""

    wishes: Sequence[ExpectedCall]
    calls: Sequence[ActualCall]
    tolerated: Sequence[bool]
    table: Sequence[Sequence[_Reasons | None]]
    before: Pairs

    def of(self, pairs: Pairs) -> MatchResult:
        paired, used = dict(pairs), {j for _, j in pairs}
        alone = [j for j in range(len(self.calls)) if j not in used]
        missing = tuple(
            i for i, wish in enumerate(self.wishes) if i not in paired and not wish.optional
        )
        surplus = tuple(j for j in alone if not self.tolerated[j])
        found = [(i, j, each) for i, j in pairs if (each := self.table[i][j]) is not None]
        arguments = tuple(
            ArgumentVerdict(
                expected=i,
                actual=j,
                tool=self.wishes[i].tool,
                name=name,
                ok=reason is None,
                reason=reason or "",
                alternative=each.alternative,
            )
            for i, j, each in found
            for name, reason in each.arguments.items()
        )
        outcomes = tuple(
            f"{self.wishes[i].tool}: {each.outcome}"
            for i, _, each in found
            if each.outcome is not None
        )
        disorder = tuple(
            (first, second)
            for first, second in self.before
            if first in paired and second in paired and paired[first] > paired[second]
        )
        names = [f"{wish.tool} (call {i})" for i, wish in enumerate(self.wishes)]
        unexpected = [self.calls[j] for j in surplus]
        reasons = (
            *(f"{self.wishes[i].tool} was expected and not called" for i in missing),
            *(
                f"{call.tool or 'a call without a name'} was not expected: {shown(call.args)}"
                for call in unexpected
            ),
            *(f"{v.tool}.{v.name}: {v.reason}" for v in arguments if not v.ok),
            *outcomes,
            *(f"{names[i]} must come before {names[k]}" for i, k in disorder),
        )
        return MatchResult(
            matched=not reasons,
            pairs=pairs,
            missing=missing,
            surplus=surplus,
            tolerated=tuple(j for j in alone if self.tolerated[j]),
            arguments=arguments,
            disorder=disorder,
            outcomes=outcomes,
            reasons=reasons,
        )
