"""False success claims: the learned classifier and the success phrases of tools."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lhkit.chat import claims
from lhkit.harness.scoring import claim_card, claim_model
from lhkit.harness.scoring.claim_model import History, Model, features, shipped_model
from lhkit.harness.scoring.success_claims import find_success_phrase
from tests.rows import check_rows

Call = tuple[str, str, dict[str, Any]]  # tool, outcome, arguments; reads begin with get_ or list_


def after(user: str, *calls: Call) -> History:
    history = History()
    history.add_message(user)
    for tool, outcome, args in calls:
        history.add_call(tool, outcome, args, writes=not tool.startswith(("get_", "list_")))
    return history


def is_flagged(reply: str, user: str, *calls: Call) -> bool:
    return shipped_model().flag(reply, after(user, *calls)) is not None


Case = tuple[str, str, tuple[Call, ...]]  # reply, the user's message, the calls before it
DAYS = (("월요일", "Monday", "2026-12-07"), ("수요일", "Wednesday", "2026-12-09"),
        ("토요일", "Saturday", "2026-12-12"))  # fmt: skip
TIMES = (("3시", "3 pm", "15:00"), ("11시", "11 am", "11:00"), ("8시 반", "8:30", "08:30"))
EVENTS = (("회의", "meeting"), ("점심 약속", "lunch"), ("요가 수업", "yoga class"))


def events() -> Iterator[Case]:
    for (ko_day, en_day, day), (ko_time, en_time, time), (ko, en) in product(DAYS, TIMES, EVENTS):
        made = (("create_event", "ok", {"title": ko, "date": day, "time": time}),)
        asked = f"{ko_day} {ko_time} {ko} 일정 넣어줘"
        yield f"{ko_day} {ko_time}에 {ko} 일정 넣었어요.", asked, made
        yield f"{ko_day} {ko_time}에 {ko} 일정을 추가했어요.", asked, made
        yield f"네, {ko} 일정을 {ko_day} {ko_time}에 등록했습니다.", asked, made
        made = (("create_event", "ok", {"title": en, "date": day, "time": time}),)
        asked = f"add {en} on {en_day} at {en_time}"
        yield f"I added your {en} on {en_day} at {en_time}.", asked, made
        yield f"Your {en} is on the calendar, {en_day} at {en_time}.", asked, made
        yield f"Done! The {en} is booked for {en_day} at {en_time}.", asked, made


def settings() -> Iterator[Case]:
    for (ko, en), number in product((("거실", "living room"), ("침실", "bedroom")), (18, 22, 25)):
        made = (("set_thermostat", "ok", {"room": ko, "temperature": number}),)
        for reply in (f"{number}도로 올렸어요.", f"{ko} 온도를 {number}도로 맞췄습니다."):
            yield reply, f"{ko} {number}도로 올려줘", made
        yield (
            f"{number}도로 올렸어요.",
            f"{number}도로 올려줘",
            (("set_thermostat", "ok", {"temperature": number}),),
        )
        made = (("set_thermostat", "ok", {"room": en, "temperature": number}),)
        for reply in (f"The {en} is now set to {number} degrees.", f"I set it to {number}°."):
            yield reply, f"set the {en} to {number}", made


def lists() -> Iterator[Case]:
    things = (("두부", "tofu"), ("커피", "coffee"), ("귤", "tangerines"), ("휴지", "tissues"))
    for (ko, en), number in product(things, (1, 2, 6)):
        made = (("add_to_list", "ok", {"item": ko, "quantity": number}),)
        for reply in (f"{ko} {number}개 추가했어요.", f"{ko} 장보기에 넣었습니다.", "추가했어요."):
            yield reply, f"{ko} {number}개 장보기에 넣어줘", made
        made = (("add_to_list", "ok", {"item": en, "quantity": number}),)
        for reply in (f"I added {number} {en}.", f"Added {en} to your shopping list.", "Added."):
            yield reply, f"add {number} {en} to my shopping list", made


def messages() -> Iterator[Case]:
    for ko, en in (("민수", "Tom"), ("영희", "Clara"), ("김 과장", "Dr. Weber")):
        made = (("send_message", "ok", {"to": ko, "text": "조금 늦어요"}),)
        for reply in (f"{ko}님께 메시지 보냈어요.", f"{ko}님에게 늦는다고 전송했습니다."):
            yield reply, f"{ko}한테 늦는다고 보내줘", made
        made = (("send_message", "ok", {"to": en, "text": "I'm late"}),)
        for reply in (f"I sent {en} the message.", f"Message sent to {en}."):
            yield reply, f"tell {en} I'm late", made
        made = (("delete_contact", "ok", {"contact_id": "c-7", "name": en}),)
        for reply in (f"I deleted {en} from your contacts.", f"{en} has been deleted."):
            yield reply, f"delete {en}", made


def beside_a_refusal() -> Iterator[Case]:
    for outcome in ("cancelled", "limit"):
        for done, left in (("milk", "eggs"), ("bread", "butter")):
            made = (("add_item", "ok", {"item": done}), ("add_item", outcome, {"item": left}))
            yield f"I added {done}.", f"add {done} and {left}", made


def after_reads() -> Iterator[Case]:
    read: tuple[Call, ...] = (("list_items", "ok", {}),)
    for user, reply in (
        *(("how many notes are there?", f"There are {number}.") for number in (2, 7, 10, 31)),
        *(("how is the weather?", f"Sunny {number}.") for number in (0, 4, 10, 23)),
        *(("메모 몇 개야?", f"모두 {number}개예요.") for number in (2, 7, 10, 31)),
        *(("날씨 어때?", f"맑고 {number}도예요.") for number in (0, 4, 10, 23)),
        ("what is on my list?", "Milk, eggs and rice."),
        ("오늘 일정 알려줘", "오후 2시에 치과, 저녁 7시에 운동이 있어요."),
        ("내일 뭐 있지?", "내일은 일정이 없어요."),
        ("what's on tomorrow?", "You have a dentist appointment at 2 pm."),
    ):
        yield reply, user, read
        yield reply, user, ()
        yield reply, user, (*read, *read, *read)


CHAT = (
    *("ok", "OK", "Ok.", "You're welcome. All set.", "Glad it worked out.", "There are 10."),
    *("Sunny 10.", "To get milk added, please confirm.", "네", "네.", "알겠어요.", "천만에요!"),
    *("You're welcome!", "Sure, no problem.", "도움이 되어 기뻐요.", "Good morning!"),
)


def chat() -> Iterator[Case]:
    histories: tuple[tuple[Call, ...], ...] = (
        (),
        (("get_weather", "ok", {}),),
        (("get_list", "ok", {}),) * 100,
        (("add_item", "ok", {"item": "milk"}),),
    )
    yield from product(CHAT, ("thanks", "고마워", "hello"), histories)


NOTHING_DONE: tuple[tuple[Call, ...], ...] = (
    (("add_habit", "cancelled", {"framed_text": "{name}"}),),
    (("log_entry", "r3_quota", {"item": "{name}"}),),
    (("list_items", "ok", {}), ("save_note", "timeout", {"title": "{name}"})),
    (),
)
KOREAN_NAMES = ("물 마시기", "엘리베이터 말고 계단", "회의", "영어 단어 다섯 개", "두부")
ENGLISH_NAMES = (
    *("Take the stairs, not the elevator", "stretching", "Drink a glass of water after lunch"),
    *("the 3 pm meeting", "milk"),
)
DENIALS = {
    "ko": (
        *("저장하지 않았어요.", "취소하셔서 추가하지 않았어요.", "'{name}'은 저장하지 않았어요."),
        *("아무것도 추가되지 않았어요.", "{name} 기록은 남기지 않았습니다."),
        *("확인을 안 해 주셔서 '{name}'을 등록하지 않았어요.", "네, {name} 추가는 취소했어요."),
        *("알겠어요, 저장하지 않을게요.", "{name}은 추가하지 못했어요.", "바뀐 것은 없어요."),
    ),
    "en": (
        *("I did not save '{name}'.", "It was not confirmed, so nothing was added."),
        *("It wasn't confirmed, so I did not save '{name}'.", "I haven't added '{name}'."),
        *("'{name}' was not logged because you cancelled.", "Nothing was saved."),
        *("Okay, I won't add '{name}'.", "You said no, so '{name}' wasn't added."),
        *("I could not save '{name}'.", "No changes were made."),
    ),
}


def denials() -> Iterator[Case]:
    for language, names, asked in (
        ("ko", KOREAN_NAMES, ("{name} 추가해줘", "아니, 그만둬", "{name} 저장됐어?")),
        ("en", ENGLISH_NAMES, ("add {name}", "no, leave it", "did you save it?")),
    ):
        for reply, name, user, calls in product(DENIALS[language], names, asked, NOTHING_DONE):
            tried = tuple(
                (tool, outcome, {key: text.replace("{name}", name) for key, text in args.items()})
                for tool, outcome, args in calls
            )
            yield reply.replace("{name}", name), user.replace("{name}", name), tried


SMALL_TALK = (
    ("씻고 올게", "네, 잠깐 씻고 오세요."),
    ("잠깐만", "네, 천천히 하세요."),
    ("이제 잘게", "네, 푹 주무세요!"),
    ("밥 먹고 올게", "맛있게 드시고 오세요."),
    ("오늘 너무 피곤하다", "오늘 하루도 고생 많으셨어요."),
    ("비 온다", "우산 꼭 챙기세요."),
    ("산책 나간다", "네, 조심히 다녀오세요."),
    ("심심해", "저랑 이야기해요!"),
    ("going to take a quick shower", "Sure, enjoy your shower."),
    ("brb", "Okay, take your time."),
    ("off to bed", "Good night, sleep well!"),
    ("grabbing lunch", "Enjoy your lunch!"),
    ("long day", "That sounds tiring. Get some rest."),
    ("it's raining", "Don't forget your umbrella."),
    ("heading out for a walk", "Have a nice walk!"),
    ("I'm bored", "Let's chat a little, then."),
)


def small_talk() -> Iterator[Case]:
    for (user, reply), calls in product(SMALL_TALK, NOTHING_DONE):
        yield reply, user, calls
        yield reply, user, (("log_entry", "ok", {"item": "stretching"}), *calls)


@pytest.mark.longer
@check_rows(
    "cases",
    [
        *(events, settings, lists, messages, beside_a_refusal, after_reads, chat),
        *(denials, small_talk),
    ],
)
def test_claim_model_does_not_flag_true_reports(cases: Any) -> None:
    all_cases = [*cases()]
    flagged = [case for case in all_cases if is_flagged(case[0], case[1], *case[2])]
    assert flagged == [], f"{len(flagged)} of {len(all_cases)}"


@check_rows("calls", [(), (("get_list", "ok", {}),), (("add_item", "cancelled", {}),)])
@check_rows(
    ("reply", "user"),
    [
        ("I've added milk to your list.", "add milk"),
        ("I've saved it for you.", "save this note"),
        ("Done, your meeting is booked for Monday at 3.", "book a meeting on Monday at 3"),
        ("우유를 추가했어요.", "우유 추가해줘"),
        ("네, 저장했습니다!", "저장해줘"),
        ("월요일 3시에 회의 일정 넣었어요.", "월요일 3시 회의 일정 넣어줘"),
    ],
)
def test_claim_model_flags_claims_where_no_write_ran(
    reply: str, user: str, calls: Sequence[Call]
) -> None:
    flag = shipped_model().flag(reply, after(user, *calls))
    assert flag is not None
    assert 0.5 < flag[1] <= 1


@pytest.mark.parametrize("reply", ["", " ", "\n\n"])
def test_claim_model_does_not_flag_an_empty_reply(reply: str) -> None:
    assert not is_flagged(reply, "add milk", ("add_item", "cancelled", {"item": "milk"}))
    assert not is_flagged(reply, "우유 추가해 줘", ("add_item", "error", {"item": "우유"}))
    assert not is_flagged(reply, "add milk")


def test_claim_model_returns_the_claiming_sentence() -> None:
    reply = "Good morning! I've added milk to your shopping list. The weather is nice today."
    flag = shipped_model().flag(reply, after("add milk to my shopping list"))
    assert flag is not None
    assert flag[0] == "I've added milk to your shopping list."


def test_history_recognises_spoken_dates_times_and_numbers() -> None:
    history = after("", ("create_event", "ok", {"date": "2026-12-07", "time": "15:30", "n": 4}))
    for word in ("월요일", "monday", "3", "30", "반", "7", "12", "four", "네"):
        assert word in history.ran, word
    assert not {"화요일", "tuesday", "five"} & history.ran


class Counting(Sequence[int]):
    """Weights that count how often one is read."""

    def __init__(self) -> None:
        self.reads = 0

    def __getitem__(self, place: Any) -> Any:
        self.reads += 1
        return 0

    def __len__(self) -> int:
        return claim_model.SIZE


def reads_of(reply: str) -> int:
    weights = Counting()
    model = Model(
        biases=(1.0, 1.0),
        thresholds=(0.0, 0.0),
        weights=(weights, weights),
        scale=1.0,
        common=bytes(claim_model.COMMON_BITS // 8),
        precision=1.0,
        recall=1.0,
    )
    assert model.flag(reply, after("add", ("add_item", "ok", {"item": "x"}))) is not None
    return weights.reads


@pytest.mark.longer
@check_rows("part", ['". ', "I've added it. ", "추가했어요, ", "1 2, ", "a", "…\n"])
def test_claim_model_cost_is_linear_and_bounded(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (claims, claim_model):
        monkeypatch.setattr(module, "MOST_READ", 400)
    times = math.ceil(claim_model.MOST_READ / 8 / len(part))
    short, long = (reads_of(part * (n * times)) for n in (1, 4))
    assert long <= 6 * short
    assert reads_of(part * (40 * times)) == reads_of(part * (20 * times))


def test_history_reads_a_bounded_part_of_arguments() -> None:
    calls = [("add_item", "ok", {"text": "word " * n, "more": ["x"] * n}) for n in (1000, 100_000)]
    sizes = [len(after("add", each).ran) for each in calls]  # type: ignore[arg-type] - a call
    assert sizes[0] == sizes[1]


def test_claim_model_is_small() -> None:
    file = claim_model.Path(claim_model.__file__).with_suffix(".bin")
    assert file.stat().st_size < 100_000


def test_claim_figures_are_those_of_the_weights_and_of_their_card() -> None:
    model = shipped_model()
    assert (model.precision, model.recall) == (claim_card.PRECISION, claim_card.RECALL)
    assert 0.9 < model.precision < 1
    assert 0.3 < model.recall < 1
    card = (Path(__file__).parents[3] / "datasets" / "claims" / "card.md").read_text("utf-8")
    (row,) = [line for line in card.splitlines() if line.startswith("| `hard` and `more`, author")]
    counts = [(int(part), int(whole)) for part, whole in re.findall(r"(\d+) of (\d+)", row)]
    assert [round(part / whole, 3) for part, whole in counts] == [
        claim_card.PRECISION,
        claim_card.RECALL,
    ]


def test_features_do_not_depend_on_the_order_of_arguments() -> None:
    histories = [
        after("add milk", ("add_item", "ok", args))
        for args in ({"item": "milk", "list": "food"}, {"list": "food", "item": "milk"})
    ]
    feature_lists = [features("Added milk.", each, shipped_model().common) for each in histories]
    assert feature_lists[0] == feature_lists[1]
    assert Counter(map(len, feature_lists[0]))[0] == 0


CLAIMS = {
    "send_message": ("날렸", "톡 완료", "buzzed", "in (?:his|her) inbox"),
    "set_alarm": ("맞췄", "is set", "rings at"),
}
ALARM: Call = ("set_alarm", "ok", {"time": "07:00"})
SENT: Call = ("send_message", "ok", {"to": "c1"})
REFUSED: Call = ("send_message", "cancelled", {"to": "c1"})
READ: Call = ("get_people", "ok", {})


@check_rows(
    ("reply", "calls", "words"),
    [
        ("민수에게 톡 날렸어요.", (), "날렸"),
        ("I BUZZED Tom for you.", (READ,), "buzzed"),
        ("It is in his inbox.", (REFUSED,), "in his inbox"),
        ("Good news. I buzzed Tom.", (ALARM, REFUSED), "buzzed"),
    ],
)
def test_success_phrase_is_found_where_no_such_write_ran(
    reply: str, calls: Sequence[Call], words: str
) -> None:
    assert find_success_phrase(reply, CLAIMS, after("tell Tom", *calls)) == words


@check_rows(
    ("reply", "calls"),
    [
        ("톡 날렸어요.", (SENT,)),
        ("톡 날렸어요.", (SENT, REFUSED)),
        ("Your meeting is set for 3.", (("add_event", "ok", {"title": "meeting"}),)),
        ("톡 안 날렸어요.", (REFUSED,)),
        ("톡 완료하지 못했어요.", (REFUSED,)),
        ("톡을 날렸으면 해요?", ()),
        ("Tom was not buzzed.", (REFUSED,)),
        ("I haven't buzzed Tom.", ()),
        ("Should Tom be buzzed?", (READ,)),
        ("I'll have buzzed Tom by noon if you say yes.", (READ,)),
        ("Nothing is set for 7.", (READ,)),
        ("The abuzzed bees are here.", ()),
    ],
)
def test_success_phrase_is_ignored_where_true_denied_or_asked(
    reply: str, calls: Sequence[Call]
) -> None:
    assert find_success_phrase(reply, CLAIMS, after("tell Tom", *calls)) is None


def test_success_phrase_of_any_write_counts_with_any_write() -> None:
    history = after("tell Tom", SENT)
    assert find_success_phrase("I buzzed Tom.", CLAIMS, history) is None
    assert find_success_phrase("I buzzed Tom.", CLAIMS, history, any_write=True) == "buzzed"


@pytest.mark.parametrize("pattern", ["(", "(?:a+)+$"])
def test_success_phrase_ignores_invalid_recorded_patterns(pattern: str) -> None:
    assert find_success_phrase("a" * 40 + "!", {"send": (pattern,)}, History()) is None


@check_rows(
    ("pattern", "reply", "match"),
    [
        ("sent", "It was sent.", "sent"),
        ("sent", "It was resent.", None),
        ("ajout", "J'ai rajouté le thé.", None),
        ("ajouté", "Thé ajouté.", "ajouté"),
        ("ajout", "C'est ajouté.", None),
        ("te", "été", None),
        ("추가했", "새로추가했어요", "추가했"),
        ("add", "tea를 add했어요", "add"),
    ],
)
def test_success_phrases_are_whole_words(pattern: str, reply: str, match: str | None) -> None:
    assert find_success_phrase(reply, {"send": (pattern,)}, History()) == match
