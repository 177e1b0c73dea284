"""A cluster of several Ray nodes on this machine, as a process that a test ends by its input.

The head holds no replica, so that any other node may die. Its first line is the address; each line
that it reads adds a node. Logs lie in the folder that is given. It may pretend to be another Ray.
"""

import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import ray  # noqa: TID253 - it is nothing else
from ray.cluster_utils import Cluster  # noqa: TID253

STORE_BYTES = 80 * 2**20
TRIES = 4
AGENT_PORTS = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)


def patiently(start: Callable[[], Any]) -> Any:
    """Start something of Ray, which gives up after 30 s however busy the machine is."""
    for _ in range(TRIES - 1):
        try:
            return start()
        except Exception as error:  # noqa: BLE001 - Ray raises nothing more special
            sys.stderr.write(f"{error}\n")
    return start()


def free_ports() -> dict[str, int]:
    """Return ports for a node's agents: where Ray chooses them, an agent has 15 s to start."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in AGENT_PORTS]
        for each in sockets:
            each.bind(("", 0))
        return {
            name: each.getsockname()[1] for name, each in zip(AGENT_PORTS, sockets, strict=True)
        }


def main(folder: str, count: int) -> None:
    small = {"object_store_memory": STORE_BYTES}
    head = {"num_cpus": 0, "include_dashboard": False, "temp_dir": folder, **small}
    cluster = patiently(
        lambda: Cluster(initialize_head=True, head_node_args={**head, **free_ports()})
    )
    try:
        for _ in range(count):
            patiently(lambda: cluster.add_node(num_cpus=2, wait=False, **small, **free_ports()))
        cluster.wait_for_nodes(timeout=120)
        sys.stdout.write(f"{cluster.address}\n")
        sys.stdout.flush()
        for _ in sys.stdin:
            patiently(lambda: cluster.add_node(num_cpus=2, wait=False, **small, **free_ports()))
            sys.stdout.write("added\n")
            sys.stdout.flush()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    ray.__version__ = sys.argv[3] if len(sys.argv) > 3 else ray.__version__
    main(sys.argv[1], int(sys.argv[2]))
