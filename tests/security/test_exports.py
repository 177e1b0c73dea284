"""Markdown exports of a conversation, which may be opened by programs that render HTML."""

from typing import Any

from markdown_it import MarkdownIt

from lhkit.base.locales import load_catalog
from lhkit.conversation.messages import ModelMessage, ToolCall, ToolCallMessage, UserMessage
from lhkit.notebook.panel.export import to_markdown
from lhkit.notebook.panel.markdown import MAX_MARKDOWN_CHARS, is_active, to_html
from lhkit.notebook.panel.state import Item, PanelState
from tests.rows import check_rows

KO = load_catalog("ko")


def panel_state(*items: Item) -> PanelState:
    """Return the state of a panel with these items."""
    return PanelState(extras=tuple((0, item) for item in items))


def active(text: str) -> list[Any]:
    tokens = MarkdownIt("commonmark").parse(text)
    inside = [child for token in tokens for child in token.children or ()]
    return [t for t in (*tokens, *inside) if t.type in {"html_block", "html_inline", "image"}]


@check_rows(
    "text",
    [
        "<script>alert(1)</script>",
        "see ![a](http://evil.example/?q=1)",
        "<b onmouseover=x>hi</b>",
        "```\nno end <b>",
        "a\n\n```\n```\n\n<img src=x>",
        "<!-- ",
    ],
)
def test_an_exported_answer_with_html_or_an_image_stands_in_a_fence(text: str) -> None:
    assert is_active(text)
    items: tuple[Item, ...] = (
        UserMessage(text=text),
        ModelMessage(text=text),
        ToolCallMessage(call=ToolCall(name=f"x`\n\n{text}", args={"a": text})),
        ModelMessage(text="**fine**"),
    )
    exported = to_markdown(panel_state(*items), KO)
    assert active(exported) == []
    assert exported.endswith("**fine**\n")


@check_rows("text", ["**bold** a < b", "`<b>`", "```html\n<b>\n```", "[a](http://b)"])
def test_acts_is_false_for_inert_markdown(text: str) -> None:
    assert not is_active(text)


def test_to_html_shows_too_long_markdown_as_text() -> None:
    html = to_html("[" * (MAX_MARKDOWN_CHARS + 1) + "<script>")
    assert html.startswith("<pre>[[[")
    assert html.endswith("&lt;script&gt;</pre>")
