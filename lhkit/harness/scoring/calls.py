"""A turn's calls beside the expected ones, row by row, and how many the first parse gave. Pure.

Everything is derived from the assignment that `matching` found; nothing is matched again here.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from lhkit.harness.arguments import alternatives
from lhkit.harness.matching import ArgumentVerdict, MatchResult
from lhkit.harness.record import ArgumentScore, CallRecord, CallScore, TurnRecord
from lhkit.harness.scenario import ExpectedCall

_WHOLE = "(all)"  # `matching`'s name for arguments that are no object


def call_scores(
    wishes: Sequence[ExpectedCall], calls: Sequence[CallRecord], match: MatchResult
) -> tuple[CallScore, ...]:
    """Return one row per expected call, in their order, and one per call beside them."""
    verdicts = {
        index: tuple(group) for index, group in groupby(match.arguments, attrgetter("expected"))
    }
    paired = dict(match.pairs)
    rows = [
        _pair(i, wish, paired[i], calls[paired[i]], verdicts.get(i, ()))
        if i in paired
        else _not_made(i, wish)
        for i, wish in enumerate(wishes)
    ]
    rows += [
        _alone(j, calls[j], ok=j in match.allowed)
        for j in sorted((*match.unexpected, *match.allowed))
    ]
    return tuple(rows)


def repaired_calls(turn: TurnRecord) -> frozenset[int]:
    """Return the calls (from 0) that the first parse of the raw output did not give as they are.

    The calls of one model message settle in the order in which they were parsed.
    """
    taken: Counter[int] = Counter()
    mended: list[int] = []
    for c, call in enumerate(turn.calls):
        if call.model_call is None:
            continue
        nth = taken[call.model_call]
        taken[call.model_call] += 1
        said = turn.model_calls[call.model_call].response.calls[nth : nth + 1]
        if any(each.repairs for each in said):
            mended.append(c)
    return frozenset(mended)


def _pair(
    i: int, wish: ExpectedCall, j: int, call: CallRecord, verdicts: Sequence[ArgumentVerdict]
) -> CallScore:
    arguments = tuple(_arguments(wish, call, verdicts))
    fits = wish.result is None or wish.result == call.outcome
    return CallScore(
        expected=i,
        actual=j,
        tool=wish.tool,
        called=call.tool,
        optional=wish.optional,
        ok=fits and all(argument.ok for argument in arguments),
        arguments=arguments,
        reason="" if fits else f"expected the result {wish.result}, got {call.outcome}",
    )


def _arguments(
    wish: ExpectedCall, call: CallRecord, verdicts: Sequence[ArgumentVerdict]
) -> Iterator[ArgumentScore]:
    """Yield the verdicts with both sides; an optional argument that was left out says nothing."""
    given = call.raw_args if isinstance(call.raw_args, Mapping) else {_WHOLE: call.raw_args}
    sets = alternatives(wish.args)
    for verdict in verdicts:
        matcher = sets[verdict.alternative][1].get(verdict.name)
        is_optional = isinstance(matcher, Mapping) and matcher.get("optional") is True
        if verdict.ok and verdict.name not in given and is_optional:
            continue
        yield ArgumentScore(
            name=verdict.name,
            ok=verdict.ok,
            expected=matcher,
            actual=given.get(verdict.name),
            reason=verdict.reason,
        )


def _not_made(i: int, wish: ExpectedCall) -> CallScore:
    return CallScore(
        expected=i,
        tool=wish.tool,
        optional=wish.optional,
        ok=wish.optional,
        reason="" if wish.optional else "expected and not called",
    )


def _alone(j: int, call: CallRecord, *, ok: bool) -> CallScore:
    return CallScore(actual=j, called=call.tool, ok=ok, reason="" if ok else "not expected")
