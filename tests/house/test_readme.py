"""README's examples run and do what README says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lhkit
from lhkit import app
from lhkit.harness.authoring.lint import lint
from lhkit.harness.scenarios.scenario import read_sources

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found, f"README has no {language} block"
    return found.group(1)


def test_the_first_example_prints_what_readme_says() -> None:
    run = subprocess.run(
        [sys.executable, "-c", block("python")], capture_output=True, text=True, check=True
    )
    assert run.stdout == block("text")


@pytest.mark.anyio
async def test_the_scenario_in_readme_lints_clean(tmp_path: Path) -> None:
    (tmp_path / "readme.yaml").write_text(block("yaml"), encoding="utf-8")
    assert await lint(read_sources([tmp_path]), app.LifeHelperEnvironment()) == ()


def test_the_pictures_of_readme_are_there() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert pictures
    assert [each for each in pictures if not (ROOT / each).is_file()] == []


def test_the_tree_in_readme_is_the_tree_on_disk() -> None:
    tree = README.split("## The tree")[1].split("```")[1]
    listed = {line.split()[0].rstrip("/") for line in tree.splitlines() if line.startswith("  ")}
    package = Path(lhkit.__file__).parent
    on_disk = {
        path.name for path in package.iterdir() if path.name not in {"__pycache__", "py.typed"}
    }
    assert listed == on_disk
