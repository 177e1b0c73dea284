"""The real Gemma in the panel, killed and started again under a user's eyes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Page, expect

from lhkit import app
from lhkit.models.vllm_server import VllmServer
from lhkit.settings import load_settings

pytestmark = [pytest.mark.browser, pytest.mark.gemma, pytest.mark.timeout(600)]

PANEL = """
from lhkit.models.vllm import Endpoint, VllmHttp
from lhkit.notebook import life_helper_panel
from lhkit.messages import Sampling
model = await VllmHttp.connect(Endpoint(base_url={url!r}))
panel = life_helper_panel(model, {path!r}, opt_in=True, sampling=Sampling(max_tokens=48))
panel
"""
QUESTION = "안녕? 너는 무엇을 도와줄 수 있어?"
ANSWER_MS = 90_000
TALKATIVE = "gemma-base"  # it talks to the end of its tokens: there is time to press Stop

StartServer = Callable[..., AbstractContextManager[VllmServer]]


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Return a function that serves Gemma, at a port or at any; the loop has its own thread."""
    with start_blocking_portal() as portal:
        plan = portal.call(partial(app.embedded_server, load_settings(), name=TALKATIVE))
        yield lambda port=None: portal.wrap_async_context_manager(
            VllmServer(replace(plan, port=port))
        )


def kill_api_server(watcher_pid: int) -> None:
    """Kill vLLM's front; whoever watches it then ends its other processes."""
    for process in psutil.Process(watcher_pid).children():
        process.kill()


def test_a_killed_server_is_a_sentence_in_the_panel_and_retry_works_after_a_restart(
    start_server: StartServer,
    open_notebook: Callable[..., Page],
    tmp_path: Path,
    shots: Path,
) -> None:
    with start_server() as server:
        port = server.port
        page = open_notebook(PANEL.format(url=server.base_url, path=str(tmp_path / "db.sqlite3")))
        say(page, QUESTION)
        streaming = page.locator("[data-live] .lhkit-stream")
        expect(streaming).not_to_be_empty(timeout=ANSWER_MS)
        page.locator(".lhkit-stop").click()
        page.locator(".lhkit-clear").click()
        expect(page.locator(".lhkit-message")).to_have_count(1)
        kill_api_server(server.pid)
        say(page, QUESTION)
        error = page.locator('[data-role="error"]')
        expect(error).to_contain_text("모델 서버", timeout=ANSWER_MS)
        expect(error).to_contain_text("다시 시도하세요")
        expect(page.locator(".lhkit-status")).to_contain_text("연결이 끊김")
        page.screenshot(path=shots / "killed-server.png")
    with start_server(port):
        error.locator('[data-action="retry"]').click()
        expect(streaming).not_to_be_empty(timeout=ANSWER_MS)
        expect(page.locator(".lhkit-send")).to_be_enabled(timeout=ANSWER_MS)
        page.locator(".lhkit-chat").screenshot(path=shots / "retried.png")
        said = page.locator('[data-role="assistant"] .lhkit-text')
        expect(said.last).not_to_be_empty()
        expect(page.locator(".lhkit-status")).to_contain_text("준비됨")
        expect(error.filter(has_text="모델 서버")).to_have_count(1)  # the old one


def say(page: Page, text: str) -> None:
    page.locator(".lhkit-input").fill(text)
    page.locator(".lhkit-send").click()
