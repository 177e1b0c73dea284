"""Build training conversations for supervised fine-tuning: `{"messages": […], "tools": […]}`.

Sources are passed samples of a run, reference calls of scenarios, and reviewed chats. The messages
contain all that the served model reads: instructions, context lines, tool results. A toolset that
specifies how the model reads results has its `result_format` in each conversation.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from lhkit.base.errors import UsageError
from lhkit.base.files import write_atomically
from lhkit.conversation.messages import ToolCall
from lhkit.harness.authoring.reference import PLAIN_REPLY, TurnTrace, gold_model, trace_model
from lhkit.harness.chats.corrections import (
    BROKEN_CALLS,
    CorrectedConversation,
    CorrectedTurn,
    broken_call,
)
from lhkit.harness.exports.openai_messages import PromptTexts, exported_conversations, json_line
from lhkit.harness.exports.similarity import HeldOut
from lhkit.harness.records.manifest import Prompt
from lhkit.harness.records.record import SampleRecord
from lhkit.harness.results.results import Run
from lhkit.harness.running.fingerprint import scenario_hash, sha256
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.scenario import ANSWER, Answer, Expect, Scenario, Turn
from lhkit.models.dialects.base import tool_spec
from lhkit.models.recorded.scripted import ScriptedModel
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset, name_of, opened, registry_of

_Answers: TypeAlias = Literal["accept", "absent"] | tuple[Answer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SftConversation:
    """One training conversation.

    `users` are the user messages without their context lines, `instructions` the text of the system
    message as it was written, `tags` those of the scenario. `is_one_response`: its turns end after
    their calls, whose results may not be known.
    """

    users: tuple[str, ...]
    data: Mapping[str, Any]
    instructions: str = ""
    tags: tuple[str, ...] = ()
    is_one_response: bool = False


@dataclass(slots=True, kw_only=True)
class SftCounts:
    """Counts of conversations: written, near-duplicates of held-out ones, and repeated ones."""

    written: int = 0
    held_out: int = 0
    repeated: int = 0


def write_sft(
    conversations: Iterable[SftConversation], file: Path, held_out: Iterable[str] = ()
) -> SftCounts:
    """Write conversations as JSON lines, without near-duplicates of held-out user messages.

    Args:
        conversations: the conversations; duplicates are omitted.
        file: the JSONL file, which is complete or unchanged.
        held_out: user messages of the scenarios that evaluate the model.

    Raises:
        UsageError: no conversation remains.
        OSError: the file cannot be written.
    """
    counts = SftCounts()
    held_out_messages = HeldOut(held_out)

    def lines() -> Iterator[bytes]:
        digests: set[str] = set()
        for conversation in conversations:
            line = json_line(conversation.data)
            digest = sha256(line.decode())
            if held_out_messages.has_near(conversation.users):
                counts.held_out += 1
            elif digest in digests:
                counts.repeated += 1
            else:
                digests.add(digest)
                counts.written += 1
                yield line
        if not counts.written:
            raise UsageError(
                f"No conversation is left for {file}: {counts.held_out} are near-duplicates of "
                "held-out scenarios. Give a run with passed samples, scenarios or reviewed chats."
            )

    write_atomically(file, lines())
    return counts


def run_conversations(
    run: Run, toolset: Toolset, scenarios: Iterable[Scenario] = ()
) -> Iterator[SftConversation]:
    """Yield the passed samples of a run as training conversations.

    A record contains neither instructions nor context lines: they come from the toolset, opened
    with the initial state of the scenario, and must equal those of the run. Samples with truncated
    calls, with arguments that are not objects, or with tools added during a turn are omitted.

    Args:
        run: the recorded run.
        toolset: its toolset.
        scenarios: its scenarios, which have the initial states if the records do not.

    Raises:
        UsageError: the toolset is a different one, its prompt has changed, or the initial state of
            a sample is not known.
    """
    if run.toolset != name_of(toolset):
        raise UsageError(
            f"The run was recorded with the tools of {run.toolset}, not of {name_of(toolset)}. "
            "Give its tools with --toolset."
        )
    by_name = {wording.name: wording for scenario in scenarios for wording in scenario.wordings()}

    def texts(record: SampleRecord) -> PromptTexts | None:
        if not record.is_passed or not _is_exportable(record):
            return None
        prompt = _prompt_texts(toolset, _initial_state(record, run, by_name), record)
        _require_same_prompt(prompt, record, run)
        return prompt

    yield from _conversations(run, texts)


def _is_exportable(record: SampleRecord) -> bool:
    return not any(turn.new_tools for turn in record.trajectory.turns) and all(
        call.tool and isinstance(call.raw_args, Mapping) for call in record.trajectory.calls
    )


def _initial_state(
    record: SampleRecord, run: Run, scenarios: Mapping[str, Scenario]
) -> Mapping[str, Any]:
    name, state = record.sample_id.name, record.trajectory.initial_state
    if scenario := scenarios.get(name):
        if run.manifest.scenarios.get(name) != scenario_hash(
            scenario.with_user(run.manifest.simulated_user)
        ):
            raise UsageError(f"{name}: the scenario has changed since the run. Run it again.")
        return scenario.world
    if not state and record.trajectory.initial_sha256:
        raise UsageError(
            f"{record.sample_id}: the run does not contain the state it started from. Give its "
            "scenario files with --scenarios."
        )
    now = {"now": record.started_at} if record.started_at else {}
    return {**now, **{table: list(rows) for table, rows in state.items()}}


def _require_same_prompt(prompt: PromptTexts, record: SampleRecord, run: Run) -> None:
    """Refuse texts that are not those of the run, as far as its manifest has their hashes."""
    instructions = run.manifest.locales.get(record.locale, Prompt()).instructions_sha256
    contexts = (run.manifest.contexts or {}).get(record.sample_id.name)
    for recorded, present in (
        (instructions or None, prompt.instructions),
        (contexts, list(prompt.contexts)),
    ):
        if recorded is not None and recorded != sha256(present):
            raise UsageError(
                f"{record.sample_id}: the instructions or context lines of the tools have changed "
                "since the run. Run it again."
            )


async def reference_conversations(
    scenarios: Sequence[Scenario], toolset: Toolset
) -> Iterator[SftConversation]:
    """Return scenarios, replayed with their reference calls, as training conversations.

    Only replies that a scenario specifies (`gold.say`) are training targets.

    Args:
        scenarios: the scenarios, whose reference calls must pass.
        toolset: the tools that run the calls.

    Raises:
        ScenarioError: a reference cannot be derived.
        UsageError: a reference does not pass.
        NotIsolatedError: sessions of the toolset share real data.
    """
    run = await replay(scenarios, gold_model, toolset=toolset, max_attempts=1, progress=False)
    by_id = {scenario.id: scenario for scenario in scenarios}

    def texts(record: SampleRecord) -> PromptTexts | None:
        scenario = by_id[record.sample_id.scenario]
        if not record.is_passed:
            reasons = "; ".join(record.score.reasons)
            raise UsageError(
                f"{scenario.id}: its reference does not pass ({reasons}). Run `lhkit lint`."
            )
        if not _is_exportable(record):
            return None
        untrained_replies = {i for i, turn in enumerate(scenario.turns) if turn.gold.say is None}
        return _prompt_texts(toolset, scenario.world, record, untrained_replies)

    return _conversations(run, texts)


async def reviewed_conversations(
    corrected: Sequence[CorrectedConversation], toolset: Toolset
) -> Iterator[SftConversation]:
    """Return reviewed chats, replayed with their corrected calls, as training conversations.

    A reply that the reviewer rejected is part of the conversation, but not a training target.

    Args:
        corrected: the chats (`corrections.read_conversations`).
        toolset: the tools that run the calls.

    Raises:
        UsageError: the state of a chat is not valid any more, or a call of it fails.
        NotIsolatedError: sessions of the toolset share real data.
    """
    by_id = {f"reviewed.{number}.{each.name}": each for number, each in enumerate(corrected)}

    def model(scenario: Scenario, _registry: ToolRegistry) -> ScriptedModel:
        traces = [
            TurnTrace(
                messages=tuple(
                    (ToolCall(name=call.tool, args=dict(call.args)),) for call in turn.calls
                ),
                reply=turn.reply or PLAIN_REPLY,
            )
            for turn in by_id[scenario.id].turns
        ]
        return trace_model(traces, name="reviewed")

    run = await replay(
        [_scenario(name, chat, toolset) for name, chat in by_id.items()],
        model,
        toolset=toolset,
        max_attempts=1,
        progress=False,
    )

    def texts(record: SampleRecord) -> PromptTexts:
        chat = by_id[record.sample_id.scenario]
        _require_replayed(record, chat)
        untrained_replies = {
            i for i, turn in enumerate(chat.turns) if not turn.is_reply_fine or not turn.reply
        }
        return _prompt_texts(toolset, chat.world, record, untrained_replies)

    return _conversations(run, texts)


def _scenario(name: str, chat: CorrectedConversation, toolset: Toolset) -> Scenario:
    destructive = registry_of(toolset, chat.world, chat.locale).destructive
    turns = tuple(
        Turn.model_construct(
            user=turn.user, confirm=_answers(turn, destructive), expect=Expect(extra="any")
        )
        for turn in chat.turns
    )
    return Scenario.model_construct(  # a chat need not be a valid scenario
        id=name, locale=chat.locale, world=dict(chat.world), turns=turns
    )


def _answers(turn: CorrectedTurn, destructive: Collection[str]) -> _Answers:
    answers = [call.answer for call in turn.calls if call.tool in destructive]
    if "absent" in answers:
        return "absent"
    return tuple(map(ANSWER.validate_python, answers)) or "accept"


def _require_replayed(record: SampleRecord, chat: CorrectedConversation) -> None:
    if not record.is_valid or len(record.trajectory.turns) < len(chat.turns):
        reasons = "; ".join(record.score.reasons)
        raise UsageError(f"{chat.name} cannot be replayed: {reasons}")
    for call in record.trajectory.calls:
        if call.outcome in BROKEN_CALLS:
            raise broken_call(chat, call.tool, call.raw_args, call.outcome)


def _conversations(
    run: Run, texts: Callable[[SampleRecord], PromptTexts | None]
) -> Iterator[SftConversation]:
    latest = PromptTexts()

    def noted(record: SampleRecord) -> PromptTexts | None:
        nonlocal latest
        prompt = texts(record)
        latest = prompt or latest
        return prompt

    for record, data in exported_conversations(run, noted):
        users = tuple(turn.user for turn in record.trajectory.turns)
        limits = run.manifest.locales.get(record.locale, Prompt()).assistant
        form = {"result_format": limits.result_format} if limits.result_format else {}
        yield SftConversation(
            users=users,
            data={**data, **form},
            instructions=latest.instructions,
            tags=record.tags,
            is_one_response=latest.ends_at_calls,
        )


def _prompt_texts(
    toolset: Toolset,
    world: Mapping[str, Any],
    record: SampleRecord,
    untrained_replies: Collection[int] = (),
) -> PromptTexts:
    with opened(toolset, world, record.locale) as session:
        assistant = session.assistant
        return PromptTexts(
            instructions=assistant.instructions,
            contexts=tuple(assistant.context(turn.user) for turn in record.trajectory.turns),
            untrained_replies=untrained_replies,
            history=assistant.history,
            tools=[tool_spec(tool) for tool in session.registry.definitions],
            ends_at_calls=bool(assistant.stops_after_calls),
        )
