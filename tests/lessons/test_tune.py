import json
from dataclasses import replace
from pathlib import Path

import pytest

from evals.lessons.tune import Round, tune
from lhkit.models.weights import file_sha256
from lhkit.settings import load_settings
from lhkit.tuning.recipe import AdapterShape, TuneSettings


def written(folder: Path) -> dict[Path, int]:
    """Return when each file was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.anyio
@pytest.mark.timeout(1800)  # a real training: minutes on a busy machine
async def test_three_steps_on_the_real_base_lower_the_loss_and_are_not_done_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuning = TuneSettings(
        steps=3,
        batch_tokens=300,
        learning_rate=1e-3,
        warmup=0,
        dev_every_steps=3,
        adapter=AdapterShape(rank=4, alpha=8),
    )
    rounds = (
        Round(count=10, data_seed=1, dev_share=0.1, tuning=tuning),
        Round(count=10, data_seed=1, dev_share=0.1, tuning=replace(tuning, steps=1)),
    )
    settings = load_settings()
    assert await tune(tmp_path, settings, rounds=rounds, progress=False) == 0
    first, second = tmp_path / "round-1", tmp_path / "round-2"
    adapter = first / "adapter"
    shown = capsys.readouterr().out.replace("\n", "")
    assert f"lhkit tune merge {adapter}" in shown
    assert sorted(path.name for path in adapter.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "curves.svg",
        "manifest.json",
    ]
    log = [json.loads(line) for line in (first / "log.jsonl").read_text().splitlines()]
    assert log[-1]["loss"] < log[0]["loss"]
    (went_on,) = (json.loads(line) for line in (second / "log.jsonl").read_text().splitlines())
    assert went_on["loss"] < log[0]["loss"]  # the same batch, seen with what was learnt
    told = json.loads((adapter / "manifest.json").read_text(encoding="utf-8"))
    assert (told["steps_done"], told["dev_loss"], told["start"]) == (3, log[-1]["dev_loss"], None)
    told = json.loads((second / "adapter" / "manifest.json").read_text(encoding="utf-8"))
    assert told["start"] == {"sha256": file_sha256(adapter / "adapter_model.safetensors")}
    before = written(tmp_path)
    assert await tune(tmp_path, settings, rounds=rounds, progress=False) == 0
    assert written(tmp_path) == before
