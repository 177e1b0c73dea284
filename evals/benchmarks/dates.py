"""Compare `find_dates` with libraries that find dates, on sentences with known days.

    python evals/benchmarks/dates.py lhkit
    python evals/benchmarks/dates.py dateparser parsedatetime timefhuman recognizers

The sentences are those of tests/lifehelper/dates and 60 others, `dates_held_out.yaml`. Results are
in [dates.md](dates.md). The libraries are not requirements of lhkit: install them into an
environment of their own, with
`pip install dateparser parsedatetime timefhuman recognizers-text-suite "emoji<2" pyyaml`.
"""

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeAlias

import yaml

SENTENCES = {
    "300": Path(__file__).parents[2] / "tests" / "dates" / "sentences.yaml",
    "60": Path(__file__).with_name("dates_held_out.yaml"),
}
TODAY = date(2026, 3, 4)
NOW = datetime(2026, 3, 4, 9)
MODES = {"plan": [True], "log": [False], "both": [True, False]}

Finder: TypeAlias = Callable[[str, str, bool], Iterator[tuple[date, date]]]
"""Finds first and last days in a text of a locale, looking ahead or back."""


def find_with_lhkit(text: str, locale: str, ahead: bool) -> Iterator[tuple[date, date]]:
    """Find days with this package."""
    find_dates = importlib.import_module("lhkit").find_dates
    for mention in find_dates(text, TODAY, locale, ahead=ahead):
        yield mention.first, mention.last


def find_with_dateparser(text: str, locale: str, ahead: bool) -> Iterator[tuple[date, date]]:
    """Find days with dateparser's `search_dates`."""
    search = importlib.import_module("dateparser.search").search_dates
    prefer = "future" if ahead else "past"
    settings = {"RELATIVE_BASE": NOW, "PREFER_DATES_FROM": prefer}
    for _, found in search(text, languages=[locale], settings=settings) or ():
        yield found.date(), found.date()


def find_with_parsedatetime(text: str, locale: str, _ahead: bool) -> Iterator[tuple[date, date]]:
    """Find days with parsedatetime, which reads English only and always looks ahead."""
    calendar = importlib.import_module("parsedatetime").Calendar()
    for found in (locale == "en" and calendar.nlp(text, sourceTime=NOW)) or ():
        if found[1] & 1:  # a date, not only a time
            yield found[0].date(), found[0].date()


def find_with_timefhuman(text: str, locale: str, ahead: bool) -> Iterator[tuple[date, date]]:
    """Find days with timefhuman, which reads English only."""
    if locale != "en":
        return
    module = importlib.import_module("timefhuman")
    direction = getattr(module.Direction, "next" if ahead else "previous")
    config = module.tfhConfig(now=NOW, direction=direction)
    found = module.timefhuman(text, config=config)
    for value in found if isinstance(found, list) else [found]:
        ends = value if isinstance(value, tuple) else (value, value)
        days = [end.date() if isinstance(end, datetime) else end for end in ends]
        if all(isinstance(day, date) for day in days):
            yield days[0], days[-1]


def find_with_recognizers(text: str, locale: str, ahead: bool) -> Iterator[tuple[date, date]]:
    """Find days with Microsoft's recognizers, which list a past and a future value."""
    if locale != "en":
        return
    module = importlib.import_module("recognizers_date_time")
    for found in module.recognize_datetime(text, module.Culture.English, reference=NOW):
        values = [value for value in found.resolution["values"] if value["type"].startswith("date")]
        if values:
            value = values[-1 if ahead else 0]
            ends: list[Any] = [value.get("start", value.get("value")), value.get("end")]
            days = [date.fromisoformat(end[:10]) for end in ends if end and end[0].isdigit()]
            if days:
                last = days[-1] if len(days) == 1 else date.fromordinal(days[-1].toordinal() - 1)
                yield days[0], last


FINDERS: dict[str, Finder] = {
    "lhkit": find_with_lhkit,
    "dateparser": find_with_dateparser,
    "parsedatetime": find_with_parsedatetime,
    "timefhuman": find_with_timefhuman,
    "recognizers": find_with_recognizers,
}


def measure(name: str, table: str, locale: str) -> str:
    """Return a row of the page: right and wrong days of a finder in a locale."""
    returned = right = expected = exact = wrong = rows = failed = 0
    begin = time.perf_counter()
    for kind in yaml.safe_load(SENTENCES[table].read_text("utf-8"))[locale].values():
        for mode, text, *days in kind:
            for ahead in MODES[mode]:
                try:
                    found = {*FINDERS[name](text, locale, ahead)} - {(TODAY, TODAY)}
                except Exception:  # noqa: BLE001 - some libraries raise on ordinary sentences
                    found = set()
                    failed += 1
                texts = {f"{a}" if a == b else f"{a}..{b}" for a, b in found}
                gold = {*map(str, days)}
                rows += 1
                returned += len(texts)
                right += len(texts & gold)
                expected += len(gold)
                exact += texts == gold
                wrong += bool(texts - gold)
    per_text = (time.perf_counter() - begin) / rows * 1000
    return (
        f"| {table} | {name} | {locale} | {right}/{returned} | {right}/{expected} | {exact}/{rows} "
        f"| {wrong} | {failed} | {per_text:.1f} |"
    )


def main() -> None:
    """Print a row for each named finder and locale."""
    print("| table | finder | locale | precision | recall | all right | wrong day | error | ms |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for table in SENTENCES:
        for name in sys.argv[1:] or ["lhkit"]:
            for locale in ("ko", "en"):
                print(measure(name, table, locale))


if __name__ == "__main__":
    main()
