"""Rescoring: recorded transcripts, scored with today's scorers and expectations.

Only expectations may have changed. If the user turns, the initial state, the locale or the answers
to the gate differ today, the record is skipped with the reason.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from lhkit.base.errors import RunError, UsageError
from lhkit.confirm.decision import Edit, QuestionOutcome, Reject, changed_arguments
from lhkit.conversation.messages import GateOutcome
from lhkit.harness.records.manifest import Manifest, Prompt, versions
from lhkit.harness.records.record import (
    CallRecord,
    RowKeys,
    SampleRecord,
    SampleScore,
    Trajectory,
    TurnRecord,
    encode_record,
)
from lhkit.harness.records.store import RECORDS
from lhkit.harness.records.tool_specs import stored_tool
from lhkit.harness.results.results import Run
from lhkit.harness.running.fingerprint import scenario_hash
from lhkit.harness.running.plan import used_criteria
from lhkit.harness.running.sample import state_sha256
from lhkit.harness.running.sessions import find_broken_rules, read_row_keys
from lhkit.harness.running.simulated_users import answers_of
from lhkit.harness.running.tool_injection import real_tools
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario import Answer, Scenario, Turn, decide
from lhkit.harness.scenarios.values import limited_searches
from lhkit.harness.scoring.state import InvalidDiffError, state_diff, with_diff
from lhkit.harness.scoring.verdict import ToolMetadata, judge
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


def rescore(
    run: Run | Path | str, scenarios: Iterable[Scenario], toolset: ToolsetSource = DEFAULT
) -> Run:
    """Score the records of a run again, with today's scenarios and scorers.

    The scores of the user (see `score`) are not carried over, nor are the verdicts of their checks:
    `add_scores` computes them for the new records.

    Args:
        run: a run, or its folder; neither is changed.
        scenarios: the scenarios with today's expectations.
        toolset: a toolset, or its reference; it opens the initial states.

    Returns:
        The rescored run; its `skipped` has the samples that could not be rescored, with the reason.

    Raises:
        RunError: the folder has no run, or an invalid one.
        UsageError: the initial state of a scenario is invalid.
    """
    old = run if isinstance(run, Run) else Run.load(run)
    toolset = load_toolset(toolset)
    manifest = old.manifest
    by_name = {
        wording.name: wording.with_user(manifest.simulated_user)
        for scenario in scenarios
        for wording in scenario.wordings()
    }
    records: list[SampleRecord] = []
    skipped: dict[SampleId, str] = {}
    for record in (each.unchecked for each in old.records):
        scenario = by_name.get(record.sample_id.name)
        try:
            rescored = _rescore_record(record, scenario, toolset, manifest)
        except InvalidDiffError as error:
            raise RunError(
                f"{_place(old, record)} is not a valid record ({error}). Remove the line or give "
                "the run another name."
            ) from error
        if isinstance(rescored, str):
            skipped[record.sample_id] = rescored
        else:
            records.append(rescored)
    names = dict.fromkeys(record.sample_id.name for record in records)
    changed: dict[str, Any] = {
        "scenarios": {
            **manifest.scenarios,
            **{name: scenario_hash(by_name[name]) for name in names},
        },
        "rescored_from": old.name,
        "rescored_with": versions(),
        "scores": {},  # they were of other records
    }
    criteria = used_criteria(toolset, [by_name[name] for name in names])
    if criteria or manifest.criteria:
        changed["criteria"] = criteria
    return replace(
        old,
        records=tuple(records),
        folder=None,
        kept=len(records),
        skipped=skipped,
        score_records=(),
        manifest=manifest.model_copy(update=changed),
    )


def _place(run: Run, record: SampleRecord) -> str:
    """Return file and line of a record, or its sample."""
    lines: list[bytes] = []
    if run.folder is not None and (run.folder / RECORDS).is_file():
        lines = (run.folder / RECORDS).read_bytes().splitlines()
    same = (n for n, line in enumerate(lines, 1) if line == encode_record(record).encode())
    number = next(same, None)
    return (
        f"{run.folder}: {record.sample_id}"
        if number is None
        else (f"{run.folder}/{RECORDS}:{number} ({record.sample_id})")
    )


def _rescore_record(
    record: SampleRecord,
    scenario: Scenario | None,
    toolset: Toolset,
    manifest: Manifest,
) -> SampleRecord | str:
    """Return the rescored record, or why its conversation differs from the scenario."""
    if scenario is None:
        return "the scenario does not exist today"
    if record.locale != scenario.locale:
        return f"the locale was {record.locale} and is {scenario.locale} today"
    with opened(toolset, scenario.world, scenario.locale) as session:
        state = read_state(session)
        trajectory = record.trajectory
        if trajectory.turns and (
            trajectory.initial_sha256 != state_sha256(state)
            if trajectory.initial_sha256
            else state_diff(trajectory.initial_state, state)
        ):
            return "the initial state differs today"
        row_keys = read_row_keys(session, state)
        if reason := next(_turn_differences(scenario.turns, record, session.today), None):
            return reason
        if trajectory.initial_sha256:
            final_state = with_diff(state, record.state_diff)
            trajectory = replace(trajectory, initial_state=state, final_state=final_state)
        return _score(record, trajectory, scenario, session, manifest=manifest, row_keys=row_keys)


def _score(
    record: SampleRecord,
    trajectory: Trajectory,
    scenario: Scenario,
    session: Session,
    *,
    manifest: Manifest,
    row_keys: RowKeys,
) -> SampleRecord:
    """Return the record with today's score of its trajectory, which includes the states."""
    error_text = None
    if hasattr(session, "broken_rules"):
        try:
            rules = find_broken_rules(
                session, trajectory.initial_state, trajectory.final_state, trajectory.calls
            )
        except UsageError as error:  # as in a run: the rest of the score is known
            rules, error_text = (), str(error)
        trajectory = replace(trajectory, broken_rules=rules)
    prompt = manifest.locales.get(scenario.locale, Prompt())
    specs = {spec["name"]: spec for spec in prompt.tools}
    tools = [
        replace(
            tool,
            parameters=spec["parameters"],
            implied=spec.get("implied", {}),
            claims=spec.get("claims", {}),
        )
        if (spec := specs.get(tool.name))
        else tool
        for tool in real_tools(session.registry)
    ]
    metadata = ToolMetadata.of([*tools, *recorded_new_tools(trajectory)], session.today)

    def judged(error_text: str | None) -> SampleScore:
        found = replace(trajectory, error=error_text)
        with limited_searches(time.thread_time):
            return judge(scenario, found, metadata, today=session.today, row_keys=row_keys)

    try:
        score = judged(trajectory.error or error_text)
    except UsageError as error:  # a pattern that takes too long
        score = judged(str(error))
    stored = replace(record.trajectory, broken_rules=trajectory.broken_rules)
    return replace(record, score=score, trajectory=stored, ac=scenario.ac, tags=scenario.tags)


def recorded_new_tools(trajectory: Trajectory) -> tuple[ToolDefinition, ...]:
    """Return the tools that were registered during the conversation; they cannot be called."""
    return tuple(stored_tool(spec) for turn in trajectory.turns for spec in turn.new_tools)


def _turn_differences(
    turns: Sequence[Turn], record: SampleRecord, today: date | None
) -> Iterator[str]:
    """Yield the differences of user turns; a record of a failed conversation may have fewer."""
    recorded = record.trajectory.turns
    if [turn.user for turn in recorded] != [turn.user for turn in turns[: len(recorded)]]:
        yield "the user's messages differ today"
    is_complete = recorded and recorded[-1].cause is None and record.trajectory.error is None
    if is_complete and len(recorded) != len(turns):
        yield f"the record has {len(recorded)} turns, the scenario {len(turns)} today"
    for number, (turn, turn_record) in enumerate(zip(turns, recorded, strict=False)):
        if not _has_same_answers(turn, turn_record, today):
            yield f"turn {number}: the gate is answered differently today"
        if turn.checks_state and turn_record.state_diff is None:
            yield f"turn {number}: its state changes were not recorded; run the scenario again"


def _has_same_answers(turn: Turn, record: TurnRecord, today: date | None) -> bool:
    """Return whether today's script would give the gate the recorded answers."""
    outcomes = [call.gate for call in record.calls]
    decided = [call for call in record.calls if call.gate.is_decided]
    answered = [call for call in decided if call.gate.is_answer]
    if turn.confirm == "absent":
        return not answered
    if GateOutcome.ABSENT in outcomes:
        return False
    if turn.confirm == "careful":  # the expectation may have changed, and with it the answer
        return True
    script = answers_of(turn)
    # a call that ran by a policy takes the answer to its question, which was not asked
    answers = [(next(script), call) for call in decided]
    return all(_is_answer(answer, call, today) for answer, call in answers if call in answered)


def _is_answer(answer: Answer, call: CallRecord, today: date | None) -> bool:
    """Return whether an answer leads to the recorded decision."""
    args = call.args or {}
    decision = decide(answer, args, today)
    if call.answer == QuestionOutcome.INVALID_EDIT:
        return isinstance(decision, Edit)
    if isinstance(decision, Reject):
        return call.gate is GateOutcome.REJECTED and call.reason == decision.reason
    after = decision.arguments if isinstance(decision, Edit) else args
    run = args if call.run_args is None else call.run_args
    return call.gate is GateOutcome.ACCEPTED and not changed_arguments(run, after)
