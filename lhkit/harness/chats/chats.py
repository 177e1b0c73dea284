"""Recorded chats of people: a run folder with one sample for each chat."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from time import monotonic
from typing import Any, Final

from lhkit.base.errors import UsageError
from lhkit.base.files import DRAFT
from lhkit.conversation.events import ChatEvent, TurnEnded, TurnStarted
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.authoring.from_chat import state_tables
from lhkit.harness.chats.reviews import forget_labels
from lhkit.harness.records.manifest import Manifest, Prompt, versions
from lhkit.harness.records.record import (
    SCHEMA,
    SampleRecord,
    SampleScore,
    Trajectory,
    TurnRecord,
    Verdict,
    Vote,
)
from lhkit.harness.records.store import (
    RECORDS,
    open_journal,
    prune_records,
    read_manifest,
    write_manifest,
)
from lhkit.harness.records.turn_record import Timed, turn_record
from lhkit.harness.results.results import Run
from lhkit.harness.running.fingerprint import sha256, tool_specs
from lhkit.harness.running.sessions import LiveSession
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scoring.state import state_diff

PERSON: Final = "person"
"""The `user` of a manifest of recorded chats."""

UNJUDGED = "the chat has no verdict"
"""The reason for the verdict `invalid` of a recorded chat."""

_UNJUDGED: Final = SampleScore(verdict=Verdict.INVALID, reasons=(UNJUDGED,))

_WAIT_S = 5.0
"""Another panel locks the folder while it writes a line."""


class ChatRecorder:
    """Records conversations in a folder that `Run.load` reads.

    After each turn the whole conversation is written as a new line, and the newest line of a chat
    counts: a turn is stored whole or not at all, whenever the process ends.

    Args:
        folder: the folder of chats; several panels with the same toolset may share it.
        session: the live session of the conversation.
        now: the clock for the names of chats.
        clock: monotonic seconds.
        model: the model of all conversations, if the folder has only one.

    Raises:
        UsageError: the folder has a run, or chats with another toolset or model.
        RunError: its manifest cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        session: LiveSession,
        *,
        now: Callable[[], datetime],
        clock: Callable[[], float] = monotonic,
        model: ModelIdentity | None = None,
    ) -> None:
        self.folder = folder
        self._model = model
        self._live = session
        self._now = now
        self._clock = clock
        self._manifest()
        self.begin()

    def begin(self, session: LiveSession | None = None) -> None:
        """Begin another conversation, from the present state or in another session."""
        self._live = session or self._live
        self._vote: Vote | None = None
        self._initial_state = self._live.world()
        self._began_at = self._now()
        self._name = ""
        self._locale = ""
        self._earlier: list[TurnRecord] = []
        self._user = ""
        self._events: list[Timed] = []
        self._is_saved = True

    def handle(self, event: ChatEvent) -> None:
        """Record an event of the controller."""
        match event:
            case TurnStarted(message=UserMessage(text=text)):
                self._earlier = self._turns()
                self._user, self._events = text, []
            case TurnStarted() if self._events:  # a retried turn, recorded without the pause
                pause_s = self._clock() - self._events[-1][0]
                self._events = [(at_s + pause_s, earlier) for at_s, earlier in self._events]
                return
            case TurnEnded():
                self._is_saved = False
            case _:
                pass
        self._events.append((self._clock(), event))

    def discard_turn(self) -> None:
        """Discard the last turn, which the user sends again."""
        self._events = []

    @property
    def name(self) -> str:
        """The name of the saved conversation; empty until it is first saved."""
        return self._name

    def vote(self, vote: Vote) -> None:
        """Set the vote on the conversation, for the next `save`."""
        self._vote, self._is_saved = vote, False

    def save(self, locale: str, *, name: str = "") -> None:
        """Write the conversation so far, if a turn has ended since the last `save`.

        Args:
            locale: the language.
            name: the name of a new conversation; by default an unused one.

        Raises:
            RunError: the folder cannot be written; the next call writes everything.
            UsageError: the toolset's state cannot be read, or the folder has other records.
        """
        if self._is_saved:
            return
        record = self.record(locale)
        is_new = not self._name
        if is_new:  # drops all but the last line of earlier chats
            prune_records(self.folder, lambda _record: True, wait_s=_WAIT_S)
        with open_journal(self.folder, wait_s=_WAIT_S, reads=is_new) as journal:
            if locale != self._locale:
                self._update_manifest(locale)
            name = self._name or name or _unused_name(self._began_at, journal.records)
            journal.append(replace(record, sample_id=SampleId(scenario=name)))
        self._name, self._locale, self._is_saved = name, locale, True

    def _turns(self) -> list[TurnRecord]:
        if not self._events:
            return self._earlier
        registry = self._live.session.registry
        turn = turn_record(self._user, self._events, destructive=registry.destructive)
        return [*self._earlier, turn]

    def record(self, locale: str) -> SampleRecord:
        """Return the record of the conversation so far.

        Raises:
            UsageError: the toolset's state cannot be read.
        """
        turns = tuple(self._turns())
        before, after = state_tables(self._initial_state), state_tables(self._live.world())
        present = self._initial_state.get("now")
        messages = "\n".join(turn.user for turn in turns)
        return SampleRecord(
            sample_id=SampleId(scenario=self._name),
            content_hash=sha256(messages),
            locale=locale,
            score=self._vote.score if self._vote else _UNJUDGED,
            trajectory=Trajectory(turns=turns, initial_state=before, final_state=after),
            state_diff=state_diff(before, after),
            wall_s=sum(turn.duration_s for turn in turns),
            started_at=present if isinstance(present, str) else self._began_at.isoformat(),
            vote=self._vote,
        )

    def _update_manifest(self, locale: str) -> None:
        before = self._manifest()
        tools = tool_specs(self._live.session.registry)
        metadata: dict[str, Any] = {
            "schema_version": SCHEMA,
            "versions": versions(),
            "toolset": self._live.toolset_name,
            "user": PERSON,
            "locales": {**before.locales, locale: Prompt.model_construct(tools=tools)},
        }
        if self._model is not None:
            metadata["models"] = [asdict(self._model)]
        manifest = before.model_copy(update=metadata)
        if manifest.plain() != before.plain():
            write_manifest(self.folder, manifest)

    def _manifest(self) -> Manifest:
        """Return the manifest of the folder; an empty one for a new folder."""
        manifest, toolset = read_manifest(self.folder), self._live.toolset_name
        records = self.folder / RECORDS
        if not manifest.model_fields_set and not (records.exists() and records.stat().st_size):
            return manifest  # the file may be empty after an earlier failure
        _require_chats(self.folder, manifest)
        if manifest.toolset != toolset:
            raise UsageError(
                f"{self.folder} has chats with the toolset {manifest.toolset}, and this one has "
                f"{toolset}. Record it in another folder."
            )
        for other in manifest.models if self._model is not None else ():
            if any(other.get(name) != getattr(self._model, name) for name in _IDENTITY):
                raise UsageError(
                    f"{self.folder} has conversations with {other.get('model')}, and this is "
                    "another model with the same name. Record them in another folder."
                )
        return manifest


_IDENTITY = ("model", "dialect", "constraint", "stress", "weights", "weights_sha256")
"""The fields that distinguish models; server and address may change."""


def _unused_name(began_at: datetime, records: Sequence[SampleRecord]) -> str:
    used = {record.sample_id.scenario for record in records}
    name = f"chat-{began_at:%Y%m%d-%H%M%S}"
    numbered = (f"{name}-{number}" for number in count(2))
    return next(free for free in chain([name], numbered) if free not in used)


def load_chats(folder: Path) -> Run:
    """Return the recorded chats of a folder, in the order of their names.

    Raises:
        MissingRunError: the folder has no records.
        RunError: a line is not a valid record.
        UsageError: the folder has a run instead of chats.
    """
    run = Run.load(folder)
    _require_chats(folder, run.manifest)
    return run


def forget_chats(folder: Path, names: Collection[str] | None = None) -> tuple[str, ...]:
    """Delete chats of a folder (by default all) with their labels, and return their names.

    Raises:
        UsageError: a chat does not exist (then none is deleted), or the folder has a run instead.
        RunError: the folder is in use or cannot be written.
    """
    existing = [record.sample_id.scenario for record in load_chats(folder).records]
    deleted = tuple(existing if names is None else dict.fromkeys(names))
    if missing := [name for name in deleted if name not in existing]:
        raise UsageError(
            f"{folder} has no chat {missing[0]!r}. List them with `lhkit chats list {folder}`."
        )
    forget_labels(folder, None if names is None else deleted)  # first: the records name the chats
    prune_records(folder, lambda record: record.sample_id.scenario not in deleted, wait_s=_WAIT_S)
    for draft in folder.glob(f"{DRAFT}*"):  # left by a killed process, may have chat text
        draft.unlink()
    return deleted


def _require_chats(folder: Path, manifest: Manifest) -> None:
    if manifest.user != PERSON:
        raise UsageError(f"{folder} has a run. Record chats in another folder.")
