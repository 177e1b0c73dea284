"""The demo: its scripted assistant does what a first try needs, in Korean and in English."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from lhkit.conversation.messages import ModelMessage, ToolCallMessage
from lhkit.lifehelper.catalog import load_protocols
from lhkit.lifehelper.locales import life_helper_catalog
from lhkit.lifehelper.store import Store
from lhkit.notebook import demo_panel
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.notebook.panel.state import CardItem
from lhkit.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

ADD = {"ko": "카페인 줄이는 습관을 추가해줘", "en": "Add a habit to cut caffeine"}
LOG = {"ko": "오늘 카페인 지켰어, 기록해줘", "en": "Log caffeine for today, I did it"}
LIST = {"ko": "내 습관 목록 보여줘", "en": "List my habits"}
NOTHING = {"ko": "아무것도 하지 않았", "en": "I did nothing"}


@pytest.fixture
def panel(locale: str, tmp_path: Path) -> ChatPanel:
    settings, now = Settings(config_dir=tmp_path), datetime(2026, 6, 15, 9, tzinfo=UTC)
    file = tmp_path / "habits.sqlite3"
    return demo_panel(file, locale, pace_s=0, now=now, settings=settings)


def last_text(panel: ChatPanel) -> str:
    last = panel.state.items[-2]
    assert isinstance(last, ModelMessage)
    return last.text


def tools(panel: ChatPanel) -> list[str]:
    return [item.name for item in panel.state.last_turn if isinstance(item, ToolCallMessage)]


@pytest.mark.parametrize("locale", ["ko", "en"])
async def test_demo_finds_adds_logs_and_lists(
    panel: ChatPanel, locale: str, tmp_path: Path
) -> None:
    await panel.send(ADD[locale], answers=[False])
    assert tools(panel) == ["search_catalog", "add_habit"]
    assert NOTHING[locale] in last_text(panel)
    await panel.send(ADD[locale], answers=[True])
    assert any(isinstance(item, CardItem) for item in panel.state.last_turn)
    await panel.send(LOG[locale], answers=[True])
    assert tools(panel) == ["list_habits", "log_tracker_entry"]
    await panel.send(LIST[locale])
    assert tools(panel) == ["list_habits"]
    assert "- **" in last_text(panel)
    with Store.open(tmp_path / "habits.sqlite3", load_protocols()) as store:
        assert store.number("SELECT count(*) FROM habit WHERE id = 'caffeine-cutoff'") == 1
        assert store.number("SELECT count(*) FROM tracker_entry WHERE value = 'done'") == 1


@pytest.mark.longer
@pytest.mark.parametrize(
    ("locale", "words", "answer"),
    [
        ("ko", "안녕!", "안녕하세요"),
        ("ko", "고마워", "천만에요"),
        ("ko", "오늘 날씨 어때?", "대본으로"),
        ("ko", "습관 목록", "아직 하고 있는 습관이 없어요"),
        ("ko", "스트레칭 기록해줘", "아직 하고 있는 습관이 없어요"),
        ("ko", "며칠 연속이야?", "아직 하고 있는 습관이 없어요"),
        ("ko", "잠 잘 오는 방법 추천해줘", "이런 습관이 있어요"),
        ("ko", "★ 추가해줘 ★★", "찾"),
        ("en", "Hello there", "Hello"),
        ("en", "thank you", "welcome"),
        ("en", "Tell me a story", "coffee"),
    ],
)
async def test_demo_replies_in_the_users_language(
    panel: ChatPanel, words: str, answer: str
) -> None:
    await panel.send(words, answers=[False])
    assert answer in last_text(panel)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("locale", "words", "habit", "date", "value"),
    [
        ("ko", "어제 카페인 지켰어", "caffeine-cutoff", "2026-06-14", "done"),
        ("ko", "어제 카페인 지켰어, 기록해 줘", "caffeine-cutoff", "2026-06-14", "done"),
        ("ko", "오늘 카페인 못 지켰어", "caffeine-cutoff", None, "blank"),
        ("ko", "오늘 했어, 기록해줘", "caffeine-cutoff", None, "done"),
        ("ko", "어제 물 마셨어, 기록해 줘", None, None, None),
        ("ko", "어제 물 마셨어", None, None, None),
        ("en", "Log caffeine for yesterday", "caffeine-cutoff", "2026-06-14", "done"),
        ("en", "I skipped caffeine yesterday", "caffeine-cutoff", "2026-06-14", "blank"),
        ("en", "Log it for today, I did it", "caffeine-cutoff", None, "done"),
        ("en", "I drank water yesterday, log it", None, None, None),
        ("en", "Log water for yesterday", None, None, None),
    ],
)
async def test_demo_logs_the_habit_and_day_that_were_named(
    panel: ChatPanel, locale: str, words: str, habit: str | None, date: str | None, value: str
) -> None:
    await panel.send(ADD[locale], answers=[True])
    await panel.send(words, answers=[False])
    calls = [item for item in panel.state.last_turn if isinstance(item, ToolCallMessage)]
    assert calls[0].name == "list_habits"
    if habit is None:
        assert len(calls) == 1, "no habit of that: the assistant asks which one"
        assert "- **" in last_text(panel)
        return
    day = {"date": date} if date else {}
    assert calls[1].args == {"habit_id": habit, "value": value, **day}


@pytest.mark.parametrize("locale", ["ko", "en"])
async def test_demo_examples_are_understood_in_their_language(
    panel: ChatPanel, locale: str
) -> None:
    examples = panel.widget.examples
    assert len(examples) == 3
    for text in examples:
        await panel.send(text, answers=[True])
        assert tools(panel)
        assert "refused" not in last_text(panel)
    other = {"ko": "en", "en": "ko"}[locale]
    panel.set_locale(other)
    assert panel.widget.examples == [
        life_helper_catalog(other).text(f"script.example_{number}") for number in (1, 2, 3)
    ]


@pytest.mark.parametrize("locale", ["ko"])
async def test_demo_reports_rule_refusals(panel: ChatPanel) -> None:
    await panel.send(ADD["ko"], answers=[True])
    await panel.send("스트레칭 습관을 추가해줘", answers=[True])
    assert "하지 못했어요" in last_text(panel)
    assert "이번 주에" in last_text(panel)
    await panel.send(ADD["ko"], answers=[True])
    assert "이미 하고 있어요" in last_text(panel)
