"""Invariants for any bytes: each function raises if its invariant is violated."""

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from lhkit.base.errors import CassetteError, LhkitError, ModelError
from lhkit.conversation.events import EndReason, ModelCalled, TurnEnded, TurnStarted
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.responses import Finished, ModelIdentity
from lhkit.harness.figures.metrics import summarise
from lhkit.harness.records.record import (
    SampleRecord,
    SampleScore,
    Trajectory,
    decode_line,
    decode_record,
    encode_record,
)
from lhkit.harness.records.turn_record import Timed, turn_record
from lhkit.harness.results.results import Run
from lhkit.harness.scenarios.loader import read_sources
from lhkit.harness.views.sample import Sample
from lhkit.models.client.openai_chat import ChatContent
from lhkit.models.client.response import CompletionContent, Content, ResponseReader
from lhkit.models.dialects import DIALECTS
from lhkit.models.recorded.cassette import encode_cassette, read_cassette
from lhkit.notebook.panel.markdown import to_html
from tests.fuzz.edits import edited

TOOLS = [{"name": "f", "description": "", "parameters": {"type": "object"}}]

_FORBIDDEN = ("<script", "<img", "<iframe", "<svg", "<style", "<object", "<form", "<input")
_FORBIDDEN_IN_A_TRACE = ("<script", "<img", "<iframe", "<object", "<form", "<input")
_RECORDED = Path(__file__).parents[1] / "contract/recorded/models/gemma/records.jsonl"
"""`record_edits` changes the first record."""
_IDENTITY = ModelIdentity(model="m")

Invariant: TypeAlias = Callable[[bytes], None]


def parsers(data: bytes) -> None:
    """Dialects read a text in one piece or several equally; the first byte is the piece size."""
    size = (data[0] if data else 0) % 17 + 1
    text = data[1:].decode("utf-8", "surrogateescape")
    for dialect in DIALECTS.values():
        reader = dialect.incremental(TOOLS)
        for start in range(0, len(text), size):
            reader.feed(text[start : start + size])
        assert reader.close() == dialect.parse(text, TOOLS), dialect.name


def loader(data: bytes) -> None:
    """Any file contains scenarios or issues with a line; no other error is raised."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "any.yaml"
        file.write_bytes(data)
        try:
            sources = read_sources([file])
        except LhkitError:
            return
    assert sources.scenarios or sources.issues
    assert all(issue.line > 0 for issue in sources.issues)


def records(data: bytes) -> None:
    """A line is a record that round-trips, or a ValueError."""
    with suppress(ValueError, RecursionError):
        _lasts(decode_line(data))


def record_edits(data: bytes) -> None:
    """The same for a real record with some changed values, as `edits` describes."""
    try:
        line = json.dumps(edited(_whole_record(), data))
    except RecursionError:
        return
    records(line.encode())


def run_folder(data: bytes) -> None:
    """Any manifest and records, separated by a NUL byte, are a run or an error of lhkit."""
    manifest, _, lines = data.partition(b"\x00")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "manifest.json").write_bytes(manifest)
        (Path(folder) / "records.jsonl").write_bytes(lines)
        try:
            run = Run.load(folder)
        except LhkitError:
            return
        run.summary()


def renderer(data: bytes) -> None:
    """Markdown of a model is never rendered as an active element."""
    html = to_html(data.decode("utf-8", "surrogateescape")).lower()
    assert not any(tag in html for tag in _FORBIDDEN)


def cassettes(data: bytes) -> None:
    """Any file is a cassette that round-trips, or a CassetteError."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "any.json"
        file.write_bytes(data)
        try:
            cassette = read_cassette(file)
        except CassetteError:
            return
        file.write_text(encode_cassette(cassette), encoding="utf-8")
        assert read_cassette(file) == cassette


def streams(data: bytes) -> None:
    """Any response of a server is an error of lhkit, or a record that round-trips.

    The first byte is the size of a piece.
    """
    size = (data[0] if data else 0) % 97 + 1
    pieces = [data[1:][start : start + size] for start in range(0, len(data) - 1, size)]
    for content in (CompletionContent(DIALECTS["json"].incremental(TOOLS)), ChatContent(["f"])):
        with suppress(ModelError, UnicodeDecodeError):  # the connection handles both
            _can_be_recorded(_read(content, pieces))


def _read(content: Content, pieces: Sequence[bytes]) -> Finished:
    reader = ResponseReader(content=content, max_tokens=64, clock=_ticks().__next__)
    reader.mark_sent()
    reader.mark_headers()
    for piece in pieces:
        for _ in reader.feed(piece):
            pass
    return reader.finished(identity=_IDENTITY, prompt_text="")


def _can_be_recorded(response: Finished) -> None:
    events: tuple[Timed, ...] = (
        (0.0, TurnStarted(message=UserMessage(text="u"))),
        (0.0, ModelCalled(turn=0)),
        (1.0, Finished(response=response)),
        (1.0, TurnEnded(reason=EndReason.ANSWERED)),
    )
    turn = turn_record("u", events, destructive=())
    whole = decode_record(_whole_record())
    record = SampleRecord(
        sample_id=whole.sample_id,
        content_hash="h",
        ac=whole.ac,
        locale=whole.locale,
        score=SampleScore(verdict=whole.score.verdict),
        trajectory=Trajectory(turns=(turn,)),
    )
    again = decode_line(encode_record(record))
    summarise([again])
    for call in turn.model_calls:
        assert (
            again.trajectory.turns[0].model_calls[0].response.token_ids == call.response.token_ids
        )


def _lasts(record: SampleRecord) -> None:
    """Check that a record can be written, read, summarized and rendered."""
    assert decode_line(encode_record(record)) == record
    summarise([record])
    html = Sample.of(record)._repr_html_().partition("</style>")[2].lower()
    assert not any(tag in html for tag in _FORBIDDEN_IN_A_TRACE)


@cache
def _whole_record() -> Any:
    with _RECORDED.open("rb") as lines:
        return json.loads(next(lines))


def _ticks() -> Iterator[float]:
    return itertools.count(0.0, 0.25)


TARGETS: Mapping[str, Invariant] = {
    invariant.__name__: invariant
    for invariant in (
        *(parsers, loader, records, record_edits),
        *(run_folder, renderer, cassettes, streams),
    )
}
