"""A connected Ray cluster."""

import asyncio
import logging
import math
import os
import re
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lhkit.base.errors import LhkitError, SetupError
from lhkit.base.process import configure_ray
from lhkit.scale.placement import LOCAL, Placement, ReplicaConfig, Resources, require_ray
from lhkit.scale.replica import Replica

if TYPE_CHECKING:
    from types import ModuleType

_ERROR_CHARS = 300
_STARTS = 3
_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")
_ACCESS_HINT = (
    "If the cluster requires a token, set RAY_AUTH_MODE=token, and RAY_AUTH_ACCESS_HINT or "
    "RAY_AUTH_TOKEN_PATH as on its head (by default the token is in ~/.ray/auth_token)."
)
_STORE_BYTES = 80 * 2**20
"""The object store of a local cluster; records only pass through it."""


class ReplicaLostError(Exception):
    """An actor or its node no longer exists."""


@asynccontextmanager
async def connect(placement: Placement, toolset: str, log: Path) -> AsyncIterator["Cluster"]:
    """Connect to the cluster, and upload the folder of a toolset file to its nodes.

    Ray's log messages are appended to `log`.

    Raises:
        MissingPackageError: Ray is not installed.
        SetupError: the cluster is unreachable or incompatible, or the folder cannot be uploaded.
        UsageError: the address is invalid.
    """
    require_ray(placement.address)
    configure_ray()
    import ray  # noqa: TID251 - here; optional, and slow

    file, _, name = toolset.rpartition(":")
    is_uploaded = file.endswith(".py") and placement.address != LOCAL
    path = await asyncio.to_thread(Path(file).resolve)
    options: dict[str, Any] = {
        "address": placement.address,
        "configure_logging": False,
        "log_to_driver": False,
        "runtime_env": {"working_dir": str(path.parent)} if is_uploaded else None,
    }
    if placement.address == LOCAL:
        cores = math.ceil(placement.replicas * placement.cpus)
        options |= {
            "num_cpus": max(os.cpu_count() or 1, cores),
            "object_store_memory": _STORE_BYTES,
            "include_dashboard": False,
        }
    with _logging_to(log):
        try:
            _init_ray(ray, options)
        except Exception as error:  # Ray raises nothing more specific
            raise _connect_error(error, placement, path.parent if is_uploaded else None) from error
        reference = toolset
        if file.endswith(".py"):
            reference = f"{path.name if is_uploaded else path}:{name}"
        try:
            yield Cluster(ray=ray, placement=placement, toolset=reference)
        finally:
            ray.shutdown()


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Write the log messages of this package and Ray to a file instead of the terminal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    loggers = (logging.getLogger(__package__), logging.getLogger("ray"))
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers[:], logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)
        handler.close()


def _init_ray(ray: "ModuleType", options: Mapping[str, Any]) -> None:
    """Connect; retry a local cluster that did not start within Ray's own 30 s."""
    for _ in range(_STARTS - 1 if options["address"] == LOCAL else 0):
        try:
            ray.init(**options)
        except Exception:  # noqa: BLE001 - boundary: Ray raises nothing more specific
            ray.shutdown()
        else:
            return
    ray.init(**options)


def _connect_error(error: Exception, placement: Placement, folder: Path | None) -> SetupError:
    address, reason = placement.address, _one_line(error)
    if isinstance(error, ConnectionError | TimeoutError):
        return SetupError(
            f"--ray {address}: no cluster answers there. Start one with `ray start --head`, give "
            f"its HOST:PORT, or `local` for one that ends with this command. {_ACCESS_HINT}"
        )
    if "Version mismatch" in reason and len(found := _VERSIONS.findall(str(error))) == 2:
        (ray, python), (our_ray, our_python) = found
        return SetupError(
            f"--ray {address}: the cluster has Ray {ray} on Python {python}, this command Ray "
            f"{our_ray} on Python {our_python}. Install the same versions here and on all nodes."
        )
    if folder is not None and "exceeds the maximum size" in reason:
        return SetupError(
            f"--ray {address}: the folder {folder} is too large to upload with the toolset "
            f"({reason}). List what is not needed in its .gitignore, or move the toolset into a "
            "folder of its own."
        )
    upload = f"; the folder {folder} is uploaded to the nodes" if folder else ""
    return SetupError(
        f"--ray {address}: connecting failed ({reason}{upload}). Fix that, or repeat the "
        f"command. {_ACCESS_HINT}"
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:_ERROR_CHARS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A connected cluster. `toolset` is the reference under which the nodes load the toolset."""

    ray: "ModuleType"
    placement: Placement
    toolset: str

    def put(self, value: Any) -> Any:
        """Store a value once for all replicas."""
        return self.ray.put(value)

    def start(self, config: ReplicaConfig, scenarios: Any) -> Any:
        """Request one more actor, on the node with the most free resources."""
        actor = self.ray.remote(Replica).options(
            num_cpus=self.placement.cpus,
            num_gpus=self.placement.gpus,
            scheduling_strategy="SPREAD",
            max_restarts=0,
            max_concurrency=8,
        )
        return actor.remote(config, scenarios)

    def kill(self, actor: Any) -> None:
        """End an actor at once; its server ends with it."""
        with suppress(self.ray.exceptions.RayError):
            self.ray.kill(actor)

    async def result(self, call: Awaitable[Any]) -> Any:
        """Return the result of a call of an actor.

        Raises:
            ReplicaLostError: the actor no longer exists.
            LhkitError: as the actor raised it.
        """
        try:
            return await call
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, LhkitError) else error from None
        except self.ray.exceptions.RayError as error:
            raise ReplicaLostError(_one_line(error)) from error

    def missing_resources(self) -> str:
        """Return why no node is large enough for a replica; empty if one is."""
        nodes = [
            Resources(node["Resources"].get("GPU", 0), node["Resources"].get("CPU", 0))
            for node in self.ray.nodes()
            if node["Alive"]
        ]
        required = Resources(self.placement.gpus, self.placement.cpus)
        if any(node.gpus >= required.gpus and node.cpus >= required.cpus for node in nodes):
            return ""
        most = Resources(
            max((node.gpus for node in nodes), default=0),
            max((node.cpus for node in nodes), default=0),
        )
        kinds = list(zip(("GPU", "CPU"), required, most, strict=True))
        lacking = [kind for kind in kinds if kind[2] < kind[1]] or kinds
        requirements = " and ".join(_counted(count, name) for name, count, _ in lacking)
        available = " and ".join(_counted(count, name) for name, _, count in lacking)
        options = " and ".join(f"--{name.lower()}s-per-replica" for name, *_ in lacking)
        return (
            f"A replica requires {requirements}, which no node of the cluster has (at most "
            f"{available}). Give a smaller {options}, or add a node."
        )

    def free_resources(self) -> Resources:
        """Return the free resources of all nodes together."""
        free = self.ray.available_resources()
        return Resources(free.get("GPU", 0), free.get("CPU", 0))


def _counted(count: float, name: str) -> str:
    return f"{count:g} {name}" if count == 1 else f"{count:g} {name}s"
