"""`lhkit export-model`: a model as the file that another runtime loads."""

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.text import Text

from lhkit import app
from lhkit.commands.console import EXIT_MISSED, wide_console
from lhkit.commands.options import ExportModelOptions
from lhkit.commands.progress import setup_progress
from lhkit.errors import MissingPackageError, UsageError, WeightsError
from lhkit.files import drafted, version_of
from lhkit.locales import Catalog, load_catalog
from lhkit.messages import Finished, Sampling, UserMessage
from lhkit.models import gguf_check, gguf_export, litert_export
from lhkit.models.base import ModelRequest
from lhkit.models.dialects.base import END_OF_TURN_ID
from lhkit.models.http import Endpoint
from lhkit.models.light import LlamaCppServer, LlamaCppSettings
from lhkit.models.litert import LiteRtServer, LiteRtSettings
from lhkit.models.llama_cpp import LlamaCppHttp
from lhkit.models.openai import OpenAiHttp
from lhkit.models.served import connect
from lhkit.models.serving import LocalServer, ServerPlan
from lhkit.models.vllm import VllmHttp
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

FORMATS = (
    *(f"gguf:{each}" for each in gguf_export.QUANTISATIONS),
    *(f"litertlm:{each}" for each in litert_export.RECIPES),
)
"""What `--to` takes."""
_RUNTIMES = {"gguf": "llama.cpp", "litertlm": "LiteRT-LM"}

PROMPTS = (
    "안녕! 뭘 도와줄 수 있어?",
    "잠을 더 잘 자려면 어떻게 해야 해? 세 가지만 알려 줘.",
    "물 한 잔 마신 걸 기록해 줘.",
    "What is a good first step to drink less coffee?",
    "Write the days of the week, one a line.",
)
"""What a file is asked when it has been written: the same for every model."""
_MOST_TOKENS = 64
TIE = 0.2
"""Log-probabilities that differ by less are called a tie: some steps of bfloat16 at such sizes."""


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

    The file is there when it is whole, or not at all. Then its runtime answers five prompts with
    it, and the source is asked how far it agrees; 1 is returned where a prompt is not answered.

    Raises:
        UsageError: no such format, no folder of a model, or a file with another ending.
        SetupError: a package lacks, the weights cannot be made, the conversion fails, or the
            runtime cannot load the file.
        ModelError: the runtime breaks off while it answers.
    """
    if options.to not in FORMATS:
        raise UsageError(f"no format {options.to!r}: choose one of {', '.join(FORMATS)}")
    if options.into.suffix != f".{options.kind}":
        raise UsageError(
            f"{options.into}: {_RUNTIMES[options.kind]} knows its files by their ending: give "
            f".{options.kind}"
        )
    await _require_converter(options)
    folder = await _folder(options.source, settings)
    manifest = await asyncio.to_thread(_made_from, folder, options.to)
    manifest["source"]["sha256"] = await weights_sha256(folder, settings.cache_dir)
    manifest |= await _converted(folder, options, manifest)
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
    package, extra = ("xllamacpp", "light") if options.kind == "gguf" else ("litert_lm", "litert")
    if find_spec(package) is None:
        runtime = _RUNTIMES[options.kind]
        _say(catalog.text("export.unchecked", runtime=runtime, extra=extra))
        return 0
    check = await _checked(options, folder, settings)
    _write_manifest(options.into, {**manifest, "check": asdict(check)})
    _say(check.words(catalog))
    return 0 if check.answered == check.prompts else EXIT_MISSED


async def _require_converter(options: ExportModelOptions) -> None:
    """Tell before anything is fetched or made that nothing could convert it."""
    if options.kind == "litertlm":
        code, told = await run_offline(litert_export.__file__, python=options.converter)
        if code == litert_export.MISSING:
            raise MissingPackageError(
                f"LiteRT's converter is not installed in {options.converter} ({told} missing): it "
                "takes gigabytes and a torch of its own, so give it an environment: `python -m "
                "venv converter && converter/bin/pip install litert-torch litert-lm-builder "
                "tensorflow-cpu`, then --converter converter/bin/python"
            )
        if code:
            raise UsageError(f"--converter {options.converter} is no Python that runs: {told}")
        return
    if find_spec("gguf") is None:
        raise MissingPackageError("gguf is not installed: `pip install gguf`, or `make venv`")
    if options.quantisation in gguf_export.BY_LLAMA_CPP and find_spec("xllamacpp") is None:
        raise MissingPackageError(
            f"only llama.cpp makes {options.quantisation}, and it is not installed: `pip install "
            "'lhkit[light]'`"
        )


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


async def _converted(
    folder: Path, options: ExportModelOptions, manifest: Mapping[str, Any]
) -> dict[str, Any]:
    """Convert in a process of its own, into a draft that takes the file's name when it is whole.

    Returns what the manifest has to tell of it besides.
    """
    into, quantisation = options.into, options.quantisation
    await asyncio.to_thread(into.parent.mkdir, parents=True, exist_ok=True)
    with drafted(into) as (draft,), tempfile.TemporaryDirectory() as place:
        asked = (str(folder), str(draft), quantisation)
        if options.kind == "gguf":
            code, told = await run_offline(gguf_export.__file__, *asked)
            if code:
                raise WeightsError(f"{folder} cannot be written as GGUF (exit {code}: {told})")
            return {}
        about = Path(place) / "about.json"
        code, told = await run_offline(
            litert_export.__file__, *asked, str(about), python=options.converter
        )
        if code:
            raise WeightsError(
                f"{folder} cannot be written for LiteRT-LM (exit {code}: {told}): the converter "
                "said that; try another --to, or other versions of its packages"
            )
        found = json.loads(await asyncio.to_thread(about.read_text, encoding="utf-8"))
    versions = {"lhkit": manifest["versions"]["lhkit"], **found["versions"]}
    return {"versions": versions, "options": found["options"]}


async def _checked(options: ExportModelOptions, folder: Path, settings: Settings) -> Check:
    replies = await _answered(options, settings)
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


def _server(options: ExportModelOptions, settings: Settings) -> LocalServer[ServerPlan]:
    file = options.into
    log = settings.cache_dir / "logs" / f"{file.stem}-check.log"
    if options.kind == "litertlm":
        return LiteRtServer(LiteRtSettings(model=file, served_name=file.stem, log_path=log))
    plan = LlamaCppSettings(model=file, served_name=file.stem, log_path=log, at_once=1)
    return LlamaCppServer(plan)


async def _answered(options: ExportModelOptions, settings: Settings) -> list[Finished]:
    """Return what the runtime answers with the file."""
    file = options.into
    replies = []
    async with _server(options, settings) as server:
        model = await connect(Endpoint(base_url=server.base_url, model=file.stem))
        try:
            for prompt in PROMPTS:
                request = ModelRequest(
                    messages=(UserMessage(text=prompt),), sampling=Sampling(max_tokens=_MOST_TOKENS)
                )
                events = [event async for event in model.stream(request)]
                ended = [each for each in events if isinstance(each, Finished)]
                replies += [await _with_tokens(each, model) for each in ended]
        finally:
            await model.aclose()
    return replies


async def _with_tokens(reply: Finished, model: VllmHttp | LlamaCppHttp | OpenAiHttp) -> Finished:
    """Return a reply with the ids that its text falls into, where the runtime tells none.

    So the source can be asked about them. The token that ended it is there if one more was counted.
    """
    if reply.token_ids or not isinstance(model, VllmHttp):
        return reply
    ids = await model.tokenize(reply.raw_text)
    has_end = reply.usage.completion_tokens == len(ids) + 1
    return replace(reply, token_ids=(*ids, *((END_OF_TURN_ID,) * has_end)))


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
