"""The 20 scenarios over the reference file server pass lint."""

import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios, read_sources
from lhkit.mcp.toolset import McpToolset
from lhkit.toolset import load
from tests.node_servers import VERSION, server

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

FOLDER = Path(__file__).parents[2] / "evals" / "mcp_files"


@pytest.fixture
def files() -> McpToolset:
    """Return the declaration, with the server that the tests have installed."""
    declared = load(f"mcp:{FOLDER / 'files.toml'}")
    assert isinstance(declared, McpToolset)
    assert declared.server == (
        f"npx -y @modelcontextprotocol/server-filesystem@{VERSION} {{folder}}"
    )
    return replace(declared, server=shlex.join([server("filesystem"), "{folder}"]))


def test_files_suite_has_ten_scenarios_per_locale() -> None:
    scenarios = load_scenarios([FOLDER / "scenarios"])
    assert Counter(each.locale for each in scenarios) == {"ko": 10, "en": 10}


@pytest.mark.nightly
async def test_files_suite_passes_lint(files: McpToolset) -> None:
    sources = read_sources([FOLDER / "scenarios"])
    findings = await lint(sources, files)  # it runs the reference and the baselines
    assert [str(each) for each in findings] == []
    wrong = {"gone": {}, "final": {"files": ({"path": "no.txt"},)}}
    lost = sources.scenarios[0].model_copy(update=wrong)
    run = await replay([lost], gold_model, toolset=files, progress=False)
    assert run.records[0].score.verdict is Verdict.FAIL
