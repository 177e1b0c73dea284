"""The pytest plugin, in projects of its users: a pytest of its own in a folder of its own.

What a person reads is a page in `pytest_plugin_pages`. To accept a new text, delete the page: the
test writes it, and fails once so that it is read.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from xml.etree import ElementTree

import pytest
from filelock import FileLock

import lhkit
import lhkit.cli.eval.evaluation  # imported once, not by each pytest in this process
import lhkit.harness.figures.statistics
import lhkit.harness.scenarios.loader
from lhkit.harness.running.run_options import RunOptions
from lhkit.pytest_plugin import OPTIONS
from tests.children import search_paths

pytest_plugins = ["pytester"]

PROJECT = Path(lhkit.__file__).parent / "cli" / "init" / "project"
PACKAGE = Path(lhkit.__file__).parent
PAGES = Path(__file__).parent / "pytest_plugin_pages"
LONGEST_PAGE = 40
WITHOUT_NBVAL = "-p no:nbval"
ONLY_LHKIT = "--disable-plugin-autoload -p lhkit"  # other plugins cost each pytest time
# This process has imported lhkit.
WITHOUT_WARNING = "-W 'ignore:Module already imported so cannot be rewritten'"
TOOLSET = "--lhkit-toolset=tools.py:toolset"
GOLD = (TOOLSET, "--lhkit-model=gold")
DEAD = (TOOLSET, "--lhkit-base-url=http://127.0.0.1:9")
NIGHTLY = (*GOLD, "--lhkit-run=nightly")
TWO_WORKERS = ("-p", "xdist", "-n2")
MARKED = (
    "import pytest\n\n"
    '@pytest.mark.lhkit("shopping.scenario.yaml", toolset="{}")\n'
    "def test_shop(lhkit_record):\n    pass\n"
)

RunPytest = Callable[..., tuple[int, str]]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a user's project: a toolset and three scenarios."""
    for name in ("tools.py", "shopping.scenario.yaml"):
        shutil.copy(PROJECT / name, pytester.path)
    pytester.makeini("[pytest]")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PYTEST_ADDOPTS", f"{ONLY_LHKIT} {WITHOUT_WARNING}")
    for name in ("CI", "BUILD_NUMBER"):  # where pytest does not shorten the lines of its summary
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("LHKIT_BASE_URL", raising=False)
    return pytester.path


@pytest.fixture
def run_pytest(pytester: pytest.Pytester, project: Path) -> RunPytest:
    """Run pytest in this process, which has imported everything; return exit code and output."""

    assert project.is_dir()

    def run(*options: str) -> tuple[int, str]:
        result = pytester.runpytest_inprocess(*options)
        return int(result.ret), f"{result.stdout.str()}\n{result.stderr.str()}".strip()

    return run


def start_pytest(folder: Path, *options: str) -> "subprocess.Popen[str]":
    """Start pytest as a user does."""
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={
            **search_paths(),
            "HOME": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_ADDOPTS": WITHOUT_NBVAL,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def outcomes(output: str) -> dict[str, int]:
    """Return the counts of the summary line."""
    last = next(line for line in reversed(output.splitlines()) if re.search(r" in [\d.]+s", line))
    return {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", last) if word != "in"}


def page_of(output: str, folder: Path) -> str:
    """Return an output without what differs from one machine, version and run to the next."""
    text = output.replace(str(folder), "PROJECT").replace(str(PACKAGE), "LHKIT")
    text = re.sub(r"^(platform|plugins|cachedir|hypothesis profile).*\n", "", text, flags=re.M)
    text = re.sub(r"^([=_!-])\1+ (.*?) \1+$", r"\1\1\1 \2 \1\1\1", text, flags=re.M)
    text = re.sub(r"\d+\.\d+ ?s( \([\d:]+\))?", "TIME", text)
    text = re.sub(r'^  File "LHKIT/.*\n(    .*\n)+', "  LHKIT\n", text, flags=re.M)
    text = re.sub(r"^ +[~^]+\n", "", text, flags=re.M)  # places of an error, from Python 3.13 on
    text = re.sub(r"(\b(?:dispatcher|controller)\.py):\d+", r"\1:LINE", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


class Dying(BaseHTTPRequestHandler):
    """A model server that ends with the first conversation."""

    def do_GET(self) -> None:
        is_list = self.path == "/v1/models"
        self.send_response(200 if is_list else 404)
        self.end_headers()
        if is_list:
            self.wfile.write(b'{"object": "list", "data": [{"id": "gemma", "object": "model"}]}')

    def do_POST(self) -> None:
        self.server.shutdown()
        self.server.socket.close()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def dying_server() -> Iterator[str]:
    """Yield the address of a server that ends with the first conversation."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Dying)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def edit(file: Path, before: str, after: str) -> None:
    """Replace a text of a file, which must be there."""
    text = file.read_text(encoding="utf-8")
    assert before in text
    file.write_text(text.replace(before, after), encoding="utf-8")


BROKEN = {
    "broken_import": ("registry = ToolRegistry()", "registry = ToolRegistry()[0]"),
    "broken_open": ("return Session({", "return Sessions({"),
    "broken_handler": ("    deps[name] = quantity", "    deps.pop()"),
    "broken_state": ('return {"items": rows(', 'return {"items": [0][9] or rows('),
    "broken_close": (
        'such as a database."""',
        'such as a database."""\n        self.database.close()',
    ),
}
PAGE_OPTIONS = {
    "dead_server": (1, *DEAD),
    "dead_server_for_many": (1, *DEAD, "--lhkit-repeats=20"),
    "mistyped_toolset": (4, "--lhkit-toolset=tools.py:tolset", "--lhkit-model=gold"),
    "mistyped_file": (4, "--lhkit-toolset=tool.py:toolset", "--lhkit-model=gold"),
    "mistyped_model": (4, TOOLSET, "--lhkit-model=golden"),
    "mistyped_user": (4, *GOLD, "--lhkit-user=hastily"),
    **{name: (1 if name == "broken_handler" else 4, *GOLD) for name in BROKEN},
    "failing_scenario": (1, TOOLSET, "--lhkit-model=silent", "-k", "add"),
    "repeats": (0, *GOLD, "--lhkit-repeats=2", "-v"),
    "all_skipped": (0, TOOLSET, "-rs"),
}


@pytest.mark.longer
@pytest.mark.parametrize("name", PAGE_OPTIONS)
def test_plugin_page(name: str, project: Path, run_pytest: RunPytest) -> None:
    code, *options = PAGE_OPTIONS[name]
    if name in BROKEN:
        edit(project / "tools.py", *BROKEN[name])
    ended, output = run_pytest(*options)
    assert ended == code
    check_page(name, page_of(output, project))


@pytest.mark.longer
def test_plugin_names_a_missing_extra_once_as_invalid_use(
    project: Path, run_pytest: RunPytest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LHKIT_RUNTIME", "llama.cpp")
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(project / "cache"))
    monkeypatch.setattr("lhkit.models.serving.llama_cpp_server.find_spec", lambda _name: None)
    code, output = run_pytest(TOOLSET, "--lhkit-model=gemma")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert output.count("is not installed. Install it with `pip install 'lhkit[local]'`") == 1


def check_page(name: str, page: str) -> None:
    """Compare an output with its page; a page that does not exist is written."""
    file = PAGES / f"{name}.txt"
    if not file.exists():
        file.write_text(page, encoding="utf-8")
        pytest.fail(f"{file} is new: read it")
    assert page == file.read_text(encoding="utf-8")
    assert len(page.splitlines()) <= LONGEST_PAGE - 4  # lines that `page_of` leaves out


def test_plugin_names_a_key_with_an_invalid_number(project: Path, run_pytest: RunPytest) -> None:
    (project / "tox.ini").write_text("[pytest]\nlhkit_repeats = two\n", encoding="utf-8")
    code, output = run_pytest(*GOLD)
    assert code == int(pytest.ExitCode.USAGE_ERROR)
    assert "lhkit_repeats is invalid: " in output


@pytest.mark.slow  # waits between two attempts
def test_plugin_page_of_a_server_that_dies(
    dying_server: str, project: Path, run_pytest: RunPytest
) -> None:
    options = (TOOLSET, f"--lhkit-base-url={dying_server}", "--lhkit-max-attempts=2")
    code, output = run_pytest(*options, "--lhkit-run=nightly", "--lhkit-dialect=json")
    assert code == 1
    records = lhkit.Run.load(project / "runs" / "nightly").records
    assert [record.attempts for record in records] == [2, 0, 0]  # then it is given up
    check_page("dying_server", page_of(output.replace(dying_server, "http://SERVER"), project))


def test_plugin_declares_each_option_of_a_run() -> None:
    # xdist's workers; the texts of a suite are not options of eval either
    left_out = {"concurrency", "instructions", "tool_descriptions"}
    assert {option.field for option in OPTIONS} == RunOptions.model_fields.keys() - left_out


@pytest.mark.longer
def test_plugin_passes_each_sample_of_the_reference_model(run_pytest: RunPytest) -> None:
    code, output = run_pytest(*GOLD, "--lhkit-repeats=2")
    assert (code, outcomes(output)) == (0, {"passed": 6})


def test_plugin_collects_nothing_without_a_toolset(run_pytest: RunPytest) -> None:
    assert run_pytest("--lhkit-model=gold")[0] == pytest.ExitCode.NO_TESTS_COLLECTED


def test_plugin_loads_no_toolset_to_collect_only(run_pytest: RunPytest) -> None:
    code, output = run_pytest(
        "--lhkit-toolset=missing.py:toolset", "--collect-only", "-q", *DEAD[1:]
    )
    assert code == 0, output
    assert "shopping.scenario.yaml::add" in output


CONFIGURATIONS = {
    "pytest.ini": "[pytest]\nlhkit_toolset = tools.py:toolset\nlhkit_model = silent\n"
    "lhkit_repeats = 2\nlhkit_only = list add\nlhkit_keep_states = true\nlhkit_run = nightly\n",
    "pyproject.toml": "[tool.pytest.ini_options]\nlhkit_toolset = 'tools.py:toolset'\n"
    "lhkit_model = 'silent'\nlhkit_repeats = 2\nlhkit_only = ['list', 'add']\n"
    "lhkit_keep_states = true\nlhkit_run = 'nightly'\n",
}


@pytest.mark.longer
@pytest.mark.parametrize("file", CONFIGURATIONS)
def test_plugin_reads_options_from_the_configuration(
    file: str, project: Path, run_pytest: RunPytest, pytester: pytest.Pytester
) -> None:
    (project / "tox.ini").unlink()
    (project / file).write_text(CONFIGURATIONS[file])
    folder = pytester.mkdir("elsewhere")
    os.chdir(folder)  # the toolset is named beside the configuration
    code, output = run_pytest("..")
    assert (code, outcomes(output)) == (1, {"failed": 4, "deselected": 2})
    code, output = run_pytest("..", "--lhkit-model=gold", "--lhkit-repeats=1")
    assert (code, outcomes(output)) == (0, {"passed": 2, "deselected": 1})
    run = lhkit.Run.load(project / "runs" / "nightly")
    assert [str(record.sample_id) for record in run.records] == ["list", "add"]
    assert run.records[0].trajectory.initial_state


@pytest.mark.longer
def test_plugin_applies_the_options_of_eval(project: Path, run_pytest: RunPytest) -> None:
    more = ("--lhkit-user=careful", "--lhkit-stress=shuffle,seed=3", "--lhkit-max-tokens=77")
    code, output = run_pytest(*NIGHTLY, *more, "--lhkit-limit=2")
    assert (code, outcomes(output)) == (0, {"passed": 2, "deselected": 1})
    run = lhkit.Run.load(project / "runs" / "nightly")
    assert run.manifest.user == "careful"
    assert "shuffle" in str(run.manifest.models[0]["stress"])
    assert run.manifest.sampling[0]["max_tokens"] == 77
    assert run.manifest.command[0] == "pytest"


@pytest.mark.longer
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--lhkit-repeats=0", "repeats=0: give at least 1"),
        ("--lhkit-constrain=always", "Invalid constraint 'always': choose one of"),
        ("--lhkit-stress=harder", "--stress is invalid: unknown part 'harder'"),
        ("--lhkit-tag=smoke", "--tag smoke fits no scenario's tag"),
        ("--lhkit-run=../outside", "--lhkit-run '../outside' cannot name a folder"),
        ("--lhkit-failed=yesterday", "yesterday is not a run folder"),
        ("--lhkit-approvals=none.toml", "The policy "),
        ("--lhkit-approvals=pytest.ini", "The policy "),
        ("--lhkit-runtime=vllm", ""),
    ],
)
def test_plugin_refuses_an_invalid_option_in_one_message(
    option: str, message: str, project: Path, run_pytest: RunPytest
) -> None:
    code, output = run_pytest(*GOLD, option)
    if not message:
        assert code == 0
        return
    assert code == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: {message}" in output
    assert "Traceback" not in output
    assert not (project / "runs").exists()


@pytest.mark.longer
def test_plugin_counts_every_error_of_a_dead_server_for_lf_and_junit(
    project: Path, run_pytest: RunPytest
) -> None:
    assert run_pytest(*DEAD, "--lhkit-repeats=5", "--junitxml=junit.xml")[0] == 1
    suite = ElementTree.parse(project / "junit.xml").getroot()[0]  # noqa: S314 - our own
    assert (suite.get("tests"), suite.get("errors")) == ("15", "15")
    code, output = run_pytest(*GOLD, "--lhkit-repeats=5", "--lf")
    assert (code, outcomes(output)) == (0, {"passed": 15})


@pytest.mark.longer
def test_plugin_runs_only_what_failed_with_lf(project: Path, run_pytest: RunPytest) -> None:
    edit(project / "tools.py", *BROKEN["broken_handler"])
    code, output = run_pytest(*GOLD, "--junitxml=junit.xml")
    assert (code, outcomes(output)) == (1, {"failed": 1, "passed": 2})
    suite = ElementTree.parse(project / "junit.xml").getroot()[0]  # noqa: S314 - our own
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "expected the result ok, got handler_error" in str(failure.text)
    edit(project / "tools.py", *reversed(BROKEN["broken_handler"]))
    code, output = run_pytest(*GOLD, "--lf", "-v")
    assert (code, outcomes(output)) == (0, {"passed": 1})
    assert "shopping.scenario.yaml::add PASSED" in output


ACCEPTED = ("--lhkit-baseline=accepted",)
REGRESSIONS = "lhkit: Regressions: "


@pytest.mark.longer
@pytest.mark.parametrize(
    ("model", "options", "code", "counts", "text"),
    [
        ("gold", (), 1, {"passed": 3}, "the paired test can only fail from 6 on"),
        ("silent", (), 1, {"xfailed": 3}, "lhkit: Cannot tell whether this session is worse than"),
        ("gold", ("0",), 0, {"passed": 3}, f"{REGRESSIONS}none of the 3 scenarios that passed"),
        ("silent", ("0",), 1, {"failed": 3}, f"{REGRESSIONS}3 scenarios passed in accepted"),
        ("silent", ("2",), 1, {"xfailed": 3}, "lhkit:   add · turn 0: add_item was expected and"),
        ("silent", ("3",), 1, {"xfailed": 3}, "--max-regressions 3 could not have failed"),
        ("silent", ("0", "-k", "add"), 1, {"failed": 1}, "and missing in this run (2): list, rej"),
        ("silent", ("1", "-k", "add"), 1, {"xfailed": 1}, "could not have failed"),
        ("silent", ("0", "--lhkit-repeats=2"), 1, {"failed": 6}, f"{REGRESSIONS}3 scenarios"),
    ],
)
def test_plugin_compares_with_a_baseline(
    model: str,
    options: tuple[str, ...],
    code: int,
    counts: dict[str, int],
    text: str,
    run_pytest: RunPytest,
) -> None:
    assert run_pytest(*GOLD, "--lhkit-run=accepted")[0] == 0
    most = (f"--lhkit-max-regressions={options[0]}", *options[1:]) if options else ()
    ended, output = run_pytest(TOOLSET, f"--lhkit-model={model}", *ACCEPTED, *most)
    assert ended == code, output
    found = outcomes(output)
    found.pop("deselected", None)
    assert found == counts
    assert text in output


@pytest.mark.longer
def test_plugin_expects_failures_of_the_baseline_also_of_kept_samples(
    project: Path, run_pytest: RunPytest
) -> None:
    edit(project / "tools.py", *BROKEN["broken_handler"])
    assert run_pytest(*GOLD, "--lhkit-run=accepted")[0] == 1
    options = (*NIGHTLY, *ACCEPTED, "--lhkit-max-regressions=0")
    for _ in range(2):  # the second time the records are those of the run folder
        code, output = run_pytest(*options)
        assert (code, outcomes(output)) == (0, {"passed": 2, "xfailed": 1})
        assert "Regressions: none of the 2 scenarios that passed in accepted" in output
    assert "Kept from the previous run: 3 of 3 samples." in output


@pytest.mark.longer
def test_plugin_reads_0_regressions_from_the_configuration(
    project: Path, run_pytest: RunPytest
) -> None:
    assert run_pytest(*GOLD, "--lhkit-run=accepted")[0] == 0
    text = "[pytest]\nlhkit_baseline = accepted\nlhkit_max_regressions = 0\n"
    (project / "tox.ini").write_text(text, encoding="utf-8")
    code, output = run_pytest(*GOLD)
    assert (code, "Regressions: none of the 3" in output) == (0, True)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--lhkit-max-regressions=0",), "is for a comparison: give --lhkit-baseline too"),
        (("--lhkit-baseline=nowhere",), "nowhere is not a run folder"),
        ((*ACCEPTED, "--lhkit-failed=accepted"), "so nothing can be concluded"),
        ((*ACCEPTED, "--lhkit-max-regressions=-1"), "give at least 0"),
    ],
)
def test_plugin_refuses_a_baseline_that_decides_nothing(
    options: tuple[str, ...], message: str, run_pytest: RunPytest
) -> None:
    assert run_pytest(*GOLD, "--lhkit-run=accepted")[0] == 0
    code, output = run_pytest(*GOLD, *options)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert message in output
    assert "Traceback" not in output


SELF_KILL = """
    def open(self, world, locale):
        import os, pathlib
        records = pathlib.Path("runs/nightly/records.jsonl")
        if pathlib.Path("armed").exists() and records.exists():
            if len(records.read_bytes().splitlines()) >= 30:
                in_worker = "PYTEST_XDIST_WORKER" in os.environ
                os.kill(os.getppid() if in_worker else os.getpid(), 9)
        return Session({row["id"]: row.get("quantity", 1) for row in world.get("items", [])})

    def unused("""


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [(), pytest.param(TWO_WORKERS, marks=pytest.mark.nightly)], ids=["alone", "xdist"]
)
def test_plugin_keeps_the_records_of_a_killed_run_and_continues(
    more: tuple[str, ...], project: Path, run_pytest: RunPytest
) -> None:
    edit(project / "tools.py", "\n    def open(", SELF_KILL)
    (project / "armed").touch()
    options = (*NIGHTLY, "--lhkit-repeats=20", *more)
    process = start_pytest(project, *options)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, output
    folder = project / "runs" / "nightly"
    whole = (folder / "records.jsonl").read_bytes().count(b"\n")
    assert 30 <= whole < 60
    assert len(lhkit.Run.load(folder).records) == whole
    before = (folder / "records.jsonl").read_bytes()
    (project / "armed").unlink()
    code, output = run_pytest(*options)
    assert (code, outcomes(output)) == (0, {"passed": 60})
    assert f"lhkit: Kept from the previous run: {whole} of 60 samples." in output
    assert (folder / "records.jsonl").read_bytes().startswith(before)
    run = lhkit.Run.load(folder)
    assert len(run.records) == 60
    assert [(i.kept, i.completed, i.finished) for i in run.manifest.invocations] == [
        (0, 0, False),
        (whole, 60 - whole, True),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (DEAD, 1, "nothing answers at http://127.0.0.1:9: start a server"),
        pytest.param(
            ("--lhkit-toolset=tools.py:tolset", "--lhkit-model=gold"),
            4,
            "has no 'tolset'",
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["dead_server", "mistyped_toolset"],
)
def test_plugin_is_as_short_with_xdist(
    options: tuple[str, ...], code: int, sentence: str, run_pytest: RunPytest
) -> None:
    ended, output = run_pytest(*options, *TWO_WORKERS)
    assert (ended, sentence in output) == (code, True)
    assert "Traceback" not in output
    assert "INTERNALERROR" not in output
    assert len(output.splitlines()) <= LONGEST_PAGE


@pytest.mark.longer
def test_plugin_never_replaces_a_whole_run_by_selected_tests(
    project: Path, run_pytest: RunPytest
) -> None:
    assert run_pytest(*NIGHTLY)[0] == 0
    code, output = run_pytest(*NIGHTLY, "-k", "add")
    assert code == 0, output
    assert "has a run of all 3 scenarios, which a run of 1 selected ones would replace" in output
    assert len(lhkit.Run.load(project / "runs" / "nightly").records) == 3
    for name, part in (("k", ("-k", "add")), ("only", ("--lhkit-only=add",))):
        assert run_pytest(*GOLD, f"--lhkit-run={name}", *part)[0] == 0
        selection = lhkit.Run.load(project / "runs" / name).manifest.selection
        assert selection is not None
        assert (selection.taken, selection.total, selection.filter.only) == (1, 3, ("add",))


@pytest.mark.longer
def test_plugin_completes_a_run_after_one_repeat_was_selected(
    project: Path, run_pytest: RunPytest
) -> None:
    options = (*GOLD, "--lhkit-run=part", "--lhkit-repeats=2")
    assert outcomes(run_pytest(*options, "shopping.scenario.yaml::add#2")[1]) == {"passed": 1}
    invocation = lhkit.Run.load(project / "runs" / "part").manifest.invocations[-1]
    assert (invocation.completed, invocation.finished) == (1, False)
    code, output = run_pytest(*options)
    assert (code, "Kept from the previous run: 1 of 6 samples." in output) == (0, True)


@pytest.mark.longer
def test_plugin_runs_wordings_and_resumes_them(project: Path, run_pytest: RunPytest) -> None:
    asked = "- user: What is on my list?\n"
    variants = f"{asked}      variants: [Read me my list]\n"
    edit(project / "shopping.scenario.yaml", asked, variants)
    options = (*GOLD, "--lhkit-run=words", "--lhkit-variants", "-v")
    code, output = run_pytest(*options)
    assert code == 0, output
    assert "shopping.scenario.yaml::list~2 PASSED" in output
    assert run_pytest(*options)[0] == 0
    run = lhkit.Run.load(project / "runs" / "words")
    assert [str(record.sample_id) for record in run.records][:2] == ["list", "list~2"]
    assert run.manifest.invocations[-1].kept == 4


@pytest.mark.longer
def test_plugin_runs_a_marked_test_for_each_sample_beside_a_conftest(
    project: Path, run_pytest: RunPytest
) -> None:
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
    code, output = run_pytest("--lhkit-model=gold", "-v")
    assert (code, outcomes(output)) == (0, {"passed": 4})
    assert "test_shop[list] PASSED" in output
    code, output = run_pytest("--lhkit-model=silent")
    assert (code, outcomes(output)) == (1, {"failed": 3, "passed": 1})
    assert "add_item was expected and not called" in output
    assert "score, occurred" not in output  # no source of ours
    assert outcomes(run_pytest()[1]) == {"skipped": 3, "passed": 1}


@pytest.mark.longer
def test_plugin_names_file_and_line_of_a_broken_scenario(
    project: Path, run_pytest: RunPytest
) -> None:
    (project / "bad.scenario.yaml").write_text("- id: a\n  ac: b\n  colour: red\n")
    (project / "test_bad.py").write_text(MARKED.format("x").replace("shopping", "bad"))
    code, output = run_pytest(*GOLD)
    assert code == 2
    assert output.count("bad.scenario.yaml:3: a.colour") == 2
    assert "Traceback" not in output
    assert "load_scenarios" not in output


@pytest.mark.slow
def test_plugin_costs_a_test_suite_without_scenarios_no_import(project: Path) -> None:
    (project / "test_plain.py").write_text(
        "import sys\n\ndef test_plain():\n"
        "    assert not {'lhkit.harness', 'pandas', 'scipy', 'pydantic'} & set(sys.modules)\n"
    )
    process = start_pytest(project)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output


@pytest.mark.longer
def test_plugin_refuses_one_run_of_two_toolsets(project: Path, run_pytest: RunPytest) -> None:
    shutil.copy(project / "tools.py", project / "others.py")
    (project / "test_shop.py").write_text(MARKED.format("others.py:toolset"))
    assert run_pytest(*GOLD)[0] == 0
    code, output = run_pytest(*GOLD, "--lhkit-run=both")
    assert code == 4
    assert "Run them separately" in output


@pytest.mark.longer
def test_plugin_takes_one_file_named_in_two_ways_as_one(
    project: Path, run_pytest: RunPytest
) -> None:
    (project / "inner").mkdir()
    text = MARKED.format("tools.py:toolset").replace('"shopping', '"../inner/../shopping')
    (project / "inner" / "test_shop.py").write_text(text)
    code, output = run_pytest(*NIGHTLY)
    assert (code, outcomes(output)) == (0, {"passed": 6})
    assert len(lhkit.Run.load(project / "runs" / "nightly").records) == 3


SAME_IDS = "a/x.scenario.yaml and {}/b/y.scenario.yaml both have a scenario 'list'"


@pytest.mark.longer
@pytest.mark.parametrize(
    "more",
    [(), pytest.param(TWO_WORKERS, marks=[pytest.mark.slow, pytest.mark.nightly])],
    ids=["alone", "xdist"],
)
def test_plugin_refuses_one_run_of_two_files_with_the_same_ids(
    more: tuple[str, ...], project: Path, run_pytest: RunPytest
) -> None:
    for name in ("a/x", "b/y"):
        (project / name).parent.mkdir()
        shutil.copy(project / "shopping.scenario.yaml", project / f"{name}.scenario.yaml")
    (project / "shopping.scenario.yaml").unlink()
    if not more:
        code, output = run_pytest(*GOLD)  # no folder in which they would be confused
        assert (code, outcomes(output)) == (0, {"passed": 6})
    code, output = run_pytest(*GOLD, *more, "--lhkit-run=both")
    assert code == 4, output
    assert SAME_IDS.format(project) in output
    assert "INTERNALERROR" not in output
    assert not (project / "runs").exists()


@pytest.mark.longer
def test_plugin_runs_again_when_the_tools_code_changed_and_counts_what_it_keeps(
    project: Path, run_pytest: RunPytest
) -> None:
    tools, reused = project / "tools.py", "lhkit: Kept from the previous run: 3 of 3 samples."
    code, output = run_pytest(*NIGHTLY)
    assert (code, "Kept" in output) == (0, False)
    code, output = run_pytest(*NIGHTLY)
    assert (code, reused in output) == (0, True)
    edit(tools, "deps[name] = quantity", 'deps["poison"] = quantity')
    code, output = run_pytest(*NIGHTLY)
    assert (code, outcomes(output)) == (1, {"failed": 1, "passed": 2})
    edit(tools, 'deps["poison"] = quantity', "deps[name] = quantity")
    code, output = run_pytest(*NIGHTLY)
    assert (code, reused in output) == (0, True)


@pytest.mark.longer
def test_plugin_says_in_one_sentence_that_a_run_folder_is_in_use(
    project: Path, run_pytest: RunPytest
) -> None:
    assert run_pytest(*NIGHTLY)[0] == 0
    with FileLock(project / "runs" / "nightly" / "run.lock"):
        code, output = run_pytest(*NIGHTLY)
    assert code == 4
    assert "is in use by another run. Wait for its end, or give another name." in output
    assert "Traceback" not in output


@pytest.mark.longer
def test_plugin_holds_the_run_folder_while_it_writes(project: Path, run_pytest: RunPytest) -> None:
    (project / "test_shop.py").write_text(
        "import pytest\nfrom filelock import FileLock, Timeout\n\n"
        "def test_lock(request):\n"
        "    with pytest.raises(Timeout):\n"
        "        FileLock('runs/nightly/run.lock').acquire(timeout=0)\n"
    )
    code, output = run_pytest(*NIGHTLY)
    assert (code, outcomes(output)) == (0, {"passed": 4}), output


def test_plugin_says_in_one_sentence_that_a_run_folder_cannot_be_written(
    project: Path, run_pytest: RunPytest
) -> None:
    (project / "runs").write_text("not a folder")
    code, output = run_pytest(*NIGHTLY)
    assert (code, outcomes(output)) == (4, {"passed": 3})
    assert output.count("cannot be written") == 1
    assert "Traceback" not in output


@pytest.mark.longer
def test_plugin_says_in_one_line_for_each_test_that_a_server_is_dead(
    project: Path, run_pytest: RunPytest
) -> None:
    (project / "test_shop.py").write_text(MARKED.format("tools.py:toolset"))
    code, output = run_pytest(*DEAD)
    assert (code, outcomes(output)) == (1, {"errors": 6})
    sentence = "nothing answers at http://127.0.0.1:9: start a server"
    assert output.count(f"\n{sentence}") == 6
    assert output.count(" - nothing answers at http") == 6  # the lines of the summary
    assert len(output.splitlines()) <= LONGEST_PAGE


@pytest.mark.longer
def test_plugin_takes_the_project_file_where_no_option_is_given(
    project: Path, run_pytest: RunPytest
) -> None:
    (project / "lhkit.toml").write_text('toolset = "tools.py:toolset"\nmodel = "gold"')
    code, output = run_pytest()
    assert code == 0
    assert "lhkit.toml: toolset tools.py:toolset, model gold" in output
    assert outcomes(output) == {"passed": 3}
    code, output = run_pytest("--lhkit-model=silent")
    assert (code, outcomes(output)) == (1, {"failed": 3})
    (project / "lhkit.toml").write_text('tolset = "tools.py:toolset"')
    code, output = run_pytest()
    assert code == 4
    assert "lhkit.toml: unknown key 'tolset': did you mean toolset?" in output
    assert len(output.splitlines()) < LONGEST_PAGE


@pytest.mark.longer
def test_plugin_runs_the_project_of_init(pytester: pytest.Pytester, run_pytest: RunPytest) -> None:
    for name in ("lhkit.toml", "pytest.ini"):
        shutil.copy(PROJECT / name, pytester.path)
    (pytester.path / "tox.ini").unlink()
    code, output = run_pytest()
    assert (code, outcomes(output)) == (0, {"passed": 3})


SCORES = """
from lhkit import Sample, score

@score
def writes(sample: Sample) -> int:
    return sum(call.writes and call.run is not None for call in sample.calls)

@score(fails=True)
def not_bread(sample: Sample) -> bool | str:
    with open("calls.txt", "a") as file:
        file.write("x")
    return "bread" not in sample.user_messages[0] or "it is about bread"
"""


@pytest.mark.longer
def test_scores_are_computed_once_and_a_failed_check_fails_its_test(
    run_pytest: RunPytest, project: Path
) -> None:
    (project / "scores.py").write_text(SCORES, encoding="utf-8")
    given = ("--lhkit-score=scores.py:writes", "--lhkit-score=scores.py:not_bread")
    run = (*NIGHTLY, *given, "--junitxml=junit.xml")
    code, output = run_pytest(*run)
    first = lhkit.Run.load(project / "runs" / "nightly")
    values = {figure.name: figure.value for figure in first.summary().scores}
    failed = [record for record in first.records if not record.is_passed]
    assert (code, outcomes(output)["failed"]) == (1, len(failed))
    assert 0 < len(failed) < len(first.records)
    assert "not_bread: it is about bread" in output
    assert "lhkit: check not_bread: " in output
    assert "lhkit: score writes: " in output
    passed = len(first.records) - len(failed)
    assert values["not_bread"] == passed / len(first.records)
    properties = ElementTree.parse(project / "junit.xml").iter("property")  # noqa: S314 - our own
    assert {each.get("name") for each in properties} == {"score writes", "score not_bread"}
    assert (project / "calls.txt").read_text() == "x" * len(first.records)
    code, output = run_pytest(*run)
    assert (code, outcomes(output)["failed"]) == (1, len(failed))
    assert (project / "calls.txt").read_text() == "x" * len(first.records)


@pytest.mark.slow
def test_two_workers_write_one_run_folder_and_resume_it(
    project: Path, run_pytest: RunPytest
) -> None:
    edit(project / "tools.py", *BROKEN["broken_handler"])  # `add` fails
    assert run_pytest(*GOLD, "--lhkit-run=accepted")[0] == 1
    scores = SCORES.replace("bread", "milk")  # `rejected` fails
    (project / "scores.py").write_text(scores, encoding="utf-8")
    options = (*NIGHTLY, *ACCEPTED, "--lhkit-max-regressions=0", *TWO_WORKERS)
    folder, records = project / "runs" / "nightly", []
    for _ in range(2):
        code, output = run_pytest(*options, "--lhkit-score=scores.py:not_milk")
        assert (code, outcomes(output)) == (1, {"passed": 1, "failed": 1, "xfailed": 1})
        assert "not_milk: it is about milk" in output
        assert "lhkit: check not_milk: " in output
        assert "Regressions: none of the 2 scenarios that passed in accepted" in output
        records.append((folder / "records.jsonl").read_bytes())
    assert "Kept from the previous run: 3 of 3 samples." in output
    assert records[0] == records[1]
    assert (project / "calls.txt").read_text() == "xxx"
    run = lhkit.Run.load(folder)
    assert [record.score.verdict for record in run.records] == ["pass", "fail", "fail"]
    assert [(each.concurrency, each.kept) for each in run.manifest.invocations] == [(2, 0), (2, 3)]


def test_invalid_score_is_refused_before_the_tests(run_pytest: RunPytest) -> None:
    code, output = run_pytest(*GOLD, "--lhkit-score=missing.py:writes")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "missing.py" in output
