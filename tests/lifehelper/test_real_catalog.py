"""The shipped catalog: completeness, size of results, and everyday queries."""

import pytest

from lhkit.conversation.tool_results import ToolOk, encode_tool_result
from lhkit.lifehelper.catalog import CATALOG_LOCALES, ProtocolCatalog
from lhkit.lifehelper.ranking import CATEGORY_LABELS
from lhkit.lifehelper.schemas import ANCHOR_CHARS
from lhkit.lifehelper.search import search_protocols
from lhkit.lifehelper.store import StoreImage
from lhkit.lifehelper.tools import LifeHelper, query_protocol, search_catalog
from tests.rows import check_rows


def no_clock() -> None:
    raise AssertionError("reading the catalog needs no clock")


def test_catalog_categories_have_labels(real_catalog: ProtocolCatalog) -> None:
    assert set(real_catalog.categories) <= set(CATEGORY_LABELS)


@pytest.mark.parametrize("locale", CATALOG_LOCALES)
def test_query_protocol_never_truncates(
    real_image: StoreImage, real_catalog: ProtocolCatalog, locale: str
) -> None:
    with real_image.fresh() as store:
        deps = LifeHelper(store=store, now=no_clock, locale=locale)  # type: ignore[arg-type]
        for key, protocol in real_catalog.items():
            result = query_protocol({"protocol_id": key}, deps)
            assert "_truncated" not in encode_tool_result(result)
            assert isinstance(result, ToolOk)
            assert protocol.texts[locale].title in encode_tool_result(result)


@pytest.mark.parametrize("locale", CATALOG_LOCALES)
def test_catalog_anchors_fit_the_schema(real_catalog: ProtocolCatalog, locale: str) -> None:
    anchors = [protocol.texts[locale].anchor for protocol in real_catalog.values()]
    assert [anchor for anchor in anchors if not 0 < len(anchor) <= ANCHOR_CHARS] == []


@pytest.mark.parametrize("locale", CATALOG_LOCALES)
@pytest.mark.parametrize(("limit", "max_bytes"), [(5, 1450), (10, 2048)])
def test_search_catalog_results_fit_the_budget(
    real_image: StoreImage, real_catalog: ProtocolCatalog, locale: str, limit: int, max_bytes: int
) -> None:
    with real_image.fresh() as store:
        deps = LifeHelper(store=store, now=no_clock, locale=locale)  # type: ignore[arg-type]
        for category in (*real_catalog.categories, None):
            args = {"limit": limit} | ({"category": category} if category else {})
            text = encode_tool_result(search_catalog(args, deps))
            assert "_truncated" not in text
            assert len(text.encode()) <= max_bytes


@check_rows(
    ("query", "expected"),
    [
        ("카페인을 줄이고 싶어", "caffeine-cutoff"),
        ("커피 좀 끊고 싶은데", "caffeine-cutoff"),
        ("잠이 안 와요", "get-up-when-awake"),
        ("잠이 안 와요", "wind-down-routine"),
        ("아침 햇빛 쬐기", "morning-sunlight"),
        ("수면", "sleep-diary"),
        ("수면", "fixed-wake-time"),
        ("걷기", "daily-walk"),
        ("일찍 일어나고 싶어", "fixed-wake-time"),
        ("물을 더 마시고 싶어", "water-on-waking"),
        ("핸드폰 좀 덜 보고 싶어", "phone-out-of-bedroom"),
        ("집중이 안 돼", "deep-work-block"),
        ("스트레스 받아", "box-breathing"),
        ("목이 뻐근해요", "stretch-break"),
        ("감사 일기", "gratitude-note"),
        ("운동 추천해줘", "daily-walk"),
        ("근력운동", "mini-strength"),
        ("caffeine", "caffeine-cutoff"),
        ("I want to walk more", "daily-walk"),
        ("better sleep", "wind-down-routine"),
    ],
)
def test_search_finds_protocols_for_everyday_queries(
    real_image: StoreImage, query: str, expected: str
) -> None:
    with real_image.fresh() as store:
        assert expected in [hit["id"] for hit in search_protocols(store, query=query, locale="ko")]


@check_rows("query", ["양자역학", "주식 투자", "환율", "영화", "capital of France"])
def test_search_finds_nothing_for_other_topics(real_image: StoreImage, query: str) -> None:
    with real_image.fresh() as store:
        assert search_protocols(store, query=query, locale="ko") == ()
