"""The model's instructions: short, the same every time, complete in both languages."""

import string
from datetime import datetime

import pytest

from lhkit.errors import UsageError
from lhkit.lifehelper import prompts

LOCALES = ("ko", "en")


@pytest.mark.parametrize("locale", LOCALES)
def test_instructions_are_short_and_name_the_reading_tools(locale: str) -> None:
    text = prompts.instructions(locale)
    assert text == prompts.instructions(locale)
    assert len(text.splitlines()) <= 9
    assert len(text.encode()) < 1200
    assert all(
        word in text for word in ("life-helper", "search_catalog", "query_protocol", "cancelled")
    )


@pytest.mark.parametrize(
    ("now", "locale", "line"),
    [
        (
            "2026-06-17T09:00:59+09:00",
            "ko",
            (
                "[오늘: 2026-06-17 수요일 09:00, 어제: 2026-06-16, 이번 주: 2026-06-15부터, "
                "지난주: 2026-06-08~2026-06-14]"
            ),
        ),
        (
            "2026-06-21T23:05:00+09:00",
            "ko",
            (
                "[오늘: 2026-06-21 일요일 23:05, 어제: 2026-06-20, 이번 주: 2026-06-15부터, "
                "지난주: 2026-06-08~2026-06-14]"
            ),
        ),
        (
            "2024-03-01T00:00:00-04:00",
            "en",
            (
                "[Now: 2024-03-01 Friday 00:00, yesterday: 2024-02-29, this week: from 2024-02-26, "
                "last week: 2024-02-19 to 2024-02-25]"
            ),
        ),
        (
            "2027-01-04T08:30:00+00:00",
            "en",
            (
                "[Now: 2027-01-04 Monday 08:30, yesterday: 2027-01-03, this week: from 2027-01-04, "
                "last week: 2026-12-28 to 2027-01-03]"
            ),
        ),
    ],
)
def test_the_present_is_one_line_with_the_dates_people_say_most(
    now: str, locale: str, line: str
) -> None:
    assert prompts.now_line(datetime.fromisoformat(now), locale) == line


def test_every_reason_is_in_every_language_with_the_same_placeholders() -> None:
    def placeholders(locale: str) -> dict[str, set[str | None]]:
        reasons = prompts._REASONS[locale]  # noqa: SLF001 - parity of the table itself
        return {
            key: {f for _, f, _, _ in string.Formatter().parse(t) if f}
            for key, t in reasons.items()
        }

    assert placeholders("ko") == placeholders("en")


@pytest.mark.parametrize(
    "read",
    [
        prompts.instructions,
        lambda locale: prompts.now_line(datetime.fromisoformat("2026-06-15T09:00+09:00"), locale),
        lambda locale: prompts.reason("anchor_missing", locale),
    ],
)
def test_an_unknown_locale_is_an_error_that_names_the_known(read: object) -> None:
    with pytest.raises(UsageError, match=r"'de'.*\['en', 'ko'\]"):
        read("de")  # type: ignore[operator]
