"""A training that is watched in a real JupyterLab, while something else writes its folder."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from lhkit.tuning.curves import save_curves
from lhkit.tuning.scores import Score, add_score
from tests.e2e.browser.test_ab import faults
from tests.e2e.browser.test_access import LOW_CONTRAST, OUTSIDE

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

OpenNotebook = Callable[..., Page]

WATCH = "from lhkit.notebook import TrainingWatch\nTrainingWatch({folder!r}, locale='en')"


def test_curves_and_scores_come_onto_the_page_as_they_are_written(
    open_notebook: OpenNotebook, tmp_path: Path, shots: Path
) -> None:
    (folder := tmp_path / "training").mkdir()
    page = open_notebook(WATCH.format(folder=str(folder)))
    board = page.locator(".lhkit-board")
    expect(board).to_contain_text("No curves yet")
    assert faults(page) == []
    log = [{"step": n, "loss": 2 / n, "learning_rate": 1e-4} for n in range(1, 31)]
    save_curves(folder, log, locale="en")
    curves = page.locator("img.lhkit-curves")
    expect(curves).to_be_visible()
    page.wait_for_function("document.querySelector('img.lhkit-curves')?.naturalWidth > 400")
    score = Score(
        step=30,
        seconds=1_800,
        right_calls=26,
        counted_calls=44,
        passed=20,
        valid=40,
        asked_sha256="a",
        adapter_sha256="b",
        served_as="Q8_0, llama.cpp",
    )
    add_score(folder, score)
    save_curves(folder, log, scores=[score], locale="en")
    expect(board).to_contain_text("After 30 steps")
    expect(board).not_to_contain_text("No curves yet")
    assert page.evaluate(LOW_CONTRAST) == {}
    assert board.evaluate(OUTSIDE) == []
    page.screenshot(path=shots / "training-watch.png")
