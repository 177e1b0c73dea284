"""`lhkit report`: the page of a large run, and all of it."""

from pathlib import Path

import pytest

from lhkit.harness.records.record import encode_record
from lhkit.harness.report import page_samples
from tests.cli.conftest import Run
from tests.harness.report.runs import full_record

pytestmark = pytest.mark.longer


def test_report_writes_a_part_of_a_large_run_and_all_of_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    monkeypatch.setattr(page_samples, "MAX_SAMPLES", 2)
    lines = [f"{encode_record(full_record(f's{n}'))}\n" for n in range(5)]
    (tmp_path / "records.jsonl").write_text("".join(lines), encoding="utf-8")
    page = tmp_path / "report.html"
    for options, count in ((), 2), (("--all",), 5):
        code, out, err = run("report", tmp_path, *options)
        assert (code, out, err) == (0, f"Report: {page}\n", "")
        html = page.read_text(encoding="utf-8")
        assert html.count('id="s-') == count
        assert ("lhkit report RUN --all" in html) is (count == 2)
