"""`Sample`: the one view of a finished sample, for scores, notebooks and reports.

It is read-only and stable. `SampleRecord`, which it is a view of, may change with any version.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lhkit.base.errors import UsageError
from lhkit.base.json_values import NotJsonError, read_only_json, safe_repr
from lhkit.harness.records.record import (
    CallRecord,
    SampleRecord,
    State,
    TurnRecord,
    Violation,
)
from lhkit.harness.records.score_record import ScoreRecord
from lhkit.harness.views.html import sample_html

States: TypeAlias = tuple[State, State]
"""The initial and the final state of a sample."""

_NO_STATES = (
    "the states of this sample are not stored, only its changes. Run it with keep_states "
    "(--keep-states), or give its scenarios and toolset to rescore"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCall:
    """One tool call of a turn.

    Attributes:
        tool: the name as the model wrote it.
        proposed: the arguments as the model proposed them: validated, or as they were if invalid.
        shown: what the confirmation card showed: all arguments with defaults, or as the user edited
            them; None without a card.
        run: the arguments that the tool ran with; None if it did not run.
        result: the tool result as JSON, such as `{"status": "ok", …}`.
        outcome: `ok`, `cancelled` or an error code.
        decision: `accepted`, `edited`, `rejected`, `absent`, `policy` (a policy let it run without
            a question), …; `not_needed` without a question.
        reason: the user's reason for the decision.
        writes: whether the tool changes data.
        changed: whether data changed; None if unknown.
        validation_s: seconds of validation.
        waiting_s: seconds waiting for the user.
        handler_s: seconds of the tool.
        min_logprob: the natural log-probability of the least likely token of the call; None unless
            the run requested it (`logprobs`) and the server reports it.
        mean_logprob: the mean over the tokens of the call.
    """

    tool: str
    proposed: Any
    shown: Any
    run: Any
    result: Mapping[str, Any]
    outcome: str
    decision: str
    reason: str
    writes: bool
    changed: bool | None
    validation_s: float
    waiting_s: float
    handler_s: float
    min_logprob: float | None = None
    mean_logprob: float | None = None

    @classmethod
    def of(cls, call: CallRecord) -> "SampleCall":
        """Return the view of a recorded call."""
        card = call.args if call.shown_args is None else call.shown_args
        is_shown = call.gate.is_answer or bool(call.summary)
        return cls(
            tool=call.tool,
            proposed=_read_only(call.proposed_args),
            shown=_read_only(card) if is_shown else None,
            run=_read_only(call.effective_args) if call.ran else None,
            result=_read_only(call.result),
            outcome=call.outcome,
            decision="edited" if call.is_edited else str(call.gate),
            reason=call.reason,
            writes=call.destructive,
            changed=call.changed,
            validation_s=call.validation_s,
            waiting_s=call.waiting_s,
            handler_s=call.handler_s,
            min_logprob=call.min_logprob,
            mean_logprob=call.mean_logprob,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTurn:
    """One message of the user and what followed.

    Attributes:
        user: the message.
        reply: all text shown to the user.
        calls: the tool calls.
        ended: how the turn ended, such as `answered`.
        error: the error that ended it; empty without one.
        notice: a notice that the application added; empty without one.
        duration_s: seconds of the whole turn.
        waiting_s: seconds of it waiting for the user.
        model_s: seconds of it in requests to the model.
        first_token_s: seconds to the first token of the first request; None if not measured.
        prompt_tokens: tokens of all prompts.
        completion_tokens: tokens of all responses.
    """

    user: str
    reply: str
    calls: tuple[SampleCall, ...]
    ended: str
    error: str
    notice: str
    duration_s: float
    waiting_s: float
    model_s: float
    first_token_s: float | None
    prompt_tokens: int
    completion_tokens: int

    @classmethod
    def of(cls, turn: TurnRecord) -> "SampleTurn":
        """Return the view of a recorded turn."""
        responses = [request.response for request in turn.model_calls]
        return cls(
            user=turn.user,
            reply=turn.reply,
            calls=tuple(map(SampleCall.of, turn.calls)),
            ended=str(turn.ended),
            error=turn.error or "",
            notice=turn.notice or "",
            duration_s=turn.duration_s,
            waiting_s=turn.waiting_s,
            model_s=sum(request.duration_s for request in turn.model_calls),
            first_token_s=responses[0].timing.first_token_s if responses else None,
            prompt_tokens=sum(response.usage.prompt_tokens for response in responses),
            completion_tokens=sum(response.usage.completion_tokens for response in responses),
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Sample:
    """One finished sample of a run: a conversation, its states and its verdict. Read-only.

    A score gets it, `run.sample(ID)` returns it, and notebooks and reports show it. Nested values
    are `dict` and `list`, which refuse to be changed; `dict(…)` and `copy.deepcopy(…)` copy them.

    Attributes:
        id: the sample's name: the scenario, `add#2` for its second repeat, `add~2` for its second
            wording.
        scenario: the id of the scenario.
        repeat: which repeat, from 0.
        wording: which wording, from 0.
        ac: the acceptance criterion; None without one.
        locale: the language of the conversation.
        tags: the labels of the scenario.
        turns: the user's messages with replies and calls.
        verdict: `pass`, `fail` or `invalid`. In a score it is that of the scenario, without checks.
        reasons: why it failed.
        violations: the broken rules, with `code`, `severity` (`attempted` or `escaped`), `turn` and
            `detail`.
        changes: for each changed table its `added` and `removed` rows, such as
            `{"notes": {"added": [{"id": "n1"}], "removed": []}}`; a changed row is one of each.
        scores: the results of the run's scores; empty in a score.
    """

    id: str
    scenario: str
    repeat: int
    wording: int
    ac: str | None
    locale: str
    tags: tuple[str, ...]
    turns: tuple[SampleTurn, ...]
    verdict: str
    reasons: tuple[str, ...]
    violations: tuple[Violation, ...]
    changes: Mapping[str, Mapping[str, Any]]
    scores: tuple[ScoreRecord, ...] = ()
    _record: SampleRecord = field(compare=False)
    _states: Callable[[SampleRecord], States] | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        record: SampleRecord,
        *,
        scores: Iterable[ScoreRecord] = (),
        states: Callable[[SampleRecord], States] | None = None,
    ) -> "Sample":
        """Return the view of a record.

        Args:
            record: the record.
            scores: results of scores of a run, of which it takes its own.
            states: rebuilds the states of a record that does not have them.
        """
        name = record.sample_id
        return cls(
            id=str(name),
            scenario=name.scenario,
            repeat=name.repeat,
            wording=name.wording,
            ac=record.ac,
            locale=record.locale,
            tags=record.tags,
            turns=tuple(map(SampleTurn.of, record.trajectory.turns)),
            verdict=str(record.score.verdict),
            reasons=record.score.reasons,
            violations=record.score.violations,
            changes=_read_only(
                {
                    table: {"added": diff.added, "removed": diff.removed}
                    for table, diff in record.state_diff.items()
                }
            ),
            scores=tuple(score for score in scores if score.sample_id == name),
            _record=record,
            _states=states,
        )

    @property
    def user_messages(self) -> tuple[str, ...]:
        """The user's messages."""
        return tuple(turn.user for turn in self.turns)

    @property
    def calls(self) -> tuple[SampleCall, ...]:
        """The tool calls of all turns."""
        return tuple(call for turn in self.turns for call in turn.calls)

    @property
    def reply(self) -> str:
        """The reply of the last turn; empty without turns."""
        return self.turns[-1].reply if self.turns else ""

    @property
    def passed(self) -> bool:
        """Whether the verdict is a pass."""
        return self.verdict == "pass"

    @property
    def state_before(self) -> Mapping[str, Any]:
        """The rows of each table before the first turn.

        Raises:
            UsageError: they are not stored and cannot be rebuilt.
        """
        return self._state(0)

    @property
    def state_after(self) -> Mapping[str, Any]:
        """The rows of each table after the last turn.

        Raises:
            UsageError: they are not stored and cannot be rebuilt.
        """
        return self._state(1)

    def _state(self, number: int) -> Mapping[str, Any]:
        trajectory = self._record.trajectory
        states: States = trajectory.initial_state, trajectory.final_state
        if trajectory.initial_sha256:  # only their changes are stored
            if self._states is None:
                raise UsageError(f"{self.id}: {_NO_STATES}")
            states = self._states(self._record)
        state: Mapping[str, Any] = _read_only(states[number])
        return state

    def _repr_html_(self) -> str:
        """Return the transcript of the sample with its scores."""
        return sample_html(self)

    def __repr__(self) -> str:
        names = ", ".join(filter(None, (self.ac, self.verdict)))
        return "\n  ".join((f"Sample({self.id}: {names})", *self.reasons))


def _read_only(value: Any) -> Any:
    """Return a read-only copy of a value; its `repr` if it is not JSON, such as a model's NaN."""
    try:
        return read_only_json(value)
    except NotJsonError:
        return safe_repr(value)
