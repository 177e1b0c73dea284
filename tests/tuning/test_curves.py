"""The picture of a training: the log's numbers in it, in the reader's language, drawn offline."""

import sys
from pathlib import Path
from typing import Any

import pytest

from lhkit.errors import MissingPackageError
from lhkit.tuning import curves
from lhkit.tuning.scores import Score

LOG: list[dict[str, Any]] = [
    {
        "step": step,
        "loss": 3.0 / step,
        "learning_rate": 1e-4 * step,
        "dev_loss": 2.0 if step == 4 else None,
    }
    for step in range(1, 5)
]


def rows(spec: dict[str, Any]) -> list[list[dict[str, Any]]]:
    named: dict[str, list[dict[str, Any]]] = spec.get("datasets", {})
    found = [spec["data"]] if "data" in spec else []
    for part in spec["vconcat"]:
        found += [part["data"]] if "data" in part else []
        found += [layer["data"] for layer in part.get("layer", []) if "data" in layer]
    return [named[data["name"]] if "name" in data else data["values"] for data in found]


def test_the_picture_holds_every_step_its_average_and_what_was_measured() -> None:
    losses = rows(curves.curves(LOG, locale="en"))[0]
    by_series = {
        name: [row["loss"] for row in losses if row["series"] == name]
        for name in ("training, each step", "training, smoothed", "dev file")
    }
    assert by_series["training, each step"] == [3.0, 1.5, 1.0, 0.75]
    assert by_series["dev file"] == [2.0]
    smooth = by_series["training, smoothed"]
    assert smooth[0] == pytest.approx(3.0)
    assert smooth[1] == pytest.approx((0.8 * 0.2 * 3.0 + 0.2 * 1.5) / (1 - 0.8**2))
    rates = rows(curves.curves(LOG, locale="en"))[-1]
    assert [row["rate"] for row in rates] == pytest.approx([1e-4, 2e-4, 3e-4, 4e-4])


SCORES = [
    Score(
        step=step,
        seconds=60.0 * step,
        right_calls=step,
        counted_calls=4,
        passed=step,
        valid=valid,
        asked_sha256="a",
        adapter_sha256="b",
        served_as="Q8_0, llama.cpp 1",
    )
    for step, valid in ((0, 8), (3, 8), (4, 0))
]


@pytest.mark.parametrize(
    ("locale", "names"),
    [("ko", ("맞은 호출", "통과한 시나리오")), ("en", ("right calls", "scenarios passed"))],
)
def test_scores_have_a_panel_in_percent_over_the_same_steps_and_say_what_played(
    tmp_path: Path, locale: str, names: tuple[str, str]
) -> None:
    spec = curves.curves(LOG, scores=SCORES, locale=locale)
    _, scores, rates = rows(spec)
    calls, passed = (
        [(row["step"], row["share"]) for row in scores if row["series"] == name] for name in names
    )
    assert calls == [(0, 0), (3, 75), (4, 100)]
    assert passed == [(0, 0), (3, 37.5)]  # of nothing there is no share
    assert [row["step"] for row in rates] == [1, 2, 3, 4]
    assert spec["resolve"]["scale"]["x"] == "shared"
    curves.save_curves(tmp_path, LOG, scores=SCORES, locale=locale)
    svg = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    assert all(name in svg for name in (*names, "Q8_0, llama.cpp 1"))
    curves.save_curves(tmp_path, LOG, locale=locale)
    assert names[0] not in (tmp_path / "curves.svg").read_text(encoding="utf-8")


def test_the_average_of_equal_losses_is_that_loss_from_the_first_step() -> None:
    assert curves.smoothed([2.0] * 5) == pytest.approx([2.0] * 5)


@pytest.mark.parametrize(("locale", "label"), [("ko", "손실"), ("en", "loss (nats per token)")])
def test_both_pictures_are_written_on_white_with_labels_in_the_readers_language(
    tmp_path: Path, locale: str, label: str
) -> None:
    curves.save_curves(tmp_path, LOG, locale=locale)
    svg = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    assert label in svg
    assert 'fill="white"' in svg.split("<g", 1)[0]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curves.png", "curves.svg"]


def test_a_training_of_one_step_without_a_dev_file_has_a_picture(tmp_path: Path) -> None:
    curves.save_curves(tmp_path, LOG[:1], locale="ko")
    assert (tmp_path / "curves.svg").is_file()


def test_missing_plot_packages_are_told_before_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(curves, "find_spec", lambda name: None if name == "altair" else sys)
    with pytest.raises(MissingPackageError, match="Tuning needs altair for its curves"):
        curves.require_packages()
