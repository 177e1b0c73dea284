"""Export the data frames of a run as Parquet files."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from lhkit.base.errors import importing
from lhkit.base.files import replace_atomically
from lhkit.base.text import whole_unicode
from lhkit.harness.figures.frames import (
    calls_frame,
    latency_frame,
    scenarios_frame,
    turns_frame,
    violations_frame,
)
from lhkit.harness.records.record import SampleRecord
from lhkit.harness.results.results import Run

FRAMES: Final = {
    "samples": scenarios_frame,
    "turns": turns_frame,
    "calls": calls_frame,
    "violations": violations_frame,
    "requests": latency_frame,
}
"""The function of each table, by the name of its file."""

_BATCH_SIZE = 2_000
"""The number of records in a row group."""


def write_parquet(run: Run, folder: Path) -> tuple[Path, ...]:
    """Write the frames of a run as `samples.parquet`, `turns.parquet` …; return the files.

    Columns and types are those of `lhkit.harness.figures.frames`, also of an empty run.

    Raises:
        MissingPackageError: fastparquet is not installed.
        OSError: a file cannot be written.
    """
    with importing("eval"):
        import fastparquet
    files = tuple(folder / f"{name}.parquet" for name in FRAMES)
    with replace_atomically(*files) as drafts:
        for number, records in enumerate(_batches(run.records)):
            for draft, frame in zip(drafts, FRAMES.values(), strict=True):
                table = frame(records)
                for name in table.columns[table.dtypes == "str"]:
                    table[name] = table[name].map(whole_unicode, na_action="ignore").astype("str")
                if number == 0 or len(table):
                    fastparquet.write(
                        str(draft),
                        table,
                        append=number > 0,
                        compression="SNAPPY",
                        has_nulls=True,
                        object_encoding="utf8",
                        write_index=False,
                    )
    return files


def _batches(records: Iterable[SampleRecord]) -> Iterator[list[SampleRecord]]:
    """Yield the records in batches; one empty batch without records."""
    remaining = iter(records)
    yield list(islice(remaining, _BATCH_SIZE))
    while batch := list(islice(remaining, _BATCH_SIZE)):
        yield batch
