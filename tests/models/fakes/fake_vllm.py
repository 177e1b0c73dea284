"""Stands in for vLLM's API server: same command line, and whatever `--mode` says goes wrong.

Appends the pid of every process it starts to `--pids`.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

DEATHS = {
    "dies": (
        "(EngineCore pid=7) ERROR 11-21 22:43:05 [core.py:1] RuntimeError: no room for the cache",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ),
    "port-taken": ("OSError: [Errno 98] Address already in use",),
}


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
        if self.path == "/quit":
            os._exit(0)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


def note_pid(pids: Path) -> None:
    with pids.open("a") as file:
        file.write(f"{os.getpid()}\n")


def stay(pids: Path) -> None:
    """A worker that does not want to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note_pid(pids)
    threading.Event().wait()


def start_workers(pids: Path) -> None:
    """One grandchild in a session of its own, and one whose parent is gone."""
    me = [sys.executable, "-S", __file__, "--pids", str(pids), "--mode"]
    subprocess.Popen([*me, "worker"], start_new_session=True)
    subprocess.run([*me, "orphan-maker"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="ok")
    parser.add_argument("--pids", type=Path)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    told, _ = parser.parse_known_args()
    if told.mode in DEATHS:
        sys.exit("\n".join(DEATHS[told.mode]))
    if told.mode == "worker":
        stay(told.pids)
    if told.mode == "orphan-maker":
        subprocess.Popen([sys.executable, "-S", __file__, "--pids", told.pids, "--mode", "worker"])
        return
    note_pid(told.pids)
    if told.mode == "stubborn":
        memory = SharedMemory(create=True, size=1024)
        told.pids.with_name("shared-memory").write_text(memory.name)
        start_workers(told.pids)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stderr.write("INFO [default_loader.py:1] Loading weights took 1 seconds\n")
    sys.stderr.flush()
    if told.mode == "never-ready":
        threading.Event().wait()
    threading.Event().wait(0.15)
    HTTPServer((told.host, told.port), Health).serve_forever()


if __name__ == "__main__":
    main()
