"""The panel's buttons, pressed by a fake front end."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import ServerUnreachableError, UsageError
from lhkit.base.locales import available_locales, load_catalog
from lhkit.confirm.decision import QuestionOutcome
from lhkit.conversation.messages import ModelMessage, SystemMessage, ToolCallMessage
from lhkit.conversation.responses import ModelEvent, ModelIdentity, TextDelta
from lhkit.conversation.tool_results import ToolCancelled
from lhkit.models.base import ModelRequest
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.notebook.panel.state import CardItem, ErrorItem, ModelStatus, OptInRequested
from lhkit.settings import Settings
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareToolset, Session

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

MakePanel = Callable[..., ChatPanel]
MakeFrontEnd = Callable[[Any], Any]

WRITES = (call("write", a=1), say("done"))
EN = load_catalog("en")


class Endless:
    """A model that never stops talking and counts its streams that were closed."""

    identity = ModelIdentity(model="endless")

    def __init__(self) -> None:
        self.closed = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        assert request.messages
        try:
            while True:
                await asyncio.sleep(0)
                yield TextDelta(text="on ")
        finally:
            self.closed += 1

    async def aclose(self) -> None: ...


async def test_send_shows_both_messages(make_panel: MakePanel, front_end: MakeFrontEnd) -> None:
    panel = make_panel([say("hello")])
    page = front_end(panel)
    page.press("send", text="hi")
    await page.until(lambda: panel.state.has_figures and not panel.is_busy)
    assert [type(item).__name__ for item in panel.state.items] == [
        "UserMessage",
        "ModelMessage",
        "TruthItem",
    ]
    page.press("send", text="  ")
    await asyncio.sleep(0)
    assert len(panel.state.items) == 3


async def test_panel_requests_logprobs_only_if_asked(make_panel: MakePanel) -> None:
    given: list[dict[str, Any]] = [{}, {"logprobs": True}]
    for options in given:
        model = ScriptedModel([say("네")] * 2)
        panel = make_panel(model, **options)
        await panel.send("안녕")
        panel._conversation.set_catalog(load_catalog("en"))  # a new controller
        await panel.send("hello")
        assert [each.logprobs for each in model.requests] == [bool(options)] * 2


async def test_send_is_ignored_while_a_turn_runs(
    make_panel: MakePanel, front_end: MakeFrontEnd
) -> None:
    panel = make_panel(WRITES)
    page = front_end(panel)
    page.press("send", text="one")
    page.press("send", text="two")
    await page.until_asked()
    page.press("send", text="three")
    page.press("clear")
    page.press("retry")
    page.press("locale", value="en")
    page.answer("run")
    await page.until(lambda: not panel.is_busy)
    texts = [item.text for item in panel.state.chat.messages if hasattr(item, "text") and item.text]
    assert texts == ["one", "done"]


async def test_stop_closes_the_stream(make_panel: MakePanel, front_end: MakeFrontEnd) -> None:
    model = Endless()
    panel = make_panel(model)
    page = front_end(panel)
    page.press("send", text="talk")
    page.press("stop")
    await page.until(lambda: panel.state.has_figures and not panel.is_busy)
    page.press("send", text="talk")
    await page.until(lambda: len(panel.state.live or "") > 20)
    page.press("stop")
    await page.until(lambda: not panel.is_busy)
    assert model.closed >= 1
    assert panel.state.items[-2].stopped


async def test_stop_rejects_an_open_card(make_panel: MakePanel, front_end: MakeFrontEnd) -> None:
    panel = make_panel([call("write"), say("fine")])
    page = front_end(panel)
    page.press("send", text="write")
    await page.until_asked()
    page.press("stop")
    await page.until(lambda: not panel.is_busy)
    tool, card = panel.state.items[1:3]
    assert isinstance(tool, ToolCallMessage)
    assert tool.result == ToolCancelled()
    assert isinstance(card, CardItem)
    assert card.outcome is QuestionOutcome.STOPPED
    await panel.send("and now?")
    assert panel.state.items[-2] == ModelMessage(text="fine")


async def test_send_ends_the_turn_when_its_cell_is_interrupted(
    make_panel: MakePanel, front_end: MakeFrontEnd
) -> None:
    panel = make_panel(WRITES)
    page = front_end(panel)
    cell = asyncio.create_task(panel.send("write"))
    await page.until_asked()
    cell.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cell
    assert not panel.state.is_busy
    assert panel.state.items[2].outcome is QuestionOutcome.INTERRUPTED


async def test_send_answers_work_without_front_end(make_panel: MakePanel) -> None:
    panel = make_panel([*WRITES, *WRITES])
    await panel.send("write", answers=[True])
    assert panel.state.has_written({"write"})
    await panel.send("write", answers=[False])
    assert not panel.state.has_written({"write"})
    outcomes = [item.outcome for item in panel.state.items if isinstance(item, CardItem)]
    assert outcomes == [QuestionOutcome.CODE_YES, QuestionOutcome.CODE_NO]


async def test_send_answers_do_not_outlast_the_turn(
    make_panel: MakePanel,
) -> None:
    panel = make_panel([say("nothing to ask"), *WRITES])
    await panel.send("hi", answers=[True])
    await panel.retry()
    assert not panel.state.has_written({"write"})


async def test_retry_resumes_after_a_lost_server(
    make_panel: MakePanel, front_end: MakeFrontEnd
) -> None:
    panel = make_panel([Reply(error=ServerUnreachableError("nothing at x")), say("back")])
    await panel.send("hi")
    error = panel.state.items[-2]
    assert isinstance(error, ErrorItem)
    assert "연결할 수 없습니다" in error.text
    assert error.can_retry
    assert panel.state.connection is ModelStatus.LOST
    page = front_end(panel)
    page.press("retry")
    await page.until(lambda: not panel.is_busy and error not in panel.state.items[-2:])
    assert panel.state.items[-2] == ModelMessage(text="back")
    assert panel.state.connection is ModelStatus.READY


async def test_retry_never_repeats_a_write(make_panel: MakePanel) -> None:
    panel = make_panel([say("one"), say("two"), *WRITES])
    await panel.retry()  # nothing to repeat
    await panel.send("hi")
    await panel.retry()
    assert [item.text for item in panel.state.items[:-1]] == ["hi", "two"]
    await panel.send("write", answers=[True])
    await panel.retry()
    assert isinstance(panel.state.items[-1], SystemMessage)
    assert "이미 데이터를" in panel.state.items[-1].text


async def test_clear_empties_the_conversation(make_panel: MakePanel) -> None:
    panel = make_panel([say("one"), say("two")])
    await panel.send("hi")
    panel.clear()
    assert [type(item) for item in panel.state.items] == [SystemMessage]
    await panel.send("again")
    assert len(panel._conversation.model.requests[-1].messages) == 1


async def test_set_locale_keeps_the_conversation(
    make_panel: MakePanel, front_end: MakeFrontEnd
) -> None:
    panel = make_panel([say("안녕"), say("hello")])
    await panel.send("hi")
    front_end(panel).press("locale", value="en")
    assert panel.widget.labels["send"] == "Send"
    await panel.send("hi")
    assert len(panel._conversation.model.requests[-1].messages) == 3
    front_end(panel).press("locale", value="fr")
    assert isinstance(panel.state.items[-1], ErrorItem)


class Speaking:
    """Tools that refuse to speak English."""

    def __init__(self, refusal: Exception) -> None:
        self.refusal = refusal

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        if locale == "en":
            raise self.refusal
        return BareToolset(registry=ToolRegistry()).open(world, locale)


async def test_set_locale_unsupported_by_tools_changes_nothing(
    make_panel: MakePanel, front_end: MakeFrontEnd
) -> None:
    panel = make_panel([say("안녕")], toolset=Speaking(UsageError("no tool texts")))
    assert panel.widget.locales == ["ko"]
    before = panel.widget.labels
    front_end(panel).press("locale", value="en")
    assert isinstance(panel.state.items[-1], ErrorItem)
    assert panel.widget.labels == before
    await panel.send("안녕")
    assert isinstance(panel.state.items[-2], ModelMessage)


@pytest.mark.parametrize("refusal", [UsageError("no texts"), KeyError("en"), ValueError("en")])
async def test_panel_offers_only_supported_locales(
    make_panel: MakePanel, refusal: Exception
) -> None:
    assert make_panel([], toolset=Speaking(refusal)).widget.locales == ["ko"]


@pytest.mark.parametrize("locale", available_locales())
async def test_panel_shows_locales_by_their_own_names(make_panel: MakePanel, locale: str) -> None:
    panel = make_panel([], locale=locale)
    assert panel.widget.locales == list(available_locales())
    named = {each: panel.widget.labels[f"locale_{each}"] for each in panel.widget.locales}
    own = {each: load_catalog(each).text("notebook.locale_name") for each in available_locales()}
    assert named == own
    assert named.items() >= {"en": "English", "ko": "한국어"}.items()


async def test_opt_in_is_required_and_stored(
    make_panel: MakePanel, front_end: MakeFrontEnd, settings: Settings
) -> None:
    panel = make_panel([say("hello")], opt_in=False)
    assert isinstance(panel.state.items[0], OptInRequested)
    with pytest.raises(UsageError, match="opt_in"):
        await panel.send("hi")
    panel.clear()
    page = front_end(panel)
    page.press("send", text="hi")
    await page.until(lambda: isinstance(panel.state.items[-1], ErrorItem))
    assert panel._conversation.model.requests == []
    page.press("opt_in")
    assert not panel.state.needs_opt_in
    await panel.send("hi")
    assert panel.state.items[-2] == ModelMessage(text="hello")
    assert not make_panel([say("hello")], opt_in=False).state.needs_opt_in
    (settings.config_dir / "chat-opt-in.json").write_text("[broken")
    assert make_panel([say("hello")], opt_in=False).state.needs_opt_in


async def test_panel_exports_files_and_a_scenario(
    make_panel: MakePanel, front_end: MakeFrontEnd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = make_panel(WRITES)
    await panel.send("write `it`", answers=[True])
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(panel.widget, "send", sent.append)
    page = front_end(panel)
    page.press("export", format="markdown")
    page.press("export", format="json")
    markdown, exported = [each for each in sent if each["type"] == "file"]
    assert "> write `it`" in markdown["text"]
    roles = [entry["role"] for entry in json.loads(exported["text"])["messages"]]
    assert roles == ["user", "tool", "confirm", "assistant", "truth"]
    monkeypatch.chdir(tmp_path)
    page.press("scenario")
    assert [path.suffix for path in (tmp_path / "scenarios").iterdir()] == [".yaml"]
    assert "시나리오를 저장했습니다" in panel.state.items[-1].text


async def test_widget_state_contains_all_messages(make_panel: MakePanel) -> None:
    panel = make_panel([say("hello")])
    await panel.send("hi")
    state = panel.widget.get_state()
    assert len(state["fragments"]) == 3
    assert "hello" in state["fragments"][1]
    assert state["revision"] > 0


async def test_close_ends_the_turn(make_panel: MakePanel, front_end: MakeFrontEnd) -> None:
    panel = make_panel(WRITES)
    page = front_end(panel)
    turn = asyncio.create_task(panel.send("write"))
    await page.until_asked()
    panel.close()
    await turn
    assert not panel.state.has_written({"write"})


async def test_widget_replaces_lone_surrogates(make_panel: MakePanel) -> None:
    half = "half of a pair: \ud83d"
    panel = make_panel([call("write", a=half), say(half)], locale="en")
    await panel.send(half, answers=[True])
    state = panel.widget.get_state(["fragments", "status"])
    encoded = json.dumps(state, ensure_ascii=False)
    assert encoded.encode()  # as the kernel's messages are
    assert encoded.count("half of a pair: \ufffd") >= 2
    assert repr(panel).encode()
