"""A real JupyterLab on loopback and a real Chromium, started once per session."""

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    ViewportSize,
    expect,
)
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from tests.children import search_paths, unused_port
from tests.e2e.browser.reading import show_theme

LAB = """
from tests.kernels import fork_kernels
fork_kernels()
import lhkit.tools.json_schema  # before others import jsonschema, in seconds
from jupyterlab.labapp import main
main()
"""
LAB_ARGS = (
    *("--no-browser", "--ip=127.0.0.1", "--ServerApp.port_retries=0", "--allow-root"),
    *("--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True"),
    *("--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"),
)
UNUSED = tuple(  # the launcher fills the page when no document is open; the others cost time only
    f"@jupyterlab/{name}-extension"
    for name in (
        *("audio", "celltags", "csvviewer", "debugger", "extensionmanager", "fileeditor", "help"),
        *("htmlviewer", "hub", "imageviewer", "javascript", "json", "json-lines", "launcher"),
        *("logconsole", "lsp", "markdownviewer", "mathjax", "mermaid", "metadataform", "pdf"),
        *("pluginmanager", "running", "settingeditor", "statusbar", "terminal"),
        *("theme-dark-high-contrast", "toc", "vega5", "video", "workspaces"),
    )
)
"""Completer, search, tooltips and inspector stay: panels have to live with their keys."""
PATIENCE_MS = 120_000  # only for what never comes: machines are shared
POLLING_MS = 100  # else a page is asked for each picture that it draws
IS_IDLE = "() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status"
OPEN = """async path => {
  await window.jupyterapp.commands.execute("docmanager:open", { path });
}"""
TIDY = """async () => {
  if (!window.isKept) return false;  // loaded again, or another address
  const { shell } = window.jupyterapp;
  for (const each of [...shell.widgets("main")]) {
    if (each.context) each.context.model.dirty = false;  // or it asks whether to save
    each.dispose();
  }
  for (const each of document.querySelectorAll("style[id^='lhkit.']")) each.remove();
  delete performance.now;
  delete window.ran;
  delete window.send;
  for (const each of document.querySelectorAll(".jp-Dialog .jp-mod-accept")) each.click();
  const left = () => document.querySelector(".jp-Dialog, .Toastify__toast");
  for (let frame = 0; left() && frame < 100; frame += 1) {
    await new Promise(requestAnimationFrame);
  }
  return left() === null;
}"""
VIEWPORT = ViewportSize(width=1180, height=900)
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
    configured = root / ".conf" / "labconfig"
    configured.mkdir(parents=True)
    (configured / "page_config.json").write_text(
        json.dumps(
            {
                "disabledExtensions": dict.fromkeys(UNUSED, True),
                "buildCheck": False,  # it starts Node with each page
            }
        )
    )
    command = [sys.executable, "-c", LAB, *LAB_ARGS, f"--port={port}"]
    command += [f"--ServerApp.root_dir={root}"]
    with (root / ".lab.log").open("w") as log:
        server = subprocess.Popen(command, env=_environment(root), stdout=log, stderr=log, cwd=root)
    try:
        wait_for(port, server, root / ".lab.log")
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


def wait_for(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until a server answers, and says itself that it does: another may have its port."""
    pause = threading.Event()
    for _ in range(900):
        assert server.poll() is None, log.read_text()[-2000:]
        if "is running at" in log.read_text():
            with suppress(OSError, HTTPException):
                _ask(port, "GET", "/api/status")
                return
        pause.wait(0.2)
    raise AssertionError(f"JupyterLab did not start: {log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One for all tests, so that Lab's own code is loaded from the browser's cache."""
    opened = browser.new_context(viewport=VIEWPORT, accept_downloads=True)
    opened.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def kept_page(lab: Lab, context: BrowserContext) -> Iterator["KeptPage"]:
    kept = KeptPage(lab, context)
    yield kept
    kept.close()


@pytest.fixture
def has_failed(request: pytest.FixtureRequest) -> Callable[[], bool]:
    """Return a function that says whether the test has failed."""
    before = request.session.testsfailed
    return lambda: request.session.testsfailed > before


@pytest.fixture
def open_notebook(
    lab: Lab, context: BrowserContext, kept_page: "KeptPage", has_failed: Callable[[], bool]
) -> Iterator[OpenNotebook]:
    """Return a function that writes the cells to a notebook, opens it and runs all of them.

    It does so in the page that earlier tests have left, with `anew=True` in a page of its own,
    for tests that load it or its address again: the kept one would show the layout of all tests.
    """
    pages = []

    def opened(*cells: str, anew: bool = False) -> Page:
        name = _write(lab, cells)
        if anew:
            _set_light_theme(lab)
            page = new_page(lab, context)
            pages.append(page)
            show(page, f"{lab.url}/lab/workspaces/{name}/tree/{name}.ipynb?reset")
        else:
            page = kept_page.opened(name)
        run_all(page)
        return page

    yield opened
    for page in pages:
        page.close()
    if has_failed():
        kept_page.close()
    else:
        kept_page.tidy()
    _end_kernels(lab)


def new_page(lab: Lab, context: BrowserContext) -> Page:
    """Return an empty page that notes what it asks for elsewhere than JupyterLab."""
    page = context.new_page()
    page.requested = []  # type: ignore[attr-defined] - what the page asked for elsewhere
    page.on("request", lambda request: _note(page, request.url, lab))
    return page


def _note(page: Page, url: str, lab: Lab) -> None:
    """Note what is asked for elsewhere; it is not routed, since that turns off the cache."""
    if url.startswith("http") and not url.startswith(f"{lab.url}/"):
        page.requested.append(url)  # type: ignore[attr-defined] - see above


class KeptPage:
    """A page in which JupyterLab stays loaded from test to test, since loading it takes seconds.

    It is not used again after a test that failed, closed or left it, or loaded it again.
    """

    def __init__(self, lab: Lab, context: BrowserContext) -> None:
        self._lab = lab
        self._context = context
        self._page: Page | None = None

    def opened(self, name: str) -> Page:
        """Return the page with a notebook as its only document; one retry, in a new page."""
        try:
            return self._open(name)
        except PlaywrightTimeout:
            self.close()
            return self._open(name)

    def _open(self, name: str) -> Page:
        if self._page is None:
            _set_light_theme(self._lab)
            self._page = new_page(self._lab, self._context)
            self._page.goto(f"{self._lab.url}/lab/workspaces/kept?reset")
            self._page.wait_for_function("() => window.jupyterapp", polling=POLLING_MS)
            self._page.evaluate("() => window.jupyterapp.restored")
            self._page.evaluate("() => { window.isKept = true; }")
        open_again(self._page, f"{name}.ipynb")
        return self._page

    def tidy(self) -> None:
        """Close the documents and undo what a test may change in a page."""
        page, self._page = self._page, None
        if page is None or page.is_closed():
            return
        if not page.evaluate(TIDY):
            page.close()
            return
        page.requested.clear()  # type: ignore[attr-defined] - see above
        show_theme(page, "Light")
        page.set_viewport_size(VIEWPORT)
        page.emulate_media(reduced_motion="null")
        page.context.clear_permissions()
        page.mouse.move(0, 0)
        self._page = page

    def close(self) -> None:
        """Close the page, so that the next test gets a new one."""
        if self._page is not None:
            self._page.close()
        self._page = None


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
            page.wait_for_function(f"({IS_IDLE})() === 'idle'", polling=POLLING_MS)
        except PlaywrightTimeout:
            if attempt == 2:
                raise
        else:
            page.evaluate("() => window.jupyterapp.restored")  # it takes the focus until then
            return


def path_of(page: Page) -> str:
    """Return where the notebook of a page is, from JupyterLab's folder."""
    return str(page.evaluate("() => window.jupyterapp.shell.currentWidget.context.path"))


def save(page: Page) -> str:
    """Save the notebook of a page, and return where it is, from JupyterLab's folder."""
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    return path_of(page)


def close_notebook(page: Page) -> None:
    """Close the notebook of a page; its kernel runs on."""
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.dispose(); }")


def open_again(page: Page, path: str) -> None:
    """Open a notebook that was closed, in the same page."""
    page.evaluate(OPEN, path)
    page.wait_for_function(f"({IS_IDLE})() === 'idle'", polling=POLLING_MS)


def run_all(page: Page) -> None:
    """Start all cells; the command's own promise ends only with the last cell."""
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")


def _end_kernels(lab: Lab) -> None:
    for session in json.loads(_ask(lab.port, "GET", "/api/sessions")):
        _ask(lab.port, "DELETE", f"/api/sessions/{session['id']}")


@pytest.fixture(scope="session")
def kept_blank_page() -> list[Page]:
    """Return the page of `blank_page` between tests, if there is one; the browser closes it."""
    return []


@pytest.fixture
def blank_page(
    browser: Browser, kept_blank_page: list[Page], has_failed: Callable[[], bool]
) -> Iterator[Page]:
    """Return a page with an empty document, for tests without JupyterLab.

    It is the page of earlier tests, since a new one takes longer than most of these tests; of a
    failed test it is closed.
    """
    page = kept_blank_page.pop() if kept_blank_page else browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    page.goto("about:blank")
    page.set_viewport_size({"width": 900, "height": 700})
    page.mouse.move(0, 0)
    yield page
    if has_failed():
        page.close()
    else:
        kept_blank_page.append(page)


@pytest.fixture
def shots() -> Path:
    """Return the folder for screenshots."""
    folder = Path(__file__).parents[3] / "runs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
