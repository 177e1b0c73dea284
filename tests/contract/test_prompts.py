"""What life-helper's model reads, byte for byte: the shipped adapter has learnt these texts."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lhkit

Lhkit = Callable[..., tuple[int, str]]
Recorded = Callable[[str, Any], Any]
DATASETS = Path(__file__).parents[2] / "datasets"


@pytest.mark.longer
@pytest.mark.parametrize("dialect", ["json", "openai"])
@pytest.mark.parametrize("locale", ["ko", "en"])
def test_prompt_of_life_helper_is_unchanged(
    lhkit_command: Lhkit, recorded: Recorded, dialect: str, locale: str
) -> None:
    file = DATASETS / "ac" / "dev" / "ac04.yaml"
    opened = next(each.id for each in lhkit.load_scenarios([file]) if each.locale == locale)
    code, printed = lhkit_command(
        *("prompt", file, "--scenario", opened, "--dialect", dialect, "--json")
    )
    assert code == 0
    prompt = json.loads(printed)["prompt"]
    assert prompt == recorded(f"prompt_{dialect}_{locale}", prompt)


@pytest.mark.slow
def test_context_lines_of_life_helper_are_unchanged(recorded: Recorded) -> None:
    lines: dict[str, list[str]] = {}

    def listen(scenario: lhkit.Scenario, _registry: lhkit.ToolRegistry) -> lhkit.ScriptedModel:
        def reply(request: lhkit.ModelRequest) -> lhkit.Reply:
            users = [m for m in request.messages if type(m).__name__ == "UserMessage"]
            lines[scenario.id] = [f"{m.text}\n{m.context}" for m in users]
            return lhkit.Reply(text="ok")

        return lhkit.ScriptedModel(reply)

    scenarios = lhkit.load_scenarios([DATASETS / "ac"])
    asyncio.run(lhkit.replay(scenarios, listen, progress=False))
    texts = {
        scenario_id: hashlib.sha256("\0".join(messages).encode()).hexdigest()[:16]
        for scenario_id, messages in sorted(lines.items())
    }
    assert len(texts) == len(scenarios)
    assert texts == recorded("context_lines_sha256", texts)


MESSAGES = {
    "ko": [
        "어제 스트레칭 했어",
        "내일 아침에 알려줘",
        "지난주 금요일 기록 보여줘",
        "6월 3일부터 6월 10일까지",
        "사흘 전에 물 마셨어",
        "이번 주 어땠어?",
        "안녕",
    ],
    "en": [
        "I stretched yesterday",
        "remind me tomorrow morning",
        "show last Friday",
        "from June 3 to June 10",
        "three days ago I drank water",
        "how was this week?",
        "hello",
    ],
}


def test_days_of_a_message_are_in_its_context_line(recorded: Recorded) -> None:
    async def lines() -> dict[str, str]:
        contexts: dict[str, str] = {}
        for locale, messages in MESSAGES.items():
            world = {"now": "2026-06-15T09:00:00+09:00"}
            data = [
                {
                    "id": f"say-{n}",
                    "ac": "AC-1",
                    "locale": locale,
                    "world": world,
                    "turns": [{"user": text}],
                }
                for n, text in enumerate(messages)
            ]

            def listen(request: lhkit.ModelRequest) -> lhkit.Reply:
                contexts[request.messages[-1].text] = request.messages[-1].context
                return lhkit.Reply(text="ok")

            scenarios = [lhkit.Scenario.from_data(each) for each in data]
            await lhkit.replay(scenarios, lhkit.ScriptedModel(listen), progress=False)
        return contexts

    present = asyncio.run(lines())
    assert present == recorded("context_lines", present)
