"""Texts for the model: instructions, the line with the current time, refusal messages.

Texts for users are in `lhkit.base.locales`. Equal arguments return equal bytes, so that a server
can cache the prefix and a record can hash it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

from lhkit.base.errors import UsageError
from lhkit.lifehelper.dates.mentions import DateMention, find_dates

_Text = TypeVar("_Text")

TRUNCATION_HINT = (
    "the result of {bytes} bytes was left out; for one item use a single-item tool such as "
    "query_protocol"
)
"""The message that replaces a tool result that is too large (`Assistant.truncation_hint`)."""

_INSTRUCTIONS = {
    "ko": """\
너는 생활 습관을 돕는 도우미 life-helper야. 사용자가 쓴 언어로 짧고 다정하게 답해.
- 습관, 프로토콜, 기록에 관한 부탁이면 도구를 불러. 인사나 다른 이야기에는 도구 없이 답해.
- 프로토콜은 search_catalog로 찾고, 자세한 내용은 query_protocol로 확인해.
- id는 도구 결과에 나온 것만 그대로 쓰고, 결과에 없는 것은 말하지 마.
- 필요한 정보가 빠졌거나 뜻이 모호하면 지어내지 말고 되물어.
- 날짜는 [오늘] 줄을 기준으로 YYYY-MM-DD로 계산해.
- 결과가 cancelled나 error면 저장됐다고 말하지 마. 이유를 알려 주고 다른 길을 제안해.
- 사용자가 취소한 호출은 다시 하지 마.""",
    "en": """\
You are life-helper, an assistant for daily habits. Answer briefly, in the user's language.
- Call a tool for requests about habits, protocols or the tracker. Small talk needs no tool.
- Find protocols with search_catalog; read one in full with query_protocol.
- Use only ids that a tool returned, exactly; name nothing that was not returned.
- If something is missing or unclear, ask back instead of inventing it.
- Work out dates from the [Now] line, as YYYY-MM-DD.
- After cancelled or error, never say it was saved. Give the reason and offer a way on.
- Do not repeat a call that the user cancelled.""",
}

_NOW = {
    "ko": "[오늘: {date} {weekday} {time}{mentions}]",
    "en": "[Now: {date} {weekday} {time}{mentions}]",
}

_SPAN = {"ko": "{first} ~ {last}", "en": "{first} to {last}"}

_WEEKDAYS = {
    "ko": ("월요일", "화요일", "수요일", "목요일", "금요일", "토요일", "일요일"),
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
}

_REASONS = {
    "ko": {
        "protocol_unknown": "'{id}' 프로토콜은 없습니다. 가까운 id: {nearest}. "
        "search_catalog 결과에 나온 id를 쓰세요.",
        "habit_unknown": "'{id}' 습관은 없습니다. 가까운 id: {nearest}. "
        "list_habits 결과에 나온 id를 쓰세요.",
        "no_habits": "'{id}' 습관은 없습니다. 진행 중인 습관이 하나도 없으니 먼저 add_habit으로 "
        "추가해야 합니다.",
        "habit_archived": "'{id}' 습관은 보관되어 기록할 수 없습니다. 진행 중인 습관의 id를 "
        "쓰세요: {nearest}.",
        "anchor_missing": "앵커가 없습니다. anchor_when(언제)이나 anchor_after_what(무엇을 한 뒤) "
        "가운데 하나를 넣으세요. 모르면 사용자에게 물어보세요.",
        "framing_blank": "framed_text가 비었습니다. '나는 …하는 사람이다'처럼 할 일을 쓰세요.",
        "framing_negative": "framed_text가 부정이나 금지로 쓰였습니다: '{words}'. 하지 않는 일 "
        "말고 하는 일을 '나는 …한다'처럼 긍정문으로 다시 쓰세요.",
        "quota_reached": "이번 주에 이미 습관을 {count}개 추가했습니다(한 주에 {limit}개까지). "
        "{next}부터 추가할 수 있으니 지금은 다시 부르지 마세요.",
        "date_impossible": "{argument} '{date}'은(는) 없는 날짜입니다. 달력에 있는 날짜를 "
        "YYYY-MM-DD로 쓰세요.",
        "date_in_future": "{date}은(는) 미래입니다. 오늘({today})이나 지난 날짜를 쓰세요.",
        "range_reversed": "from({start})이 to({end})보다 늦습니다. from을 더 이른 날짜로 쓰세요.",
    },
    "en": {
        "protocol_unknown": "There is no protocol '{id}'. Nearest ids: {nearest}. "
        "Use an id that search_catalog returned.",
        "habit_unknown": "There is no habit '{id}'. Nearest ids: {nearest}. "
        "Use an id that list_habits returned.",
        "no_habits": "There is no habit '{id}'. No habit is active yet: one must be added with "
        "add_habit first.",
        "habit_archived": "The habit '{id}' is archived and takes no entries. Use the id of an "
        "active habit: {nearest}.",
        "anchor_missing": "An anchor is missing. Give anchor_when (a time) or anchor_after_what "
        "(something done before). If you do not know it, ask the user.",
        "framing_blank": "framed_text is blank. Write what the user does, like 'I am one who …'.",
        "framing_negative": "framed_text is a negation or prohibition: '{words}'. Write what the "
        "user does instead, as a positive sentence like 'I …'.",
        "quota_reached": "{count} habit(s) were already added this week (limit {limit}). "
        "The next can be added from {next}; do not call again now.",
        "date_impossible": "{argument} '{date}' is no date. Write a real date as YYYY-MM-DD.",
        "date_in_future": "{date} is in the future. Use today ({today}) or an earlier date.",
        "range_reversed": "from ({start}) is later than to ({end}). Give an earlier from.",
    },
}


def instructions(locale: str) -> str:
    """Return the system prompt.

    Raises:
        UsageError: the locale has no texts.
    """
    return _localized(_INSTRUCTIONS, locale)


def now_line(now: datetime, locale: str, message: str = "") -> str:
    """Return the context line with the current time and the dates that a message mentions.

    A small model copies a date but does not compute one, so the line contains
    "yesterday = 2026-06-14" if the message contains "yesterday" (`lhkit.lifehelper.dates`).

    Args:
        now: the current time in the user's time zone; shown as is, to the minute.
        locale: `ko` or `en`.
        message: the user's message.

    Raises:
        UsageError: the locale has no texts.
    """
    today = now.date()
    mentions = find_dates(message, today, locale)
    return _localized(_NOW, locale).format(
        date=today,
        weekday=_localized(_WEEKDAYS, locale)[today.weekday()],
        time=now.strftime("%H:%M"),
        mentions="".join(f", {_format_mention(mention, locale)}" for mention in mentions),
    )


def _format_mention(mention: DateMention, locale: str) -> str:
    words = " ".join(mention.text.split())
    if mention.first == mention.last:
        return f"{words} = {mention.first}"
    span = _localized(_SPAN, locale).format(first=mention.first, last=mention.last)
    return f"{words} = {span}"


def refusal_message(key: str, locale: str, **values: object) -> str:
    """Return the message with the reason of a refused call and what to do instead.

    Raises:
        UsageError: the locale has no texts.
        KeyError: the key is unknown or a value is missing (an internal error).
    """
    return _localized(_REASONS, locale)[key].format(**values)


def _localized(texts: Mapping[str, _Text], locale: str) -> _Text:
    if locale not in texts:
        raise UsageError(f"No prompt texts for locale {locale!r}: choose one of {sorted(texts)}.")
    return texts[locale]
