"""A cluster of several Ray nodes on this machine, as a process that a test ends by its input.

The head holds no replica, so that any other node may die. Its first line is the address; each line
that it reads adds a node. Logs lie in the folder that is given. It may pretend to be another Ray.
"""

import sys
from collections.abc import Callable
from typing import Any

import ray  # noqa: TID253 - it is nothing else
from ray.cluster_utils import Cluster  # noqa: TID253

STORE_BYTES = 80 * 2**20
TRIES = 4


def patiently(start: Callable[[], Any]) -> Any:
    """Start something of Ray, which gives up after 30 s however busy the machine is."""
    for _ in range(TRIES - 1):
        try:
            return start()
        except Exception as error:  # noqa: BLE001 - Ray raises nothing more special
            sys.stderr.write(f"{error}\n")
    return start()


def main(folder: str, count: int) -> None:
    small = {"object_store_memory": STORE_BYTES}
    head = {"num_cpus": 0, "include_dashboard": False, "temp_dir": folder, **small}
    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
    try:
        for _ in range(count):
            patiently(lambda: cluster.add_node(num_cpus=2, wait=False, **small))
        cluster.wait_for_nodes(timeout=120)
        sys.stdout.write(f"{cluster.address}\n")
        sys.stdout.flush()
        for _ in sys.stdin:
            patiently(lambda: cluster.add_node(num_cpus=2, wait=False, **small))
            sys.stdout.write("added\n")
            sys.stdout.flush()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    ray.__version__ = sys.argv[3] if len(sys.argv) > 3 else ray.__version__
    main(sys.argv[1], int(sys.argv[2]))
