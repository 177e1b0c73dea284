"""Commands with `--approvals FILE`: the line at the start, and what runs unasked."""

import re
from pathlib import Path

import pytest

import lhkit
from lhkit.confirm.policy import ApprovalPolicy, ToolRule
from lhkit.harness.running.measured import measured_by_locale
from lhkit.settings import Settings
from tests.cli.conftest import Run as RunCommand

pytestmark = pytest.mark.longer

TOOLS = '''
from lhkit import ToolRegistry

days = ToolRegistry()


@days.tool(destructive=True)
def log(day: str) -> dict:
    """Log a day."""
    return {"day": day}


@days.tool(destructive=True)
def drop(day: str) -> dict:
    """Delete a day."""
    return {"day": day}
'''
SCENARIO = """
- id: both
  locale: en
  turns:
    - user: log monday and delete tuesday
      confirm: [accept, reject]
      expect:
        calls:
          - {tool: log, args: {day: monday}}
          - {tool: drop, args: {day: tuesday}, result: cancelled}
"""
EVAL = ("eval", "one.yaml", "--toolset", "days.py:days", "--model", "gold", "--exit-zero")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Path:
    assert settings.locale == "en"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "days.py").write_text(TOOLS, encoding="utf-8")
    (tmp_path / "one.yaml").write_text(SCENARIO, encoding="utf-8")
    return tmp_path


def policy_of(folder: Path, **rules: str) -> ApprovalPolicy:
    """Return a policy for what the run in a folder was measured with."""
    (run,) = [each for each in (folder / "runs").iterdir() if "approvals" not in each.name]
    return ApprovalPolicy(
        risk=0.02,
        confidence=0.95,
        runs=(str(run),),
        measured=measured_by_locale(lhkit.Run.load(run).manifest),
        tools={
            name: ToolRule(rule=rule, proposed=200, wrong=0, scenarios=200, upper=0.015)
            for name, rule in rules.items()
        },
    )


def gates(run: Path) -> list[str]:
    return [
        str(call.gate) for each in lhkit.Run.load(run).records for call in each.trajectory.calls
    ]


def test_eval_says_at_the_start_what_runs_unasked_and_measures_it(
    folder: Path, run: RunCommand
) -> None:
    assert run(*EVAL)[0] == 0
    policy_of(folder, log="run", drop="ask").write(folder / "approvals.toml")
    code, output, people = run(*EVAL, "--approvals", "approvals.toml")
    assert code == 0, people
    line = "approvals.toml: these run without asking, at a risk of at most 2%: log"
    assert line in people.splitlines()
    assert "ran by the policy, without asking: 1; of them wrong" in output
    first, second = sorted((folder / "runs").iterdir(), key=lambda each: len(each.name))
    assert second.name == f"{first.name}-approvals"
    assert (gates(first), gates(second)) == (["accepted", "rejected"], ["policy", "rejected"])


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (("Log a day.", "Log a day!"), "tools (log), code of the tools"),
        (('return {"day": day}', 'return {"days": day}'), "code of the tools"),
    ],
)
def test_eval_says_which_part_is_another(
    folder: Path, run: RunCommand, change: tuple[str, str], part: str
) -> None:
    assert run(*EVAL)[0] == 0
    policy_of(folder, log="run").write(folder / "approvals.toml")
    (folder / "other.py").write_text(TOOLS.replace(*change, 1), encoding="utf-8")
    line = [word.replace("days.py", "other.py") for word in EVAL]
    code, _, people = run(*line, "--approvals", "approvals.toml")
    assert code == 0
    assert "approvals.toml does not apply, so that every write is asked." in people
    assert f"Measured with another: {part}." in people
    (second,) = (folder / "runs").glob("*-approvals")
    assert gates(second) == ["accepted", "rejected"]


def test_project_file_does_not_give_a_policy(folder: Path, run: RunCommand) -> None:
    (folder / "lhkit.toml").write_text('approvals = "approvals.toml"\n', encoding="utf-8")
    code, _, people = run(*EVAL)
    assert code == 2
    assert re.search(r"lhkit.toml: unknown key 'approvals'", people)
