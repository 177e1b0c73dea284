"""Files of verdicts pair with runs, and with each other."""

import sys
from pathlib import Path

import pytest
import typer

from lhkit.base.errors import RunError
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.lifehelper.shipped import scenario_paths
from tests.benchmarks.conftest import BENCHMARKS

sys.path[:0] = [str(BENCHMARKS.parent)]
import verdicts  # noqa: E402

pytestmark = [pytest.mark.anyio, pytest.mark.longer]

BASELINES = BENCHMARKS.parent / "baselines"


async def test_verdicts_of_a_run_pair_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenarios = load_scenarios(scenario_paths("dev"))[:3]
    folder, file = tmp_path / "run", tmp_path / "run.tsv"
    await replay(scenarios, gold_model, run_dir=folder, repeats=2, progress=False)
    verdicts.write(folder, file)
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) == 1 + 6
    assert f"{scenarios[0].id}#2\tpass" in lines
    file.write_text("\n".join(lines).replace("#2\tpass", "#2\tfail", 1) + "\n", encoding="utf-8")
    for same, code in ((False, 0), (True, 1)):
        with pytest.raises(typer.Exit) as ended:
            verdicts.compare(file, folder, same=same)
        assert ended.value.exit_code == code
        assert "The same verdict in 5 of 6 samples." in capsys.readouterr().out


def test_verdicts_refuse_a_line_without_verdict(tmp_path: Path) -> None:
    file = tmp_path / "x.tsv"
    for line in ("a\tmaybe", "a", "a#0\tpass"):
        file.write_text(f"# model\n{line}\n", encoding="utf-8")
        with pytest.raises(RunError, match=r"x\.tsv:2: expected SAMPLE, a tab, and a verdict\."):
            verdicts.read(file)


def test_verdicts_of_the_baselines_are_of_all_dev_scenarios() -> None:
    names = {scenario.id for scenario in load_scenarios(scenario_paths("dev"))}
    files = sorted(BASELINES.glob("*-dev*.tsv"))
    assert files
    for file in files:
        assert {record.sample_id.name for record in verdicts.read(file).records} == names, file
