"""Comparison of the expected calls of a turn with the actual ones.

Pure: no model, no notebook, no server. Arguments compare by typed equality, calls are assigned
optimally (`assignment`), and every missing or unexpected call is reported.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter

from lhkit.base.errors import ScenarioError
from lhkit.base.json_values import shown
from lhkit.base.schema import SchemaNode
from lhkit.harness.scenarios.assignment import (
    Pairs,
    Problem,
    assign,
    assign_ordered,
    require_few_pairs,
    strictly_ordered,
    transitive,
)
from lhkit.harness.scenarios.matchers import arguments_reasons, parse
from lhkit.harness.scenarios.scenario import ExpectedCall
from lhkit.harness.scenarios.values import equal

Order: TypeAlias = Literal["any", "strict"] | Sequence[Sequence[int]]
Extra: TypeAlias = Literal["none", "reads", "any"]

WHOLE = "(all)"
"""The name of arguments that are not an object."""

_UNPAIRED = 1_000_000  # a required call that is missing, or a call that is unexpected
_EXACT = -1  # also pairs an optional expectation, where that costs nothing
_SIMILAR = (100_000, 900_000)  # discount on two unpaired calls, from no to all arguments right


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentVerdict:
    """The verdict on one argument of a pair.

    Attributes:
        expected: index of the expected call.
        actual: index of the actual call.
        tool: name of the tool.
        name: name of the argument.
        ok: whether it is right.
        reason: why it is wrong; empty where it is right.
        alternative: the set of expected arguments it was compared with, from 0: the best fit.
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
    """The result of `match_calls`; numbers are indices into the lists of calls.

    Attributes:
        matched: whether all calls are as expected.
        pairs: (expected, actual) calls of the same tool, right or not.
        missing: required expected calls without an actual one.
        unexpected: actual calls that were not expected.
        allowed: actual calls that were not expected and that `extra` allows.
        arguments: the verdict on each argument of each pair.
        disorder: (first, second) expected calls that happened in the other order.
        outcomes: reasons of calls with another result than expected.
        reasons: all reasons why the calls do not match.
    """

    matched: bool
    pairs: Pairs = ()
    missing: tuple[int, ...] = ()
    unexpected: tuple[int, ...] = ()
    allowed: tuple[int, ...] = ()
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
    """Return True if two JSON values are equal under a JSON Schema.

    `1` equals `1.0`, `true` never equals `1`, `"1"` never equals `1`; text compares in NFC; an
    optional property that is left out equals its default; arrays are ordered.
    """
    return equal(expected, actual, SchemaNode.of(schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActualCall:
    """A call that was made.

    Attributes:
        tool: name of the tool.
        args: the arguments.
        result: `ok`, `cancelled` or an error code; None if unknown.
        is_deferred: it was cancelled without a question and proposed again later in the turn. It
            is neither paired nor unexpected: the later one is.
    """

    tool: str
    args: Any
    result: str | None = None
    is_deferred: bool = False

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "ActualCall":
        """Return the call of plain data, as `match_calls` takes it."""
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
            grammar. `args` may list several correct sets: `{"any_of": [{…}, {…}]}`.
        actual: calls, or plain data: `{"tool": name, "args": {…}, "result"?: …}` each, in order of
            time.
        schemas: JSON Schema of the arguments, by tool; a tool without one is compared untyped. An
            argument that is left out equals its `default`, wherever the schema has it (`$ref`,
            `allOf`, a branch). For a `ToolDefinition` pass `tool.schema_on(today)`, which also
            has the defaults that the model does not see.
        order: `any`, `strict` (as listed), or pairs (i, j) of expected calls: i before j.
        extra: which unexpected calls are allowed.
        reads: the tools that only read.
        today: the day that `{date: "today-1d"}` counts from.

    Raises:
        ScenarioError: an expected call or the order is invalid.
    """
    parsed = [
        call if isinstance(call, ExpectedCall) else _parse_expected(index, call)
        for index, call in enumerate(expected)
    ]
    calls = [call if isinstance(call, ActualCall) else ActualCall.of(call) for call in actual]
    is_allowed = [
        extra == "any" or call.is_deferred or (extra == "reads" and call.tool in reads)
        for call in calls
    ]
    made = Counter(call.tool for call in calls)
    for tool, wanted_calls in Counter(wanted.tool for wanted in parsed).items():
        require_few_pairs(f"calls of {tool}", wanted_calls, made[tool])
    compare = partial(_compare, schemas=schemas, today=today)
    table = [[compare(wanted, call, is_brief=True) for call in calls] for wanted in parsed]
    problem = _problem(parsed, is_allowed, table)
    before = _order_pairs(order, len(parsed))
    matching = _Matching(
        expected=parsed, calls=calls, is_allowed=is_allowed, compare=compare, before=before
    )
    if not before:
        return matching.result(assign(problem))
    result = matching.result(assign_ordered(problem, before))
    return result if result.matched else matching.result(assign(problem))


_EXPECTED = TypeAdapter(ExpectedCall)


def _parse_expected(index: int, raw: Mapping[str, Any]) -> ExpectedCall:
    present = {key: raw[key] for key in ExpectedCall.model_fields if raw.get(key) is not None}
    try:
        return parse(_EXPECTED, present)
    except ScenarioError as error:
        raise ScenarioError(f"expected[{index}]: {error}") from error


@dataclass(frozen=True, slots=True)
class _Reasons:
    """Why a possible pair is wrong: by argument, None where right; and its result."""

    arguments: Mapping[str, str | None]
    outcome: str | None = None
    alternative: int = 0

    @property
    def is_exact(self) -> bool:
        return self.outcome is None and not any(self.arguments.values())

    @property
    def share_right(self) -> float:
        reasons = [*self.arguments.values(), self.outcome]
        return sum(reason is None for reason in reasons) / len(reasons)


def _compare(
    expected: ExpectedCall,
    call: ActualCall,
    *,
    schemas: Mapping[str, Mapping[str, Any]],
    today: date | None,
    is_brief: bool = False,
) -> _Reasons | None:
    """Return how `call` differs from an expected call; None for another tool.

    With `is_brief` the reasons are no texts to show: few of many pairs will be shown.
    """
    if expected.tool != call.tool or call.is_deferred:
        return None
    outcome = None
    if expected.result is not None and expected.result != call.result:
        outcome = f"expected the result {expected.result}, got {call.result or 'none'}"
    if not isinstance(call.args, Mapping):
        return _Reasons({WHOLE: f"expected an object, got {shown(call.args)}"}, outcome)
    schema = schemas.get(expected.tool, {})
    candidates = (
        _Reasons(
            arguments_reasons(
                matchers, call.args, schema, extra=False, today=today, is_brief=is_brief
            ),
            outcome,
            i,
        )
        for i, matchers in enumerate(expected.alternatives)
    )
    return max(candidates, key=lambda reasons: (reasons.is_exact, reasons.share_right))


def _problem(
    expected: Sequence[ExpectedCall],
    is_allowed: Sequence[bool],
    table: Sequence[Sequence[_Reasons | None]],
) -> Problem:
    """Return the costs: an inexact pair costs less than two unpaired calls.

    A wrong call is rather paired with a required expectation than with an optional one.
    """
    left_expected = [0 if call.optional else _UNPAIRED for call in expected]
    left_actual = [0 if allowed else _UNPAIRED for allowed in is_allowed]
    low, high = _SIMILAR

    def cost(i: int, j: int, reasons: _Reasons | None) -> int | None:
        if reasons is None:
            return None
        if reasons.is_exact:
            return _EXACT
        both_unpaired = left_expected[i] + left_actual[j]
        if both_unpaired == 0:
            return None
        discount = low + int((high - low) * reasons.share_right)
        return both_unpaired - discount + expected[i].optional

    costs = [[cost(i, j, reasons) for j, reasons in enumerate(row)] for i, row in enumerate(table)]
    return Problem(costs=costs, left_expected=left_expected, left_actual=left_actual)


def _order_pairs(order: Order, n: int) -> Pairs:
    """Return every pair of expected calls of which one must come before the other."""
    if order == "any":
        return ()
    if order == "strict":
        return transitive(n, strictly_ordered(n))
    try:
        return transitive(n, [(int(first), int(second)) for first, second in order])
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"order must be any, strict or index pairs, not {order!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matching:
    """The compared calls of a turn, from which an assignment makes a `MatchResult`."""

    expected: Sequence[ExpectedCall]
    calls: Sequence[ActualCall]
    is_allowed: Sequence[bool]
    compare: Callable[[ExpectedCall, ActualCall], _Reasons | None]
    before: Pairs

    def result(self, pairs: Pairs) -> MatchResult:
        paired, used = dict(pairs), {j for _, j in pairs}
        unpaired = [j for j in range(len(self.calls)) if j not in used]
        missing = tuple(
            i for i, call in enumerate(self.expected) if i not in paired and not call.optional
        )
        unexpected = tuple(j for j in unpaired if not self.is_allowed[j])
        compared = [
            (i, j, row)
            for i, j in pairs
            if (row := self.compare(self.expected[i], self.calls[j])) is not None
        ]
        arguments = tuple(
            ArgumentVerdict(
                expected=i,
                actual=j,
                tool=self.expected[i].tool,
                name=name,
                ok=reason is None,
                reason=reason or "",
                alternative=row.alternative,
            )
            for i, j, row in compared
            for name, reason in row.arguments.items()
        )
        outcomes = tuple(
            f"{self.expected[i].tool}: {row.outcome}"
            for i, _, row in compared
            if row.outcome is not None
        )
        disorder = tuple(
            (first, second)
            for first, second in self.before
            if first in paired and second in paired and paired[first] > paired[second]
        )
        names = [f"{call.tool} (call {i})" for i, call in enumerate(self.expected)]
        reasons = (
            *(f"{self.expected[i].tool} was expected and not called" for i in missing),
            *(
                f"{call.tool or 'a call without a name'} was not expected: {shown(call.args)}"
                for call in (self.calls[j] for j in unexpected)
            ),
            *(f"{v.tool}.{v.name}: {v.reason}" for v in arguments if not v.ok),
            *outcomes,
            *(f"{names[i]} must come before {names[k]}" for i, k in disorder),
        )
        return MatchResult(
            matched=not reasons,
            pairs=pairs,
            missing=missing,
            unexpected=unexpected,
            allowed=tuple(j for j in unpaired if self.is_allowed[j]),
            arguments=arguments,
            disorder=disorder,
            outcomes=outcomes,
            reasons=reasons,
        )
