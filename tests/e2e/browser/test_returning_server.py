"""A server that goes away and comes back under a user's eyes. The real one is killed in a run."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Page, expect

from tests.models.fake_vllm import Behaviour, FakeVllm, completion, streams

pytestmark = pytest.mark.browser

PANEL = """
from lhkit.models.transport import Endpoint
from lhkit.models.served import connect
from lhkit.notebook import life_helper_panel
model = await connect(Endpoint(base_url={url!r}))
panel = life_helper_panel(model, {path!r}, opt_in=True)
panel
"""
QUESTION = "안녕? 너는 무엇을 도와줄 수 있어?"

StartServer = Callable[..., AbstractContextManager[FakeVllm]]


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Return a function that starts a server, at a port or at any; the loop has its own thread."""
    with start_blocking_portal() as portal:

        def started(*behaviours: Behaviour, port: int = 0) -> AbstractContextManager[FakeVllm]:
            return portal.wrap_async_context_manager(FakeVllm(*behaviours, port=port))

        yield started


def test_retry_works_when_the_server_is_back(
    start_server: StartServer,
    open_notebook: Callable[..., Page],
    tmp_path: Path,
    shots: Path,
) -> None:
    never_done = streams(completion(["안녕", "하세요"])[:2], "stall")
    with start_server(never_done) as server:
        page = open_notebook(PANEL.format(url=server.base_url, path=str(tmp_path / "db.sqlite3")))
        say(page, QUESTION)
        streaming = page.locator("[data-live] .lhkit-stream")
        expect(streaming).to_have_text("안녕하세요")
        page.locator(".lhkit-stop").click()
        page.locator(".lhkit-clear").click()
        expect(page.locator(".lhkit-message")).to_have_count(1)
    say(page, QUESTION)
    error = page.locator('[data-role="error"]')
    expect(error).to_contain_text("모델 서버")
    expect(error).to_contain_text("다시 시도하세요")
    expect(page.locator(".lhkit-status")).to_contain_text("연결이 끊김")
    page.screenshot(path=shots / "killed-server.png")
    with start_server(streams(completion(["반가워요"])), port=server.port):
        error.locator('[data-action="retry"]').click()
        replies = page.locator('[data-role="assistant"] .lhkit-text')
        expect(replies.last).to_have_text("반가워요")
        expect(page.locator(".lhkit-send")).to_be_enabled()
        page.locator(".lhkit-chat").screenshot(path=shots / "retried.png")
        expect(page.locator(".lhkit-status")).to_contain_text("준비됨")
        expect(error.filter(has_text="모델 서버")).to_have_count(1)  # the old one


def say(page: Page, text: str) -> None:
    page.locator(".lhkit-input").fill(text)
    page.locator(".lhkit-send").click()
