"""The A/B panel with the base and the tuned Gemma in a real JupyterLab, by keys."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Page, expect

from lhkit import app
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.models.runtimes import LLAMA_CPP
from lhkit.models.serving.gemma import BASE, TUNED
from lhkit.settings import load_settings
from tests.children import search_paths
from tests.e2e.browser.reading import hold_focus

pytestmark = [
    pytest.mark.browser,
    pytest.mark.model,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
]

EARLY_MS = 400
ANSWER_MS = 120_000
MAX_TOKENS = 48
SAID = (
    "안녕! 너는 뭘 도와줄 수 있어?",
    "카페인 줄이는 습관 찾아줘",
    "지금 내 습관 보여줘",
    "숨쉬기 습관 있어?",
    "고마워",
)

PANEL = """
import lhkit
from lhkit.notebook import ABPanel
from lhkit.toolset import limit_tokens, load
models = [await lhkit.connect(url) for url in {urls!r}]
toolset = limit_tokens(load(), {tokens})
panel = ABPanel(models=models, toolset=toolset, record={folder!r}, person="kim",
                locale="ko", opt_in=True)
panel
"""

OpenNotebook = Callable[..., Page]


@pytest.fixture
def addresses() -> Iterator[list[str]]:
    """The base and the tuned weights, with a server each.

    By llama.cpp: both are up in seconds and need half a gigabyte, where vLLM takes ten times as
    much of either.
    """
    light = load_settings().model_copy(update={"runtime": LLAMA_CPP, "base_url": None})
    with start_blocking_portal() as portal:
        choices = [app.ModelChoice(name=name) for name in (BASE, TUNED)]
        opened = [app.open_model(choice, light) for choice in choices]
        with (
            portal.wrap_async_context_manager(opened[0]) as bare,
            portal.wrap_async_context_manager(opened[1]) as tuned,
        ):
            yield [bare.identity.base_url, tuned.identity.base_url]


def test_ab_votes_on_real_models_are_compared(
    addresses: list[str], open_notebook: OpenNotebook, tmp_path: Path, shots: Path
) -> None:
    folder = tmp_path / "ab"
    page = open_notebook(PANEL.format(urls=addresses, folder=str(folder), tokens=MAX_TOKENS))
    board = page.locator(".lhkit-board")
    expect(page.locator(".lhkit-send")).to_be_enabled(timeout=ANSWER_MS)
    hold_focus(page.locator(".lhkit-board [name=message]"))
    for number in range(10):
        expect(page.locator(".lhkit-send")).to_be_enabled(timeout=ANSWER_MS)
        page.keyboard.insert_text(SAID[number % len(SAID)])
        page.keyboard.press("Enter")
        settle_cards(page)
        page.wait_for_timeout(EARLY_MS + 50)
        html = page.locator(".lhkit-ab").evaluate("panel => panel.outerHTML")
        assert "gemma" not in html
        page.keyboard.press(str(number % 4 + 1))
        expect(page.locator("[name^=reason]")).to_be_focused()
        page.keyboard.press("Enter")
        expect(board).to_contain_text(f"{number + 1}")
        if number == 1:
            page.locator(".lhkit-ab").screenshot(path=shots / "ab-real.png")
        to_message(page)
    bare, tuned = (Run.load(folder / name) for name in (BASE, TUNED))
    shown = {run.manifest.models[0]["weights_sha256"] for run in (bare, tuned)}
    assert len(shown) == 2  # really two models
    comparison = compare(bare, tuned)
    assert (len(comparison.pairs), comparison.people[0].votes) == (10, 10)
    assert sum(len(turn.reply) for each in tuned.records for turn in each.trajectory.turns) > 0
    line = [sys.executable, "-m", "lhkit", "compare", str(folder / BASE), str(folder / TUNED)]
    env = {**search_paths(), "LHKIT_LOCALE": "en", "HOME": str(tmp_path)}
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=True, timeout=120)
    assert "preferred by kim, in 10 votes" in done.stdout


def settle_cards(page: Page) -> None:
    """Say no to every card, by its key, until both have answered: then the vote has the focus."""
    while True:
        page.wait_for_function(
            """() => document.activeElement.matches('.lhkit-votes')
              || document.querySelector('.lhkit-confirm[data-state="open"]')""",
            timeout=ANSWER_MS,
        )
        if page.locator('.lhkit-confirm[data-state="open"]').count() == 0:
            return
        page.keyboard.press("Escape")


def to_message(page: Page) -> None:
    for _ in range(14):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("() => document.activeElement.name") == "message":
            return
    raise AssertionError("the message cannot be reached by keys")
