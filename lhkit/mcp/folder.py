"""The folder of a session: its files as rows of a table."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lhkit.errors import UsageError
from lhkit.json_values import JSON

FILES = "files"
"""The table of what lies in the folder of a session."""

_MOST_TEXT_BYTES = 2**20


def write_files(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Put files into the folder of a session, and nothing anywhere else."""
    for row in rows:
        path = str(row["path"])
        target = (folder / path).resolve()
        if not target.is_relative_to(folder) or target == folder:
            raise UsageError(
                f"world.files: {path!r} is not inside the folder: write a path like a/b.txt"
            )
        if path.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(str(row.get("text", "")), encoding="utf-8")


def files_in(folder: Path, masked: Any) -> Iterator[Mapping[str, JSON]]:
    """Yield a row for each file in a folder, and for each folder in it that is empty."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield {"path": name, "link": masked(str(path.readlink()))}
        elif path.is_dir():
            if not any(path.iterdir()):
                yield {"path": f"{name}/"}
        else:
            yield {"path": name, **_content(path, masked)}


def _content(path: Path, masked: Any) -> dict[str, JSON]:
    size = path.stat().st_size
    if size <= _MOST_TEXT_BYTES:
        with suppress(UnicodeDecodeError):
            return {"text": masked(path.read_text(encoding="utf-8"))}
    return {"bytes": size}
