"""Plain text for places that show no HTML: a pull request's fold, a CI log, a chart's labels."""

import json
import re
from collections.abc import Iterator
from typing import Any

from lhkit.harness.record import CallRecord, SampleRecord, TurnRecord
from lhkit.harness.words import names_of_new
from lhkit.locales import Catalog
from lhkit.messages import GateOutcome
from lhkit.text import printable, seconds

_REFUSED = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no place for, not even escaped (https://www.w3.org/TR/xml/#charsets)."""


def transcript(record: SampleRecord, catalog: Catalog, *, max_chars: int) -> str:
    """Return what was said, written, called and answered, in at most `max_chars` characters."""
    lines = [
        line
        for number, turn in enumerate(record.evidence.turns)
        for line in _turn(number, turn, catalog)
    ]
    told = printable("\n".join(lines))
    return told if len(told) <= max_chars else f"{told[: max_chars - 2]} …"


def xml_text(words: str) -> str:
    """Return text that is safe for a terminal and that XML 1.0 can carry."""
    return _REFUSED.sub("\ufffd", printable(words))


def _turn(number: int, turn: TurnRecord, catalog: Catalog) -> Iterator[str]:
    text = catalog.text
    yield f"## {text('report.turn', number=number + 1)} · {turn.ended} · {seconds(turn.duration_s)}"
    yield f"{text('report.user')}: {turn.user}"
    for index, request in enumerate(turn.model_calls):
        yield f"{text('report.message', number=index + 1)}: {request.response.raw_text}"
        for call in turn.calls:
            if call.model_call == index:
                yield _call(call)
                if call.answer:
                    yield f"  {text('report.card')}: {call.summary}"
    yield f"{text('report.reply')}: {turn.reply or '–'}"
    if turn.new_tools:
        yield f"{text('report.came')}: {names_of_new(turn)}"
    if turn.error or turn.detail:
        yield f"{text('report.fault')}: {turn.cause or ''} {turn.detail or turn.error}"


def _call(call: CallRecord) -> str:
    args = call.raw_args if call.args is None else call.args
    answer = f": {call.answer}" if call.answer else ""
    asked = "" if call.gate is GateOutcome.NOT_NEEDED else f" [{call.gate}{answer}]"
    return f"→ {call.tool}({_line(args)}){asked} → {_line(call.result)}"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)
