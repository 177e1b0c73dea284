"""Write drafts of scenarios for what went wrong in recorded chats."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from lhkit.base.errors import LhkitError, NotIsolatedError, UsageError
from lhkit.harness.chats.chats import load_chats
from lhkit.harness.chats.draft_scenarios import completed, scenario_document
from lhkit.harness.chats.drafts import Draft, DraftSource, DraftWriter, open_drafts
from lhkit.harness.chats.reviews import turn_sha256
from lhkit.harness.exports.findings import Candidate, candidates, cluster_key
from lhkit.harness.exports.similarity import NEAR, similarity
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import SampleRecord
from lhkit.toolset import Toolset, name_of, require_isolated


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A turn without a draft: `turn` counts from 0, and `why` is an English sentence."""

    chat: str
    turn: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestions:
    """The result of `suggest`.

    Attributes:
        chats: the number of chats that were read.
        drafts: the new drafts.
        near: the number of new sources of drafts: near-duplicates of them.
        known: the number of turns that the file had already.
        left_out: the turns without a draft.
        open: the number of drafts in the file that wait for a decision.
    """

    chats: int
    drafts: tuple[Draft, ...]
    near: int
    known: int
    left_out: tuple[LeftOut, ...]
    open: int


async def suggest(folder: Path, file: Path, toolset: Toolset) -> Suggestions:
    """Write a draft for each turn of recorded chats that may be wrong.

    The drafts are appended to a file of drafts. Turns that it has already are skipped, and a
    near-duplicate of a draft is added to its sources, whatever was decided on it.

    Args:
        folder: the recorded chats.
        file: the file of drafts; it is created if it does not exist.
        toolset: the tools of the chats, which run the calls of each draft once.

    Raises:
        MissingRunError: the folder has no chats.
        NotIsolatedError: sessions of the toolset share real data.
        RunError: a record or a draft is invalid, or the file cannot be written.
        UsageError: the folder has a run, or chats or drafts with another toolset, or the file is
            another one.
    """
    require_isolated(toolset, "make the calls of a draft")
    run = load_chats(folder)
    _require_toolset(run.toolset, toolset, folder)
    with open_drafts(file) as writer:
        for draft in writer.content.drafts.values():
            _require_toolset(draft.toolset, toolset, file)
        drafter = _Drafter(writer, toolset, str(folder))
        claims = _claims_of(run.manifest)
        for record in run.records:
            for candidate in candidates(record, claims):
                await drafter.take(record, candidate)
        return Suggestions(
            chats=len(run.records),
            drafts=tuple(drafter.drafts),
            near=drafter.near,
            known=drafter.known,
            left_out=tuple(drafter.left_out),
            open=len(writer.content.open),
        )


def _claims_of(manifest: Manifest) -> Mapping[str, Sequence[str]]:
    """Return the success phrases of each tool, in all languages."""
    specs = [spec for prompt in manifest.locales.values() for spec in prompt.tools]
    return {spec["name"]: [*chain.from_iterable(spec.get("claims", {}).values())] for spec in specs}


def _require_toolset(name: str, toolset: Toolset, place: Path) -> None:
    if name != name_of(toolset):
        raise UsageError(
            f"{place} was made with the toolset {name}, and this one is {name_of(toolset)}. Give "
            "its own as --toolset FILE.py:NAME."
        )


class _Drafter:
    """Makes drafts of candidates, and keeps count."""

    def __init__(self, writer: DraftWriter, toolset: Toolset, folder: str) -> None:
        self._writer, self._toolset, self._folder = writer, toolset, folder
        self.drafts: list[Draft] = []
        self.left_out: list[LeftOut] = []
        self.near = self.known = 0
        content = writer.content
        self._known = {source.key for name in content.drafts for source in content.sources_of(name)}
        self._clusters: dict[tuple[object, ...], list[tuple[str, str]]] = defaultdict(list)
        for draft in content.drafts.values():
            self._remember(draft)

    def _remember(self, draft: Draft) -> None:
        """Let later near-duplicates of a draft be found, by the message of its last turn."""
        key = cluster_key(draft.locale, draft.findings, is_known=bool(draft.calls))
        self._clusters[key].append((draft.scenario["turns"][-1]["user"], draft.id))

    async def take(self, record: SampleRecord, candidate: Candidate) -> None:
        """Append a draft, or a source to the draft that the candidate is a near-duplicate of."""
        turn = record.trajectory.turns[candidate.turn]
        source = DraftSource(
            folder=self._folder,
            chat=str(record.sample_id),
            turn=candidate.turn,
            turn_sha256=turn_sha256(turn),
        )
        if source.key in self._known:
            self.known += 1
            return
        is_known = bool(candidate.proposal.calls)
        key = cluster_key(record.locale, candidate.findings, is_known=is_known)
        for message, name in self._clusters[key]:
            if similarity(message, turn.user) >= NEAR:
                self._writer.add_near(name, source)
                self.near += 1
                return
        try:
            draft = await self._draft(record, candidate, source)
        except NotIsolatedError:
            raise
        except LhkitError as error:
            left_out = LeftOut(chat=source.chat, turn=source.turn, why=str(error))
            self.left_out.append(left_out)
            return
        self._writer.add(draft)
        self._remember(draft)
        self.drafts.append(draft)

    async def _draft(
        self, record: SampleRecord, candidate: Candidate, source: DraftSource
    ) -> Draft:
        kinds = sorted({finding.kind for finding in candidate.findings})
        document = scenario_document(
            record,
            candidate.turn,
            candidate.proposal,
            scenario_id=self._unused_id(source),
            tags=kinds,
        )
        scenario = await completed(document, self._toolset)
        return Draft(
            id=scenario["id"],
            source=source,
            locale=record.locale,
            findings=candidate.findings,
            scenario=scenario,
            toolset=name_of(self._toolset),
        )

    def _unused_id(self, source: DraftSource) -> str:
        """Return an id for the scenario of a turn that no draft of the file has."""
        slug = re.sub(r"[^a-z0-9.]+", "-", source.chat.lower()).strip("-.") or "chat"
        name = f"{slug}-turn-{source.turn + 1}"
        names = chain([name], (f"{name}.{number}" for number in count(2)))
        return next(each for each in names if each not in self._writer.content.drafts)
