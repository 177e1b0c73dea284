"""Old evidence before today's scorers and expectations: offline, and never another conversation."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lhkit.errors import RunError, UsageError
from lhkit.harness.author.reference import gold_model, silent_model
from lhkit.harness.compare import compare
from lhkit.harness.record import (
    FalseClaim,
    Judgement,
    SampleId,
    Severity,
    Verdict,
    Violation,
    decode_record,
    encode_record,
)
from lhkit.harness.rescore import rescore
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario, Turn
from lhkit.harness.store import RECORDS, write_rescored
from lhkit.harness.stress import Stress, stressed
from lhkit.models.scripted import ScriptedModel, call, say
from lhkit.tools.registry import ToolRegistry

Load = Callable[[str], tuple[Scenario, ...]]

NOTES = """
- id: add
  ac: AC-4
  world: {now: "2026-06-15T09:00:00+09:00", notes: [{id: note-0, text: old}]}
  turns:
    - user: add milk
      confirm: accept
      expect: {calls: [{tool: add_note, args: {text: milk}, result: ok}]}
    - user: and bread
      confirm: [reject]
      expect: {calls: [{tool: add_note, args: {text: bread}, result: cancelled}]}
    - user: and eggs
      confirm: absent
      expect: {calls: [{tool: add_note, args: {text: eggs}, result: cancelled}]}
  final: {notes: [{text: milk}]}
"""

CHANGES = {
    "the user's words are others today": ("user: add milk", "user: add milk please"),
    "the initial state is another one today": ("text: old", "text: older"),
    "the language was ko and is en today": ("ac: AC-4", "ac: AC-4\n  locale: en"),
    "turn 0: the gate is answered otherwise today": ("confirm: accept", "confirm: reject"),
    "turn 1: the gate is answered otherwise today": ("[reject]", "[accept]"),
    "turn 2: the gate is answered otherwise today": ("confirm: absent", "confirm: reject"),
}


@pytest.fixture
def play(toolset: Any, clock: Any, tmp_path: Path) -> Callable[..., Any]:
    async def run(scenarios: Any, model: Any, **options: Any) -> Run:
        defaults = {"toolset": toolset, "progress": False, "clock": clock}
        return await replay(scenarios, model, run_dir=tmp_path / "old", **(defaults | options))

    return run


Play = Callable[..., Any]


@pytest.mark.anyio
@pytest.mark.parametrize("model", [gold_model, silent_model()], ids=["gold", "silent"])
async def test_what_has_not_changed_is_scored_as_it_was(
    play: Play, load: Load, toolset: Any, tmp_path: Path, model: Any
) -> None:
    scenarios = load(NOTES)
    run = await play(scenarios, model, repeats=2)
    before = (tmp_path / "old" / RECORDS).read_bytes()
    again = rescore(tmp_path / "old", scenarios, toolset)
    assert again.records == run.records
    assert again.skipped == {}
    assert (tmp_path / "old" / RECORDS).read_bytes() == before


WORLD = """
- id: add
  ac: AC-4
  world:
    now: "2026-06-15T09:00:00+09:00"
    notes: [{id: n1, text: ROWS}, {id: n2, text: b}, {id: n3, text: c}]
  turns: [{user: add milk, confirm: accept, expect: {extra: any}}]
  final: {notes: [{text: milk}]}
"""


@pytest.mark.anyio
@pytest.mark.parametrize("text", ["milk", "bread"])
@pytest.mark.parametrize("keep_states", [False, True])
async def test_a_record_holds_what_changed_and_is_judged_again_the_same(
    play: Play, load: Load, toolset: Any, tmp_path: Path, text: str, *, keep_states: bool
) -> None:
    scenarios = load(WORLD.replace("ROWS", "x" * 100_000))
    model = ScriptedModel([call("add_note", text=text), say("ok")])
    run = await play(scenarios, model, keep_states=keep_states)
    is_small = (tmp_path / "old" / RECORDS).stat().st_size < 50_000
    assert is_small is not keep_states
    assert [len(each.removed) for each in run.records[0].state_diff.values()] == [0]
    again = rescore(tmp_path / "old", scenarios, toolset)
    assert (again.records, again.skipped) == (run.records, {})
    passed = run.records[0].judgement.verdict is Verdict.PASS
    assert passed is (text == "milk")
    stricter = load(WORLD.replace("ROWS", "x" * 100_000).replace("{text: milk}", "{text: b}"))
    (record,) = rescore(run, stricter, toolset).records
    assert record.judgement.verdict is Verdict.FAIL
    assert "unlisted row" in record.judgement.reasons[-1]


@pytest.mark.anyio
async def test_the_fault_of_an_old_scorer_is_mended(
    play: Play, load: Load, toolset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Yesterday's scorer let everything pass."""
    generous = Judgement(verdict=Verdict.PASS)
    with monkeypatch.context() as yesterday:
        yesterday.setattr("lhkit.harness.sample.judge", lambda *_, **__: generous)
        run = await play(load(NOTES), silent_model())
    assert run.records[0].judgement.verdict is Verdict.PASS
    (record,) = rescore(run, load(NOTES), toolset).records
    assert record.judgement.verdict is Verdict.FAIL
    assert "turn 0: add_note was expected and not called" in record.judgement.reasons
    assert [score.due_calls for score in record.judgement.scores] == [1, 1, 1]


@pytest.mark.anyio
async def test_an_expectation_that_was_too_narrow_is_mended(
    play: Play, load: Load, toolset: Any
) -> None:
    said = [("whole milk"), "bread", "eggs"]
    model = ScriptedModel([r for text in said for r in (call("add_note", text=text), say("ok"))])
    run = await play(load(NOTES), model)
    assert run.records[0].judgement.verdict is Verdict.FAIL
    wider = load(NOTES.replace("text: milk", "text: {matches: milk}"))
    again = rescore(run, wider, toolset)
    assert again.records[0].judgement.verdict is Verdict.PASS
    assert again.records[0].evidence.turns == run.records[0].evidence.turns
    assert compare(run, again).changed_scenarios == ("add",)
    assert compare(again, rescore(again, wider, toolset)).changed_scenarios == ()


@pytest.mark.anyio
@pytest.mark.parametrize("reason", CHANGES)
async def test_another_conversation_is_left_out_with_the_reason(
    play: Play, load: Load, toolset: Any, reason: str
) -> None:
    run = await play(load(NOTES), gold_model)
    again = rescore(run, load(NOTES.replace(*CHANGES[reason])), toolset)
    assert (again.records, again.skipped) == ((), {SampleId(scenario="add"): reason})


@pytest.mark.anyio
async def test_a_scenario_that_is_gone_or_has_more_turns_is_left_out(
    play: Play, load: Load, toolset: Any
) -> None:
    (scenario,) = load(NOTES)
    run = await play([scenario], gold_model)
    longer = scenario.model_copy(update={"turns": (*scenario.turns, Turn(user="and more"))})
    for today, reason in (
        ([], "there is no such scenario today"),
        ([longer], "3 turns were played and there are 4 today"),
    ):
        assert list(rescore(run, today, toolset).skipped.values()) == [reason]


@pytest.mark.anyio
async def test_an_answer_of_the_script_that_was_never_needed_may_change(
    play: Play, load: Load, toolset: Any
) -> None:
    run = await play(load(NOTES), gold_model)
    other = load(NOTES.replace("[reject]", "[reject, accept]"))
    assert rescore(run, other, toolset).records == run.records


@pytest.mark.anyio
async def test_what_the_world_failed_stays_invalid(play: Play, load: Load, toolset: Any) -> None:
    def broken(_: object) -> Any:
        raise RuntimeError("a bug")

    run = await play(load(NOTES), ScriptedModel(broken))
    again = rescore(run, load(NOTES), toolset)
    assert [record.judgement.verdict for record in again.records] == [Verdict.INVALID]


@pytest.mark.anyio
async def test_every_world_that_was_opened_is_closed(play: Play, load: Load, toolset: Any) -> None:
    run = await play(load(NOTES), gold_model)
    rescore(run, load(NOTES), toolset)
    assert all(session.is_closed for session in toolset.sessions)


@pytest.mark.anyio
async def test_a_rescored_run_is_a_folder_of_its_own_that_can_be_made_again(
    play: Play, load: Load, toolset: Any, tmp_path: Path
) -> None:
    run = await play(load(NOTES), gold_model)
    again = rescore(run, load(NOTES), toolset)
    target = tmp_path / "old-rescored"
    for _ in range(2):
        write_rescored(target, again.records, again.manifest)
        assert Run.load(target).records == run.records
    assert Run.load(target).manifest["rescored_from"] == "old"
    with pytest.raises(RunError, match="holds a run that was played"):
        write_rescored(tmp_path / "old", (), again.manifest)
    assert Run.load(tmp_path / "old") == run


@pytest.mark.anyio
async def test_a_world_that_cannot_be_is_named(play: Play, load: Load, toolset: Any) -> None:
    run = await play(load(NOTES), gold_model)
    with pytest.raises(UsageError, match="unknown tables"):
        rescore(run, load(NOTES.replace("notes: [{id", "pens: [{id")), toolset)


@pytest.mark.anyio
async def test_a_distractor_stays_surplus_where_a_scenario_tolerates_reads(
    play: Play, load: Load, toolset: Any
) -> None:
    scenarios = load("""
- id: find
  ac: AC-1
  turns: [{user: find milk, expect: {extra: reads}}]
""")
    source = ScriptedModel([call("get_weather", city="Seoul"), say("none")])
    model, harder = stressed(source, toolset, Stress(distractors=1))
    run = await play(scenarios, model, toolset=harder)
    assert run.records[0].judgement.scores[0].surplus_calls == 1
    assert rescore(run, scenarios, harder).records == run.records


DUE = """
- id: due
  ac: AC-4
  world: {now: "2026-06-15T09:00:00+09:00", notes: []}
  turns:
    - user: add milk for today
      confirm: accept
      expect: {calls: [{tool: add_note, args: {text: milk, tag: home}}]}
      forbid: [{tool: add_note, args: {text: milk, tag: work}}]
  final: {notes: [{text: milk}]}
"""


def implying(toolset: Any, tag: str | None) -> Any:
    """Return a toolset in which a tag that is left out means this one."""
    implied: dict[str, Any] = {} if tag is None else {"tag": tag}
    tools = toolset.registry.definitions
    registry = ToolRegistry(
        replace(tool, implied=implied if tool.name == "add_note" else {}) for tool in tools
    )
    return replace(toolset, registry=registry)


def verdicts_of(run: Run) -> list[Verdict]:
    return [record.judgement.verdict for record in run.records]


@pytest.mark.anyio
async def test_what_was_implied_when_the_run_was_made_counts_when_it_is_scored_again(
    play: Play, load: Load, toolset: Any
) -> None:
    model = ScriptedModel([call("add_note", text="milk"), say("done")])
    run = await play(load(DUE), model, toolset=implying(toolset, "home"))
    assert verdicts_of(run) == [Verdict.PASS]
    for today in ("work", None):
        assert verdicts_of(rescore(run, load(DUE), implying(toolset, today))) == [Verdict.PASS]


PLANNED = """\
- id: planned
  ac: notes
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00", notes: []}
  turns: [{user: Friday is for painting., expect: {calls: [{tool: find_notes, args: {query: x}}]}}]
"""


def claiming(toolset: Any, words: Sequence[str]) -> Any:
    """Return a toolset in which the success of a new note is told in these words."""
    registry = ToolRegistry(
        replace(tool, claims={"en": words} if tool.name == "add_note" and words else {})
        for tool in toolset.registry.definitions
    )
    return replace(toolset, registry=registry)


@pytest.mark.anyio
async def test_the_words_of_a_tools_success_are_those_of_when_the_run_was_made(
    play: Play, load: Load, toolset: Any
) -> None:
    model = ScriptedModel([call("find_notes", query="x"), say("Friday got a sticky.")])
    words = ["got a sticky"]
    run = await play(load(PLANNED), model, toolset=claiming(toolset, words))
    told = run.records[0].judgement
    assert told.false_claims == (FalseClaim(turn=0, words="got a sticky"),)
    assert told.verdict is Verdict.FAIL
    again = rescore(run, load(PLANNED), claiming(toolset, []))
    assert again.records[0].judgement.false_claims == told.false_claims
    model = ScriptedModel([call("find_notes", query="x"), say("Friday got a sticky.")])
    other = await replay(load(PLANNED), model, toolset=claiming(toolset, []), progress=False)
    assert other.records[0].judgement.false_claims == ()


@pytest.mark.anyio
@pytest.mark.promise("eval.claims")
async def test_rescore_turns_a_recorded_false_claim_violation_into_a_flag(
    play: Play, load: Load, toolset: Any
) -> None:
    model = ScriptedModel([call("find_notes", query="x"), say("I've added it to your notes.")])
    run = await play(load(PLANNED), model, toolset=toolset)
    (record,) = run.records
    old = replace(
        record,
        judgement=replace(
            record.judgement,
            verdict=Verdict.FAIL,
            violations=(Violation(code="false_claim", severity=Severity.ESCAPED, turn=0),),
            false_claims=(),
        ),
    )
    data = json.loads(encode_record(old))
    del data["judgement"]["false_claims"]
    read = decode_record(data)
    assert [each.code for each in read.judgement.violations] == ["false_claim"]
    again = rescore(replace(run, records=(read,)), load(PLANNED), toolset)
    judgement = again.records[0].judgement
    assert judgement.violations == ()
    assert [each.turn for each in judgement.false_claims] == [0]
