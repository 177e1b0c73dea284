"""Where a training computes: the processor, or a graphics card, which no test machine needs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lhkit.commands.tune import tune_own
from lhkit.commands.tune_options import RunOptions
from lhkit.errors import SetupError, TuningError
from lhkit.precision import Processor, chosen
from lhkit.settings import Settings
from lhkit.tuning import adapter
from lhkit.tuning.data import Batch
from lhkit.tuning.recipe import AdapterShape, TuneSettings
from lhkit.tuning.train import Checkpoint, recipe_of, require_same
from tests.tuning.test_training import material, settings, trained

NO_CARD = r"torch .* finds no graphics card here: leave --device out, or install"


@pytest.fixture
def no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("is_card", [False, True])
def test_all_of_a_loss_is_computed_where_the_model_is(
    tiny_gemma: Path, monkeypatch: pytest.MonkeyPatch, *, is_card: bool
) -> None:
    """Planted: a device of shapes alone, which refuses to compute with anything from elsewhere."""
    import torch

    monkeypatch.setattr(torch.Tensor, "is_cuda", is_card)
    bare = adapter.load_model(tiny_gemma, "float32").to("meta")
    model = adapter.with_adapter(bare, AdapterShape(), seed=1)
    batch = Batch(
        prefix=(2, 4, 6),
        rows=((9, 10, 11), (12, 13)),
        labels=((-100, 10, 11), (-100, 13)),
        decisive=(True, False, False),
    )
    losses = adapter.token_losses(model, batch)
    assert (losses.device.type, tuple(losses.shape)) == ("meta", (3,))
    loss = adapter.weighted_mean(losses, batch, decisive_weight=4)
    loss.backward()
    assert {each.grad.device.type for each in adapter.trainable(model)} == {"meta"}


@pytest.mark.usefixtures("no_card")
def test_a_card_that_is_not_there_is_refused_before_anything_is_written(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    with pytest.raises(SetupError, match=NO_CARD):
        trained(tiny_gemma, tmp_path / "tuned", device="cuda")
    assert not (tmp_path / "tuned").exists()


@pytest.mark.anyio
@pytest.mark.usefixtures("no_card")
async def test_it_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    options = RunOptions(
        toolset="nowhere.py:own",
        phrases=tmp_path / "phrases.yaml",
        into=tmp_path / "tuned",
        tuning=TuneSettings(device="cuda"),
        count=1,
    )
    with pytest.raises(SetupError, match=NO_CARD):
        await tune_own(options, Settings(locale="en"), progress=False)


@pytest.mark.usefixtures("no_card")
def test_what_was_trained_on_a_card_needs_none_any_more(tiny_gemma: Path, tmp_path: Path) -> None:
    log = trained(tiny_gemma, tmp_path, steps=1, dtype="float32")
    as_if_on_a_card(tmp_path)
    assert trained(tiny_gemma, tmp_path, steps=1, dtype="float32", device="cuda") == log


@pytest.mark.usefixtures("no_card")
def test_what_was_stopped_on_a_card_still_needs_one(tiny_gemma: Path, tmp_path: Path) -> None:
    trained(tiny_gemma, tmp_path, steps=2, dtype="float32", stop_after=1)
    as_if_on_a_card(tmp_path)
    with pytest.raises(SetupError, match=NO_CARD):
        trained(tiny_gemma, tmp_path, steps=2, dtype="float32", device="cuda")


def as_if_on_a_card(training: Path) -> None:
    """Let a training's recipe say that it was a card's."""
    path = training / "recipe.json"
    told = path.read_text(encoding="utf-8").replace('"device": "cpu"', '"device": "cuda"')
    path.write_text(told, encoding="utf-8")


def test_a_manifest_names_the_device_and_a_training_is_not_gone_on_with_on_another(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    trained(tiny_gemma, tmp_path, steps=1, dtype="float32")
    told = json.loads((tmp_path / "adapter" / "manifest.json").read_text(encoding="utf-8"))
    assert (told["settings"]["device"], told["machine"]["device"]) == ("cpu", "cpu")
    asked = settings(steps=1, dtype="float32")
    same, other = (
        Checkpoint(folder=tmp_path, recipe=recipe_of(material(tiny_gemma), each))
        for each in (asked, replace(asked, device="cuda"))
    )
    require_same(same)
    with pytest.raises(TuningError, match=r"another settings \(device cpu, not cuda\)"):
        require_same(other)
    path = tmp_path / "recipe.json"
    path.write_text(path.read_text().replace('"device": "cpu",', ""), encoding="utf-8")
    require_same(same)  # before there was a choice it was the processor


def test_a_card_computes_in_bf16_unless_something_else_is_asked_for() -> None:
    old = Processor(machine="x86_64", flags=frozenset())
    assert chosen(None, old, on_card=True).dtype == "bfloat16"
    assert chosen("float32", old, on_card=True).dtype == "float32"
    assert chosen(None, old).dtype == "float32"
