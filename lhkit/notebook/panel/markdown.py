"""Convert a model's Markdown to safe HTML: no raw HTML, no images, http(s) links only.

The browser would fetch an image, and its address could leak data.
"""

import re
from collections.abc import MutableMapping, Sequence
from functools import cache
from html import escape
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from lhkit.base.text import visible, whole_unicode

MAX_MARKDOWN_CHARS = 20_000
"""The parser takes a second for this many `[`, and is quadratic."""


def to_html(text: str) -> str:
    """Convert Markdown to safe HTML; text over `MAX_MARKDOWN_CHARS` is shown as written."""
    if len(text) > MAX_MARKDOWN_CHARS:
        return f"<pre>{escaped(normal_lines(text), keep_emoji=True)}</pre>"
    html = _parser().render(normal_lines(text))
    # after parsing: the parser turns `&#x202e;` into the character
    return visible(str(html), keep_emoji=True)


def normal_lines(text: str) -> str:
    """Return text with normalised line ends and joined surrogate pairs."""
    return _LINE_END.sub("\n", whole_unicode(text))


def is_active(text: str) -> bool:
    """Return whether Markdown contains raw HTML or an image, for readers that allow them."""
    if len(text) > MAX_MARKDOWN_CHARS:
        return True
    tokens = _plain_parser().parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    is_closed = all(_is_closed(token, text) for token in tokens if token.type == "fence")
    return not is_closed or any(token.type in _ACTIVE for token in (*tokens, *inline))


def _is_closed(fence: Token, text: str) -> bool:
    if fence.map is None or fence.level:
        return True
    last = _LINE_END.split(text)[fence.map[1] - 1 : fence.map[1]]
    return fence.map[1] - fence.map[0] > 1 and "".join(last).strip().startswith(fence.markup)


_LINE_END = re.compile(r"\r\n|\r|\n")  # Markdown's line ends, fewer than those of `str.splitlines`
_ACTIVE = frozenset({"html_block", "html_inline", "image"})


@cache
def _plain_parser() -> MarkdownIt:
    return MarkdownIt("commonmark")


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("js-default", {"html": False, "linkify": False}).disable("image")
    parser.validateLink = _is_web_link  # type: ignore[method-assign]  # the documented way
    parser.add_render_rule("link_open", _link_open)
    return parser


def _is_web_link(url: str) -> bool:
    try:
        return urlsplit(url.strip()).scheme.lower() in {"http", "https"}
    except ValueError:
        return False


def _link_open(
    renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: Any,
    env: MutableMapping[str, Any],
) -> str:
    if not tokens[index].attrGet("href"):  # `[a]()`, which is not validated
        closing = next(token for token in tokens[index:] if token.type == "link_close")
        closing.hidden = True
        return ""
    tokens[index].attrSet("target", "_blank")
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return str(renderer.renderToken(tokens, index, options, env))


def escaped(text: str, *, keep_emoji: bool = False) -> str:
    """Escape text for HTML, and show invisible characters as `lhkit.base.text.visible` does."""
    return escape(visible(text, keep_emoji=keep_emoji))
