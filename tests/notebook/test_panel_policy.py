"""The panel follows a policy of approvals, and says what runs without a card."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.confirm.policy import ApprovalPolicy, Measured, ToolRule
from lhkit.conversation.messages import SystemMessage, ToolCallMessage
from lhkit.harness.results.results import Run
from lhkit.models.recorded.scripted import call, say
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.notebook.panel.render import opt_in_sentences, tool_status
from lhkit.notebook.panel.state import CardItem, OptInRequested
from lhkit.testing import echo_tool
from lhkit.tools.registry import ToolRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

MakePanel = Callable[..., ChatPanel]
TOOLS = ToolRegistry(
    [echo_tool("log", is_destructive=True), echo_tool("delete", is_destructive=True)]
)
SCRIPT = [call("log", a=1), call("delete", a=2), say("done")]


def policy_of(panel: ChatPanel, **changes: Any) -> ApprovalPolicy:
    """Return a policy for what is in front in a panel."""
    front = panel._conversation.live_session.measured(
        panel._conversation.model.identity, lambda: panel._screen.catalog.locale
    )()
    measured = {"ko": Measured(**{**front.model_dump(), **changes})}
    runs = ToolRule(rule="run", proposed=200, wrong=0, scenarios=200, upper=0.015)
    asks = ToolRule(rule="ask", proposed=200, wrong=9, scenarios=200, upper=0.1)
    tools = {"log": runs, "delete": asks}
    return ApprovalPolicy(
        risk=0.02, confidence=0.95, runs=("runs/x",), measured=measured, tools=tools
    )


def cards(panel: ChatPanel) -> list[str]:
    return [item.request.tool for item in panel.state.items if isinstance(item, CardItem)]


def notices(panel: ChatPanel) -> list[str]:
    return [item.text for item in panel.state.items if isinstance(item, SystemMessage)]


async def test_panel_runs_one_tool_by_policy_and_asks_about_the_other(
    make_panel: MakePanel, tmp_path: Path
) -> None:
    policy = policy_of(make_panel(SCRIPT, toolset=TOOLS))
    file = tmp_path / "approvals.toml"
    policy.write(file)
    panel = make_panel(SCRIPT, toolset=TOOLS, approvals=file, record=tmp_path / "chats")
    assert f"{file}: 다음 도구는 확인 없이 실행합니다(위험 2% 이하): log" in notices(panel)
    await panel.send("go", answers=[True])
    assert cards(panel) == ["delete"]
    markdown = panel.to_markdown()
    assert "확인 없이 실행함: log" in markdown
    assert "확인 없이 실행함: delete" not in markdown
    tools = [each for each in json.loads(panel.to_json())["messages"] if each["role"] == "tool"]
    assert [(each["tool"], each["gate"]) for each in tools] == [
        ("log", "policy"),
        ("delete", "accepted"),
    ]
    rows = [item for item in panel.state.items if isinstance(item, ToolCallMessage)]
    words = [tool_status(item.outcome, panel._screen.catalog)[1] for item in rows]
    assert words == ["완료 · 확인 없이 실행", "완료"]
    (record,) = Run.load(tmp_path / "chats").records
    assert [each.gate for each in record.trajectory.calls] == ["policy", "accepted"]


async def test_panel_asks_again_after_a_rejection_until_the_chat_is_cleared(
    make_panel: MakePanel,
) -> None:
    policy = policy_of(make_panel(SCRIPT, toolset=TOOLS))
    panel = make_panel(
        [*SCRIPT, *SCRIPT[:1], say("done"), *SCRIPT], toolset=TOOLS, approvals=policy
    )
    await panel.send("go", answers=[False])
    await panel.send("again", answers=[True])
    assert cards(panel) == ["delete", "log"]
    panel.clear()
    assert any("확인 없이 실행합니다" in text for text in notices(panel))
    await panel.send("new", answers=[True])
    assert cards(panel) == ["delete"]


async def test_panel_says_why_a_policy_does_not_apply(make_panel: MakePanel) -> None:
    plain = make_panel(SCRIPT, toolset=TOOLS)
    other = policy_of(plain, constraint="required")
    panel = make_panel(SCRIPT, toolset=TOOLS, approvals=other)
    assert any("측정할 때와 다른 것: 제한 디코딩" in text for text in notices(panel))
    await panel.send("go", answers=[True, True])
    assert cards(panel) == ["log", "delete"]
    switched = make_panel(SCRIPT, toolset=TOOLS, approvals=policy_of(plain))
    switched.set_locale("en")  # which was not measured
    assert any("does not apply" in text for text in notices(switched))
    await switched.send("go", answers=[True, True])
    assert cards(switched) == ["log", "delete"]


async def test_panel_consent_does_not_promise_a_click_for_what_runs_without(
    make_panel: MakePanel,
) -> None:
    policy = policy_of(make_panel(SCRIPT, toolset=TOOLS))
    said = []
    for options in ({}, {"approvals": policy}):
        panel = make_panel(SCRIPT, toolset=TOOLS, opt_in=False, **options)
        asked = [item for item in panel.state.items if isinstance(item, OptInRequested)]
        said.append(" ".join(opt_in_sentences(asked, panel._screen.catalog)))
    assert "'실행'을 눌러야만" in said[0]
    assert "'실행'을 눌러야만" not in said[1]
    assert "확인 없이 실행합니다" in said[1]


@pytest.mark.parametrize("approvals", ["none.toml", 3, {"log": "run"}])
def test_panel_refuses_what_is_no_policy(make_panel: MakePanel, approvals: Any) -> None:
    with pytest.raises(UsageError):
        make_panel(SCRIPT, toolset=TOOLS, approvals=approvals)
