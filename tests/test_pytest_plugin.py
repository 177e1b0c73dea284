"""The pytest plugin, in projects of its users: a pytest of its own in a folder of its own."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

import lhkit.cli
from tests.children import search_paths

pytestmark = pytest.mark.slow

PROJECT = Path(lhkit.cli.__file__).parent / "init" / "project"
TOOLSET = "--lhkit-toolset=tools.py:toolset"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a user's project: a toolset and three scenarios."""
    for name in ("tools.py", "shopping.scenario.yaml"):
        shutil.copy(PROJECT / name, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run_pytest(folder: Path, *options: str) -> tuple[int, str]:
    """Run pytest as a user does; return its exit code and output."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={
            **search_paths(),
            "HOME": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def outcomes(output: str) -> dict[str, int]:
    """Return the counts of the summary line."""
    last = output.strip().splitlines()[-1]
    return {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", last) if word != "in"}


def test_plugin_passes_each_sample_of_the_reference_model(project: Path) -> None:
    code, output = run_pytest(project, TOOLSET, "--lhkit-model=gold", "--lhkit-repeats=2", "-v")
    assert code == 0, output
    assert outcomes(output)["passed"] == 6
    assert "shopping.scenario.yaml::add#2 PASSED" in output


def test_plugin_shows_why_a_sample_failed_and_what_was_said(project: Path) -> None:
    code, output = run_pytest(project, TOOLSET, "--lhkit-model=silent")
    assert code == 1
    assert outcomes(output)["failed"] == 3
    assert "add_item was expected and not called" in output
    assert "Please add bread." in output
    assert "pytest_plugin.py" not in output  # no traceback of ours


def test_plugin_skips_with_one_sentence_without_a_model(project: Path) -> None:
    code, output = run_pytest(project, TOOLSET, "-rs")
    assert code == 0, output
    assert outcomes(output)["skipped"] == 3
    assert "no model: give --lhkit-model or --lhkit-base-url" in output


def test_plugin_reports_a_failing_server_as_errors(project: Path) -> None:
    code, output = run_pytest(project, TOOLSET, "--lhkit-base-url=http://127.0.0.1:9")
    assert code == 1
    counts = outcomes(output)
    assert "failed" not in counts
    assert counts.get("errors", counts.get("error")) == 3
    assert "127.0.0.1:9" in output


def test_plugin_writes_a_run_folder_by_two_workers_and_resumes_it(project: Path) -> None:
    options = [TOOLSET, "--lhkit-model=gold", "--lhkit-run=nightly", "-n2"]
    code, output = run_pytest(project, *options)
    assert code == 0, output
    run = lhkit.Run.load(project / "runs" / "nightly")
    assert {record.judgement.verdict for record in run.records} == {"pass"}
    assert len(run.records) == 3
    before = (project / "runs" / "nightly" / "records.jsonl").read_bytes()
    assert run_pytest(project, *options)[0] == 0
    assert (project / "runs" / "nightly" / "records.jsonl").read_bytes() == before
    manifest = json.loads((project / "runs" / "nightly" / "manifest.json").read_text())
    assert [invocation["kept"] for invocation in manifest["invocations"]] == [0, 3]


def test_plugin_never_replaces_a_whole_run_by_selected_tests(project: Path) -> None:
    options = [TOOLSET, "--lhkit-model=gold", "--lhkit-run=nightly"]
    assert run_pytest(project, *options)[0] == 0
    code, output = run_pytest(project, *options, "-k", "add")
    assert code == 0, output
    assert "has a run of all 3 scenarios, which a run of 1 selected ones would replace" in output
    assert len(lhkit.Run.load(project / "runs" / "nightly").records) == 3
    options[-1] = "--lhkit-run=part"
    assert run_pytest(project, *options, "-k", "add")[0] == 0
    selection = lhkit.Run.load(project / "runs" / "part").manifest.selection
    assert selection is not None
    assert (selection.taken, selection.total, selection.filter.only) == (1, 3, ("add",))


def test_plugin_runs_wordings_and_resumes_them(project: Path) -> None:
    file = project / "shopping.scenario.yaml"
    asked = "- user: What is on my list?\n"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(asked, f"{asked}      variants: [Read me my list]\n"))
    options = [TOOLSET, "--lhkit-model=gold", "--lhkit-run=words", "--lhkit-variants", "-v"]
    code, output = run_pytest(project, *options)
    assert code == 0, output
    assert "shopping.scenario.yaml::list~2 PASSED" in output
    assert run_pytest(project, *options)[0] == 0
    run = lhkit.Run.load(project / "runs" / "words")
    assert [str(record.sample_id) for record in run.records][:2] == ["list", "list~2"]
    assert run.manifest.invocations[-1].kept == 4


def test_plugin_runs_a_marked_test_for_each_sample_beside_a_conftest(project: Path) -> None:
    (project / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef limit():\n    return 2\n"
    )
    (project / "test_shop.py").write_text(
        "import pytest\n"
        "from lhkit.pytest_plugin import assert_passed\n\n"
        '@pytest.mark.lhkit("shopping.scenario.yaml", toolset="tools.py:toolset")\n'
        "def test_shop(scenario, lhkit_record, limit):\n"
        "    assert_passed(lhkit_record)\n"
        "    assert len(scenario.turns) < limit\n\n"
        "def test_other():\n    pass\n"
    )
    code, output = run_pytest(project, "--lhkit-model=gold", "-v")
    assert code == 0, output
    assert outcomes(output)["passed"] == 4
    assert "test_shop[list] PASSED" in output


def test_plugin_names_file_and_line_of_a_broken_scenario(project: Path) -> None:
    (project / "bad.scenario.yaml").write_text("- id: a\n  ac: b\n  colour: red\n")
    code, output = run_pytest(project, TOOLSET, "--lhkit-model=gold")
    assert code == 2
    assert "bad.scenario.yaml:3" in output
    assert "colour" in output


def test_plugin_collects_nothing_without_a_toolset(project: Path) -> None:
    code, output = run_pytest(project, "--lhkit-model=gold")
    assert code == 5, output


def test_plugin_costs_a_test_suite_without_scenarios_no_import(project: Path) -> None:
    (project / "test_plain.py").write_text(
        "import sys\n\ndef test_plain():\n"
        "    assert not {'lhkit.harness', 'pandas', 'scipy'} & set(sys.modules)\n"
    )
    code, output = run_pytest(project)
    assert code == 0, output


def test_plugin_refuses_a_run_name_that_leaves_the_folder(project: Path) -> None:
    code, output = run_pytest(project, TOOLSET, "--lhkit-model=gold", "--lhkit-run=../outside")
    assert code == 4
    assert "cannot name a folder" in output
    assert not (project / "runs").exists()


def test_plugin_refuses_one_run_of_two_toolsets(project: Path) -> None:
    shutil.copy(project / "tools.py", project / "others.py")
    (project / "test_shop.py").write_text(
        "import pytest\n\n"
        '@pytest.mark.lhkit("shopping.scenario.yaml", toolset="others.py:toolset")\n'
        "def test_shop(lhkit_record):\n    pass\n"
    )
    options = (TOOLSET, "--lhkit-model=gold")
    assert run_pytest(project, *options)[0] == 0
    code, output = run_pytest(project, *options, "--lhkit-run=both")
    assert code == 4
    assert "Run them separately" in output


SAME_IDS = "a/x.scenario.yaml and {}/b/y.scenario.yaml both have a scenario 'list'"


@pytest.mark.parametrize("more", [[], ["-n2"]], ids=["alone", "xdist"])
def test_plugin_refuses_one_run_of_two_files_with_the_same_ids(
    project: Path, more: list[str]
) -> None:
    for name in ("a/x", "b/y"):
        (project / name).parent.mkdir()
        shutil.copy(project / "shopping.scenario.yaml", project / f"{name}.scenario.yaml")
    (project / "shopping.scenario.yaml").unlink()
    options = (TOOLSET, "--lhkit-model=gold", *more)
    if not more:
        assert run_pytest(project, *options)[0] == 0  # no folder in which they would be confused
    code, output = run_pytest(project, *options, "--lhkit-run=both")
    assert code == 4, output
    assert SAME_IDS.format(project) in output
    assert "INTERNALERROR" not in output
    assert not (project / "runs").exists()


def test_plugin_runs_again_when_the_tools_code_changed_and_counts_what_it_keeps(
    project: Path,
) -> None:
    options = (TOOLSET, "--lhkit-model=gold", "--lhkit-run=nightly")
    tools, kept = project / "tools.py", "lhkit: Kept from the previous run: 3 of 3 samples."
    code, output = run_pytest(project, *options)
    assert (code, "Kept" in output) == (0, False)
    code, output = run_pytest(project, *options)
    assert (code, kept in output) == (0, True)
    code, output = run_pytest(project, *options, "-n2")
    assert (code, kept in output) == (0, True)
    text = tools.read_text(encoding="utf-8")
    tools.write_text(text.replace("deps.append(name)", 'deps.append("poison")'), encoding="utf-8")
    code, output = run_pytest(project, *options)
    assert (code, outcomes(output)) == (1, {"failed": 1, "passed": 2})
    tools.write_text(text, encoding="utf-8")
    code, output = run_pytest(project, *options)
    assert (code, kept in output) == (0, True)


def test_plugin_says_in_one_sentence_that_a_run_folder_is_in_use(project: Path) -> None:
    options = (TOOLSET, "--lhkit-model=gold", "--lhkit-run=nightly")
    assert run_pytest(project, *options)[0] == 0
    with FileLock(project / "runs" / "nightly" / "run.lock"):
        code, output = run_pytest(project, *options)
    assert code == 4
    assert "is in use by another run. Wait for its end, or give another name." in output
    assert "Traceback" not in output


def test_plugin_says_in_one_sentence_that_a_run_folder_cannot_be_written(project: Path) -> None:
    (project / "runs").write_text("not a folder")
    code, output = run_pytest(project, TOOLSET, "--lhkit-model=gold", "--lhkit-run=nightly")
    assert code == 4
    assert outcomes(output) == {"passed": 3}
    assert "cannot be written" in output
    assert "Traceback" not in output


def test_plugin_says_in_one_line_for_each_test_that_a_server_is_dead(project: Path) -> None:
    (project / "test_shop.py").write_text(
        "import pytest\n\n"
        '@pytest.mark.lhkit("shopping.scenario.yaml", toolset="tools.py:toolset")\n'
        "def test_shop(lhkit_record):\n    pass\n"
    )
    code, output = run_pytest(project, TOOLSET, "--lhkit-base-url=http://127.0.0.1:9")
    assert (code, outcomes(output)) == (1, {"errors": 6})
    sentence = "nothing answers at http://127.0.0.1:9: start a server"
    assert output.count(f"\n{sentence}") == 6
    assert output.count(" - nothing answers at http") == 6  # the lines of the summary
    assert "Traceback" not in output
    assert "aiohttp" not in output
    assert len(output.splitlines()) < 40
