"""The detection of negations (R7): refused and accepted sentences."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from lhkit.lifehelper.framing import find_negation, is_blank
from tests.rows import check_rows

NEGATIVE = """
나는 커피를 마시지 않는다
커피를 마시지않는다
밤에 폰을 보지는 않는다
나는 야식을 먹지 않는 사람이다
하루도 거르지 않고 걷는다
야식 금지
야식금지
밤 10시 이후 휴대폰 사용 금지
금연
나는 금연한다
나는 금주한다
야식 안 먹기
나는 야식을 안 먹는다
야식은 안먹는다
야식안먹기
커피 안 마시기
물 안 마시기
침대에서 폰 안 보기
담배 안피우기
안 눕는다
못 먹는 사람
나는 단것을 못 먹는다
늦게까지 깨어 있지 못한다
늦잠 자지 말기
늦잠 자지 말자
누워서 폰 보지 마
누워서 폰 보지 마세요
과자를 먹지 말고 잔다
나는 커피를 끊는다
오후 2시 이후 카페인 끊기
담배를 끊은 사람이다
이제 그만 먹는다
SNS를 그만둔다
게임 중단
나는 게임을 중단한다
나는 술을 삼간다
술을 삼가는 사람이다
나는 군것질을 자제한다
카페인을 피한다
단 음식을 피하는 사람
나는 술을 멀리하는 사람이다
휴대폰을 멀리한다
야식을 참는다
야식 참기
휴대폰 없이 잔다
휴대폰없이 잔다
야식 없는 밤을 보낸다
나는 흡연자가 아니다
나는 야식을 먹는 사람이 아닙니다
커피가 아니라 물을 마신다
침실에서 폰을 보면 안 된다
침실에서 폰을 보면 안돼
야식 불가
no 야식
I will not drink coffee
I don't eat late
I don\u2019t eat late
I dont eat late
I won't check my phone
I can't have sugar
I cannot have sugar
I never snack at night
No phone in bed
no coffee
I say no to snacks
Stop eating at night
I stop drinking coffee at two
I will stop snacks
I have stopped snacking
Avoid caffeine after 2 p.m.
I am avoiding sugar
I quit smoking
I am quitting sugar
I give up sugar
I cut out sugar
I refrain from snacks
I sleep without my phone
I stay away from screens
Nothing to eat after nine
I am not someone who snacks
I resist late snacks
""".strip().splitlines()

POSITIVE = """
나는 점심 뒤에 따뜻한 물을 마시는 사람이다
나는 오후 2시까지만 커피를 즐긴다
나는 커피를 하루 한 잔으로 줄인다
나는 밤에 덜 먹는다
나는 커피 대신 보리차를 마신다
나는 커피 말고 물을 마신다
나는 매일 20분 걷는다
나는 안전하게 자전거를 탄다
나는 안경을 벗고 잔다
나는 편안한 밤을 보낸다
나는 가족을 안아준다
나는 미안하다고 먼저 말한다
나는 10분 동안 걷는다
나는 집 안에서 걷는다
나는 집 안 청소를 하는 사람이다
집 안 청소하기
방 안 정리를 매일 한다
30분 안에 잠자리에 든다
10분 안
나는 불안한 마음을 적는다
나는 안내를 따라 호흡한다
나는 밥을 안치는 사람이다
저녁마다 안마를 받는다
나는 안부 전화를 한다
친구의 안부를 묻는다
나는 안 좋은 자세를 바로 세운다
나는 괜찮은 하루를 적는다
나는 잘 못을 인정한다
못을 박는다
나는 끊임없이 배우는 사람이다
빠짐없이 기록한다
나는 부담 없이 걷는다
어김없이 7시에 일어난다
나는 헬스장 회원권을 끊는다
기차표를 끊고 여행을 간다
나는 조그만 화분을 돌본다
그만큼 더 걷는다
나는 지금 연락한다
나는 현금지출을 적는다
나는 참기름을 곁들여 채소를 먹는다
책을 참고해 요리한다
나는 자제력을 기르는 사람이다
상추 한 포기를 심는다
나는 창피해도 손을 든다
나는 피아니스트처럼 연습한다
나는 휴대폰을 거실에 두고 잔다
나는 휴대폰을 멀리 두고 잔다
나는 알림을 없앤다
나는 편지 마무리를 한다
나는 아버지 마중을 나간다
10시까지 말하기를 연습한다
금주의 할 일을 적는다
I drink water after lunch
I am someone who walks every day
I notice my breath
I take another glass of water
I tie a knot
I know when I am tired
I enjoy coffee only until 2 p.m.
I drink tea instead of coffee
I drink less coffee
I am quite calm in the evening
I eat a banana at breakfast
I get off one bus stop early
I walk two stops.
I stop to breathe for a minute
I stop and stretch every hour
I take the non-stop train
I keep my phone away during meals
I leave my phone in the kitchen
I read before bed without fail
I do my No. 1 task first
I use a resistance band
I cannonball into the pool
I write a note
""".strip().splitlines()


@check_rows("sentence", NEGATIVE)
def test_find_negation_detects_negative_sentences(sentence: str) -> None:
    assert find_negation(sentence) is not None


@check_rows("sentence", POSITIVE)
def test_find_negation_accepts_positive_sentences(sentence: str) -> None:
    assert find_negation(sentence) is None


SENTENCES = YAML(typ="safe").load(Path(__file__).with_name("framing_sentences.yaml"))


@check_rows("kind", ["positive", "negative"])
@check_rows("locale", ["ko", "en"])
def test_find_negation_handles_subordinate_clauses(kind: str, locale: str) -> None:
    sentences = SENTENCES[kind][locale]
    assert len(sentences) >= 30
    refused = [sentence for sentence in sentences if find_negation(sentence) is not None]
    assert refused == ([] if kind == "positive" else sentences)


@pytest.mark.parametrize("form", ["NFD", "NFKC"])
def test_find_negation_ignores_case_unicode_form_and_spaces(form: str) -> None:
    def refused(sentences: list[str]) -> list[str]:
        rewritten = [unicodedata.normalize(form, each.upper()) for each in sentences]  # type: ignore[arg-type]
        return [each for each in rewritten if find_negation(f"  {each}\n")]

    assert len(refused(NEGATIVE)) == len(NEGATIVE)
    assert refused(POSITIVE) == []


@given(st.text(max_size=80))
def test_find_negation_never_raises_or_returns_an_empty_text(sentence: str) -> None:
    assert find_negation(sentence) != ""


BLANK = (
    *("", "  ", "\n", "...", "!?", "\u3000", "\u200b"),
    *(
        "나는 …한다",
        "나는 ...한다",
        "나는 …하는 사람이다.",
        "'나는 …한다'",
        "저는 … 합니다",
        "나는 … 한다",
    ),
    *("I …", "I ...", "i am one who …", "I am someone who ...", "“I …”", "I'm …", "I am ___"),
)
FILLED = (
    *("I walk …", "나는 걷는다…", "나는 …를 걷는다", "I … walk", "나는 한다", "I am"),
    *("걷", "a", "7", " 물 "),
)


@check_rows("text", [*BLANK, *FILLED])
def test_is_blank_without_letters_and_for_an_unfilled_template(text: str) -> None:
    assert is_blank(text) is (text in BLANK)
