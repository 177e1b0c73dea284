"""Run JupyterLab with the embedded Gemma served next to it, for `make lab`.

A running `lhkit serve` is reused; otherwise a server is started, and ended with JupyterLab. Without
a server (no vLLM on this machine) the notebooks replay their recordings. JupyterLab listens on
loopback only, with its token, and gets the arguments of this script.
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
def serve(*command: str) -> Iterator[str | None]:
    """Start a server, and yield its address; None if it fails.

    Args:
        command: prints its address and serves, or prints that of a running server and ends.
    """
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as server:
        try:
            yield _read_address(server)
        finally:
            server.terminate()


def _read_address(server: "subprocess.Popen[str]") -> str | None:
    """Print a server's output until it contains its address, or ends."""
    for line in server.stdout or ():
        print(line, end="", flush=True)
        if match := ADDRESS.search(line):
            return match[1]
    return None


def run_lab(*command: str) -> int:
    """Run JupyterLab and return its exit code; JupyterLab handles Ctrl-C itself."""
    with subprocess.Popen(command) as lab:
        while True:
            try:
                return lab.wait()
            except KeyboardInterrupt:
                continue


def main() -> int:
    """Start a server, run JupyterLab, and end the server."""
    with serve(sys.executable, "-m", "lhkit", "serve") as address:
        if address is None:
            print("No server: the notebooks replay their recordings (LIVE = False).")
        else:
            print(f'For the real Gemma, write this in a notebook: LIVE = "{address}"')
        return run_lab(sys.executable, *LAB, *sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
