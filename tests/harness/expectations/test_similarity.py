"""Near-duplicates of texts: templates are found, sentences in words of their own are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.harness.similarity import NEAR, near_duplicates, similarity


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("오늘 걷기 완료로 기록해 줘.", "오늘 스트레칭 완료로 기록해 줘."),
        (
            "네모 호흡을 찾아서 내 습관으로 추가해 줘.",
            "카페인 끊기를 찾아서 내 습관으로 추가해 줘.",
        ),
        ("어제 감사 일기 썼어, 기록해 줘", "그저께 감사일기 썼어. 기록해줘!"),
        ("Log my walk as done for today, please.", "Log my stretching as done for today, please."),
    ],
)
def test_a_template_with_one_noun_swapped_is_a_near_duplicate(first: str, second: str) -> None:
    assert similarity(first, second) >= NEAR


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("오늘 걷기 완료로 기록해 줘.", "방금 산책하고 왔어요, 체크 좀 부탁드려요."),
        ("커피를 줄이고 싶은데 방법이 있을까?", "카페인 끊는 습관 좀 찾아 줘."),
        ("What have I got going at the moment?", "List the habits I'm working on."),
    ],
)
def test_the_same_wish_in_other_words_is_none(first: str, second: str) -> None:
    assert similarity(first, second) < NEAR


def test_pairs_are_given_by_index_with_their_likeness() -> None:
    texts = ["오늘 걷기 완료", "전혀 다른 말", "오늘 걷기 완료!"]
    assert list(near_duplicates(texts)) == [(0, 2, 1.0)]
    assert len(list(near_duplicates(texts, least=0.0))) == 3


@given(st.text(), st.text())
def test_likeness_is_symmetric_and_between_0_and_1(first: str, second: str) -> None:
    assert 0.0 <= similarity(first, second) == similarity(second, first) <= 1.0
    assert similarity(first, first) == 1.0
