"""A folder of another training says what is other there, without a model."""

from pathlib import Path
from typing import Any

import pytest

from lhkit.errors import TuningError
from lhkit.tuning.train import Checkpoint, as_json, require_same

RECIPE: dict[str, Any] = {
    "settings": {"steps": 12, "seed": 0, "adapter": {"rank": 16, "alpha": 32}},
    "data_sha256": "a" * 64,
}


def refusal(folder: Path, found: dict[str, Any], asked: dict[str, Any]) -> str:
    (folder / "recipe.json").write_text(as_json(found), encoding="utf-8")
    with pytest.raises(TuningError) as raised:
        require_same(Checkpoint(folder=folder, recipe=asked))
    return str(raised.value).removeprefix(f"{folder} holds a training with another ")


def test_the_settings_that_differ_are_named_with_both_values_and_what_to_do(
    tmp_path: Path,
) -> None:
    settings = {"steps": 4, "seed": 0, "adapter": {"rank": 8, "alpha": 32}}
    told = refusal(tmp_path, RECIPE, {**RECIPE, "settings": settings})
    assert told.startswith(
        "settings (adapter.rank 16, not 8; steps 12, not 4): give another --into"
    )
    assert "go on with it" in told


def test_a_setting_that_one_of_both_lacks_is_named_too(tmp_path: Path) -> None:
    settings = {**RECIPE["settings"], "decisive_weight": 4.0}
    told = refusal(tmp_path, RECIPE, {**RECIPE, "settings": settings})
    assert told.startswith("settings (decisive_weight none, not 4.0): ")


def test_of_other_data_no_hash_is_told(tmp_path: Path) -> None:
    told = refusal(tmp_path, RECIPE, {**RECIPE, "data_sha256": "b" * 64})
    assert told.startswith("data_sha256: give another --into")


def test_the_same_training_is_taken(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(as_json(RECIPE), encoding="utf-8")
    require_same(Checkpoint(folder=tmp_path, recipe=RECIPE))
