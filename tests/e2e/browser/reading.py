"""What tests of pages share: a card that is read through, readable in both themes, no faults."""

from collections.abc import Iterator
from contextlib import contextmanager

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Locator, Page, expect

OLD_MS = 500  # a card is young for 400

FOCUS_MS = 300  # how long JupyterLab must leave the focus where it is

LOW_CONTRAST = """() => {
  const parse = (colour) => {
    const [r, g, b, a] = colour.match(/[\\d.]+/g).map(Number);
    const scale = colour.startsWith("color(srgb") ? 255 : 1;
    return [r * scale, g * scale, b * scale, a ?? 1];
  };
  const over = (top, under) => under.map((each, i) => top[i] * top[3] + each * (1 - top[3]));
  const backdrop = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      layers.push(parse(getComputedStyle(each).backgroundColor));
    }
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const linear = (each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
  const luminance = (colour) => {
    const [r, g, b] = colour.map((each) => linear(each / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const hasText = (element) =>
    element.placeholder ||
    [...element.childNodes].some((each) => each.nodeType === 3 && each.textContent.trim());
  const found = {};
  for (const element of document.querySelectorAll(".lhkit-chat *")) {
    if (!hasText(element) || element.disabled || element.closest("option")) continue;
    const behind = backdrop(element);
    const text = over(parse(getComputedStyle(element).color), behind);
    const [low, high] = [luminance(text), luminance(behind)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) found[element.className || element.tagName] = ratio.toFixed(2);
  }
  return found;
}"""

OUTSIDE = """panel => {
  const right = panel.getBoundingClientRect().right + 1;
  const cut = (element) => element.closest(".lhkit-tool-args") !== null;
  return [...panel.querySelectorAll("*")]
    .filter((each) => each.getBoundingClientRect().right > right && !cut(each))
    .map((each) => each.className);
}"""


READ_THROUGH = """async card => {
  for (const fold of card.querySelectorAll("[data-fold]")) fold.click();
  for (const end of card.querySelectorAll("[data-end]")) {
    end.scrollIntoView({ block: "center" });
    const patience = performance.now() + 60_000;
    while (end.dataset.end !== "seen" && performance.now() < patience) {
      await new Promise(requestAnimationFrame);
    }
  }
}"""


@contextmanager
def stopped_clock(page: Page) -> Iterator[None]:
    """Stop the page's clock, so that a card is young for as long as a slow machine takes."""
    page.evaluate("() => { const now = performance.now(); performance.now = () => now; }")
    yield
    page.evaluate("() => { delete performance.now; }")


def read_through(card: Locator) -> None:
    """Unfold all of an open card and scroll every part of it into view."""
    card.evaluate(READ_THROUGH)
    expect(card.locator("[data-fold]:visible")).to_have_count(0)
    expect(card.locator('[data-end]:not([data-end="seen"])')).to_have_count(0)


FAULTS = """async ([within, options]) => {
  const { violations } = await axe.run(within, { resultTypes: ["violations"], ...options });
  return violations.map(({ id, nodes }) => [id, nodes[0].html.slice(0, 200)]);
}"""


def errors(page: Page, within: str = ".lhkit-chat", *rules: str) -> list[list[str]]:
    """Return all that axe-core finds wrong inside a panel, by some rules or by all."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    options = {"runOnly": rules} if rules else {}
    return list(page.evaluate(FAULTS, [within, options]))


def show_theme(page: Page, theme: str) -> None:
    """Show a theme of JupyterLab: "Light" or "Dark"."""
    body, name = page.locator("body"), f"JupyterLab {theme}"
    if body.get_attribute("data-jp-theme-name") == name:
        return
    change = "theme => { window.jupyterapp.commands.execute('apputils:change-theme', { theme }); }"
    page.evaluate(change, name)
    expect(body).to_have_attribute("data-jp-theme-name", name)
    expect(page.locator("#jupyterlab-splash")).to_have_count(0)


def each_theme(page: Page) -> Iterator[str]:
    """Yield "light" and "dark", each while JupyterLab shows it; first the one that it shows."""
    shown = page.locator("body").get_attribute("data-jp-theme-name")
    for theme in ("Dark", "Light") if shown == "JupyterLab Dark" else ("Light", "Dark"):
        show_theme(page, theme)
        yield theme.lower()


def readable_in_each_theme(page: Page, within: str = ".lhkit-chat") -> Iterator[str]:
    """Check contrast in both themes and, once, all else; yield each theme while it is shown."""
    rules: tuple[str, ...] = ()
    for theme in each_theme(page):
        assert page.evaluate(LOW_CONTRAST) == {}
        assert errors(page, within, *rules) == []
        yield theme
        rules = ("color-contrast",)  # a theme is colours


def assert_readable(page: Page, within: str = ".lhkit-chat") -> None:
    """Check contrast in both themes and, once, all else of accessibility."""
    for _ in readable_in_each_theme(page, within):
        pass


def hold_focus(target: Locator) -> None:
    """Focus an element, again if JupyterLab takes the focus back.

    It does so when it has restored its layout or replaces an output, both at any time after the
    first output is shown.
    """
    for _ in range(100):
        target.focus()
        target.page.wait_for_timeout(FOCUS_MS)
        if target.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"JupyterLab does not leave the focus to {target}")
