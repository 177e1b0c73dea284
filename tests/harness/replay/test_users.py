"""Who clicks: the script, a reader of the cards, or a hasty one; and what a card is worth."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lhkit.errors import UsageError
from lhkit.harness.author.reference import gold_model
from lhkit.harness.compare import compare
from lhkit.harness.confirm_scores import ConfirmScore
from lhkit.harness.manifest_changes import Change
from lhkit.harness.rates import rate_interval
from lhkit.harness.report.markdown import markdown
from lhkit.harness.report.page import html_page
from lhkit.harness.report.terminal import summary_view
from lhkit.harness.rescore import rescore
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario, User
from lhkit.locales import load_catalog
from lhkit.models.scripted import ScriptedModel, call, say

pytestmark = [pytest.mark.anyio, pytest.mark.promise("eval.users")]

Load = Callable[[str], tuple[Scenario, ...]]
Play = Callable[..., Any]

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


@pytest.fixture
def play(toolset: Any, clock: Any) -> Play:
    async def run(scenarios: Any, model: Any, **options: Any) -> Run:
        defaults = {"toolset": toolset, "progress": False, "clock": clock}
        return await replay(scenarios, model, **(defaults | options))

    return run


def asked(run: Run) -> list[tuple[str, bool]]:
    """Return the text of each write that the user was asked about, and the answer."""
    (record,) = run.records
    calls = [each for turn in record.evidence.turns for each in turn.calls]
    return [(each.raw_args["text"], each.gate == "accepted") for each in calls]


@pytest.mark.parametrize(
    ("user", "answers", "gate"),
    [
        (
            "careful",
            [("eggs", False), ("milk", True), ("milk", False), ("bread", True)],
            ConfirmScore(asked=4, refusals=2, refused_turns=1, wrong=2, wrong_stopped=2),
        ),
        (
            "hasty",
            [("eggs", True), ("milk", True), ("milk", True), ("bread", True)],
            ConfirmScore(asked=4, wrong=2, wrong_done=2),
        ),
    ],
)
@pytest.mark.parametrize("confirm", ["accept", "careful"])
async def test_a_careful_user_lets_through_what_the_turn_expects_each_call_once(
    play: Play,
    load: Load,
    user: User,
    answers: list[tuple[str, bool]],
    gate: ConfirmScore,
    confirm: str,
) -> None:
    scenarios = load(SCENARIO.replace("CONFIRM", confirm))
    model = ScriptedModel([EGGS, MILK, call("add_note", text="milk", tag="home"), BREAD, say("ok")])
    run = await play(scenarios, model, user=user)
    assert asked(run) == answers
    found = run.summary().confirm
    assert (found.asked, found.wrong, found.wrong_stopped, found.wrong_done) == (
        gate.asked,
        gate.wrong,
        gate.wrong_stopped,
        gate.wrong_done,
    )


@pytest.mark.slow
async def test_what_the_card_is_worth_has_intervals_wherever_a_run_is_shown(
    play: Play, load: Load
) -> None:
    tagged = SCENARIO.replace("  ac: AC-4\n", "  ac: AC-4\n  locale: en\n  tags: [hard]\n")
    scenarios = load(tagged.replace("CONFIRM", "accept"))
    model = ScriptedModel([EGGS, MILK, call("add_note", text="milk", tag="home"), BREAD, say("ok")])
    run = await play(scenarios, model, user="careful")
    gate, english = run.summary().confirm, load_catalog("en")
    assert gate.wrong_interval == rate_interval([[True, True, False, False]])
    assert gate.stopped_interval == rate_interval([[True, True]])
    assert gate.done_interval == rate_interval([[False, False]])
    table = io.StringIO()
    Console(file=table, width=120).print(summary_view(run.summary(), english))
    page = html_page(run, english, name="x")
    for shown in (
        table.getvalue(),
        page[: page.index("<table")],
        page,
        markdown(run, english, name="x"),
        run._repr_html_(),
    ):
        words = " ".join(re.sub(r"[^\w%/\[\]–: ]", " ", shown).split())
        told = r"wrong writes asked for 2/4 50% \[\d+–\d+\]: stopped by the user 2/2 100% \[\d+–"
        assert re.search(told, words), shown
    for shown in (table.getvalue(), page, markdown(run, english, name="x"), run._repr_html_()):
        assert "hard: long or tricky" in shown
        assert "plain: one wish" not in shown


async def test_the_right_conversation_passes_whoever_clicks(play: Play, load: Load) -> None:
    for user in ("script", "careful", "hasty"):
        run = await play(load(SCENARIO.replace("CONFIRM", "accept")), gold_model, user=user)
        assert run.summary().total.passed == 1, user
        assert run.summary().confirm.wrong == 0
        assert run.manifest["user"] == user


@pytest.mark.parametrize("confirm", ["reject", "absent", "[accept]", "[reject, accept]"])
@pytest.mark.parametrize("user", ["careful", "hasty"])
async def test_what_a_scenario_is_about_stays(load: Load, confirm: str, user: User) -> None:
    (scenario,) = load(SCENARIO.replace("CONFIRM", confirm))
    assert scenario.played_by(user) == scenario


@pytest.mark.parametrize(
    ("user", "answer"), [("script", False), ("careful", False), ("hasty", True)]
)
async def test_a_hasty_user_says_yes_where_no_question_was_foreseen(
    play: Play, load: Load, user: User, *, answer: bool
) -> None:
    scenarios = load(SCENARIO.replace("      confirm: CONFIRM\n", ""))
    run = await play(scenarios, ScriptedModel([EGGS, say("ok")]), user=user)
    assert asked(run) == [("eggs", answer)]
    gate = run.summary().confirm
    assert (gate.wrong, gate.wrong_stopped, gate.wrong_done) == (1, not answer, answer)


async def test_a_hasty_user_still_says_no_where_a_cancelled_call_is_expected(
    load: Load,
) -> None:
    text = SCENARIO.replace("      confirm: CONFIRM\n", "")
    (scenario,) = load(
        text.replace("args: {text: milk}}", "args: {text: milk}, result: cancelled}")
    )
    assert scenario.played_by("hasty") == scenario


async def test_two_runs_that_are_compared_say_who_clicked(play: Play, load: Load) -> None:
    scenarios = load(SCENARIO.replace("CONFIRM", "accept"))
    runs = [await play(scenarios, gold_model, user=user) for user in ("careful", "hasty")]
    assert Change(what="user", before="careful", after="hasty") in compare(*runs).changes


async def test_another_user_is_another_question(play: Play, load: Load, tmp_path: Path) -> None:
    scenarios = load(SCENARIO.replace("CONFIRM", "accept"))
    kept = []
    for user in ("script", "careful", "careful"):
        run = await play(scenarios, gold_model, user=user, run_dir=tmp_path)
        kept.append(run.kept)
    assert kept == [0, 0, 1]


async def test_a_careful_run_is_scored_again_as_it_was_played(
    play: Play, load: Load, toolset: Any
) -> None:
    scenarios = load(SCENARIO.replace("CONFIRM", "accept"))
    model = ScriptedModel([EGGS, MILK, BREAD, say("ok")])
    run = await play(scenarios, model, user="careful")
    again = rescore(run, scenarios, toolset)
    assert not again.skipped
    assert again.summary().confirm == run.summary().confirm
    assert again.summary().confirm.wrong_stopped == 1


@pytest.mark.anyio
async def test_replay_refuses_an_unknown_user_in_one_sentence(play: Play, load: Load) -> None:
    with pytest.raises(UsageError, match="Invalid user 'kind': choose one of script, careful"):
        await play(load(SCENARIO.replace("CONFIRM", "accept")), ScriptedModel(()), user="kind")
