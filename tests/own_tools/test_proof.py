"""Own tools, proven: phrases that play, data apart from every scenario, scores of what was run."""

import json
from pathlib import Path

import pytest

from evals.own_tools.proof import (
    BARE,
    OWN,
    SCENARIOS,
    TUNED,
    Arm,
    Score,
    address_in,
    arms,
    played,
    row,
    served,
    share,
)
from lhkit.commands.evaluate import evaluate
from lhkit.commands.options import EvalOptions
from lhkit.commands.tune import dev_path, make_data
from lhkit.commands.tune_options import DataOptions
from lhkit.errors import SetupError
from lhkit.harness.scenario import load_scenarios
from lhkit.settings import Settings
from lhkit.tuning.apart import near
from lhkit.tuning.data import read_sequences

DRAWN = 300
"""Of the conversations that `make own-tools` draws, the first ones."""


def said(text: str) -> list[str]:
    """Return what the user says in a text that is learnt from."""
    turns = [turn.partition("<end_of_turn>")[0] for turn in text.split("<start_of_turn>user\n")[1:]]
    return [turn.rpartition("\n")[2] for turn in turns if not turn.startswith("Result of ")]


@pytest.mark.anyio
@pytest.mark.timeout(1_200)  # hundreds of conversations: minutes on a busy machine
@pytest.mark.parametrize("name", OWN)
@pytest.mark.promise("own_tools.phrases")
async def test_phrases_play_with_their_tools_and_nothing_is_near_any_scenario(
    name: str, tmp_path: Path
) -> None:
    own, settings = OWN[name], Settings(locale="en")
    options = DataOptions(
        out=tmp_path / "own.jsonl",
        count=DRAWN,
        seed=own.seed,
        toolset=own.toolset,
        phrases=own.phrases,
        apart=SCENARIOS,
    )
    await make_data(options, settings, progress=False)
    texts = [*read_sequences(options.out), *read_sequences(dev_path(options.out))]
    assert len(texts) > 0.9 * DRAWN
    assert {each.group for each in texts} == {"ko", "en"}
    lines = {line for each in texts for line in said(each.text)}
    assert len(lines) > DRAWN / 2
    scenarios = load_scenarios(SCENARIOS)
    scored = [turn.user for each in scenarios for turn in each.turns]
    assert len(scored) > 400
    assert [line for line in lines if next(near(line, scored), None)] == []


@pytest.mark.anyio
async def test_what_was_played_is_scored_without_a_model(tmp_path: Path) -> None:
    own, settings = OWN["pantry"], Settings(locale="en")
    options = EvalOptions(
        paths=(own.scenarios,),
        toolset=own.toolset,
        model="gold",
        name=BARE,
        runs_dir=tmp_path / "runs",
    )
    assert await evaluate(options, settings) == 0
    count = len(load_scenarios([own.scenarios]))
    score = await played(own, Arm(name=BARE), tmp_path, count, settings)
    assert (score.passed, score.valid, score.minutes, score.steps) == (count, count, 0, 0)
    assert score.right_calls == score.counted_calls > count / 2


@pytest.mark.anyio
async def test_a_model_that_cannot_be_served_is_named_and_nothing_is_scored(tmp_path: Path) -> None:
    (model := tmp_path / "pantry-tuned").mkdir()
    with pytest.raises(SetupError, match=r"pantry-tuned could not be served: try `lhkit serve"):
        async with served(model):
            pass


@pytest.mark.parametrize(
    "line",
    [
        "model is served at http://127.0.0.1:8000/v1. Ctrl-C ends it.",
        "model is already served in bfloat16 at http://127.0.0.1:8000/v1 (pid 7).",
        "model is already served at http://127.0.0.1:8000/v1 (pid 7).",
    ],
)
def test_a_model_that_an_earlier_call_left_served_is_found(line: str) -> None:
    assert address_in(line) == "http://127.0.0.1:8000/v1"
    assert address_in("log: /served/at/home") is None


def test_the_bare_model_is_scored_and_every_adapter_of_a_training_once_in_order(
    tmp_path: Path,
) -> None:
    kept = ((3, "kept/step-000003"), (12, "kept/step-000012"), (20, "kept/step-000020"))
    for step, folder in (*kept, (20, "adapter")):
        (tmp_path / folder).mkdir(parents=True)
        told = json.dumps({"steps_done": step, "seconds": 60 * step})
        (tmp_path / folder / "manifest.json").write_text(told, encoding="utf-8")
    found = arms(tmp_path)
    assert [each.name for each in found] == [BARE, "step-000003", "step-000012", TUNED]
    assert [each.told().get("steps_done") for each in found] == [None, 3, 12, 20]


def test_a_share_is_told_with_its_interval_and_nothing_counted_is_none() -> None:
    assert share(30, 40) == "30 of 40, 75 % [60–86]"
    assert share(0, 0) == "–"
    score = Score(
        arm="tuned", minutes=60, steps=150, right_calls=30, counted_calls=40, passed=0, valid=0
    )
    assert row(score) == "| tuned | 60 | 150 | 30 of 40, 75 % [60–86] | – |"
