"""Plain text for places that show no HTML: a pull request's fold, a CI log, a plot's labels."""

import json
import re
from collections.abc import Iterator
from typing import Any

from lhkit.harness.fragments.markup import seconds
from lhkit.harness.records.record import CallRecord, SampleRecord, TurnRecord
from lhkit.locales import Catalog
from lhkit.vocab.printable import printable
from lhkit.vocab.trace import GateOutcome

_REFUSED = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no place for, not even escaped (https://www.w3.org/TR/xml/#charsets)."""


def transcript(record: SampleRecord, catalog: Catalog, *, max_chars: int) -> str:
    """Return what was said, written, called and answered, in at most `max_chars` characters."""
    lines = [
        line for number, turn in enumerate(record.turns) for line in _turn(number, turn, catalog)
    ]
    told = printable("\n".join(lines))
    return told if len(told) <= max_chars else f"{told[: max_chars - 2]} …"


def one_line(words: str, *, max_chars: int) -> str:
    """Return text on one line, safe for a terminal, cut if it is long."""
    line = " ".join(printable(words).split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def xml_text(words: str) -> str:
    """Return text that is safe for a terminal and that XML 1.0 can carry."""
    return _REFUSED.sub("\ufffd", printable(words))


def _turn(number: int, turn: TurnRecord, catalog: Catalog) -> Iterator[str]:
    text = catalog.text
    yield f"## {text('report.turn', number=number + 1)} · {turn.ended} · {seconds(turn.duration_s)}"
    yield f"{text('report.user')}: {turn.user}"
    for index, request in enumerate(turn.model_calls):
        yield f"{text('report.message', number=index + 1)}: {request.raw_text}"
        for call in turn.calls:
            if call.model_call == index:
                yield _call(call)
    yield f"{text('report.reply')}: {turn.reply or '–'}"
    if turn.error or turn.detail:
        yield f"{text('report.fault')}: {turn.cause or ''} {turn.detail or turn.error}"


def _call(call: CallRecord) -> str:
    args = call.raw_args if call.args is None else call.args
    asked = "" if call.gate is GateOutcome.NOT_NEEDED else f" [{call.gate}]"
    return f"→ {call.tool}({_line(args)}){asked} → {_line(call.result)}"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)
