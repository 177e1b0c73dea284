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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """The last user message, and the calls made since."""

    text: str
    calls: Sequence[ToolCallMessage]
    catalog: Catalog

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
    turn = _Turn(text=message.text, calls=calls, catalog=catalog)
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
            return call("log_tracker_entry", habit_id=_best_match(turn.text, habits), value="done")
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


def _best_match(text: str, habits: Sequence[Mapping[str, Any]]) -> str:
    """Return the id of the habit that shares most bigrams with a text."""
    wanted = _bigrams(text)
    best = max(habits, key=lambda habit: len(wanted & _bigrams(f"{habit['title']} {habit['id']}")))
    return str(best["id"])


def _bigrams(text: str) -> set[str]:
    letters = re.sub(r"\W", "", text.casefold())
    return {letters[i : i + 2] for i in range(len(letters) - 1)}


def _list(turn: _Turn) -> Reply:
    if not turn.calls:
        return call("list_habits")
    habits = _data(turn).get("habits", ())
    if not habits:
        return turn.say("no_habits")
    return turn.say("habits", list="\n".join(f"- **{habit['title']}**" for habit in habits))


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
    (r"추천|찾아|방법|recommend|find|suggest", _find),
)
"""The first pattern found in the user's message selects the reply."""
