"""Who answers at an address: the model's name, its weights, the software that serves it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any

from lhkit.errors import (
    ModelError,
    RequestRefusedError,
    ServerFailedError,
    StreamBrokenError,
    UnknownModelError,
)
from lhkit.models.aliases import dtype_told, sha256_of
from lhkit.models.errors import not_a_server, shortened
from lhkit.models.gguf_serving import BUILD_ALIAS
from lhkit.models.sse import typed
from lhkit.models.transport import Connection, Endpoint, Pace, require_address, session_for
from lhkit.redaction import MASK
from lhkit.responses import ModelIdentity

_SHOWN_MODELS = 20
_MODELS = "models/"
"""What Gemini's servers put before a name, and take it with or without."""
LLAMA_CPP = "llama.cpp"
"""How the name of a llama.cpp server begins."""
_NO_BUILD = "b0-unknown"
"""What llama.cpp calls a build whose makers did not tell it of which commit it is."""


@asynccontextmanager
async def connecting(
    endpoint: Endpoint, pace: Pace | None = None
) -> AsyncIterator[tuple[Connection, ModelIdentity]]:
    """Yield a new connection and who answers there; it is closed only if the block fails.

    Without `endpoint.model`, the only served model is taken. With it, a server need not list its
    models. Nothing is tried twice here: a wrong address is to be told at once.

    Raises:
        UsageError: an address that is none.
        UnknownModelError: the server does not serve that model; the message lists what it does.
        ModelError: nothing answers, or it refuses.
    """
    require_address(endpoint.root)
    connection = Connection(endpoint, session_for(endpoint), pace)
    try:
        yield connection, await _identify(endpoint, connection)
    except BaseException:
        await connection.aclose()
        raise


async def _identify(endpoint: Endpoint, connection: Connection) -> ModelIdentity:
    try:
        served = await _served_models(connection)
    except ModelError as error:
        if not endpoint.model or not _has_no_list(error):
            raise
        served = {endpoint.model: _Served()}
    software = await _software(connection)
    if software.file:  # llama.cpp's name of a model without one is the path of its file
        served = {PurePath(name).name: each for name, each in served.items()}
    names = list(served)
    whole = [name for name in names if not _is_wildcard(name)]
    told = [name for name in whole if name != PurePath(software.file).name] or whole
    if endpoint.model is None and len(told) == 1:  # beside its file's name, one that was given
        model = listed = told[0]
    elif endpoint.model and (found := _listed_as(endpoint.model, names)):
        model, listed = endpoint.model, found
    else:
        shown = ", ".join(map(shortened, names[:_SHOWN_MODELS])) or "no model at all"
        raise UnknownModelError(
            f"{endpoint.root} serves {shown}, not {endpoint.model or 'exactly one model'}: "
            "give one of these with --model"
        )
    return ModelIdentity(
        model=model,
        server=_with_build(software.name, served[listed].build),
        base_url=endpoint.root,
        dialect=endpoint.dialect,
        constraint=endpoint.constraint,
        weights=weights_name(served[listed].root or software.file, model),
        weights_sha256=served[listed].weights_sha256,
        dtype=served[listed].dtype or software.quantisation,
    )


def _listed_as(model: str, names: Sequence[str]) -> str | None:
    """Return the listed name that a model's name means: itself, `models/…`, or a wildcard."""
    bare = model.removeprefix(_MODELS)
    means = [name for name in names if name.removeprefix(_MODELS) == bare]
    means += [name for name in names if _is_wildcard(name) and fnmatchcase(model, name)]
    return model if model in names else next(iter(means), None)


def _is_wildcard(name: str) -> bool:
    return "*" in name.replace(MASK, "")  # a masked key in a name is none


def _has_no_list(error: ModelError) -> bool:
    """Return True if a server answered without a list of models; it may serve one all the same."""
    import aiohttp

    match error.__cause__:
        case aiohttp.ClientResponseError(status=status):
            return status in {400, 404, 405, 410, 422, 501}
        case aiohttp.ClientError() | OSError():
            return False
        case _:
            return isinstance(error, StreamBrokenError)


def weights_name(root: str, model: str) -> str:
    """Return what names the weights behind a served name; empty where the name says it all.

    Of a folder its own name, so that no path of a machine gets into records.
    """
    name = PurePath(root).name if PurePath(root).is_absolute() else root
    return "" if name == model else name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """What a server says of one name: what it loaded, the hash of that, and what it computes in.

    `build` is which build of llama.cpp serves, if lhkit started it. Each is empty if untold.
    """

    root: str = ""
    weights_sha256: str = ""
    dtype: str = ""
    build: str = ""


async def _served_models(connection: Connection) -> dict[str, _Served]:
    """Return what is served, by name. An alias that tells something is no model of its own.

    A hash is of the names with its own root: an adapter that is served beside has another one. All
    of a server compute in one type.
    """
    payload = await connection.get_json("/v1/models")
    if isinstance(payload, dict):
        entries = payload.get("data", payload.get("models"))
    else:
        entries = payload or None  # without models it may be any list
    if not isinstance(entries, list) or not all(map(_name_of, entries)):
        raise not_a_server(connection.address, f"no list of models at /v1/models: {payload}")
    entries = [each if isinstance(each, dict) else {"id": each} for each in entries]
    roots = {
        str(name): str(entry.get("root") or "")
        for entry in entries
        for name in (_name_of(entry), *(typed(entry, "aliases", list) or ()))  # llama.cpp's
    }
    hashes = {root: sha256 for name, root in roots.items() if (sha256 := sha256_of(name))}
    dtype = next(filter(None, map(dtype_told, roots)), "")
    builds = [name for name in roots if name.startswith(BUILD_ALIAS)]
    build = builds[0].removeprefix(BUILD_ALIAS) if builds else ""
    return {
        name: _Served(root=root, weights_sha256=hashes.get(root, ""), dtype=dtype, build=build)
        for name, root in roots.items()
        if not (sha256_of(name) or dtype_told(name) or name in builds)
    }


def _name_of(entry: Any) -> str:
    """Return the name of one listed model; empty if it has none."""
    if isinstance(entry, dict):
        entry = entry.get("id") or entry.get("name") or entry.get("model")
    return entry if isinstance(entry, str) else ""


def _with_build(software: str, build: str) -> str:
    """Return what serves with the build that lhkit tells, in place of one that is untold."""
    if not build or not software.startswith(LLAMA_CPP):
        return software
    return f"{software.removesuffix(_NO_BUILD).strip()} {build}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Software:
    """What serves: its name and version; of llama.cpp also the file and its quantisation."""

    name: str
    file: str = ""
    quantisation: str = ""


async def _software(connection: Connection) -> _Software:
    """Return what serves, by the addresses that vLLM or llama.cpp answers."""
    missing = (RequestRefusedError, ServerFailedError, StreamBrokenError, KeyError)
    with suppress(*missing):
        told = await connection.get("/version")
        return _Software(name=f"vllm {told['version']}")
    with suppress(*missing):
        props = await connection.get("/props")
        return _Software(
            name=f"{LLAMA_CPP} {props['build_info']}",
            file=PurePath(str(props.get("model_path") or "")).name,
            quantisation=str(props.get("model_ftype") or ""),
        )
    return _Software(name="unknown server")
