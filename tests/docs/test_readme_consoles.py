"""README's commands print what README shows; one that asks a model is in `tests/packaging`."""

from pathlib import Path

import pytest

from lhkit.settings import load_settings
from tests.docs.pages import ROOT, Done, files, missing, run, steps

pytestmark = pytest.mark.slow

README = ROOT / "README.md"
COMMANDS = [step.command for step in steps(README)]
GATE = "lhkit eval shop.yaml --toolset shop.py:toolset --model gold --name accepted"


def run_in_shop(lines: list[str], folder: Path, commands: Path) -> tuple[Done, ...]:
    """Run commands in a folder with the files of README's first screen."""
    for name, text in files(README).items():
        (folder / name).write_text(text, encoding="utf-8")
    environment = {"HOME": str(folder), "LHKIT_CACHE_DIR": str(load_settings().cache_dir)}
    return run(lines, folder, environment, commands)


def test_readme_scenario_is_right_for_its_tools(tmp_path: Path, commands: Path) -> None:
    (lint,) = run_in_shop(["lhkit lint shop.yaml --toolset shop.py:toolset"], tmp_path, commands)
    assert "0 errors, 0 warnings" in lint.output


def test_readme_gate_stops_at_a_regression(tmp_path: Path, commands: Path) -> None:
    gate = steps(README)[COMMANDS.index(GATE) :][:3]
    done = run_in_shop([step.command for step in gate], tmp_path, commands)
    assert missing(["passed … 1/1 100%"], done[0].output) is None, done[0].output
    assert missing(gate[1].shown, done[1].output) is None, done[1].output
    assert done[2].output == f"{gate[2].shown[0]}\n"
    assert [result.code for result in done] == [0, 1, 0]
    evals = [line for line in COMMANDS if line.startswith("lhkit eval")]
    assert all("--toolset shop.py:toolset" in line for line in evals), "no lhkit.toml is there"
