"""A cluster of several Ray nodes on this machine, as a process that a test ends by its input.

The head holds no replica, so that any other node may die, unless it is alone. Its first line is
the address; each line that it reads adds a node. Logs lie in the folder that is given. It may
pretend to be another Ray.
"""

import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ray  # noqa: TID253 - it is nothing else
from ray._common.utils import get_default_ray_temp_dir  # noqa: TID253 - as above
from ray.cluster_utils import Cluster  # noqa: TID253 - as above

_CPUS = 2
_STORE_BYTES = 80 * 2**20
_TRIES = 12
_AGENT_PORTS = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)


class Nodes:
    """A head, and `count` nodes for the replicas; without any, the head has them."""

    def __init__(self, folder: Path, *, count: int) -> None:
        # There Ray writes its address, whatever `temp_dir` says; it makes the folder of that only.
        Path(get_default_ray_temp_dir()).mkdir(parents=True, exist_ok=True)
        self._small = {"object_store_memory": _STORE_BYTES}
        head = {
            "num_cpus": 0 if count else _CPUS,
            "include_dashboard": False,
            "temp_dir": str(folder),
            **self._small,
        }
        self.cluster = _patiently(
            lambda: Cluster(initialize_head=True, head_node_args={**head, **_free_ports()})
        )
        for _ in range(count):
            self.add()
        self.cluster.wait_for_nodes(timeout=120)

    def add(self) -> None:
        """Add a node."""
        node = {"num_cpus": _CPUS, "wait": False, **self._small}
        _patiently(lambda: self.cluster.add_node(**node, **_free_ports()))


def _patiently(begin: Callable[[], Any]) -> Any:
    """Start something of Ray, which gives up after 30 s however busy the machine is."""
    for _ in range(_TRIES - 1):
        try:
            return begin()
        except Exception as error:  # noqa: BLE001 - Ray raises nothing more special
            sys.stderr.write(f"{error}\n")
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


def main(folder: str, count: int) -> None:
    nodes = Nodes(Path(folder), count=count)
    try:
        sys.stdout.write(f"{nodes.cluster.address}\n")
        sys.stdout.flush()
        for _ in sys.stdin:
            nodes.add()
            sys.stdout.write("added\n")
            sys.stdout.flush()
    finally:
        nodes.cluster.shutdown()


if __name__ == "__main__":
    ray.__version__ = sys.argv[3] if len(sys.argv) > 3 else ray.__version__
    main(sys.argv[1], int(sys.argv[2]))
