"""JupyterLab on the notebooks, with the embedded Gemma served beside it: what `make lab` runs.

A server that `lhkit serve` keeps is used; else one is started, and ended with the Lab. Without one
(no vLLM on this machine) the notebooks play their recordings. Loopback only, with Jupyter's token.
Arguments go to JupyterLab.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).parent
ADDRESS = re.compile(r"served at (http://\S+?:\d+)")
LAB = ("-m", "jupyterlab", "--ip=127.0.0.1", "--allow-root", f"--ServerApp.root_dir={FOLDER}")


@contextmanager
def served(*command: str) -> Iterator[str | None]:
    """Yield the address of the embedded Gemma, None if it cannot be had.

    Args:
        command: prints where it serves and goes on, or prints it and ends if another does.
    """
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as server:
        try:
            yield _address(server)
        finally:
            server.terminate()


def _address(server: "subprocess.Popen[str]") -> str | None:
    """Pass on what a server prints until it says where it is, or ends."""
    for line in server.stdout or ():
        print(line, end="", flush=True)
        if found := ADDRESS.search(line):
            return found[1]
    return None


def opened(*command: str) -> int:
    """Run JupyterLab to its end and return its exit code; Ctrl-C is its business."""
    with subprocess.Popen(command) as lab:
        while True:
            try:
                return lab.wait()
            except KeyboardInterrupt:
                continue


def main() -> int:
    """Serve, open, and end what was started."""
    with served(sys.executable, "-m", "lhkit", "serve") as address:
        if address is None:
            print("No server: the notebooks play their recordings (LIVE = False).")
        else:
            print(f'For the real Gemma, write this in a notebook: LIVE = "{address}"')
        return opened(sys.executable, *LAB, *sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
