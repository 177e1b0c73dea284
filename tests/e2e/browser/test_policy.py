"""A chat under a policy of approvals in a real JupyterLab: one tool runs unasked, one asks."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.reading import OLD_MS, each_theme

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

OpenNotebook = Callable[..., Page]

TOOLS = """
from lhkit import ScriptedModel, ToolRegistry, load_scenarios, replay
from lhkit.confirm.policy import ApprovalPolicy, ToolRule
from lhkit.harness.running.measured import measured_by_locale
from lhkit.notebook import ChatPanel
from lhkit.scripted import call, say

days, kept = ToolRegistry(), []

@days.tool(destructive=True)
def log_day(day: str) -> dict:
    "Log a day."
    kept.append(day)
    return {"day": day}

@days.tool(destructive=True)
def delete_day(day: str) -> dict:
    "Delete a day."
    kept.remove(day)
    return {"day": day}

SCRIPT = [call("log_day", day="monday"), call("delete_day", day="monday"), say("끝났어요.")]
"""
MEASURE = """
from pathlib import Path

Path("days.yaml").write_text('''
- id: both
  locale: ko
  turns: [{user: 월요일을 기록했다가 지워 줘, confirm: accept, expect: {extra: any}}]
''', encoding="utf-8")
scenarios = load_scenarios(["days.yaml"])
run = await replay(scenarios, ScriptedModel(SCRIPT), toolset=days, progress=False)
evidence = {"proposed": 200, "wrong": 0, "scenarios": 200, "upper": 0.015}
rules = {
    "log_day": ToolRule(rule="run", **evidence), "delete_day": ToolRule(rule="ask", **evidence)
}
ApprovalPolicy(risk=0.02, confidence=0.95, runs=("days",), tools=rules,
               measured=measured_by_locale(run.manifest)).write("approvals.toml")
"""
CHAT = """
panel = ChatPanel(model=ScriptedModel(SCRIPT), toolset=days, locale="ko", opt_in=True,
                  approvals="approvals.toml")
panel
"""


def test_policy_runs_one_tool_unasked_and_the_line_of_truth_says_which(
    open_notebook: OpenNotebook, shots: Path
) -> None:
    page = open_notebook(TOOLS, MEASURE, CHAT)
    notice = page.locator('[data-role="system"]')
    expect(notice).to_contain_text("확인 없이 실행합니다(위험 2% 이하): log_day")
    page.locator(".lhkit-input").fill("월요일을 기록했다가 지워 줘")
    page.locator(".lhkit-input").press("Enter")
    card = page.locator(".lhkit-confirm")
    expect(card).to_have_attribute("data-state", "open")
    expect(card).to_contain_text("delete_day")
    first = page.locator('[data-role="tool"]').first
    expect(first).to_contain_text("log_day")
    expect(first).to_contain_text("확인 없이 실행")
    page.wait_for_timeout(OLD_MS)
    page.locator(".lhkit-run").click()
    expect(card).to_have_attribute("data-state", "allowed")
    truth = page.get_by_role("log").locator(".lhkit-truth")
    expect(truth).to_contain_text('확인 없이 실행함: log_day · "monday"')
    expect(truth).to_contain_text('실행함: delete_day · "monday"')
    expect(truth).not_to_contain_text("확인 없이 실행함: delete_day")
    expect(card).to_have_count(1)
    for theme in each_theme(page):
        page.locator(".lhkit-chat").screenshot(path=shots / f"policy-{theme}.png")
