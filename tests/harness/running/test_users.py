"""Simulated users: scripted, careful, hasty; and gate effectiveness."""

import itertools
import re
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field, StringConstraints

import lhkit
from lhkit import replay
from lhkit.base.errors import UsageError
from lhkit.base.locales import load_catalog
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.figures.metrics import rate_interval
from lhkit.harness.records.manifest import Change
from lhkit.harness.report.markdown import markdown
from lhkit.harness.report.page import html_page
from lhkit.harness.report.terminal import summary_view
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.harness.running.rescore import rescore
from lhkit.harness.scenarios.user import User
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from tests.harness.build import Load, Play, printed
from tests.rows import check_rows

pytestmark = pytest.mark.anyio


SCENARIO = """
- id: add
  ac: AC-4
  world: {now: "2026-06-15T09:00:00+09:00", notes: []}
  turns:
    - user: add milk and bread
      confirm: CONFIRM
      expect:
        calls: [{tool: add_note, args: {text: milk}}, {tool: add_note, args: {text: bread}}]
        extra: reads
  final: {notes: [{text: milk}, {text: bread}]}
"""
MILK, BREAD, EGGS = (call("add_note", text=text) for text in ("milk", "bread", "eggs"))
WITH_TAG = [EGGS, MILK, call("add_note", text="milk", tag="home"), BREAD, say("ok")]


def questions(run: Run) -> list[tuple[str, bool]]:
    """Return the text of each write that the user was asked about, and the answer."""
    (record,) = run.records
    calls = [each for turn in record.trajectory.turns for each in turn.calls]
    return [(each.raw_args["text"], each.gate == "accepted") for each in calls]


@pytest.mark.parametrize(
    ("user", "answers", "counts"),
    [
        ("careful", [False, True, False, True], (4, 2, 2, 0)),
        ("hasty", [True, True, True, True], (4, 2, 0, 2)),
    ],
)
@pytest.mark.parametrize("confirm", ["accept", "careful"])
async def test_careful_user_accepts_each_expected_call_once(
    play: Play,
    load: Load,
    user: User,
    answers: list[bool],
    counts: tuple[int, int, int, int],
    confirm: str,
) -> None:
    scenarios = load(SCENARIO.replace("CONFIRM", confirm))
    run = await play(scenarios, ScriptedModel(WITH_TAG), user=user)
    assert questions(run) == [*zip(("eggs", "milk", "milk", "bread"), answers, strict=True)]
    gate = run.summary().confirm
    rejected, executed = gate.unexpected_rejected, gate.unexpected_executed
    assert (gate.asked, gate.unexpected, rejected, executed) == counts


@pytest.mark.slow
async def test_gate_line_with_intervals_is_in_every_report(play: Play, load: Load) -> None:
    tagged = SCENARIO.replace("  ac: AC-4\n", "  ac: AC-4\n  locale: en\n  tags: [hard]\n")
    scenarios = load(tagged.replace("CONFIRM", "accept"))
    run = await play(scenarios, ScriptedModel(WITH_TAG), user="careful")
    gate, english = run.summary().confirm, load_catalog("en")
    assert gate.unexpected_interval == rate_interval([[True, True, False, False]])
    assert gate.rejected_interval == rate_interval([[True, True]])
    assert gate.executed_interval == rate_interval([[False, False]])
    table = printed(summary_view(run.summary(), english, criteria={}), width=120)
    page = html_page(run, english, name="x")
    for page_text in (
        table,
        page[: page.index("<table")],
        page,
        markdown(run, english, name="x"),
        run._repr_html_(),
    ):
        words = " ".join(re.sub(r"[^\w%/\[\]–: ]", " ", page_text).split())
        pattern = (
            r"unexpected writes proposed 2/4 50% \[\d+–\d+\]: rejected by the user 2/2 100% \[\d+–"
        )
        assert re.search(pattern, words), page_text
    for page_text in (table, page, markdown(run, english, name="x"), run._repr_html_()):
        assert "hard: long or tricky" in page_text
        assert "plain: one request" not in page_text


async def test_reference_passes_with_every_simulated_user(play: Play, load: Load) -> None:
    for user in ("script", "careful", "hasty"):
        run = await play(load(SCENARIO.replace("CONFIRM", "accept")), gold_model, user=user)
        assert run.summary().total.passed == 1, user
        assert run.summary().confirm.unexpected == 0
        assert run.manifest.user == user


@check_rows("confirm", ["reject", "absent", "[accept]", "[reject, accept]"])
@check_rows("user", ["careful", "hasty"])
async def test_with_user_keeps_rejections_and_an_absent_gate(
    load: Load, confirm: str, user: User
) -> None:
    (scenario,) = load(SCENARIO.replace("CONFIRM", confirm))
    assert scenario.with_user(user) == scenario


@pytest.mark.parametrize(
    ("user", "answer"), [("script", False), ("careful", False), ("hasty", True)]
)
async def test_hasty_user_accepts_an_unexpected_question(
    play: Play, load: Load, user: User, *, answer: bool
) -> None:
    scenarios = load(SCENARIO.replace("      confirm: CONFIRM\n", ""))
    run = await play(scenarios, ScriptedModel([EGGS, say("ok")]), user=user)
    assert questions(run) == [("eggs", answer)]
    gate = run.summary().confirm
    assert (gate.unexpected, gate.unexpected_rejected, gate.unexpected_executed) == (
        1,
        not answer,
        answer,
    )


async def test_hasty_user_rejects_where_a_cancelled_call_is_expected(load: Load) -> None:
    text = SCENARIO.replace("      confirm: CONFIRM\n", "")
    (scenario,) = load(
        text.replace("args: {text: milk}}", "args: {text: milk}, result: cancelled}")
    )
    assert scenario.with_user("hasty") == scenario


async def test_compare_reports_different_simulated_users(play: Play, load: Load) -> None:
    scenarios = load(SCENARIO.replace("CONFIRM", "accept"))
    runs = [await play(scenarios, gold_model, user=user) for user in ("careful", "hasty")]
    assert Change(what="user", before="careful", after="hasty") in compare(*runs).changes


async def test_simulated_user_is_part_of_the_content_hash(
    play: Play, load: Load, tmp_path: Path
) -> None:
    scenarios = load(SCENARIO.replace("CONFIRM", "accept"))
    reused = []
    for user in ("script", "careful", "careful"):
        run = await play(scenarios, gold_model, user=user, run_dir=tmp_path)
        reused.append(run.kept)
    assert reused == [0, 0, 1]


async def test_rescore_keeps_the_simulated_user(play: Play, load: Load, toolset: Any) -> None:
    scenarios = load(SCENARIO.replace("CONFIRM", "accept"))
    model = ScriptedModel([EGGS, MILK, BREAD, say("ok")])
    run = await play(scenarios, model, user="careful")
    again = rescore(run, scenarios, toolset)
    assert not again.skipped
    assert again.summary().confirm == run.summary().confirm
    assert again.summary().confirm.unexpected_rejected == 1


async def test_replay_refuses_an_unknown_user_in_one_sentence(play: Play, load: Load) -> None:
    with pytest.raises(UsageError, match="Invalid user 'kind': choose one of script, careful"):
        await play(load(SCENARIO.replace("CONFIRM", "accept")), ScriptedModel(()), user="kind")


DONE = """
- id: done
  ac: AC-4
  world: {now: "2026-06-15T09:00:00+09:00", notes: [{id: n1, text: milk}, {id: n2, text: eggs}]}
  turns:
    - user: n1 is done
      confirm: CONFIRM
      expect: {calls: [{tool: finish_note, args: EXPECTED, result: RESULT}]}
      reply: {contains_any: [OK]}
  final: {notes: [FINAL]}
"""
N1_DONE = "{id: n1, done: true}"


def done(confirm: str, *, final: str = N1_DONE, result: str = "ok", expected: str = "") -> str:
    text = DONE.replace("CONFIRM", confirm).replace("FINAL", final).replace("RESULT", result)
    return text.replace("EXPECTED", expected or "{note_id: n1, done: true}")


UNSURE = {"status": "cancelled", "reason": "user did not confirm"}


@pytest.mark.parametrize(
    ("scenario", "wrong", "reads"),
    [
        (
            done("{reject: not today}", final="", result="cancelled"),
            {},
            UNSURE | {"user_message": "not today"},
        ),
        (done("reject", final="", result="cancelled"), {}, UNSURE),
        (
            done("[{edit: {note_id: n2}}]", final="{id: n2, done: true}"),
            {},
            {"status": "ok", "data": {"id": "n2"}, "edited": {"note_id": "n2"}},
        ),
        (
            done("{edit: {done: false}}", final=""),
            {},
            {"status": "ok", "data": {"id": "n1"}, "edited": {"done": False}},
        ),
        (done("{edit: {done: true}}"), {}, {"status": "ok", "data": {"id": "n1"}}),
        (done("{edit: {done: maybe}}", final="", result="cancelled"), {}, UNSURE),
        (done("{edit: {text: x}}", final="", result="cancelled"), {}, UNSURE),
        (  # the careful user corrects the one argument that differs
            done("careful"),
            {"done": False},
            {"status": "ok", "data": {"id": "n1"}, "edited": {"done": True}},
        ),
        (done("careful"), {"note_id": "n2", "done": False}, UNSURE),
        (
            done("careful", expected="{note_id: {matches: '^n1$'}, done: true}"),
            {"note_id": "n2"},
            UNSURE,  # no note id is known to be right
        ),
    ],
)
async def test_simulated_user_gives_reasons_and_edits(
    play: Play, load: Load, toolset: Any, scenario: str, wrong: dict[str, Any], reads: Any
) -> None:
    scenarios = load(scenario)
    made = {"note_id": "n1", "done": True} | wrong
    run = await play(scenarios, ScriptedModel([call("finish_note", **made), say("OK")]))
    (record,) = run.records
    (finish,) = record.trajectory.turns[0].calls
    assert dict(finish.result) == reads
    assert finish.raw_args == finish.args == made
    edited = reads.get("edited", {})
    assert dict(finish.edited) == edited
    assert finish.run_args == (made | edited if edited else None) == finish.shown_args
    assert (str(record.score.verdict) == "pass") is not wrong  # calls as proposed
    gate = run.summary().confirm
    assert gate.edited == bool(edited)
    assert dict(gate.edited_arguments) == {f"finish_note.{name}": 1 for name in edited}
    counts = (gate.unexpected_edited, gate.unexpected_rejected, gate.unexpected_executed)
    assert counts == (bool(wrong and edited), bool(wrong and not edited), 0)
    assert not rescore(run, scenarios, toolset).skipped
    if not wrong:
        reference = await play(scenarios, gold_model)
        assert reference.summary().total.passed == 1
    report = markdown(run, load_catalog("en"), name="x")
    assert ("edited calls 1: finish_note." in report) is bool(edited)


async def test_careful_user_takes_a_value_from_the_reference_calls(play: Play, load: Load) -> None:
    text = done("careful", expected="{note_id: {matches: '^n1$'}, done: true}")
    gold = "      gold: {calls: [{tool: finish_note, args: {note_id: n1, done: true}}]}\n  final"
    made = call("finish_note", note_id="n2", done=True)
    run = await play(load(text.replace("  final", gold)), ScriptedModel([made, say("OK")]))
    (finish,) = run.records[0].trajectory.turns[0].calls
    assert dict(finish.edited) == {"note_id": "n1"}


@pytest.mark.parametrize(
    ("recorded", "today", "is_same"),
    [
        ("{reject: not today}", "{reject: never}", False),
        ("{reject: not today}", "reject", False),
        ("{edit: {done: false}}", "accept", False),
        ("accept", "{edit: {done: false}}", False),
        ("accept", "{edit: {done: true}}", True),
        ("{edit: {note_id: n2}}", "[{edit: {note_id: n2}}]", True),
    ],
)
async def test_rescore_skips_a_record_with_another_decision(
    play: Play, load: Load, toolset: Any, recorded: str, today: str, *, is_same: bool
) -> None:
    made = call("finish_note", note_id="n1", done=True)
    run = await play(load(done(recorded)), ScriptedModel([made, say("OK")]))
    assert (not rescore(run, load(done(today)), toolset).skipped) is is_same


@pytest.mark.parametrize("user", ["script", "careful", "hasty"])
async def test_expected_calls_need_no_defaults_of_the_function(
    load: Load, tmp_path: Path, user: User
) -> None:
    ticks, registry = itertools.count(), lhkit.ToolRegistry()

    @registry.tool(destructive=True)
    def log(text: str, at: int = Field(default_factory=lambda: next(ticks))) -> dict[str, Any]:
        """Log."""
        return {"at": at, "text": text}

    text = (
        "- {id: log, ac: x, turns: [{user: log tea, confirm: accept, "
        "expect: {calls: [{tool: log, args: {text: tea}}]}}]}"
    )
    model = ScriptedModel([call("log", text="tea"), say("ok")])
    folder = tmp_path / "run"
    await replay(load(text), model, toolset=registry, user=user, run_dir=folder, progress=False)
    run = Run.load(folder)
    (record,) = run.records
    assert str(record.score.verdict) == "pass"
    (made,) = record.trajectory.turns[0].calls
    assert (made.args, made.filled_in) == ({"text": "tea", "at": made.args["at"]}, ("/at",))
    assert made.result["data"] == made.args
    again = rescore(run, load(text), registry)
    assert not again.skipped
    assert again.summary().total.passed == 1


@pytest.mark.parametrize(
    ("proposed", "answers"),
    [({"text": "tea"}, (1, 0)), ({"text": "tea", "to": "Al"}, (1, 1)), ({"text": "coal"}, (0, 0))],
    ids=["right", "one wrong", "wrong"],
)
async def test_careful_user_compares_what_the_model_wrote(
    load: Load, tmp_path: Path, proposed: dict[str, str], answers: tuple[int, int]
) -> None:
    registry = lhkit.ToolRegistry()
    upper = StringConstraints(to_upper=True)

    @registry.tool(destructive=True)
    def log(text: Annotated[str, upper], to: Annotated[str, upper] = "bo") -> dict[str, Any]:
        """Log."""
        return {"text": text, "to": to}

    text = (
        "- {id: log, ac: x, turns: [{user: log tea, confirm: careful, "
        "expect: {calls: [{tool: log, args: {text: tea, to: bo}}]}}]}"
    )
    model = ScriptedModel([call("log", **{"to": "bo", **proposed}), say("ok")])
    if proposed["text"] == "coal":
        model = ScriptedModel([call("log", text="coal", to="Al"), say("ok")])
    folder = tmp_path / "run"
    await replay(load(text), model, toolset=registry, run_dir=folder, progress=False)
    (record,) = Run.load(folder).records
    (made,) = record.trajectory.turns[0].calls
    assert (made.ran, made.is_edited) == answers
    if made.ran:
        assert made.result["data"] == {"text": "TEA", "to": "BO"}
