"""A run that is watched in a real JupyterLab: here, and where another process plays it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.children import search_paths
from tests.e2e.browser.test_ab import faults
from tests.e2e.browser.test_access import LOW_CONTRAST, OUTSIDE

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

OpenNotebook = Callable[..., Page]

SCENARIO = """
- id: {kind}-{n}
  ac: AC-{ac}
  locale: en
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns: [{{user: which habits do I have?, expect: {{calls: [{{tool: {tool}}}]}}}}]
"""
HELD = """
import asyncio
import sys
from pathlib import Path
import lhkit
from lhkit.models.scripted import ScriptedModel, call, say
from lhkit.notebook import RunWatch

class Held:
    # A scripted model that waits, in the middle of a run, until it is let go on.

    def __init__(self, wait):
        self.model = ScriptedModel([call("list_habits"), say("None yet.")] * 40)
        self.identity = self.model.identity
        self.wait = wait
        self.asked = 0

    async def stream(self, request):
        self.asked += 1
        if self.asked == 13:
            await self.wait()
        async for event in self.model.stream(request):
            yield event

    async def aclose(self):
        pass

scenarios = lhkit.load_scenarios([{file!r}])
"""
HERE = """
gate = asyncio.Event()
watch = RunWatch(asked=10, locale="en")
playing = asyncio.ensure_future(
    lhkit.replay(scenarios, Held(gate.wait), watch=watch, progress=False)
)
watch
"""
ELSEWHERE = """
async def wait():
    print("held", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

folder = Path({folder!r})
asyncio.run(lhkit.replay(scenarios, Held(wait), run_dir=folder, progress=False))
"""
FOLLOWING = """
import lhkit
lhkit.Run.load({folder!r}).watch(locale="ko")
"""
EXECUTE = """code => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel
  .requestExecute({ code }).done.then(() => null)"""


@pytest.fixture
def scenarios(tmp_path: Path) -> Path:
    """Ten scenarios, of which the model that lists habits fails every second one."""
    file = tmp_path / "mine.yaml"
    texts = [
        SCENARIO.format(kind="chat", n=n, ac=n % 2, tool=("list_habits", "search_catalog")[n % 2])
        for n in range(10)
    ]
    file.write_text("".join(texts), encoding="utf-8")
    return file


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_failures_are_opened_by_keys_while_the_run_plays_and_all_can_be_read(
    open_notebook: OpenNotebook, scenarios: Path, shots: Path, theme: str
) -> None:
    page = open_notebook(HELD.format(file=str(scenarios)), HERE, theme=f"JupyterLab {theme}")
    board = page.locator(".lhkit-board")
    expect(board).to_contain_text("6 of 10 ended · 3/6 50% [19–81]")
    assert faults(page) == []
    failed = board.locator("[data-value='failures:chat-3']")
    failed.focus()
    page.keyboard.press("Enter")
    expect(board.locator(".lhr")).to_contain_text("chat-3")
    expect(failed).to_have_attribute("aria-pressed", "true")
    expect(failed).to_be_focused()
    board.locator(".lhr").evaluate("each => { each.dataset.being = 'read'; }")
    assert faults(page) == []
    assert page.evaluate(LOW_CONTRAST) == {}
    board.screenshot(path=shots / f"watch-{theme.lower()}.png")
    page.evaluate(EXECUTE, "gate.set()")
    expect(board).to_contain_text("10 of 10 ended · 5/10 50% [24–76]")
    expect(board).to_contain_text("The run has ended.")
    expect(board.locator(".lhr")).to_have_attribute("data-being", "read")  # it is not made anew
    page.keyboard.press("Enter")
    expect(board.locator(".lhr")).to_have_count(0)
    board.evaluate("each => { each.style.width = '340px'; }")
    assert board.evaluate(OUTSIDE) == []
    assert page.requested == []  # type: ignore[attr-defined] - set when the page was opened


def test_a_run_of_another_process_is_followed_to_its_end(
    open_notebook: OpenNotebook, scenarios: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "runs" / "mine"
    code = (HELD + ELSEWHERE).format(file=str(scenarios), folder=str(folder))
    player = subprocess.Popen(
        [sys.executable, "-c", code],
        env=search_paths(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert player.stdout is not None
        assert player.stdout.readline() == "held\n"
        page = open_notebook(FOLLOWING.format(folder=str(folder)))
        board = page.locator(".lhkit-board")
        expect(board).to_contain_text("10개 중 6개 끝남 · 3/6 50% [19–81]")
        assert "끝났습니다" not in board.inner_text()
        player.communicate("go on\n", timeout=60)
        expect(board).to_contain_text("10개 중 10개 끝남 · 5/10 50% [24–76]")
        expect(board).to_contain_text("실행이 끝났습니다.")
        board.locator("[data-value='failures:chat-9']").click()
        expect(board.locator(".lhr")).to_contain_text("chat-9")
    finally:
        player.kill()
        player.wait()
