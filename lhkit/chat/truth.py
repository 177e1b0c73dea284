"""The lines of truth under a reply: the writes of a turn, from its calls and not its words.

Each call that wrote, or may have, has one line of its own. Values of arguments and rows are
quoted, so that no title looks like another write.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from lhkit.base.json_values import json_or_repr
from lhkit.base.locales import Catalog
from lhkit.base.text import NOTHING, one_line, visible
from lhkit.chat.claims import sentences, success_phrases
from lhkit.confirm.decision import changed_arguments
from lhkit.conversation.messages import (
    ChangeKind,
    ClaimReason,
    FalseReplyClaim,
    GateOutcome,
    Message,
    RowChange,
    ToolCallMessage,
    ToolCallOutcome,
)

ClaimGuess: TypeAlias = Callable[[str, Sequence[Message]], FalseReplyClaim | None]
"""Takes (reply of the turn, messages of the conversation); returns words that may be a lie."""

_VALUE_CHARS = 40
_VALUES = 4
_CLAIM_CHARS = 80


class TruthKind(StrEnum):
    """What is known of a call that writes, and `NOTHING` for a turn without one."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    RAN = "ran"
    FAILED = "failed"
    NOT_RUN = "not_run"
    UNASKED = "unasked"
    NOTHING = "nothing"

    @property
    def has_written(self) -> bool:
        """True if a reply may claim the write."""
        return self in {TruthKind.CHANGED, TruthKind.RAN, TruthKind.UNASKED}


def truth_kind(call: ToolCallMessage) -> TruthKind | None:
    """Return the effect of a call; None if it is pending or not known to write."""
    outcome = call.outcome
    if outcome is None:
        return None
    was_asked = outcome.gate is not None and outcome.gate.was_asked
    if not outcome.ran:
        return TruthKind.NOT_RUN if was_asked else None
    if outcome.gate is GateOutcome.POLICY:
        kind = _effect(outcome)
        return TruthKind.UNASKED if kind.has_written else kind
    if not was_asked:
        return TruthKind.UNASKED if outcome.changes or outcome.changed else None
    return _effect(outcome)


def _effect(outcome: ToolCallOutcome) -> TruthKind:
    """Return the effect of a destructive call that ran."""
    if outcome.changes:
        return TruthKind.CHANGED
    changed = outcome.changed
    is_unchanged = outcome.changes is not None and not changed
    if outcome.code == "ok":
        return TruthKind.UNCHANGED if is_unchanged or changed is False else TruthKind.RAN
    is_refused = not changed if changed is not None else _RULE.fullmatch(outcome.code)
    return TruthKind.UNCHANGED if is_unchanged or is_refused else TruthKind.FAILED


_RULE = re.compile(r"r\d+_\w+")  # the code of a declared rule, which refuses before it writes


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthLine:
    """One line: the effect of a call, or that no write ran."""

    kind: TruthKind
    text: str


def truth_line(calls: Iterable[ToolCallMessage], catalog: Catalog) -> str:
    """Return the writes of a turn, a line for each, such as `Changed: habits +1 · tea`.

    Args:
        calls: the calls of the turn, such as `Transcript.calls_of_this_turn`.
        catalog: texts.

    Returns:
        A line for each call that wrote or may have written, and for each that the user did not
        approve; without any of them, that nothing was run that writes.
    """
    return "\n".join(line.text for line in truth_lines(calls, catalog))


def truth_lines(calls: Iterable[ToolCallMessage], catalog: Catalog) -> tuple[TruthLine, ...]:
    """Return the lines of `truth_line`, each with its kind; never empty."""
    lines: list[TruthLine] = []
    for call in calls:
        kind = truth_kind(call)
        if kind is not None and call.outcome is not None:
            what = _what(call.name, call.outcome, kind, catalog)
            is_policy = call.outcome.gate is GateOutcome.POLICY
            key = _BY_POLICY.get(kind, kind) if is_policy else kind
            lines.append(TruthLine(kind=kind, text=catalog.text(f"truth.{key}", what=what)))
    if not lines:
        lines.append(TruthLine(kind=TruthKind.NOTHING, text=catalog.text("truth.nothing")))
    return tuple(lines)


_BY_POLICY = {TruthKind.UNCHANGED: "unasked_unchanged", TruthKind.FAILED: "unasked_failed"}


def find_false_claim(
    reply: str, calls: Iterable[ToolCallMessage], claims: Mapping[str, Sequence[str]]
) -> FalseReplyClaim | None:
    """Return the first success phrase in a reply whose write did not happen in its turn.

    A phrase of several tools is true if any of them wrote. If none of them was called, it may be
    meant for another tool that wrote.

    Args:
        reply: the text of the turn.
        calls: the calls of the turn.
        claims: success phrases, by writing tool.

    Raises:
        UsageError: a pattern takes too long.
    """
    made = tuple(calls)
    kinds = [(call.name, truth_kind(call)) for call in made]
    has_written = any(kind is not None and kind.has_written for _, kind in kinds)
    is_cancelled = any(kind is TruthKind.NOT_RUN for _, kind in kinds)
    has_only_read = bool(made) and all(map(_is_read, made))
    for sentence, masked in sentences(reply):
        for phrase in success_phrases(masked, claims):
            own = [kind for tool, kind in kinds if tool in phrase.tools]
            if any(kind is not None and kind.has_written for kind in own):
                continue
            if not own and (has_written or (phrase.is_state and has_only_read)):
                continue
            if not own and is_cancelled and _CANCELLED.search(phrase.words):
                continue  # the question that the user answered with no
            words = sentence.strip()
            words = words if len(words) <= _CLAIM_CHARS else phrase.words[:_CLAIM_CHARS]
            reason = _REASONS.get(own[-1], ClaimReason.NOT_RUN) if own else ClaimReason.NOTHING
            return FalseReplyClaim(words=words, reason=reason)
    return None


def _is_read(call: ToolCallMessage) -> bool:
    """Return whether a call ran without a question and wrote nothing that is known."""
    return call.outcome is not None and call.outcome.ran and truth_kind(call) is None


_CANCELLED = re.compile(r"취소|cancel", re.IGNORECASE)


_REASONS: Mapping[TruthKind | None, ClaimReason] = {
    TruthKind.UNCHANGED: ClaimReason.UNCHANGED,
    TruthKind.FAILED: ClaimReason.FAILED,
}


def claim_text(claim: FalseReplyClaim, catalog: Catalog) -> str:
    """Return the sentence that marks a reply which contradicts the lines of truth."""
    words = one_line(visible(claim.words, keep_emoji=True), max_chars=_CLAIM_CHARS)
    return catalog.text(f"truth.claim_{'guess' if claim.is_guess else claim.reason}", words=words)


def _what(tool: str, outcome: ToolCallOutcome, kind: TruthKind, catalog: Catalog) -> str:
    """Return the effect of a call, or of one that did not run, on one line."""
    changes = "; ".join(_change(change, catalog) for change in outcome.changes or ())
    args = outcome.effective_args or {}
    if kind is TruthKind.CHANGED:
        what, notes = changes, []
    else:
        values = ", ".join(_values(args))
        what = " · ".join(filter(None, [_visible_line(tool), values]))
        notes = [changes]
    if kind in _KNOWN_STATES and outcome.code != "ok":
        notes.append(_bare(outcome.code))
    if outcome.run_args is not None:
        edits = ", ".join(_edits(outcome.args or {}, outcome.run_args))
        notes.append(catalog.text("truth.edited", edits=edits) if edits else "")
    return " ".join([what, *(f"({note})" for note in notes if note)])


_KNOWN_STATES = frozenset({TruthKind.CHANGED, TruthKind.UNCHANGED, TruthKind.UNASKED})
"""The kinds that do not say whether the call failed."""


def _change(change: RowChange, catalog: Catalog) -> str:
    """Return a change of a table, such as `habits +1 · caffeine-cutoff`."""
    table = _bare(change.table)
    if change.kind is ChangeKind.REORDERED:
        return f"{table} {catalog.text('truth.reordered')}"
    rows = [" ".join(_bare(value) for value in row) for row in change.rows]
    more = change.count - len(rows)
    rows += [f"… (+{more})"] if rows and more > 0 else []
    names = ", ".join(filter(None, rows))
    counted = f"{table} {_SIGNS[change.kind]}{change.count}"
    return f"{counted} · {names}" if names else counted


_SIGNS = {ChangeKind.ADDED: "+", ChangeKind.REMOVED: "-", ChangeKind.MODIFIED: "~"}


def _edits(proposed: Mapping[str, Any], args: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the user changed, such as `to "Kim" → "Lee"`."""
    names = [*changed_arguments(proposed, args)]
    for name in names[:_VALUES]:
        old, new = (_quoted(each[name]) if name in each else NOTHING for each in (proposed, args))
        yield f"{_bare(name)} {old} → {new}"
    if len(names) > _VALUES:
        yield f"… (+{len(names) - _VALUES})"


def _values(args: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids and names among the arguments, else all texts and numbers, in their order."""
    scalars = {name: [*_scalars(value)] for name, value in args.items()}
    named = {name: values for name, values in scalars.items() if _NAMES.search(name)}
    chosen = named if any(named.values()) else scalars
    shown = [
        _bare(value) if _IDS.search(name) else _quoted(value)
        for name, values in chosen.items()
        for value in values
    ]
    yield from shown[:_VALUES]
    if len(shown) > _VALUES:
        yield f"… (+{len(shown) - _VALUES})"


def _scalars(value: Any) -> Iterator[str | int | float]:
    """Yield the texts and numbers of an argument, also nested ones."""
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            yield from _scalars(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield value


_IDS = re.compile(r"(?i:(?:^|_)ids?)$|[a-z0-9]I[dD]s?$")
_NAMES = re.compile(rf"{_IDS.pattern}|^(?:name|title|path)$")
_PLAIN = re.compile(r"\w[\w.-]*")


def _bare(value: Any) -> str:
    """Return a plain id or name as it is, anything else quoted."""
    if isinstance(value, str) and len(value) <= _VALUE_CHARS and _PLAIN.fullmatch(value):
        return value if visible(value) == value else _quoted(value)
    return _quoted(value)


def _quoted(value: Any) -> str:
    """Return a value on one line without invisible characters, a text in quotes.

    A quote inside is escaped, and so are the backslashes before one; others stay, as on the card.
    """
    if not isinstance(value, str):
        text = _visible_line(json_or_repr(value))
        if len(text) <= _VALUE_CHARS:
            return text
        return {"[": "[…]", "{": "{…}"}.get(text[0], f"{text[: _VALUE_CHARS - 1]}…")
    is_long = len(value) > _VALUE_CHARS
    text = _visible_line(f"{value[: _VALUE_CHARS - 1]}…" if is_long else value)
    return f'"{_BEFORE_QUOTE.sub(_escape_quote, text)}"'


_BEFORE_QUOTE = re.compile(r'(\\*)("|\Z)')


def _escape_quote(match: re.Match[str]) -> str:
    return match[1] * 2 + ('\\"' if match[2] else "")


def _visible_line(text: str) -> str:
    return visible(text).replace("\n", "\\n")
