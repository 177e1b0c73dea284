"""Weights with an adapter merged in: found, made, kept."""

import errno
import hashlib
import json
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lhkit.errors import TuningError, WeightsError
from lhkit.models import weights
from lhkit.models.serving import RunningServer, ServerSettings, find_running, require_vllm
from lhkit.models.weights import (
    EMBEDDED,
    EMBEDDED_GEMMA,
    TUNED,
    Recipe,
    WeightsProgress,
    WeightsReport,
    WeightsSource,
    WeightsStage,
    bf16_bytes,
    ensure_folder,
    ensure_weights,
    file_sha256,
    run_offline,
    served_dtype,
    serving_plan,
    silent,
    weights_folder,
    weights_sha256,
    with_progress,
)
from lhkit.settings import Settings
from lhkit.tuning.adapter import CARD, REFUSED, WEIGHTS, require_adapter

# The Gemma that ships tuned: the embedded base with the shipped adapter merged into it, once.
#
# `ensure_tuned` is the door. How the merging is done is `adapter`'s business, how the base comes
# about `models.weights`'.


SHIPPED = Path(__file__).parent / "shipped"
"""The adapter for life-helper: package data."""

_LAYOUT = 1  # raise it when the folder is made differently: old folders are then not used
_DOCUMENTS = ("CARD.md", "NOTICE")

EnsureBase: TypeAlias = Callable[..., Awaitable[Path]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merger:
    """Merges base and adapter into a new folder; needs `packages` installed."""

    run: Callable[[Path, Path, Path], Awaitable[None]]
    packages: tuple[str, ...] = ()


async def merge_in_subprocess(base: Path, adapter: Path, target: Path) -> None:
    """Run `merge` in a process of its own, offline.

    Raises:
        TuningError: what `merge` refuses.
        WeightsError: if it fails; the message carries its last line.
        OSError: the disk is full.
    """
    words = ("-m", "lhkit.tuning.adapter", str(base), str(adapter), str(target))
    code, told = await run_offline(*words)
    if code == REFUSED:
        raise TuningError(told)
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
        TuningError: the adapter is missing, broken, or made for another base.
        SetupError: as `ensure_weights`; also if the merging fails.
    """
    report(WeightsProgress(stage=WeightsStage.NOTICE, text=source.notice))
    adapter = adapter or SHIPPED

    async def make(folder: Path) -> None:
        base = await ensure_base(
            cache_dir, report=_without_notice(report), verify=True, source=source
        )
        text = "merging the adapter (half a minute, once)"
        work = merger.run(base, adapter, folder)
        await with_progress(work, report, WeightsStage.MERGING, text)
        for name in _DOCUMENTS:
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
        TuningError: there is no adapter.
    """
    told = json.dumps([_LAYOUT, _made_from(cache_dir, adapter or SHIPPED, source)], sort_keys=True)
    digest = hashlib.sha256(told.encode()).hexdigest()
    return cache_dir / "weights" / f"{source.name}-tuned-{digest[:8]}"


def _made_from(cache_dir: Path, adapter: Path, source: WeightsSource) -> dict[str, str]:
    require_adapter(adapter)
    hashes = {name: file_sha256(adapter / name) for name in (CARD, WEIGHTS)}
    return {"base": weights_folder(cache_dir, source).name, **hashes}


def _without_notice(report: WeightsReport) -> WeightsReport:
    """The notice has been told: once is enough."""

    def passed_on(progress: WeightsProgress) -> None:
        if progress.stage is not WeightsStage.NOTICE:
            report(progress)

    return passed_on


# From the name of an embedded model to its weights, its running server, or how to serve it.
#
# It knows both, the tuned and the bare one; `models.embedded` knows only their names.


def embedded_folder(name: str, settings: Settings) -> Path:
    """Return where the weights of an embedded model lie, or will lie.

    Raises:
        TuningError: there is no adapter.
    """
    if name == TUNED:
        return tuned_folder(settings.cache_dir)
    return weights.weights_folder(settings.cache_dir)


async def running_server(name: str, settings: Settings) -> RunningServer | None:
    """Return the server that `lhkit serve` keeps of an embedded model; not one of older weights.

    Nor one that computes in another type than the settings ask for.

    Raises:
        TuningError: there is no adapter.
    """
    folder = embedded_folder(name, settings)
    return await find_running(settings.cache_dir, name, model=folder, dtype=settings.dtype)


async def embedded_server(
    settings: Settings,
    report: WeightsReport = weights.silent,
    *,
    name: str = EMBEDDED,
    port: int | None = None,
    server_parser: bool = False,
    compiled: bool = False,
) -> ServerSettings:
    """Return how to serve an embedded model (see `serving_plan`), with its weights in place.

    Raises:
        SetupError: vLLM is not installed (told first), or the weights cannot be had.
        TuningError: the adapter cannot be used.
    """
    require_vllm()
    ensure = ensure_tuned if name == TUNED else weights.ensure_weights
    folder = await ensure(settings.cache_dir, report=report)
    now = settings.now()
    return serving_plan(
        name,
        folder,
        settings.cache_dir,
        now,
        dtype=served_dtype(settings.dtype),
        port=port,
        server_parser=server_parser,
        compiled=compiled,
        weights_sha256=await weights_sha256(folder, settings.cache_dir, report=report),
    )
