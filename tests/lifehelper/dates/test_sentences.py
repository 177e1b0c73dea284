"""`find_dates` on 300 sentences: certain days are found, and nothing else."""

from datetime import date
from pathlib import Path

import pytest
import yaml

from lhkit import find_dates
from tests.rows import check_rows

TODAY = date(2026, 3, 4)
SENTENCES = yaml.safe_load((Path(__file__).parent / "sentences.yaml").read_text("utf-8"))
MODES = {"plan": [True], "log": [False], "both": [True, False]}
ROWS = [
    pytest.param(locale, text, ahead, {*map(str, days)}, id=f"{text} {'plan' if ahead else 'log'}")
    for locale, kinds in SENTENCES.items()
    for rows in kinds.values()
    for mode, text, *days in rows
    for ahead in MODES[mode]
]


@check_rows(("locale", "text", "ahead", "expected"), ROWS)
def test_find_dates_returns_certain_days_only(
    locale: str, text: str, ahead: bool, expected: set[str]
) -> None:
    spans = [
        f"{day.first}" if day.first == day.last else f"{day.first}..{day.last}"
        for day in find_dates(text, TODAY, locale, ahead=ahead)
    ]
    assert {*spans} == expected
