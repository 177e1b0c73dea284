"""Evals over an MCP server: separate state, and a dead server is an infrastructure error."""

import shlex
import sys
from dataclasses import replace
from typing import Any

import pytest

from lhkit.base.errors import ScenarioError, SetupError
from lhkit.harness.authoring.reference import gold_model, silent_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.plan import plan_run
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.mcp.toolset import McpToolset, StateRead
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from tests.mcp.conftest import SMALL_SERVER, START_S

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(300)]

CLAIMS = {"add_entry": {"en": ["added"], "ko": ["적었"]}}


@pytest.fixture
def own() -> McpToolset:
    """Return a ledger whose file is in a folder of the session."""
    return McpToolset(
        server=shlex.join([sys.executable, str(SMALL_SERVER), "{folder}/ledger.txt"]),
        folder="/books",
        start_s=START_S,
        reads=["read_entries"],
        state={"entries": StateRead(tool="read_entries", rows="entries")},
        claims=CLAIMS,
    )


def scenario(number: int, **fields: Any) -> Scenario:
    rent = {"tool": "add_entry", "args": {"text": "rent"}}
    return Scenario.from_data(
        {
            "id": f"rent-{number}",
            "ac": "ledger",
            "locale": "en",
            "world": {"files": [{"path": "ledger.txt", "text": "bread\n"}]},
            "turns": [{"user": "Add rent.", "confirm": "accept", "expect": {"calls": [rent]}}],
            "final": {
                "entries": [{"id": 1, "text": "rent"}],
                "files": [{"path": "ledger.txt", "text": "bread\nrent\n"}],
            },
            **fields,
        }
    )


async def test_samples_have_separate_servers_and_folders(own: McpToolset) -> None:
    scenarios = [scenario(each) for each in range(3)]
    run = await replay(scenarios, gold_model, toolset=own, repeats=2, concurrency=3, progress=False)
    verdicts = [record.score.verdict for record in run.records]
    assert verdicts == [Verdict.PASS] * 6, run.records[0].score
    silent = await replay(scenarios[:1], silent_model(), toolset=own, progress=False)
    assert silent.records[0].score.verdict is Verdict.FAIL


async def test_dead_server_makes_only_its_sample_invalid(own: McpToolset) -> None:
    def model(each: Scenario, _tools: object) -> ScriptedModel:
        dying = call("die") if each.id == "rent-1" else call("add_entry", text="rent")
        return ScriptedModel([dying, say("I added it.")])

    scenarios = [scenario(each) for each in range(3)]
    run = await replay(scenarios, model, toolset=own, progress=False)
    verdicts = [record.score.verdict for record in run.records]
    assert verdicts == [Verdict.PASS, Verdict.INVALID, Verdict.PASS]
    (reason,) = run.records[1].score.reasons
    assert "the MCP server" in reason


async def test_server_version_is_in_manifest_and_hash(own: McpToolset) -> None:
    older = replace(own, server=f"{own.server} 7.0")
    plans = [plan_run([scenario(1)], gold_model, each, repeats=1) for each in (own, older, own)]
    facts = [dict(plan.manifest.locales["en"].runs_on) for plan in plans]
    assert facts[0] == {"server": "ledger", "version": "7.1"}
    assert facts[1] == {"server": "ledger", "version": "7.0"}
    hashes = [next(plan.samples()).content_hash for plan in plans]
    assert hashes[0] == hashes[2] != hashes[1]


async def test_server_that_does_not_start_fails_the_run_once() -> None:
    lost = McpToolset(server=f"{sys.executable} -c 1", start_s=START_S)
    scenarios = [scenario(each, world={}, final={}) for each in range(3)]
    with pytest.raises(SetupError, match="did not start"):
        await replay(scenarios, gold_model, toolset=lost, progress=False)


async def test_invalid_world_error_names_the_scenario(own: McpToolset) -> None:
    with pytest.raises(ScenarioError, match=r"rent-1\.world\.files"):
        await replay(
            [scenario(1, world={"files": [{"path": "../x"}]})],
            gold_model,
            toolset=own,
            progress=False,
        )
