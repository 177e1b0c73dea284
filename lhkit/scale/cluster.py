"""A Ray cluster that this process is connected to."""

import asyncio
import math
import os
import re
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lhkit.errors import LhkitError, SetupError
from lhkit.scale.logs import logged
from lhkit.scale.placement import LOCAL, Part, Placement, Room, require_ray
from lhkit.scale.replica import Replica
from lhkit.settings import configure_ray

if TYPE_CHECKING:
    from types import ModuleType

_SAID_CHARS = 300
_STARTS = 3
_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")
_ACCESS_HINT = (
    "if the cluster asks for a token, set RAY_AUTH_MODE=token, and RAY_AUTH_ACCESS_HINT or "
    "RAY_AUTH_TOKEN_PATH as its head has them (by default it keeps the token in ~/.ray/auth_token)"
)
_STORE_BYTES = 80 * 2**20
"""Of a cluster of our own: records pass through it, none stays."""


class LostError(Exception):
    """An actor, or its node, is no longer there."""


@asynccontextmanager
async def connected(placement: Placement, toolset: str, log: Path) -> AsyncIterator["Cluster"]:
    """Yield the cluster, with the toolset's file sent to its nodes if it is one.

    What Ray logs meanwhile goes to the end of `log`.

    Raises:
        MissingPackageError: Ray is not installed.
        SetupError: there is no cluster at the address, or one that is not ours.
        UsageError: the toolset's folder cannot be sent, or the address is none.
    """
    require_ray(placement.address)
    configure_ray()
    import ray  # noqa: TID251 - here; optional, and slow

    file, _, name = toolset.rpartition(":")
    travels = file.endswith(".py") and placement.address != LOCAL
    path = await asyncio.to_thread(Path(file).resolve)
    cores = math.ceil(placement.replicas * placement.cpus)
    local = {
        "num_cpus": max(os.cpu_count() or 1, cores),
        "object_store_memory": _STORE_BYTES,
        "include_dashboard": False,
    }
    options = {
        "address": placement.address,
        "configure_logging": False,
        "log_to_driver": False,
        "runtime_env": {"working_dir": str(path.parent)} if travels else None,
        **(local if placement.address == LOCAL else {}),
    }
    with logged(log):
        try:
            _join(ray, options)
        except Exception as error:  # Ray raises nothing more special
            raise _join_fault(error, placement, path.parent if travels else None) from error
        reference = toolset
        if file.endswith(".py"):
            reference = f"{path.name if travels else path}:{name}"
        try:
            yield Cluster(ray=ray, placement=placement, toolset=reference)
        finally:
            ray.shutdown()


def _join_fault(error: Exception, placement: Placement, folder: Path | None) -> SetupError:
    """Return the error for a cluster that did not let us in."""
    address, told = placement.address, _one_line(error)
    if isinstance(error, ConnectionError | TimeoutError):
        return SetupError(
            f"--ray {address}: no cluster answers there: start one with `ray start --head`, give "
            f"its HOST:PORT, or `local` for one that ends with this command; {_ACCESS_HINT}"
        )
    if "Version mismatch" in told and len(found := _VERSIONS.findall(str(error))) == 2:
        (ray, python), (our_ray, our_python) = found
        return SetupError(
            f"--ray {address}: the cluster has Ray {ray} on Python {python}, this command Ray "
            f"{our_ray} on Python {our_python}: install the same versions here and on all nodes"
        )
    if folder is not None and "exceeds the maximum size" in told:
        return SetupError(
            f"--ray {address}: the folder {folder} is too large to travel to the nodes with the "
            f"toolset ({told}): name what is not needed there in its .gitignore, or put the "
            "toolset into a folder of its own"
        )
    travelled = f"; the folder {folder} was to travel to the nodes" if folder else ""
    return SetupError(
        f"--ray {address} cannot be joined ({told}{travelled}): fix that, or give the same command "
        f"again; {_ACCESS_HINT}"
    )


def _join(ray: "ModuleType", options: Mapping[str, Any]) -> None:
    """Connect; a cluster of our own is started again if it did not come up in Ray's own 30 s."""
    for _ in range(_STARTS - 1 if options["address"] == LOCAL else 0):
        try:
            ray.init(**options)
        except Exception:  # noqa: BLE001 - boundary: Ray raises nothing more special
            ray.shutdown()
        else:
            return
    ray.init(**options)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:_SAID_CHARS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster that we are connected to. `toolset` is the reference as nodes have to load it.

    `replica` is the class of what plays.
    """

    ray: "ModuleType"
    placement: Placement
    toolset: str
    replica: type[Replica] = Replica

    def keep(self, value: Any) -> Any:
        """Put a value where every replica can have it, once for all."""
        return self.ray.put(value)

    def start(self, part: Part, scenarios: Any) -> Any:
        """Ask for one more actor, on the node that has the most room."""
        asked = self.ray.remote(self.replica).options(
            num_cpus=self.placement.cpus,
            num_gpus=self.placement.gpus,
            scheduling_strategy="SPREAD",
            max_restarts=0,
            max_concurrency=8,
        )
        return asked.remote(part, scenarios)

    def end(self, actor: Any) -> None:
        """End an actor at once; what it started ends by itself."""
        with suppress(self.ray.exceptions.RayError):
            self.ray.kill(actor)

    async def answer(self, asked: Awaitable[Any]) -> Any:
        """Return what an actor answers.

        Raises:
            LostError: it is no longer there.
            LhkitError: as the actor raised it.
        """
        try:
            return await asked
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, LhkitError) else error from None
        except self.ray.exceptions.RayError as error:
            raise LostError(_one_line(error)) from error

    def fits(self) -> bool:
        """Whether a node that is there could hold a replica, if nothing else were on it."""
        place = self.placement
        return any(each.cpus >= place.cpus and each.gpus >= place.gpus for each in self._nodes())

    def unfit(self) -> str:
        """Return the sentence for when no node fits: what of it lacks."""
        place, nodes = self.placement, self._nodes()
        asked = (
            ("GPU", place.gpus, max((each.gpus for each in nodes), default=0)),
            ("CPU", place.cpus, max((each.cpus for each in nodes), default=0)),
        )
        lacking = [each for each in asked if each[2] < each[1]] or asked
        told = " and ".join(_counted(count, kind) for kind, count, _ in lacking)
        most = " and ".join(_counted(most, kind) for kind, _, most in lacking)
        options = " and ".join(f"--{kind.lower()}s-per-replica" for kind, *_ in lacking)
        return (
            f"a replica takes {told}, which no node of the cluster has (at most {most}): give "
            f"a smaller {options}, or add a node"
        )

    def free(self) -> Room:
        """Return what nobody has taken, on all nodes together."""
        told = self.ray.available_resources()
        return Room(told.get("GPU", 0), told.get("CPU", 0))

    def _nodes(self) -> list[Room]:
        nodes = [each["Resources"] for each in self.ray.nodes() if each["Alive"]]
        return [Room(each.get("GPU", 0), each.get("CPU", 0)) for each in nodes]


def _counted(count: float, kind: str) -> str:
    return f"{count:g} {kind}" if count == 1 else f"{count:g} {kind}s"
