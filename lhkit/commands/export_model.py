"""`lhkit export-model`: a model as the file that another runtime loads."""

import asyncio
import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.text import Text

from lhkit import app
from lhkit.commands.console import wide_console
from lhkit.commands.progress import setup_progress
from lhkit.errors import MissingPackageError, UsageError, WeightsError
from lhkit.files import drafted, version_of
from lhkit.locales import load_catalog
from lhkit.models import gguf_export
from lhkit.models.weights import (
    EMBEDDED_NAMES,
    TUNED,
    ensure_tuned,
    ensure_weights,
    file_sha256,
    run_offline,
    weights_sha256,
)
from lhkit.settings import Settings
from lhkit.text import printable

FORMATS = tuple(f"gguf:{each}" for each in gguf_export.QUANTISATIONS)
"""What `--to` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportModelOptions:
    """What the user asked for: `source` is a folder or the name of an embedded model."""

    source: str
    to: str
    into: Path


async def export_model(options: ExportModelOptions, settings: Settings) -> int:
    """Write the file, and beside it a manifest: from what, by what, which hash; return 0.

    The file is there when it is whole, or not at all.

    Raises:
        UsageError: no such format, no folder of a model, or a file that is no `.gguf`.
        SetupError: a package lacks, the weights cannot be made, or the conversion fails.
    """
    if options.to not in FORMATS:
        raise UsageError(f"no format {options.to!r}: choose one of {', '.join(FORMATS)}")
    if options.into.suffix != ".gguf":
        raise UsageError(f"{options.into}: llama.cpp knows its files by their ending: give .gguf")
    if find_spec("gguf") is None:
        raise MissingPackageError("gguf is not installed: `pip install gguf`, or `make venv`")
    quantisation = options.to.partition(":")[2]
    if quantisation in gguf_export.BY_LLAMA_CPP and find_spec("xllamacpp") is None:
        raise MissingPackageError(
            f"only llama.cpp makes {quantisation}, and it is not installed: `pip install "
            "'lhkit[light]'`"
        )
    folder = await _folder(options.source, settings)
    manifest = await asyncio.to_thread(_made_from, folder, options.to)
    manifest["source"]["sha256"] = await weights_sha256(folder, settings.cache_dir)
    await _converted(folder, options.into, quantisation)
    manifest["file"] = {
        "name": options.into.name,
        "bytes": options.into.stat().st_size,
        "sha256": await asyncio.to_thread(file_sha256, options.into),
    }
    told = options.into.with_suffix(".json")
    told.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    size = f"{manifest['file']['bytes'] / 1e6:,.0f}"
    words = load_catalog(settings.locale).text("export.model", path=options.into, megabytes=size)
    wide_console().print(Text(printable(words)), soft_wrap=True)
    return 0


async def _folder(source: str, settings: Settings) -> Path:
    if source in EMBEDDED_NAMES:
        ensure = ensure_tuned if app.embedded_name(source) == TUNED else ensure_weights
        with setup_progress() as reports:
            return await ensure(settings.cache_dir, report=reports.weights)
    folder = Path(source)
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{folder} holds no model: give {' or '.join(EMBEDDED_NAMES)}, or a folder as `lhkit "
            "tune merge` writes it"
        )
    return folder


def _made_from(folder: Path, to: str) -> dict[str, Any]:
    versions = {each: version_of(each) for each in ("lhkit", "gguf", "numpy")}
    return {"source": {"folder": folder.resolve().name}, "to": to, "versions": versions}


async def _converted(folder: Path, into: Path, quantisation: str) -> None:
    """Convert in a process of its own, into a draft that takes the file's name when it is whole."""
    await asyncio.to_thread(into.parent.mkdir, parents=True, exist_ok=True)
    with drafted(into) as (draft,):
        code, told = await run_offline(gguf_export.__file__, str(folder), str(draft), quantisation)
        if code:
            raise WeightsError(f"{folder} cannot be written as GGUF (exit {code}: {told})")
