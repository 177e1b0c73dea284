"""`lhkit report`: which files it writes, and what it says when it cannot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def lhkit(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lhkit", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "300", "LHKIT_LOCALE": "en"},  # noqa: TID251 - for the child
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for model in ("gold", "silent"):
        played = lhkit("eval", "--model", model, "--limit", "3", "--runs-dir", str(folder))
        assert played.returncode == 0, played.stderr
    return folder


def test_report_writes_html_into_run_folder(runs: Path) -> None:
    done = lhkit("report", str(runs / "silent-json"))
    assert done.returncode == 0, done.stderr
    page = runs / "silent-json" / "report.html"
    assert done.stdout == f"Report: {page}\n"
    html = page.read_text("utf-8")
    assert html.startswith("<!doctype html>")
    assert "lhkit eval --model silent" in html


def test_report_writes_requested_files(runs: Path, tmp_path: Path) -> None:
    files = [tmp_path / "new" / name for name in ("r.html", "r.md", "r.xml")]
    done = lhkit(
        *("report", str(runs / "gold-json"), "--baseline", str(runs / "silent-json")),
        *("--html", str(files[0]), "--markdown", str(files[1]), "--junit", str(files[2])),
    )
    assert done.returncode == 0, done.stderr
    assert "Improvements (3):" in files[0].read_text("utf-8")
    assert "Improvements (3):" in files[1].read_text("utf-8")
    assert files[2].read_text("utf-8").startswith('<?xml version="1.0" encoding="UTF-8"?>')


def test_report_markdown_to_stdout_is_only_markdown(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    done = lhkit("report", str(runs / "gold-json"), "--markdown", "-", "--html", str(page))
    assert done.stdout.startswith("## ✅ `gold-json`")
    assert "Report:" not in done.stdout
    assert f"Report: {page}" in done.stderr


@pytest.mark.parametrize("option", ["folder", "baseline"])
def test_report_refuses_folder_without_run(option: str, runs: Path, tmp_path: Path) -> None:
    good, empty = str(runs / "gold-json"), str(tmp_path / "nowhere")
    args = [empty] if option == "folder" else [good, "--baseline", empty]
    done = lhkit("report", *args)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert f"{empty} is not a run folder" in done.stderr


def test_report_reports_unwritable_path(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    place = tmp_path / "file" / "r.html"
    done = lhkit("report", str(runs / "gold-json"), "--html", str(place))
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)
    assert f"{place} cannot be written" in done.stderr
