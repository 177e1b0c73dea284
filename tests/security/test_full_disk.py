"""A full or unwritable disk: an error message, and no loss of earlier data.

`RLIMIT_FSIZE` simulates the full disk: a write beyond it stores a part and then fails, as on a
real one.
"""

import asyncio
import json
import logging
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import typer

from lhkit.__main__ import main
from lhkit.base.errors import RunError, StoreError
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.finish import finish
from lhkit.confirm.gate import ScriptedGate
from lhkit.conversation.tool_results import ToolErr, ToolOk
from lhkit.harness.records.store import MANIFEST, RECORDS, open_journal, read_manifest, read_records
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.toolset import LIFE_HELPER
from lhkit.settings import Settings
from lhkit.tools.dispatcher import ToolDispatcher
from tests.harness.records.test_journal import record

pytestmark = pytest.mark.slow

SAMPLES = 6


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """Limit the file size within the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_journal_on_a_full_disk_loses_the_last_record_only(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append(record("a"))
    whole_bytes = (tmp_path / RECORDS).stat().st_size
    with largest_file(whole_bytes + 100), open_journal(tmp_path) as journal:
        with pytest.raises(RunError, match="cannot be written"):
            journal.append(record("b"))
        assert (tmp_path / RECORDS).stat().st_size == whole_bytes + 100
    assert read_records(tmp_path) == (record("a"),)
    with open_journal(tmp_path) as journal:
        journal.append(record("b"))
    assert read_records(tmp_path) == (record("a"), record("b"))


def test_journal_refuses_writes_after_a_partial_record(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        with largest_file(100), pytest.raises(RunError):
            journal.append(record("a"))
        with pytest.raises(RunError, match="cannot be written"):
            journal.append(record("b"))
    assert read_records(tmp_path) == ()


@pytest.mark.parametrize("name", [RECORDS, MANIFEST, "run.lock"])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_journal_refuses_a_pipe_or_folder_in_place_of_a_file(
    tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    if (make, name) == (os.mkfifo, "run.lock"):
        return  # a pipe can be locked like a file
    make(tmp_path / name)
    sentence = r"cannot be written|is not a file. Remove it"
    with pytest.raises(RunError, match=sentence), open_journal(tmp_path):
        read_manifest(tmp_path)


@pytest.fixture
def cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Yield the cache folder of a command in this process; its log is closed afterwards."""
    logger = logging.getLogger("lhkit")
    before = list(logger.handlers)
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    for handler in set(logger.handlers) - set(before):
        logger.removeHandler(handler)
        handler.close()


@pytest.mark.usefixtures("cache_folder")
def test_an_eval_on_a_full_disk_says_so_and_the_same_command_finishes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def lhkit_eval() -> int:
        line = f"lhkit eval --model gold --limit {SAMPLES} --name r --concurrency 3"
        monkeypatch.setattr(sys, "argv", line.split())
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0)

    # a .pyc that the limit cuts off would break every later process
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    monkeypatch.chdir(tmp_path)
    with largest_file(16_000):  # room for the manifest and some records
        code = lhkit_eval()
    stderr = capfd.readouterr().err
    assert code == ExitCode.INFRASTRUCTURE, stderr
    sentences = [line for line in stderr.splitlines() if line.startswith("lhkit: ")]
    assert len(sentences) == 1
    assert "runs/r cannot be written" in sentences[0]
    assert "Traceback" not in stderr
    whole = read_records(tmp_path / "runs" / "r")
    assert len(whole) < SAMPLES
    assert lhkit_eval() == 0, capfd.readouterr().err
    lines = (tmp_path / "runs" / "r" / RECORDS).read_bytes().splitlines()
    names = [json.loads(line)["sample_id"]["scenario"] for line in lines]
    assert len(names) == len(set(names)) == SAMPLES
    assert read_records(tmp_path / "runs" / "r")[: len(whole)] == whole


def exit_code(error: Exception) -> int:
    async def command() -> int:
        logging.getLogger("lhkit.some").warning("noted")
        raise error

    with asyncio.Runner() as runner, pytest.raises(typer.Exit) as left:
        finish(runner.run, lambda settings: (settings, command()))
    return left.value.exit_code


def test_finish_reports_os_errors_briefly_and_logs_the_traceback(
    cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(OSError(28, "No space left on device", "some.json")) == ExitCode.INFRASTRUCTURE
    output = capsys.readouterr().err.replace("\n", " ")
    assert output.startswith("lhkit: operating system error: ")
    assert "No space left on device: 'some.json'" in output
    assert "Traceback" not in output
    assert "Traceback" in (cache_folder / "logs" / "lhkit.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("place", ["no folder", "no room"])
def test_finish_ignores_a_log_that_cannot_be_written(
    cache_folder: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    if place == "no folder":
        cache_folder.write_text("a file")
    with largest_file(10):
        code = exit_code(RunError("the run is broken"))
    assert (code, capsys.readouterr().err) == (
        ExitCode.INFRASTRUCTURE,
        "lhkit: the run is broken\n",
    )


def test_open_kept_refuses_a_file_without_a_possible_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"chat\.sqlite3 cannot be created .* choose another file"):
        LIFE_HELPER.open_kept(tmp_path / "file" / "chat.sqlite3", now=Settings().now, locale="ko")


@pytest.mark.anyio
async def test_add_habit_on_a_full_disk_is_a_handler_error_and_writes_nothing(
    tmp_path: Path,
) -> None:
    settings = Settings()
    args = {"protocol_id": "daily-walk", "frame_level": "identity", "anchor_when": "아침"}
    args |= {"framed_text": "나는 매일 걷는 사람이다"}
    dispatcher = ToolDispatcher(life_helper.registry_of("ko"))
    session = LIFE_HELPER.open_kept(tmp_path / "chat.sqlite3", now=settings.now, locale="ko")
    with closing(session):
        deps, store = session.deps, session.store
        gate = ScriptedGate([True, True])
        with largest_file(1_000):
            refused = await dispatcher.dispatch("add_habit", args, confirm=gate, deps=deps)
        assert isinstance(refused, ToolErr)
        assert refused.code == "handler_error"
        assert store.number("SELECT count(*) FROM habit") == 0
        done = await dispatcher.dispatch("add_habit", args, confirm=gate, deps=deps)
        assert isinstance(done, ToolOk)
        assert [tuple(row) for row in store.rows("PRAGMA integrity_check")] == [("ok",)]
