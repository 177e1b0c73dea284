"""Which call was which: calls that were made, matched with calls that were expected."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal, TypeAlias, assert_never

from lhkit.errors import ScenarioError
from lhkit.harness.matchers import (
    AnyValue,
    Approx,
    DateIs,
    Equals,
    Fields,
    Items,
    Matcher,
    Matches,
    OneOf,
    Slot,
    Text,
    equal,
    is_number,
    parse_alternatives,
)
from lhkit.json_values import shown
from lhkit.tools.schema import ABSENT, SchemaNode, default_of, item_of, property_of, spelling

# The cheapest way to pair what was expected with what happened. Numbers only, no tools.
#
# Optimal, never greedy: exact dynamic programming over the calls in time, with an order or
# without, and SciPy's `linear_sum_assignment` where many calls come in any order.


Pairs: TypeAlias = tuple[tuple[int, int], ...]

FEW = 6
"""Expected calls that are paired here. For more it is SciPy, whose import takes half a second."""

MAX_PARTIALLY_ORDERED = 16
"""Expected calls under a partial order: the states grow with their subsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What pairing costs, in whole numbers, so that sums are exact.

    `costs[i][j]` pairs expected `i` with actual `j`, None where they cannot be paired.
    `left_expected[i]` and `left_actual[j]` are the costs of leaving one unpaired.
    """

    costs: Sequence[Sequence[int | None]]
    left_expected: Sequence[int]
    left_actual: Sequence[int]


def assign(problem: Problem) -> Pairs:
    """Return the cheapest pairs, sorted; among equally cheap ones, the least crossed."""
    if _is_trivial(problem):
        return _cheaper_paired(problem)
    uncrossed = _uncrossed(problem)
    is_few = len(problem.costs) <= FEW
    return assign_ordered(uncrossed, ()) if is_few else _hungarian(uncrossed)


def assign_ordered(problem: Problem, before: Iterable[tuple[int, int]]) -> Pairs:
    """Return the cheapest pairs in which, for each (a, b) of `before`, a happens before b.

    The order is transitive, also through a call that stays unpaired.

    Raises:
        ScenarioError: `before` is a cycle, names a call that is not there, or binds only some of
            more than `MAX_PARTIALLY_ORDERED` calls.
    """
    blocked = _ancestors(len(problem.costs), frozenset(before))  # once i is taken, these are late
    best: dict[int, tuple[int, Pairs]] = {(1 << len(blocked)) - 1: (0, ())}
    for j, left in enumerate(problem.left_actual):
        following: dict[int, tuple[int, Pairs]] = {}
        for free, (cost, pairs) in best.items():
            _keep(following, free, cost + left, pairs)
            for i, row in enumerate(problem.costs):
                paired = row[j]
                if paired is not None and free >> i & 1:
                    rest = cost + paired - problem.left_expected[i]
                    _keep(following, free & ~blocked[i], rest, (*pairs, (i, j)))
        best = following
    return tuple(sorted(min(best.values(), key=lambda each: each[0])[1]))


def strictly_ordered(n: int) -> Pairs:
    """Return the order in which each of `n` comes before the next."""
    return tuple((i, i + 1) for i in range(n - 1))


def transitive(n: int, before: Iterable[tuple[int, int]]) -> Pairs:
    """Return every pair that an order of `n` calls implies.

    Raises:
        ScenarioError: as `assign_ordered`.
    """
    ancestors = _ancestors(n, frozenset(before))
    return tuple((a, b) for b in range(n) for a in range(n) if a != b and ancestors[b] >> a & 1)


def _keep(best: dict[int, tuple[int, Pairs]], free: int, cost: int, pairs: Pairs) -> None:
    if free not in best or cost < best[free][0]:
        best[free] = (cost, pairs)


def _ancestors(n: int, before: frozenset[tuple[int, int]]) -> list[int]:
    """Return, for each expected call, the bits of itself and of those that come before it."""
    ancestors = [1 << i for i in range(n)]
    for first, second in before:
        if not (0 <= first < n and 0 <= second < n):
            raise ScenarioError(
                f"order: ({first}, {second}) names a call that is not there: {n} stand here, "
                "counted from 0"
            )
    for _ in range(n):
        for first, second in before:
            ancestors[second] |= ancestors[first]
    if any(ancestors[first] >> second & 1 for first, second in before):
        raise ScenarioError("order: a call cannot come before itself (cycle): leave out a pair")
    is_total = all(ancestors[i].bit_count() + _followers(ancestors, i) == n for i in range(n))
    if n > MAX_PARTIALLY_ORDERED and before and not is_total:
        raise ScenarioError(
            f"order: {n} calls in a partial order are too many to check: split the turn"
        )
    return ancestors


def _followers(ancestors: Sequence[int], i: int) -> int:
    return sum(mask >> i & 1 for k, mask in enumerate(ancestors) if k != i)


def _is_trivial(problem: Problem) -> bool:
    """Return True if nobody has a choice of partner, so that no solver is needed."""
    taken = [sum(row[j] is not None for row in problem.costs) for j in _columns(problem)]
    offered = [sum(cost is not None for cost in row) for row in problem.costs]
    return max(taken, default=0) <= 1 and max(offered, default=0) <= 1


def _columns(problem: Problem) -> range:
    return range(len(problem.left_actual))


def _cheaper_paired(problem: Problem) -> Pairs:
    return tuple(
        (i, j)
        for i, row in enumerate(problem.costs)
        for j, cost in enumerate(row)
        if cost is not None and cost < problem.left_expected[i] + problem.left_actual[j]
    )


def _uncrossed(problem: Problem) -> Problem:
    """Return the problem with a small price on crossing pairs, for which costs are scaled up."""
    scale = (len(problem.costs) + len(problem.left_actual)) ** 2 + 1
    return replace(
        problem,
        costs=[
            [None if cost is None else scale * cost + abs(i - j) for j, cost in enumerate(row)]
            for i, row in enumerate(problem.costs)
        ],
        left_expected=[scale * cost for cost in problem.left_expected],
        left_actual=[scale * cost for cost in problem.left_actual],
    )


def load_solver() -> Any:
    """Import SciPy's solver and return it.

    It takes half a second: whoever measures time, and has more than `FEW` calls, calls this before.
    """
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment


def _hungarian(problem: Problem) -> Pairs:
    rows, columns = len(problem.costs), len(problem.left_actual)
    matrix = _square(problem)
    chosen_rows, chosen_columns = load_solver()(matrix)
    return tuple(
        (int(i), int(j))
        for i, j in zip(chosen_rows, chosen_columns, strict=True)
        if i < rows and j < columns
    )


def _square(problem: Problem) -> list[list[int]]:
    """Return the assignment matrix with a place for everyone who stays alone."""
    rows, columns = len(problem.costs), len(problem.left_actual)
    size = rows + columns
    everything = [*problem.left_expected, *problem.left_actual, 1]
    everything += [abs(cost) for row in problem.costs for cost in row if cost is not None]
    impossible = sum(everything) + 1
    matrix = [[impossible] * size for _ in range(rows)] + [
        [impossible] * columns + [0] * rows for _ in range(columns)
    ]
    for i, row in enumerate(problem.costs):
        matrix[i][columns + i] = problem.left_expected[i]
        for j, cost in enumerate(row):
            if cost is not None:
                matrix[i][j] = cost
    for j, left in enumerate(problem.left_actual):
        matrix[rows + j][j] = left
    return matrix


# Does a value fit a matcher? None if it does, otherwise the reason in words.


@dataclass(frozen=True, slots=True)
class Place:
    """Where a comparison stands: the schema there, and the scenario's day for `date`."""

    node: SchemaNode
    today: date | None = None

    def at(self, schema: Any) -> "Place":
        """Return another place of the same schema."""
        return Place(self.node.at(schema), self.today)


def mismatch(matcher: Matcher, actual: Any, place: Place) -> str | None:
    """Return why `actual` does not fit `matcher`, or None if it fits."""
    match matcher:
        case Fields():
            return _fields_mismatch(matcher, actual, place)
        case Items():
            return _items_mismatch(matcher, actual, place)
        case OneOf(options=options):
            fits = any(mismatch(option, actual, place) is None for option in options)
        case AnyValue():
            fits = True
        case Equals(value=value):
            fits = equal(value, actual, place.node)
        case Matches(pattern=pattern):
            fits = isinstance(actual, str) and pattern.is_in(actual)
        case Approx():
            fits = _is_close(matcher, actual)
        case DateIs():
            fits = actual == matcher.resolved(place.today)
        case Text():
            fits = isinstance(actual, str) and matcher.is_like(actual)
        case _:
            assert_never(matcher)
    return None if fits else f"expected {described(matcher, place.today)}, got {shown(actual)}"


def described(matcher: Matcher, today: date | None = None) -> str:
    """Return in a few words what a matcher accepts."""
    match matcher:
        case Equals(value=value):
            return shown(value)
        case OneOf(options=options):
            return "one of " + ", ".join(described(option, today) for option in options)
        case AnyValue():
            return "any value"
        case Matches(pattern=pattern):
            return f"a text matching /{pattern.text}/"
        case Approx(value=value):
            return f"about {value}"
        case DateIs():
            return f"{matcher.resolved(today)} ({matcher.expression})"
        case Text(text=text):
            return f"the text {shown(text)}"
        case Fields(fields=fields):
            return f"an object with {', '.join(fields)}"
        case Items(items=items):
            return f"an array of {len(items)}"
        case _:
            assert_never(matcher)


def _is_close(matcher: Approx, actual: Any) -> bool:
    if not is_number(actual):
        return False
    try:
        return math.isclose(actual, matcher.value, rel_tol=matcher.rel, abs_tol=matcher.abs)
    except OverflowError:  # an integer beyond the range of floats
        return False


def _fields_mismatch(matcher: Fields, actual: Any, place: Place) -> str | None:
    if not isinstance(actual, Mapping):
        return f"expected an object, got {shown(actual)}"
    faults: list[str | None] = [None]
    for branch in place.node.branches():
        reasons = fields_reasons(matcher.fields, actual, place.at(branch), extra=matcher.extra)
        faults = [f"{name}: {reason}" for name, reason in reasons.items() if reason is not None]
        if not faults:
            return None
    return faults[0]


def arguments_reasons(
    slots: Mapping[str, Slot],
    args: Mapping[str, Any],
    schema: Mapping[str, Any],
    *,
    extra: bool,
    today: date | None = None,
) -> dict[str, str | None]:
    """Return `fields_reasons` of a call's arguments, under the branch of the schema that fits best.

    Args:
        slots: the expected arguments.
        args: the arguments that were given.
        schema: JSON Schema of the tool's arguments; `{}` compares them untyped.
        extra: tolerate arguments that are not expected.
        today: the scenario's day.
    """
    top = Place(SchemaNode.of(schema), today)
    found = (
        fields_reasons(slots, args, top.at(branch), extra=extra) for branch in top.node.branches()
    )
    return min(found, key=lambda reasons: sum(each is not None for each in reasons.values()))


def fields_reasons(
    slots: Mapping[str, Slot], actual: Mapping[str, Any], place: Place, *, extra: bool
) -> dict[str, str | None]:
    """Return, for every field expected or given, why it is wrong; None where it is right.

    Names compare in NFC. Of two spellings of one name the expected one counts.

    Args:
        slots: the expected fields.
        actual: the object.
        place: its schema must be an object schema without references at the top.
        extra: tolerate fields that are not expected.
    """
    branch, root = place.node.schema, place.node.root
    reasons: dict[str, str | None] = {}
    taken: set[str] = set()
    for name, slot in slots.items():
        inner = place.at(property_of(branch, name))
        given = spelling(name, actual)
        taken.add(given)
        value = actual.get(given, ABSENT)
        reasons[name] = _slot_reason(slot, value, default_of(branch, name, root), inner)
    for name, value in actual.items():
        if name not in taken and not extra:
            inner = place.at(property_of(branch, name))
            reasons[name] = _surplus_reason(value, default_of(branch, name, root), inner)
    return reasons


def _slot_reason(slot: Slot, value: Any, default: Any, place: Place) -> str | None:
    if value is not ABSENT:
        return mismatch(slot.matcher, value, place)
    if slot.optional:
        return None
    if default is not ABSENT and mismatch(slot.matcher, default, place) is None:
        return None
    return f"missing: expected {described(slot.matcher, place.today)}"


def _surplus_reason(value: Any, default: Any, place: Place) -> str | None:
    if default is not ABSENT and equal(default, value, place.node):
        return None
    return f"surplus: nothing was expected, got {shown(value)}"


def _items_mismatch(matcher: Items, actual: Any, place: Place) -> str | None:
    if not isinstance(actual, list | tuple):
        return f"expected an array, got {shown(actual)}"
    faults = [_branch_mismatch(matcher, actual, place, branch) for branch in place.node.branches()]
    return None if None in faults else faults[0]


def _branch_mismatch(
    matcher: Items, actual: Sequence[Any], place: Place, branch: Mapping[str, Any]
) -> str | None:
    reasons = [
        [
            mismatch(slot.matcher, value, place.at(item_of(branch, j)))
            for j, value in enumerate(actual)
        ]
        for slot in matcher.items
    ]
    problem = Problem(
        costs=[[0 if reason is None else None for reason in row] for row in reasons],
        left_expected=[0 if slot.optional else 1 for slot in matcher.items],
        left_actual=[1] * len(actual),
    )
    order = () if matcher.unordered else strictly_ordered(len(matcher.items))
    pairs = assign_ordered(problem, order) if order else assign(problem)
    paired, used = {i for i, _ in pairs}, {j for _, j in pairs}
    for i, slot in enumerate(matcher.items):
        if i not in paired and not slot.optional:
            beside = reasons[i][i] if i < len(actual) else None
            return f"item {i}: {beside or 'not there'}"
    surplus = [j for j in range(len(actual)) if j not in used]
    return f"item {surplus[0]}: nothing was expected" if surplus else None


# Which calls were expected, which happened, and which argument is wrong.
#
# Pure: no model, no notebook, no server. Arguments are compared by typed equality (`equality`),
# calls are assigned optimally (`assignment`), and nothing missing or surplus goes unreported.


__all__ = [
    "ArgumentVerdict",
    "Expectation",
    "MadeCall",
    "MatchResult",
    "match_calls",
    "values_equal",
]

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
class Expectation:
    """A call that is expected, with the matchers of each set of arguments that is right."""

    tool: str
    alternatives: Sequence[Mapping[str, Slot]]
    optional: bool = False
    result: str | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "Expectation":
        """Return the expectation in plain data, as `match_calls` takes it.

        Raises:
            ScenarioError: it is malformed.
        """
        tool, args = raw.get("tool"), raw.get("args")
        args = {} if args is None else args
        if not isinstance(tool, str) or not isinstance(args, Mapping):
            raise ScenarioError("it needs a tool's name and a mapping of args")
        return cls(
            tool=tool,
            alternatives=parse_alternatives(args),
            optional=raw.get("optional") is True,
            result=raw.get("result"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCall:
    """A call that was made; `result` is what it came to, None where nobody knows.

    `is_deferred`: it was cancelled without asking and proposed again later in the turn. It is
    neither taken for an expectation nor unexpected: the later one is.
    """

    tool: str
    args: Any
    result: str | None = None
    is_deferred: bool = False

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "MadeCall":
        """Return the call in plain data, as `match_calls` takes it."""
        tool = raw.get("tool")
        return cls(
            tool=tool if isinstance(tool, str) else "",
            args=raw.get("args", {}),
            result=raw.get("result"),
        )


def match_calls(
    expected: Sequence[Expectation | Mapping[str, Any]],
    actual: Sequence[MadeCall | Mapping[str, Any]],
    *,
    schemas: Mapping[str, Mapping[str, Any]],
    order: Order = "any",
    extra: Extra = "none",
    reads: Collection[str] = (),
    today: date | None = None,
) -> MatchResult:
    """Compare the calls that were expected with those that were made.

    Args:
        expected: parsed expectations, or plain data: `{"tool": name, "args": {argument: matcher},
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
        each if isinstance(each, Expectation) else _expectation(index, each)
        for index, each in enumerate(expected)
    ]
    calls = [each if isinstance(each, MadeCall) else MadeCall.of(each) for each in actual]
    readers = frozenset(reads)
    tolerated = [
        extra == "any" or call.is_deferred or (extra == "reads" and call.tool in readers)
        for call in calls
    ]
    table = [[_reasons(wish, call, schemas, today) for call in calls] for wish in wishes]
    problem = _problem(wishes, tolerated, table)
    given = _before(order, len(wishes))
    before = transitive(len(wishes), given) if given else ()
    pairs = assign_ordered(problem, before) if before else assign(problem)
    verdict = _Verdict(wishes=wishes, calls=calls, tolerated=tolerated, table=table, before=before)
    result = verdict.of(pairs)
    return result if result.matched or not before else verdict.of(assign(problem))


def _expectation(index: int, raw: Mapping[str, Any]) -> Expectation:
    try:
        return Expectation.of(raw)
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
    wish: Expectation, call: MadeCall, schemas: Mapping[str, Mapping[str, Any]], today: date | None
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
    each = [
        _Reasons(arguments_reasons(slots, call.args, schema, extra=False, today=today), outcome, i)
        for i, slots in enumerate(wish.alternatives)
    ]
    return max(each, key=lambda reasons: (reasons.is_exact, reasons.share_right))


def _problem(
    wishes: Sequence[Expectation],
    tolerated: Sequence[bool],
    table: Sequence[Sequence[_Reasons | None]],
) -> Problem:
    left_expected = [0 if wish.optional else _ALONE for wish in wishes]
    left_actual = [0 if each else _ALONE for each in tolerated]
    costs = [
        [
            _cost(reasons, left_expected[i] + left_actual[j], is_optional=wishes[i].optional)
            for j, reasons in enumerate(row)
        ]
        for i, row in enumerate(table)
    ]
    return Problem(costs=costs, left_expected=left_expected, left_actual=left_actual)


def _cost(reasons: _Reasons | None, both_alone: int, *, is_optional: bool) -> int | None:
    """Return what a pair costs: an inexact one less than two alone, and never nothing.

    A wrong call is rather taken for a required expectation than for an optional one.
    """
    if reasons is None:
        return None
    if reasons.is_exact:
        return _EXACT
    if both_alone == 0:
        return None
    low, high = _SIMILAR
    return both_alone - low - int((high - low) * reasons.share_right) + is_optional


def _before(order: Order, n: int) -> Pairs:
    if order == "any":
        return ()
    if order == "strict":
        return strictly_ordered(n)
    try:
        return tuple((int(first), int(second)) for first, second in order)
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"order must be any, strict or index pairs, not {order!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """Turns an assignment into a `MatchResult`."""

    wishes: Sequence[Expectation]
    calls: Sequence[MadeCall]
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
        arguments = tuple(verdict for pair in pairs for verdict in self._arguments(*pair))
        disorder = tuple(
            (first, second)
            for first, second in self.before
            if first in paired and second in paired and paired[first] > paired[second]
        )
        outcomes = tuple(reason for pair in pairs for reason in self._outcome(*pair))
        reasons = (
            *(f"{self.wishes[i].tool} was expected and not called" for i in missing),
            *(self._surplus_reason(j) for j in surplus),
            *(f"{v.tool}.{v.name}: {v.reason}" for v in arguments if not v.ok),
            *outcomes,
            *(f"{self._named(i)} must come before {self._named(k)}" for i, k in disorder),
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

    def _arguments(self, i: int, j: int) -> Iterable[ArgumentVerdict]:
        reasons = self.table[i][j]
        if reasons is None:
            return
        for name, reason in reasons.arguments.items():
            yield ArgumentVerdict(
                expected=i,
                actual=j,
                tool=self.wishes[i].tool,
                name=name,
                ok=reason is None,
                reason=reason or "",
                alternative=reasons.alternative,
            )

    def _outcome(self, i: int, j: int) -> Iterable[str]:
        reasons = self.table[i][j]
        if reasons is not None and reasons.outcome is not None:
            yield f"{self.wishes[i].tool}: {reasons.outcome}"

    def _surplus_reason(self, j: int) -> str:
        call = self.calls[j]
        return f"{call.tool or 'a call without a name'} was not expected: {shown(call.args)}"

    def _named(self, i: int) -> str:
        return f"{self.wishes[i].tool} (call {i})"
