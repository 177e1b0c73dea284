"""What a draft says to a person: its source, the reason, and what has to be decided. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lhkit.base.json_values import shown
from lhkit.base.locales import Catalog
from lhkit.base.text import NOTHING, one_line, visible
from lhkit.harness.chats.drafts import Draft, DraftKind, DraftSource, Finding

_MAX_CHARS = 80


def source_text(chat: str, turn: int, catalog: Catalog) -> str:
    """Return a turn of a chat, which counts from 0, such as `chat-20260615-120000, turn 2`."""
    return f"{chat}, {catalog.text('review.turn_number', number=turn + 1)}"


def sources_text(sources: Iterable[DraftSource], catalog: Catalog) -> str:
    """Return turns of chats, in one line."""
    return "; ".join(source_text(each.chat, each.turn, catalog) for each in sources)


def finding_lines(findings: Iterable[Finding], catalog: Catalog) -> Iterator[str]:
    """Yield why a turn may be wrong, a line for each finding."""
    for finding in findings:
        words = one_line(visible(finding.words, keep_emoji=True), max_chars=_MAX_CHARS)
        key = _key(finding)
        if finding.kind is DraftKind.REJECTION and words:
            key = "rejection_why"
        edits = ", ".join(_edits(finding.args or {}, finding.edited or {}))
        yield catalog.text(f"suggest.{key}", tool=finding.tool, edits=edits, words=words)


def _key(finding: Finding) -> str:
    if finding.kind is DraftKind.CONFLICT:
        return "denial" if finding.was_written else "claim"
    return finding.kind


def _edits(proposed: Mapping[str, Any], edited: Mapping[str, Any]) -> Iterator[str]:
    for name, value in edited.items():
        old = visible(shown(proposed[name])) if name in proposed else NOTHING
        new = NOTHING if value is None else visible(shown(value))
        yield f"{visible(name)} {old} → {new}"


def question_text(draft: Draft, catalog: Catalog) -> str:
    """Return what a person has to decide on a draft: what yes means, and what is not known."""
    kind = draft.kinds[0]
    if kind is DraftKind.EDIT:
        return catalog.text("suggest.ask_edit")
    if draft.calls and DraftKind.REJECTION in draft.kinds:
        return catalog.text("suggest.ask_corrected")
    if draft.calls and DraftKind.REPEAT in draft.kinds:
        return catalog.text("suggest.ask_repeat_done")
    return catalog.text(f"suggest.ask_{_key(draft.findings[0])}")


def kind_counts(drafts: Iterable[Draft], catalog: Catalog) -> str:
    """Return how many drafts there are of each kind, in one line; empty without any."""
    found = [kind for draft in drafts for kind in draft.kinds]
    counts = {kind: found.count(kind) for kind in DraftKind if kind in found}
    return ", ".join(
        catalog.text(f"suggest.count_{kind}", count=count) for kind, count in counts.items()
    )
