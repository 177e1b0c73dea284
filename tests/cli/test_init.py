"""`lhkit init`, and the `lhkit.toml` of a folder."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
import yaml

from lhkit.base.errors import UsageError
from lhkit.cli.init.init import FILES, InitOptions, init_project
from lhkit.settings import Settings
from tests.children import search_paths
from tests.cli.conftest import Run

ENGLISH = Settings(locale="en")


@pytest.fixture
def project(tmp_path: Path, run: Run) -> Path:
    folder = tmp_path / "demo"
    assert run("init", folder)[0] == 0
    return folder


@pytest.mark.longer
@pytest.mark.parametrize(
    ("args", "code"),
    [
        ("eval --model gold --fail-under 100", 0),
        ("eval --model silent --fail-under 100", 1),
        ("lint", 0),
        ("mutate --fail-under 100", 0),
    ],
)
def test_init_project_can_be_evaluated_at_once(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch, args: str, code: int
) -> None:
    monkeypatch.chdir(project)
    ended, out, _ = run(*args.split())
    assert ended == code
    assert out.startswith("lhkit.toml: toolset tools.py:toolset, scenarios .")
    assert args != "lint" or "3 scenarios read: 0 errors, 0 warnings" in out


def test_init_writes_valid_notebook_workflow_and_schema(project: Path) -> None:
    nbformat.validate(nbformat.read(project / "chat.ipynb", as_version=4))
    workflow = yaml.safe_load((project / ".github/workflows/lhkit.yml").read_text("utf-8"))
    assert workflow["jobs"]["scenarios"]["steps"]
    first = (project / "shopping.scenario.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=scenario.schema.json"
    assert json.loads((project / "scenario.schema.json").read_text("utf-8"))["$defs"]["Scenario"]


@pytest.mark.anyio
async def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("mine")
    with pytest.raises(UsageError, match=r"tools\.py exists already"):
        await init_project(InitOptions(folder=tmp_path), ENGLISH)
    assert names_in(tmp_path) == ["tools.py"]
    assert (tmp_path / "tools.py").read_text() == "mine"
    assert FILES.keys() > {"tools.py"}


@pytest.mark.anyio
@pytest.mark.parametrize("configuration", ["pytest.ini", "pyproject.toml"])
async def test_init_keeps_files_that_a_folder_may_have(
    tmp_path: Path, configuration: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("README.md", ".gitignore", configuration):
        (tmp_path / name).write_text("# mine")
    assert await init_project(InitOptions(folder=tmp_path), ENGLISH) == 0
    assert (tmp_path / "lhkit.toml").is_file()
    for name in ("README.md", ".gitignore", configuration):
        assert (tmp_path / name).read_text() == "# mine"
    assert (tmp_path / "pytest.ini").exists() == (configuration == "pytest.ini")
    out = capsys.readouterr().out
    assert ".gitignore is there already. Add to it: runs/\n" in out
    assert "Add to it: lhkit_model = gold\n" in out
    assert "README.md" not in out


def test_init_readme_has_ten_lines(project: Path) -> None:
    assert len((project / "README.md").read_text(encoding="utf-8").splitlines()) <= 10
    assert (project / ".gitignore").read_text(encoding="utf-8") == "runs/\n"


@pytest.mark.anyio
async def test_init_writes_the_pages_for_people_in_the_language_of_the_user(tmp_path: Path) -> None:
    for locale in ("en", "ko"):
        await init_project(InitOptions(folder=tmp_path / locale), Settings(locale=locale))
    hangul, code = re.compile("[가-힣]"), re.compile(r"^(?:lhkit|pytest)[^#\n]*|`[^`\n]+`", re.M)
    for name in ("README.md", "AGENTS.md"):
        english, korean = (
            (tmp_path / each / name).read_text(encoding="utf-8") for each in ("en", "ko")
        )
        assert not hangul.search(english)
        assert hangul.search(korean.splitlines()[0])
        assert sorted(code.findall(english)) == sorted(code.findall(korean))
        assert english.count("\n- ") == korean.count("\n- ")
    same = FILES.keys() - {"AGENTS.md"}
    assert all(
        (tmp_path / "en" / n).read_bytes() == (tmp_path / "ko" / n).read_bytes() for n in same
    )


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.slow
def test_init_workflow_stops_at_a_regression_once_a_run_is_accepted(
    project: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Path
) -> None:
    environment = {**search_paths(), "LHKIT_LOCALE": "en", "LHKIT_CACHE_DIR": str(tmp_path / "c")}
    environment["PATH"] = f"{commands}:{environment['PATH']}"
    summary = tmp_path / "summary.md"
    environment["GITHUB_STEP_SUMMARY"] = str(summary)

    def bash(script: str) -> int:
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(command, cwd=project, env=environment, check=False).returncode

    workflow = yaml.safe_load((project / ".github/workflows/lhkit.yml").read_text("utf-8"))
    steps = workflow["jobs"]["scenarios"]["steps"]
    gate, report = (step["run"] for step in steps[-2:])
    assert bash(gate.replace("eval", "eval --model silent")) == 0, "no run is accepted yet"
    monkeypatch.chdir(project)
    assert run("eval", "--model", "gold", "--name", "accepted")[0] == 0
    shutil.copytree(project / "runs" / "accepted", project / "accepted")
    assert bash(gate.replace("eval", "eval --model gold")) == 0
    assert bash(gate.replace("eval", "eval --model silent")) == 1
    assert bash(report) == 0
    assert "Regressions: 3 scenarios passed in accepted" in summary.read_text(encoding="utf-8")
