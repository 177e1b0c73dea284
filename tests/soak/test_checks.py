"""The checks of the soak: each notices the fault that it is there for, and nothing else."""

import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from lhkit.harness.log import RECORDS
from lhkit.harness.record import CallRecord, SampleRecord, Verdict, encode_record
from lhkit.lifehelper import toolset as life_helper
from lhkit.messages import GateOutcome
from lhkit.testing import echo_tool
from lhkit.tools.registry import ToolRegistry
from tests.harness.records.test_journal import record

SOAK = Path(__file__).parents[2] / "evals" / "soak"


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Yield a place to import the soak's modules from; they are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(SOAK))
    before = set(sys.modules)
    import folder  # noqa: PLC0415 - found only now
    import log  # noqa: PLC0415 - found only now
    import page  # noqa: PLC0415 - found only now
    import talking  # noqa: PLC0415 - found only now

    found = ModuleType("soak")
    found.folder, found.log, found.page, found.talking = folder, log, page, talking  # type: ignore[attr-defined]  # a bag
    yield found
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == SOAK:
            del sys.modules[name]


def lines(*records: SampleRecord) -> bytes:
    return b"".join(encode_record(each).encode() + b"\n" for each in records)


def invalid(name: str) -> SampleRecord:
    return replace(record(name), judgement=replace(record(name).judgement, verdict=Verdict.INVALID))


def writing(gate: str, tool: str = "add_habit") -> SampleRecord:
    wrote = CallRecord(
        tool=tool,
        raw_args={},
        result={"status": "ok"},
        ran=True,
        destructive=True,
        gate=GateOutcome(gate),
    )
    whole = record("w")
    return replace(
        whole,
        evidence=replace(whole.evidence, turns=(replace(whole.evidence.turns[0], calls=(wrote,)),)),
    )


A, B = lines(record("a")), lines(record("b"))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (b"", A, None),
        (A, A + B, None),
        (lines(invalid("a")), lines(invalid("a"), record("a")), None),
        (b"", lines(writing("accepted")), None),
        (A, B, "are gone"),
        (A + B, A, "are gone"),
        (A, A + A, "a stands there 2 times"),
        (b"", A + b"{}\n", "is no record"),
        (b"", A + A[:40] + B, "is no record"),
        (b"", lines(writing("rejected")), "add_habit ran although the gate said rejected"),
    ],
)
def test_what_a_sitting_must_not_do_to_records_is_noticed(
    soak: ModuleType, before: bytes, after: bytes, told: str | None
) -> None:
    faults = soak.folder.faults_of_records(before, after)
    assert bool(faults) == (told is not None), faults
    assert told is None or told in " ".join(faults)


@pytest.mark.parametrize(("tool", "is_noticed"), [("nap", True), ("look", False)])
def test_a_tool_writes_if_the_registry_says_so(
    soak: ModuleType, monkeypatch: pytest.MonkeyPatch, tool: str, *, is_noticed: bool
) -> None:
    registry = ToolRegistry([echo_tool("nap", is_destructive=True), echo_tool("look")])
    monkeypatch.setattr(life_helper, "registry_of", lambda _locale: registry)
    faults = soak.folder.faults_of_records(b"", lines(writing("rejected", tool)))
    assert bool(faults) is is_noticed


@pytest.mark.parametrize(
    ("code", "written", "asked", "is_well"),
    [
        (0, A + B, 2, True),
        (1, A + B, 2, True),
        (3, lines(invalid("a")), 1, True),
        (0, lines(invalid("a")), 1, False),
        (0, A, 2, False),
        (-11, A, 1, False),
        (2, A, 1, False),
    ],
)
def test_an_exit_code_that_does_not_fit_is_noticed(
    soak: ModuleType, code: int, written: bytes, asked: int, *, is_well: bool
) -> None:
    assert (soak.folder.faults_of_a_finished_run(code, written, asked) == []) == is_well


@pytest.mark.parametrize(
    ("said", "is_well"),
    [
        ("", True),
        ("50%|#\nlhkit: nothing answers: start a server\n", True),
        ("Traceback (most recent call last):\n  x\n", False),
        ("╭───── Traceback (most recent call last) ────╮", False),
        ("--- Logging error ---", False),
        ("lhkit: one\nlhkit: two\n", False),
    ],
)
def test_a_traceback_or_a_second_sentence_is_noticed(
    soak: ModuleType, said: str, *, is_well: bool
) -> None:
    assert (soak.folder.faults_of_complaints(3, said) == []) == is_well


def test_half_a_line_is_no_line(soak: ModuleType, tmp_path: Path) -> None:
    (tmp_path / RECORDS).write_bytes(A + B[:20])
    assert soak.folder.whole_lines(tmp_path) == A
    assert soak.folder.whole_lines(tmp_path / "none") == b""


def test_changed_rows_are_counted_and_a_torn_database_is_noticed(
    soak: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "chat.sqlite3"
    assert soak.talking.rows_of(path) == Counter()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE habit (id TEXT, pad TEXT)")
        rows = [(str(n), "x" * 900) for n in range(99)]
        connection.executemany("INSERT INTO habit VALUES (?, ?)", rows)
    connection.close()
    assert soak.talking.rows_of(path).total() == 99
    assert soak.talking.is_sound(path) == ""
    data = bytearray(path.read_bytes())
    data[8192:8300] = random.Random(1).randbytes(108)  # noqa: S311 - no secret
    path.write_bytes(bytes(data))
    assert soak.talking.is_sound(path) != ""


def test_the_page_counts_what_was_checked_and_names_what_was_found(soak: ModuleType) -> None:
    log = soak.log.Log(clock=lambda: 7.0, show=lambda _: None)
    log.did("eval: SIGKILL → killed")
    log.held("the database is whole", [], where="chat")
    log.held("the database is whole", ["page 3 is torn"], where="chat, 2 at once")
    log.weighed("one eval", 80.0)
    told = soak.page.page(log, {"seed": 1}, datetime(2026, 1, 2, tzinfo=UTC))
    assert "| the database is whole | 2 | 1 |" in told
    assert "- after 7 s, chat, 2 at once: the database is whole: page 3 is torn" in told
    assert "| eval: SIGKILL → killed | 1 |" in told
    assert "- seed: 1" in told
