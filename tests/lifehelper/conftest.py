"""A small catalog, its store image, a settable clock, and a fixture to call tools."""

from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lhkit.confirm.gate import ScriptedGate
from lhkit.conversation.tool_results import ToolResult
from lhkit.lifehelper.catalog import Protocol, ProtocolCatalog, ProtocolText, load_protocols
from lhkit.lifehelper.store import Store, StoreImage
from lhkit.lifehelper.tools import LifeHelper
from lhkit.lifehelper.toolset import build_registry
from lhkit.tools.dispatcher import ToolDispatcher

SEOUL = ZoneInfo("Asia/Seoul")
Call = Callable[..., Awaitable[ToolResult]]

ROWS = (
    (
        "caffeine-cutoff",
        "nutrition",
        "오후 2시 이후 카페인 끊기",
        "Stop caffeine at two",
        "카페인 커피",
    ),
    ("daily-walk", "movement", "매일 20분 걷기", "Walk every day", "걷기 산책"),
    ("morning-sunlight", "light", "아침 햇빛 10분 쬐기", "Get morning sunlight", "햇빛 아침"),
    ("stretch-break", "movement", "한 시간마다 스트레칭", "Stretch every hour", "스트레칭 어깨"),
    ("water-on-waking", "hydration", "일어나자마자 물 한 잔", "Water on waking", "물 아침 水"),
    ("wind-down-routine", "sleep", "자기 전 30분 쉬기", "Wind down before bed", "잠 취침 수면"),
)


class SetClock:
    """A clock that returns the time that was set last."""

    def __init__(self, text: str) -> None:
        self.set(text)

    def set(self, text: str) -> None:
        self.now = datetime.fromisoformat(text).replace(tzinfo=SEOUL)

    def __call__(self) -> datetime:
        return self.now


def text(title: str, step: str) -> ProtocolText:
    return ProtocolText(title=title, summary=f"{title}.", steps=(step, step), anchor=step)


def protocol(key: str, category: str, ko: str, en: str, keywords: str) -> Protocol:
    return Protocol(
        id=key,
        category=category,
        source="A public guide",
        url="https://example.org",
        keywords=tuple(keywords.split()),
        texts={"ko": text(ko, "천천히 해요"), "en": text(en, "Take it slowly")},
    )


@pytest.fixture(scope="session")
def catalog() -> ProtocolCatalog:
    return ProtocolCatalog(protocol(*row) for row in ROWS)


@pytest.fixture(scope="session")
def image(catalog: ProtocolCatalog) -> StoreImage:
    return StoreImage.prepare(catalog)


@pytest.fixture(scope="session")
def real_catalog() -> ProtocolCatalog:
    return load_protocols()


@pytest.fixture(scope="session")
def real_image(real_catalog: ProtocolCatalog) -> StoreImage:
    return StoreImage.prepare(real_catalog)


@pytest.fixture
def store(image: StoreImage) -> Iterator[Store]:
    with image.fresh() as fresh:
        yield fresh


@pytest.fixture
def clock() -> SetClock:
    return SetClock("2026-06-17T09:00")  # a Wednesday


@pytest.fixture
def deps(store: Store, clock: SetClock) -> LifeHelper:
    return LifeHelper(store=store, now=clock, locale="ko")


@pytest.fixture
def call(catalog: ProtocolCatalog, deps: LifeHelper) -> Call:
    """Return a function that dispatches a call as the chat does; `confirm` approves by default."""
    dispatcher = ToolDispatcher(build_registry(catalog, "ko"))
    yes = ScriptedGate(iter(lambda: True, None))

    async def dispatch(name: str, confirm: Any = yes, **args: Any) -> ToolResult:
        return await dispatcher.dispatch(name, args, confirm=confirm, deps=deps)

    return dispatch
