"""What is fuzzed: functions of bytes that must neither raise nor take long. No engine in here.

`run.py` feeds them with atheris, `tests/fuzz` with the kept corpus. Each checks a law, so that a
wrong answer counts as much as a crash.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from lhkit.errors import LhkitError
from lhkit.harness.record_line import decode_record, encode_record
from lhkit.harness.run import Run
from lhkit.harness.scenario import read_sources
from lhkit.models.dialects import DIALECTS
from lhkit.notebook.markdown import to_html

TOOLS = [{"name": "f", "description": "", "parameters": {"type": "object"}}]

_FORBIDDEN = ("<script", "<img", "<iframe", "<svg", "<style", "<object", "<form", "<input")


def parsers(data: bytes) -> None:
    """Whole and in pieces, every dialect reads the same; the first byte is the size of a piece."""
    size = (data[0] if data else 0) % 17 + 1
    text = data[1:].decode("utf-8", "surrogateescape")
    for dialect in DIALECTS.values():
        reader = dialect.incremental(TOOLS)
        for start in range(0, len(text), size):
            reader.feed(text[start : start + size])
        assert reader.close() == dialect.parse(text, TOOLS), dialect.name  # noqa: S101 - the law


def loader(data: bytes) -> None:
    """Any file is scenarios, or faults with a line: never another error."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "any.yaml"
        file.write_bytes(data)
        try:
            found = read_sources([file])
        except LhkitError:
            return
    assert found.scenarios or found.faults  # noqa: S101 - the law
    assert all(fault.line > 0 for fault in found.faults)  # noqa: S101 - the law


def records(data: bytes) -> None:
    """A line is a record that is written as it is read, or a ValueError."""
    try:
        record = decode_record(json.loads(data))
    except (ValueError, RecursionError):
        return
    assert decode_record(json.loads(encode_record(record))) == record  # noqa: S101 - the law


def run_folder(data: bytes) -> None:
    """Any manifest and any records are a run, or one sentence; they stand around a NUL byte."""
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
    """Markdown of a model never becomes an element that acts."""
    html = to_html(data.decode("utf-8", "surrogateescape")).lower()
    assert not any(tag in html for tag in _FORBIDDEN)  # noqa: S101 - the law


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    each.__name__: each for each in (parsers, loader, records, run_folder, renderer)
}
