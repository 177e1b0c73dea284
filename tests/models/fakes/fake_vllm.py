"""Stands in for vLLM's API server: same command line, and whatever `--mode` says goes wrong.

Appends the pid of every process it starts to `--pids`. What it answers to every prompt is the text
that stood in `model.safetensors` of its `--model` when it started. It does not listen as long as a
file `loading` lies beside `--pids`.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import ClassVar

DEATHS = {
    "dies": (
        "(EngineCore pid=7) ERROR 11-21 22:43:05 [core.py:1] RuntimeError: no room for the cache",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ),
    "port-taken": ("OSError: [Errno 98] Address already in use",),
}


class Served(BaseHTTPRequestHandler):
    names: ClassVar[list[str]] = []
    root = ""
    weights = ""

    def do_GET(self) -> None:
        match self.path:
            case "/quit":
                self.answer("")
                os._exit(0)
            case "/v1/models":
                data = [{"id": name, "object": "model", "root": self.root} for name in self.names]
                self.answer(json.dumps({"object": "list", "data": data}))
            case "/version":
                self.answer('{"version":"0.32.0"}')
            case "/health":
                self.answer("")
            case _:
                self.send_response(404)
                self.end_headers()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        choice = {"index": 0, "text": self.weights, "finish_reason": "stop", "stop_reason": None}
        chunk = {"choices": [{**choice, "token_ids": [7], "prompt_token_ids": [2, 105]}]}
        usage = {"prompt_tokens": 1, "total_tokens": 2, "completion_tokens": 1}
        events = [json.dumps(chunk), json.dumps({"choices": [], "usage": usage}), "[DONE]"]
        self.answer("".join(f"data: {each}\n\n" for each in events), "text/event-stream")

    def answer(self, text: str, content_type: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.end_headers()
        self.wfile.write(text.encode())

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
    parser.add_argument("--model", type=Path)
    parser.add_argument("--served-model-name", nargs="+", default=[])
    options, _ = parser.parse_known_args()
    if options.mode in DEATHS:
        sys.exit("\n".join(DEATHS[options.mode]))
    if options.mode == "worker":
        stay(options.pids)
    if options.mode == "orphan-maker":
        subprocess.Popen(
            [sys.executable, "-S", __file__, "--pids", options.pids, "--mode", "worker"]
        )
        return
    note_pid(options.pids)
    if options.mode == "stubborn":
        memory = SharedMemory(create=True, size=1024)
        options.pids.with_name("shared-memory").write_text(memory.name)
        start_workers(options.pids)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stderr.write("INFO [default_loader.py:1] Loading weights took 1 seconds\n")
    sys.stderr.flush()
    if options.mode == "never-ready":
        threading.Event().wait()
    while options.pids.with_name("loading").exists():
        threading.Event().wait(0.02)
    weights = options.model / "model.safetensors"
    Served.names, Served.root = options.served_model_name, str(options.model)
    Served.weights = weights.read_text() if weights.exists() else ""
    HTTPServer((options.host, options.port), Served).serve_forever()


if __name__ == "__main__":
    main()
