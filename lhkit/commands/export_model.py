"""`lhkit export-model`: a model as the file that another runtime loads."""

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.text import Text

from lhkit import app
from lhkit.commands.console import EXIT_MISSED, wide_console
from lhkit.commands.progress import setup_progress
from lhkit.errors import MissingPackageError, UsageError, WeightsError
from lhkit.files import drafted, version_of
from lhkit.harness.parity import TIE
from lhkit.locales import Catalog, load_catalog
from lhkit.messages import Finished, Sampling, UserMessage
from lhkit.models import gguf_check, gguf_export
from lhkit.models.base import ModelRequest
from lhkit.models.http import Endpoint
from lhkit.models.light import LlamaCppServer, LlamaCppSettings
from lhkit.models.served import connect
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

PROMPTS = (
    "안녕! 뭘 도와줄 수 있어?",
    "잠을 더 잘 자려면 어떻게 해야 해? 세 가지만 알려 줘.",
    "물 한 잔 마신 걸 기록해 줘.",
    "What is a good first step to drink less coffee?",
    "Write the days of the week, one a line.",
)
"""What a file is asked when it has been written: the same for every model."""
_MOST_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportModelOptions:
    """What the user asked for: `source` is a folder or the name of an embedded model.

    With `is_checked` the file is asked `PROMPTS` as soon as it is written.
    """

    source: str
    to: str
    into: Path
    is_checked: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How a file answers, and how far its source agrees.

    Of `prompts` that were asked `answered` got at least one word. Of all `tokens` that the file
    wrote the source holds `agreed` for likeliest, too, each seen behind those before it; of the
    others `ties` are nearly as likely. `same` replies are what the source would have written. The
    last four are None where nothing could ask the source.
    """

    prompts: int
    answered: int
    tokens: int
    agreed: int | None = None
    ties: int | None = None
    same: int | None = None

    def words(self, catalog: Catalog) -> str:
        """Return it as a sentence or two."""
        told = {key: value for key, value in asdict(self).items() if value is not None}
        if self.answered < self.prompts:
            return catalog.text("export.not_answered", **told)
        if self.agreed is None or self.ties is None:
            return catalog.text("export.answered", **told)
        percent = f"{100 * self.agreed / self.tokens:.1f}"
        others = self.tokens - self.agreed
        return catalog.text("export.agrees", **told, percent=percent, others=others)


async def export_model(options: ExportModelOptions, settings: Settings) -> int:
    """Write the file, and beside it a manifest: from what, by what, which hash; return 0.

    The file is there when it is whole, or not at all. Then llama.cpp answers five prompts with it,
    and the source is asked how far it agrees; 1 is returned where a prompt is not answered.

    Raises:
        UsageError: no such format, no folder of a model, or a file that is no `.gguf`.
        SetupError: a package lacks, the weights cannot be made, the conversion fails, or llama.cpp
            cannot load the file.
        ModelError: llama.cpp breaks off while it answers.
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
    _write_manifest(options.into, manifest)
    catalog = load_catalog(settings.locale)
    size = f"{manifest['file']['bytes'] / 1e6:,.0f}"
    _say(catalog.text("export.model", path=options.into, megabytes=size))
    if not options.is_checked:
        return 0
    if find_spec("xllamacpp") is None:
        _say(catalog.text("export.unchecked"))
        return 0
    check = await _checked(options.into, folder, settings)
    _write_manifest(options.into, {**manifest, "check": asdict(check)})
    _say(check.words(catalog))
    return 0 if check.answered == check.prompts else EXIT_MISSED


def _write_manifest(file: Path, manifest: Mapping[str, Any]) -> None:
    told = json.dumps(manifest, indent=2) + "\n"
    file.with_suffix(".json").write_text(told, encoding="utf-8")


def _say(words: str) -> None:
    wide_console().print(Text(printable(words)), soft_wrap=True)


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


async def _checked(file: Path, folder: Path, settings: Settings) -> Check:
    replies = await _answered(file, settings)
    check = Check(
        prompts=len(replies),
        answered=sum(bool(each.raw_text.strip()) for each in replies),
        tokens=sum(len(each.token_ids) for each in replies),
    )
    if not check.tokens or None in map(find_spec, ("torch", "transformers")):
        return check
    gaps = await _gaps(folder, replies)
    apart = [[gap for gap in each if gap > 0] for each in gaps]
    return Check(
        prompts=check.prompts,
        answered=check.answered,
        tokens=check.tokens,
        agreed=check.tokens - sum(map(len, apart)),
        ties=sum(gap < TIE for each in apart for gap in each),
        same=sum(not each for each in apart),
    )


async def _answered(file: Path, settings: Settings) -> list[Finished]:
    """Return what llama.cpp answers with the file."""
    log = settings.cache_dir / "logs" / f"{file.stem}-check.log"
    plan = LlamaCppSettings(model=file, served_name=file.stem, log_path=log, at_once=1)
    replies = []
    async with LlamaCppServer(plan) as server:
        model = await connect(Endpoint(base_url=server.base_url, model=file.stem))
        try:
            for prompt in PROMPTS:
                request = ModelRequest(
                    messages=(UserMessage(text=prompt),), sampling=Sampling(max_tokens=_MOST_TOKENS)
                )
                events = [event async for event in model.stream(request)]
                replies += [each for each in events if isinstance(each, Finished)]
        finally:
            await model.aclose()
    return replies


async def _gaps(folder: Path, replies: Sequence[Finished]) -> list[list[float]]:
    """Return how much likelier than each token of the replies the source holds its own."""
    with tempfile.TemporaryDirectory() as place:
        asked, told = Path(place) / "asked.json", Path(place) / "told.json"
        pairs = [
            {"prompt": list(each.prompt_token_ids), "reply": list(each.token_ids)}
            for each in replies
            if each.token_ids
        ]
        asked.write_text(json.dumps(pairs), encoding="utf-8")
        code, line = await run_offline(gguf_check.__file__, str(folder), str(asked), str(told))
        if code:
            raise WeightsError(f"{folder} cannot be asked how far it agrees (exit {code}: {line})")
        found = json.loads(told.read_text(encoding="utf-8"))
    return [each["gaps"] for each in found]
