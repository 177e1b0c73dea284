"""A real JupyterLab on loopback and a real Chromium, started once per session."""

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    expect,
)
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from tests.children import search_paths, unused_port

LAB_ARGS = (
    *("--no-browser", "--ip=127.0.0.1", "--ServerApp.port_retries=0", "--allow-root"),
    *("--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True"),
    *("--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"),
)
PATIENCE_MS = 120_000  # only for what never comes: machines are shared
IS_IDLE = "() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status"

OpenNotebook = Callable[..., Page]


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A running JupyterLab and the folder it shows."""

    port: int
    folder: Path

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("lab")
    port = unused_port()
    quiet = root / ".settings" / "@jupyterlab" / "apputils-extension"
    quiet.mkdir(parents=True)
    (quiet / "notification.jupyterlab-settings").write_text(
        json.dumps({"fetchNews": "false", "checkForUpdates": False})
    )
    command = [sys.executable, "-m", "jupyterlab", *LAB_ARGS, f"--port={port}"]
    command += [f"--ServerApp.root_dir={root}"]
    with (root / ".lab.log").open("w") as log:
        server = subprocess.Popen(command, env=_environment(root), stdout=log, stderr=log, cwd=root)
    try:
        _wait_for(port, server, root / ".lab.log")
        yield Lab(port=port, folder=root)
    finally:
        server.terminate()
        server.wait(60)


def _environment(root: Path) -> dict[str, str]:
    return {
        "HOME": str(root / ".home"),
        **search_paths(),
        "LANG": "ko_KR.UTF-8",
        "JUPYTER_CONFIG_DIR": str(root / ".conf"),
        "JUPYTER_DATA_DIR": str(root / ".data"),
        "JUPYTER_RUNTIME_DIR": str(root / ".run"),
        "JUPYTERLAB_SETTINGS_DIR": str(root / ".settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(root / ".workspaces"),
        "IPYTHONDIR": str(root / ".ipython"),
        "LHKIT_CONFIG_DIR": str(root / ".lhkit"),
    }


def _ask(port: int, method: str, path: str) -> bytes:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path)
        return connection.getresponse().read()
    finally:
        connection.close()


def _wait_for(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    pause = threading.Event()
    for _ in range(900):
        assert server.poll() is None, log.read_text()[-2000:]
        try:
            _ask(port, "GET", "/api/status")
        except (OSError, HTTPException):
            pause.wait(0.2)
        else:
            return
    raise AssertionError(f"JupyterLab did not start: {log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One for all tests, so that Lab's own code is loaded from the browser's cache."""
    opened = browser.new_context(
        viewport={"width": 1180, "height": 900}, device_scale_factor=1.5, accept_downloads=True
    )
    opened.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    yield opened
    opened.close()


@pytest.fixture
def open_notebook(lab: Lab, context: BrowserContext) -> Iterator[OpenNotebook]:
    """Return a function that writes the cells to a notebook, opens it and runs all of them."""
    pages = []

    def opened(*cells: str) -> Page:
        _set_light_theme(lab)
        name = _write(lab, cells)
        page = context.new_page()
        pages.append(page)
        page.requested = []  # type: ignore[attr-defined] - what the page asked for elsewhere
        page.on("request", lambda request: _note(page, request.url, lab))
        show(page, f"{lab.url}/lab/workspaces/{name}/tree/{name}.ipynb?reset")
        run_all(page)
        return page

    yield opened
    for page in pages:
        page.close()
    _end_kernels(lab)


def _note(page: Page, url: str, lab: Lab) -> None:
    """Note what is asked for elsewhere; it is not routed, since that turns off the cache."""
    if url.startswith("http") and not url.startswith(f"{lab.url}/"):
        page.requested.append(url)  # type: ignore[attr-defined] - see above


_numbers = itertools.count(1)


def _write(lab: Lab, cells: tuple[str, ...]) -> str:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata.kernelspec = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    name = f"panel{next(_numbers)}"
    nbformat.write(notebook, lab.folder / f"{name}.ipynb")
    return name


def _set_light_theme(lab: Lab) -> None:
    """Undo what an earlier page changed: the theme is a setting of all."""
    folder = lab.folder / ".settings" / "@jupyterlab" / "apputils-extension"
    (folder / "themes.jupyterlab-settings").write_text(json.dumps({"theme": "JupyterLab Light"}))


def show(page: Page, url: str) -> None:
    """Open a notebook; one retry of opening, never of asserting."""
    for attempt in (1, 2):
        page.goto(url, wait_until="domcontentloaded")
        try:
            page.wait_for_function(f"({IS_IDLE})() === 'idle'", timeout=PATIENCE_MS)
        except PlaywrightTimeout:
            if attempt == 2:
                raise
        else:
            page.evaluate("() => window.jupyterapp.restored")  # it takes the focus until then
            return


def run_all(page: Page) -> None:
    """Start all cells; the command's own promise ends only with the last cell."""
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")


def _end_kernels(lab: Lab) -> None:
    for session in json.loads(_ask(lab.port, "GET", "/api/sessions")):
        _ask(lab.port, "DELETE", f"/api/sessions/{session['id']}")


@pytest.fixture
def shots() -> Path:
    """Return the folder for screenshots."""
    folder = Path(__file__).parents[3] / "runs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
