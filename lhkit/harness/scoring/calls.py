"""Scores of a turn's calls, one row each, derived from their match. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from lhkit.harness.arguments import alternatives
from lhkit.harness.matching import ArgumentVerdict, MatchResult
from lhkit.harness.record import ArgumentScore, CallRecord, CallScore, TurnRecord
from lhkit.harness.scenario import ExpectedCall

_WHOLE = "(all)"  # `matching`'s name of arguments that are not an object


def call_scores(
    expected: Sequence[ExpectedCall], calls: Sequence[CallRecord], match: MatchResult
) -> tuple[CallScore, ...]:
    """Return a row for each expected call and each unpaired actual call."""
    verdicts = {
        index: tuple(group) for index, group in groupby(match.arguments, attrgetter("expected"))
    }
    paired = dict(match.pairs)
    rows = [
        _paired_row(i, call, paired[i], calls[paired[i]], verdicts.get(i, ()))
        if i in paired
        else CallScore(
            expected=i,
            tool=call.tool,
            optional=call.optional,
            ok=call.optional,
            reason="" if call.optional else "expected and not called",
        )
        for i, call in enumerate(expected)
    ]
    for j in sorted((*match.unexpected, *match.allowed)):
        ok = j in match.allowed
        reason = "" if ok else "not expected"
        rows.append(CallScore(actual=j, called=calls[j].tool, ok=ok, reason=reason))
    return tuple(rows)


def repaired_calls(turn: TurnRecord) -> frozenset[int]:
    """Return the indices of the calls that were repaired in parsing.

    The calls of one model message complete in the order in which they were parsed.
    """
    taken: Counter[int] = Counter()
    repaired: list[int] = []
    for c, call in enumerate(turn.calls):
        if call.model_call is None:
            continue
        nth = taken[call.model_call]
        taken[call.model_call] += 1
        parsed = turn.model_calls[call.model_call].response.calls[nth : nth + 1]
        if any(tool_call.repairs for tool_call in parsed):
            repaired.append(c)
    return frozenset(repaired)


def _paired_row(
    i: int, expected: ExpectedCall, j: int, call: CallRecord, verdicts: Sequence[ArgumentVerdict]
) -> CallScore:
    arguments = tuple(_argument_scores(expected, call, verdicts))
    fits = expected.result is None or expected.result == call.outcome
    return CallScore(
        expected=i,
        actual=j,
        tool=expected.tool,
        called=call.tool,
        optional=expected.optional,
        ok=fits and all(argument.ok for argument in arguments),
        arguments=arguments,
        reason="" if fits else f"expected the result {expected.result}, got {call.outcome}",
    )


def _argument_scores(
    expected: ExpectedCall, call: CallRecord, verdicts: Sequence[ArgumentVerdict]
) -> Iterator[ArgumentScore]:
    """Yield the verdicts with both values, without left-out optional arguments."""
    actual = call.raw_args if isinstance(call.raw_args, Mapping) else {_WHOLE: call.raw_args}
    sets = alternatives(expected.args)
    for verdict in verdicts:
        matcher = sets[verdict.alternative][1].get(verdict.name)
        is_optional = isinstance(matcher, Mapping) and matcher.get("optional") is True
        if verdict.ok and verdict.name not in actual and is_optional:
            continue
        yield ArgumentScore(
            name=verdict.name,
            ok=verdict.ok,
            expected=matcher,
            actual=actual.get(verdict.name),
            reason=verdict.reason,
        )
