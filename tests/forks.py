"""`lhkit` and `python FILE` for the shells of tests, without a new interpreter for each command.

One process has loaded lhkit, and each command is a fork of it, which saves seconds of imports. What
stands on the PATH hands its words, folder, environment and streams to that process, and ends with
the exit code that comes back. A fork ends with its client. For tests that run many commands and are
not about how one starts.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from tests.children import search_paths

_CLIENT = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    words = [{script!r}, *sys.argv[1:]] if {script!r} else sys.argv[1:]
    request = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [b"%8d" % len(request)], [0, 1, 2])
    server.sendall(request)
    sys.exit(int(server.recv(8)))
"""


@contextmanager
def forking_commands(folder: Path) -> Iterator[Path]:
    """Write the commands `lhkit` and `python` into a folder that goes first on a PATH."""
    address = str(folder / "socket")
    for name, script in (("lhkit", str(Path(sys.executable).with_name("lhkit"))), ("python", "")):
        text = _CLIENT.format(python=sys.executable, address=address, script=script)
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import serve; serve({address!r})"],
        env={"LANG": "C.UTF-8", **search_paths()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield folder  # leaving closes its standard input, which ends it


def serve(address: str) -> None:
    """Run each command that comes in a fork, until the standard input is closed."""
    from lhkit.base.locales import load_catalog
    from lhkit.harness.scenarios.loader import read_sources
    from lhkit.harness.views.html import sample_renderer
    from lhkit.lifehelper.shipped import scenario_folder

    for name in ("lhkit.cli", "lhkit.harness", "lhkit.imports", "lhkit.mcp"):
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            importlib.import_module(module.name)
    importlib.import_module("altair")  # the charts of pages
    importlib.import_module("mcp.server.mcpserver")  # of servers that tests start
    read_sources([scenario_folder()])  # which compiles patterns
    sample_renderer(load_catalog("en"))  # which compiles templates of pages
    gc.freeze()  # else each fork collects all this when it ends
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        os.write(1, b"ready\n")
        while listener in select.select([listener, 0], [], [])[0]:
            connection = listener.accept()[0]
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:  # forks that have ended
                    pass
            if os.fork() == 0:
                break
            connection.close()
        else:
            return
    words, folder, environment, streams = _read_request(connection)
    if child := os.fork():
        for stream in streams:
            os.close(stream)
        threading.Thread(target=_end_with_client, args=(child, connection), daemon=True).start()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with suppress(OSError):  # the client may be gone
            connection.sendall(b"%d" % (code if code >= 0 else 128 - code))
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()  # noqa: TID251 - for the fork
    os.environ.update(environment)  # noqa: TID251
    sys.argv[:] = words
    sys.path[0] = str(Path(words[0]).absolute().parent)
    code: object = None
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as left:
        code = left.code
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        code = 1
    _end(code)


def _end(code: object) -> NoReturn:
    """End as the interpreter does, but leave modules and objects, whose memory is shared."""
    if not (code is None or isinstance(code, int)):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code or 0)


def _read_request(connection: socket.socket) -> tuple[list[str], str, dict[str, str], list[int]]:
    """Return the words, folder, environment and streams of a client."""
    length, streams, *_ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as request:
        words, folder, environment = json.loads(request.read(int(length)))
    return words, folder, environment, streams


def _end_with_client(child: int, connection: socket.socket) -> None:
    """Kill a fork as soon as its client is gone, which sends nothing more."""
    with suppress(ProcessLookupError, ConnectionError):
        if not connection.recv(1):
            os.kill(child, signal.SIGKILL)
