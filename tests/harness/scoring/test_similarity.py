"""Near-duplicate texts: templates are, paraphrases are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.harness.exports.similarity import NEAR, HeldOut, near_duplicates, similarity
from tests.rows import check_rows


@check_rows(
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
def test_similarity_of_a_swapped_noun_is_near(first: str, second: str) -> None:
    assert similarity(first, second) >= NEAR


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("오늘 걷기 완료로 기록해 줘.", "방금 산책하고 왔어요, 체크 좀 부탁드려요."),
        ("커피를 줄이고 싶은데 방법이 있을까?", "카페인 끊는 습관 좀 찾아 줘."),
        ("What have I got going at the moment?", "List the habits I'm working on."),
    ],
)
def test_similarity_of_paraphrases_is_not_near(first: str, second: str) -> None:
    assert similarity(first, second) < NEAR


def test_near_duplicates_yield_indices_and_similarity() -> None:
    texts = ["오늘 걷기 완료", "전혀 다른 말", "오늘 걷기 완료!"]
    assert list(near_duplicates(texts)) == [(0, 2, 1.0)]
    assert len(list(near_duplicates(texts, least=0.0))) == 3


@given(st.text(), st.text())
def test_similarity_is_symmetric_and_within_0_and_1(first: str, second: str) -> None:
    assert 0.0 <= similarity(first, second) == similarity(second, first) <= 1.0
    assert similarity(first, first) == 1.0


@check_rows(
    ("message", "is_near"),
    [
        ("빵도 적어 줘", True),
        ("빵도 적어줘!", True),
        ("우유 메모를 찾아 줘", True),
        ("내일 날씨가 어때?", False),
    ],
)
def test_held_out_near_duplicates_are_found(message: str, *, is_near: bool) -> None:
    held_out = HeldOut(["우유 메모 찾아 줘", "빵도 적어 줘"])
    assert held_out.has_near([message]) is is_near
    assert not HeldOut().has_near([message])
