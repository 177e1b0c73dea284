"""Chats that people had, kept as a run: one sample each, whole after every turn."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from time import monotonic
from typing import Any, Final

from lhkit.errors import UsageError
from lhkit.events import ChatEvent, TurnEnded, TurnStarted
from lhkit.files import DRAFT
from lhkit.harness.author.from_chat import state_tables
from lhkit.harness.fingerprint import sha256, tool_specs
from lhkit.harness.manifest import Manifest, Prompt, versions
from lhkit.harness.record import (
    SCHEMA,
    Evidence,
    Judgement,
    SampleId,
    SampleRecord,
    TurnRecord,
    Verdict,
    Vote,
)
from lhkit.harness.results import Run
from lhkit.harness.reviews import forget_labels
from lhkit.harness.sessions import LiveSession
from lhkit.harness.state_diff import state_diff
from lhkit.harness.store import RECORDS, leave_only, open_journal, read_manifest, write_manifest
from lhkit.harness.turn_record import Timed, turn_record
from lhkit.messages import UserMessage
from lhkit.responses import ModelIdentity

PERSON: Final = "person"
"""In a manifest, under `user`: people said and clicked what stands in the records."""

UNJUDGED = "nobody has judged this chat"
"""Why a kept chat counts neither as passed nor as failed."""

_UNJUDGED: Final = Judgement(verdict=Verdict.INVALID, reasons=(UNJUDGED,))

_WAIT_S = 5.0
"""Another panel has the folder for as long as it writes a line."""


class ChatRecorder:
    """Keeps one conversation after another in a folder that `Run.load` reads.

    After each turn the whole conversation is written once more, as a line of its own: the newest
    line of a chat counts, so that a turn is there whole or not at all, whenever the process ends.

    Args:
        folder: where chats are kept; several panels may share it, over the same toolset.
        surroundings: what is talked about.
        now: the clock that chats are named by.
        clock: monotonic seconds.
        model: who answers in all of them, where the folder is one model's.

    Raises:
        UsageError: the folder holds something else.
        RunError: its manifest cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        surroundings: LiveSession,
        *,
        now: Callable[[], datetime],
        clock: Callable[[], float] = monotonic,
        model: ModelIdentity | None = None,
    ) -> None:
        self.folder = folder
        self._model = model
        self._surroundings = surroundings
        self._now = now
        self._clock = clock
        self._manifest()
        self.begin()

    def begin(self, surroundings: LiveSession | None = None) -> None:
        """Begin another conversation, in the world as it is now, or in other surroundings."""
        self._surroundings = surroundings or self._surroundings
        self._vote: Vote | None = None
        self._begun = self._surroundings.world()
        self._began_at = self._now()
        self._name = ""
        self._locale = ""
        self._earlier: list[TurnRecord] = []
        self._user = ""
        self._events: list[Timed] = []
        self._is_kept = True

    def hear(self, event: ChatEvent) -> None:
        """Take in an event of the controller."""
        match event:
            case TurnStarted(message=UserMessage(text=text)):
                self._earlier = self._turns()
                self._user, self._events = text, []
            case TurnStarted() if self._events:  # the same turn after a fault, without the pause
                pause_s = self._clock() - self._events[-1][0]
                self._events = [(at_s + pause_s, each) for at_s, each in self._events]
                return
            case TurnEnded():
                self._is_kept = False
            case _:
                pass
        self._events.append((self._clock(), event))

    def take_back(self) -> None:
        """Forget the last turn: it is asked again."""
        self._events = []

    @property
    def name(self) -> str:
        """What the conversation is kept as; empty until it was written once."""
        return self._name

    def vote(self, vote: Vote) -> None:
        """Hold the conversation so far for judged; it is written with the next `keep`."""
        self._vote, self._is_kept = vote, False

    def keep(self, locale: str, *, name: str = "") -> None:
        """Write the conversation so far, if a turn has ended since it was last written.

        What a fault left unwritten is written the next time.

        Args:
            locale: the language.
            name: what a conversation that was not written yet is called; by default a free one.

        Raises:
            RunError: it cannot be written.
            UsageError: the toolset's state cannot be read, or the folder holds something else.
        """
        if self._is_kept:
            return
        record = self.record(locale)
        is_new = not self._name
        if is_new:  # of earlier chats only the last line is needed
            leave_only(self.folder, lambda _record: True, wait_s=_WAIT_S)
        with open_journal(self.folder, wait_s=_WAIT_S, reads=is_new) as journal:
            if locale != self._locale:
                self._tell(locale)
            name = self._name or name or _free_name(self._began_at, journal.found)
            journal.append(replace(record, sample_id=SampleId(scenario=name)))
        self._name, self._locale, self._is_kept = name, locale, True

    def _turns(self) -> list[TurnRecord]:
        if not self._events:
            return self._earlier
        registry = self._surroundings.session.registry
        turn = turn_record(self._user, self._events, destructive=registry.destructive)
        return [*self._earlier, turn]

    def record(self, locale: str) -> SampleRecord:
        """Return the conversation so far as it is kept.

        Raises:
            UsageError: the toolset's state cannot be read.
        """
        turns = tuple(self._turns())
        before, after = state_tables(self._begun), state_tables(self._surroundings.world())
        present = self._begun.get("now")
        said = "\n".join(turn.user for turn in turns)
        return SampleRecord(
            sample_id=SampleId(scenario=self._name),
            content_hash=sha256(said),
            ac="chat",
            locale=locale,
            judgement=self._vote.judgement if self._vote else _UNJUDGED,
            evidence=Evidence(turns=turns, initial_state=before, final_state=after),
            state_diff=state_diff(before, after),
            wall_s=sum(turn.duration_s for turn in turns),
            started_at=present if isinstance(present, str) else self._began_at.isoformat(),
            vote=self._vote,
        )

    def _tell(self, locale: str) -> None:
        """Write down which tools the records are about."""
        before = self._manifest()
        tools = tool_specs(self._surroundings.session.registry)
        facts: dict[str, Any] = {
            "schema_version": SCHEMA,
            "versions": versions(),
            "toolset": self._surroundings.toolset_name,
            "user": PERSON,
            "locales": {**before.locales, locale: Prompt.model_construct(tools=tools)},
        }
        if self._model is not None:
            facts["models"] = [asdict(self._model)]
        manifest = before.model_copy(update=facts)
        if manifest.plain() != before.plain():
            write_manifest(self.folder, manifest.plain())

    def _manifest(self) -> Manifest:
        """Return what the folder says; empty if nothing is kept there yet."""
        found, toolset = read_manifest(self.folder), self._surroundings.toolset_name
        manifest, records = Manifest.of(found), self.folder / RECORDS
        if not found and not (records.exists() and records.stat().st_size):
            return manifest  # an empty file: nothing came of an earlier try
        _require_chats(self.folder, manifest)
        if manifest.toolset != toolset:
            raise UsageError(
                f"{self.folder} keeps chats over {manifest.toolset}, and this one is over "
                f"{toolset}: keep it in another folder"
            )
        if self._model is not None and (others := _others(manifest, self._model)):
            raise UsageError(
                f"{self.folder} keeps conversations with {others}, and this is another model under "
                "the same name: keep them in another folder"
            )
        return manifest


_WHO = ("model", "dialect", "constraint", "stress", "weights", "weights_sha256")
"""What makes a model another one; its server and address may change from day to day."""


def _others(manifest: Manifest, model: ModelIdentity) -> str:
    """Return which other models answered in a folder that is to be this model's."""
    models = manifest.models
    is_it = all(each.get(what) == getattr(model, what) for each in models for what in _WHO)
    return "" if is_it else ", ".join(str(each.get("model")) for each in models)


def _free_name(began_at: datetime, found: Sequence[SampleRecord]) -> str:
    taken = {record.sample_id.scenario for record in found}
    name = f"chat-{began_at:%Y%m%d-%H%M%S}"
    others = (f"{name}-{number}" for number in count(2))
    return next(each for each in chain([name], others) if each not in taken)


def load_chats(folder: Path) -> Run:
    """Return the kept chats of a folder, oldest name first.

    Raises:
        MissingRunError: the folder holds no run.
        RunError: a line is no record.
        UsageError: it is a run that was played.
    """
    run = Run.load(folder)
    _require_chats(folder, Manifest.of(run.manifest))
    return run


def forget_chats(folder: Path, names: Collection[str] | None = None) -> tuple[str, ...]:
    """Remove chats from a folder, or all of them, with their labels, and return their names.

    Raises:
        UsageError: there is no such chat (then all stay), or the folder holds a played run.
        RunError: the folder is in use or cannot be written.
    """
    there = [record.sample_id.scenario for record in load_chats(folder).records]
    gone = tuple(there if names is None else dict.fromkeys(names))
    if missing := [name for name in gone if name not in there]:
        raise UsageError(f"{folder} keeps no chat {missing[0]!r}: see `lhkit chats list {folder}`")
    forget_labels(folder, None if names is None else gone)  # first: the records name the chats
    leave_only(folder, lambda record: record.sample_id.scenario not in gone, wait_s=_WAIT_S)
    for draft in folder.glob(f"{DRAFT}*"):  # of a process that was killed: words may be in it
        draft.unlink()
    return gone


def _require_chats(folder: Path, manifest: Manifest) -> None:
    if manifest.user != PERSON:
        raise UsageError(f"{folder} holds a run that was played: keep chats in another folder")
