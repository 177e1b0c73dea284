"""A training that goes on from an adapter, which may be of another training."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lhkit.errors import TuningError
from lhkit.tuning.data import Exchange, sequences_of
from lhkit.tuning.recipe import AdapterShape, TuneSettings
from lhkit.tuning.train import Material, Point, train

PROMPT = "<bos> <start_of_turn> user tools {} <end_of_turn> <start_of_turn> model "


def trained(
    base: Path, folder: Path, *, start: Path | None = None, **changes: Any
) -> tuple[Point, ...]:
    """Train on ten short conversations with one answer to each letter."""
    told = [
        sequence
        for number, letter in enumerate("abcde" * 2)
        for sequence in sequences_of(
            f"c{number}",
            "en",
            "demo",
            [Exchange(prompt=PROMPT.format(letter), answer="add " if letter < "c" else "list ")],
        )
    ]
    chosen: dict[str, Any] = {"steps": 30, "batch_tokens": 60, "learning_rate": 0.1, **changes}
    return train(
        Material(train=told, dev=told[:5], base=base, start=start),
        TuneSettings(**chosen),
        folder,
        clock=count().__next__,
        progress=False,
    )


def test_what_an_adapter_has_learnt_is_where_the_next_training_begins(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    fresh = trained(tiny_gemma, tmp_path / "first")
    start = tmp_path / "first" / "adapter"
    further = trained(tiny_gemma, tmp_path / "second", start=start, steps=3, learning_rate=0.0)
    assert further[0].loss < 0.5 * fresh[0].loss
    assert further[-1].dev_loss == pytest.approx(fresh[-1].dev_loss, abs=0.02)  # saved in bf16


def test_a_stopped_training_is_not_mixed_with_one_from_another_adapter(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    for name, seed in (("one", 0), ("other", 1)):
        trained(tiny_gemma, tmp_path / name, steps=1, seed=seed)
    folder = tmp_path / "next"
    trained(tiny_gemma, folder, start=tmp_path / "one" / "adapter", steps=1)
    with pytest.raises(TuningError, match="another start_sha256"):
        trained(tiny_gemma, folder, start=tmp_path / "other" / "adapter", steps=1)
    with pytest.raises(TuningError, match="another start_sha256"):
        trained(tiny_gemma, folder, steps=1)


def test_an_adapter_of_another_shape_is_told_with_the_rank_that_would_do(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    trained(tiny_gemma, tmp_path / "first", steps=1, adapter=AdapterShape(rank=4, alpha=8))
    start = tmp_path / "first" / "adapter"
    with pytest.raises(TuningError, match=r"rank 4 and alpha 8, not 16 and 32: give --rank 4"):
        trained(tiny_gemma, tmp_path / "second", start=start)


def test_a_start_that_is_no_adapter_of_this_base_is_one_sentence(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    with pytest.raises(TuningError, match="nowhere holds no adapter: it needs adapter_config"):
        trained(tiny_gemma, tmp_path / "a", start=tmp_path / "nowhere")
    trained(tiny_gemma, tmp_path / "first", steps=1)
    start = tmp_path / "first" / "adapter"
    manifest = start / "manifest.json"
    told = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps({**told, "base": {"name": "x", "sha256": "0" * 64}}))
    with pytest.raises(TuningError, match="was trained on another base"):
        trained(tiny_gemma, tmp_path / "b", start=start)
    manifest.unlink()
    (start / "adapter_model.safetensors").write_bytes(b"\0" * 40)
    with pytest.raises(TuningError, match=r"holds no adapter that can be read .*--from"):
        trained(tiny_gemma, tmp_path / "c", start=start)
