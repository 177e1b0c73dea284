"""Simulated users: the confirm gates that answer for a person in a run."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from itertools import chain, repeat
from typing import Any

from lhkit.base.errors import ScenarioError
from lhkit.base.json_values import in_words_of, without_pointers
from lhkit.base.schema import SchemaNode
from lhkit.confirm.decision import Approve, Decision, Edit, Reject
from lhkit.confirm.gate import ConfirmGate, ConfirmRequest, InvalidEditError
from lhkit.harness.scenarios.matchers import (
    ArgumentSet,
    Place,
    UnderivableError,
    arguments_reasons,
    example_arguments,
)
from lhkit.harness.scenarios.relative_dates import resolve_dates
from lhkit.harness.scenarios.scenario import Answer, Turn, decide
from lhkit.harness.scoring.matching import ActualCall, match_calls
from lhkit.toolset import Session


def confirm_gate(turn: Turn, session: Session) -> ConfirmGate | None:
    """Return the gate of a turn; None if the turn has none."""
    if turn.confirm == "absent":
        return None
    if turn.confirm == "careful":
        return _CarefulUser(turn, session)
    return ScriptedUser(answers_of(turn), session.today)


def answers_of(turn: Turn) -> Iterator[Answer]:
    """Return the answers that a script gives to the questions of a turn, without an end."""
    if isinstance(turn.confirm, tuple):
        return chain(turn.confirm, repeat("reject"))
    return repeat(turn.confirm)  # type: ignore[arg-type]


class SimulatedUser(ABC):
    """A confirm gate that answers for a person."""

    @abstractmethod
    async def confirm(self, request: ConfirmRequest) -> Decision:
        """Return the decision."""

    @abstractmethod
    def skip(self, request: ConfirmRequest) -> None:
        """Take note of a call that a policy lets run without the question."""


class ScriptedUser(SimulatedUser):
    """Answers as a scenario says, in order, and then rejects.

    Args:
        answers: the answers.
        today: the day of the conversation, for relative dates.
    """

    def __init__(self, answers: Iterable[Answer], today: date) -> None:
        self._answers = iter(answers)
        self._today = today

    async def confirm(self, request: ConfirmRequest) -> Decision:
        """Return the next answer."""
        return decide(next(self._answers, "reject"), request.args, self._today)

    def skip(self, request: ConfirmRequest) -> None:
        """Drop the answer to the question that is not asked."""
        next(self._answers, None)


class _CarefulUser(SimulatedUser):
    """Accepts each expected call once, corrects one with one wrong argument, rejects others."""

    def __init__(self, turn: Turn, session: Session) -> None:
        self._turn = turn
        self._expected = [
            call.model_copy(update={"result": None})
            for call in turn.expect.calls
            if call.result != "cancelled"
        ]
        self._session = session
        self._accepted: list[ActualCall] = []

    async def confirm(self, request: ConfirmRequest) -> Decision:
        """Approve a call that, together with those accepted before, is expected."""
        if self._accepts(request):
            return Approve()
        for args in self._corrections(request):
            try:
                edited = request.edited(args)
            except InvalidEditError:
                continue
            if self._accepts(edited):
                return Edit(edited.args)
        return Reject()

    def skip(self, request: ConfirmRequest) -> None:
        """Count the call as accepted, if it is expected."""
        self._accepts(request)

    def _accepts(self, request: ConfirmRequest) -> bool:
        """Return whether the call is expected; it counts as accepted from then on."""
        calls = [*self._accepted, ActualCall(tool=request.tool, args=_written_args(request))]
        today = self._session.today
        tools = self._session.registry.definitions  # may have grown during the turn
        schemas = {tool.name: tool.schema_on(today) for tool in tools}
        match = match_calls(self._expected, calls, schemas=schemas, today=today)
        if len(match.right) < len(calls):
            return False
        self._accepted = calls
        return True

    def _corrections(self, request: ConfirmRequest) -> Iterator[dict[str, Any]]:
        """Yield the arguments with the one that differs from an expected call corrected."""
        tool, today = self._session.registry[request.tool], self._session.today
        schema = tool.schema_on(today)
        for call in self._expected:
            for matchers in call.alternatives if call.tool == tool.name else ():
                reasons = arguments_reasons(
                    matchers, _written_args(request), schema, extra=False, today=today
                )
                wrong = [name for name, reason in reasons.items() if reason is not None]
                # with no argument right, nothing shows that this write was meant
                if len(wrong) == 1 and len(reasons) > 1:
                    rest = {key: value for key, value in request.args.items() if key != wrong[0]}
                    yield rest | self._right_argument(tool.name, wrong[0], matchers, schema)

    def _right_argument(
        self, tool: str, name: str, matchers: ArgumentSet, schema: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the expected argument by name; empty if it has to be left out or is unknown."""
        today = self._session.today
        try:
            only = {key: matcher for key, matcher in matchers.items() if key == name}
            return example_arguments(only, Place(SchemaNode.of(schema), today), _underivable)
        except UnderivableError:
            pass
        for call in self._turn.gold.calls or ():
            if call.tool == tool and name in call.args:
                try:
                    return {name: resolve_dates(call.args[name], today)}
                except ScenarioError:
                    continue
        return {}


def _written_args(request: ConfirmRequest) -> Any:
    """Return the arguments as the model wrote them: no scenario knows the default of a clock."""
    return in_words_of(request.given, without_pointers(request.args, request.filled_in))


def _underivable(_place: Place) -> Any:
    raise UnderivableError
