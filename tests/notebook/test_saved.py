"""The copy of a panel that a notebook file keeps: readable alone, escaped, of limited size."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from lhkit.base.locales import load_catalog
from lhkit.chat.state import ChatState, Transcript
from lhkit.confirm.decision import QuestionOutcome
from lhkit.confirm.gate import ConfirmRequest
from lhkit.conversation.messages import (
    ModelMessage,
    ToolCall,
    ToolCallMessage,
    ToolCallOutcome,
    UserMessage,
)
from lhkit.conversation.tool_results import ToolOk
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.notebook.boards.ab import ABPanel
from lhkit.notebook.boards.review import Review
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.notebook.panel.saved import (
    MAX_PAGE_CHARS,
    MAX_VALUE_CHARS,
    saved_conversation,
    saved_lines,
    saved_page,
)
from lhkit.notebook.panel.state import CardItem, Item, PanelState
from lhkit.settings import Settings
from tests.notebook.conftest import REGISTRY
from tests.notebook.test_render import ITEMS, Elements, panel_state
from tests.rows import check_rows

EN = load_catalog("en")
STATIC_TAGS = {"div", "style", "p", "b", "i", "pre", "code", "details", "summary", "span"}
STATIC_TAGS |= {"section", "h4", "del", "ins", "ul", "li"}
STATIC_ATTRIBUTES = {"class", "lang", "data-kind", "role", "data-empty", "data-verdict"}
STATIC_ATTRIBUTES |= {"data-current", "aria-current", "data-role", "tabindex"}
REQUEST = ConfirmRequest(tool="write", description="Write.", args={"a": 1}, summary='{"a": 1}')
HELLO = UserMessage(text="hello")

MakePanel = Callable[..., ChatPanel]


def page_of(*items: Item) -> str:
    return saved_page(saved_conversation(panel_state(*items), EN), EN)


def require_static(html: str) -> None:
    """Check that a page has no script, control, image or handler."""
    elements = Elements(html)
    assert elements.tags <= STATIC_TAGS
    assert elements.attributes <= STATIC_ATTRIBUTES


@check_rows("item", ITEMS, ids=lambda item: type(item).__name__)
def test_saved_page_escapes_html_and_has_no_controls(item: Item) -> None:
    require_static(page_of(HELLO, item))


def test_saved_page_shows_direction_characters_and_lone_surrogates() -> None:
    html = page_of(UserMessage(text="a\u202eb"), ModelMessage(text="c\ud800\u2066d"))
    assert not {"\u202e", "\u2066", "\ud800"} & {*html}
    html.encode()


@check_rows(
    ("item", "expected", "absent"),
    [
        (CardItem(card="1", request=REQUEST), "Not answered", "Done"),
        (CardItem(card="1", request=REQUEST, outcome=QuestionOutcome.RUN), "Done", "Not answered"),
        (
            CardItem(card="1", request=REQUEST, outcome=QuestionOutcome.CANCEL, reason="too late"),
            "too late",
            "Not answered",
        ),
        (
            CardItem(card="1", request=REQUEST, outcome=QuestionOutcome.RUN, proposed={"a": 7}),
            "<del>7</del>",
            "Not answered",
        ),
    ],
)
def test_saved_card_says_how_it_was_answered(item: Item, expected: str, absent: str) -> None:
    html = page_of(HELLO, item)
    assert expected in html
    assert absent not in html
    assert "hello" in html


def test_saved_card_has_the_title_of_the_live_card() -> None:
    titled = replace(REQUEST, title="쓰기")
    html = page_of(HELLO, CardItem(card="1", request=titled))
    assert "쓰기" in html
    assert "Write." not in html
    assert "Write." in page_of(HELLO, CardItem(card="1", request=REQUEST))


def test_saved_call_shows_what_ran_after_an_edit() -> None:
    outcome = ToolCallOutcome(
        result=ToolOk({}), ran=True, args={"start": "16:00"}, run_args={"start": "17:00"}
    )
    item = ToolCallMessage(call=ToolCall(name="book", args={"start": "16:00"}), outcome=outcome)
    html = page_of(HELLO, item)
    assert "17:00" in html
    assert "16:00" not in html
    assert "Edited" in html


def test_saved_page_without_messages_shows_nothing() -> None:
    html = saved_page(saved_conversation(PanelState(), EN), EN, note="a note")
    assert "data-empty" in html
    assert "a note" not in html


def test_saved_page_keeps_the_last_messages_within_its_size() -> None:
    messages = [UserMessage(text=f"number {number} " + "<" * 3000) for number in range(200)]
    state = PanelState(chat=ChatState(transcript=Transcript(messages=tuple(messages))))
    html = "".join(saved_conversation(state, EN))
    assert len(html) < 1.2 * MAX_PAGE_CHARS
    assert "number 199 " in html
    assert "number 0 " not in html
    left_out = 200 - html.count("number ")
    assert f"Earlier entries left out: {left_out}." in html
    text = saved_lines((message.text for message in messages), EN)
    assert len(text) < 1.2 * MAX_PAGE_CHARS
    assert text.startswith("Earlier entries left out: ")


def test_saved_page_cuts_large_values() -> None:
    item = ToolCallMessage.of(name="big", args={}, result=ToolOk({"rows": "x" * 100_000}))
    html = page_of(HELLO, item, ModelMessage(text="y" * 100_000))
    assert len(html) < 5 * MAX_VALUE_CHARS
    assert "[100,000]" in html


@pytest.mark.anyio
async def test_saved_ab_copy_shows_both_sides_and_no_model_before_the_vote(
    tmp_path: Path, settings: Settings
) -> None:
    models = [
        ScriptedModel([call("write", a=1), say("written <b>")], name="bare-1"),
        ScriptedModel([say("nothing")], name="tuned-1"),
    ]
    panel = ABPanel(
        models=models,
        toolset=REGISTRY,
        record=tmp_path / "ab",
        opt_in=True,
        draw=lambda: False,
        locale="en",
        settings=settings,
    )
    assert "data-empty" in panel._copy()[0]
    await panel.send("do it", answers=[True])
    html, _ = panel._copy()
    require_static(html)
    assert html.count("do it") == 2
    assert "written" in html
    assert not {"bare-1", "tuned-1"} & {*html.replace("<", " ").replace(">", " ").split()}
    panel.vote("left", "quicker")
    panel.unblind()
    html, text = panel._copy()
    for words in ("bare-1", "tuned-1", "quicker"):
        assert words in html
        assert words in text


@pytest.mark.anyio
async def test_saved_review_copy_shows_the_conversation_and_its_labels(
    tmp_path: Path, make_panel: MakePanel
) -> None:
    panel = make_panel([call("write", a=1), say("written")], locale="en", record=tmp_path / "chats")
    await panel.send("<i>do it</i>", answers=[True])
    review = Review(tmp_path / "chats", toolset=REGISTRY, locale="en")
    review.judge("wrong")
    html, _ = review._copy()
    require_static(html)
    assert "&lt;i&gt;do it" in html
    assert 'data-verdict="wrong"' in html


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # zmq sockets closed by the collector
def test_executed_notebook_keeps_what_later_cells_say() -> None:
    def run(*cells: str) -> Any:
        made = [nbformat.v4.new_code_cell(cell) for cell in cells]
        notebook = nbformat.v4.new_notebook(cells=made)
        NotebookClient(notebook, kernel_name="python3").execute()
        return [cell.outputs for cell in notebook.cells]

    (shown, again), silent, *_ = run(
        'from lhkit.notebook import demo_panel\npanel = demo_panel(locale="en", pace_s=0)\npanel',
        'await panel.send("Add a habit to cut caffeine", answers=[True])',
        'print(panel)\nawait panel.send("List my habits")',
    )
    assert shown.data["text/plain"] == "ChatPanel(model='scripted-demo', locale='en')"
    assert "application/vnd.jupyter.widget-view+json" in shown.data
    assert silent == []
    for mime in ("text/html", "text/plain"):
        for words in ("cut caffeine", "Changed: habits +1", "List my habits"):
            assert words in again.data[mime]


def test_saved_note_fits_a_model_and_a_board() -> None:
    for name in ("gemma", EN.text("review.title"), EN.text("ab.title")):
        assert f"keeps ({name})." in EN.text("notebook.saved", name=name)
