"""docs/ci: the workflow and the action are valid, and the action's shell steps do what they say."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.children import search_paths
from tests.docs.pages import ROOT, blocks

CI = ROOT / "docs" / "ci"
ACTION = yaml.safe_load((CI / "action.yml").read_text(encoding="utf-8"))

GH = """\
#!/bin/bash
echo "$@" >> calls.txt
case "$*" in
  *--paginate*) cat known-comment.txt 2> /dev/null || true ;;
esac
"""
"""Stands for GitHub's command: it writes down what it was called with."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "file"),
    [("vendor.github-workflows", "lhkit.yml"), ("vendor.github-actions", "action.yml")],
)
def test_ci_file_is_valid_for_github(schema: str, file: str) -> None:
    command = ["check_jsonschema", "--builtin-schema", schema, str(CI / file)]
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflow_passes_every_input_of_the_action() -> None:
    workflow = yaml.safe_load((CI / "lhkit.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["eval"]["steps"]
    (given,) = (step["with"] for step in steps if "lhkit" in step.get("uses", ""))
    assert {*given, "comment"} == set(ACTION["inputs"])


@pytest.mark.slow
def test_action_scores_reports_and_renews_one_comment(tmp_path: Path) -> None:
    write_project(tmp_path)
    assert run_action(tmp_path, model="gold") == 0
    (tmp_path / "runs" / "candidate").rename(tmp_path / "accepted")
    (tmp_path / "known-comment.txt").write_text("77\n")
    assert run_action(tmp_path, model="silent", baseline="accepted", options="--fail-under 50") == 1
    calls = (tmp_path / "calls.txt").read_text().splitlines()
    assert [call.split()[2] for call in calls if "--method" in call] == ["POST", "PATCH"]
    assert calls[-1].split()[3] == "repos/org/repo/issues/comments/77"
    comment = (tmp_path / "body.md").read_text(encoding="utf-8")
    assert comment.startswith("<!-- lhkit -->\n")
    assert "0/3" in comment
    assert "eggs-left" in comment  # a regression, by its scenario
    assert (tmp_path / "report.html").is_file()
    assert (tmp_path / "junit.xml").is_file()


@pytest.mark.slow
def test_action_writes_no_comment_where_nothing_could_be_scored(tmp_path: Path) -> None:
    write_project(tmp_path)
    assert run_action(tmp_path, model="gold", toolset="kitchen.py:missing") == 2
    assert not (tmp_path / "calls.txt").exists()


def write_project(folder: Path) -> None:
    page = ROOT / "docs" / "own-tools.md"
    python = [block.text for block in blocks(page) if block.language == "python"]
    (scenarios,) = (block.text for block in blocks(page) if block.language == "yaml")
    (folder / "kitchen.py").write_text("\n\n".join(python), encoding="utf-8")
    (folder / "kitchen.yaml").write_text(scenarios, encoding="utf-8")
    gh = folder / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(GH)
    gh.chmod(gh.stat().st_mode | stat.S_IXUSR)


def run_action(folder: Path, **inputs: str) -> int:
    """Run the shell steps as a runner would; return the exit code of the last one."""
    given = {
        name: inputs.get(name.replace("-", "_"), declared.get("default", ""))
        for name, declared in ACTION["inputs"].items()
    } | {"scenarios": "kitchen.yaml"}
    given["toolset"] = inputs.get("toolset", "kitchen.py:toolset")
    expressions = {f"inputs.{name}": value for name, value in given.items()} | {
        "github.token": "t",
        "github.repository": "org/repo",
        "github.event.pull_request.number": "5",
    }
    code = 0
    for step in ACTION["runs"]["steps"]:
        code = run_step(step, expressions, folder)
        outputs = (folder / "outputs.txt").read_text().splitlines()
        expressions["steps.eval.outputs.exit-code"] = outputs[-1].partition("=")[2]
    return code


def run_step(step: dict[str, Any], expressions: dict[str, str], folder: Path) -> int:
    paths = search_paths()
    environment = {
        **paths,
        "PATH": os.pathsep.join([str(folder / "bin"), paths["PATH"]]),
        "HOME": str(folder),
        "GITHUB_OUTPUT": str(folder / "outputs.txt"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    for name, value in step.get("env", {}).items():
        environment[name] = re.sub(
            r"\$\{\{ (\S+) \}\}", lambda found: expressions[found[1]], str(value)
        )
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    return done.returncode
