"""A cluster of several Ray nodes on this machine, as a process that a test ends by its input.

The head holds no replica, so that any other node may die. Its first line is the address; each line
that it reads adds a node. Logs lie in the folder that is given. It may pretend to be another Ray.
"""

import sys
from pathlib import Path

import ray  # noqa: TID253 - it is nothing else

sys.path[:0] = [str(Path(__file__).parents[2] / "evals" / "benchmarks")]
from ray_nodes import Nodes  # noqa: E402


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
