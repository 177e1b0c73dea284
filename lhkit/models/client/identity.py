"""Identify a server: model name, weights, number type, software and version.

A server that lhkit starts reports the hash of its weights, its number type, its graphics card and
its batch size by extra served names ("aliases"), because no API of vLLM or llama.cpp reports them.
"""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote, unquote

import yarl

from lhkit.base.errors import (
    ModelError,
    RequestRefusedError,
    ServerFailedError,
    StreamBrokenError,
    UnknownModelError,
)
from lhkit.base.redaction import MASK
from lhkit.conversation.responses import ModelIdentity
from lhkit.models.address import require_address
from lhkit.models.client.errors import shortened, unexpected_answer
from lhkit.models.client.sse import typed
from lhkit.models.client.transport import Clock, Connection, Endpoint, open_session
from lhkit.models.precision import DTYPES, ServedDtype

LLAMA_CPP = "llama.cpp"
"""Prefix of `ModelIdentity.server` for a llama.cpp server."""

BUILD_ALIAS = "lhkit-build-"
"""Prefix of the alias that reports the build of llama.cpp, as `gguf_serving` writes it."""

_WEIGHTS_ALIAS = "lhkit-weights-sha256-"
_DTYPE_ALIAS = "lhkit-dtype-"
_DEVICE_ALIAS = "lhkit-device-"
_SEQS_ALIAS = "lhkit-max-num-seqs-"
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_SHOWN_MODELS = 20
_GEMINI_PREFIX = "models/"
"""Optional prefix of model names on Gemini's servers."""
_UNKNOWN_BUILD = "b0-unknown"
"""`build_info` of a llama.cpp that was built without its commit."""


def server_aliases(
    *, weights_sha256: str, dtype: ServedDtype, device: str = "", max_num_seqs: int | None = None
) -> tuple[str, ...]:
    """Return the aliases of a vLLM server; none for what is unknown.

    They follow the model's own name, which is the one that vLLM puts into answers and metrics.
    """
    return (
        *((weights_alias(weights_sha256),) if weights_sha256 else ()),
        *((f"{_DTYPE_ALIAS}{dtype}",) if dtype != "auto" else ()),
        *((f"{_DEVICE_ALIAS}{quote(device, safe='')}",) if device else ()),
        *((f"{_SEQS_ALIAS}{max_num_seqs}",) if max_num_seqs else ()),
    )


def weights_alias(sha256: str) -> str:
    """Return the alias that reports the hash of a server's weights."""
    return f"{_WEIGHTS_ALIAS}{sha256}"


def parse_weights_alias(served_name: str) -> str:
    """Return the hash in an alias; empty for any other name."""
    value = served_name.removeprefix(_WEIGHTS_ALIAS)
    return value if value != served_name and re.fullmatch("[0-9a-f]{64}", value) else ""


def parse_dtype_alias(served_name: str) -> str:
    """Return the number type in an alias; empty for any other name."""
    value = served_name.removeprefix(_DTYPE_ALIAS)
    return value if value != served_name and value in DTYPES else ""


def parse_device_alias(served_name: str) -> str:
    """Return the graphics card in an alias; empty for any other name."""
    value = served_name.removeprefix(_DEVICE_ALIAS)
    return " ".join(unquote(value).split()) if value != served_name else ""


def parse_seqs_alias(served_name: str) -> int:
    """Return the batch size in an alias; 0 for any other name."""
    value = served_name.removeprefix(_SEQS_ALIAS)
    return int(value) if value != served_name and re.fullmatch("[1-9][0-9]{0,5}", value) else 0


def _is_alias(served_name: str) -> bool:
    parsers = (parse_weights_alias, parse_dtype_alias, parse_device_alias, parse_seqs_alias)
    return any(parse(served_name) for parse in parsers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDetails:
    """What a server reports that is not part of its identity.

    Attributes:
        parent: the base model of a served adapter.
        folder: the folder of the weights, if the server runs on this machine.
        chat_template: the text of its chat template.
        max_num_seqs: its batch size; 0 if it does not report it.
    """

    parent: str = ""
    folder: Path | None = None
    chat_template: str = ""
    max_num_seqs: int = 0


@asynccontextmanager
async def connecting(
    endpoint: Endpoint, clock: Clock | None = None
) -> AsyncIterator[tuple[Connection, ModelIdentity, ServerDetails]]:
    """Yield a new connection, the server's identity and its details.

    Without `endpoint.dialect`, the dialect of the identity is empty.

    The connection is closed only if the block fails. Without `endpoint.model`, the only served
    model is taken. With it, a server need not list its models. Nothing is retried here: a wrong
    address should be reported at once.

    Raises:
        UsageError: the address is invalid.
        UnknownModelError: the server does not serve that model; the message lists its models.
        ModelError: the server does not answer, or refuses.
    """
    require_address(endpoint.root)
    connection = Connection(endpoint, open_session(endpoint), clock)
    try:
        yield connection, *await _identify(endpoint, connection)
    except BaseException:
        await connection.aclose()
        raise


async def _identify(
    endpoint: Endpoint, connection: Connection
) -> tuple[ModelIdentity, ServerDetails]:
    try:
        served = await _list_models(connection)
    except ModelError as error:
        if not endpoint.model or not _lacks_model_list(error):
            raise
        served = {}
    if endpoint.model and not served:  # a server that loads models on demand may list none
        served = {endpoint.model: _ServedModel()}
    software = await _read_software(connection)
    if software.file:  # without an alias, llama.cpp names a model by the path of its file
        served = {PurePath(name).name: model for name, model in served.items()}
    names = list(served)
    plain = [name for name in names if not _is_wildcard(name)]
    given = [name for name in plain if name != PurePath(software.file).name] or plain
    if endpoint.model is None and len(given) == 1:  # prefer a given name to the file's name
        model = listed = given[0]
    elif endpoint.model and (match := _find_name(endpoint.model, names)):
        model, listed = endpoint.model, match
    else:
        if not names:
            raise UnknownModelError(
                f"{endpoint.root} lists no model: give one that it can load with --model"
            )
        shown = ", ".join(map(shortened, names[:_SHOWN_MODELS]))
        raise UnknownModelError(
            f"{endpoint.root} serves {shown}, not {endpoint.model or 'exactly one model'}: "
            "give one of these with --model"
        )
    server, build = software.name, served[listed].build
    if build and server.startswith(LLAMA_CPP):
        server = f"{server.removesuffix(_UNKNOWN_BUILD).strip()} {build}"
    entry = served[listed]
    base = served.get(entry.parent, entry)
    is_local = yarl.URL(endpoint.root).host in _LOCAL_HOSTS and PurePath(base.root).is_absolute()
    details = ServerDetails(
        parent=entry.parent,
        folder=Path(base.root) if is_local else None,
        chat_template=software.chat_template,
        max_num_seqs=entry.max_num_seqs,
    )
    identity = ModelIdentity(
        model=model,
        server=server,
        base_url=endpoint.root,
        dialect=endpoint.dialect or "",
        constraint=endpoint.constraint,
        weights=weights_name(entry.root or software.file, model),
        weights_sha256=entry.weights_sha256,
        dtype=entry.dtype or software.quantisation or endpoint.dtype,
        device=entry.device,
    )
    return identity, details


def _find_name(model: str, names: Sequence[str]) -> str | None:
    """Return the listed name for a model: itself, with prefix, or a wildcard."""
    if model in names:
        return model
    bare = model.removeprefix(_GEMINI_PREFIX)
    matches = [name for name in names if name.removeprefix(_GEMINI_PREFIX) == bare]
    matches += [name for name in names if _is_wildcard(name) and fnmatchcase(model, name)]
    return next(iter(matches), None)


def _is_wildcard(name: str) -> bool:
    return "*" in name.replace(MASK, "")


def _lacks_model_list(error: ModelError) -> bool:
    """Return True if a server answered, but without a model list."""
    import aiohttp

    match error.__cause__:
        case aiohttp.ClientResponseError(status=status):
            return status in {400, 404, 405, 410, 422, 501}
        case aiohttp.ClientError() | OSError():
            return False
        case _:
            return isinstance(error, StreamBrokenError)


def weights_name(root: str, model: str) -> str:
    """Return the name of the weights behind a served name; empty if they are the same.

    A folder is reduced to its last part, so that no local path gets into records.
    """
    name = PurePath(root).name if PurePath(root).is_absolute() else root
    return "" if name == model else name


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServedModel:
    """What a server reports for one name; a field is empty if unknown.

    `build` is the build of llama.cpp, if lhkit started it; `parent` the base of an adapter.
    """

    root: str = ""
    parent: str = ""
    weights_sha256: str = ""
    dtype: str = ""
    device: str = ""
    max_num_seqs: int = 0
    build: str = ""


async def _list_models(connection: Connection) -> dict[str, _ServedModel]:
    """Return the served models by name, without lhkit's aliases.

    A hash applies to the names with the same root, because a served adapter has another one. Number
    type, card and batch size apply to all.
    """
    payload = await connection.get_json("/v1/models")
    if isinstance(payload, dict):
        entries = payload.get("data", payload.get("models"))
    else:
        entries = payload or None  # an empty list may be of anything
    if not isinstance(entries, list) or not all(map(_entry_name, entries)):
        raise unexpected_answer(connection.address, f"no list of models at /v1/models: {payload}")
    entries = [entry if isinstance(entry, dict) else {"id": entry} for entry in entries]
    parents = {_entry_name(entry): str(entry.get("parent") or "") for entry in entries}
    roots = {
        str(name): str(entry.get("root") or "")
        for entry in entries
        for name in (_entry_name(entry), *(typed(entry, "aliases", list) or ()))  # llama.cpp
    }
    hashes = {root: sha256 for name, root in roots.items() if (sha256 := parse_weights_alias(name))}
    dtype = next(filter(None, map(parse_dtype_alias, roots)), "")
    device = next(filter(None, map(parse_device_alias, roots)), "")
    max_num_seqs = next(filter(None, map(parse_seqs_alias, roots)), 0)
    builds = [name for name in roots if name.startswith(BUILD_ALIAS)]
    build = builds[0].removeprefix(BUILD_ALIAS) if builds else ""
    return {
        name: _ServedModel(
            root=root,
            parent=parents.get(name, ""),
            weights_sha256=hashes.get(root, ""),
            dtype=dtype,
            device=device,
            max_num_seqs=max_num_seqs,
            build=build,
        )
        for name, root in roots.items()
        if not (_is_alias(name) or name in builds)
    }


def _entry_name(entry: Any) -> str:
    """Return the name in an entry of a model list; empty if it has none."""
    if isinstance(entry, dict):
        entry = entry.get("id") or entry.get("name") or entry.get("model")
    return entry if isinstance(entry, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Software:
    """Name and version of a server; for llama.cpp also the file, quantisation and template."""

    name: str
    file: str = ""
    quantisation: str = ""
    chat_template: str = ""


async def _read_software(connection: Connection) -> _Software:
    """Probe the paths at which vLLM and llama.cpp report their versions."""
    missing = (RequestRefusedError, ServerFailedError, StreamBrokenError, KeyError)
    with suppress(*missing):
        payload = await connection.get("/version")
        return _Software(name=f"vllm {payload['version']}")
    with suppress(*missing):
        props = await connection.get("/props")
        return _Software(
            name=f"{LLAMA_CPP} {props['build_info']}",
            file=PurePath(str(props.get("model_path") or "")).name,
            quantisation=str(props.get("model_ftype") or ""),
            chat_template=str(props.get("chat_template") or ""),
        )
    return _Software(name="unknown server")
