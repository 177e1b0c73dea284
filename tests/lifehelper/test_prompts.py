"""The texts for the model: instructions, context line and refusals in both languages."""

import re
import string
from datetime import datetime
from pathlib import Path

import pytest

from lhkit.base.errors import UsageError
from lhkit.lifehelper import prompts

LOCALES = ("ko", "en")


@pytest.mark.parametrize(
    ("now", "locale", "message", "line"),
    [
        ("2026-06-17T09:00:59+09:00", "ko", "안녕", "[오늘: 2026-06-17 수요일 09:00]"),
        (
            "2026-06-21T23:05:00+09:00",
            "ko",
            "지난\n주엔 했고 어제는?",
            "[오늘: 2026-06-21 일요일 23:05, 지난 주 = 2026-06-08 ~ 2026-06-14, 어제 = 2026-06-20]",
        ),
        (
            "2024-03-01T00:00:00-04:00",
            "en",
            "Last week or yesterday?",
            (
                "[Now: 2024-03-01 Friday 00:00, Last week = 2024-02-19 to 2024-02-25, "
                "yesterday = 2024-02-29]"
            ),
        ),
    ],
)
def test_now_line_contains_the_mentioned_dates(
    now: str, locale: str, message: str, line: str
) -> None:
    assert prompts.now_line(datetime.fromisoformat(now), locale, message) == line


def test_refusals_have_equal_placeholders_in_all_locales() -> None:
    def placeholders(locale: str) -> dict[str, set[str | None]]:
        reasons = prompts._REASONS[locale]
        return {
            key: {f for _, f, _, _ in string.Formatter().parse(t) if f}
            for key, t in reasons.items()
        }

    assert placeholders("ko") == placeholders("en")


def test_refusal_message_exists_for_every_key_in_the_code() -> None:
    files = sorted(Path(prompts.__file__).parent.glob("*.py"))
    named = {key for path in files for key in re.findall(r'\bkey="(\w+)"', path.read_text("utf-8"))}
    assert "quota_reached" in named
    assert named - set(prompts._REASONS["en"]) == set()


@pytest.mark.parametrize(
    "read",
    [
        prompts.instructions,
        lambda locale: prompts.now_line(datetime.fromisoformat("2026-06-15T09:00+09:00"), locale),
        lambda locale: prompts.refusal_message("anchor_missing", locale),
    ],
)
def test_prompts_refuse_an_unknown_locale(read: object) -> None:
    with pytest.raises(UsageError, match=r"'de'.*\['en', 'ko'\]"):
        read("de")  # type: ignore[operator]
