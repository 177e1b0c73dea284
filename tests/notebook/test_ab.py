"""A/B panel: blinded models with separate state, and recorded votes."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import RunError, ServerUnreachableError, UsageError
from lhkit.base.locales import load_catalog
from lhkit.chat.assistant import Assistant
from lhkit.confirm.decision import QuestionOutcome
from lhkit.conversation.events import EndReason
from lhkit.conversation.messages import ToolCall, ToolCallMessage
from lhkit.conversation.responses import ModelIdentity
from lhkit.conversation.tool_results import ToolOk
from lhkit.harness.records.record import Preference, Verdict
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.notebook.boards.ab import ABPanel, folder_names
from lhkit.notebook.boards.board_state import ABState, Stage, VoteChoice
from lhkit.notebook.boards.board_view import ab_parts
from lhkit.notebook.panel.render import render
from lhkit.notebook.panel.state import ErrorItem, OptInRequested, PanelNotice, PanelState
from lhkit.settings import Settings
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareSession, BareToolset, Session
from tests.children import run_to_its_death
from tests.notebook.conftest import FrontEnd
from tests.notebook.test_render import EVIL, HIDDEN, Elements

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

NOTES = ToolRegistry([echo_tool("write", is_destructive=True), echo_tool("look")])

MakeAB = Callable[..., ABPanel]

DYING = """
import asyncio, os, signal
from pathlib import Path
from lhkit.harness.records.store import Journal
from lhkit.harness.records.record import encode_record
from lhkit.models.recorded.scripted import ScriptedModel, say
from lhkit.notebook import ABPanel
from lhkit.settings import Settings
from lhkit.testing import echo_tool
from lhkit.tools.registry import ToolRegistry

whole = Journal.append

def between(self, record):
    if record.vote is not None and self.folder.name == "second":
        self._file.write(encode_record(record).encode()[:-40])
        self._file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    whole(self, record)

async def chat():
    models = [ScriptedModel([say("one")] * 3, name=name) for name in ("first", "second")]
    panel = ABPanel(models=models, toolset=ToolRegistry([echo_tool("look")]), record="runs/ab",
                    opt_in=True, draw=lambda: False, settings=Settings(config_dir=Path("config")))
    await panel.send("hello")
    panel.vote("left", "shorter")
    await panel.send("again")
    Journal.append = between
    panel.vote("right")

asyncio.run(chat())
"""


@pytest.fixture
def make_ab(settings: Settings, tmp_path: Path) -> MakeAB:
    def made(first: Iterable[Reply], second: Iterable[Reply], **options: Any) -> ABPanel:
        models = [ScriptedModel(first, name="bare"), ScriptedModel(second, name="tuned")]
        given = {
            "models": models,
            "toolset": NOTES,
            "record": tmp_path / "ab",
            "opt_in": True,
            "draw": lambda: False,
            "locale": "en",
            "settings": settings,
            **options,
        }
        return ABPanel(**given)

    return made


def press(panel: ABPanel, name: str, value: str = "", **fields: str) -> None:
    content = {"type": "press", "press": name, "value": value, "fields": fields, "view": "page"}
    panel._board.take_message(content)


def pages(panel: ABPanel) -> list[FrontEnd]:
    return [FrontEnd(chat.screen) for chat in panel._sides]


def panel_text(panel: ABPanel) -> str:
    return "".join(panel._board.parts)


def runs(tmp_path: Path) -> tuple[Run, Run]:
    return Run.load(tmp_path / "ab/bare"), Run.load(tmp_path / "ab/tuned")


@pytest.mark.longer
async def test_ab_votes_are_compared_as_pairs_by_person(make_ab: MakeAB, tmp_path: Path) -> None:
    for person, choices in (("kim", ["left"] * 6), ("lee", ["right", "tie", "both_bad"])):
        replies = [say("hi")] * len(choices)
        panel = make_ab(replies, replies, person=person)
        for number, choice in enumerate(choices):
            await panel.send(f"message {number}")
            panel.vote(choice, f"because {number}")
    comparison = compare(*runs(tmp_path))
    assert (len(comparison.regressions), len(comparison.improvements), len(comparison.pairs)) == (
        6,
        1,
        9,
    )
    kim, lee = comparison.people
    assert (kim.person, kim.votes, kim.preferred_a, kim.preferred_b) == ("kim", 6, 6, 0)
    assert kim.p_value == pytest.approx(2 * 0.5**6)
    assert kim.interval is not None
    assert -1.0 in kim.interval
    assert (lee.preferred_a, lee.preferred_b, lee.votes) == (0, 1, 3)
    assert lee.p_value == 1.0
    bare, _ = runs(tmp_path)
    assert bare.records[0].score.reasons == ("better", "because 0")
    assert {each["model"] for each in bare.manifest.models} == {"bare"}


@pytest.mark.longer
async def test_ab_vote_is_stored_by_model_not_by_side(make_ab: MakeAB, tmp_path: Path) -> None:
    orders = iter([False, True, False])
    panel = make_ab([say("hi")] * 2, [say("hi")] * 2, draw=lambda: next(orders))
    for choice in ("left", "left"):  # the second order is the other way round
        panel.begin()
        await panel.send("hello")
        panel.vote(choice)
    bare, tuned = (run.records for run in runs(tmp_path))
    preferences = [each.vote.preference for each in bare if each.vote]
    assert preferences == [Preference.WORSE, Preference.BETTER]
    assert [each.vote.side for each in tuned if each.vote] == ["left", "right"]
    assert [each.score.verdict for each in tuned] == [Verdict.PASS, Verdict.FAIL]


@pytest.mark.slow
def test_ab_keeps_votes_after_kernel_kill(tmp_path: Path) -> None:
    run_to_its_death(DYING, folder=tmp_path)
    first, second = (Run.load(tmp_path / "runs/ab" / name) for name in ("first", "second"))
    comparison = compare(first, second)
    assert [pair.gain for pair in comparison.pairs] == [-1, 1]
    assert comparison.people[0].votes == 2
    assert comparison.pairs[0].a.vote is not None
    assert comparison.pairs[0].a.vote.reason == "shorter"


async def test_ab_reveals_models_only_after_vote(
    make_ab: MakeAB,
) -> None:
    raw = 'write(secret_dialect="json")'
    first = [Reply(calls=(ToolCall(name="write", args={"a": 1}, raw=raw),)), say("done")]
    down = ServerUnreachableError("http://tuned:8000 is down")
    panel = make_ab(first, [Reply(error=down), say("done")])
    await panel.send("write", answers=[True])
    assert panel.state.stage is Stage.FAILED
    with pytest.raises(UsageError, match="a vote is possible after both models"):
        panel.vote("left")
    await panel.retry()
    assert panel.state.stage is Stage.VOTING
    before = repr(panel.sides) + panel_text(panel) + repr(panel)
    assert not re.search(r"bare|tuned|scripted|secret_dialect", before)
    assert all(side.identity is None for side in panel.sides)
    calls = [item for item in panel.sides[0].items if isinstance(item, ToolCallMessage)]
    assert [each.raw for each in calls] == [""]
    details = [item.detail for item in panel.sides[1].items if isinstance(item, ErrorItem)]
    assert details == [""]
    with pytest.raises(UsageError, match="vote first"):
        panel.unblind()
    panel.vote("left")
    panel.unblind()
    after = panel_text(panel)
    # the tool has no argument `a`, which was dropped
    ran = "write {} → ok · Done (answered from code)"
    for text in ("bare", "tuned", ran, "Raw text"):
        assert text in after
    with pytest.raises(UsageError, match="until they are revealed"):
        panel.vote("right")


@pytest.mark.longer
async def test_ab_can_vote_on_a_turn_over_the_limit(make_ab: MakeAB, tmp_path: Path) -> None:
    endless = [call("look", a=number) for number in range(9)]
    panel = make_ab(endless, [say("hi")])
    await panel.send("look")
    assert runs(tmp_path)[0].records[0].trajectory.turns[0].ended is EndReason.TOO_LONG
    panel.vote("right")
    assert [run.records[0].score.verdict for run in runs(tmp_path)] == ["fail", "pass"]


def note_into(rows: Callable[[Any], list[Any]]) -> ToolRegistry:
    """Return a tool that writes its number into rows, and tells them."""

    def note(args: Any, deps: Any) -> ToolOk:
        rows(deps).append(args["a"])
        return ToolOk({"rows": [*rows(deps)]})

    schema = object_schema("a", a={"type": "integer"})
    return ToolRegistry([echo_tool("note", parameters=schema, handler=note, is_destructive=True)])


class Shelves:
    """A toolset whose sessions' handlers close over rows of their own."""

    def open(self, world: Any, locale: str) -> Session:
        rows = [each["a"] for each in world["rows"]]
        registry = note_into(lambda _deps: rows)
        return BareSession(registry=registry, assistant=Assistant(), today=date(2026, 6, 15))


@pytest.mark.parametrize("is_bare", [True, False])
async def test_ab_sides_have_separate_state_per_conversation(
    settings: Settings, tmp_path: Path, is_bare: bool
) -> None:
    store = [0]
    bare: dict[str, Any] = {
        "toolset": BareToolset(registry=note_into(lambda deps: deps)),
        "store": store,
    }
    panel = ABPanel(
        models=[ScriptedModel([call("note", a=n), say("ok")] * 2, name=f"m{n}") for n in (1, 2)],
        **(bare if is_bare else {"toolset": Shelves(), "world": {"rows": [{"a": 0}]}}),
        record=tmp_path / "ab",
        opt_in=True,
        draw=lambda: False,
        settings=settings,
    )
    for _ in range(2):
        await panel.send("note", answers=[True])
        for number, side in enumerate(panel.sides, start=1):
            (item,) = (each for each in side.items if isinstance(each, ToolCallMessage))
            assert item.result == ToolOk({"rows": [0, number]})
        panel.vote("tie")
    assert store == [0]


async def test_ab_cards_are_answered_per_side_and_stop_cancels_both(
    make_ab: MakeAB,
) -> None:
    panel = make_ab([call("write", a=1), say("x")] * 2, [call("write", a=2), say("y")] * 2)
    left, right = pages(panel)
    press(panel, "send", message="write")
    await left.until_asked()
    await right.until_asked()
    left.answer("run")
    await left.until(lambda: _outcomes(panel.sides[0]) == [QuestionOutcome.RUN])
    assert panel.sides[1].open_card is not None
    right.press("answer", card="another", how="run")
    right.answer("escape")
    await left.until(lambda: panel.state.stage is Stage.VOTING)
    assert _ran(panel.sides[0]) == [True]
    assert _ran(panel.sides[1]) == [False]
    press(panel, "send", message="write again")
    await left.until_asked()
    await right.until_asked()
    press(panel, "stop")
    await left.until(lambda: not panel.is_busy)
    assert [_outcomes(side)[-1] for side in panel.sides] == [QuestionOutcome.STOPPED] * 2
    assert [_ran(side)[-1] for side in panel.sides] == [False, False]


async def test_ab_answer_applies_to_one_card(make_ab: MakeAB) -> None:
    panel = make_ab([call("write", a=1), say("x")], [call("write", a=2), say("y")])
    left, right = pages(panel)
    press(panel, "send", message="write")
    await left.until_asked()
    await right.until_asked()
    card = panel.sides[1].open_card
    assert card is not None
    panel.answer(card.card, True)
    panel.answer(card.card, True)
    panel.answer("another", True)
    await left.until(lambda: _outcomes(panel.sides[1]) == [QuestionOutcome.CODE_YES])
    assert panel.sides[0].open_card is not None
    left.answer("cancel")
    await left.until(lambda: panel.state.stage is Stage.VOTING)
    assert [_ran(side) for side in panel.sides] == [[False], [True]]


async def test_ab_writes_nothing_without_front_end(
    make_ab: MakeAB,
) -> None:
    panel = make_ab([call("write"), say("x")], [call("write"), say("y")])
    await panel.send("write")
    assert [_ran(side) for side in panel.sides] == [[False], [False]]


def _outcomes(side: PanelState) -> list[QuestionOutcome]:
    return [each.outcome for each in side.items if hasattr(each, "outcome") and each.outcome]


def _ran(side: PanelState) -> list[bool]:
    return [bool(e.outcome and e.outcome.ran) for e in side.items if isinstance(e, ToolCallMessage)]


async def test_ab_keys_vote_and_add_a_reason(make_ab: MakeAB, tmp_path: Path) -> None:
    panel = make_ab([say("hi")] * 2, [say("hi")] * 2)
    press(panel, "vote", "left")  # no message yet
    assert panel.state.choice is None
    await panel.send("hello")
    press(panel, "vote", "nonsense")
    assert panel.state.choice is None
    press(panel, "vote", "right")
    press(panel, "reason", **{f"reason-{panel.state.conversation}": "  it is <b>shorter</b>  "})
    assert panel.state.votes == 1
    bare, _ = runs(tmp_path)
    assert bare.records[0].score.reasons == ("worse", "it is <b>shorter</b>")
    press(panel, "unblind")
    press(panel, "vote", "left")  # too late
    assert panel.state.choice is VoteChoice.RIGHT
    await panel.send("another")
    assert panel.state.choice is None
    assert len(runs(tmp_path)[0].records) == 2


async def test_ab_sends_nothing_before_opt_in(make_ab: MakeAB, settings: Settings) -> None:
    panel = make_ab([say("hi")], [say("hi")], opt_in=False)
    with pytest.raises(UsageError, match="the user has not consented"):
        await panel.send("hello")
    shown = panel_text(panel)
    assert "both models, left and right (inside this kernel)" in shown
    assert not re.search("bare|tuned", shown), "blind: no name before the vote"
    press(panel, "opt_in")
    await panel.send("hello")
    assert panel.state.stage is Stage.VOTING
    assert len(json.loads((settings.config_dir / "chat-opt-in.json").read_text())["agreed"]) == 2
    assert make_ab([], [], opt_in=False).state.stage is Stage.READY


async def test_ab_consent_names_the_addresses_of_both_models(make_ab: MakeAB) -> None:
    def served(name: str, port: int) -> ScriptedModel:
        address = f"http://127.0.0.1:{port}"
        return ScriptedModel([], identity=ModelIdentity(model=name, server="", base_url=address))

    known, other = served("known", 8001), served("other", 8002)
    make_ab([], [], opt_in=False, models=[known, served("third", 8003)]).opt_in()
    shown = panel_text(make_ab([], [], opt_in=False, models=[known, other]))
    assert "(http://127.0.0.1:8001, http://127.0.0.1:8002)" in shown


async def test_ab_shows_write_error_and_no_vote(make_ab: MakeAB, tmp_path: Path) -> None:
    panel = make_ab([say("hi")], [say("hi")])
    (tmp_path / "ab").write_text("a file is in the way", encoding="utf-8")
    await panel.send("hello")
    assert any(each.is_error for each in panel.state.notices)
    with pytest.raises(RunError):
        panel.vote("left")
    assert panel.state.choice is None
    (tmp_path / "ab").unlink()
    panel.vote("left")
    assert [each.vote is not None for run in runs(tmp_path) for each in run.records] == [True] * 2


async def test_ab_rejects_another_model_of_the_same_name(
    make_ab: MakeAB, settings: Settings, tmp_path: Path
) -> None:
    await make_ab([say("hi")], [say("hi")]).send("hello")
    other = ScriptedModel([], identity=ModelIdentity(model="bare", weights_sha256="0" * 64))
    with pytest.raises(UsageError, match="another model with the same name"):
        ABPanel(
            models=[other, ScriptedModel([], name="tuned")],
            toolset=NOTES,
            record=tmp_path / "ab",
            settings=settings,
        )
    with pytest.raises(UsageError, match="needs two models: got 1"):
        ABPanel(models=[other], record=tmp_path / "other", settings=settings)


def test_folder_names_are_distinct() -> None:
    def named(*models: tuple[str, str]) -> tuple[str, ...]:
        return folder_names(
            [ModelIdentity(model=model, dialect=dialect) for model, dialect in models]
        )

    assert named(("google/gemma", ""), ("../tuned", "")) == ("google-gemma", "tuned")
    assert named(("gemma", "json"), ("gemma", "gemma4")) == ("gemma-json", "gemma-gemma4")
    assert named(("gemma", ""), ("gemma", "")) == ("gemma-a", "gemma-b")


async def test_ab_escapes_invisible_characters(make_ab: MakeAB) -> None:
    english = load_catalog("en")
    replies = [call("look", **{HIDDEN: HIDDEN}), say(HIDDEN)]
    panel = make_ab(replies, replies)
    await panel.send(HIDDEN)
    panel.vote("tie", HIDDEN)
    panel.unblind()
    sides = [
        item.html for chat in panel._sides for item in render(chat.screen.state, english).fragments
    ]
    for html in (*ab_parts(panel.state, english), *sides):
        read = Elements(html).read
        assert not set(read) & set(HIDDEN) - set("bo")
    assert "".join(Elements(each).read for each in sides).count("\\u3164\\xa0\\u2800") >= 4


@pytest.mark.parametrize("locale", ["ko", "en"])
async def test_ab_board_escapes_html(make_ab: MakeAB, locale: str) -> None:
    catalog = load_catalog(locale)
    panel = make_ab([call(EVIL, **{EVIL: EVIL}), say(EVIL)], [say(EVIL)])
    await panel.send(EVIL)
    panel.vote("tie", EVIL)
    panel.unblind()
    revealed = panel.state.revealed
    assert revealed is not None
    named = [replace(each, identity=ModelIdentity(model=EVIL, dialect=EVIL)) for each in revealed]
    with_notice = replace(panel.state, notices=(PanelNotice(text=EVIL, is_error=True),))
    asked = ABState(
        stage=Stage.OPT_IN, opt_ins=(OptInRequested(model=EVIL, address=EVIL, licence=EVIL),)
    )
    unblinded = replace(with_notice, revealed=(named[0], named[1]))
    for state in (unblinded, replace(with_notice, stage=Stage.VOTED), asked):
        _is_harmless("".join(ab_parts(state, catalog)))


def _is_harmless(html: str) -> None:
    elements = Elements(html)
    assert elements.tags <= {
        *("div", "span", "button", "kbd", "textarea", "input", "ul", "li", "pre"),
        *("table", "caption", "thead", "tbody", "tr", "th", "td"),
    }
    assert not any(name.startswith("on") for name in elements.attributes)
    assert "src" not in elements.attributes


async def test_ab_sides_take_edits_and_reasons(make_ab: MakeAB) -> None:
    """Each side's card is decided by itself; the revealed calls tell how."""
    writes = [call("write", a=1), say("done")]
    schema = object_schema(a={"type": "integer"})
    tool = echo_tool("write", parameters=schema, is_destructive=True)
    panel = make_ab(writes, writes, toolset=ToolRegistry([tool]))
    press(panel, "send", message="write")
    left, right = pages(panel)
    await left.until_asked()
    await right.until_asked()
    left.answer("edit")
    left.answer("check", fields={"a": "2"})
    left.answer("run")
    right.answer("cancel", reason="not <b>now</b>")
    await left.until(lambda: panel.state.stage is Stage.VOTING)
    read = [str(side.screen._document()[0]) for side in (left, right)]
    assert "Ran: write · 2 (edited: a 1 → 2)" in read[0]
    assert "Not run: write" in read[1]
    assert "not &lt;b&gt;now" in read[1]
    panel.vote("left")
    panel.unblind()
    assert "write {&#34;a&#34;:2} (Edited {&#34;a&#34;:2}) → ok · Done" in panel_text(panel)
    assert "→ Cancelled not &lt;b&gt;now" in panel_text(panel)
