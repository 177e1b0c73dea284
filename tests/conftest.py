import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

import lhkit.tools.json_schema  # noqa: F401 - before others import jsonschema, in seconds
from tests.forks import forking_commands

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER_ARGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)

# No deadlines, since machines are shared. Selected by --hypothesis-profile.
settings.register_profile("quick", deadline=None, max_examples=10)
settings.register_profile("thorough", deadline=None, max_examples=25)
settings.register_profile("night", deadline=None, max_examples=200)
settings.register_profile("fuzz", deadline=None, max_examples=20_000)
settings.load_profile("quick")


LANGUAGE_VARIABLES = ("LHKIT_LOCALE", "LC_ALL", "LC_MESSAGES", "LANG")


def pytest_configure() -> None:
    """Take out of the environment the language of the person who runs the tests.

    Also let processes be interrupted: a shell that starts this in the background has it ignored.
    """
    for name in LANGUAGE_VARIABLES:
        os.environ.pop(name, None)
    os.environ["LANG"] = "C.UTF-8"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def korean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speak Korean where a test does not choose a language."""
    monkeypatch.setenv("LHKIT_LOCALE", "ko")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-contract", action="store_true", help="re-record tests/contract/recorded"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected: all of it lives to the end of the session."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run first what takes longest, so that all workers end at the same time, and browsers last.

    Playwright keeps an event loop running to the end of the session, which breaks coroutine tests.
    """
    markers = {item: {marker.name for marker in item.iter_markers()} for item in items}
    fixtures = {item: getattr(item, "fixturenames", ()) for item in items}
    is_beside_lab = {
        item: item.nodeid.startswith(BESIDE_LAB) and "anyio_backend" not in fixtures[item]
        for item in items
    }
    items.sort(
        key=lambda item: (
            "browser" in markers[item] or is_beside_lab[item],
            "lab" not in fixtures[item],
            not is_beside_lab[item],
            "model" not in markers[item],
            item.path.name != "test_ray.py",
            not item.nodeid.startswith(FORKING),
            "slow" not in markers[item],
        )
    )


BESIDE_LAB = ("tests/notebooks/test_outputs.py", "tests/packaging/test_wheel.py")
"""What the third worker does while two have JupyterLab; coroutine tests among it run earlier."""

ONE_WORKER = (
    "tests/harness/authoring/test_phone.py",
    "tests/harness/report/test_page_in_browser.py",
    "tests/harness/results/test_export.py",
    "tests/locales/test_one_language.py",
    "tests/models/test_tuned_weights.py",
    "tests/notebook/test_kernel.py",
    "tests/notebooks/test_outputs.py",
    "tests/packaging/test_wheel.py",
    "tests/scale/test_ray.py",
    "tests/test_pytest_stop.py",
)
"""Files whose tests share what takes seconds to make: a process, a wheel, a cluster, an import."""

FORKING = (
    "tests/docs/",
    "tests/cli/test_init.py",
    "tests/cli/test_terminal.py",
    "tests/harness/records/test_crash.py",
    "tests/mcp/test_serving.py",
    "tests/mcp/test_toolset.py",
)
"""Tests that share the process of `commands`."""

BROWSER = "tests/e2e/browser/"
WITHOUT_LAB = tuple(
    f"{BROWSER}{name}.py" for name in ("test_early_press", "test_edit_card", "test_whole_card")
)


class SharedServers(LoadScopeScheduling):
    """Gives one worker all tests of the model servers, and one all of `FORKING`.

    One has all tests of each of `ONE_WORKER`, and two have those in JupyterLab, which takes
    seconds to start and to load; any other test goes to whichever worker is free.
    xdist's groups are lost with pytest 9.2 (as of xdist 3.8).
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path in ONE_WORKER:
            return path
        if path.startswith(FORKING):
            return "forking"
        if path.startswith(BROWSER):
            half = "lab, first half" if path < f"{BROWSER}test_n" else "lab, second half"
            return nodeid if path in WITHOUT_LAB else half
        return "model" if path.startswith("tests/e2e/") else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Use `SharedServers` for `--dist=loadscope`."""
    return SharedServers(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates in a report, which would crash xdist's workers."""
    report = yield
    report.sections = [(name, _encodable(text)) for name, text in report.sections]
    if report.failed and _encodable(report.longreprtext) != report.longreprtext:
        report.longrepr = _encodable(report.longreprtext)
    return report


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert path, "no Chromium: `make browser` installs it, or see CONTRIBUTING.md"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=list(BROWSER_ARGS))
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def commands() -> Iterator[Path]:
    """Return a folder with `lhkit` and `python` that start at once, for a PATH; see `FORKING`."""
    with TemporaryDirectory() as folder, forking_commands(Path(folder)) as written:
        yield written


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _restore_sigint_handler() -> Iterator[None]:
    """Restore the SIGINT handler: processes started while it is ignored would ignore it."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if signal.getsignal(signal.SIGINT) is not before:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _unload_toolset_modules() -> Iterator[None]:
    """Remove the folders that loading a toolset added to the path, and their modules."""
    modules, path = list(sys.modules), list(sys.path)
    yield
    if list(sys.modules) == modules and sys.path == path:
        return
    added = [folder for folder in sys.path if folder not in path]
    for name in set(sys.modules).difference(modules):
        file = getattr(sys.modules[name], "__file__", None) or ""
        if name.startswith("lhkit_toolset_") or file.startswith(tuple(added)):
            del sys.modules[name]
    sys.path[:] = path
