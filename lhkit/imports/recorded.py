"""Split the messages of a recorded chat into user turns with calls, results and replies."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.json_values import json_or_repr
from lhkit.conversation.messages import ToolCall
from lhkit.imports.importers import Loss
from lhkit.imports.message_shapes import (
    WrittenCall,
    WrittenMessage,
    WrittenResult,
    read_message,
)
from lhkit.tools.registration import NAME_PATTERN

_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """A recorded call and its result, which is text or a JSON value; it may have none.

    `is_parallel`: it is in the same message as the call before it.
    """

    call: ToolCall
    result: Any = None
    has_result: bool = False
    is_error: bool = False
    is_parallel: bool = False


@dataclass(slots=True, kw_only=True)
class RecordedTurn:
    """A user message, the calls up to the next one, and the replies of messages without calls.

    `has_no_call`: the source says that no call is due, and has no reply.
    """

    user: str
    has_no_call: bool = False
    calls: list[RecordedCall] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingCall:
    """A call without a result; `position` is its turn and index."""

    ids: frozenset[str]
    name: str
    position: tuple[RecordedTurn, int]


@dataclass(slots=True, kw_only=True)
class TurnReader:
    """Splits the messages of one conversation into turns, and collects losses.

    `tools` are the names of its tools, `renamed` the new names of some of them. `pending` are the
    calls without a result, oldest first;
    those from `latest` on belong to the last assistant messages. `results` are the results since
    the last other message: they are assigned together. `without_call` are results in turns without
    any call: there was one, so the turn does not expect none.
    """

    where: str
    tools: Collection[str] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    instructions: str = ""
    turns: list[RecordedTurn] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    pending: list[_PendingCall] = field(default_factory=list)
    latest: int = 0
    results: list[WrittenResult] = field(default_factory=list)
    without_call: list[str] = field(default_factory=list)
    is_calling: bool = False
    is_data_set: bool = False

    def read(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Read all messages.

        Raises:
            UsageError: a call cannot be taken.
        """
        for number, message in enumerate(messages):
            try:
                written = read_message(
                    message, self.tools, self.renamed, is_data_set=self.is_data_set
                )
                self._read(written)
            except UsageError as error:
                raise UsageError(f"messages[{number}]: {error}") from error
        self._assign_results()
        if self.without_call:
            raise UsageError(f"a result without a call, which is missing: {self.without_call[0]}")

    def omit_unanswered(self) -> None:
        """Omit a last user message without calls and replies: nothing says what was expected."""
        last = self.turns[-1] if self.turns else None
        if last is not None and not (last.calls or last.replies or last.has_no_call):
            self._add_loss("no_answer", self.turns.pop().user)

    def _read(self, written: WrittenMessage) -> None:
        if written.results:
            self.is_calling = False
            self.results += [
                result if result.name is None else replace(result, name=self._name(result.name))
                for result in written.results
            ]
        for code, detail in written.omitted:
            self._add_loss(code, detail)
        match written.role:
            case "tool" | "reasoning":
                return
            case "system":
                self._assign_results()
                if self.turns and written.text.strip():
                    self._add_loss("late_system", written.text)
                texts = filter(str.strip, (self.instructions, written.text))
                self.instructions = "\n\n".join(texts)  # as written, to be exported again
            case "user":
                self._assign_results()
                if written.text.strip() or not written.results:
                    self._read_user(written.text)
            case "assistant":
                self._assign_results()
                if written.is_no_call and self.turns:
                    self.turns[-1].has_no_call = True
                elif not written.text.strip() and not written.calls:
                    self._add_loss("blank_reply")
                self._read_assistant(written.text, written.calls)
            case other:
                self._add_loss("role", other)

    def _add_loss(self, code: str, detail: str = "") -> None:
        self.losses.append(Loss(code=code, where=self.where, detail=detail))

    def _read_user(self, text: str) -> None:
        self.is_calling = False
        if not text.strip():
            self._add_loss("blank")
        elif self.turns and not self.turns[-1].replies and not self.turns[-1].calls:
            self.turns[-1].user += f"\n{text}"
            self._add_loss("joined", text)
        else:
            self.turns.append(RecordedTurn(user=text))

    def _read_assistant(self, text: str, calls: Sequence[WrittenCall]) -> None:
        was_calling = self.is_calling
        if calls and not self.is_calling:
            self.latest = len(self.pending)
            self.is_calling = True
        if not self.turns:
            self._add_loss("opening", text or ", ".join(call.name for call in calls))
            return
        turn = self.turns[-1]
        if text.strip() and calls:
            self._add_loss("words_before_calls", text)
        elif text.strip():
            if turn.replies:
                self._add_loss("earlier_reply", turn.replies[-1])
            turn.replies.append(text)
        for number, written in enumerate(calls):
            call = self._call(written)
            self.pending.append(
                _PendingCall(ids=written.ids, name=call.name, position=(turn, len(turn.calls)))
            )
            is_parallel = bool(turn.calls) and (number > 0 or was_calling)
            turn.calls.append(RecordedCall(call=call, is_parallel=is_parallel))

    def _call(self, written: WrittenCall) -> ToolCall:
        """Return the call.

        Raises:
            UsageError: its tool has an invalid name.
        """
        name = self._name(written.name)
        if not NAME_PATTERN.fullmatch(name):
            raise UsageError(f"the name of the tool {name!r} must match {NAME_PATTERN.pattern}")
        if written.repairs:
            self._add_loss("arguments", f"{name}: {', '.join(written.repairs)}")
        return ToolCall(name=name, args=dict(written.args))

    def _name(self, name: str) -> str:
        """Return the name of a tool as the tools have it."""
        short = name.removeprefix("functions.")
        if name not in self.tools and short in self.tools:
            return short
        return self.renamed.get(name, name)

    def _assign_results(self) -> None:
        """Assign the results since the last other message: by id, by tool, by order.

        Order decides only among as many results as calls: with fewer, a result could belong to any
        of them, and is given to none.
        """
        results, self.results = self.results, []
        groups: dict[tuple[str | None, bool], list[WrittenResult]] = {}
        for result in results:
            if same_id := self._with_id(result):
                same_name = [i for i in same_id if self.pending[i].name == result.name]
                if len(same_name or same_id) > 1:
                    self._add_loss("by_order", result.name or self.pending[same_id[0]].name)
                self._assign((same_name or same_id)[0], result)
            else:
                groups.setdefault((result.name, result.id is not None), []).append(result)
        for (name, has_id), group in sorted(groups.items(), key=lambda item: item[0][0] is None):
            self._assign_in_order(group, name=name, has_id=has_id)

    def _with_id(self, result: WrittenResult) -> list[int]:
        """Return the indices of the calls that a result names, those of the last messages first."""
        indices = [*range(self.latest, len(self.pending)), *range(self.latest)]
        if same_id := [i for i in indices if result.id in self.pending[i].ids]:
            return same_id
        mentioned = [i for i in indices if result.mentions & self.pending[i].ids]
        names = {call_id for i in mentioned for call_id in result.mentions & self.pending[i].ids}
        return mentioned if len(names) == 1 else []

    def _assign_in_order(
        self, results: Sequence[WrittenResult], *, name: str | None, has_id: bool
    ) -> None:
        """Assign results to as many calls without a result, of the last messages or of all.

        Args:
            results: results of which none names a call that is known.
            name: the tool that they name, if any.
            has_id: they name calls that are not known, so only calls without an id are meant.
        """
        for first in (self.latest, 0):
            indices = [
                i
                for i, call in enumerate(self.pending)
                if i >= first and name in {None, call.name} and not (has_id and call.ids)
            ]
            if len(indices) == len(results):
                if name is None or len(indices) > 1:
                    self._add_loss("by_order", ", ".join(self.pending[i].name for i in indices))
                for i, result in reversed([*zip(indices, results, strict=True)]):
                    self._assign(i, result)
                return
            if indices:
                break
        for result in results:
            value = result.value
            text = value if isinstance(value, str) else json_or_repr(value)
            self._add_loss("stray_result", text)
            if self.turns and not self.turns[-1].calls:
                self.without_call.append(text[:_SHOWN_CHARS])

    def _assign(self, index: int, result: WrittenResult) -> None:
        call = self.pending.pop(index)
        self.latest -= index < self.latest
        if result.problem:
            self._add_loss("unread_result", f"{call.name}: {result.problem}")
            return
        if result.key != "content":
            self._add_loss("result_key", f"{call.name}: {result.key}")
        if result.value is None:
            self._add_loss("null_result", call.name)
        turn, number = call.position
        turn.calls[number] = replace(
            turn.calls[number],
            result=result.value,
            has_result=True,
            is_error=result.is_error,
        )


def history_rows(turn: RecordedTurn) -> Iterator[dict[str, Any]]:
    """Yield the messages of a turn before the one that is scored, as rows of `world.history`."""
    yield {"user": turn.user}
    yield from map(recorded_row, turn.calls)
    for text in turn.replies[-1:]:
        yield {"assistant": text}


def recorded_row(recorded: RecordedCall) -> dict[str, Any]:
    """Return a call with its result; an empty one if it is not known."""
    result = recorded.result if recorded.has_result else ""
    return {"tool": recorded.call.name, "args": recorded.call.args, "result": result}
