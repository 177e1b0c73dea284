"""How long a training takes: told before it and after ten steps, given in minutes, ended early."""

import json
from pathlib import Path

import pytest

from lhkit.commands.tune import is_merged
from lhkit.errors import TuningError
from lhkit.tuning.adapter import merge
from lhkit.tuning.recipe import TuneSettings
from lhkit.tuning.train import (
    Forecast,
    Notice,
    Point,
    TrainingPlan,
    TrainingSurroundings,
    best_step,
    is_over,
    spent_s,
    train,
)
from tests.tuning.test_training import material, settings, ticking, trained

# `ticking` is a clock that goes on by a second whenever it is asked: a step takes one, and so does
# measuring.


def test_a_training_of_so_many_minutes_ends_with_them_and_its_rate_with_it(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    log = trained(tiny_gemma, tmp_path, minutes=0.3, steps=1_000)
    assert 18 <= spent_s(log) <= 19  # the last measurement may begin in time and end after it
    rates = [point.learning_rate for point in log]
    highest = rates.index(max(rates))
    assert rates[: highest + 1] == sorted(rates[: highest + 1])
    assert rates[highest:] == sorted(rates[highest:], reverse=True)
    assert rates[-1] < 0.02 * max(rates)
    assert log[-1].dev_loss is not None
    assert (tmp_path / "adapter" / "manifest.json").is_file()


def test_minutes_count_in_all_parts_and_the_end_is_the_same(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    whole = trained(tiny_gemma, tmp_path / "a", minutes=0.25, steps=1_000)
    for stop_after in (3, 8):
        trained(tiny_gemma, tmp_path / "b", minutes=0.25, steps=1_000, stop_after=stop_after)
    parts = trained(tiny_gemma, tmp_path / "b", minutes=0.25, steps=1_000)
    assert [point.loss for point in parts] == pytest.approx([point.loss for point in whole])
    again = trained(tiny_gemma, tmp_path / "b", minutes=0.25, steps=1_000)
    assert again == parts


def test_what_is_read_is_told_before_and_how_long_it_takes_after_ten_steps(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    told: list[Notice] = []
    around = TrainingSurroundings(notify=told.append)
    trained(tiny_gemma, tmp_path, steps=14, around=around)
    plan, forecast = told
    assert isinstance(plan, TrainingPlan)
    given = material(tiny_gemma)
    assert plan.texts == len(given.train)
    assert plan.tokens == sum(len(each.text.split()) for each in given.train)
    assert plan.steps == 14
    assert 0 < plan.minutes < 10
    assert forecast == Forecast(done=10, left=4, minutes=pytest.approx(4 * (1 + 1 / 6) / 60))


def test_of_a_training_by_minutes_the_forecast_is_what_is_left_of_them(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    told: list[Notice] = []
    around = TrainingSurroundings(notify=told.append)
    trained(tiny_gemma, tmp_path, steps=1_000, minutes=0.3, around=around)
    plan, forecast = told
    assert isinstance(plan, TrainingPlan)
    assert plan.minutes <= 0.3
    assert isinstance(forecast, Forecast)
    assert forecast.minutes == pytest.approx((18 - 11) / 60)
    assert forecast.left == round(7 / (1 + 1 / 6))


def test_a_forecast_goes_by_the_pace_of_the_process_that_goes_on(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    told: list[Notice] = []
    around = TrainingSurroundings(notify=told.append)
    trained(tiny_gemma, tmp_path, steps=17, stop_after=5)
    trained(tiny_gemma, tmp_path, steps=17, around=around)
    assert [each.done for each in told if isinstance(each, Forecast)] == [15]


def test_a_training_that_gets_no_better_ends_and_its_best_adapter_is_kept(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import load_file

    changes = {"steps": 30, "dev_every_steps": 2, "patience": 2, "learning_rate": 0.5}
    log = trained(tiny_gemma, tmp_path / "a", **changes)
    best = best_step(log)
    assert best is not None
    assert best + 2 * 2 == len(log) < 30
    told = json.loads((tmp_path / "a" / "adapter" / "manifest.json").read_text(encoding="utf-8"))
    assert (told["kept_step"], told["steps_done"]) == (best, len(log))
    kept = load_file(tmp_path / "a" / "adapter" / "adapter_model.safetensors")
    trained(tiny_gemma, tmp_path / "b", **changes, stop_after=best)
    state = torch.load(tmp_path / "b" / "state.pt", weights_only=True)["adapter"]
    assert all(torch.equal(kept[name], state[name].bfloat16()) for name in state)
    assert trained(tiny_gemma, tmp_path / "b", **changes) == log
    again = load_file(tmp_path / "b" / "adapter" / "adapter_model.safetensors")
    assert all(torch.equal(kept[name], again[name]) for name in kept)


def point(step: int, dev_loss: float | None) -> Point:
    return Point(
        step=step, loss=1.0, learning_rate=0.1, learnt_tokens=1, seconds=1.0, dev_loss=dev_loss
    )


@pytest.mark.parametrize(
    ("losses", "patience", "over"),
    [
        ([3.0, 2.0, 2.5], 2, False),
        ([3.0, 2.0, 2.5, 2.0], 2, True),
        ([3.0, 2.0, 2.5, 2.1], 0, False),
        ([3.0, 2.0, None, 2.5, None], 2, False),
        ([None, None, None], 1, False),
    ],
)
def test_patience_ends_with_so_many_measurements_that_are_no_better(
    losses: list[float | None], patience: int, *, over: bool
) -> None:
    log = [point(number, loss) for number, loss in enumerate(losses, 1)]
    assert is_over(TuneSettings(steps=99, patience=patience), log) is over


def test_a_training_of_before_there_were_minutes_is_gone_on_with(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    trained(tiny_gemma, tmp_path, stop_after=4)
    path = tmp_path / "recipe.json"
    recipe = json.loads(path.read_text(encoding="utf-8"))
    for key in ("minutes", "patience", "device"):
        del recipe["settings"][key]
    path.write_text(json.dumps(recipe), encoding="utf-8")
    log = train(material(tiny_gemma), settings(), tmp_path, clock=ticking(), progress=False)
    assert len(log) == 12


def test_a_model_that_was_made_of_another_adapter_is_not_taken_for_this_ones(
    tmp_path: Path,
) -> None:
    adapter, model = tmp_path / "adapter", tmp_path / "models" / "model"
    adapter.mkdir()
    weights = adapter / "adapter_model.safetensors"
    weights.write_bytes(b"first")
    assert not is_merged(adapter, model)
    model.mkdir()
    assert is_merged(adapter, model)
    weights.write_bytes(b"second")
    with pytest.raises(TuningError, match=r"model was made of another adapter than .*: remove it"):
        is_merged(adapter, model)


def test_an_adapter_is_kept_every_so_many_minutes_and_the_end_is_the_same(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    plain = trained(tiny_gemma, tmp_path / "a")
    around = TrainingSurroundings(keep_every_minutes=4 / 60)
    log = trained(tiny_gemma, tmp_path / "b", around=around)
    assert [point.loss for point in log] == [point.loss for point in plain]
    kept = sorted((tmp_path / "b" / "kept").iterdir())
    assert [each.name for each in kept] == ["step-000004", "step-000007", "step-000011"]
    told = json.loads((kept[1] / "manifest.json").read_text(encoding="utf-8"))
    assert told["steps_done"] == 7
    weights = "adapter_model.safetensors"
    ends = [load_file(tmp_path / each / "adapter" / weights) for each in "ab"]
    assert all(ends[0][name].equal(ends[1][name]) for name in ends[0])
    on_the_way = [load_file(each / weights) for each in kept]
    assert any(not on_the_way[0][name].equal(ends[1][name]) for name in ends[1])
    merge(tiny_gemma, kept[0], tmp_path / "merged")
    assert (tmp_path / "merged" / "config.json").is_file()
