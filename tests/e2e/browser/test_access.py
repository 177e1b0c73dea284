"""Who reads with other means: contrast, names, focus, small pages. And how smooth a page stays."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

DEMO = "from lhkit.notebook import demo_panel\npanel = demo_panel()\npanel"
ADD = "카페인 줄이는 습관을 추가해줘"

OpenNotebook = Callable[..., Page]

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


def ask(page: Page) -> Locator:
    page.locator(".lhkit-input").fill(ADD)
    page.locator(".lhkit-send").click()
    expect(page.locator('.lhkit-confirm[data-state="open"]')).to_be_visible()
    expect(page.locator(".lhkit-run")).to_be_focused()
    page.wait_for_timeout(500)
    return page.locator('.lhkit-confirm[data-state="open"]')


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_panel_text_has_aa_contrast(open_notebook: OpenNotebook, shots: Path, theme: str) -> None:
    page = open_notebook(DEMO, theme=f"JupyterLab {theme}")
    ask(page)
    assert page.evaluate(LOW_CONTRAST) == {}
    page.keyboard.press("Escape")
    expect(page.locator(".lhkit-send")).to_be_enabled()
    ask(page)
    page.keyboard.press("Enter")
    expect(page.locator(".lhkit-send")).to_be_enabled()
    page.evaluate(
        "() => { for (const each of document.querySelectorAll('details')) each.open = 1; }"
    )
    page.locator(".lhkit-chat").screenshot(path=shots / f"contrast-{theme.lower()}.png")
    page.locator(".lhkit-tool").first.evaluate("tool => { tool.dataset.status = 'error'; }")
    assert page.evaluate(LOW_CONTRAST) == {}


def test_panel_names_focus_order_and_small_pages(open_notebook: OpenNotebook, shots: Path) -> None:
    page = open_notebook(DEMO.replace("()", "(pace_s=0.3)"))  # its story takes half a minute
    panel = page.locator(".lhkit-chat")
    card = ask(page)
    expect(panel.get_by_role("log", name="대화")).to_be_visible()
    dialog = page.get_by_role("alertdialog", name="이 작업을 수행할까요?")
    expect(dialog).to_have_accessible_description(re.compile("카페인"))
    nameless = "each => each.filter(e => !(e.innerText || e.ariaLabel || e.labels?.length)).length"
    assert panel.locator("button, textarea, select").evaluate_all(nameless) == 0
    order = []
    card.locator(".lhkit-cancel").focus()
    for _ in range(4):
        order.append(page.evaluate("() => document.activeElement.className.split(' ').at(-1)"))
        page.keyboard.press("Tab")
    assert order == ["lhkit-cancel", "lhkit-edit", "lhkit-run", "lhkit-input"]
    for width in (400, 320):  # 320 is what 200 % leaves of a window 640 wide
        panel.evaluate("(panel, width) => { panel.style.width = `${width}px`; }", width)
        assert panel.evaluate(OUTSIDE) == []
        expect(card.locator(".lhkit-run")).to_be_visible()
    panel.screenshot(path=shots / "narrow.png")
    card.locator(".lhkit-run").focus()
    page.keyboard.press("Escape")
    page.emulate_media(reduced_motion="reduce")
    expect(page.locator(".lhkit-send")).to_be_enabled()
    page.locator(".lhkit-input").fill("긴 이야기 하나 해줘")
    page.locator(".lhkit-send").click()
    stream = page.locator("[data-live] .lhkit-stream")
    expect(stream).to_contain_text("작은")
    moves = "each => getComputedStyle(each, '::after').animationName"
    assert stream.evaluate(moves) == "none"


LONG = """
import asyncio
from lhkit.models.scripted import ScriptedModel, say
from lhkit.notebook import ChatPanel
from lhkit.tools.registry import ToolRegistry
from lhkit.responses import TextDelta

class Steady(ScriptedModel):
    "A thousand tokens at two hundred a second."
    async def stream(self, request):
        async for event in super().stream(request):
            if self.is_slow and isinstance(event, TextDelta):
                await asyncio.sleep(0.005)
            yield event

words = "낱말 " * 1000
model = Steady([*(say("**네**, 그래요.") for _ in range(100)), say(words)], chunk_chars=3)
model.is_slow = False
panel = ChatPanel(model=model, toolset=ToolRegistry(), opt_in=True)
for _ in range(100):
    await panel.send("그래?")
model.is_slow = True
panel
"""
WATCH = """() => {
  const list = document.querySelector(".lhkit-list");
  window.updates = [];
  new MutationObserver(() => window.updates.push(performance.now()))
    .observe(list, { childList: true, subtree: true, characterData: true });
  window.longest = 0;
  new PerformanceObserver((seen) => {
    for (const each of seen.getEntries()) window.longest = Math.max(window.longest, each.duration);
  }).observe({ type: "longtask" });
}"""


def test_panel_streams_smoothly_after_many_messages(
    open_notebook: OpenNotebook, record_property: Callable[[str, object], None]
) -> None:
    page = open_notebook(LONG)
    expect(page.locator('.lhkit-message:not([data-role="system"])')).to_have_count(200)
    page.evaluate(WATCH)
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable")
    before = metrics(devtools)
    page.locator(".lhkit-input").fill("길게 말해 줘")
    page.locator(".lhkit-send").click()
    expect(page.locator('[data-role="assistant"]')).to_have_count(101)
    expect(page.locator("[data-live]")).to_have_count(0)
    after = metrics(devtools)
    times = page.evaluate("() => window.updates")
    seconds = (times[-1] - times[0]) / 1000
    figures = {
        "updates": len(times),
        "updates_per_s": len(times) / seconds,
        "page_ms_per_update": 1000 * (after["TaskDuration"] - before["TaskDuration"]) / len(times),
        "longest_task_ms": page.evaluate("() => window.longest"),
    }
    for name, value in figures.items():
        record_property(name, value)
    print(figures)  # noqa: T201 - what this measures, for who looks
    assert figures["updates_per_s"] <= 20 * 1.1
    assert page.locator('[data-role="assistant"]').last.inner_text().count("낱말") == 1000


def metrics(devtools: Any) -> Mapping[str, float]:
    found = devtools.send("Performance.getMetrics")["metrics"]
    return {each["name"]: each["value"] for each in found}
