"""Streams that are closed, full or cannot encode a letter, and exceptions that nothing foresees."""

import json
import os
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import typer

from lhkit import settings as settings_module
from lhkit.__main__ import main
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.finish import finish
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.settings import Settings

pytestmark = pytest.mark.slow

EVAL = "-m lhkit eval one.yaml --model gold"
SCENARIO = """
- id: one
  ac: AC-5
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns: [{user: 내 습관은?, expect: {calls: [{tool: list_habits}]}}]
"""


def shell(line: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in which `$PY` is this Python, with folders of its own."""
    own = {"LHKIT_CACHE_DIR": str(folder / "cache"), "LHKIT_DATA_DIR": str(folder / "data")}
    (folder / "one.yaml").write_text(SCENARIO, encoding="utf-8")
    return subprocess.run(
        ["/bin/bash", "-c", line],
        cwd=folder,
        capture_output=True,
        check=False,
        env={**os.environ, **own, "PY": sys.executable, "COLUMNS": "300", **variables},  # noqa: TID251 - for the child
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("variables", "command"),
    [
        pytest.param({"PYTHONIOENCODING": "ascii"}, EVAL, marks=pytest.mark.nightly),
        ({"PYTHONIOENCODING": "cp949"}, "-m lhkit report made --markdown -"),
        ({"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, EVAL),
    ],
    ids=["ascii", "cp949", "posix"],
)
async def test_commands_escape_letters_that_the_console_cannot_encode(
    variables: dict[str, str], command: str, tmp_path: Path
) -> None:
    if "report" in command:
        (tmp_path / "one.yaml").write_text(SCENARIO, encoding="utf-8")
        scenarios = load_scenarios([tmp_path / "one.yaml"])
        await replay(scenarios, gold_model, run_dir=tmp_path / "made", progress=False)
    ran = shell(f"$PY {command}", tmp_path, **variables)
    assert (ran.returncode, b"Traceback" in ran.stderr) == (0, False), ran.stderr
    assert (b"\\u2705" if "report" in command else b"\\u2013") in ran.stdout


@pytest.mark.parametrize(
    "closed",
    [
        *(pytest.param(each, marks=pytest.mark.nightly) for each in (">&-", "2>&-")),
        "<&- >&- 2>&-",
    ],
)
def test_eval_ends_with_its_own_code_where_streams_are_closed(closed: str, tmp_path: Path) -> None:
    ran = shell(f"$PY {EVAL} {closed}", tmp_path)
    assert (ran.returncode, b"Traceback" in ran.stderr) == (0, False), ran.stderr
    assert (tmp_path / "runs" / "gold-json" / "records.jsonl").is_file()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        pytest.param(
            f"$PY {EVAL} 2>&1 | true; exit ${{PIPESTATUS[0]}}", 0, marks=pytest.mark.nightly
        ),
        ("$PY -m lhkit eval --help | true; exit ${PIPESTATUS[0]}", 0),
        (
            f"$PY {EVAL.replace('gold', 'silent')} --fail-under 9 | true; exit ${{PIPESTATUS[0]}}",
            1,
        ),
    ],
    ids=["both", "help", "finding"],
)
def test_eval_keeps_its_exit_code_where_the_reader_has_left(
    line: str, code: int, tmp_path: Path
) -> None:
    ran = shell(line, tmp_path)
    assert (ran.returncode, b"Traceback" in ran.stderr) == (code, False), ran.stderr
    assert b"Broken pipe" not in ran.stderr


def test_output_that_a_full_disk_loses_is_an_infrastructure_error(tmp_path: Path) -> None:
    ran = shell("$PY -m lhkit eval --help > /dev/full", tmp_path)
    assert (ran.returncode, b"Traceback" in ran.stderr) == (3, False), ran.stderr
    assert ran.stderr.count(b"lhkit: ") == 1


def test_chat_without_standard_input_ends_with_a_sentence(tmp_path: Path) -> None:
    ran = shell("$PY -m lhkit chat --base-url http://127.0.0.1:9 <&-", tmp_path)
    assert ran.returncode == 3, ran.stderr
    assert b"nothing answers at http://127.0.0.1:9" in ran.stderr
    assert b"lhkit serve" in ran.stderr


def test_json_output_stays_json_on_a_console_that_lacks_letters(tmp_path: Path) -> None:
    ran = shell("$PY -m lhkit prompt --json --locale ko", tmp_path, PYTHONIOENCODING="latin-1")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)


class UnprintableError(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no text")


def finished(error: BaseException) -> int:
    """Return the exit code of a command that raises `error`."""

    def run(coroutine: Coroutine[Any, Any, int]) -> int:
        coroutine.close()
        raise error

    async def command() -> int:
        return 0

    with pytest.raises(typer.Exit) as left:
        finish(run, lambda settings: (settings, command()))
    return left.value.exit_code


@pytest.mark.parametrize(
    "error",
    [
        KeyError("eggs"),
        RecursionError("too deep"),
        MemoryError(),
        EOFError("nothing more"),
        SystemExit(0),
        SystemExit(1),
        ExceptionGroup("several", [ValueError("a")]),
        UnprintableError(),
        AssertionError("\ud800 [red]"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_finish_reports_an_unforeseen_exception_as_70_and_logs_its_traceback(
    error: BaseException,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(settings_module, "load_settings", lambda: Settings(cache_dir=tmp_path))
    assert finished(error) == ExitCode.UNEXPECTED == 70
    stderr_text, log = capsys.readouterr().err, tmp_path / "logs" / "lhkit.log"
    assert stderr_text.count("\n") == 1
    assert type(error).__name__ in stderr_text
    assert str(log) in stderr_text
    assert "Traceback (most recent call last)" in log.read_text(encoding="utf-8")


def test_finish_prints_the_traceback_where_there_is_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "file"
    place.write_text("", encoding="utf-8")
    monkeypatch.setattr(settings_module, "load_settings", lambda: Settings(cache_dir=place))
    assert finished(KeyError("eggs")) == ExitCode.UNEXPECTED
    stderr_text = capsys.readouterr().err
    assert "Traceback (most recent call last)" in stderr_text
    assert stderr_text.splitlines()[-1].startswith("lhkit: ")


def test_main_reports_an_exception_while_loading_as_70(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "lhkit.cli.frame.parser":
                raise ImportError("libfoo.so is missing")

    monkeypatch.delitem(sys.modules, "lhkit.cli.frame.parser", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == ExitCode.UNEXPECTED
    stderr_text = capsys.readouterr().err
    assert "Traceback (most recent call last)" in stderr_text
    assert "libfoo.so is missing" in stderr_text.splitlines()[-1]
