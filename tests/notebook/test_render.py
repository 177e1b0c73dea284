"""State to HTML: escaped, reused where nothing changed, small where an answer streams."""

import re
from dataclasses import replace
from html.parser import HTMLParser

from lhkit.base.locales import load_catalog
from lhkit.chat.state import ChatState
from lhkit.confirm.decision import QuestionOutcome
from lhkit.confirm.form import Form, parse_form
from lhkit.confirm.gate import ConfirmRequest
from lhkit.conversation.messages import (
    ModelMessage,
    SystemMessage,
    ToolCall,
    ToolCallMessage,
    UserMessage,
)
from lhkit.conversation.responses import ModelIdentity
from lhkit.conversation.tool_results import ToolErr, ToolOk
from lhkit.notebook.panel.markdown import MAX_MARKDOWN_CHARS
from lhkit.notebook.panel.render import MAX_VALUE_CHARS, fragment, patches, render
from lhkit.notebook.panel.state import (
    CardItem,
    ErrorItem,
    Item,
    OptInRequested,
    PanelState,
    TurnFigures,
)
from tests.rows import check_rows

KO = load_catalog("ko")
EVIL = "<img src=x onerror=alert(1)>\"'><script>alert(1)</script> data-answer=run"
REQUEST = ConfirmRequest(tool=EVIL, description=EVIL, args={}, summary=EVIL)

TITLED = {"const": EVIL, "title": EVIL}
FORM = parse_form(
    {
        "properties": {
            EVIL: {"type": "string", "title": EVIL, "description": EVIL, "default": EVIL},
            "one": {"type": "string", "oneOf": [TITLED], "default": EVIL},
            "json": {"type": "string", "enum": [EVIL], "enumNames": [EVIL]},
        },
        "required": [EVIL],
    },
    "the password",
    KO,
)
ASKED = CardItem(card="1", request=REQUEST, form=FORM, errors={EVIL: EVIL, "one": EVIL})

ITEMS: tuple[Item, ...] = (
    UserMessage(text=EVIL),
    ModelMessage(text=EVIL),
    ToolCallMessage.of(name=EVIL, args={EVIL: EVIL}, raw=EVIL, result=ToolOk({EVIL: EVIL})),
    ToolCallMessage.of(name=EVIL, args=EVIL, result=ToolErr(EVIL, EVIL)),
    ToolCallMessage(call=ToolCall(name=EVIL, args=object())),
    CardItem(card="1", request=REQUEST),
    CardItem(card="1", request=REQUEST, outcome=QuestionOutcome.RUN),
    ASKED,
    SystemMessage(text=EVIL),
    ErrorItem(text=EVIL, detail=EVIL, can_retry=True),
    OptInRequested(model=EVIL, address=EVIL, licence=EVIL),
)


def streaming(text: str) -> PanelState:
    """Return a panel in which an answer streams."""
    return PanelState(chat=ChatState(streaming_text=text, is_streaming=True))


def panel_state(*items: Item) -> PanelState:
    """Return a panel that lists these items."""
    return PanelState(extras=tuple((0, item) for item in items))


class Elements(HTMLParser):
    """Collects the tags and attributes of HTML as a browser would read it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.read = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.read += data


@check_rows("item", ITEMS, ids=lambda item: type(item).__name__)
def test_fragment_escapes_html(item: Item) -> None:
    elements = Elements(fragment(item, KO))
    harmless = {"div", "span", "details", "summary", "pre", "button", "p", "code", "ul", "li"}
    harmless |= {"label", "input", "textarea", "select", "option"}
    assert elements.tags <= harmless
    assert not any(name.startswith("on") for name in elements.attributes)
    assert "src" not in elements.attributes


def test_fragment_cuts_large_values() -> None:
    rows = ["<b>가" * 500_000] * 4
    item = ToolCallMessage.of(
        name="big", args={"all": "x" * 100_000}, result=ToolOk({"rows": rows})
    )
    html = fragment(item, KO)
    assert len(html) < 10 * MAX_VALUE_CHARS
    assert "[8,000," in html  # how long it was


def test_streamed_text_is_escaped() -> None:
    view = render(streaming(EVIL), KO)
    assert Elements(view.fragments[-1].html).tags == {"div"}


def test_status_escapes_the_model_name() -> None:
    identity = ModelIdentity(model=EVIL, dialect=EVIL)
    assert Elements(render(PanelState(identity=identity), KO).status).tags == {"span"}


@check_rows(
    "state",
    [
        streaming("Run deletes \u202etxt.exe\u2066"),
        *(
            panel_state(item)
            for item in (
                UserMessage(text="delete \u202etxt.exe\u2066"),
                ModelMessage(text="**Run** deletes \u202etxt.exe\u2066"),
                ModelMessage(text="Run deletes &#x202e;txt.exe&#8294;"),
                ModelMessage(text=f"{'a ' * MAX_MARKDOWN_CHARS}\u202etxt.exe\u2066"),
                SystemMessage(text="press Run for \u202etxt.exe\u2066"),
                ErrorItem(text="no \u202etxt.exe\u2066", can_retry=True),
            )
        ),
    ],
)
def test_render_shows_direction_characters(state: PanelState) -> None:
    read = Elements(render(state, KO).fragments[-1].html).read
    assert "\\u202etxt.exe\\u2066" in read
    assert not {"\u202e", "\u2066"} & set(read)


def test_streamed_text_shows_direction_characters() -> None:
    before = render(streaming("Run deletes "), KO)
    after = render(
        streaming("Run deletes \u202etxt"),
        KO,
        before,
    )
    assert patches(before, after) == [["append", 0, "\\u202etxt"]]


def test_render_normalises_line_ends() -> None:
    live = render(streaming("one\r\ntwo"), KO).fragments[-1]
    assert (live.stream, "one\ntwo" in live.html) == ("one\ntwo", True)
    assert "\\x0d" not in fragment(ModelMessage(text="one\r\ntwo"), KO)


def test_card_has_buttons_only_while_open() -> None:
    is_open = fragment(CardItem(card="7", request=REQUEST), KO)
    assert 'role="alertdialog"' in is_open
    assert 'data-state="open"' in is_open
    assert is_open.count("<button") == 2
    for outcome in QuestionOutcome:
        html = fragment(CardItem(card="7", request=REQUEST, outcome=outcome), KO)
        state = "allowed" if outcome.is_allowed else "denied"
        assert f'data-state="{state}"' in html
        assert "<button" not in html
        assert KO.text(f"notebook.outcome_{outcome}") in html


def test_form_shows_fields_errors_and_buttons() -> None:
    html = fragment(ASKED, KO)
    assert 'role="dialog"' in html
    assert [f'data-answer="{how}"' in html for how in ("cancel", "decline", "send")] == [True] * 3
    assert 'data-answer="run"' not in html
    assert html.count('aria-invalid="true"') == 2
    for telling in re.findall(r'aria-describedby="(lhkit-f[^"]*)"', html):
        assert html.count(f'id="{telling}"') == 1
    assert KO.text("form.secret") in html
    assert KO.text("form.title") in html
    answered = fragment(replace(ASKED, outcome=QuestionOutcome.SENT), KO)
    assert "<input" not in answered
    assert KO.text("notebook.outcome_sent") in answered


def test_form_without_fields_is_an_alert() -> None:
    html = fragment(CardItem(card="7", request=REQUEST, form=Form(given={"sure": True})), KO)
    assert 'role="alertdialog"' in html
    assert html.count("<button") == 3


def test_status_shows_model_connection_tokens_and_latency() -> None:
    state = PanelState(
        identity=ModelIdentity(model="gemma-base", dialect="json"),
        figures=TurnFigures(prompt_tokens=1234, completion_tokens=56, duration_s=2.34),
        has_figures=True,
    )
    status = render(state, KO).status
    for words in ("gemma-base", "준비됨", "호출 형식 json", "입력 1,234, 출력 56", "2.3초"):
        assert words in status


def test_render_reuses_unchanged_fragments() -> None:
    items = tuple(UserMessage(text=str(number)) for number in range(200))
    before = render(panel_state(*items), KO)
    after = render(panel_state(*items, SystemMessage(text="new")), KO, before)
    assert all(a is b for a, b in zip(before.fragments, after.fragments, strict=False))
    assert patches(before, after) == [["set", 200, after.fragments[200].html]]


def test_patches_append_streamed_text() -> None:
    begun = replace(panel_state(UserMessage(text="hi")), chat=streaming("").chat)
    first = render(begun, KO)
    second = render(replace(begun, chat=streaming("안녕 <b>").chat), KO, first)
    third = render(replace(begun, chat=streaming("안녕 <b>하세요").chat), KO, second)
    assert patches(first, second) == [["append", 1, "안녕 <b>"]]
    assert patches(second, third) == [["append", 1, "하세요"]]
    again = render(replace(begun, chat=streaming("안녕 <b>하세요").chat), KO, third)
    assert patches(third, again) == []


def test_patches_cut_and_replace() -> None:
    before = render(panel_state(UserMessage(text="a"), UserMessage(text="b")), KO)
    cut = render(panel_state(*before.items[:1]), KO, before)
    assert patches(before, cut) == [["cut", 1]]
    english = render(panel_state(*before.items), load_catalog("en"), before)
    assert [change[0] for change in patches(before, english)] == ["set", "set"]


HIDDEN = "bo\u200db\u3164\xa0\u2800\ufe0f\U000e0100\u180b\ufeff\xad\u2060\u202e\x9b"


def test_card_and_form_escape_invisible_characters() -> None:
    request = ConfirmRequest(tool=HIDDEN, description=HIDDEN, args={}, summary=HIDDEN)
    schema = {
        "properties": {
            HIDDEN: {"type": "string", "title": HIDDEN, "description": HIDDEN, "default": HIDDEN},
            "one": {"type": "string", "enum": ["a"], "enumNames": [HIDDEN]},
        }
    }
    form = parse_form(schema, "", KO)
    for item in (
        CardItem(card="1", request=request),
        CardItem(card="1", request=request, form=form, errors={HIDDEN: HIDDEN}),
        ToolCallMessage.of(
            name=HIDDEN, args={HIDDEN: HIDDEN}, raw=HIDDEN, result=ToolErr(HIDDEN, HIDDEN)
        ),
    ):
        read = Elements(fragment(item, KO)).read
        assert not set(read) & set(HIDDEN) - set("bo")
        assert read.count("\\u3164\\xa0\\u2800\\ufe0f\\U000e0100") >= 3


def test_messages_keep_emoji_and_escape_hidden_characters() -> None:
    read = Elements(fragment(ModelMessage(text="좋아요 ❤️ 👩\u200d🚀 bo\u200db\u3164"), KO)).read
    assert "좋아요 ❤️ 👩\u200d🚀 bo\\u200db\\u3164" in read
