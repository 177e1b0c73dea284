"""Split a sample's conversation into parts, and render them as plain text. Pure.

HTML, Markdown, JUnit, the terminal and kept chats render the same parts.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from lhkit.base.json_values import json_or_repr
from lhkit.base.locales import Catalog, available_locales, load_catalog
from lhkit.base.text import printable
from lhkit.chat.truth import TruthLine, claim_text, truth_lines
from lhkit.conversation.messages import GateOutcome
from lhkit.harness.records.record import (
    CallRecord,
    ModelCallRecord,
    SampleRecord,
    TurnRecord,
    TurnScore,
)

PartKind: TypeAlias = Literal[
    "turn",
    "user",
    "message",
    "call",
    "scores",
    "reply",
    "truth",
    "claim",
    "added_tools",
    "notice",
    "error",
]

_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not allow, even escaped (https://www.w3.org/TR/xml/#charsets)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a conversation: the start of a turn, or an event in it.

    `text` is the text of a user message, reply, notice or error, the lines of truth, a mark of a
    reply that contradicts them (`claim`), or the names of added tools.
    `turn`, `message`, `call` and `scores` are set for the kinds of the same name. `number` counts
    turns and the messages of a turn from 1.
    """

    kind: PartKind
    text: str = ""
    number: int = 0
    turn: TurnRecord | None = None
    message: ModelCallRecord | None = None
    call: CallRecord | None = None
    scores: TurnScore | None = None


def transcript_parts(record: SampleRecord, catalog: Catalog) -> Iterator[Part]:
    """Yield the parts of all turns; calls follow their message, those without one come last."""
    scores = dict(enumerate(record.score.turn_scores))
    for number, turn in enumerate(record.trajectory.turns):
        yield Part(kind="turn", number=number + 1, turn=turn)
        yield Part(kind="user", text=turn.user)
        for index, message in enumerate(turn.model_calls):
            yield Part(kind="message", number=index + 1, message=message)
            calls = (call for call in turn.calls if call.model_call == index)
            yield from (Part(kind="call", call=call) for call in calls)
        indices = range(len(turn.model_calls))
        others = (call for call in turn.calls if call.model_call not in indices)
        yield from (Part(kind="call", call=call) for call in others)
        score = scores.get(number)
        if score is not None and score.calls:
            yield Part(kind="scores", scores=score)
        yield Part(kind="reply", text=turn.reply)
        texts: tuple[tuple[PartKind, str], ...] = (
            ("truth", "\n".join(line.text for line in turn_truth_lines(turn, catalog))),
            ("claim", claim_mark(turn, catalog)),
            ("added_tools", ", ".join(str(tool["name"]) for tool in turn.new_tools)),
            ("notice", turn.notice or ""),
            ("error", " · ".join(filter(None, (turn.error, turn.cause, turn.detail)))),
        )
        yield from (Part(kind=kind, text=text) for kind, text in texts if text)


def transcript(record: SampleRecord, catalog: Catalog, *, max_chars: int) -> str:
    """Return the conversation as plain text of at most `max_chars` characters."""
    lines = (line for part in transcript_parts(record, catalog) for line in _lines(part, catalog))
    text = printable("\n".join(lines))
    return text if len(text) <= max_chars else f"{text[: max_chars - 2]} …"


def catalog_of(record: SampleRecord) -> Catalog:
    """Return the texts of a conversation's language, English ones for a language without any."""
    return load_catalog(record.locale if record.locale in available_locales() else "en")


def turn_truth(turn: TurnRecord, catalog: Catalog) -> str:
    """Return the writes of a recorded turn, as the lines that the user reads under the reply.

    The last one marks a reply that contradicts them.
    """
    lines = [line.text for line in turn_truth_lines(turn, catalog)]
    return "\n".join([*lines, claim_mark(turn, catalog)]).rstrip()


def turn_truth_lines(turn: TurnRecord, catalog: Catalog) -> tuple[TruthLine, ...]:
    """Return the lines of truth of a recorded turn."""
    return truth_lines((call.to_message() for call in turn.calls), catalog)


def claim_mark(turn: TurnRecord, catalog: Catalog) -> str:
    """Return the sentence that marks a reply which contradicts the lines; empty without one."""
    return claim_text(turn.claim, catalog) if turn.claim is not None else ""


def short_lines(record: SampleRecord, catalog: Catalog) -> Iterator[str]:
    """Yield user messages, tool calls and replies, one line each."""
    for part in transcript_parts(record, catalog):
        if part.kind == "user":
            yield f"> {part.text}"
        elif part.call is not None:
            call = part.call
            yield f"{call.tool} {json_or_repr(call.effective_args)} → {call.outcome}"
        elif part.kind == "reply" and part.text:
            yield f"< {part.text}"


def xml_text(text: str) -> str:
    """Return printable text with characters that XML 1.0 does not allow replaced."""
    return _NOT_XML.sub("\ufffd", printable(text))


def _lines(part: Part, catalog: Catalog) -> Iterator[str]:
    if part.turn is not None:
        title = catalog.text("report.turn", number=part.number)
        yield f"## {title} · {part.turn.ended} · {catalog.seconds(part.turn.duration_s)}"
    elif part.message is not None:
        title = catalog.text("report.message", number=part.number)
        yield f"{title}: {part.message.response.raw_text}"
    elif part.call is not None:
        yield _call_line(part.call, catalog)
        if part.call.answer and part.call.gate is not GateOutcome.POLICY:  # no card was shown
            yield f"  {catalog.text('report.card')}: {part.call.summary}"
    elif part.scores is None:
        yield f"{catalog.text(f'report.{part.kind}')}: {part.text or '–'}"


def _call_line(call: CallRecord, catalog: Catalog) -> str:
    answer = f": {call.answer}" if call.answer not in ("", call.gate) else ""
    answer += f" {catalog.text('report.proposed', args=_json(call.args))}" if call.is_edited else ""
    answer += f" {_json(call.reason)}" if call.reason else ""
    gate = "" if call.gate is GateOutcome.NOT_NEEDED else f" [{call.gate}{answer}]"
    return f"→ {call.tool}({_json(call.effective_args)}){gate} → {_json(call.result)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)
