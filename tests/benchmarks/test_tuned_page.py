"""What tuning is worth, from run folders to a page: every arm, pair and criterion is on it."""

import shutil
from pathlib import Path

import pytest
import tuned

from lhkit.harness.author.gold import gold_model, silent_model
from lhkit.harness.run import replay
from lhkit.harness.scenario import load_scenarios
from lhkit.harness.suite import arms_of, load_suite
from lhkit.lifehelper.toolset import LifeHelperToolset

SCENARIOS = Path(__file__).parents[2] / "datasets" / "ac" / "dev"
EVALS = Path(__file__).parents[2] / "evals"
CRITERIA = ("AC-1", "AC-12")


@pytest.fixture
async def runs(tmp_path: Path) -> Path:
    """Three scenarios of two criteria: the tuned arms pass all, the bare ones what needs words."""
    every = load_scenarios([SCENARIOS])
    of = {ac: [each for each in every if each.ac == ac] for ac in CRITERIA}
    played = (*of["AC-1"][:2], of["AC-12"][0])
    for arm in tuned.ARMS:
        model = silent_model() if "base" in arm else gold_model
        await replay(
            played,
            model,
            toolset=LifeHelperToolset(),
            run_dir=tmp_path / "tuned" / arm,
            repeats=2,
            progress=False,
        )
    shutil.copytree(tmp_path / "tuned", tmp_path / "tuned-test")
    return tmp_path


@pytest.mark.anyio
async def test_the_page_tells_each_arm_pair_and_criterion_of_both_splits(runs: Path) -> None:
    assert tuned.main(["--runs-dir", str(runs), "--into", str(runs)]) == 0
    page = (runs / "tuned.md").read_text(encoding="utf-8")
    for split in ("## `dev`: 3 scenarios", "## `test`: 3 scenarios"):
        told = page.split(split)[1]
        assert "| `gemma-off` | 6/6, 100 % [" in told
        assert "| `gemma-base-off` | 0/6, 0 % [" in told
        assert "| `gemma-base-off` → `gemma-off` | +100.0 [" in told
        assert "| 0 (0) / 3 (6) | p = 0.250 |" in told
        assert "| AC-1 find by a wish | 0/4 | 0/4 | 4/4 | 4/4 |" in told
        assert "| AC-12 restraint | 0/2 | 0/2 | 2/2 | 2/2 |" in told
    assert "2 repeats" in page


@pytest.mark.anyio
async def test_the_picture_has_a_bar_for_each_arm_and_criterion_of_both_splits(runs: Path) -> None:
    splits = [tuned.Split.load(name, runs / folder) for name, folder in tuned.SPLITS.items()]
    bars = {(bar["split"], bar["criterion"], bar["arm"]): bar for bar in tuned.bars(splits)}
    assert len(bars) == len(splits) * len(tuned.ARMS) * (len(CRITERIA) + 1)
    whole = bars["test", "all", "gemma-auto"]
    assert (whole["passed"], whole["high"]) == (100, 100)
    assert whole["low"] < 100
    tuned.draw(splits, runs)
    svg = (runs / "tuned.svg").read_text(encoding="utf-8")
    assert "AC-12 restraint" in svg
    assert (runs / "tuned.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("suite", tuned.SPLITS.values())
def test_the_arms_are_those_that_the_suites_play(suite: str) -> None:
    arms = arms_of(load_suite(EVALS / f"{suite}.toml"), EVALS)
    assert {arm.name for arm in arms} == set(tuned.ARMS)


def test_arms_that_were_not_played_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tuned.main(["--runs-dir", str(tmp_path), "--into", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "gemma-base-off holds no run" in told
    assert "lhkit matrix evals/tuned.toml" in told
    assert not (tmp_path / "tuned.md").exists()
