"""Servers whose sessions share real data: no tool is called without approval."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lhkit.__main__ import main
from lhkit.base.errors import NotIsolatedError, UsageError
from lhkit.harness.authoring.checks import Level
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.reference import (
    always_call_model,
    gold_model,
    gold_models,
    silent_model,
)
from lhkit.harness.chats.corrections import (
    CorrectedCall,
    CorrectedConversation,
    CorrectedTurn,
    scenario_from_review,
)
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.running.sample import run_sample
from lhkit.harness.running.stress import labelled, parse_stress, stressed
from lhkit.harness.scenarios.loader import read_sources
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.mcp.toolset import McpToolset, StateRead
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.toolset import WrappedToolset, isolation_issue, load, opened, read_state
from tests.mcp.conftest import SMALL_SERVER, START_S, written

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(300)]

Ledger = Callable[..., McpToolset]

RENT = """\
- id: rent
  ac: ledger
  locale: en
  turns:
    - user: "Add rent."
      confirm: accept
      expect: {calls: [{tool: add_entry, args: {text: rent}}]}
      reply: {contains_any: [added]}
"""


@pytest.fixture
def command(file: Path) -> str:
    return shlex.join([sys.executable, str(SMALL_SERVER), str(file)])


@pytest.fixture
def scenarios(tmp_path: Path) -> Path:
    path = tmp_path / "rent.yaml"
    path.write_text(RENT, encoding="utf-8")
    return path


@pytest.fixture
def declared(tmp_path: Path, command: str) -> Callable[[str], str]:
    """Return a function that writes a TOML with more lines and returns the reference to it."""

    def made(more: str = "") -> str:
        toml = tmp_path / "ledger.toml"
        toml.write_text(f"server = {json.dumps(command)}\nstart_s = {START_S}\n{more}\n")
        return f"mcp:{toml}"

    return made


def rent(**fields: Any) -> Scenario:
    expected = {"tool": "add_entry", "args": {"text": "rent"}}
    turn = {"user": "Add rent.", "confirm": "accept", "expect": {"calls": [expected]}}
    return Scenario.from_data(
        {"id": "rent", "ac": "ledger", "locale": "en", "turns": [turn], **fields}
    )


def test_isolation_comes_from_folder_or_declaration(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(
        json.dumps(
            {
                "mcpServers": {
                    "shared": {"command": "x"},
                    "own": {"command": "x", "isolated": True},
                    "not-own": {"url": "https://x.org", "isolated": False},
                    "far": {"url": "https://x.org", "isolated": True},
                }
            }
        )
    )
    entries = {
        name: not isolation_issue(load(f"mcp:{tmp_path / 'mcp.json'}#{name}"))
        for name in ("shared", "own", "not-own", "far")
    }
    assert entries == {"shared": False, "own": True, "not-own": False, "far": True}
    assert isolation_issue(McpToolset(server="x"))
    assert isolation_issue(McpToolset(server="https://x.org"))
    assert not isolation_issue(McpToolset(server="x {folder}", folder="/x"))
    assert not isolation_issue(McpToolset(server="x", isolated=True))
    assert isolation_issue(McpToolset(server="x {folder}", folder="/x", isolated=False))
    assert isolation_issue(WrappedToolset(inner=McpToolset(server="x")))
    assert not isolation_issue(load("life-helper"))


@pytest.mark.parametrize("value", ["'yes'", "1"])
def test_isolated_must_be_a_boolean(declared: Callable[[str], str], value: str) -> None:
    with pytest.raises(UsageError, match="isolated"):
        load(declared(f"isolated = {value}"))


async def test_lint_skips_calls_on_a_shared_server(
    scenarios: Path, ledger: Ledger, file: Path
) -> None:
    (finding,) = await lint(read_sources([scenarios]), ledger())
    assert written(file) == ""
    assert (finding.code, finding.level) == ("not_isolated", Level.WARNING)
    for word in ("gold", "always_call", "silent", "final_state", "isolated = true", "{folder}"):
        assert word in finding.message


async def test_lint_checks_schemas_of_a_shared_server(
    tmp_path: Path, ledger: Ledger, file: Path
) -> None:
    path = tmp_path / "wrong.yaml"
    twice = RENT + RENT.replace("id: rent", "id: more").replace("text: rent", "txt: rent")
    path.write_text(twice.replace("tool: add_entry", "tool: ad_entry", 1), encoding="utf-8")
    codes = [each.code for each in await lint(read_sources([path]), ledger())]
    assert written(file) == ""
    assert codes.count("not_isolated") == 1
    assert {"unknown_tool", "unknown_argument"} <= set(codes)


async def test_lint_runs_on_an_isolated_server(scenarios: Path, ledger: Ledger, file: Path) -> None:
    codes = [each.code for each in await lint(read_sources([scenarios]), ledger(isolated=True))]
    assert "not_isolated" not in codes
    assert written(file) != ""


def test_commands_refuse_reference_calls_on_a_shared_server(
    scenarios: Path,
    declared: Callable[[str], str],
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    for words in (["mutate"], ["eval", "--model", "gold", "--runs-dir", str(tmp_path / "runs")]):
        given = ["lhkit", *words, str(scenarios), "--toolset", declared("")]
        monkeypatch.setattr(sys, "argv", given)
        with pytest.raises(SystemExit) as left:
            main()
        assert written(file) == ""
        said = " ".join(capfd.readouterr().err.split())
        assert (left.value.code, "isolated = true" in said) == (2, True), (words, said)


@pytest.mark.parametrize("stress", ["", "shuffle"])
async def test_baselines_are_refused_on_a_shared_server(
    ledger: Ledger, file: Path, stress: str
) -> None:
    makers: list[Any] = [gold_model, gold_models(), always_call_model(rent(), ledger())]
    for maker in makers:
        harder = parse_stress(stress)
        record = await run_sample(rent(), labelled(maker, harder), stressed(ledger(), harder))
        assert record.score.verdict is Verdict.INVALID
    with pytest.raises(NotIsolatedError):
        await replay([rent(), rent(id="more")], gold_model, toolset=ledger(), progress=False)
    assert written(file) == ""


async def test_scripted_model_may_write_on_a_shared_server(ledger: Ledger, file: Path) -> None:
    model = ScriptedModel([call("add_entry", text="rent"), say("I added it.")])
    run = await replay([rent()], model, toolset=ledger(), progress=False)
    assert run.records[0].trajectory.turns[0].calls[0].ran
    assert written(file) == "rent\n"
    silent = await replay([rent()], silent_model(), toolset=ledger(), progress=False)
    assert silent.records[0].score.verdict is Verdict.FAIL


async def test_review_repeats_no_calls_on_a_shared_server(ledger: Ledger, file: Path) -> None:
    rents = CorrectedCall(tool="add_entry", args={"text": "rent"}, answer="accept")
    turn = CorrectedTurn(user="Add rent.", calls=(rents,), reply="Added.", is_reply_fine=True)
    conversation = CorrectedConversation(name="talk", locale="en", world={}, turns=(turn,))
    with pytest.raises(NotIsolatedError):
        await scenario_from_review(conversation, ledger())
    assert written(file) == ""
    await scenario_from_review(conversation, ledger(isolated=True))
    assert written(file) == "rent\n"


def test_world_calls_are_refused_on_a_shared_server(ledger: Ledger, file: Path) -> None:
    world = {"calls": [{"tool": "add_entry", "args": {"text": "rent"}}]}
    with (
        pytest.raises(UsageError, match=r"world\.calls.*isolated = true"),
        opened(ledger(), world, "en"),
    ):
        pass
    assert written(file) == ""
    with opened(ledger(isolated=True), world, "en"):
        assert written(file) == "rent\n"


def test_world_tables_are_compared_at_the_first_state_read(ledger: Ledger, file: Path) -> None:
    read = StateRead(tool="sneak", args={"text": "read"}, rows="result")
    with opened(ledger(state={"t": read}), {"t": []}, "en") as session:
        assert written(file) == ""  # opening calls nothing
        with pytest.raises(UsageError, match=r"world\.t"):
            read_state(session)
