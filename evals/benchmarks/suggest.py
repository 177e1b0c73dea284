"""Measure `lhkit chats suggest`: recall and precision on made chats with planted mistakes.

200 chats in two languages with three toolsets go through the real chat controller with scripted
models. What was planted stays in this process: the chats have the names that the recorder gives
them. A minute.

    python evals/benchmarks/suggest.py [--seed N]
"""

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import figures
from figures import Figure, Measurement

from lhkit import Decision, Edit, Reject, ToolRegistry, __version__
from lhkit.app import open_chat
from lhkit.confirm.gate import ConfirmRequest
from lhkit.conversation.messages import ToolCall
from lhkit.harness.authoring.checks import Level
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.scenario_yaml import yaml_text
from lhkit.harness.chats.chats import ChatRecorder
from lhkit.harness.chats.drafts import Draft, Drafts, read_drafts
from lhkit.harness.exports.suggest import Suggestions, suggest
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.sample import run_sample
from lhkit.harness.running.sessions import LiveSession
from lhkit.harness.scenarios.loader import read_sources
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.recorded.scripted import Reply, ScriptedModel, say
from lhkit.toolset import Toolset, load, load_toolset

PANTRY = Path(__file__).parents[1] / "pantry" / "pantry.py"
CHATS = 200
SEED = 20261129
NOW = datetime.fromisoformat("2026-06-15T09:00:00+09:00")
SHARES = {
    "edit": 32,
    "rejection": 26,
    "corrected": 10,
    "claim": 20,
    "denial": 12,
    "repeat": 18,
    "repeat_undone": 12,
    "paraphrase": 6,
    "clean": 52,
    "twice": 4,
    "change_of_mind": 5,
    "preference": 3,
}
"""Chats by what is planted in one turn of each; the last four have nothing wrong."""

KINDS = {
    "edit": "edit",
    "rejection": "rejection",
    "corrected": "rejection",
    "claim": "conflict",
    "denial": "conflict",
    "repeat": "repeat",
    "repeat_undone": "repeat",
    "paraphrase": "repeat",
}
"""What `lhkit chats suggest` should call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of a user, in several wordings, and what may come of it.

    `user` are wordings; the first word of each of `again` is that of an impatient user.
    """

    tool: str
    right: Mapping[str, Any]
    wrong: Mapping[str, Any]
    user: Sequence[str]
    far: str
    done: Sequence[str]
    denied: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A toolset with its requests in a language."""

    name: str
    toolset: Toolset
    world: Mapping[str, Any]
    request: Callable[[random.Random], Request]


@dataclass(slots=True, kw_only=True)
class Turn:
    """A scripted turn: the message, the replies of the model, the answers on its cards."""

    user: str
    replies: list[Reply]
    answers: list[Any] = field(default_factory=list)
    planted: str = ""
    right: Mapping[str, Any] | None = None


FOODS = {
    "en": ["milk", "eggs", "butter", "rice", "tofu", "spinach", "yoghurt", "noodles", "apples"],
    "ko": ["우유", "계란", "버터", "쌀", "두부", "시금치", "요거트", "국수", "사과"],
}
PLACES = {
    "en": {"fridge": "fridge", "freezer": "freezer", "shelf": "cupboard"},
    "ko": {"fridge": "냉장실", "freezer": "냉동실", "shelf": "찬장"},
}
HABITS = {
    "daily-walk": {"en": "the walk", "ko": "걷기"},
    "gratitude-note": {"en": "the gratitude note", "ko": "감사 일기"},
    "stretch-break": {"en": "the stretch break", "ko": "스트레칭"},
    "water-with-meals": {"en": "water with meals", "ko": "식사 때 물"},
}
DAYS = {
    "en": {0: "today", 1: "yesterday", 2: "on Saturday"},
    "ko": {0: "오늘", 1: "어제", 2: "토요일에"},
}
PEOPLE = {
    "en": ["Kim", "Ana", "Lee", "Maya", "Tom"],
    "ko": ["민수", "지은", "현우", "서연", "도윤"],
}
NEWS = {
    "en": ["I am late", "dinner is at seven", "the keys are inside", "practice is off"],
    "ko": ["조금 늦는다고", "저녁은 일곱 시라고", "열쇠는 안에 있다고", "연습은 취소라고"],
}
SMALL_TALK = {
    "en": [
        ("Good morning!", "Good morning! How can I help?"),
        ("Thanks, that is all.", "You are welcome."),
        ("What can you do?", "I can look things up and write them down for you."),
        ("You are quick today.", "Thank you!"),
    ],
    "ko": [
        ("좋은 아침이야", "좋은 아침이에요! 무엇을 도와드릴까요?"),
        ("고마워, 그거면 됐어", "천만에요."),
        ("뭘 할 수 있어?", "찾아보고 기록하는 일을 도와드려요."),
        ("오늘따라 빠르네", "고마워요!"),
    ],
}
EVASIONS = {
    "en": ["I am here to help with that.", "That sounds good.", "Sure, no problem.", "Let me see."],
    "ko": ["네, 도와드릴게요.", "좋은 생각이에요.", "네, 문제없어요.", "잠시만요."],
}
REASONS = {
    "en": ["No, that is wrong", "not that one", "wrong, look again", "I did not say that"],
    "ko": ["아니 그거 말고", "틀렸어", "그게 아니야", "그렇게 말 안 했어"],
}
MIND = {"en": ["not now after all", "I will do it later"], "ko": ["지금은 말고", "나중에 할게"]}
IMPATIENT = {
    "en": ["{}", "Please {}", "I said: {}", "{} please", "Again: {}", "{}!!", "Hey, {}"],
    "ko": ["{}", "다시, {}", "{} 제발", "아니, {}", "{}!!", "{} 빨리", "그러니까 {}"],
}
OTHER_CLAIMS = {
    "en": ["All set!", "Done, it is taken care of.", "Consider it done."],
    "ko": ["다 됐어요!", "처리 완료했어요.", "말씀하신 대로 해 뒀어요."],
}


def other(rng: random.Random, values: Sequence[Any], value: Any) -> Any:
    """Return another one of the values."""
    return rng.choice([each for each in values if each != value])


def pantry_request(rng: random.Random, locale: str) -> Request:
    """Return a request to put something into the pantry, or to move or use it."""
    food, place = rng.choice(FOODS[locale]), rng.choice([*PLACES[locale]])
    amount, where = rng.randint(1, 9), PLACES[locale]
    which = rng.choice(["add", "add", "use", "move"])
    number = FOODS[locale].index(food)
    near_place = other(rng, [*where], place)
    if which == "add":
        right = {"name": food, "amount": amount, "place": place}
        wrong = rng.choice(
            [
                {**right, "amount": amount + 10},
                {**right, "place": near_place},
                {**right, "name": other(rng, FOODS[locale], food)},
            ]
        )
        texts = {
            "en": [
                f"put {amount} {food} in the {where[place]}",
                f"I bought {amount} {food}, they are in the {where[place]}",
            ],
            "ko": [
                f"{food} {amount}개 {where[place]}에 넣어 줘",
                f"{where[place]}에 {food} {amount}개 추가해 줘",
            ],
        }
        far = {"en": f"the {food} should be listed by now", "ko": f"{food}는 왜 목록에 없어"}
        done = {
            "en": [f"I added {amount} {food}.", f"{food} is in the {where[place]} now."],
            "ko": [f"{food} {amount}개를 넣었어요.", f"{food}를 추가했어요."],
        }
        denied = {
            "en": ["I could not add it.", f"Sorry, {food} was not added."],
            "ko": [f"{food}는 넣지 못했어요.", "추가되지 않았어요."],
        }
        tool = "add_item"
    elif which == "use":
        right = {"item_id": f"food-{number}", "amount": amount}
        wrong = rng.choice(
            [
                {**right, "amount": amount + 1},
                {**right, "item_id": f"food-{other(rng, range(len(FOODS[locale])), number)}"},
            ]
        )
        texts = {
            "en": [f"take {amount} of the {food} out", f"I used up {amount} {food}"],
            "ko": [f"{food} {amount}개 썼어", f"{food} {amount}개 빼 줘"],
        }
        far = {"en": f"the {food} count is still off", "ko": f"{food} 숫자가 그대로야"}
        done = {"en": [f"I took out {amount} {food}."], "ko": [f"{food} {amount}개를 뺐어요."]}
        denied = {
            "en": ["I was not able to change the amount.", "That did not work."],
            "ko": ["빼지 못했어요.", "수량은 그대로예요."],
        }
        tool = "use_item"
    else:
        place = other(rng, [*where], [*where][number % 3])  # not where it is
        near_place = other(rng, [*where], place)
        right = {"item_id": f"food-{number}", "place": place}
        wrong = rng.choice(
            [
                {**right, "place": near_place},
                {**right, "item_id": f"food-{other(rng, range(len(FOODS[locale])), number)}"},
            ]
        )
        texts = {
            "en": [
                f"move the {food} to the {where[place]}",
                f"the {food} goes to the {where[place]}",
            ],
            "ko": [f"{food}를 {where[place]}로 옮겨 줘", f"{food} {where[place]}로 보내 줘"],
        }
        far = {"en": f"why is the {food} at its old place", "ko": f"{food}가 왜 아직 거기 있어"}
        done = {"en": [f"I moved the {food}."], "ko": [f"{food}를 옮겼어요."]}
        denied = {
            "en": ["I couldn't move it.", "Nothing was moved."],
            "ko": ["옮기지 않았어요.", "옮기는 데 실패했어요."],
        }
        tool = "move_item"
    return Request(
        tool=tool,
        right=right,
        wrong=wrong,
        user=texts[locale],
        far=far[locale],
        done=done[locale],
        denied=denied[locale],
    )


def habit_request(rng: random.Random, locale: str) -> Request:
    """Return a request to log a day of a habit of life-helper."""
    habit, ago = rng.choice([*HABITS]), rng.choice([0, 1, 2])
    value = rng.choice(["done", "done", "blank"])
    name, day = HABITS[habit][locale], DAYS[locale][ago]
    right = {"habit_id": habit, "value": value, "date": _day(ago)}
    wrong = rng.choice(
        [
            {**right, "date": _day(other(rng, [0, 1, 2], ago))},
            {**right, "value": other(rng, ["done", "blank"], value)},
            {**right, "habit_id": other(rng, [*HABITS], habit)},
        ]
    )
    texts = {
        ("en", "done"): [f"mark {name} as done {day}", f"I did {name} {day}, write it down"],
        ("en", "blank"): [f"leave {name} blank {day}", f"I missed {name} {day}, note that"],
        ("ko", "done"): [f"{day} {name} 했다고 적어 줘", f"{name} {day} 완료로 기록해 줘"],
        ("ko", "blank"): [f"{day} {name} 공란으로 둬 줘", f"{name} {day} 못 했다고 적어 줘"],
    }
    far = {"en": f"{name} still shows nothing", "ko": f"{name} 칸이 왜 비어 있지"}
    done = {
        "en": [f"I logged {name} {day}.", "It is recorded."],
        "ko": [f"{name} 기록했어요.", f"{day} 칸에 저장했어요."],
    }
    denied = {
        "en": ["I did not log it.", "The entry was not saved."],
        "ko": ["기록하지 않았어요.", "저장에 실패했어요."],
    }
    return Request(
        tool="log_tracker_entry",
        right=right,
        wrong=wrong,
        user=texts[locale, value],
        far=far[locale],
        done=done[locale],
        denied=denied[locale],
    )


def message_request(rng: random.Random, locale: str) -> Request:
    """Return a request to send somebody a message, of tools without a state."""
    person, news = rng.choice(PEOPLE[locale]), rng.choice(NEWS[locale])
    right = {"to": person, "text": news}
    wrong = rng.choice(
        [
            {**right, "to": other(rng, PEOPLE[locale], person)},
            {**right, "text": other(rng, NEWS[locale], news)},
        ]
    )
    texts = {
        "en": [f"tell {person} {news}", f"write to {person} that {news}"],
        "ko": [f"{person}한테 {news} 전해 줘", f"{person}에게 {news} 보내 줘"],
    }
    far = {"en": f"{person} has heard nothing yet", "ko": f"{person}는 아직 못 들었대"}
    done = {"en": [f"I sent it to {person}."], "ko": [f"{person}에게 보냈어요."]}
    denied = {
        "en": ["The message was not sent.", "I was unable to send it."],
        "ko": ["보내지 못했어요.", "메시지는 전송되지 않았어요."],
    }
    return Request(
        tool="send_message",
        right=right,
        wrong=wrong,
        user=texts[locale],
        far=far[locale],
        done=done[locale],
        denied=denied[locale],
    )


def _day(ago: int) -> str:
    return f"{NOW - timedelta(days=ago):%Y-%m-%d}"


def message_tools() -> ToolRegistry:
    """Return tools without a state."""
    registry = ToolRegistry()

    @registry.tool(destructive=True, claims={"en": ["sent"], "ko": ["보냈"]})
    def send_message(to: str, text: str) -> dict[str, str]:
        """Send a message."""
        return {"to": to, "text": text}

    return registry


def domains(locale: str) -> list[Domain]:
    """Return the toolsets with their initial states in a language."""
    now = {"now": NOW.isoformat()}
    items = [
        {"id": f"food-{i}", "name": food, "amount": 40, "place": [*PLACES[locale]][i % 3]}
        for i, food in enumerate(FOODS[locale])
    ]
    habits = [{"protocol_id": each} for each in HABITS]
    return [
        Domain(
            name="life-helper",
            toolset=load(),
            world={**now, "habits": habits},
            request=lambda rng: habit_request(rng, locale),
        ),
        Domain(
            name="pantry",
            toolset=load(f"{PANTRY}:toolset"),
            world={**now, "items": items},
            request=lambda rng: pantry_request(rng, locale),
        ),
        Domain(
            name="messages",
            toolset=load_toolset(message_tools()),
            world=now,
            request=lambda rng: message_request(rng, locale),
        ),
    ]


def made(request: Request, args: Mapping[str, Any]) -> Reply:
    """Return a message of the model with a call."""
    return Reply(calls=(ToolCall(name=request.tool, args=dict(args)),))


def planted_turns(
    kind: str, rng: random.Random, request: Request, locale: str, extra: Request
) -> list[Turn]:
    """Return the turns of a kind; the one that is wrong, if any, has `planted`."""
    user, done = rng.choice(request.user), say(rng.choice(request.done))
    right, wrong = made(request, request.right), made(request, request.wrong)
    answer = say(rng.choice(EVASIONS[locale]))
    again = rng.choice(IMPATIENT[locale]).format(user)
    match kind:
        case "edit":
            return [
                Turn(user=user, replies=[wrong, done], answers=[dict(request.right)], planted=kind)
            ]
        case "preference":  # the user's own change, which no model could know
            changed = {**request.right, **_preference(request, rng, locale)}
            return [Turn(user=user, replies=[right, done], answers=[changed])]
        case "rejection":
            why = Reject(rng.choice([*REASONS[locale], ""]))
            return [Turn(user=user, replies=[wrong, answer], answers=[why], planted=kind)]
        case "corrected":
            why = Reject(rng.choice(REASONS[locale]))
            return [
                Turn(user=user, replies=[wrong, right, done], answers=[why, True], planted=kind)
            ]
        case "change_of_mind":
            return [
                Turn(user=user, replies=[right, answer], answers=[Reject(rng.choice(MIND[locale]))])
            ]
        case "claim":
            claims = [*request.done, rng.choice(OTHER_CLAIMS[locale])]
            return [Turn(user=user, replies=[say(rng.choice(claims))], planted=kind)]
        case "denial":
            denied = say(rng.choice(request.denied))
            return [Turn(user=user, replies=[right, denied], answers=[True], planted=kind)]
        case "repeat":
            return [
                Turn(user=user, replies=[answer], planted=kind),
                Turn(user=again, replies=[right, done], answers=[True]),
            ]
        case "repeat_undone":
            return [
                Turn(user=user, replies=[answer], planted=kind),
                Turn(user=again, replies=[say(rng.choice(EVASIONS[locale]))]),
            ]
        case "paraphrase":
            return [
                Turn(user=user, replies=[answer], planted=kind),
                Turn(user=request.far, replies=[right, done], answers=[True]),
            ]
        case "twice":
            return [
                Turn(user=user, replies=[right, done], answers=[True]),
                Turn(user=user, replies=[right, done], answers=[True]),
            ]
        case _:
            return [clean_turn(rng, extra, locale)]


def _preference(request: Request, rng: random.Random, locale: str) -> Mapping[str, Any]:
    if "amount" in request.right:
        return {"amount": request.right["amount"] + 20}
    if "to" in request.right:
        return {"text": other(rng, NEWS[locale], request.right["text"])}
    return {"date": _day(5)} if "date" in request.right else {"place": "freezer"}


def clean_turn(rng: random.Random, request: Request, locale: str) -> Turn:
    """Return a turn in which nothing is wrong."""
    if rng.random() < 0.4:
        user, reply = rng.choice(SMALL_TALK[locale])
        return Turn(user=user, replies=[say(reply)])
    done = say(rng.choice(request.done))
    return Turn(
        user=rng.choice(request.user), replies=[made(request, request.right), done], answers=[True]
    )


class Answers:
    """The gate of a scripted user: arguments are an edit."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self._answers = iter(answers)

    async def confirm(self, request: ConfirmRequest) -> Decision | bool:
        """Return the next answer."""
        answer = next(self._answers, False)
        return Edit({**request.args, **answer}) if isinstance(answer, dict) else answer


async def record_chat(
    turns: Sequence[Turn], domain: Domain, locale: str, folder: Path, now: datetime
) -> str:
    """Have a chat, record it, and return its name."""
    live = LiveSession(domain.toolset, domain.world, None, now=lambda: NOW, locale=locale)
    recorder = ChatRecorder(folder, live, now=lambda: now)
    model = ScriptedModel([reply for turn in turns for reply in turn.replies])
    chat = open_chat(model, live.session, None, locale, live.watch())
    chat.subscribe(recorder.handle)
    for turn in turns:
        chat.confirm = Answers(turn.answers)
        await chat.user_turn(turn.user)
        recorder.save(locale)
    live.close()
    return recorder.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """The planted kind of each turn of the chats of a toolset, by chat and turn."""

    domain: Domain
    folder: Path
    truth: Mapping[tuple[str, int], str]
    chats: Mapping[str, str]
    turns: Mapping[str, Sequence[Turn]]


async def make_chats(folder: Path, seed: int, shares: Mapping[str, int] = SHARES) -> list[Planted]:
    """Make the chats of all toolsets, in random order."""
    rng = random.Random(seed)
    kinds = [kind for kind, number in shares.items() for _ in range(number)]
    rng.shuffle(kinds)
    by_locale = {locale: domains(locale) for locale in ("en", "ko")}
    truths: dict[str, dict[tuple[str, int], str]] = {each.name: {} for each in by_locale["en"]}
    chats: dict[str, dict[str, str]] = {name: {} for name in truths}
    made_turns: dict[str, Sequence[Turn]] = {}
    for number, kind in enumerate(kinds):
        locale = rng.choice(["en", "ko"])
        domain = rng.choice(by_locale[locale])
        request = domain.request(rng)
        turns = planted_turns(kind, rng, request, locale, domain.request(rng))
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            turns.insert(rng.choice([0, len(turns)]), clean_turn(rng, domain.request(rng), locale))
        began = NOW + timedelta(minutes=7 * number)
        name = await record_chat(turns, domain, locale, folder / domain.name, began)
        chats[domain.name][name] = kind
        made_turns[name] = turns
        for t, turn in enumerate(turns):
            if turn.planted:
                truths[domain.name][name, t] = turn.planted
                turn.right = {"tool": request.tool, "args": dict(request.right), "result": "ok"}
    return [
        Planted(
            domain=domain,
            folder=folder / domain.name,
            truth=truths[domain.name],
            chats=chats[domain.name],
            turns=made_turns,
        )
        for domain in by_locale["en"]
    ]


@dataclass(slots=True, kw_only=True)
class Counts:
    """What was found, by kind, over all toolsets."""

    planted: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    named: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    drafts: int = 0
    near: int = 0
    left_out: list[str] = field(default_factory=list)
    errors: int = 0
    warnings: Counter[str] = field(default_factory=Counter)
    known: int = 0
    right_calls: int = 0
    replayed: int = 0
    failed_again: int = 0
    passed_again: Counter[str] = field(default_factory=Counter)

    def add(self, planted: Planted, drafts: Drafts, made_: Suggestions) -> None:
        """Count the drafts of a toolset."""
        named: dict[tuple[str, int], dict[str, str]] = {}
        for name, draft in drafts.drafts.items():
            for source in drafts.sources_of(name):
                named[source.chat, source.turn] = {
                    str(each.kind): f"{each.tool} {each.words}" for each in draft.findings
                }
        for place, what in planted.truth.items():
            self.planted[what] += 1
            if KINDS[what] in named.get(place, ()):
                self.found[what] += 1
            else:
                turn = planted.turns[place[0]][place[1]]
                self.missed.append(f"{what}: {turn.user} / {turn.replies[-1].text}")
        for place, kinds in named.items():
            for kind, why in kinds.items():
                self.named[kind] += 1
                if KINDS.get(planted.truth.get(place, "")) == kind:
                    self.right[kind] += 1
                else:
                    self.wrong.append(f"{kind} in a chat of {planted.chats[place[0]]}: {why}")
        self.drafts += len(drafts.drafts)
        self.near += made_.near
        self.left_out += [f"{each.chat} {each.turn}: {each.why}" for each in made_.left_out]


async def measure(seed: int, folder: Path, shares: Mapping[str, int] = SHARES) -> Counts:
    """Make the chats, suggest drafts of them, and compare."""
    counts = Counts()
    for planted in await make_chats(folder, seed, shares):
        file = folder / f"{planted.domain.name}.jsonl"
        suggestions = await suggest(planted.folder, file, planted.domain.toolset)
        drafts = read_drafts(file)
        counts.add(planted, drafts, suggestions)
        suite = folder / f"{planted.domain.name}.scenario.yaml"
        scenarios = [draft.scenario for draft in drafts.drafts.values()]
        suite.write_text(yaml_text(scenarios), encoding="utf-8")
        for finding in await lint(read_sources([suite]), planted.domain.toolset):
            if finding.level is Level.ERROR:
                counts.errors += 1
            else:
                counts.warnings[finding.code] += 1
        for draft in drafts.drafts.values():
            await check_draft(draft, planted, counts)
    return counts


async def check_draft(draft: Draft, planted: Planted, counts: Counts) -> None:
    """Count whether the proposed call is the right one, and whether the mistake fails the draft."""
    place = draft.source.chat, draft.source.turn
    if KINDS.get(planted.truth.get(place, "")) not in draft.kinds:
        return
    turns = planted.turns[draft.source.chat][: draft.source.turn + 1]
    if draft.calls:
        counts.known += 1
        counts.right_calls += draft.calls[-1] == turns[-1].right
    model = ScriptedModel([reply for turn in turns for reply in turn.replies])
    record = await run_sample(Scenario.from_data(draft.scenario), model, planted.domain.toolset)
    counts.replayed += 1
    counts.failed_again += record.score.verdict is Verdict.FAIL
    if record.score.verdict is not Verdict.FAIL:
        counts.passed_again[planted.truth[place]] += 1


def percent(part: int, whole: int) -> float:
    """Return a percentage; 100 of nothing."""
    return 100 * part / whole if whole else 100.0


def build_measurement(counts: Counts) -> Measurement:
    """Return the figures."""
    kinds = list(dict.fromkeys(KINDS.values()))

    def of_kind(counter: Counter[str], kind: str) -> int:
        return sum(number for name, number in counter.items() if KINDS[name] == kind)

    def rows() -> Iterator[Figure]:
        for kind in kinds:
            found, planted = of_kind(counts.found, kind), of_kind(counts.planted, kind)
            right, named = counts.right[kind], counts.named[kind]
            yield Figure(
                what=f"{kind}: recall, {found} of {planted}",
                value=percent(found, planted),
                unit="%",
            )
            yield Figure(
                what=f"{kind}: precision, {right} of {named}",
                value=percent(right, named),
                unit="%",
            )
        yield Figure(
            what=f"drafts with an expected call: it is right, {counts.right_calls} of "
            f"{counts.known}",
            value=percent(counts.right_calls, counts.known),
            unit="%",
        )
        yield Figure(
            what=f"the model of the chat fails its draft, {counts.failed_again} of "
            f"{counts.replayed}",
            value=percent(counts.failed_again, counts.replayed),
            unit="%",
        )
        yield Figure(what="drafts", value=counts.drafts, unit="")
        yield Figure(what="near-duplicates named in them", value=counts.near, unit="")
        yield Figure(what="turns left out", value=len(counts.left_out), unit="", at_most=0)
        yield Figure(what="errors of lint in the drafts", value=counts.errors, unit="", at_most=0)

    return Measurement(
        title="Drafts from recorded chats",
        command="python evals/benchmarks/suggest.py",
        versions={"lhkit": __version__},
        figures=tuple(rows()),
        machine=figures.describe_machine(),
        notes=("[suggest.md](suggest.md) says what is planted, and what is missed and why.",),
    )


async def main() -> None:
    """Measure, write the figures, and print what was missed and what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--dry", action="store_true", help="write no figures")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        counts = await measure(options.seed, Path(folder))
    for what in KINDS:
        print(f"{what}: {counts.found[what]} of {counts.planted[what]} found")
    print("\n".join(["missed:", *counts.missed, "wrong:", *counts.wrong]))
    print("\n".join(["left out:", *counts.left_out]), counts.warnings, counts.passed_again)
    measurement = build_measurement(counts)
    if options.dry:
        print("\n".join(figures.format_table(measurement.figures)))
    else:
        figures.write("suggest", measurement)


if __name__ == "__main__":
    asyncio.run(main())
