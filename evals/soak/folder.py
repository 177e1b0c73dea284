"""What must be true of a run folder whatever was killed: looked at after every invocation.

Pure but for reading files: each function returns sentences about what is wrong.
"""

import re
from collections import Counter
from pathlib import Path

from lhkit.harness.log import RECORDS
from lhkit.harness.record import SampleRecord, Verdict, decode_line
from lhkit.lifehelper import toolset as life_helper

MISSED, WORLD, INTERRUPTED = 1, 3, 130
"""Exit codes of `lhkit eval`, beside 0."""

_DIED = re.compile(r"Traceback \(most recent call last\)|╭─+ Traceback|--- Logging error ---")


def whole_lines(folder: Path) -> bytes:
    """Return the complete lines of the records of a run; a half-written last one is left out."""
    path = folder / RECORDS
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1]


def records_of(lines: bytes) -> list[SampleRecord]:
    """Return the records of complete lines.

    Raises:
        ValueError: a line is no record.
    """
    return [decode_line(line) for line in lines.splitlines()]


def faults_of_records(before: bytes, after: bytes) -> list[str]:
    """Return what an invocation did to records that it must not do: lose, change, double, break."""
    faults = [] if after.startswith(before) else ["records that were on the disk are gone"]
    try:
        records = records_of(after)
    except ValueError as error:
        return [*faults, f"a complete line is no record: {error}"]
    answered = Counter(
        (str(each.sample_id), each.content_hash)
        for each in records
        if each.judgement.verdict is not Verdict.INVALID
    )
    faults += [f"{sample} stands there {n} times" for (sample, _), n in answered.items() if n > 1]
    return [*faults, *(fault for each in records for fault in _unasked_writes(each))]


def _unasked_writes(record: SampleRecord) -> list[str]:
    calls = [call for turn in record.evidence.turns for call in turn.calls]
    writing = life_helper.registry_of(record.locale).destructive
    wrote = [call for call in calls if call.tool in writing and call.ran]
    return [
        f"{record.sample_id}: {call.tool} ran although the gate said {call.gate}"
        for call in wrote
        if call.gate != "accepted"
    ]


def faults_of_a_finished_run(code: int, lines: bytes, asked: int) -> list[str]:
    """Return what does not fit together where an invocation ended by itself with `code`."""
    if code not in {0, MISSED, WORLD}:
        return [f"it ended with exit code {code}"]
    newest = {each.sample_id: each for each in records_of(lines)}
    invalid = sum(each.judgement.verdict is Verdict.INVALID for each in newest.values())
    faults = [] if len(newest) == asked else [f"{len(newest)} of {asked} samples are answered"]
    if invalid and code == 0:
        faults.append(f"exit code 0 with {invalid} invalid samples")
    return faults


def faults_of_complaints(code: int | None, said: str) -> list[str]:
    """Return what is wrong with what a command wrote to standard error."""
    faults = ["a traceback instead of a sentence"] if _DIED.search(said) else []
    sentences = [line for line in said.splitlines() if line.startswith("lhkit: ")]
    if len(sentences) > 1:
        faults.append(f"{len(sentences)} sentences instead of one")
    return [f"{fault} (exit code {code}): {said.strip()[-300:]}" for fault in faults]
