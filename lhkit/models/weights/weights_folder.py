"""Build a folder of weights in the cache, atomically and verified.

Includes the lock, the check of disk space, the manifest with the size and hash of every file, and
the subprocesses. The caller passes a function that builds the files.
"""

import asyncio
import errno
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from filelock import AsyncFileLock, Timeout

from lhkit.base.errors import MissingPackageError, WeightsError
from lhkit.base.files import file_sha256

FOLDER_MANIFEST = "lhkit-manifest.json"


class WeightsStage(StrEnum):
    """A stage of the work on weights."""

    NOTICE = "notice"
    WAITING = "waiting"
    FETCHING = "fetching"
    CONVERTING = "converting"
    MERGING = "merging"
    CHECKING = "checking"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsProgress:
    """Progress of the work on weights.

    Args:
        stage: current stage.
        text: line for people.
        done_bytes: bytes processed.
        total_bytes: bytes to process; 0 if unknown.
        elapsed_s: time spent in this stage.
    """

    stage: WeightsStage
    text: str
    done_bytes: int = 0
    total_bytes: int = 0
    elapsed_s: float = 0.0


WeightsReport: TypeAlias = Callable[[WeightsProgress], None]

Build: TypeAlias = Callable[[Path], Awaitable[None]]
"""Builds a folder at a new path; other files in the parent folder are deleted afterwards."""


def ignore_progress(progress: WeightsProgress) -> None:
    """Do nothing with a progress report."""


async def with_progress(
    work: Awaitable[None], report: WeightsReport, stage: WeightsStage, text: str
) -> None:
    """Await `work` and report the elapsed time once a second."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            report(WeightsProgress(stage=stage, text=text, elapsed_s=loop.time() - began_s))
            await asyncio.wait({task}, timeout=1.0)
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def ensure_folder(
    folder: Path,
    build: Build,
    *,
    needed_bytes: int,
    packages: tuple[str, ...] = (),
    report: WeightsReport,
    verify: bool = False,
) -> Path:
    """Return a complete folder; build it if it is missing or damaged.

    Concurrent processes are safe.

    Args:
        folder: path, whose name changes with the sources it is built from.
        build: builds it.
        needed_bytes: disk space that building needs.
        packages: packages that building needs.
        report: called with the progress.
        verify: also compare every file's hash, not only its size.

    Raises:
        MissingPackageError: building needs a package that is not installed.
        WeightsError: it cannot be stored.
    """
    if await _is_complete(folder, verify=verify, report=report):
        return folder
    if missing := [package for package in packages if find_spec(package) is None]:
        raise MissingPackageError(
            f"The embedded Gemma needs {', '.join(missing)}, not installed in {sys.executable}. "
            "Use --runtime llama.cpp (`pip install 'lhkit[local]'`), `make venv` in a clone, or "
            "give the address of a server with --base-url."
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        async with _lock(folder.with_name(f".{folder.name}.lock"), report):
            if not await _is_complete(folder, verify=verify, report=report):
                await _build(folder, build, needed_bytes, packages)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise WeightsError(
                f"The disk of {folder.parent} is full; free {needed_bytes / 1e9:.1f} GB and "
                "run this again."
            ) from error
        raise WeightsError(
            f"The weights cannot be stored in {folder.parent} ({error}); make it writable, or "
            "move the cache."
        ) from error
    return folder


async def run_command(*command: str) -> tuple[int, str]:
    """Run a command without input; return its exit code and standard error.

    Cancelling kills it, and waits until it has ended.

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


async def run_python(*arguments: str) -> tuple[int, str]:
    """Run Python offline; return exit code and last line of standard error."""
    code, output = await run_command("env", "HF_HUB_OFFLINE=1", sys.executable, "-P", *arguments)
    return code, (output.strip().splitlines() or ["no message"])[-1]


async def _is_complete(folder: Path, *, verify: bool, report: WeightsReport) -> bool:
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
async def _lock(path: Path, report: WeightsReport) -> AsyncIterator[None]:
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


async def _build(folder: Path, build: Build, needed_bytes: int, packages: tuple[str, ...]) -> None:
    parent = folder.parent
    for leftover in parent.glob(f".{folder.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    free_bytes = shutil.disk_usage(parent).free
    if free_bytes < needed_bytes:
        raise WeightsError(
            f"The weights need {needed_bytes / 1e9:.1f} GB in {parent}, which has "
            f"{free_bytes / 1e9:.1f} GB; free some, or move the cache."
        )
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=parent))
    try:
        new = partial / folder.name
        await build(new)
        await asyncio.to_thread(_complete, new, folder, packages)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _complete(new: Path, folder: Path, packages: tuple[str, ...]) -> None:
    """Write the manifest of a new folder, and put it in the place of `folder`."""
    manifest = {
        "versions": {package: version(package) for package in packages},
        "files": {
            path.name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
            for path in sorted(new.iterdir())
        },
    }
    (new / FOLDER_MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    if folder.exists():  # a damaged one: a rename does not replace a folder
        folder.rename(new.with_name("damaged"))
    new.rename(folder)
