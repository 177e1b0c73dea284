"""Search finds what a person means, in order, and takes any text for data."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lhkit.lifehelper.catalog import ProtocolCatalog
from lhkit.lifehelper.ranking import index_row, needles, query_words, ranked
from lhkit.lifehelper.search import search_protocols
from lhkit.lifehelper.store import Store, StoreImage


def found(store: Store, query: str, **options: object) -> list[str]:
    return [hit["id"] for hit in search_protocols(store, query=query, **options)]  # type: ignore[arg-type]


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
def test_a_wish_in_words_finds_its_protocol_first(store: Store, query: str, first: str) -> None:
    assert found(store, query)[:1] == [first]


@pytest.mark.parametrize("query", ["양자역학", "zzzz", "영화", "???", '"', "***", "\ud800", "q"])
def test_a_query_that_matches_nothing_finds_nothing(store: Store, query: str) -> None:
    assert found(store, query) == []


@pytest.mark.parametrize("query", ["", "  ", "추천해줘", "습관 알려줘", "what can I do"])
def test_a_query_that_says_nothing_is_no_condition(store: Store, query: str) -> None:
    assert found(store, query, limit=10) == sorted(found(store, "", limit=10))
    assert len(found(store, query, limit=10)) == 6


def test_a_category_alone_lists_it_in_order_of_id(store: Store) -> None:
    assert found(store, "", category="movement") == ["daily-walk", "stretch-break"]


def test_a_category_limits_what_words_find(store: Store) -> None:
    assert found(store, "아침", category="hydration") == ["water-on-waking"]
    assert found(store, "카페인", category="sleep") == []


def test_the_limit_is_kept(store: Store) -> None:
    assert len(found(store, "", limit=2)) == 2


def test_titles_come_in_the_language_asked_for(store: Store) -> None:
    assert search_protocols(store, query="걷기", locale="en")[0]["title"] == "Walk every day"


@given(st.text(max_size=50))
@example('"카페인" OR *')
@example("NEAR(a b, 2)")
@example("카페인 AND NOT 걷기")
@example("keywords : x")
@example("^카페인 -걷기 {titles}")
@example("% _ ' ; DROP TABLE habit")
def test_no_query_ever_raises(image: StoreImage, query: str) -> None:
    with image.fresh() as store:
        hits = search_protocols(store, query=query)
        assert hits == search_protocols(store, query=query)
        assert len({hit["id"] for hit in hits}) == len(hits) <= 5


@pytest.mark.parametrize("query", ['"걷기"', "걷기*", "-걷기", "(걷기)", "titles:걷기", "NOT 걷기"])
def test_signs_of_the_search_language_are_no_operators(store: Store, query: str) -> None:
    assert found(store, query) == ["daily-walk"]


words = st.sampled_from(
    "카페인을 줄이고 잠이 물 걷고 아침햇빛 스트레칭하고 수면 어깨가 walking 2 tv 차".split()  # noqa: SIM905 - words
)


@given(st.lists(words | st.text(max_size=8), min_size=1, max_size=4))
def test_the_index_proposes_every_protocol_that_the_ranking_would_find(
    image: StoreImage, catalog: ProtocolCatalog, parts: list[str]
) -> None:
    query = query_words(" ".join(parts))
    rows = {key: index_row(protocol) for key, protocol in catalog.items()}
    everywhere = [key for key, _ in ranked(query, rows, len(rows))]
    with image.fresh() as store:
        if query:
            assert found(store, " ".join(parts), limit=10) == everywhere


def test_equal_scores_are_in_order_of_id(catalog: ProtocolCatalog) -> None:
    row = index_row(catalog["daily-walk"])
    keys = [key for key, _ in ranked(query_words("걷기"), {"b": row, "a": row, "c": row}, 3)]
    assert keys == ["a", "b", "c"]


def test_words_shorter_than_a_trigram_are_looked_up_without_the_trigram_index() -> None:
    assert [needles(word) for word in query_words("2 차 잠")] == [
        (" 2",),
        (" \u110e\u1161",),
        (" \u110c\u1161\u11b7",),
    ]


def test_a_keyword_that_is_the_word_beats_one_that_begins_with_it(catalog: ProtocolCatalog) -> None:
    walk = catalog["daily-walk"]
    rows = {
        "a-begins": index_row(walk.model_copy(update={"keywords": ("아침밥",)})),
        "b-equals": index_row(walk.model_copy(update={"keywords": ("아침",)})),
    }
    assert [key for key, _ in ranked(query_words("아침"), rows, 2)] == ["b-equals", "a-begins"]


def test_a_word_of_one_syllable_finds_words_that_begin_with_it(catalog: ProtocolCatalog) -> None:
    rows = {"sleep": index_row(catalog["daily-walk"].model_copy(update={"keywords": ("잠들기",)}))}
    assert [key for key, _ in ranked(query_words("잠"), rows, 1)] == ["sleep"]
