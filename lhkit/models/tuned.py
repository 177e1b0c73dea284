"""The Gemma that ships tuned: the embedded base with the shipped adapter merged into it, once.

How the merging is done is `adapter`'s business, in a process of its own.
"""

import errno
import hashlib
import json
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lhkit.errors import AdapterError, WeightsError
from lhkit.files import file_sha256
from lhkit.models.child_process import run_offline
from lhkit.models.made_folder import Recipe, ensure_folder
from lhkit.models.progress import (
    WeightsProgress,
    WeightsReport,
    WeightsStage,
    silent,
    with_progress,
)
from lhkit.models.weights import bf16_bytes, ensure_weights, weights_folder
from lhkit.models.wheels import EMBEDDED_GEMMA, WeightsSource

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
