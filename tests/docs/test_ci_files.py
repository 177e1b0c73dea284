"""docs/ci: the workflow and the action are valid, and the action's shell steps do what they say."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.children import search_paths
from tests.docs.pages import ROOT, blocks
from tests.rows import check_rows

CI = ROOT / "docs" / "ci"
ACTION = yaml.safe_load((CI / "action.yml").read_text(encoding="utf-8"))

GH = """\
#!/bin/bash
echo "$@" >> calls.txt
case "$*" in
  *--paginate*) cat known-comment.txt 2> /dev/null || true ;;
  *) if [ -e fork.txt ]; then echo 'gh: Resource not accessible (HTTP 403)' >&2; exit 1; fi ;;
esac
"""
"""A fake of GitHub's command, which records its arguments."""

FAKE_LHKIT = """\
#!{python}
import json, os, pathlib, sys
pathlib.Path("arguments.json").write_text(json.dumps(sys.argv[1:]), encoding="utf-8")
print("what was said in the end: <b>no server</b>")
sys.exit(int(os.environ.get("CODE", "0")))
"""
"""Stands for lhkit: it writes down its arguments."""


@pytest.mark.slow
@check_rows(
    ("schema", "file"),
    [("vendor.github-workflows", "lhkit.yml"), ("vendor.github-actions", "action.yml")],
)
def test_ci_file_is_valid_for_github(schema: str, file: str) -> None:
    from check_jsonschema import main

    done = CliRunner().invoke(main, ["--builtin-schema", schema, str(CI / file)])
    assert done.exit_code == 0, done.output


def test_workflow_passes_every_input_of_the_action() -> None:
    workflow = yaml.safe_load((CI / "lhkit.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["eval"]["steps"]
    (given,) = (step["with"] for step in steps if "lhkit" in step.get("uses", ""))
    assert {*given, "comment"} == set(ACTION["inputs"])


@pytest.mark.slow
def test_action_scores_reports_and_renews_one_comment(tmp_path: Path, commands: Path) -> None:
    write_project(tmp_path, commands)
    assert run_action(tmp_path, model="gold") == 0
    (tmp_path / "runs" / "candidate").rename(tmp_path / "accepted")
    (tmp_path / "known-comment.txt").write_text("77\n")
    assert run_action(tmp_path, model="silent", baseline="accepted", options="--fail-under 50") == 1
    comment = (tmp_path / "body.md").read_text(encoding="utf-8")
    assert comment.startswith("<!-- lhkit -->\n## ❌")
    assert "0/3" in comment
    assert "0.0% is below 50.0%" in comment
    assert "add-again" in comment  # a regression, by its scenario
    assert (tmp_path / "summary.md").read_text(encoding="utf-8").endswith(comment[15:])
    assert (tmp_path / "report.html").is_file()
    assert (tmp_path / "junit.xml").is_file()
    assert run_action(tmp_path, model="silent", baseline="accepted", margin="3") == 4
    comment = (tmp_path / "body.md").read_text(encoding="utf-8")
    assert comment.startswith("<!-- lhkit -->\n## ❔")
    assert "Cannot tell whether" in comment
    calls = (tmp_path / "calls.txt").read_text().splitlines()
    assert [call.split()[2] for call in calls if "--method" in call] == ["POST", "PATCH", "PATCH"]
    assert calls[-1].split()[3] == "repos/org/repo/issues/comments/77"


@pytest.mark.slow
def test_action_comments_the_reason_where_nothing_could_be_scored(
    tmp_path: Path, commands: Path
) -> None:
    write_project(tmp_path, commands)
    (tmp_path / "comment.md").write_text("## ✅ of an earlier job\n", encoding="utf-8")
    assert run_action(tmp_path, model="gold", toolset="shop.py:missing") == 2
    comment = (tmp_path / "body.md").read_text(encoding="utf-8")
    assert comment.startswith("<!-- lhkit -->\n## ❌ `candidate`\n\nExit code 2")
    assert "shop.py:missing" in comment
    assert "earlier job" not in comment


ALWAYS = ["--toolset", "shop.py:toolset", "--model", "gold", "--name", "candidate"]
FILES = ["--markdown", "comment.md", "--html", "report.html", "--junit", "junit.xml"]


@pytest.mark.longer
@check_rows(
    ("options", "words"),
    [
        ("", []),
        ("  \n\t\n", []),
        ("--limit 14 --fail-under 85", ["--limit", "14", "--fail-under", "85"]),
        ("--limit 14\n--fail-under 85\n", ["--limit", "14", "--fail-under", "85"]),
        ("--limit 14\r\n--fail-under 85\r\n", ["--limit", "14", "--fail-under", "85"]),
        ("--limit 14 \\\n  --fail-under 85 \\\n", ["--limit", "14", "--fail-under", "85"]),
        ("--limit 14 \\  \n  --fail-under 85\\", ["--limit", "14", "--fail-under", "85"]),
        ("--limit\\\r\n 14\t--seed\t3", ["--limit", "14", "--seed", "3"]),
        ("\n\n--limit 14\n\n\n--seed 3", ["--limit", "14", "--seed", "3"]),
        ("# first\n--limit 14 # the rest\n#--seed 3\n", ["--limit", "14"]),
        ("# it's \\\n--limit 14", ["--limit", "14"]),
        ("--only a#2 --only 'b#1'", ["--only", "a#2", "--only", "b#1"]),
        ("--tag 'two words' --tag \"세 단어 더\"", ["--tag", "two words", "--tag", "세 단어 더"]),
        ("--tag='two words'x", ["--tag=two wordsx"]),
        ("--tag \"it's\" --tag 'say \"hi\"'", ["--tag", "it's", "--tag", 'say "hi"']),
        ("--tag 'two\nlines'", ["--tag", "two\nlines"]),
        (r'--tag "a \"b\" c" --tag d\ e', ["--tag", 'a "b" c', "--tag", "d e"]),
        ("--only ac01-* --only 'k*'", ["--only", "ac01-*", "--only", "k*"]),
        ("--tag $HOME --tag \"$(id)\" --tag `id`",
         ["--tag", "$HOME", "--tag", "$(id)", "--tag", "`id`"]),
        ("--tag a;id --tag b|c&d>e", ["--tag", "a;id", "--tag", "b|c&d>e"]),
        ("--tag ''", ["--tag", ""]),
        ("--name 다른이름", ["--name", "다른이름"]),
    ],
)  # fmt: skip
def test_action_reads_options_as_words_of_a_shell(
    tmp_path: Path, options: str, words: list[str]
) -> None:
    write_fakes(tmp_path)
    (tmp_path / "ac01-file.txt").touch()
    assert run_action(tmp_path, model="gold", options=options) == 0
    assert arguments(tmp_path) == ["eval", "shop.yaml", *ALWAYS, *words, *FILES]


@pytest.mark.longer
@check_rows(
    ("scenarios", "paths"),
    [
        ("one.yaml two.yaml", ["one.yaml", "two.yaml"]),
        ("one.yaml\ntwo.yaml\n\n", ["one.yaml", "two.yaml"]),
        ("'my scenarios/한글.yaml'\r\n\ttwo.yaml", ["my scenarios/한글.yaml", "two.yaml"]),
        ("# all\nscenarios/*.yaml", ["scenarios/*.yaml"]),
    ],
)
def test_action_reads_scenarios_of_several_lines(
    tmp_path: Path, scenarios: str, paths: list[str]
) -> None:
    write_fakes(tmp_path)
    assert run_action(tmp_path, model="gold", scenarios=scenarios) == 0
    assert arguments(tmp_path) == ["eval", *paths, *ALWAYS, *FILES]


@pytest.mark.longer
@check_rows("name", ["options", "scenarios"])
@check_rows("text", ["--limit 14\n--tag 'open\n", 'a "b', "it's"])
def test_action_refuses_a_quote_without_an_end(tmp_path: Path, name: str, text: str) -> None:
    write_fakes(tmp_path)
    assert run_action(tmp_path, model="gold", **{name: text}) == 2
    assert not (tmp_path / "arguments.json").exists()
    comment = (tmp_path / "body.md").read_text(encoding="utf-8")
    assert f"the input {name} has a quote without an end" in comment


@pytest.mark.longer
def test_action_passes_baseline_margin_and_regressions(tmp_path: Path) -> None:
    write_fakes(tmp_path)
    inputs = {"baseline": "my runs/accepted", "max_regressions": "0", "margin": "3"}
    assert run_action(tmp_path, model="gold", **inputs) == 0
    given = ["--baseline", "my runs/accepted", "--max-regressions", "0", "--margin", "3"]
    assert arguments(tmp_path)[6:12] == given


@pytest.mark.longer
@check_rows("code", [0, 1, 2, 3, 4, 70, 130])
@check_rows("is_fork", [False, True])
def test_action_ends_with_the_exit_code_of_eval(tmp_path: Path, code: int, is_fork: bool) -> None:
    write_fakes(tmp_path, code)
    if is_fork:
        (tmp_path / "fork.txt").touch()
    assert run_action(tmp_path, model="gold") == code
    assert "--method POST" in (tmp_path / "calls.txt").read_text(encoding="utf-8")
    comment = (tmp_path / "body.md").read_text(encoding="utf-8")
    assert f"Exit code {code}" in comment
    assert "&lt;b&gt;no server&lt;/b&gt;" in comment
    output = (tmp_path / "output.txt").read_text(encoding="utf-8")
    assert ("::warning::" in output) == is_fork


def test_action_fails_where_the_eval_step_itself_broke(tmp_path: Path) -> None:
    last = ACTION["runs"]["steps"][-1]
    assert last["if"] == "always()"
    assert run_step(last, {"steps.eval.outputs.exit-code": ""}, tmp_path) == 1


@pytest.mark.nightly  # by day, tests/harness/report/test_ci_reports.py groups them
def test_action_comment_groups_repeats(tmp_path: Path, commands: Path) -> None:
    write_project(tmp_path, commands)
    assert run_action(tmp_path, model="silent", options="--repeats 3") == 0
    comment = (tmp_path / "body.md").read_text(encoding="utf-8")
    assert "## ✅" in comment  # no threshold: failed samples stop nothing
    assert "Exit code 0" in comment
    assert comment.count("<details>") == 3
    assert comment.count("3 of 3 did not pass") == 3
    assert len(comment.splitlines()) < 120


def write_fakes(folder: Path, code: int = 0) -> None:
    fake = FAKE_LHKIT.format(python=sys.executable).replace('"CODE", "0"', f'"CODE", "{code}"')
    for name, text in (("gh", GH), ("lhkit", fake)):
        file = folder / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)


def arguments(folder: Path) -> list[str]:
    recorded_arguments: list[str] = json.loads(
        (folder / "arguments.json").read_text(encoding="utf-8")
    )
    return recorded_arguments


def write_project(folder: Path, commands: Path) -> None:
    page = ROOT / "docs" / "own-tools.md"
    python = [block.text for block in blocks(page) if block.language == "python"]
    (scenarios,) = (block.text for block in blocks(page) if block.language == "yaml")
    (folder / "shop.py").write_text("\n\n".join(python), encoding="utf-8")
    (folder / "shop.yaml").write_text(scenarios, encoding="utf-8")
    gh = folder / "bin" / "gh"
    gh.parent.mkdir()
    (gh.parent / "lhkit").symlink_to(commands / "lhkit")
    gh.write_text(GH)
    gh.chmod(gh.stat().st_mode | stat.S_IXUSR)


def run_action(folder: Path, **inputs: str) -> int:
    """Run the shell steps as a runner would; return the exit code of the last one."""
    given = {
        name: inputs.get(name.replace("-", "_"), declared.get("default", ""))
        for name, declared in ACTION["inputs"].items()
    }
    given["scenarios"] = inputs.get("scenarios", "shop.yaml")
    given["toolset"] = inputs.get("toolset", "shop.py:toolset")
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
            r"\$\{\{ (\S+) \}\}", lambda match: expressions[match[1]], str(value)
        )
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    with (folder / "output.txt").open("ab") as file:
        file.write(done.stdout + done.stderr)
    return done.returncode
