"""Reading a foreign run folder runs no code."""

import json
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lhkit.base.errors import UsageError
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.manifest import Provenance
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.notebook.boards.review import Review

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture
async def run_folder(tmp_path: Path) -> Path:
    """Return a run folder with one conversation and its states."""
    scenario = load_scenarios(scenario_paths("all"))[0]
    folder = tmp_path / "runs/theirs"
    began = Provenance(started_at=datetime(2026, 6, 15, 9, tzinfo=UTC))
    await replay([scenario], gold_model, run_dir=folder, keep_states=True, provenance=began)
    return folder


def with_manifest(folder: Path, **fields: object) -> Path:
    """Change fields of a run folder's manifest, and return the folder."""
    file = folder / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
    return folder


async def review_all(folder: Path, toolset: str) -> Review:
    review = Review(with_manifest(folder, toolset=toolset), locale="en")
    while review.state.done < len(review.state.records):
        review.judge("fine" if review.state.call is None else "right")
    return review


@pytest.mark.parametrize("kind", ["mcp", "mcp file", "file", "module", "label", "weird"])
async def test_review_loads_no_toolset_that_a_run_folder_names(
    run_folder: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    canary = tmp_path / "ran"
    code = f"open({str(canary)!r}, 'w')\n"
    (run_folder / "evil.py").write_text(code)
    (tmp_path / "evil_module.py").write_text(code)
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    (run_folder / "mcp.toml").write_text(f"command = {json.dumps(shlex.split(command))}\n")
    reference = {
        "mcp": f"mcp:{command}",
        "mcp file": f"mcp:{run_folder / 'mcp.toml'}",
        "file": f"{run_folder / 'evil.py'}:toolset",
        "module": "evil_module:toolset",
        "label": "pantry",
        "weird": "\x1b[2J life-helper",
    }[kind]
    review = await review_all(run_folder, reference)
    with pytest.raises(UsageError, match=r"toolset=") as refused:
        await review.to_scenarios(tmp_path / "out")
    assert not canary.exists()
    assert "\x1b" not in str(refused.value)
    assert not (tmp_path / "out").exists()


async def test_review_replays_a_life_helper_run_without_a_toolset(
    run_folder: Path, tmp_path: Path
) -> None:
    review = await review_all(run_folder, "life-helper")
    assert await review.to_scenarios(tmp_path / "out")
