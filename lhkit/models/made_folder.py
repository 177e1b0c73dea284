"""A big folder in the cache: made once, in one step at the end, verified cheaply, mended if broken.

Here are the lock, the room on the disk, the manifest with every file's size and hash, the swap, and
the child processes that do the work. What is in the folder is its maker's business.
"""

import asyncio
import errno
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from filelock import AsyncFileLock, Timeout

from lhkit.errors import MissingPackageError, WeightsError
from lhkit.files import file_sha256
from lhkit.models.progress import WeightsProgress, WeightsReport, WeightsStage

FOLDER_MANIFEST = "lhkit-manifest.json"

Make: TypeAlias = Callable[[Path], Awaitable[None]]
"""Makes a folder at a path where nothing is yet; what it puts beside that path is thrown away."""


async def ensure_folder(
    folder: Path,
    make: Make,
    *,
    needed_bytes: int,
    packages: tuple[str, ...] = (),
    report: WeightsReport,
    verify: bool = False,
) -> Path:
    """Return `folder` whole; make it if it is not. Of two processes at once, one waits.

    Args:
        folder: where it lies, or will lie; its name changes with what it is made from.
        make: makes it.
        needed_bytes: the room that the making takes on the disk.
        packages: have to be installed for it.
        report: is told the progress.
        verify: also compare every file's hash, not only its size.

    Raises:
        MissingPackageError: if the making needs a package that is not installed.
        WeightsError: if it cannot be stored.
    """
    if await _is_whole(folder, verify=verify, report=report):
        return folder
    if missing := [package for package in packages if find_spec(package) is None]:
        raise MissingPackageError(
            f"The embedded Gemma needs {', '.join(missing)}, not installed in {sys.executable}; "
            "run `make venv`, or point --base-url at a running server."
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        async with _locked(folder.with_name(f".{folder.name}.lock"), report):
            if not await _is_whole(folder, verify=verify, report=report):
                await _make(folder, make, needed_bytes, packages)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise WeightsError(
                f"The disk of {folder.parent} is full; free {needed_bytes / 1e9:.1f} GB and "
                "run this again."
            ) from error
        raise WeightsError(
            f"The weights can not be stored in {folder.parent} ({error}); make it writable, or "
            "move the cache."
        ) from error
    return folder


async def run_to_end(*command: str) -> tuple[int, str]:
    """Run a command without input; return its exit code and all that it wrote to standard error.

    Cancelling kills it, and waits until it is gone.

    Raises:
        OSError: the command cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, errors.decode(errors="replace")


async def run_offline(*arguments: str) -> tuple[int, str]:
    """Run Python in a process of its own, offline, so that its memory goes away with it.

    Returns its exit code and the last line that it wrote to standard error.
    """
    code, output = await run_to_end("env", "HF_HUB_OFFLINE=1", sys.executable, "-P", *arguments)
    return code, (output.strip().splitlines() or ["no message"])[-1]


async def _is_whole(folder: Path, *, verify: bool, report: WeightsReport) -> bool:
    try:
        files = json.loads((folder / FOLDER_MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    for name, entry in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != entry["bytes"]:
            return False
        if verify:
            report(WeightsProgress(stage=WeightsStage.CHECKING, text=f"checking {name}"))
            if await asyncio.to_thread(file_sha256, path) != entry["sha256"]:
                return False
    return bool(files)


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


async def _make(folder: Path, make: Make, needed_bytes: int, packages: tuple[str, ...]) -> None:
    parent = folder.parent
    for leftover in parent.glob(f".{folder.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    free_bytes = shutil.disk_usage(parent).free
    if free_bytes < needed_bytes:
        raise WeightsError(
            f"Making the weights needs {needed_bytes / 1e9:.1f} GB in {parent}, which has "
            f"{free_bytes / 1e9:.1f} GB; free some, or move the cache."
        )
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=parent))
    try:
        made = partial / folder.name
        await make(made)
        await asyncio.to_thread(_write_manifest, made, packages)
        _swap(made, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _swap(made: Path, folder: Path) -> None:
    if folder.exists():  # a broken one: out of the way first, a rename does not replace a folder
        folder.rename(made.with_name("broken"))
    made.rename(folder)


def _write_manifest(folder: Path, packages: tuple[str, ...]) -> None:
    manifest = {
        "versions": {package: version(package) for package in packages},
        "files": {
            path.name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
            for path in sorted(folder.iterdir())
        },
    }
    (folder / FOLDER_MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
