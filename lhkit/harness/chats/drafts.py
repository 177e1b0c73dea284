"""Drafts of scenarios from recorded chats, which wait for a person's decision.

A file of drafts has three kinds of JSON lines: drafts, further sources of a draft, and decisions,
of which the newest counts. It is only appended to, so a killed process loses no line.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import TypeAdapter, ValidationError

from lhkit.base.errors import RunError, ScenarioError, UsageError
from lhkit.base.files import open_regular
from lhkit.base.json_values import compact
from lhkit.harness.records.record import first_issue
from lhkit.harness.records.store import Journal, open_journal
from lhkit.harness.scenarios.loader import DRAFTS_KEY
from lhkit.harness.scenarios.scenario import Scenario

SUFFIX: Final = ".jsonl"
_VERSION: Final = 1
_START = f'{{"{DRAFTS_KEY}":{_VERSION},'.encode()
_WAIT_S: Final = 10.0


class DraftKind(StrEnum):
    """Why a turn of a chat may be wrong."""

    EDIT = "edit"  # the user corrected the arguments on the card
    REJECTION = "rejection"  # the user rejected the call
    CONFLICT = "conflict"  # the reply contradicts the lines of truth
    REPEAT = "repeat"  # the user had to ask again


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSource:
    """A turn of a recorded chat; `turn` counts from 0, and the hash is that of a label."""

    folder: str
    chat: str
    turn: int
    turn_sha256: str

    @property
    def key(self) -> tuple[str, int, str]:
        """The turn, wherever the folder is."""
        return self.chat, self.turn, self.turn_sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A reason why a turn may be wrong.

    Attributes:
        kind: the kind.
        tool: the tool of the edited or rejected call.
        args: the arguments that the model proposed.
        edited: the arguments that the user changed; None for those removed.
        words: what the user gave as reason for the rejection, the words of the reply that
            contradict the lines of truth, or the message that repeats the request.
        was_written: for a conflict, whether the reply denies a write that ran.
    """

    kind: DraftKind
    tool: str = ""
    args: Mapping[str, Any] | None = None
    edited: Mapping[str, Any] | None = None
    words: str = ""
    was_written: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A scenario that a person has to confirm.

    Attributes:
        id: the id of the scenario.
        source: the turn that it was made from.
        locale: the language of the chat.
        findings: why that turn may be wrong.
        scenario: the proposed scenario, as a file has it; its last turn is that of the source.
        toolset: the name of the tools.
    """

    id: str
    source: DraftSource
    locale: str
    findings: tuple[Finding, ...]
    scenario: Mapping[str, Any]
    toolset: str

    @property
    def kinds(self) -> tuple[DraftKind, ...]:
        """The kinds of its findings, each once, the most certain first."""
        found = {finding.kind for finding in self.findings}
        return tuple(kind for kind in DraftKind if kind in found)

    @property
    def calls(self) -> tuple[Mapping[str, Any], ...]:
        """The calls that the proposal expects in its last turn."""
        turn = self.scenario["turns"][-1]
        return tuple(turn.get("expect", {}).get("calls", ()))


class Answer(StrEnum):
    """The decision of a person on a draft."""

    YES = "yes"
    EDIT = "edit"  # yes to an edited scenario
    NO = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftDecision:
    """The decision on a draft; `suite` is the file that the scenario was added to."""

    draft: str
    answer: Answer
    reviewer: str
    suite: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NearDuplicate:
    draft: str
    source: DraftSource


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line of the file: exactly one of the last three is not None."""

    lhkit_drafts: Literal[1]
    draft: Draft | None = None
    near: _NearDuplicate | None = None
    decision: DraftDecision | None = None


_LINE = TypeAdapter(_Line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """The content of a file of drafts.

    Attributes:
        drafts: the drafts by id, oldest first.
        near: the sources of near-duplicates, by draft.
        decisions: the newest decisions, by draft.
    """

    drafts: Mapping[str, Draft] = field(default_factory=dict)
    near: Mapping[str, tuple[DraftSource, ...]] = field(default_factory=dict)
    decisions: Mapping[str, DraftDecision] = field(default_factory=dict)

    def sources_of(self, draft: str) -> tuple[DraftSource, ...]:
        """Return the sources of a draft, its own first."""
        return (self.drafts[draft].source, *self.near.get(draft, ()))

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of the drafts without a decision."""
        return tuple(name for name in self.drafts if name not in self.decisions)

    def with_line(self, line: _Line) -> "Drafts":
        """Return the content with one more line.

        Raises:
            ValueError: it belongs to a draft that does not come before it.
        """
        if line.draft is not None:
            return replace(self, drafts={**self.drafts, line.draft.id: line.draft})
        part = line.near or line.decision
        if part is None:
            raise ValueError("it has no draft, source or decision")
        if part.draft not in self.drafts:
            raise ValueError(f"there is no draft {part.draft} before it")
        if isinstance(part, DraftDecision):
            return replace(self, decisions={**self.decisions, part.draft: part})
        known = self.near.get(part.draft, ())
        return replace(self, near={**self.near, part.draft: (*known, part.source)})


class DraftWriter:
    """A locked file of drafts. Create it with `open_drafts`."""

    def __init__(self, journal: Journal, content: Drafts) -> None:
        self._journal = journal
        self.content = content

    def add(self, draft: Draft) -> None:
        """Append a draft, and wait until it is on the disk.

        Raises:
            RunError: the file cannot be written.
        """
        self._append(_Line(lhkit_drafts=_VERSION, draft=draft))

    def add_near(self, draft: str, source: DraftSource) -> None:
        """Append the source of a near-duplicate; as `add`."""
        near = _NearDuplicate(draft=draft, source=source)
        self._append(_Line(lhkit_drafts=_VERSION, near=near))

    def decide(self, decision: DraftDecision) -> None:
        """Append a decision; as `add`."""
        self._append(_Line(lhkit_drafts=_VERSION, decision=decision))

    def _append(self, line: _Line) -> None:
        self.content = self.content.with_line(line)
        fields = {name: value for name, value in asdict(line).items() if value is not None}
        self._journal.append(compact(fields))


@contextmanager
def open_drafts(path: Path) -> Iterator[DraftWriter]:
    """Lock a file of drafts, which may not exist yet, and open it for appending.

    Raises:
        UsageError: it is another file, or its name does not end in `.jsonl`.
        RunError: a line is invalid, the file is in use, or it cannot be written.
    """
    if path.suffix != SUFFIX:
        raise UsageError(f"{path} cannot hold drafts, which are JSON lines: give NAME{SUFFIX}")
    if path.exists():
        read_drafts(path)  # opening the journal drops a half-written line: not that of another file
    lock_name = f".{path.name}.lock"
    with open_journal(
        path.parent, wait_s=_WAIT_S, reads=False, file_name=path.name, lock_name=lock_name
    ) as journal:
        yield DraftWriter(journal, read_drafts(path))


def read_drafts(path: Path) -> Drafts:
    """Return the content of a file of drafts, without a half-written last line.

    Raises:
        UsageError: the file does not exist, or is another one.
        RunError: a line is invalid, or the file cannot be read.
    """
    try:
        with open_regular(path) as file:
            *lines, rest = file.read().split(b"\n")
    except FileNotFoundError as error:
        raise UsageError(
            f"{path} does not exist. Write it with `lhkit chats suggest FOLDER --into {path}`."
        ) from error
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error}. Choose another file.") from error
    first = lines[0] if lines else rest[: len(_START)]
    if not (first.startswith(_START) or (not lines and _START.startswith(first))):
        raise UsageError(
            f"{path} has no drafts of `lhkit chats suggest`. Give that file, or the name of a new "
            "one."
        )
    content = Drafts()
    for number, line in enumerate(lines, start=1):
        try:  # not `validate_json`, which rejects the lone surrogates that records may contain
            parsed = _LINE.validate_python(json.loads(line), strict=False)
            if parsed.draft is not None:
                Scenario.from_data(parsed.draft.scenario)
            content = content.with_line(parsed)
        except (ValueError, RecursionError, ScenarioError) as error:
            why = first_issue(error) if isinstance(error, ValidationError) else error
            raise RunError(
                f"{path}:{number} has an invalid draft ({why}). Remove the line."
            ) from error
    return content
