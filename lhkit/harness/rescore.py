"""Old records before today's scorers and today's expectations: no model, no server, no replay.

Only what is expected may have changed since. A conversation whose user turns, initial state,
language or answers to the gate are others today would be another conversation, so its record is
left out, with the reason.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any, cast

from lhkit.errors import UsageError
from lhkit.harness.distractors import counted_tools
from lhkit.harness.fingerprint import scenario_hash
from lhkit.harness.manifest import Manifest, Prompt, versions
from lhkit.harness.record import (
    Evidence,
    Judgement,
    RowKeys,
    SampleId,
    SampleRecord,
    State,
    TurnRecord,
    Verdict,
)
from lhkit.harness.results import Run
from lhkit.harness.sample import state_sha256
from lhkit.harness.scenario import Scenario, User
from lhkit.harness.scoring.verdict import ToolMetadata, judge
from lhkit.harness.sessions import row_keys_of, rules_broken
from lhkit.harness.state_diff import state_diff, with_diff
from lhkit.harness.turn import Turn
from lhkit.messages import GateOutcome
from lhkit.tool_results import ToolErr
from lhkit.tools.definition import ToolDefinition
from lhkit.toolset import (
    DEFAULT,
    Session,
    Toolset,
    ToolsetSource,
    load_toolset,
    opened,
    read_state,
)

_ANSWERS = {GateOutcome.ACCEPTED: True, GateOutcome.REJECTED: False}


def rescore(
    run: Run | Path | str, scenarios: Iterable[Scenario], toolset: ToolsetSource = DEFAULT
) -> Run:
    """Return the run as it would be scored today; `skipped` says what could not be.

    Args:
        run: a run, or its folder; neither is changed.
        scenarios: what is expected today.
        toolset: opens the initial states that records are held against, or its reference.

    Raises:
        RunError: the folder holds no run, or a broken one.
        UsageError: a world of today's scenarios cannot be.
    """
    old = run if isinstance(run, Run) else Run.load(run)
    own = load_toolset(toolset)
    manifest = Manifest.of(old.manifest)
    user = cast(User, manifest.user or "script")
    asked = {scenario.id: scenario.played_by(user) for scenario in scenarios}
    records: list[SampleRecord] = []
    skipped: dict[SampleId, str] = {}
    for record in old.records:
        scenario = asked.get(record.sample_id.scenario)
        again = _again(record, scenario, own, manifest)
        if isinstance(again, str):
            skipped[record.sample_id] = again
        else:
            records.append(again)
    names = dict.fromkeys(record.sample_id.scenario for record in records)
    changed = {
        "scenarios": {**manifest.scenarios, **{each: scenario_hash(asked[each]) for each in names}},
        "rescored_from": old.name,
        "rescored_with": versions(),
    }
    return replace(
        old,
        records=tuple(records),
        folder=None,
        kept=len(records),
        skipped=skipped,
        manifest=manifest.model_copy(update=changed).plain(),
    )


def _again(
    record: SampleRecord,
    scenario: Scenario | None,
    toolset: Toolset,
    manifest: Manifest,
) -> SampleRecord | str:
    """Return the record with today's judgement, or why it is of another conversation."""
    if scenario is None:
        return "there is no such scenario today"
    if record.locale != scenario.locale:
        return f"the language was {record.locale} and is {scenario.locale} today"
    with opened(toolset, scenario.world, scenario.locale) as session:
        state = read_state(session)
        if record.evidence.turns and _is_other_start(record.evidence, state):
            return "the initial state is another one today"
        reason = next(_other_turns(scenario.turns, record), None)
        keys = row_keys_of(session, state)
        if record.evidence.initial_sha256:
            after = with_diff(state, record.state_diff)
            whole = replace(record.evidence, initial_state=state, final_state=after)
        else:
            whole = record.evidence
        return reason or _judged(record, whole, scenario, session, manifest=manifest, row_keys=keys)


def _is_other_start(evidence: Evidence, state: State) -> bool:
    """Return whether a conversation began in another state than `state`."""
    if evidence.initial_sha256:
        return evidence.initial_sha256 != state_sha256(state)
    return bool(state_diff(evidence.initial_state, state))


def _judged(
    record: SampleRecord,
    evidence: Evidence,
    scenario: Scenario,
    session: Session,
    *,
    manifest: Manifest,
    row_keys: RowKeys,
) -> SampleRecord:
    if hasattr(session, "broken_rules"):
        rules = rules_broken(session, evidence.initial_state, evidence.final_state)
        evidence = replace(evidence, broken_rules=rules)
    tools = _tools(scenario.locale, session, manifest, evidence)
    try:
        judgement = judge(scenario, evidence, tools, today=session.today, row_keys=row_keys)
    except UsageError as error:  # a pattern that takes too long
        judgement = Judgement(verdict=Verdict.INVALID, reasons=(str(error),))
    kept = replace(record.evidence, broken_rules=evidence.broken_rules)
    return replace(record, judgement=judgement, evidence=kept, ac=scenario.ac, tags=scenario.tags)


def _tools(locale: str, session: Session, manifest: Manifest, evidence: Evidence) -> ToolMetadata:
    """Return the tools of today, with schemas, what they implied and their claims as then.

    Those that came in the conversation are as they were.
    """
    prompt = manifest.locales.get(locale, Prompt())
    then = {spec["name"]: spec for spec in prompt.tools}
    tools = [
        _as_then(tool, then[tool.name]) if tool.name in then else tool
        for tool in counted_tools(session.registry)
    ]
    return ToolMetadata.of([*tools, *tools_that_came(evidence)], session.today)


def tools_that_came(evidence: Evidence) -> tuple[ToolDefinition, ...]:
    """Return the tools that came in mid-conversation, as its record tells of them."""
    return tuple(_that_came(spec) for turn in evidence.turns for spec in turn.new_tools)


def _that_came(spec: Mapping[str, Any]) -> ToolDefinition:
    """Return a tool that a record tells of, for judging: nobody calls it any more."""
    tool = ToolDefinition(
        name=spec["name"],
        description=spec["description"],
        parameters=spec["parameters"],
        handler=lambda _args, _deps: ToolErr("not_found", "a tool of a record"),
        is_destructive=spec["destructive"],
    )
    return _as_then(tool, spec)


def _as_then(tool: ToolDefinition, spec: Mapping[str, Any]) -> ToolDefinition:
    return replace(
        tool,
        parameters=spec["parameters"],
        implied=spec.get("implied", {}),
        claims=spec.get("claims", {}),
    )


def _other_turns(turns: Sequence[Turn], record: SampleRecord) -> Iterator[str]:
    """Yield what the user does otherwise today. A record that broke off has fewer turns."""
    said = [turn.user for turn in record.evidence.turns]
    if said != [turn.user for turn in turns[: len(said)]]:
        yield "the user's words are others today"
    if not record.evidence.turns[-1:] or len(said) == len(turns):
        pass
    elif record.evidence.turns[-1].cause is None and record.evidence.fault is None:
        yield f"{len(said)} turns were played and there are {len(turns)} today"
    for number, (turn, played) in enumerate(zip(turns, record.evidence.turns, strict=False)):
        if not _is_answered(turn, played):
            yield f"turn {number}: the gate is answered otherwise today"
        if turn.checks_state and played.state_diff is None:
            yield f"turn {number}: what it did to the state was not recorded: play it again"


def _is_answered(turn: Turn, played: TurnRecord) -> bool:
    """Return whether today's script would give the gate the answers that were given."""
    outcomes = [call.gate for call in played.calls]
    if turn.confirm == "absent":
        return not any(outcome in _ANSWERS for outcome in outcomes)
    if turn.confirm == "careful":  # what was expected then may be another call than today
        return GateOutcome.ABSENT not in outcomes
    given = [_ANSWERS[outcome] for outcome in outcomes if outcome in _ANSWERS]
    return GateOutcome.ABSENT not in outcomes and given == _script(turn.confirm, len(given))


def _script(confirm: str | Sequence[str], n: int) -> list[bool]:
    """Return the first n answers of a script."""
    if isinstance(confirm, str):
        return [confirm == "accept"] * n
    answers = chain((answer == "accept" for answer in confirm), repeat(False))
    return [next(answers) for _ in range(n)]
