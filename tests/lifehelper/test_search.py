"""`search_protocols`: matches, order, and queries with operators or odd characters."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lhkit.lifehelper.catalog import ProtocolCatalog
from lhkit.lifehelper.ranking import index_row, query_words, rank_rows, required_texts
from lhkit.lifehelper.search import search_protocols
from lhkit.lifehelper.store import Store, StoreImage


def hit_ids(store: Store, query: str, **options: object) -> list[str]:
    return [
        hit["id"] for hit in search_protocols(store, query=query, **{"locale": "ko", **options})
    ]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("카페인을 줄이고 싶어", "caffeine-cutoff"),
        ("카페인", "caffeine-cutoff"),
        ("커피는", "caffeine-cutoff"),
        ("걷기", "daily-walk"),
        ("걷고 싶어요", "daily-walk"),
        ("매일걷기", "daily-walk"),
        ("산책", "daily-walk"),
        ("아침 햇빛 쬐기", "morning-sunlight"),
        ("햇빛을 쬐면", "morning-sunlight"),
        ("잠이 안 와요", "wind-down-routine"),
        ("잠", "wind-down-routine"),
        ("수면", "wind-down-routine"),
        ("물", "water-on-waking"),
        ("물을", "water-on-waking"),
        ("水", "water-on-waking"),  # shorter than a trigram in every form
        ("어깨가 아파", "stretch-break"),
        ("walking", "daily-walk"),
        ("Sunlight", "morning-sunlight"),
        ("caffeine-cutoff", "caffeine-cutoff"),
        ("ＣＡＦＦＥＩＮＥ", "caffeine-cutoff"),
        ("\u110f\u1161\u1111\u1166\u110b\u1175\u11ab", "caffeine-cutoff"),  # decomposed 카페인
    ],
)
def test_search_ranks_the_expected_protocol_first(store: Store, query: str, first: str) -> None:
    assert hit_ids(store, query)[:1] == [first]


@pytest.mark.parametrize("query", ["양자역학", "zzzz", "영화", "???", '"', "***", "\ud800", "q"])
def test_search_without_a_match_returns_nothing(store: Store, query: str) -> None:
    assert hit_ids(store, query) == []


@pytest.mark.parametrize("query", ["", "  ", "추천해줘", "습관 알려줘", "what can I do"])
def test_search_with_fillers_only_returns_all(store: Store, query: str) -> None:
    assert hit_ids(store, query, limit=10) == sorted(hit_ids(store, "", limit=10))
    assert len(hit_ids(store, query, limit=10)) == 6


def test_search_combines_query_and_category(store: Store) -> None:
    assert hit_ids(store, "아침", category="hydration") == ["water-on-waking"]
    assert hit_ids(store, "카페인", category="sleep") == []


def test_search_returns_titles_in_the_locale(store: Store) -> None:
    assert search_protocols(store, query="걷기", locale="en")[0]["title"] == "Walk every day"


@given(st.text(max_size=50))
@example('"카페인" OR *')
@example("NEAR(a b, 2)")
@example("카페인 AND NOT 걷기")
@example("keywords : x")
@example("^카페인 -걷기 {titles}")
@example("% _ ' ; DROP TABLE habit")
def test_search_never_raises(image: StoreImage, query: str) -> None:
    with image.fresh() as store:
        hits = search_protocols(store, query=query, locale="ko")
        assert hits == search_protocols(store, query=query, locale="ko")
        assert len({hit["id"] for hit in hits}) == len(hits) <= 5


@pytest.mark.parametrize("query", ['"걷기"', "걷기*", "-걷기", "(걷기)", "titles:걷기", "NOT 걷기"])
def test_search_treats_fts_operators_as_text(store: Store, query: str) -> None:
    assert hit_ids(store, query) == ["daily-walk"]


words = st.sampled_from(
    "카페인을 줄이고 잠이 물 걷고 아침햇빛 스트레칭하고 수면 어깨가 walking 2 tv 차".split()  # noqa: SIM905 - words
)


@given(st.lists(words | st.text(max_size=8), min_size=1, max_size=4))
def test_search_index_returns_every_ranked_protocol(
    image: StoreImage, catalog: ProtocolCatalog, parts: list[str]
) -> None:
    query = query_words(" ".join(parts))
    rows = {key: index_row(protocol) for key, protocol in catalog.items()}
    everywhere = [key for key, _ in rank_rows(query, rows, len(rows))]
    with image.fresh() as store:
        if query:
            assert hit_ids(store, " ".join(parts), limit=10) == everywhere


def test_rank_rows_orders_ties_by_id(catalog: ProtocolCatalog) -> None:
    row = index_row(catalog["daily-walk"])
    keys = [key for key, _ in rank_rows(query_words("걷기"), {"b": row, "a": row, "c": row}, 3)]
    assert keys == ["a", "b", "c"]


def test_required_texts_of_words_shorter_than_a_trigram() -> None:
    assert [required_texts(word) for word in query_words("2 차 잠")] == [
        (" 2",),
        (" \u110e\u1161",),
        (" \u110c\u1161\u11b7",),
    ]


def test_rank_rows_prefers_an_exact_keyword(catalog: ProtocolCatalog) -> None:
    walk = catalog["daily-walk"]
    rows = {
        "a-begins": index_row(walk.model_copy(update={"keywords": ("아침밥",)})),
        "b-equals": index_row(walk.model_copy(update={"keywords": ("아침",)})),
    }
    assert [key for key, _ in rank_rows(query_words("아침"), rows, 2)] == ["b-equals", "a-begins"]


def test_rank_rows_matches_a_syllable_as_prefix(catalog: ProtocolCatalog) -> None:
    rows = {"sleep": index_row(catalog["daily-walk"].model_copy(update={"keywords": ("잠들기",)}))}
    assert [key for key, _ in rank_rows(query_words("잠"), rows, 1)] == ["sleep"]
