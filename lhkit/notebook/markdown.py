"""Markdown of a model to HTML that cannot act: no raw HTML, no images, http(s) links only.

An image would be fetched by the browser, and its address could carry data away.
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

from lhkit.text import visible, whole_unicode

MAX_MARKDOWN_CHARS = 20_000
"""The parser takes a second for as many `[`, and four times as long for twice as many."""


def to_html(text: str) -> str:
    """Return `text` as safe HTML; what is endless (`MAX_MARKDOWN_CHARS`) as it was written."""
    if len(text) > MAX_MARKDOWN_CHARS:
        return f"<pre>{escaped(normal_lines(text), keep_emoji=True)}</pre>"
    html = _parser().render(normal_lines(text))
    return visible(
        str(html), keep_emoji=True
    )  # not before: of `&#x202e;` the parser makes the character


def normal_lines(text: str) -> str:
    """Return text whose lines end in one way, and whose surrogates that came apart are one."""
    return _LINE_END.sub("\n", whole_unicode(text))


def acts(text: str) -> bool:
    """Return whether a reader of Markdown that lets HTML through would find some, or an image."""
    if len(text) > MAX_MARKDOWN_CHARS:
        return True
    tokens = _plain_parser().parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    is_closed = all(_is_closed(token, text) for token in tokens if token.type == "fence")
    return not is_closed or any(token.type in _ACTIVE for token in (*tokens, *inline))


def _is_closed(fence: Token, text: str) -> bool:
    """Return whether a fence ends before what follows in the file."""
    if fence.map is None or fence.level:
        return True
    last = _LINE_END.split(text)[fence.map[1] - 1 : fence.map[1]]
    return fence.map[1] - fence.map[0] > 1 and "".join(last).strip().startswith(fence.markup)


_LINE_END = re.compile(r"\r\n|\r|\n")  # as Markdown knows it, not as `str.splitlines`
_ACTIVE = frozenset({"html_block", "html_inline", "image"})


@cache
def _plain_parser() -> MarkdownIt:
    return MarkdownIt("commonmark")


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("js-default", {"html": False, "linkify": False}).disable("image")
    parser.validateLink = _is_web_link  # type: ignore[method-assign]  # how the library is told
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
    if not tokens[index].attrGet("href"):  # `[a]()`, which no validation is asked about
        closing = next(each for each in tokens[index:] if each.type == "link_close")
        closing.hidden = True
        return ""
    tokens[index].attrSet("target", "_blank")
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return str(renderer.renderToken(tokens, index, options, env))


def escaped(text: str, *, keep_emoji: bool = False) -> str:
    """Return text for HTML, with what cannot be seen as escapes, as `lhkit.text.visible` says."""
    return escape(visible(text, keep_emoji=keep_emoji))
