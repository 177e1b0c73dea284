"""The demo's scripted assistant: replies chosen by the user's message and the tool results.

It understands a handful of requests in Korean and English, to show how a conversation looks.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lhkit.base.locales import Catalog, written_locale
from lhkit.conversation.messages import ToolCall, ToolCallMessage, UserMessage
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk
from lhkit.lifehelper.locales import life_helper_catalog
from lhkit.models.base import ModelRequest
from lhkit.models.recorded.scripted import Reply, call, say

_QUERY_CHARS = 50
_NAMED_DAY = re.compile(r" = (\d{4}-\d{2}-\d{2})")  # such as `yesterday = 2026-06-14`
_NOT_DONE = re.compile(r"못|안 |않|\b(?:not|didn't|skipped|missed)\b")
_FINAL_OF_PAST = 20  # index of ㅆ among the 28 final consonants of Hangul
_PAST = "".join(
    c for c in map(chr, range(0xAC00, 0xD7A4)) if (ord(c) - 0xAC00) % 28 == _FINAL_OF_PAST
)
_ENGLISH = {"카페인": "caffeine", "물": "water", "스트레칭": "stretching", "산책": "walk"}
"""Words of Korean messages to English tools: ids and titles are English there."""
_FILLER = re.compile(
    r"오늘|어제|그제|기록\S*|했어\S*|완료\S*|체크\S*|해\S?|줘"
    r"|today|yesterday|log|did|done|record|it|i|my|the|for|please|habit|entry|as"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """The last user message, and the calls made since."""

    text: str
    calls: Sequence[ToolCallMessage]
    catalog: Catalog
    day: str = ""
    """The day that the message names, as the context line resolves it."""

    def say(self, key: str, **values: object) -> Reply:
        return say(self.catalog.text(f"script.{key}", **values))


_Intent: TypeAlias = Callable[[_Turn], Reply]


def demo_reply(request: ModelRequest) -> Reply:
    """Return the next reply of the demo's assistant."""
    messages = request.messages
    last = max((i for i, m in enumerate(messages) if isinstance(m, UserMessage)), default=-1)
    message = messages[last]
    if not isinstance(message, UserMessage):
        return Reply()
    calls = [m for m in messages[last:] if isinstance(m, ToolCallMessage)]
    catalog = life_helper_catalog(written_locale([message.text]))
    named = _NAMED_DAY.search(message.context)
    turn = _Turn(text=message.text, calls=calls, catalog=catalog, day=named[1] if named else "")
    text = turn.text.casefold()
    answer = next((intent for pattern, intent in _INTENTS if re.search(pattern, text)), _small_talk)
    return _failure_reply(turn) or answer(turn)


def _failure_reply(turn: _Turn) -> Reply | None:
    """Return a reply to a cancelled or refused call: nothing was done."""
    match turn.calls[-1].result if turn.calls else None:
        case ToolCancelled():
            return turn.say("rejected")
        case ToolErr(reason=reason):
            return turn.say("refused", reason=reason)
        case _:
            return None


def _data(turn: _Turn, number: int = -1) -> Mapping[str, Any]:
    result = turn.calls[number].result
    return result.data if isinstance(result, ToolOk) else {}


def _add(turn: _Turn) -> Reply:
    match [call.name for call in turn.calls]:
        case []:
            return call("search_catalog", query=turn.text[:_QUERY_CHARS], limit=3)
        case ["search_catalog"]:
            return _proposal(turn)
        case _:
            data = _data(turn)
            title = data.get("habit", {}).get("title", "")
            key = "already" if data.get("already_active") else "added"
            return turn.say(key, title=title, anchor=turn.catalog.text("script.anchor"))


def _proposal(turn: _Turn) -> Reply:
    hits = _data(turn).get("protocols", ())
    if not hits:
        return turn.say("found_none")
    args = {
        "protocol_id": hits[0]["id"],
        "frame_level": "identity",
        "framed_text": turn.catalog.text("script.sentence"),
        "anchor_after_what": turn.catalog.text("script.anchor"),
    }
    text = turn.catalog.text("script.adding", title=hits[0]["title"])
    return Reply(text=text, calls=(ToolCall(name="add_habit", args=args),))


def _log(turn: _Turn) -> Reply:
    match [call.name for call in turn.calls]:
        case []:
            return call("list_habits")
        case ["list_habits"]:
            habits = _data(turn).get("habits", ())
            if not habits:
                return turn.say("no_habits")
            habit = _match(turn.text, habits)
            if habit is None:
                return turn.say("which_habit", list=_listed(habits))
            value = "blank" if _NOT_DONE.search(turn.text.casefold()) else "done"
            day = {"date": turn.day} if turn.day else {}
            return call("log_tracker_entry", habit_id=habit, value=value, **day)
        case _:
            return _logged(turn)


def _logged(turn: _Turn) -> Reply:
    data = _data(turn)
    entry = data.get("entry", {})
    titles = {habit["id"]: habit["title"] for habit in _data(turn, 0).get("habits", ())}
    return turn.say(
        "logged_already" if data.get("already") else "logged",
        title=titles.get(entry.get("habit_id"), entry.get("habit_id")),
        date=entry.get("date"),
        value=turn.catalog.text(f"summary.{entry.get('value')}"),
    )


def _match(text: str, habits: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the id of the habit that a text names; the only one if it names nothing."""
    wanted = [word for word in _words(text) if not _FILLER.fullmatch(word)]
    wanted += [english for korean, english in _ENGLISH.items() if korean in wanted]
    if not wanted and len(habits) == 1:
        return str(habits[0]["id"])

    def hits(habit: Mapping[str, Any]) -> int:
        names = _words(f"{habit['title']} {habit['id']}")
        return sum(any(_is_same_word(word, name) for name in names) for word in wanted)

    best = max(habits, key=hits)
    return str(best["id"]) if hits(best) else None


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())


def _is_same_word(one: str, other: str) -> bool:
    """Compare two words without their endings: `카페인을` and `카페인`, `walked` and `walk`."""
    stem = 4 if one.isascii() else 2
    return one == other or (min(len(one), len(other)) >= stem and one[:stem] == other[:stem])


def _list(turn: _Turn) -> Reply:
    if not turn.calls:
        return call("list_habits")
    habits = _data(turn).get("habits", ())
    if not habits:
        return turn.say("no_habits")
    return turn.say("habits", list=_listed(habits))


def _listed(habits: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(f"- **{habit['title']}**" for habit in habits)


def _report(turn: _Turn) -> Reply:
    if not turn.calls:
        return call("query_tracker")
    habits = _data(turn).get("habits", ())
    if not habits:
        return turn.say("no_habits")
    return turn.say("report", list="\n".join(_report_line(turn, habit) for habit in habits))


def _report_line(turn: _Turn, habit: Mapping[str, Any]) -> str:
    rate = habit["done_rate"]
    return turn.catalog.text(
        "script.report_line",
        title=habit["title"],
        rate=turn.catalog.text("script.no_rate") if rate is None else f"{rate:.0%}",
        days=habit["streak_days"],
    )


def _find(turn: _Turn) -> Reply:
    if not turn.calls:
        return call("search_catalog", query=turn.text[:_QUERY_CHARS], limit=3)
    hits = _data(turn).get("protocols", ())
    if not hits:
        return turn.say("found_none")
    lines = (f"- **{hit['title']}**: {hit['summary']}" for hit in hits)
    return turn.say("found", list="\n".join(lines))


def _small_talk(turn: _Turn) -> Reply:
    text = turn.text.casefold()
    if re.search(r"고마|감사|thank", text):
        return turn.say("thanks")
    if re.search(r"안녕|반가|\bhello\b|\bhi\b", text):
        return turn.say("hello")
    return turn.say("other")


_INTENTS: Sequence[tuple[str, _Intent]] = (
    (r"이야기|\bstory\b", lambda turn: turn.say("story")),
    (r"추가|시작하고|\badd\b|new habit", _add),
    (r"목록|습관.*(뭐|보여|알려)|\blist\b|my habits", _list),
    (r"연속|달성|통계|얼마나|streak|progress|how often", _report),
    (r"기록|했어|완료|체크|\blog\b|\bdid\b|\bdone\b|record", _log),
    (rf"^(?!.*고마)[^?]*[{_PAST}](?<![있겠])(?:어|다|습니)", _log),
    (r"^[^?]*\bi (?:\w+ed|drank|took|went|slept|ate)\b", _log),
    (r"추천|찾아|방법|recommend|find|suggest", _find),
)
"""The first pattern found in the user's message selects the reply."""
