"""A training watched in a notebook: the curves and scores of the folder that a command writes."""

import asyncio
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lhkit.notebook import TrainingWatch
from lhkit.tuning.curves import save_curves
from lhkit.tuning.scores import SCORES, Score, add_score, shown_scores

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


def log(steps: int) -> list[dict[str, Any]]:
    return [{"step": n, "loss": 1 / n, "learning_rate": 1e-4} for n in range(1, steps + 1)]


def score(step: int, right_calls: int) -> Score:
    return Score(
        step=step,
        seconds=90.0 * step,
        right_calls=right_calls,
        counted_calls=40,
        passed=3,
        valid=4,
        asked_sha256="a",
        adapter_sha256=str(step),
        served_as="<b>Q8_0</b>",
    )


def picture(watch: TrainingWatch) -> str:
    """Return the picture that the page shows; nothing where there is none."""
    _, _, rest = watch.widget.parts[0].partition("base64,")
    return b64decode(rest.partition('"')[0]).decode()


async def shown(watch: TrainingWatch, is_so: Callable[[], bool]) -> None:
    """Wait until what a watch shows is so; each change of the page is looked at."""
    changed = asyncio.Event()
    watch.widget.observe(lambda _: changed.set(), "parts")
    while not is_so():
        await changed.wait()
        changed.clear()


async def test_what_a_command_writes_is_shown_as_it_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "training"
    watch = TrainingWatch(folder, locale="en")
    assert "No curves yet" in repr(watch)
    folder.mkdir()
    add_score(folder, score(0, 10))
    await shown(watch, lambda: "After 0 steps" in watch.widget.parts[-1])
    save_curves(folder, log(3), locale="en")
    await shown(watch, lambda: "training, each step" in picture(watch))
    assert "scenarios passed" not in picture(watch)
    add_score(folder, score(3, 30))
    save_curves(folder, log(3), scores=shown_scores(folder), locale="en")
    await shown(watch, lambda: "scenarios passed" in picture(watch))
    calls = ("10/40 25% [14–40]", "30/40 75% [60–86]")
    assert repr(watch).splitlines()[1:] == [
        f"  After {time}: right calls {each}, scenarios passed 3/4 75% [30–95], played as "
        "<b>Q8_0</b>."
        for time, each in zip(("0 steps, 0.0 minutes", "3 steps, 4.5 minutes"), calls, strict=True)
    ]
    assert "&lt;b&gt;Q8_0&lt;/b&gt;" in watch.widget.parts[-1]
    watch.close()


async def test_scores_that_cannot_be_read_are_told_in_the_view_and_end_it(tmp_path: Path) -> None:
    watch = TrainingWatch(tmp_path, locale="en")
    (tmp_path / SCORES).write_text("{}\n", encoding="utf-8")
    await shown(watch, lambda: "scores.jsonl is broken" in watch.widget.parts[-1])
    watch.close()
