"""Find turns of recorded chats that may be wrong, by what the people in them did. Pure.

An edit on the card, a rejection, a reply that contradicts the lines of truth, and a request that
has to be repeated are labels without a reviewer. A turn that was stopped or failed has no
reply to judge, and its request may be sent again.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from lhkit.chat.claims import denial, sentences
from lhkit.chat.truth import truth_kind
from lhkit.confirm.decision import QuestionOutcome
from lhkit.conversation.events import EndReason
from lhkit.conversation.messages import GateOutcome
from lhkit.harness.chats.draft_scenarios import (
    Proposal,
    ProposedCall,
    approved_call,
    proposed_call,
    reference_of,
    writes_of,
)
from lhkit.harness.chats.drafts import DraftKind, Finding
from lhkit.harness.exports.similarity import NEAR, similarity
from lhkit.harness.records.record import CallRecord, SampleRecord, TurnRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A turn that may be wrong, counted from 0: why, and what it is proposed to be."""

    turn: int
    findings: tuple[Finding, ...]
    proposal: Proposal


_NOES = frozenset(
    {
        "",  # of a gate that does not say how it was answered
        QuestionOutcome.CANCEL,
        QuestionOutcome.DECLINED,
        QuestionOutcome.ESCAPE,
        QuestionOutcome.TYPED_NO,
        QuestionOutcome.CODE_NO,
    }
)
"""Answers of a user, unlike a time-out or a closed page."""

_COMPLETE = frozenset({EndReason.ANSWERED, EndReason.TOO_LONG})


def candidates(
    record: SampleRecord, claims: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Iterator[Candidate]:
    """Yield the turns of a chat that may be wrong, in order.

    Args:
        record: the chat.
        claims: the success phrases of each writing tool.
    """
    turns = record.trajectory.turns
    repeats = dict(_repeats(turns))
    for number, turn in enumerate(turns):
        again = repeats.get(number)
        refused = [call for call in turn.calls if _is_refused(call)]
        rejected = [call for call in refused if not _is_approved_in(turns[number:], call)]
        findings = [
            *_edits(turn),
            *(_rejection(call) for call in rejected),
            *(_conflicts(turn, claims) if turn.ended in _COMPLETE else ()),
        ]
        if again is not None and not refused:  # what the user refused may be requested again
            findings.append(Finding(kind=DraftKind.REPEAT, words=turns[again].user))
        if findings:
            yield Candidate(
                turn=number,
                findings=tuple(findings),
                proposal=_proposal(
                    turn, None if again is None else turns[again], rejected, findings
                ),
            )


def _proposal(
    turn: TurnRecord,
    again: TurnRecord | None,
    rejected: Sequence[CallRecord],
    findings: Iterable[Finding],
) -> Proposal:
    calls, reference = tuple(map(approved_call, writes_of(turn))), reference_of(turn)
    if not calls and again is not None and (done := _calls_of(again)):
        calls, reference = done, reference_of(again)
    forbidden = [proposed_call(call) for call in rejected]
    denied = [each.words for each in findings if each.was_written]
    return Proposal(
        calls=calls,
        reference=reference,
        forbidden=tuple(call for call in forbidden if call not in calls),
        reason=rejected[-1].reason if rejected else "",
        excluded=tuple(denied),
    )


def _calls_of(turn: TurnRecord) -> tuple[ProposedCall, ...]:
    """Return the writes of a turn that ran; without any, the reads that succeeded."""
    if writes := writes_of(turn):
        return tuple(map(approved_call, writes))
    reads = [proposed_call(call) for call in turn.calls if call.ran and call.outcome == "ok"]
    return tuple(call for i, call in enumerate(reads) if call not in reads[:i])


def _edits(turn: TurnRecord) -> Iterator[Finding]:
    """Yield the calls that succeeded with arguments of the user."""
    for call in writes_of(turn):
        if call.is_edited and call.edited:
            yield Finding(
                kind=DraftKind.EDIT,
                tool=call.tool,
                args=proposed_call(call).args,
                edited=call.edited,
                words=call.reason,
            )


def _is_refused(call: CallRecord) -> bool:
    return call.gate is GateOutcome.REJECTED and call.answer in _NOES


def _is_approved_in(turns: Sequence[TurnRecord], refused: CallRecord) -> bool:
    """Return whether the user approved an equal call after all."""
    call = proposed_call(refused)
    return any(approved_call(write) == call for turn in turns for write in writes_of(turn))


def _rejection(call: CallRecord) -> Finding:
    return Finding(
        kind=DraftKind.REJECTION,
        tool=call.tool,
        args=proposed_call(call).args,
        words=call.reason,
    )


def _conflicts(turn: TurnRecord, claims: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Yield the claim of a write that did not run, or the denial of one that did."""
    if turn.claim is not None:
        yield Finding(kind=DraftKind.CONFLICT, words=turn.claim.words)
        return
    kinds = [truth_kind(call.to_message()) for call in turn.calls]
    known = [kind for kind in kinds if kind is not None]
    has_failed = any(call.destructive and call.outcome != "ok" for call in turn.calls)
    if not known or has_failed or not all(kind.has_written for kind in known):
        return
    own = {call.tool: claims.get(call.tool, ()) for call in writes_of(turn)}
    words = denial(turn.reply, own) or _denial_in_general(turn.reply)
    if words is not None:
        yield Finding(kind=DraftKind.CONFLICT, words=words, was_written=True)


def _denial_in_general(reply: str) -> str | None:
    """Return a sentence that says in other words than the tool's that nothing was done."""
    for sentence, masked in sentences(reply):
        if _DENIAL.search(masked) and not _OTHER_FAILURE.search(masked):
            return sentence.strip()
    return None


_DENIAL = re.compile(
    r"\b(?:i|we)\s(?:could(?: not|n['’]t)|was(?: not|n['’]t) able to|(?:am|was) unable to|failed to"
    r"|did(?: not|n['’]t))\b"
    r"|\bnothing (?:was|has been|got|is) (?:changed|saved|added|sent|stored|done|recorded|moved)\b"
    r"|\b(?:was|were|has|have) not (?:been )?(?:changed|saved|added|sent|stored|recorded|moved)\b"
    r"|\b(?:it|that|this) (?:failed|did(?: not|n['’]t) (?:work|go through))\b"
    r"|(?:지|하지|치)\s?(?:못했|않았)|못\s?했|실패했|안\s?(?:됐|되었)|되지 않",
    re.IGNORECASE,
)
"""A reply that says a write was not made."""

_OTHER_FAILURE = re.compile(
    r"\b(?:find|see|tell|hear|understand|check|read|notice|forget|know)\b|찾지|알지|보지|잊지|읽지",
    re.IGNORECASE,
)
"""What else a reply may say that it failed at, or did not do."""


def _repeats(turns: Sequence[TurnRecord]) -> Iterator[tuple[int, int]]:
    """Yield (turn, repeating turn) where the first did not do what was requested twice.

    The repeating turn is the first that did it, else the first. A chain of repeats is one pair.
    """
    repeating: set[int] = set()
    for number, turn in enumerate(turns):
        if number in repeating or turn.ended not in _COMPLETE or writes_of(turn):
            continue
        again = [
            later
            for later in range(number + 1, len(turns))
            if is_same_request(turn.user, turns[later].user)
            and not _is_answer_to_question(turn, turns[later])
        ]
        done = [later for later in again if _calls_of(turns[later])]
        has_read = bool(_calls_of(turn))
        if has_read:  # a list may be read twice: only a write shows that it was not enough
            done = again = [later for later in done if writes_of(turns[later])]
        elif not done:  # no call followed: a thank-you later is no second request
            again = [later for later in again if later == number + 1]
        if again:
            repeating.update(again)
            yield number, (done or again)[0]


def _is_answer_to_question(turn: TurnRecord, later: TurnRecord) -> bool:
    """Return whether the later message adds what the reply asked for."""
    is_question = turn.reply.rstrip().endswith("?")
    return is_question and len(_words(later.user)) > len(_words(turn.user))


def is_same_request(first: str, second: str) -> bool:
    """Return whether two messages ask the same: near-duplicates without another word or number.

    Each word of the shorter one has to be in the longer one. A word may end otherwise, as Korean
    verbs and particles do.
    """
    short, long = sorted((_words(first), _words(second)), key=len)
    if not short or similarity(" ".join(short), " ".join(long)) < NEAR:
        return False
    return all(any(_is_same_word(word, other) for other in long) for word in short)


_WORD = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+")
_FILLERS = re.compile(
    r"\b(?:please|again|now|just|hey|ok|okay|can|could|would|you|i|said|me|for|the|an?|to|my"
    r"|좀|다시|제발|지금|얼른|빨리|그냥|그러니까|아니|줘|주세요|달라고|달라니까)\b"
)
"""Words without which a request is the same."""


def _words(text: str) -> list[str]:
    return _WORD.findall(_FILLERS.sub(" ", text.casefold()))


def _is_same_word(word: str, other: str) -> bool:
    if word[0].isdigit() or other[0].isdigit():
        return word == other
    short, long = sorted((word, other), key=len)
    if "가" <= short[0] <= "힣":
        return short[:_STEM] == long[: min(_STEM, len(short))]
    return long.startswith(short) and len(long) - len(short) <= _LONGEST_ENDING


_STEM = 2  # syllables of a Korean word before its particle or ending
_LONGEST_ENDING = 3  # letters, as in log and logged


def cluster_key(locale: str, findings: Iterable[Finding], *, is_known: bool) -> tuple[object, ...]:
    """Return what near-duplicates have in common besides similar messages.

    Args:
        locale: of the chat.
        findings: of the turn.
        is_known: whether it is known which call is right.
    """
    found = tuple(findings)
    return (
        locale,
        is_known,
        frozenset(each.kind for each in found),
        frozenset(each.tool for each in found),
        frozenset(name for each in found for name in each.edited or ()),
    )
