"""A big folder in the cache: made once, in one step at the end, verified cheaply, mended if broken.

What is in it is its maker's business. Here are the lock, the room on the disk, the manifest with
every file's size and hash, and the swap.
"""

import asyncio
import errno
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from filelock import AsyncFileLock, Timeout

from lhkit.errors import MissingPackageError, WeightsError
from lhkit.files import file_sha256
from lhkit.models.progress import WeightsProgress, WeightsReport, WeightsStage

FOLDER_MANIFEST = "lhkit-manifest.json"

Make: TypeAlias = Callable[[Path], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a folder is made.

    `make` makes it at the path that it is given, where nothing is yet; what else it puts beside
    that path is thrown away. `source` is what it is made from, as plain JSON: a folder that was
    made from something else is made again. `packages` have to be installed. `needed_bytes` is the
    room that the making takes on the disk.
    """

    source: Any
    make: Make
    needed_bytes: int
    packages: tuple[str, ...] = ()


async def ensure_folder(
    folder: Path, recipe: Recipe, *, report: WeightsReport, verify: bool = False
) -> Path:
    """Return `folder` whole; make it if it is not. Of two processes at once, one waits.

    Args:
        folder: where it lies, or will lie.
        recipe: how it is made.
        report: is told the progress.
        verify: also compare every file's hash, not only its size.

    Raises:
        MissingPackageError: if the making needs a package that is not installed.
        WeightsError: if it cannot be stored.
    """
    if await _is_whole(folder, recipe, verify=verify, report=report):
        return folder
    _require(recipe.packages)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        async with _locked(folder.with_name(f".{folder.name}.lock"), report):
            if not await _is_whole(folder, recipe, verify=verify, report=report):
                await _make(folder, recipe)
    except OSError as error:
        raise _disk_fault(error, folder, recipe) from error
    return folder


async def _is_whole(folder: Path, recipe: Recipe, *, verify: bool, report: WeightsReport) -> bool:
    manifest = _manifest_of(folder)
    if manifest is None or manifest.get("source") != recipe.source:
        return False
    files: Mapping[str, Mapping[str, Any]] = manifest["files"]
    for name, told in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != told["bytes"]:
            return False
        if verify:
            report(WeightsProgress(stage=WeightsStage.CHECKING, text=f"checking {name}"))
            if await asyncio.to_thread(file_sha256, path) != told["sha256"]:
                return False
    return True


def _manifest_of(folder: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((folder / FOLDER_MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and manifest.get("files") else None


def _require(packages: tuple[str, ...]) -> None:
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise MissingPackageError(
            f"The embedded Gemma needs {', '.join(missing)}, not installed in {sys.executable}; "
            "run `make venv`, or point --base-url at a running server."
        )


@asynccontextmanager
async def _locked(path: Path, report: WeightsReport) -> AsyncIterator[None]:
    lock = AsyncFileLock(path)
    try:
        await lock.acquire(timeout=0)
    except Timeout:
        text = "waiting for another lhkit process that prepares the weights"
        report(WeightsProgress(stage=WeightsStage.WAITING, text=text))
        await lock.acquire()
    try:
        yield
    finally:
        await lock.release()


async def _make(folder: Path, recipe: Recipe) -> None:
    for leftover in folder.parent.glob(f".{folder.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    _check_room(folder.parent, recipe.needed_bytes)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
    try:
        made = partial / folder.name
        await recipe.make(made)
        await asyncio.to_thread(_write_manifest, made, recipe)
        _swap(made, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _swap(made: Path, folder: Path) -> None:
    if folder.exists():  # a broken one: out of the way first, a rename does not replace a folder
        folder.rename(made.with_name("broken"))
    made.rename(folder)


def _check_room(parent: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(parent).free
    if free_bytes < needed_bytes:
        raise WeightsError(
            f"Making the weights needs {needed_bytes / 1e9:.1f} GB in {parent}, which has "
            f"{free_bytes / 1e9:.1f} GB; free some, or move the cache."
        )


def _write_manifest(folder: Path, recipe: Recipe) -> None:
    manifest = {
        "source": recipe.source,
        "versions": {package: version(package) for package in recipe.packages},
        "files": {
            path.name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
            for path in sorted(folder.iterdir())
        },
    }
    (folder / FOLDER_MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _disk_fault(error: OSError, folder: Path, recipe: Recipe) -> WeightsError:
    if error.errno == errno.ENOSPC:
        return WeightsError(
            f"The disk of {folder.parent} is full; free {recipe.needed_bytes / 1e9:.1f} GB and "
            "run this again."
        )
    return WeightsError(
        f"The weights can not be stored in {folder.parent} ({error}); make it writable, or move "
        "the cache."
    )
