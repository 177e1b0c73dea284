"""Labels of a person for the question of a judge, in the folder of a run.

A label is of a record with its hash: that of a changed record does not count.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from lhkit.base.errors import RunError, UsageError
from lhkit.base.files import write_atomically
from lhkit.base.json_values import compact, parse_json
from lhkit.harness.records.record import SampleRecord, first_issue
from lhkit.harness.records.score_record import record_sha256
from lhkit.harness.scenarios.sample_id import SampleId

LABELS = "labels.jsonl"

_WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("yes", "y", "true", "1", "예", "네"), True),
    **dict.fromkeys(("no", "n", "false", "0", "아니요", "아니오"), False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeLabel:
    """The answer of a person to the question of a judge about one sample."""

    score: str
    sample: str
    label: bool
    record_sha256: str


_LABEL: Final = TypeAdapter(JudgeLabel)


def read_labels(folder: Path) -> tuple[JudgeLabel, ...]:
    """Return the labels in a run folder; none without a file.

    Raises:
        RunError: a line is not valid, or the file cannot be read.
    """
    path = folder / LABELS
    labels = []
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            labels.append(_LABEL.validate_python(parse_json(line)))
        except (ValueError, RecursionError) as error:
            why = first_issue(error) if isinstance(error, ValidationError) else error
            raise RunError(f"{path}:{number} is not a valid label ({why}). Remove it") from error
    return tuple(labels)


def write_labels(folder: Path, labels: Iterable[JudgeLabel]) -> None:
    """Add labels to a run folder; of two for the same score and sample the new one counts.

    Raises:
        RunError: the file is invalid or cannot be written.
    """
    merged = {(each.score, each.sample): each for each in (*read_labels(folder), *labels)}
    lines = (f"{compact(_LABEL.dump_python(each))}\n".encode() for each in merged.values())
    try:
        write_atomically(folder / LABELS, lines)
    except OSError as error:
        raise RunError(f"{folder / LABELS} cannot be written: {error}") from error


def labels_of(
    score: str, labels: Iterable[JudgeLabel], records: Iterable[SampleRecord]
) -> dict[SampleId, bool]:
    """Return the labels for a score of the records as they are."""
    wanted = {each.sample: each for each in labels if each.score == score}
    if not wanted:
        return {}
    return {
        record.sample_id: wanted[name].label
        for record in records
        if (name := str(record.sample_id)) in wanted
        and wanted[name].record_sha256 == record_sha256(record.unchecked)
    }


def new_labels(
    score: str, labels: Mapping[str, bool], records: Iterable[SampleRecord]
) -> tuple[JudgeLabel, ...]:
    """Return labels for records by the name of their sample.

    Raises:
        UsageError: there is no such sample.
    """
    hashes = {str(each.sample_id): record_sha256(each.unchecked) for each in records}
    if unknown := [name for name in labels if name not in hashes]:
        raise UsageError(
            f"The run has no sample {unknown[0]!r} ({len(unknown)} of {len(labels)} labels)"
        )
    return tuple(
        JudgeLabel(score=score, sample=name, label=label, record_sha256=hashes[name])
        for name, label in labels.items()
    )


def in_random_order(records: Iterable[SampleRecord]) -> list[SampleRecord]:
    """Return the valid records in an order of which each beginning is a random part."""
    shuffled = [record for record in records if record.is_valid]
    Random(0).shuffle(shuffled)
    return shuffled


def read_label_file(path: Path) -> dict[str, bool]:
    """Read a CSV or JSONL file with `sample` and `label`; rows without a label are left out.

    A label is yes or no, true or false, 1 or 0, or 예 or 아니요.

    Raises:
        UsageError: the file cannot be read, or a row is invalid; the message names it.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The labels {path} cannot be read: {error}") from error
    rows: list[Any] = []
    if path.suffix.lower() == ".csv":
        rows = list(csv.DictReader(io.StringIO(text)))
    else:
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                rows += [json.loads(line)] if line.strip() else []
            except ValueError as error:
                raise UsageError(f"{path}:{number} is not valid JSON: {error}") from error
    labels: dict[str, bool] = {}
    for number, row in enumerate(rows, start=1):
        where = f"{path}: row {number}"
        if not isinstance(row, dict) or not row.get("sample") or "label" not in row:
            raise UsageError(f"{where} is invalid: it has no 'sample' or no 'label'")
        given = row["label"]
        if given is None or not str(given).strip():
            continue
        label = _WORDS.get(str(given).strip().casefold())
        if label is None:
            raise UsageError(f"{where} is invalid: the label {given!r} is neither yes nor no")
        if labels.setdefault(str(row["sample"]), label) is not label:
            raise UsageError(f"{where} is invalid: {row['sample']} has two different labels")
    return labels
