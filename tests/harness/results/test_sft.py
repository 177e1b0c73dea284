"""Training conversations: from runs, references and reviewed chats, without held-out messages."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import ScenarioError, UsageError
from lhkit.cli.export import ExportOptions, export_run
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.chats.corrections import (
    CorrectedCall,
    CorrectedConversation,
    CorrectedTurn,
    conversation_line,
)
from lhkit.harness.exports.sft import (
    reference_conversations,
    reviewed_conversations,
    run_conversations,
    write_sft,
)
from lhkit.harness.results.results import Run
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.base import ModelRequest
from lhkit.models.client.request import request_body
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.training import training_text
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.settings import load_settings
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import load as load_toolset
from tests.harness.build import Load
from tests.harness.results.runs import lines, record_run

pytestmark = pytest.mark.anyio


NOTES = r"""
- id: notes-1
  ac: AC-1
  locale: ko
  world: {notes: [{id: n1, text: 우유}]}
  final: {notes: [{text: 빵}]}
  turns:
    - user: 우유 메모 찾아 줘
      expect: {calls: [{tool: find_notes, args: {query: 우유}}]}
      reply: {matches: '\S'}
      gold: {say: 우유 메모가 있어요.}
    - user: 빵도 적어 줘
      confirm: accept
      expect: {calls: [{tool: add_note, args: {text: 빵}}]}
      reply: {matches: '\S'}
"""
ENGLISH = r"""
- id: notes-2
  ac: AC-1
  locale: en
  turns:
    - user: Please look for the note about milk
      expect: {calls: [{tool: find_notes, args: {query: milk}}]}
      reply: {matches: '\S'}
      gold: {say: There is none.}
"""
SCRIPT = (
    call("find_notes", query="우유"),
    say("우유가 있어요."),
    call("add_note", text="빵"),
    say("적었어요."),
)


async def exported(tmp_path: Path, **options: Any) -> list[dict[str, Any]]:
    file = tmp_path / "sft.jsonl"
    assert await export_run(ExportOptions(sft=file, **options), load_settings()) == 0
    return lines(file)


async def test_run_conversations_have_instructions_calls_and_results(
    load: Load, toolset: Any, tmp_path: Path
) -> None:
    scenarios = load(NOTES)
    run = Run.load(await record_run(scenarios, SCRIPT, toolset, tmp_path / "run"))
    (conversation,) = run_conversations(run, toolset, scenarios)
    messages = conversation.data["messages"]
    roles = ["system", *("user", "assistant", "tool", "assistant") * 2]
    assert [message["role"] for message in messages] == roles
    assert messages[0]["content"] == "Keep notes."
    function = {"name": "find_notes", "arguments": '{"query":"우유"}'}
    made = {"id": "call00000", "type": "function", "function": function}
    assert messages[2]["tool_calls"] == [made]
    assert (messages[3]["tool_call_id"], messages[3]["name"]) == ("call00000", "find_notes")
    assert not any("weight" in message for message in messages)
    names = [tool["function"]["name"] for tool in conversation.data["tools"]]
    assert names == ["find_notes", "add_note", "finish_note"]
    await record_run(scenarios, (say("몰라요."),), toolset, tmp_path / "failed")
    assert [*run_conversations(Run.load(tmp_path / "failed"), toolset, scenarios)] == []


async def test_run_conversations_reject_another_prompt_scenario_or_toolset(
    load: Load, toolset: Any, tmp_path: Path
) -> None:
    scenarios = load(NOTES)
    run = Run.load(await record_run(scenarios, SCRIPT, toolset, tmp_path / "run"))
    with pytest.raises(UsageError, match=r"notes-1: .*--scenarios"):
        list(run_conversations(run, toolset))
    changed = load(NOTES.replace("우유 메모가", "그 메모가"))
    with pytest.raises(UsageError, match="notes-1: the scenario has changed"):
        list(run_conversations(run, toolset, changed))
    with pytest.raises(UsageError, match=r"tools of NotesToolset.*--toolset"):
        list(run_conversations(run, load_toolset(), scenarios))
    prompt = run.manifest.locales["ko"].model_copy(update={"instructions_sha256": "0"})
    other = replace(run, manifest=run.manifest.model_copy(update={"locales": {"ko": prompt}}))
    with pytest.raises(UsageError, match="instructions or context lines"):
        list(run_conversations(other, toolset, scenarios))


async def test_reference_replies_without_gold_have_no_weight(load: Load, toolset: Any) -> None:
    (conversation,) = await reference_conversations(load(NOTES), toolset)
    replies = [
        (message["content"], message.get("weight", 1))
        for message in conversation.data["messages"]
        if message["role"] == "assistant" and "tool_calls" not in message
    ]
    assert replies[0] == ("우유 메모가 있어요.", 1)
    assert replies[1][1] == 0


async def test_reference_conversations_reject_a_failing_reference(load: Load, toolset: Any) -> None:
    wrong = load(NOTES.replace("final: {notes: [{text: 빵}]}", "final: {notes: [{text: 물}]}"))
    with pytest.raises(UsageError, match=r"notes-1: its reference does not pass.*lhkit lint"):
        list(await reference_conversations(wrong, toolset))


def conversation_of(*turns: CorrectedTurn) -> CorrectedConversation:
    world = {"now": "2026-06-15T09:00:00+09:00", "notes": [{"id": "n1", "text": "우유"}]}
    return CorrectedConversation(name="chat-1#0", locale="ko", world=world, turns=turns)


async def test_reviewed_chat_has_corrected_calls_and_no_weight_for_rejected_replies(
    toolset: Any,
) -> None:
    turns = (
        CorrectedTurn(
            user="우유 메모 끝났어",
            calls=(
                CorrectedCall(tool="find_notes", args={"query": "우유"}),
                CorrectedCall(tool="finish_note", args={"note_id": "n1", "done": True}),
            ),
            reply="끝냈어요.",
        ),
        CorrectedTurn(
            user="빵도 적어",
            calls=(CorrectedCall(tool="add_note", args={"text": "빵"}, answer="reject"),),
            reply="이상한 답",
            is_reply_fine=False,
        ),
    )
    (conversation,) = await reviewed_conversations([conversation_of(*turns)], toolset)
    messages = conversation.data["messages"]
    results = [json.loads(each["content"])["status"] for each in messages if each["role"] == "tool"]
    assert results == ["ok", "ok", "cancelled"]
    assert (messages[-1]["content"], messages[-1]["weight"]) == ("이상한 답", 0)
    assert conversation.users == ("우유 메모 끝났어", "빵도 적어")


async def test_reviewed_conversations_reject_a_failing_call(toolset: Any) -> None:
    turn = CorrectedTurn(
        user="찾아 줘", calls=(CorrectedCall(tool="add_note", args={}),), reply="네"
    )
    with pytest.raises(
        UsageError, match=r"chat-1#0: the reviewed call add_note \{\} fails with validation"
    ):
        list(await reviewed_conversations([conversation_of(turn)], toolset))


async def test_write_sft_omits_and_counts_held_out_and_repeated_conversations(
    load: Load, toolset: Any, tmp_path: Path
) -> None:
    korean, english = load(NOTES), load(ENGLISH)
    both = [
        *await reference_conversations(korean, toolset),
        *await reference_conversations(english, toolset),
    ]
    file = tmp_path / "sft.jsonl"
    counts = write_sft([*both, *both], file, ["please look for a note about milk"])
    assert (counts.written, counts.held_out, counts.repeated) == (1, 2, 1)
    assert "우유 메모 찾아 줘" in file.read_text(encoding="utf-8")
    before = file.read_bytes()
    with pytest.raises(UsageError, match=r"No conversation is left .* 1 are near-duplicates"):
        write_sft(both[1:], file, ["Please look for the note about milk"])
    assert file.read_bytes() == before


@pytest.mark.longer
async def test_command_writes_all_sources_and_reports_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    path = Path("datasets/ac/dev/ac01.yaml")
    reviewed = tmp_path / "reviewed.jsonl"
    turn = CorrectedTurn(user="Which habits do I have?", calls=(), reply="None yet.")
    world = {"now": "2026-06-15T09:00:00+09:00"}
    reviewed.write_text(
        conversation_line(CorrectedConversation(name="c", locale="en", world=world, turns=(turn,))),
        encoding="utf-8",
    )
    written = await exported(tmp_path, scenarios=(path,), reviewed=(reviewed,))
    assert len(written) == len(load_scenarios([path])) + 1
    assert "conversations). Left out: 0 near-duplicates" in capsys.readouterr().out
    with pytest.raises(UsageError, match="No conversation is left"):
        await exported(tmp_path, scenarios=(path,), held_out=(path,))


@pytest.mark.longer
async def test_command_exports_a_run_of_the_default_tools(tmp_path: Path) -> None:
    path = Path("datasets/ac/dev/ac01.yaml")
    scenarios = load_scenarios([path])
    await replay(scenarios, gold_model, run_dir=tmp_path / "run", progress=False)
    written = await exported(tmp_path, folder=tmp_path / "run", scenarios=(path,))
    assert len(written) == len(scenarios)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"scenarios": (Path("mine"),)}, "give --sft FILE"),
        ({"sft": Path("a.jsonl")}, "give the folder of a RUN, --scenarios or --reviewed"),
    ],
)
async def test_command_refuses_options_that_do_not_fit(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        await export_run(ExportOptions(**options), load_settings())


async def test_command_reports_files_that_are_not_valid(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"bad\.jsonl:1 is not a valid reviewed conversation"):
        await exported(tmp_path, reviewed=(bad,))
    with pytest.raises(ScenarioError, match=r"missing\.yaml"):
        await exported(tmp_path, scenarios=(tmp_path / "missing.yaml",))


@pytest.mark.slow
async def test_training_prompts_equal_served_prompts() -> None:
    paths = [Path("datasets/ac/dev") / f"ac{number:02}.yaml" for number in (1, 3, 5, 7, 10)]
    scenarios = load_scenarios(paths)
    assert {scenario.locale for scenario in scenarios} == {"ko", "en"}
    requests: dict[str, list[ModelRequest]] = {}

    def model(scenario: Scenario, registry: ToolRegistry) -> ScriptedModel:
        made = gold_model(scenario, registry)
        requests[scenario.id] = made.requests
        return made

    run = await replay(scenarios, model, progress=False)
    conversations = list(run_conversations(run, load_toolset(), scenarios))
    assert len(conversations) == len(scenarios)
    identity = ModelIdentity(model="m", server="s", dialect="gemma4")
    for scenario, conversation in zip(scenarios, conversations, strict=True):
        rendered = training_text(conversation.data, DIALECTS["gemma4"])
        trained = [rendered.text[:begin] for begin, _ in rendered.spans]
        served = [request_body(each, identity)["prompt"] for each in requests[scenario.id]]
        assert trained == served
