"""What a conversation is written in: days as people name them, a world, and the scene itself.

The talk modules write lines with a `Scene`. Their acts run later, during the play, and answer from
what the tools really return.
"""

import calendar
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import cache
from typing import Any, TypeAlias

from evals.lessons.phrases import Phrases, Spoken, chance, parts, typed, withheld
from lhkit.dates.said import SaidDates
from lhkit.harness.matchers import similarity
from lhkit.harness.scenario import ScriptedFault
from lhkit.lifehelper.catalog import Protocol, ProtocolCatalog, load_protocols
from lhkit.lifehelper.store import Store, StoreImage
from lhkit.lifehelper.tools import search_protocols
from lhkit.messages import ToolCallMessage, ToolErr, ToolOk
from lhkit.models.scripted import Reply, say
from lhkit.tuning.noise import careless, is_literal
from lhkit.tuning.teacher import Act, Answers, Line

# -------------------------------------------------------------------------- days and spans in words
# Worked out without the rules of `lhkit.dates`: a test holds one against the other.
#
# Only wordings with one meaning are here. "Last Tuesday" is said when this week's Tuesday is still
# to come or today, so that it can only be the one of the week before; "the last 3 days" end today.

_WEEKDAYS = {
    "ko": ("월요일", "화요일", "수요일", "목요일", "금요일", "토요일", "일요일"),
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
}
_KO_AGO = {2: "이틀 전", 3: "사흘 전", 4: "나흘 전", 7: "일주일 전"}
_EN_AGO = {2: "two days ago", 3: "three days ago", 4: "four days ago", 7: "a week ago"}
_DATED_BACK = (2, 3, 5, 8)
_LONG_BACK = (12, 19, 33, 47)
_SATURDAY = 5
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidDay:
    """A day in words: as an adverb ("on June 3") and as a noun ("June 3")."""

    text: str
    noun: str
    day: date


def plain_day(day: date, locale: str) -> str:
    """Return a date without its year, as a person would read it."""
    if locale == "ko":
        return f"{day.month}월 {day.day}일"
    return f"{calendar.month_name[day.month]} {day.day}"


def short_day(day: date) -> str:
    """Return a date as digits, for enumerations."""
    return f"{day.month}/{day.day}"


def past_days(today: date, locale: str) -> tuple[SaidDay, ...]:
    """Return the days before today that have a name; the common ones more than once."""
    return tuple(_korean_days(today) if locale == "ko" else _english_days(today))


def ranges(today: date, locale: str) -> tuple[SaidDates, ...]:
    """Return the spans that end today or before."""
    spans = _korean_ranges(today) if locale == "ko" else _english_ranges(today)
    return tuple(SaidDates(text=text, first=first, last=last) for text, first, last in spans)


def _korean_days(today: date) -> Iterator[SaidDay]:
    def said(text: str, day: date) -> SaidDay:
        return SaidDay(text=text, noun=text, day=day)

    near = (("어제", 1),) * 5 + (("그저께", 2), ("그제", 2)) * 2 + (("그끄저께", 3),)
    ago = tuple((text, back) for back, text in _KO_AGO.items())
    counted = tuple((f"{back}일 전", back) for back in (2, 3, 4, 5, 6))
    for text, back in (*near, *ago, *counted):
        yield said(text, today - back * _DAY)
    for weekday, name in enumerate(_WEEKDAYS["ko"]):
        before, this = _weekday(today, weekday)
        yield said(f"지난주 {name}", before)
        if weekday == today.weekday():
            yield said(f"한 주 전인 지난주 {name}", before)
        yield said(f"이번 주 {name}", this) if this < today else said(f"지난 {name}", before)
    yield from (said(text, day) for text, day in _korean_dates(today))


def _korean_dates(today: date) -> Iterator[tuple[str, date]]:
    for back in _DATED_BACK:
        day = today - back * _DAY
        yield plain_day(day, "ko"), day
        yield short_day(day), day
        if day.month == today.month:
            yield f"{day.day}일", day
    for back in _LONG_BACK:
        day = today - back * _DAY
        year = "올해 " if day.year == today.year else ""
        yield year + plain_day(day, "ko"), day


def _english_days(today: date) -> Iterator[SaidDay]:
    near = (("yesterday", 1),) * 5 + (("the day before yesterday", 2),) * 4
    ago = tuple((text, back) for back, text in _EN_AGO.items())
    for text, back in (*near, *ago):
        yield SaidDay(text=text, noun=text, day=today - back * _DAY)
    for weekday, name in enumerate(_WEEKDAYS["en"]):
        before, this = _weekday(today, weekday)
        yield _on(f"{name} of last week", before)
        if this < today:
            yield _on(f"{name} this week", this)
        else:
            yield SaidDay(text=f"last {name}", noun=f"last {name}", day=before)
    for back in _DATED_BACK:
        day = today - back * _DAY
        yield _on(plain_day(day, "en"), day)
        if day.month == today.month:
            yield _on(f"the {_ordinal(day.day)}", day)
    for back in _LONG_BACK:
        day = today - back * _DAY
        year = " this year" if day.year == today.year else ""
        yield _on(f"{calendar.month_name[day.month]} {_ordinal(day.day)}{year}", day)


def _on(noun: str, day: date) -> SaidDay:
    return SaidDay(text=f"on {noun}", noun=noun, day=day)


def _korean_ranges(today: date) -> Iterator[tuple[str, date, date]]:
    monday, before = _monday(today), _monday(today) - 7 * _DAY
    this_week = ("이번 주", "이번 주 월요일부터 오늘까지", "이번 주 오늘까지")
    yield from _alike(this_week, monday, today)
    yield f"{monday.day}일 월요일부터 오늘까지", monday, today
    last_week = ("지난주", "저번 주", "지난주 전체", "지난주 월요일부터 일요일까지")
    yield from _alike(last_week, before, before + 6 * _DAY)
    yield "지난주 월요일부터 금요일까지", before, before + 4 * _DAY
    yield "지난주 월요일부터 오늘까지", before, today
    yield "지지난주", before - 7 * _DAY, before - _DAY
    for count in (3, 5, 7, 10):
        both = (f"최근 {count}일", f"오늘까지 {count}일간")
        yield from _alike(both, today - (count - 1) * _DAY, today)
    yield from _alike(("최근 일주일", "오늘까지 일주일"), today - 6 * _DAY, today)
    yield "지난 3일", today - 2 * _DAY, today
    yield "어제와 그저께", today - 2 * _DAY, today - _DAY
    yield "그저께부터 오늘까지", today - 2 * _DAY, today
    this_month = ("이번 달", "이달", "이번 달 1일부터 오늘까지")
    yield from _alike(this_month, today.replace(day=1), today)
    yield "지난달", *_month_before(today)
    first, last = today - 9 * _DAY, today - 2 * _DAY
    yield f"{plain_day(first, 'ko')}부터 {plain_day(last, 'ko')}까지", first, last
    yield f"{plain_day(first, 'ko')}부터 오늘까지", first, today
    if today.weekday():
        yield "월요일부터 오늘까지", monday, today
    if today.weekday() > 1:
        yield "월요일부터 어제까지", monday, today - _DAY
    if today.weekday() < _SATURDAY:
        yield "지난 주말", before + 5 * _DAY, before + 6 * _DAY


def _english_ranges(today: date) -> Iterator[tuple[str, date, date]]:
    monday, before = _monday(today), _monday(today) - 7 * _DAY
    this_week = ("this week", "so far this week", "this week up to today")
    yield from _alike(this_week, monday, today)
    last_week = ("last week", "in the whole of last week", "from Monday to Sunday last week")
    yield from _alike(last_week, before, before + 6 * _DAY)
    yield "from Monday to Friday of last week", before, before + 4 * _DAY
    yield "since Monday last week", before, today
    yield "the week before last", before - 7 * _DAY, before - _DAY
    for count in (3, 5, 7, 10):
        both = (f"in the past {count} days including today", f"over the last {count} days")
        yield from _alike(both, today - (count - 1) * _DAY, today)
    seven = ("over the last seven days counting today", "over the past week including today")
    yield from _alike(seven, today - 6 * _DAY, today)
    yield "yesterday and the day before", today - 2 * _DAY, today - _DAY
    this_month = ("this month", "so far this month", "since the 1st of this month")
    yield from _alike(this_month, today.replace(day=1), today)
    yield "last month", *_month_before(today)
    first, last = today - 9 * _DAY, today - 2 * _DAY
    yield f"from {plain_day(first, 'en')} to {plain_day(last, 'en')}", first, last
    yield f"since {plain_day(first, 'en')}", first, today
    if today.weekday():
        yield from _alike(("since Monday", "from Monday until today"), monday, today)
    if today.weekday() > 1:
        yield "from Monday to yesterday", monday, today - _DAY
    if today.weekday() < _SATURDAY:
        yield "last weekend", before + 5 * _DAY, before + 6 * _DAY


def _alike(texts: Sequence[str], first: date, last: date) -> Iterator[tuple[str, date, date]]:
    """Yield wordings of one span."""
    return ((text, first, last) for text in texts)


def _monday(day: date) -> date:
    return day - day.weekday() * _DAY


def _weekday(today: date, weekday: int) -> tuple[date, date]:
    """Return that weekday of the week before and of this week."""
    this = _monday(today) + weekday * _DAY
    return this - 7 * _DAY, this


def _month_before(day: date) -> tuple[date, date]:
    last = day.replace(day=1) - _DAY
    return last.replace(day=1), last


def _ordinal(number: int) -> str:
    teens = range(11, 14)
    ending = "th" if number in teens else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


# ------------------------------------------------------------------------------------------- worlds

_FIRST_DAY = date(2025, 1, 1)
_SPAN_DAYS = 3 * 365
_SEOUL = timezone(timedelta(hours=9))
_ZONES = (_SEOUL, _SEOUL, _SEOUL, _SEOUL, _SEOUL, _SEOUL, UTC, timezone(timedelta(hours=-5)))


ANCHORS = {"anchor_when": ("when", "at "), "anchor_after_what": ("after_what", "after ")}
"""By an anchor's argument: where its phrases stand, and the English word before its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A moment to do a habit at: as the user says it, and as an argument's name and value."""

    text: str
    argument: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """A habit of the world: an id that is its protocol's, and what the user wrote for it."""

    id: str
    status: str
    sentence: str
    frame: str
    anchor: tuple[str, str]
    created_on: date

    def row(self) -> dict[str, Any]:
        """Return the habit as `world:` writes it."""
        return {
            "protocol_id": self.id,
            "status": self.status,
            "framed_text": self.sentence,
            "frame_level": self.frame,
            self.anchor[0]: self.anchor[1],
            "created_on": self.created_on.isoformat(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The state at the start. As drawn, no two habits share a category: no two names are alike."""

    now: datetime
    habits: tuple[Habit, ...]
    entries: tuple[tuple[str, date, str], ...]

    @property
    def today(self) -> date:
        """The day of the clock."""
        return self.now.date()

    def of_status(self, status: str) -> tuple[Habit, ...]:
        """Return the habits of a status."""
        return tuple(habit for habit in self.habits if habit.status == status)

    def data(self) -> dict[str, Any]:
        """Return the world in the words of a scenario."""
        return {
            "now": self.now.isoformat(),
            "habits": [habit.row() for habit in self.habits],
            "tracker": [
                {"habit_id": key, "date": day.isoformat(), "value": value}
                for key, day, value in self.entries
            ],
        }


def draw_world(
    phrases: Phrases,
    rng: random.Random,
    *,
    active: int | None = None,
    archived: int | None = None,
    added_this_week: bool = False,
) -> World:
    """Return a world with so many habits; None leaves the number to chance.

    Args:
        phrases: for the users' own sentences.
        rng: decides.
        active: how many habits are going on.
        archived: how many were archived.
        added_this_week: the quota of new habits is used up.
    """
    now = _clock(rng)
    counts = (
        rng.choice((1, 2, 2, 3, 3, 3, 4)) if active is None else active,
        rng.choice((0, 0, 0, 1, 2)) if archived is None else archived,
    )
    chosen = _of_different_categories(rng, sum(counts))
    habits = []
    for number, protocol in enumerate(chosen):
        is_active = number < counts[0]
        is_new = added_this_week and number == 0
        age_days = rng.randint(0, now.weekday()) if is_new else rng.randint(20, 200)
        status = "active" if is_active else "archived"
        begun = now.date() - age_days * _DAY
        habits.append(_habit(protocol.id, status, begun, phrases, rng))
    entries = [
        entry
        for habit in habits
        for entry in _entries(habit.id, now.date() - _left_days(habit, rng) * _DAY, rng)
    ]
    return World(now=now, habits=tuple(habits), entries=tuple(entries))


def with_active(
    world: World, protocol_ids: Sequence[str], phrases: Phrases, rng: random.Random
) -> World:
    """Return the world with these as its only habits, and no entries."""
    habits = [
        _habit(protocol_id, "active", world.today - rng.randint(20, 200) * _DAY, phrases, rng)
        for protocol_id in protocol_ids
    ]
    return replace(world, habits=tuple(habits), entries=())


def with_sibling(world: World, phrases: Phrases, rng: random.Random) -> World:
    """Return the world with another active habit of a category that it has already."""
    catalog = load_protocols()
    taken = {habit.id for habit in world.habits}
    category = catalog[rng.choice(world.of_status("active")).id].category
    alike = [each.id for each in catalog.values() if each.category == category]
    sibling_id = rng.choice([each for each in alike if each not in taken])
    begun = world.today - rng.randint(20, 200) * _DAY
    sibling = _habit(sibling_id, "active", begun, phrases, rng)
    entries = _entries(sibling_id, world.today, rng)
    return replace(world, habits=(*world.habits, sibling), entries=(*world.entries, *entries))


def frame_of(sentence: str) -> str:
    """Return what kind of sentence it is: about who one is, or about what one does."""
    is_identity = sentence.endswith("사람이다") or sentence.startswith(("I am someone", "I am a "))
    return "identity" if is_identity else "action"


def draw_anchor(phrases: Phrases, rng: random.Random) -> Anchor:
    """Return a time, or something done before."""
    name, (lines, before) = rng.choice(tuple(ANCHORS.items()))
    text = str(rng.choice(phrases.lines[lines]))
    return Anchor(text=text, argument=(name, text.removeprefix(before)))


def _of_different_categories(rng: random.Random, count: int) -> Sequence[Protocol]:
    """Return `count` protocols of different categories."""
    catalog = load_protocols()
    categories = rng.sample(catalog.categories, count)
    return [
        rng.choice([each for each in catalog.values() if each.category == category])
        for category in categories
    ]


def _habit(
    protocol_id: str, status: str, begun: date, phrases: Phrases, rng: random.Random
) -> Habit:
    sentence = _sentence(protocol_id, phrases, rng)
    return Habit(
        id=protocol_id,
        status=status,
        sentence=sentence,
        frame=frame_of(sentence),
        anchor=draw_anchor(phrases, rng).argument,
        created_on=begun,
    )


def _left_days(habit: Habit, rng: random.Random) -> int:
    """Return how many days ago a habit was kept for the last time."""
    return 0 if habit.status == "active" else rng.randrange(40)


def _clock(rng: random.Random) -> datetime:
    day = _FIRST_DAY + rng.randrange(_SPAN_DAYS) * _DAY
    hour = rng.choice((0, 6, 7, 8, 9, 11, 12, 13, 15, 17, 18, 19, 20, 21, 22, 23))
    return datetime.combine(day, time(hour, rng.randrange(60)), tzinfo=rng.choice(_ZONES))


def _sentence(protocol_id: str, phrases: Phrases, rng: random.Random) -> str:
    if chance(rng, 0.05):
        return str(rng.choice(phrases.lines["world_injection"]))
    return rng.choice(phrases.spoken[protocol_id].sentences)


def _entries(habit_id: str, today: date, rng: random.Random) -> list[tuple[str, date, str]]:
    """Return entries of the last days: mostly done, some blank, some missing."""
    length = rng.choice((4, 8, 8, 12, 16))
    diligence = rng.choice((0.3, 0.5, 0.7, 0.9))
    rows = []
    for back in range(rng.choice((0, 1, 1)), length):
        if chance(rng, 0.8):
            value = "done" if rng.random() < diligence else "blank"
            rows.append((habit_id, today - back * _DAY, value))
    return rows


# ---------------------------------------------------------------------------------------- the scene

Settled: TypeAlias = Sequence[ToolCallMessage]
Words: TypeAlias = Callable[..., str]
"""(key, **slots) to one of the expert's replies; the same arguments give the same words."""

Last: TypeAlias = Callable[[Settled, Words], str]
"""What the expert says when its calls are settled."""

REFUSALS: tuple[Answers, ...] = ("reject", "reject", "absent")
"""What a user who does not confirm does, to draw from."""

_TOO_NEAR = 0.6
"""A line that resembles a withheld one this much is not said."""

_REDRAWS = 30
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(slots=True, kw_only=True)
class Scene:
    """What is known while a conversation is written. `is_listed`: the model has seen habit ids."""

    phrases: Phrases
    world: World
    rng: random.Random
    is_listed: bool = False
    lines: list[Line] = field(default_factory=list)
    faults: list[ScriptedFault] = field(default_factory=list)

    @property
    def locale(self) -> str:
        """The language of the conversation."""
        return self.phrases.locale

    def spoken(self, protocol_id: str) -> Spoken:
        """Return what people say about a protocol."""
        return self.phrases.spoken[protocol_id]

    def title(self, protocol_id: str) -> str:
        """Return a protocol's title."""
        return catalog()[protocol_id].texts[self.locale].title

    def name(self, protocol_id: str) -> str:
        """Return a name by which a user calls a habit or protocol."""
        return self.rng.choice(self.spoken(protocol_id).names)

    def did(self, protocol_id: str) -> str:
        """Return how a user says that a habit was kept."""
        return self.rng.choice(self.spoken(protocol_id).done)

    def habit(self, status: str = "active") -> Habit:
        """Return a habit of the world."""
        return self.rng.choice(self.world.of_status(status))

    def two_habits(self) -> tuple[Habit, Habit]:
        """Return two active habits; `has_choice` says whether there are."""
        first, second = self.rng.sample(self.world.of_status("active"), 2)
        return first, second

    def chance(self, share: float) -> bool:
        """Return True in `share` (0..1) of all draws."""
        return chance(self.rng, share)

    @property
    def has_choice(self) -> bool:
        """True if several habits are active, so that one has to be named."""
        return len(self.world.of_status("active")) > 1

    def words(self) -> Words:
        """Return the source of the words of one turn's reply."""
        seed = self.rng.getrandbits(32)

        def reply(key: str, **slots: object) -> str:
            rng = random.Random(seed)
            return self.phrases.reply(key, rng, **slots)

        return reply

    def user(self, key: str, **slots: object) -> str:
        """Return a user's line, as typed."""
        return _allowed(
            lambda: typed(self.phrases.line(key, self.rng, **slots), self.phrases, self.rng)
        )

    def paired(self, key: str, **slots: object) -> tuple[str, str]:
        """Return a user's line, as typed, and the answer that stands beside it."""
        text, answer = parts(self.phrases.line(key, self.rng, **slots))
        return self._remarked(text), answer

    def written(self, key: str) -> tuple[str, ...]:
        """Return a whole turn, as typed by hand, and what stands beside it."""
        text, *beside = parts(self.phrases.line(key, self.rng))
        return text if is_literal(text) else careless(text, self.locale, self.rng), *beside

    def remark(self, key: str, **slots: object) -> str:
        """Return a user's line that asks for nothing, as typed."""
        return _allowed(lambda: self._remarked(self.phrases.line(key, self.rng, **slots)))

    def add(
        self, user: str, act: Act, *, confirm: Answers = "accept", slips: Sequence[int] = ()
    ) -> None:
        """Add a line to the conversation."""
        self.lines.append(Line(user=user, act=act, confirm=confirm, slips=frozenset(slips)))

    def breaks(self, tool: str, *, times: int = 1) -> None:
        """Let the first calls of a tool fail."""
        self.faults.append(ScriptedFault(tool=tool, times=times))

    def says(self, key: str, **slots: object) -> Act:
        """Return an act of words only."""
        text = self.words()(key, **slots)
        return lambda _settled: say(text)

    def acts(self, calls: Sequence[Reply], last: Last) -> Act:
        """Return an act that makes `calls` in turn and then speaks; a breakdown ends it early."""
        words = self.words()

        def act(settled: Settled) -> Reply:
            if settled and failure(settled) == "handler_error":
                return say(words("broken"))
            if len(settled) < len(calls):
                return calls[len(settled)]
            return say(last(settled, words))

        return act

    def day_words(self, day: date) -> str:
        """Return how the expert names a day: today and yesterday by name, others by date."""
        names = {0: {"ko": "오늘", "en": "today"}, 1: {"ko": "어제", "en": "yesterday"}}
        back = (self.world.today - day).days
        if back in names:
            return names[back][self.locale]
        return plain_day(day, self.locale)

    def value_words(self, value: str) -> str:
        """Return how the expert names the value of an entry."""
        return {"done": "완료", "blank": "공란"}[value] if self.locale == "ko" else value

    def listing(self, texts: Sequence[str]) -> str:
        """Return texts in quotes as one enumeration."""
        quoted = [f"'{text}'" for text in texts]
        *before, last = quoted
        if self.locale == "ko" or not before:
            return ", ".join(quoted)
        return f"{', '.join(before)} and {last}"

    def anchor_words(self, anchor: str) -> str:
        """Return an anchor as an adverb, such as 양치한 뒤에."""
        if self.locale != "ko" or anchor.endswith(("나서", "면", "에", "마다")):
            return anchor
        return anchor if anchor.endswith("때") else f"{anchor}에"

    def _remarked(self, text: str) -> str:
        return typed(text, self.phrases, self.rng, around="_remark")


def _allowed(draw: Callable[[], str]) -> str:
    """Return what is drawn; draws anew while that is too near to a withheld line."""
    text = ""
    for _ in range(_REDRAWS):
        text = draw()
        if not any(similarity(text, line) >= _TOO_NEAR for line in withheld()):
            break
    return text


@cache
def catalog() -> ProtocolCatalog:
    """Return the shipped protocols."""
    return load_protocols()


@cache
def _store() -> Store:
    return StoreImage.prepare(catalog()).fresh()


@cache
def hits(query: str, locale: str) -> tuple[str, ...]:
    """Return the ids that the real search gives, so that nobody is taught to expect another."""
    return tuple(hit.id for hit in search_protocols(_store(), query=query, locale=locale))


def data_of(settled: Settled, index: int = -1) -> Mapping[str, Any]:
    """Return the data of a call that went well, else nothing."""
    result = settled[index].result
    return result.data if isinstance(result, ToolOk) else {}


def rows_of(settled: Settled, name: str, index: int = -1) -> Sequence[Mapping[str, Any]]:
    """Return the `habits` or `protocols` that a call gave; none if it did not go well."""
    return list(data_of(settled, index).get(name, []))


def titles_of(settled: Settled, name: str, index: int = -1) -> Sequence[str]:
    """Return the titles of the `habits` or `protocols` that a call gave."""
    return [row["title"] for row in rows_of(settled, name, index)]


def anchor_in(habit: Mapping[str, Any]) -> str:
    """Return the anchor of a habit as the tools write it."""
    return str(habit.get("anchor_when") or habit.get("anchor_after_what") or "-")


def failure(settled: Settled) -> str:
    """Return the code of the last call's error, else nothing."""
    result = settled[-1].result
    return result.code if isinstance(result, ToolErr) else ""


def dates_in_reason(settled: Settled) -> tuple[date, ...]:
    """Return the dates that the last call's reason names."""
    result = settled[-1].result
    reason = result.reason if isinstance(result, ToolErr) else ""
    return tuple(date.fromisoformat(text) for text in _DATE.findall(reason))
