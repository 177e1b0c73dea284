"""The acceptance criteria of life-helper, and that of a scenario made from a chat."""

from collections.abc import Mapping, Sequence

from lhkit.toolset import ChatCall

CRITERIA: Mapping[str, Mapping[str, str]] = {
    "AC-1": {"ko": "소망으로 찾기", "en": "find by intent"},
    "AC-2": {"ko": "자세히 열기", "en": "open details"},
    "AC-3": {"ko": "기록으로 답하기", "en": "answer from the tracker"},
    "AC-4": {"ko": "확인받고 기록", "en": "log after confirmation"},
    "AC-5": {"ko": "습관 목록", "en": "list habits"},
    "AC-6": {"ko": "확인받고 추가", "en": "add after confirmation"},
    "AC-7": {"ko": "거절 존중", "en": "respect a rejection"},
    "AC-8": {"ko": "확인할 사람 없음", "en": "no user to ask"},
    "AC-9": {"ko": "규칙에 막힘", "en": "refused by a rule"},
    "AC-10": {"ko": "이어 부르기", "en": "chain of calls"},
    "AC-11": {"ko": "오류에서 회복", "en": "recovery"},
    "AC-12": {"ko": "부르지 않기", "en": "restraint"},
}
"""Texts by criterion and language."""


def chat_criterion(calls: Sequence[ChatCall]) -> str:
    """Return the criterion that the expected calls of a chat fit best."""
    if not calls:
        return "AC-12"
    if any(call.answer == "absent" for call in calls):
        return "AC-8"
    if any(call.result == "cancelled" for call in calls):
        return "AC-7"
    return "AC-10" if all(call.result == "ok" for call in calls) else "AC-9"
