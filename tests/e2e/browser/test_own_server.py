"""The tests talk to the JupyterLab that they started, and not to another one at its port."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e.browser.conftest import wait_for

pytestmark = pytest.mark.browser


def test_wait_for_is_not_satisfied_by_another_server(tmp_path: Path) -> None:
    log = tmp_path / "lab.log"
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as another:
        threading.Thread(target=another.serve_forever, daemon=True).start()
        words = [sys.executable, "-c", "print('the port is taken'); raise SystemExit(1)"]
        with (
            log.open("w") as file,
            subprocess.Popen(words, stdout=file) as ours,
            pytest.raises(AssertionError, match="the port is taken"),
        ):
            wait_for(another.server_port, ours, log)
        another.shutdown()
