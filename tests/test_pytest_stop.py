"""`--lhkit-stop-when-decided`: the rest of a session is skipped when its comparison is decided."""

import shutil
from pathlib import Path

import pytest

import lhkit
from lhkit.harness.records.store import read_manifest
from lhkit.harness.scenarios.scenario_filter import random_key
from tests.test_pytest_plugin import (
    GOLD,
    NIGHTLY,
    TOOLSET,
    TWO_WORKERS,
    RunPytest,
    outcomes,
    project,
    run_pytest,
)

pytestmark = pytest.mark.longer

pytest_plugins = ["pytester"]
__all__ = ["project", "run_pytest"]  # fixtures

LIST = """
- id: list-{n}
  locale: en
  world: {{items: [{{id: milk}}]}}
  turns:
    - user: What is on my list?
      expect: {{calls: [{{tool: list_items}}]}}
      reply: {{contains_all: [milk]}}
      gold: {{say: "Milk is on your list."}}
"""
NAMES = [f"list-{n}" for n in range(20)]
STOP = ("--lhkit-baseline=accepted", "--lhkit-stop-when-decided")
SILENT = (TOOLSET, "--lhkit-model=silent")


@pytest.fixture
def many(project: Path, run_pytest: RunPytest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with twenty scenarios, all of which the accepted run passes."""
    text = "".join(LIST.format(n=n) for n in range(20))
    (project / "shopping.scenario.yaml").write_text(text, encoding="utf-8")
    accepted, kept = project / "runs" / "accepted", tmp_path_factory.getbasetemp() / "accepted"
    if kept.exists():  # of an earlier test: the run is the same
        shutil.copytree(kept, accepted)
    else:
        assert run_pytest(*GOLD, "--lhkit-run=accepted")[0] == 0
        shutil.copytree(accepted, kept)
    return project


def in_order(seed: int) -> list[str]:
    return sorted(NAMES, key=lambda name: random_key(seed, name))


@pytest.mark.parametrize("seed", [0, 4])
def test_plugin_skips_the_rest_when_the_comparison_is_decided(
    seed: int, many: Path, run_pytest: RunPytest
) -> None:
    more = (*STOP, f"--lhkit-seed={seed}", "--lhkit-run=nightly", "-v", "-rs")
    code, output = run_pytest(*SILENT, *more)
    assert (code, outcomes(output)) == (1, {"xfailed": 7, "skipped": 13})
    run = [name for name in in_order(seed) if f"::{name} XFAIL" in output]
    assert run == in_order(seed)[:7]
    skips = [line for line in output.splitlines() if line.startswith("SKIPPED")]
    assert len(skips) == 1
    assert skips[0].startswith("SKIPPED [13] ")
    assert skips[0].endswith("decided after 7 of 20 scenarios")
    assert "Decided after 7 of 20 scenarios in random order (always-valid test)." in output
    assert "lhkit: Stopped after 7 of 20 scenarios, because the comparison with accepted" in output
    assert "The same command without --lhkit-stop-when-decided runs the rest." in output
    assert " --stop-when-decided" not in output
    manifest = read_manifest(many / "runs" / "nightly")
    assert manifest.invocations[-1].order_seed == seed
    assert manifest.selection is not None
    assert manifest.selection.stopped is not None
    assert manifest.selection.stopped.seed == seed


@pytest.mark.usefixtures("many")
def test_plugin_runs_all_where_nothing_is_decided(run_pytest: RunPytest) -> None:
    code, output = run_pytest(*GOLD, *STOP)
    assert (code, outcomes(output)) == (0, {"passed": 20})
    assert "Not decided after 20 of 20 scenarios in random order" in output
    assert "Stopped after" not in output


def test_plugin_reads_stop_when_decided_from_the_configuration(
    many: Path, run_pytest: RunPytest
) -> None:
    text = "[pytest]\nlhkit_baseline = accepted\nlhkit_stop_when_decided = true\n"
    (many / "tox.ini").write_text(text, encoding="utf-8")
    assert outcomes(run_pytest(*SILENT)[1])["skipped"] == 13


def test_stopped_session_is_a_part_and_runs_the_rest_without_the_option(
    many: Path, run_pytest: RunPytest
) -> None:
    options = (*SILENT, "--lhkit-run=nightly")
    for _ in range(2):  # the decision stands
        assert outcomes(run_pytest(*options, *STOP)[1]) == {"xfailed": 7, "skipped": 13}
        selection = read_manifest(many / "runs" / "nightly").selection
        assert selection is not None
        assert (selection.taken, selection.total) == (7, 20)
        assert selection.stopped is not None
        assert (selection.stopped.looked, selection.stopped.decision) == (7, -1)
    code, output = run_pytest(*options, STOP[0])
    assert (code, outcomes(output)) == (1, {"xfailed": 20})
    assert "Kept from the previous run: 7 of 20 samples." in output
    manifest = read_manifest(many / "runs" / "nightly")
    assert manifest.selection is None
    assert [each.order_seed for each in manifest.invocations] == [0, 0, None]


def test_whole_session_with_stop_when_decided_is_no_part(many: Path, run_pytest: RunPytest) -> None:
    assert run_pytest(*NIGHTLY, *STOP)[0] == 0
    assert read_manifest(many / "runs" / "nightly").selection is None
    assert len(lhkit.Run.load(many / "runs" / "nightly").records) == 20
    assert outcomes(run_pytest(*NIGHTLY, *STOP)[1]) == {"passed": 20}


def test_session_that_may_stop_replaces_no_whole_run(many: Path, run_pytest: RunPytest) -> None:
    assert run_pytest(*NIGHTLY)[0] == 0
    file = many / "shopping.scenario.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("my list?", "it?"), encoding="utf-8")
    code, output = run_pytest(*NIGHTLY, *STOP)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "has a run of all 20 scenarios" in output
    assert "finish it without --lhkit-stop-when-decided" in output


def test_plugin_leaves_other_tests_in_their_places(many: Path, run_pytest: RunPytest) -> None:
    (many / "test_a.py").write_text("def test_a():\n    pass\n", encoding="utf-8")
    (many / "test_z.py").write_text("def test_z():\n    pass\n", encoding="utf-8")
    files = ("test_z.py", "shopping.scenario.yaml", "test_a.py")
    code, output = run_pytest(*SILENT, *STOP, "-v", *files)
    assert (code, outcomes(output)) == (1, {"xfailed": 7, "skipped": 13, "passed": 2})
    order = [line.split()[0] for line in output.splitlines() if "::" in line and "%]" in line]
    assert (order[0], order[-1]) == ("test_z.py::test_z", "test_a.py::test_a")


@pytest.mark.usefixtures("many")
def test_repeats_of_a_scenario_are_run_together_and_count_once(run_pytest: RunPytest) -> None:
    code, output = run_pytest(*SILENT, *STOP, "--lhkit-repeats=2")
    assert (code, outcomes(output)) == (1, {"xfailed": 14, "skipped": 26})


@pytest.mark.usefixtures("many")
def test_deselected_repeats_decide_nothing(run_pytest: RunPytest) -> None:
    """A scenario is looked at when all of its samples are there."""
    first = [f"shopping.scenario.yaml::{name}" for name in NAMES]
    code, output = run_pytest(*SILENT, *STOP, "--lhkit-repeats=2", *first)
    assert (code, outcomes(output)) == (1, {"xfailed": 20})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (STOP[1:], "--lhkit-stop-when-decided is for a comparison: give --lhkit-baseline too"),
        ((*STOP, "--lhkit-max-regressions=0"), "leave one of them out"),
        ((*STOP, *TWO_WORKERS), "the workers of pytest-xdist do not know what the others found"),
    ],
)
@pytest.mark.usefixtures("many")
def test_plugin_refuses_to_stop_where_it_cannot(
    options: tuple[str, ...], message: str, run_pytest: RunPytest
) -> None:
    code, output = run_pytest(*SILENT, *options)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert message in output
    assert "Traceback" not in output


@pytest.mark.usefixtures("many")
def test_plugin_stops_with_no_workers_of_xdist(run_pytest: RunPytest) -> None:
    assert outcomes(run_pytest(*SILENT, *STOP, "-p", "xdist", "-n0")[1])["skipped"] == 13
