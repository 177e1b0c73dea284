"""Guarantees of SECURITY.md for whole commands: files, connections and output."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lhkit.base.errors import ServerFailedError, UsageError
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.eval_run import run_name
from lhkit.cli.frame.finish import _print_error
from lhkit.conversation.tool_results import MAX_RESULT_BYTES, ToolOk, encode_tool_result
from tests.rows import check_rows

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e\u2066[/red][bold]"

WATCHED = """
import json, os, sys
seen = {"wrote": [], "connected": []}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC

def watch(event, args):
    if event == "open" and isinstance(args[2], int) and args[2] & WRITES:
        if not isinstance(args[0], int):
            seen["wrote"].append(os.path.abspath(os.fsdecode(args[0])))
    elif event in {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink"}:
        folder = f"/proc/self/fd/{args[-1]}" if args[-1] >= 0 else "."  # a name in an open folder
        seen["wrote"].append(os.path.join(os.path.realpath(folder), os.fsdecode(args[0])))
    elif event in {"socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.bind"}:
        seen["connected"].append(repr(args[1:]))

sys.addaudithook(watch)
sys.argv = ["lhkit", *sys.argv[1:]]
from lhkit.__main__ import main
try:
    main()
except SystemExit as left:
    seen["code"] = left.code
print("\\nSEEN" + json.dumps(seen))
"""


def watched(tmp_path: Path, *args: str) -> tuple[dict[str, list[str]], str]:
    """Run a command in a process that records all files opened for writing and connections."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    run = subprocess.run(
        [sys.executable, "-B", "-c", WATCHED, *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        env={
            **os.environ,  # noqa: TID251 - for the child
            "TMPDIR": str(scratch),
            "LHKIT_CACHE_DIR": str(tmp_path / "cache"),
            "LHKIT_DATA_DIR": str(tmp_path / "data"),
            "LHKIT_CONFIG_DIR": str(tmp_path / "config"),
        },
    )
    out, _, seen = run.stdout.rpartition("\nSEEN")
    assert seen, run.stderr
    return json.loads(seen), out + run.stderr


def outside(paths: list[str], *folders: Path) -> list[str]:
    allowed = [os.path.realpath(folder) for folder in folders]
    return [
        path
        for path in paths
        if path != os.devnull
        and not any(os.path.realpath(path).startswith(folder) for folder in allowed)
    ]


@pytest.mark.slow
def test_an_eval_writes_under_its_run_and_cache_folders_and_calls_nobody(tmp_path: Path) -> None:
    args = ("eval", "--model", "gold", "--limit", "2", "--name", "mine")
    seen, output = watched(tmp_path, *args)
    assert (tmp_path / "runs" / "mine" / "records.jsonl").is_file(), output
    assert seen["connected"] == []
    assert any("records.jsonl" in path for path in seen["wrote"])  # the watch works
    own = (tmp_path / "runs", tmp_path / "cache")
    assert outside(seen["wrote"], *own, tmp_path / "scratch") == []
    assert list((tmp_path / "scratch").iterdir()) == []  # filelock tests hard links there


@check_rows("name", ["../../x", "/x", "", ".", "..", "a/b", "a\\b", "x" * 300, "a\nb", "\x1b[2J"])
def test_a_run_name_cannot_leave_the_folder_of_runs(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot name a folder"):
        run_name(EvalOptions(name=name, runs_dir=tmp_path))


def test_a_default_run_name_cannot_leave_the_folder_of_runs(tmp_path: Path) -> None:
    name = run_name(EvalOptions(model="../../etc/\x1b[2J\x00x", runs_dir=tmp_path))
    assert (tmp_path / name).resolve().parent == tmp_path.resolve()
    assert name.isprintable()


def test_the_message_of_an_error_cannot_steer_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _print_error(ServerFailedError(f"the server says {HOSTILE}"), 3, "en") == 3
    output = capsys.readouterr().err
    assert "\\x1b]0;owned\\x07\\x1b[2J\\u202e\\u2066[/red][bold]" in output.replace("\n", "")
    assert not set("\x1b\x07\u202e\u2066") & set(output)


def test_ten_megabytes_of_a_tool_become_one_short_envelope() -> None:
    text = encode_tool_result(ToolOk({"rows": ["가" * 1_000] * 3_400}))
    assert len(text.encode()) <= MAX_RESULT_BYTES
    assert json.loads(text)["data"]["_truncated"] is True
