"""`lhkit init`, and the `lhkit.toml` of a folder."""

import json
import subprocess
from pathlib import Path

import nbformat
import pytest
import yaml

from lhkit.base.errors import UsageError
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.evaluate import evaluate
from lhkit.cli.init.init import FILES, InitOptions, init_project
from lhkit.cli.lint import LintOptions, lint_paths
from lhkit.cli.mutate import MutateOptions, mutate_paths
from lhkit.settings import Settings
from tests.children import search_paths

pytestmark = pytest.mark.anyio
ENGLISH = Settings(locale="en")


@pytest.fixture
async def project(tmp_path: Path) -> Path:
    folder = tmp_path / "demo"
    assert await init_project(InitOptions(folder=folder), ENGLISH) == 0
    return folder


@pytest.mark.parametrize(("model", "code"), [("gold", 0), ("silent", 1)])
async def test_init_project_can_be_evaluated_at_once(project: Path, model: str, code: int) -> None:
    options = EvalOptions(
        paths=(project,), model=model, fail_under=100, runs_dir=project.parent / "runs"
    )
    assert await evaluate(options, ENGLISH) == code


async def test_init_project_passes_lint_and_mutate(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await lint_paths(LintOptions(paths=(project,)), ENGLISH) == 0
    assert "3 scenarios read: 0 errors, 0 warnings" in capsys.readouterr().out
    assert await mutate_paths(MutateOptions(paths=(project,), fail_under=100.0), ENGLISH) == 0


async def test_init_writes_valid_notebook_workflow_and_schema(project: Path) -> None:
    nbformat.validate(nbformat.read(project / "chat.ipynb", as_version=4))
    workflow = yaml.safe_load((project / ".github/workflows/lhkit.yml").read_text("utf-8"))
    assert workflow["jobs"]["scenarios"]["steps"]
    first = (project / "shopping.scenario.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=scenario.schema.json"
    assert json.loads((project / "scenario.schema.json").read_text("utf-8"))["$defs"]["Scenario"]


async def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("mine")
    with pytest.raises(UsageError, match=r"tools\.py exists already"):
        await init_project(InitOptions(folder=tmp_path), ENGLISH)
    assert names_in(tmp_path) == ["tools.py"]
    assert (tmp_path / "tools.py").read_text() == "mine"
    assert FILES.keys() > {"tools.py"}


async def test_project_file_is_not_used_where_a_toolset_is_given(project: Path) -> None:
    (project / "lhkit.toml").write_text('toolset = "nowhere.py:x"')
    own = f"{project / 'tools.py'}:toolset"
    assert await lint_paths(LintOptions(paths=(project,), toolset=own), ENGLISH) == 0
    with pytest.raises(UsageError, match=r"nowhere\.py"):
        await lint_paths(LintOptions(paths=(project,)), ENGLISH)


@pytest.mark.parametrize("text", ["toolset = 1", "colour = 'red'", "toolset ==", ""])
async def test_project_file_that_is_invalid_is_named(project: Path, text: str) -> None:
    (project / "lhkit.toml").write_text(text)
    with pytest.raises(UsageError, match=r"lhkit\.toml is invalid"):
        LintOptions(paths=(project / "shopping.scenario.yaml",))


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.slow
def test_init_workflow_stops_at_a_regression_once_a_run_is_accepted(tmp_path: Path) -> None:
    project = tmp_path / "demo"
    environment = {**search_paths(), "LHKIT_LOCALE": "en", "LHKIT_CACHE_DIR": str(tmp_path / "c")}
    summary = tmp_path / "summary.md"
    environment["GITHUB_STEP_SUMMARY"] = str(summary)

    def bash(script: str, folder: Path = project) -> int:
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode

    assert bash("lhkit init demo", tmp_path) == 0
    workflow = yaml.safe_load((project / ".github/workflows/lhkit.yml").read_text("utf-8"))
    steps = workflow["jobs"]["scenarios"]["steps"]
    gate, report = (step["run"] for step in steps[-2:])
    assert bash(gate.replace("eval .", "eval . --model silent")) == 0, "no run is accepted yet"
    assert bash("lhkit eval . --model gold --name accepted && cp -r runs/accepted accepted") == 0
    assert bash(gate.replace("eval .", "eval . --model gold")) == 0
    assert bash(gate.replace("eval .", "eval . --model silent")) == 1
    assert bash(report) == 0
    assert "Regressions: 3 scenarios passed in accepted" in summary.read_text(encoding="utf-8")
