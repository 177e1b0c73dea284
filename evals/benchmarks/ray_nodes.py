"""Nodes of Ray on this machine: what benchmarks and tests play and kill runs on."""

import random
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

_STORE_BYTES = 80 * 2**20
_TRIES = 12
_AGENT_PORTS = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)


class Nodes:
    """A head without replicas, and `count` nodes for them; pinned, each has a core for its vLLM."""

    def __init__(
        self, folder: Path, *, count: int = 2, cores: int = 2, are_pinned: bool = False
    ) -> None:
        from ray._common.utils import get_default_ray_temp_dir
        from ray.cluster_utils import Cluster

        # There Ray writes its address, whatever `temp_dir` says; it makes the folder of that only.
        Path(get_default_ray_temp_dir()).mkdir(parents=True, exist_ok=True)
        self._cores = cores
        self._are_pinned = are_pinned
        self._small = {"object_store_memory": _STORE_BYTES}
        head = {"num_cpus": 0, "include_dashboard": False, "temp_dir": str(folder), **self._small}
        self.cluster = _patiently(
            lambda: Cluster(initialize_head=True, head_node_args={**head, **_free_ports()})
        )
        self._nodes = [self._added(core) for core in range(count)]
        self.cluster.wait_for_nodes(timeout=120)

    def kill(self, rng: random.Random) -> None:
        """Kill a node with all that is on it, and add another."""
        node = self._nodes.pop(rng.randrange(len(self._nodes)))
        self.cluster.remove_node(node, allow_graceful=False)
        self.add()

    def add(self) -> None:
        """Add a node."""
        self._nodes.append(self._added())

    def _added(self, core: int = 0) -> Any:
        pinned = {"env_vars": {"VLLM_CPU_OMP_THREADS_BIND": str(core)}} if self._are_pinned else {}
        node = {"num_cpus": self._cores, "wait": False, **self._small, **pinned}
        return _patiently(lambda: self.cluster.add_node(**node, **_free_ports()))


def _patiently(begin: Callable[[], Any]) -> Any:
    """Start something of Ray, which gives up after 30 s however busy the machine is."""
    for _ in range(_TRIES - 1):
        try:
            return begin()
        except Exception as error:  # noqa: BLE001 - Ray raises nothing more special
            print(error, file=sys.stderr, flush=True)
    return begin()


def _free_ports() -> dict[str, int]:
    """Return ports for a node's agents: where Ray chooses them, an agent has 15 s to start."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in _AGENT_PORTS]
        for each in sockets:
            each.bind(("", 0))
        return {
            name: each.getsockname()[1] for name, each in zip(_AGENT_PORTS, sockets, strict=True)
        }
