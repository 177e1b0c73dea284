"""Find the files of a data set in a folder, and read Parquet and Arrow files as rows."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lhkit.base.errors import UsageError, importing
from lhkit.base.files import open_regular

TABLE_SUFFIXES = frozenset({".parquet", ".arrow"})

_SUFFIXES = TABLE_SUFFIXES | {".jsonl", ".ndjson", ".json"}
_ABOUT_DATA = frozenset(
    {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}
)
_SPLIT = re.compile(r"(train|training|test|testing|validation|valid|val|dev|eval)(?![a-z])", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file of a data set and the split that its name, or that of its folder, is for."""

    path: Path
    split: str = ""


def data_files(folder: Path) -> list[DataFile]:
    """Return the data files in a folder and below it, in order of their names.

    A folder of `Dataset.save_to_disk`, or a copy of a repository of Hugging Face. Hidden files, and
    files about the data, are skipped.

    Raises:
        UsageError: there are none.
    """
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in _SUFFIXES
        and path.is_file()
        and path.name not in _ABOUT_DATA
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    if not paths:
        raise UsageError(
            f"{folder} has no data: give a folder with {', '.join(sorted(_SUFFIXES))} files."
        )
    return [DataFile(path=path, split=_split_of(path.relative_to(folder))) for path in paths]


def _split_of(path: Path) -> str:
    """Return the split of `test/data-00000-of-00001.arrow`, `train-00000.parquet`, `eval.jsonl`."""
    for name in (path.stem, *reversed(path.parts[:-1])):
        if match := _SPLIT.match(name):
            return match[1].lower()
    return ""


def is_split(name: str) -> bool:
    """Return whether this is the name of a split."""
    return _SPLIT.fullmatch(name) is not None


def read_table(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a Parquet or Arrow file.

    Raises:
        UsageError: the file cannot be read.
        MissingPackageError: pyarrow is not installed.
    """
    with importing("finetune"):
        from pyarrow import ipc, parquet

    try:
        with open_regular(file) as opened:
            if file.suffix == ".parquet":
                rows = parquet.read_table(opened).to_pylist()
            else:
                rows = ipc.open_stream(opened).read_all().to_pylist()
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's are of these kinds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{file} is not a valid {file.suffix[1:]} file: {reason}.") from error
    if not rows:
        raise UsageError(f"{file} has no rows.")
    return list(rows)
