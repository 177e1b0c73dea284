"""Scenarios proposed for a turn of a recorded chat: their documents, final state and lint.

The turns before it are its context: they expect the writes that ran, with the arguments that the
user approved. Reads are always allowed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.files import open_regular, write_atomically
from lhkit.base.json_values import in_words_of, plain_json, without_pointers
from lhkit.base.redaction import masked
from lhkit.conversation.messages import GateOutcome
from lhkit.harness.authoring.checks import LEVELS, Level, Remark
from lhkit.harness.authoring.lint import scenario_remarks
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.authoring.scenario_yaml import (
    detect_locale,
    expected_changes,
    literals,
    yaml_text,
)
from lhkit.harness.records.record import CallRecord, SampleRecord, TurnRecord
from lhkit.harness.running.sample import run_sample
from lhkit.harness.running.sessions import read_row_keys
from lhkit.harness.scenarios.documents import read_yaml
from lhkit.harness.scenarios.issues import format_path
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.toolset import ChatCall, Toolset, criterion_of, opened, read_state, require_isolated

TAG = "suggested"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedCall:
    """A call with its arguments as a model writes them."""

    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a proposed scenario expects of its last turn.

    Attributes:
        calls: the expected calls; without any, no write is right and the reply must claim none.
        forbidden: calls that must not be made.
        reason: what the user said in rejecting a call.
        excluded: words that the reply must not contain.
    """

    calls: tuple[ProposedCall, ...] = ()
    forbidden: tuple[ProposedCall, ...] = ()
    reason: str = ""
    excluded: tuple[str, ...] = ()


def approved_call(call: CallRecord) -> ProposedCall:
    """Return a call with the arguments that ran, in the words of the model where it had any."""
    args = call.args or {}
    written = in_words_of(call.raw_args, without_pointers(args, call.filled_in))
    known = dict(written) if isinstance(written, Mapping) else {}
    changed = {name: value for name, value in call.edited.items() if value is not None}
    kept = {name: value for name, value in known.items() if name not in call.edited}
    return ProposedCall(tool=call.tool, args=plain_json({**kept, **changed}))


def proposed_call(call: CallRecord) -> ProposedCall:
    """Return a call as the model proposed it."""
    args = in_words_of(call.raw_args, call.proposed_args)
    return ProposedCall(tool=call.tool, args=plain_json(args) if isinstance(args, Mapping) else {})


def writes_of(turn: TurnRecord) -> tuple[CallRecord, ...]:
    """Return the writes of a turn that ran and succeeded."""
    return tuple(
        call for call in turn.calls if call.destructive and call.ran and call.outcome == "ok"
    )


def scenario_document(
    record: SampleRecord, turn: int, proposal: Proposal, *, scenario_id: str, tags: Sequence[str]
) -> dict[str, Any]:
    """Return the scenario of a chat up to a turn, still without its final state.

    Args:
        record: the chat.
        turn: the index of the turn that the proposal is for.
        proposal: what the turn has to be.
        scenario_id: the id.
        tags: further tags.
    """
    turns = record.trajectory.turns[: turn + 1]
    world = {table: list(rows) for table, rows in record.trajectory.initial_state.items()}
    now = {"now": record.started_at} if record.started_at else {}
    last = {**_turn_document(turns[-1].user, proposal), "reply": _reply_document(proposal)}
    return {
        "id": scenario_id,
        "locale": detect_locale([each.user for each in turns], record.locale),
        "tags": [TAG, *tags],
        "world": plain_json({**now, **world}),
        "turns": [
            *(_turn_document(each.user, _context(each)) for each in turns[:-1]),
            {key: value for key, value in last.items() if value},
        ],
    }


def _context(turn: TurnRecord) -> Proposal:
    """Return what an earlier turn has to be: the writes that the user approved."""
    rejected = [call for call in turn.calls if call.gate is GateOutcome.REJECTED]
    return Proposal(
        calls=tuple(map(approved_call, writes_of(turn))),
        reason=rejected[-1].reason if rejected else "",
    )


def _turn_document(user: str, proposal: Proposal) -> dict[str, Any]:
    turn: dict[str, Any] = {"user": user}
    expect: dict[str, Any] = {"extra": "reads"}
    if proposal.calls:
        turn["confirm"] = "careful"
        expect = {"calls": [*map(_expected_call, proposal.calls)], **expect}
    elif proposal.reason.strip():
        turn["confirm"] = {"reject": proposal.reason}
    turn["expect"] = expect
    if proposal.forbidden:
        turn["forbid"] = [
            {"tool": call.tool, "args": literals(call.args)} for call in proposal.forbidden
        ]
    return turn


def _expected_call(call: ProposedCall) -> dict[str, Any]:
    return {"tool": call.tool, "args": literals(call.args), "result": "ok"}


def _reply_document(proposal: Proposal) -> dict[str, Any]:
    if not proposal.calls:
        return {"matches": r"\S", "claims": "none"}
    return {"excludes": [*proposal.excluded]} if proposal.excluded else {}


def edited_document(document: Mapping[str, Any], call: ProposedCall) -> dict[str, Any]:
    """Return a scenario that expects another call in its last turn, without its final state."""
    edited = {k: v for k, v in plain_json(document).items() if k not in {"ac", "final", "gone"}}
    last = edited["turns"][-1]
    proposal = Proposal(calls=(call,))
    forbidden = [each for each in last.get("forbid", ()) if not _is_same(each, proposal)]
    edited["turns"][-1] = {
        **_turn_document(last["user"], proposal),
        **({"forbid": forbidden} if forbidden else {}),
    }
    return edited


def _is_same(forbidden: Mapping[str, Any], proposal: Proposal) -> bool:
    """Return whether the proposal expects a call that is forbidden."""
    return any(
        forbidden["tool"] == call.tool and forbidden["args"] == literals(call.args)
        for call in proposal.calls
    )


async def completed(document: Mapping[str, Any], toolset: Toolset) -> dict[str, Any]:
    """Return a scenario with the final state that its reference calls lead to, after lint.

    Raises:
        NotIsolatedError: sessions of the toolset share real data.
        UsageError: the scenario is invalid, or lint reports an error.
    """
    require_isolated(toolset, "make the calls of a draft")
    scenario = Scenario.from_data(document)
    record = await run_sample(scenario, gold_model, toolset)
    states = record.trajectory.initial_state, record.trajectory.final_state
    with opened(toolset, scenario.world, scenario.locale) as session:
        row_keys = read_row_keys(session, read_state(session))
    changes = expected_changes(*states, row_keys)
    calls = [call for turn in scenario.turns for call in turn.expect.calls]
    criterion = criterion_of(
        toolset,
        [ChatCall(tool=c.tool, args=c.args, result=c.result or "ok", answer=None) for c in calls],
    )
    ac = {"ac": criterion} if criterion else {}
    complete = {"id": document["id"], **ac, **document, **changes}
    remarks = await scenario_remarks(Scenario.from_data(complete), toolset)
    errors = [remark for remark in remarks if LEVELS[remark.code] is Level.ERROR]
    if errors:
        raise UsageError("; ".join(map(_remark_text, errors)))
    return complete


def _remark_text(remark: Remark) -> str:
    place = f"{format_path(remark.path)} " if remark.path else ""
    return f"{place}[{remark.code}]: {remark.message}"


def add_to_suite(path: Path, scenario: Mapping[str, Any]) -> None:
    """Append a scenario to a YAML file of scenarios, which may not exist; its text stays.

    A scenario that the file has already is not added again.

    Raises:
        UsageError: the file is not a YAML list of scenarios, or another scenario has the id.
        OSError: it cannot be written.
    """
    if path.suffix.lower() not in {".yaml", ".yml"}:
        raise UsageError(f"{path} cannot hold the scenarios: give a YAML file, NAME.scenario.yaml")
    try:
        with open_regular(path) as file:
            before = file.read().decode()
    except FileNotFoundError:
        before = ""
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text: {error}. Choose another file.") from error
    document = read_yaml(before)
    entries = document.value or []
    if document.issues or not isinstance(entries, list):
        raise UsageError(
            f"{path}:{document.line(())} is not a list of scenarios. Correct it, or choose another "
            "file."
        )
    added = masked(yaml_text([scenario]))
    (entry,) = read_yaml(added).value
    if entry in entries:
        return
    gap = "\n" if before and not before.endswith("\n") else ""
    after = "\n".join(filter(None, [f"{before}{gap}", added]))
    names = [each.get("id") for each in entries if isinstance(each, dict)]
    if entry["id"] in names or read_yaml(after).value != [*entries, entry]:
        raise UsageError(
            f"{path} cannot take the scenario {entry['id']}: it has another one with that id, or "
            "its list is not written line by line from the margin. Choose another file."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, after.encode())
