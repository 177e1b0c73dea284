"""The model's instructions: short, the same every time, complete in both languages."""

import re
import string
from datetime import datetime
from pathlib import Path

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
                "[오늘: 2026-06-17 수요일 09:00, 어제: 2026-06-16, "
                "이번 주: 월 2026-06-15 화 06-16 수 06-17, "
                "지난주: 월 2026-06-08 화 06-09 수 06-10 목 06-11 금 06-12 토 06-13 일 06-14]"
            ),
        ),
        (
            "2026-06-21T23:05:00+09:00",
            "ko",
            (
                "[오늘: 2026-06-21 일요일 23:05, 어제: 2026-06-20, "
                "이번 주: 월 2026-06-15 화 06-16 수 06-17 목 06-18 금 06-19 토 06-20 일 06-21, "
                "지난주: 월 2026-06-08 화 06-09 수 06-10 목 06-11 금 06-12 토 06-13 일 06-14]"
            ),
        ),
        (
            "2024-03-01T00:00:00-04:00",
            "en",
            (
                "[Now: 2024-03-01 Friday 00:00, yesterday: 2024-02-29, "
                "this week: Mon 2024-02-26 Tue 02-27 Wed 02-28 Thu 02-29 Fri 03-01, last week: "
                "Mon 2024-02-19 Tue 02-20 Wed 02-21 Thu 02-22 Fri 02-23 Sat 02-24 Sun 02-25]"
            ),
        ),
        (
            "2027-01-04T08:30:00+00:00",
            "en",
            (
                "[Now: 2027-01-04 Monday 08:30, yesterday: 2027-01-03, "
                "this week: Mon 2027-01-04, last week: "
                "Mon 2026-12-28 Tue 12-29 Wed 12-30 Thu 12-31 Fri 01-01 Sat 01-02 Sun 01-03]"
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


def test_every_refusal_of_the_code_has_its_reason() -> None:
    files = sorted(Path(prompts.__file__).parent.glob("*.py"))
    named = {key for path in files for key in re.findall(r'\bkey="(\w+)"', path.read_text("utf-8"))}
    assert "quota_reached" in named
    assert named - set(prompts._REASONS["en"]) == set()  # noqa: SLF001 - the table itself


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
