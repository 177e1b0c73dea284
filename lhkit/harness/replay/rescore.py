"""Old evidence before today's scorers and today's expectations: no model, no server, no replay.

Only what is expected may have changed since. A conversation whose user turns, initial state,
language or answers to the gate are others today would be another conversation, so its record is
left out, with the reason.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from lhkit.harness.records.journal import RESCORED_FROM
from lhkit.harness.records.manifest import versions
from lhkit.harness.records.record import RowKeys, SampleId, SampleRecord, TurnRecord
from lhkit.harness.records.state_diff import state_diff
from lhkit.harness.replay.distractors import counted_tools
from lhkit.harness.replay.environment import (
    Environment,
    KnowsRules,
    Session,
    opened,
    row_keys_of,
    rules_broken,
    state_of,
)
from lhkit.harness.replay.plan import sha256
from lhkit.harness.results.run import Run
from lhkit.harness.scenarios.script import Scenario, Turn
from lhkit.harness.verdicts.scorers import ToolFacts, judge
from lhkit.tools.definition import ToolDefinition
from lhkit.vocab.trace import GateOutcome

_ANSWERS = {GateOutcome.ACCEPTED: True, GateOutcome.REJECTED: False}


def rescore(run: Run | Path | str, scenarios: Iterable[Scenario], environment: Environment) -> Run:
    """Return the run as it would be scored today; `skipped` says what could not be.

    Args:
        run: a run, or its folder; neither is changed.
        scenarios: what is expected today.
        environment: opens the initial states that records are held against.

    Raises:
        RunError: the folder holds no run, or a broken one.
        UsageError: a world of today's scenarios cannot be.
    """
    old = run if isinstance(run, Run) else Run.load(run)
    asked = {scenario.id: scenario for scenario in scenarios}
    records: list[SampleRecord] = []
    skipped: dict[SampleId, str] = {}
    for record in old.records:
        scenario = asked.get(record.sample_id.scenario)
        again = _again(record, scenario, environment, old.manifest)
        if isinstance(again, str):
            skipped[record.sample_id] = again
        else:
            records.append(again)
    expected = {record.sample_id.scenario: asked[record.sample_id.scenario] for record in records}
    return replace(
        old,
        records=tuple(records),
        kept=len(records),
        skipped=skipped,
        manifest=_manifest(old, expected),
    )


def _manifest(old: Run, expected: Mapping[str, Scenario]) -> dict[str, Any]:
    """Return the old manifest, with what the verdicts depend on now."""
    then: Mapping[str, str] = old.manifest.get("scenarios", {})
    now = {name: sha256(asdict(scenario)) for name, scenario in expected.items()}
    return {
        **old.manifest,
        "scenarios": {**then, **now},
        RESCORED_FROM: old.name,
        "rescored_with": versions(),
    }


def _again(
    record: SampleRecord,
    scenario: Scenario | None,
    environment: Environment,
    manifest: Mapping[str, Any],
) -> SampleRecord | str:
    """Return the record with today's judgement, or why it is of another conversation."""
    if scenario is None:
        return "there is no such scenario today"
    if record.locale != scenario.locale:
        return f"the language was {record.locale} and is {scenario.locale} today"
    with opened(environment, scenario.world, scenario.locale) as session:
        state = state_of(session)
        if record.turns and state_diff(record.initial_state, state):
            return "the initial state is another one today"
        reason = next(_other_turns(scenario.turns, record), None)
        keys = row_keys_of(session, state)
        return reason or _judged(record, scenario, session, manifest, keys)


def _judged(
    record: SampleRecord,
    scenario: Scenario,
    session: Session,
    manifest: Mapping[str, Any],
    row_keys: RowKeys,
) -> SampleRecord:
    evidence = record.evidence
    if isinstance(session, KnowsRules):
        rules = rules_broken(session, evidence.initial_state, evidence.final_state)
        evidence = replace(evidence, broken_rules=rules)
    tools = _tools(scenario.locale, session, manifest)
    judgement = judge(scenario, evidence, tools, today=session.today, row_keys=row_keys)
    return replace(
        record,
        verdict=judgement.verdict,
        reasons=judgement.reasons,
        violations=judgement.violations,
        scores=judgement.scores,
        state_equal=judgement.state_equal,
        broken_rules=evidence.broken_rules,
        ac=scenario.ac,
        tags=scenario.tags,
    )


def _tools(locale: str, session: Session, manifest: Mapping[str, Any]) -> ToolFacts:
    """Return the tools of today, with the schemas they had then, and what they implied then.

    A manifest from before anything could be implied says nothing of it: today's word counts.
    """
    told = manifest.get("locales", {}).get(locale, {}).get("tools", ())
    then = {spec["name"]: spec for spec in told}
    tools = [_as_then(tool, then.get(tool.name, {})) for tool in counted_tools(session.registry)]
    return ToolFacts(
        schemas={tool.name: tool.schema_on(session.today) for tool in tools},
        destructive=session.registry.destructive,
    )


def _as_then(tool: ToolDefinition, spec: Mapping[str, Any]) -> ToolDefinition:
    return replace(
        tool,
        parameters=spec.get("parameters", tool.parameters),
        implied=spec.get("implied", tool.implied),
    )


def _other_turns(turns: Sequence[Turn], record: SampleRecord) -> Iterator[str]:
    """Yield what the user does otherwise today. A record that broke off has fewer turns."""
    said = [turn.user for turn in record.turns]
    if said != [turn.user for turn in turns[: len(said)]]:
        yield "the user's words are others today"
    if not record.turns[-1:] or len(said) == len(turns):
        pass
    elif record.turns[-1].cause is None and record.fault is None:
        yield f"{len(said)} turns were played and there are {len(turns)} today"
    for number, (turn, played) in enumerate(zip(turns, record.turns, strict=False)):
        if not _is_answered(turn, played):
            yield f"turn {number}: the gate is answered otherwise today"


def _is_answered(turn: Turn, played: TurnRecord) -> bool:
    """Return whether today's script would give the gate the answers that were given."""
    outcomes = [call.gate for call in played.calls]
    if turn.confirm == "absent":
        return not any(outcome in _ANSWERS for outcome in outcomes)
    given = [_ANSWERS[outcome] for outcome in outcomes if outcome in _ANSWERS]
    return GateOutcome.ABSENT not in outcomes and given == _script(turn.confirm, len(given))


def _script(confirm: str | Sequence[str], n: int) -> list[bool]:
    """Return the first n answers of a script."""
    if isinstance(confirm, str):
        return [confirm == "accept"] * n
    answers = chain((answer == "accept" for answer in confirm), repeat(False))
    return [next(answers) for _ in range(n)]
