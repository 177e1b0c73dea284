"""A sample's conversation as one list of parts, and as plain text. Pure.

HTML, Markdown, JUnit, the terminal and kept chats render the same parts.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from lhkit.harness.record import CallRecord, ModelCallRecord, SampleRecord, TurnRecord, TurnScore
from lhkit.json_values import json_or_repr
from lhkit.locales import Catalog
from lhkit.messages import GateOutcome
from lhkit.text import printable, seconds

PartKind: TypeAlias = Literal[
    "turn", "user", "message", "call", "scores", "reply", "came", "hint", "fault"
]

_REFUSED = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no place for, not even escaped (https://www.w3.org/TR/xml/#charsets)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a conversation, in order: a turn begins, then what happened in it.

    `text` is what the kind says: the user's message, the reply, names of tools that came, the
    application's hint, the fault. `turn`, `message`, `call` and `scores` hold what they are of.
    `number` counts turns and the messages of a turn from 1.
    """

    kind: PartKind
    text: str = ""
    number: int = 0
    turn: TurnRecord | None = None
    message: ModelCallRecord | None = None
    call: CallRecord | None = None
    scores: TurnScore | None = None


def parts(record: SampleRecord) -> Iterator[Part]:
    """Yield the parts of all turns; the calls of a message follow it, calls of none come last."""
    scores = dict(enumerate(record.judgement.scores))
    for number, turn in enumerate(record.evidence.turns):
        yield Part(kind="turn", number=number + 1, turn=turn)
        yield Part(kind="user", text=turn.user)
        for index, message in enumerate(turn.model_calls):
            yield Part(kind="message", number=index + 1, message=message)
            made = (call for call in turn.calls if call.model_call == index)
            yield from (Part(kind="call", call=call) for call in made)
        known = range(len(turn.model_calls))
        lost = (call for call in turn.calls if call.model_call not in known)
        yield from (Part(kind="call", call=call) for call in lost)
        score = scores.get(number)
        if score is not None and score.calls:
            yield Part(kind="scores", scores=score)
        yield Part(kind="reply", text=turn.reply)
        came = ", ".join(str(tool["name"]) for tool in turn.new_tools)
        fault = " · ".join(text for text in (turn.error, turn.cause, turn.detail) if text)
        others: tuple[tuple[PartKind, str], ...] = (
            ("came", came),
            ("hint", turn.hint or ""),
            ("fault", fault),
        )
        yield from (Part(kind=kind, text=text) for kind, text in others if text)


def transcript(record: SampleRecord, catalog: Catalog, *, max_chars: int) -> str:
    """Return the conversation as text, in at most `max_chars` characters."""
    lines = (line for part in parts(record) for line in _lines(part, catalog))
    text = printable("\n".join(lines))
    return text if len(text) <= max_chars else f"{text[: max_chars - 2]} …"


def short_lines(record: SampleRecord) -> Iterator[str]:
    """Yield what user and model said and which tools were called, one line each."""
    for part in parts(record):
        if part.kind == "user":
            yield f"> {part.text}"
        elif part.call is not None:
            call = part.call
            yield f"{call.tool} {json_or_repr(call.raw_args)} → {call.outcome}"
        elif part.kind == "reply" and part.text:
            yield f"< {part.text}"


def xml_text(words: str) -> str:
    """Return text that is safe for a terminal and that XML 1.0 can carry."""
    return _REFUSED.sub("\ufffd", printable(words))


def _lines(part: Part, catalog: Catalog) -> Iterator[str]:
    if part.turn is not None:
        title = catalog.text("report.turn", number=part.number)
        yield f"## {title} · {part.turn.ended} · {seconds(part.turn.duration_s)}"
    elif part.message is not None:
        title = catalog.text("report.message", number=part.number)
        yield f"{title}: {part.message.response.raw_text}"
    elif part.call is not None:
        yield _call(part.call)
        if part.call.answer:
            yield f"  {catalog.text('report.card')}: {part.call.summary}"
    elif part.scores is None:
        yield f"{catalog.text(f'report.{part.kind}')}: {part.text or '–'}"


def _call(call: CallRecord) -> str:
    args = call.raw_args if call.args is None else call.args
    answer = f": {call.answer}" if call.answer else ""
    asked = "" if call.gate is GateOutcome.NOT_NEEDED else f" [{call.gate}{answer}]"
    return f"→ {call.tool}({_json(args)}){asked} → {_json(call.result)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)
