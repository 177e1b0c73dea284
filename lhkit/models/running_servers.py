"""Finding a server that `lhkit serve` left running, so that a chat or an eval need not start one.

One small file per served name in `<cache_dir>/servers/`. Only `lhkit serve` writes them: a
server that a run started for itself ends with the run.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from lhkit.files import write_whole
from lhkit.models.aliases import dtype_told
from lhkit.models.server import LocalServer, answers_health
from lhkit.precision import Dtype

_SAME_START_S = 2.0
"""The kernel tells the moment of the boot in whole seconds, and is asked for it twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server that was advertised. `pid` lives as long as it, and began `after_boot_s`.

    `options` are the command line arguments that it was started with.
    """

    served_name: str
    base_url: str
    model: str
    pid: int
    after_boot_s: float
    options: tuple[str, ...] = ()

    @property
    def dtype(self) -> str:
        """The type of number that it computes in; empty if the command line does not tell."""
        return next(filter(None, map(dtype_told, self.options)), "")


async def find_running(
    cache_dir: Path, served_name: str, *, model: Path | None = None, dtype: Dtype | None = None
) -> RunningServer | None:
    """Return the advertised server of that name if it is alive and answers; drop a stale file.

    With `model`, a server of another folder is not it: the weights may have changed since. Nor is,
    with `dtype`, one that computes in another type.
    """
    path = _path(cache_dir, served_name)
    if not path.exists():
        return None
    found = _read(path)
    if found is None or not _alive(found):
        path.unlink(missing_ok=True)
        return None
    if model is not None and found.model != str(model):
        return None
    if dtype is not None and found.dtype != dtype:
        return None
    import aiohttp

    async with aiohttp.ClientSession() as session:
        return found if await answers_health(session, found.base_url) else None


@asynccontextmanager
async def advertised(cache_dir: Path, server: LocalServer) -> AsyncIterator[RunningServer]:
    """Let others find `server` for as long as the block lasts."""
    settings = server.settings
    running = RunningServer(
        served_name=settings.served_name,
        base_url=server.base_url,
        model=str(settings.model),
        pid=server.pid,
        after_boot_s=after_boot_s(server.pid),
        options=settings.arguments(server.port),
    )
    path = _path(cache_dir, settings.found_as)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(running), indent=2) + "\n"
    write_whole(path, text.encode())
    try:
        yield running
    finally:
        if _read(path) == running:  # not if a later server took the name
            path.unlink(missing_ok=True)


def after_boot_s(pid: int) -> float:
    """Return when a process began, in seconds since the boot: the clock may be set meanwhile.

    Raises:
        psutil.Error: there is no such process, or it must not be looked at.
    """
    return psutil.Process(pid).create_time() - psutil.boot_time()


def _path(cache_dir: Path, served_name: str) -> Path:
    return cache_dir / "servers" / f"{quote(served_name, safe='')}.json"


def _read(path: Path) -> RunningServer | None:
    try:
        told: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return RunningServer(**{**told, "options": tuple(told["options"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _alive(server: RunningServer) -> bool:
    try:
        is_same = abs(after_boot_s(server.pid) - server.after_boot_s) < _SAME_START_S
        return is_same and psutil.Process(server.pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
