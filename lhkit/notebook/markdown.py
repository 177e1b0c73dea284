"""Markdown of a model to HTML that cannot act: no raw HTML, no images, http(s) links only.

An image would be fetched by the browser, and its address could carry data away.
"""

from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token


def to_html(text: str) -> str:
    """Return `text` as safe HTML."""
    return str(_parser().render(text))


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
    tokens[index].attrSet("target", "_blank")
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return str(renderer.renderToken(tokens, index, options, env))
