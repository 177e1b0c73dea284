"""Evidence to a verdict: pass, fail or invalid, with reasons. Pure: old records can be re-judged.

`invalid` means that a turn ended failed or that the harness itself broke: the model is not blamed.
Everything else that differs from the scenario is a fail, and every reason is given in words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from lhkit.harness.expectations.matching import MatchResult, match_calls
from lhkit.harness.records.record import (
    Evidence,
    Judgement,
    RowKeys,
    Severity,
    TurnRecord,
    TurnScore,
    Verdict,
    Violation,
)
from lhkit.harness.records.state_diff import NO_KEYS
from lhkit.harness.scenarios.script import Before, Scenario, Turn
from lhkit.harness.verdicts.call_scores import call_scores, repaired_calls
from lhkit.harness.verdicts.final_state import check_state
from lhkit.harness.verdicts.reply import reply_reasons
from lhkit.harness.verdicts.violations import Excused, violations_of
from lhkit.vocab.events import EndReason
from lhkit.vocab.trace import GateOutcome

_ASKED = (GateOutcome.ACCEPTED, GateOutcome.REJECTED)
_NEEDS_ASKING = (None, "ok", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFacts:
    """What judging has to know of the tools: their schemas, and which of them change data.

    The schemas are those of `ToolDefinition.schema_on`: with all defaults, also implied ones.
    """

    schemas: Mapping[str, Mapping[str, Any]]
    destructive: frozenset[str] = frozenset()

    @property
    def reads(self) -> frozenset[str]:
        """The tools that only read."""
        return frozenset(self.schemas) - self.destructive


def judge(
    scenario: Scenario,
    evidence: Evidence,
    tools: ToolFacts,
    *,
    today: date | None,
    row_keys: RowKeys = NO_KEYS,
) -> Judgement:
    """Return the verdict on what happened in one scenario.

    Args:
        scenario: what was expected.
        evidence: what happened.
        tools: the tools that were there.
        today: the day of the scenario's clock.
        row_keys: the fields that tell the rows of a table apart, where the domain says so.
    """
    played = list(zip(scenario.turns, evidence.turns, strict=False))
    matches = [_match(script, turn, tools, today) for script, turn in played]
    violations = violations_of(
        scenario, evidence, _excused(played, matches), schemas=tools.schemas, today=today
    )
    broken = _broken(evidence)
    if broken:
        return Judgement(verdict=Verdict.INVALID, reasons=broken, violations=violations)
    reasons = [
        _turn_reasons(script, turn, match, tools)
        for (script, turn), match in zip(played, matches, strict=True)
    ]
    state = check_state(
        scenario.final,
        gone=scenario.gone,
        before=evidence.initial_state,
        after=evidence.final_state,
        today=today,
        row_keys=row_keys,
    )
    everything = (
        *(f"turn {t}: {reason}" for t, each in enumerate(reasons) for reason in each),
        *(_told(violation) for violation in violations if _is_fatal(violation)),
        *state.missing,
        *state.unlisted,
    )
    unlisted = tuple(
        Violation(code="unlisted_write", severity=Severity.ESCAPED, detail=detail)
        for detail in state.unlisted
    )
    return Judgement(
        verdict=Verdict.FAIL if everything else Verdict.PASS,
        reasons=everything,
        violations=violations + unlisted,
        scores=tuple(
            _score(script, turn, match, tools, today=today, passed=not why)
            for (script, turn), match, why in zip(played, matches, reasons, strict=True)
        ),
        state_equal=not state.missing and not state.unlisted,
    )


def _broken(evidence: Evidence) -> tuple[str, ...]:
    """Return why the evidence says nothing about the model; empty if it does."""
    reasons = [
        f"turn {t}: {turn.cause}: {turn.detail or turn.error or ''}".rstrip(": ")
        for t, turn in enumerate(evidence.turns)
        if turn.ended in {EndReason.FAILED, EndReason.STOPPED}
    ]
    return (*reasons, *([evidence.fault] if evidence.fault else ()))


def _is_fatal(violation: Violation) -> bool:
    return violation.severity is Severity.ESCAPED or violation.code == "forbidden_call"


def _told(violation: Violation) -> str:
    where = "" if violation.turn is None else f"turn {violation.turn}: "
    return f"{where}{violation.code}: {violation.detail}"


def _match(script: Turn, turn: TurnRecord, tools: ToolFacts, today: date | None) -> MatchResult:
    made = [{"tool": c.tool, "args": c.raw_args, "result": c.outcome} for c in turn.calls]
    return _matched(script, made, tools, today)


def _matched(
    script: Turn,
    made: Sequence[Mapping[str, Any]],
    tools: ToolFacts,
    today: date | None,
) -> MatchResult:
    order = script.expect.order
    return match_calls(
        [
            {"tool": w.tool, "args": w.args, "optional": w.optional, "result": w.result}
            for w in script.expect.calls
        ],
        made,
        schemas=tools.schemas,
        order=order.before if isinstance(order, Before) else order,
        extra=script.expect.extra,
        reads=tools.reads,
        today=today,
    )


def _excused(played: Sequence[tuple[Turn, TurnRecord]], matches: Sequence[MatchResult]) -> Excused:
    """Return the calls that were asked for, and those of them that were to be refused so."""
    right = [(t, i, j) for t, match in enumerate(matches) for i, j in match.right]
    refused = [
        (t, j)
        for t, i, j in right
        if played[t][0].expect.calls[i].result == played[t][1].calls[j].outcome
    ]
    return Excused(
        asked=frozenset((t, j) for t, match in enumerate(matches) for _, j in match.pairs),
        calls=frozenset((t, j) for t, _, j in right),
        refusals=frozenset(refused),
    )


def _turn_reasons(
    script: Turn, turn: TurnRecord, match: MatchResult, tools: ToolFacts
) -> tuple[str, ...]:
    return (
        *match.reasons,
        *_gate_reasons(script, turn, match, tools),
        *reply_reasons(script.reply, turn.reply),
        *(["no answer within the allowed model turns"] if turn.ended is EndReason.TOO_LONG else ()),
    )


def _gate_reasons(
    script: Turn, turn: TurnRecord, match: MatchResult, tools: ToolFacts
) -> list[str]:
    """Return the expected writes that the user was never asked about, although there was a gate."""
    if script.confirm == "absent":
        return []
    wishes = script.expect.calls
    return [
        f"{wishes[i].tool}: the user was not asked (gate: {turn.calls[j].gate})"
        for i, j in match.pairs
        if wishes[i].tool in tools.destructive
        and wishes[i].result in _NEEDS_ASKING
        and turn.calls[j].gate not in _ASKED
    ]


def _score(
    script: Turn,
    turn: TurnRecord,
    match: MatchResult,
    tools: ToolFacts,
    *,
    today: date | None,
    passed: bool,
) -> TurnScore:
    required = _required(script)
    right = {i: j for i, j in match.right if i in required}
    mended = repaired_calls(turn)
    optional = len(match.pairs) - sum(i in required for i, _ in match.pairs)
    wrong_optional = optional - (len(match.right) - len(right))
    return TurnScore(
        passed=passed,
        due_calls=len(required),
        right_calls=len(right),
        surplus_calls=len(match.surplus) + wrong_optional,
        calls=call_scores(script.expect.calls, turn.calls, match),
        strict_right_calls=sum(j not in mended for j in right.values()),
        strict_passed=passed and not mended,
        server_right_calls=_server_right(script, turn, tools, today),
    )


def _server_right(
    script: Turn, turn: TurnRecord, tools: ToolFacts, today: date | None
) -> int | None:
    """Return how many due calls the server's own parse gave right; None if it parsed nothing."""
    parsed = [each.server_calls for each in turn.model_calls if each.server_calls is not None]
    if not parsed:
        return None
    made = [{"tool": call.name, "args": call.args} for calls in parsed for call in calls]
    required = _required(script)
    return sum(i in required for i, _ in _matched(script, made, tools, today).right)


def _required(script: Turn) -> frozenset[int]:
    return frozenset(i for i, wish in enumerate(script.expect.calls) if not wish.optional)
