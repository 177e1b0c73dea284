"""rescore(): recorded transcripts with today's scorers and expectations."""

import json
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import LhkitError, RunError, UsageError
from lhkit.harness.authoring.reference import gold_model, silent_model
from lhkit.harness.records.record import (
    FalseClaim,
    SampleScore,
    Severity,
    Violation,
    decode_record,
    encode_record,
)
from lhkit.harness.records.store import RECORDS, write_rescored
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.harness.running.rescore import rescore
from lhkit.harness.running.stress import Stress, stressed
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario import Turn
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.tools.registry import ToolRegistry
from tests.harness.build import FAIL, INVALID, PASS, Load, Play

pytestmark = pytest.mark.anyio


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
    "the user's messages differ today": ("user: add milk", "user: add milk please"),
    "the initial state differs today": ("text: old", "text: older"),
    "the locale was en and is ko today": ("ac: AC-4", "ac: AC-4\n  locale: ko"),
    "turn 0: the gate is answered differently today": ("confirm: accept", "confirm: reject"),
    "turn 1: the gate is answered differently today": ("[reject]", "[accept]"),
    "turn 2: the gate is answered differently today": ("confirm: absent", "confirm: reject"),
}


@pytest.fixture
def play(play: Play, tmp_path: Path) -> Play:
    return partial(play, run_dir=tmp_path / "old")


@pytest.mark.parametrize("model", [gold_model, silent_model()], ids=["gold", "silent"])
async def test_rescore_is_identical_without_changes(
    play: Play, load: Load, toolset: Any, tmp_path: Path, model: Any
) -> None:
    scenarios = load(NOTES)
    run = await play(scenarios, model, repeats=2)
    before = (tmp_path / "old" / RECORDS).read_bytes()
    again = rescore(tmp_path / "old", scenarios, toolset)
    assert again.records == run.records
    assert again.skipped == {}
    assert all(session.is_closed for session in toolset.sessions)
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


@pytest.mark.parametrize("text", ["milk", "bread"])
@pytest.mark.parametrize("keep_states", [False, True])
async def test_rescore_is_identical_without_stored_states(
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
    passed = run.records[0].score.verdict is PASS
    assert passed is (text == "milk")
    stricter = load(WORLD.replace("ROWS", "x" * 100_000).replace("{text: milk}", "{text: b}"))
    (record,) = rescore(run, stricter, toolset).records
    assert record.score.verdict is FAIL
    assert "unlisted row" in record.score.reasons[-1]


async def test_rescore_applies_present_scorer(
    play: Play, load: Load, toolset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Yesterday's scorer let everything pass."""
    generous = SampleScore(verdict=PASS)
    with monkeypatch.context() as yesterday:
        yesterday.setattr("lhkit.harness.running.sample.judge", lambda *_, **__: generous)
        run = await play(load(NOTES), silent_model())
    assert run.records[0].score.verdict is PASS
    (record,) = rescore(run, load(NOTES), toolset).records
    assert record.score.verdict is FAIL
    assert "turn 0: add_note was expected and not called" in record.score.reasons
    assert [score.due_calls for score in record.score.turn_scores] == [1, 1, 1]


async def test_rescore_applies_present_expectation(play: Play, load: Load, toolset: Any) -> None:
    notes = ["whole milk", "bread", "eggs"]
    model = ScriptedModel([r for text in notes for r in (call("add_note", text=text), say("ok"))])
    run = await play(load(NOTES), model)
    assert run.records[0].score.verdict is FAIL
    wider = load(NOTES.replace("text: milk", "text: {matches: milk}"))
    again = rescore(run, wider, toolset)
    assert again.records[0].score.verdict is PASS
    assert again.records[0].trajectory.turns == run.records[0].trajectory.turns
    assert compare(run, again).changed_scenarios == ("add",)
    assert compare(again, rescore(again, wider, toolset)).changed_scenarios == ()


@pytest.mark.parametrize("reason", CHANGES)
async def test_rescore_skips_changed_conversation_with_reason(
    play: Play, load: Load, toolset: Any, reason: str
) -> None:
    run = await play(load(NOTES))
    again = rescore(run, load(NOTES.replace(*CHANGES[reason])), toolset)
    assert (again.records, again.skipped) == ((), {SampleId(scenario="add"): reason})


async def test_rescore_skips_missing_or_longer_scenario(
    play: Play, load: Load, toolset: Any
) -> None:
    (scenario,) = load(NOTES)
    run = await play([scenario])
    longer = scenario.model_copy(update={"turns": (*scenario.turns, Turn(user="and more"))})
    for today, reason in (
        ([], "the scenario does not exist today"),
        ([longer], "the record has 3 turns, the scenario 4 today"),
    ):
        assert list(rescore(run, today, toolset).skipped.values()) == [reason]


async def test_rescore_ignores_unused_gate_answers(play: Play, load: Load, toolset: Any) -> None:
    run = await play(load(NOTES))
    other = load(NOTES.replace("[reject]", "[reject, accept]"))
    assert rescore(run, other, toolset).records == run.records


async def test_rescore_keeps_invalid_verdict(play: Play, load: Load, toolset: Any) -> None:
    def broken(_: object) -> Any:
        raise RuntimeError("a bug")

    run = await play(load(NOTES), ScriptedModel(broken))
    again = rescore(run, load(NOTES), toolset)
    assert [record.score.verdict for record in again.records] == [INVALID]


async def test_write_rescored_replaces_only_rescored_folder(
    play: Play, load: Load, toolset: Any, tmp_path: Path
) -> None:
    run = await play(load(NOTES))
    again = rescore(run, load(NOTES), toolset)
    target = tmp_path / "old-rescored"
    for _ in range(2):
        write_rescored(target, again.records, again.manifest)
        assert Run.load(target).records == run.records
    assert Run.load(target).manifest.rescored_from == "old"
    with pytest.raises(RunError, match="has the records of a run"):
        write_rescored(tmp_path / "old", (), again.manifest)
    assert Run.load(tmp_path / "old") == run


@pytest.mark.longer
async def test_rescore_names_invalid_world(play: Play, load: Load, toolset: Any) -> None:
    run = await play(load(NOTES))
    with pytest.raises(UsageError, match="unknown tables"):
        rescore(run, load(NOTES.replace("notes: [{id", "pens: [{id")), toolset)


async def test_rescore_counts_distractor_call_as_unexpected(
    play: Play, load: Load, toolset: Any
) -> None:
    scenarios = load("""
- id: find
  ac: AC-1
  turns: [{user: find milk, expect: {extra: reads}}]
""")
    source = ScriptedModel([call("get_weather", city="Seoul"), say("none")])
    harder = stressed(toolset, Stress(distractors=1))
    run = await play(scenarios, source, toolset=toolset, stress="distractors=1")
    assert run.records[0].score.turn_scores[0].surplus_calls == 1
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


async def test_rescore_uses_recorded_implied_arguments(
    play: Play, load: Load, toolset: Any
) -> None:
    model = ScriptedModel([call("add_note", text="milk"), say("done")])
    run = await play(load(DUE), model, toolset=with_add_note(toolset, implied={"tag": "home"}))
    assert run.records[0].score.verdict is PASS
    for implied in ({"tag": "work"}, {}):
        (record,) = rescore(run, load(DUE), with_add_note(toolset, implied=implied)).records
        assert record.score.verdict is PASS


PLANNED = """\
- id: planned
  ac: notes
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00", notes: []}
  turns: [{user: Friday is for painting., expect: {calls: [{tool: find_notes, args: {query: x}}]}}]
"""


def with_add_note(toolset: Any, **changes: Any) -> Any:
    """Return a toolset in which `add_note` is changed."""
    tools = toolset.registry.definitions
    registry = ToolRegistry(replace(t, **changes) if t.name == "add_note" else t for t in tools)
    return replace(toolset, registry=registry)


async def test_rescore_uses_recorded_success_phrases(play: Play, load: Load, toolset: Any) -> None:
    claiming = with_add_note(toolset, claims={"en": ["got a sticky"]})
    silent = with_add_note(toolset, claims={})
    replies = [call("find_notes", query="x"), say("Friday got a sticky.")]
    run = await play(load(PLANNED), ScriptedModel(replies), toolset=claiming)
    score = run.records[0].score
    assert score.false_claims == (FalseClaim(turn=0, words="got a sticky"),)
    assert score.verdict is FAIL
    again = rescore(run, load(PLANNED), silent)
    assert again.records[0].score.false_claims == score.false_claims
    other = await play(load(PLANNED), ScriptedModel(replies), toolset=silent, run_dir=None)
    assert other.records[0].score.false_claims == ()


async def test_rescore_turns_a_recorded_false_claim_violation_into_a_flag(
    play: Play, load: Load, toolset: Any
) -> None:
    model = ScriptedModel([call("find_notes", query="x"), say("I've added it to your notes.")])
    run = await play(load(PLANNED), model, toolset=toolset)
    (record,) = run.records
    old = replace(
        record,
        score=replace(
            record.score,
            verdict=FAIL,
            violations=(Violation(code="false_claim", severity=Severity.ESCAPED, turn=0),),
            false_claims=(),
        ),
    )
    data = json.loads(encode_record(old))
    del data["score"]["false_claims"]
    read = decode_record(data)
    assert [each.code for each in read.score.violations] == ["false_claim"]
    again = rescore(replace(run, records=(read,)), load(PLANNED), toolset)
    score = again.records[0].score
    assert score.violations == ()
    assert [each.turn for each in score.false_claims] == [0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("added_at", []),
        ("added_at", [99]),
        ("added_at", [1, 1]),
        ("added", []),
        ("removed_at", [0]),
        ("removed_at", [77]),
        ("removed", [{"id": "x"}]),
    ],
)
async def test_rescore_names_the_line_of_a_record_whose_changes_do_not_fit(
    play: Play, load: Load, toolset: Any, tmp_path: Path, name: str, value: Any
) -> None:
    scenarios = load(NOTES)
    await play(scenarios)
    path = tmp_path / "old" / RECORDS
    data = json.loads(path.read_text(encoding="utf-8"))
    data["state_diff"]["notes"][name] = value
    path.write_text(json.dumps(data) + "\n", encoding="utf-8")
    with pytest.raises(RunError, match=r"is not a valid record.*state_diff\.notes"):
        rescore(tmp_path / "old", scenarios, toolset)


BROKEN = (None, True, -1, 10**30, "x", [], [0], {}, {"x": 1})


def fields_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value[:1])
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from fields_of(inner, (*path, key))


@pytest.mark.longer
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.nightly)])
async def test_rescore_reads_or_refuses_a_record_with_any_broken_field(
    play: Play, load: Load, toolset: Any, every: int
) -> None:
    scenarios = load(NOTES)
    run = await play(scenarios)
    data = json.loads(encode_record(run.records[0]))
    tried = 0
    for path, value in [*product(fields_of(data), BROKEN)][::every]:
        changed = deepcopy(data)
        place = changed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        try:
            record = decode_record(changed)
        except ValueError:
            continue
        tried += 1
        with suppress(LhkitError):
            again = rescore(replace(run, records=(record,)), scenarios, toolset)
            again.summary()
            compare(run, again)
    assert tried > 50 / every
