"""`lhkit tune init` and `lhkit tune data --phrases`: training data for tools of one's own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console

from lhkit.commands.environments import load_environment, registry_of
from lhkit.commands.tune import DataOptions, write_played
from lhkit.errors import TuningError, UsageError
from lhkit.harness.replay.environment import Environment, opened
from lhkit.locales import Catalog, available_locales, load_catalog
from lhkit.settings import Settings
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning.own_tools.acting import Said
from lhkit.tuning.own_tools.answers import Answers, answers_of
from lhkit.tuning.own_tools.checks import check_fit
from lhkit.tuning.own_tools.drawing import Stage, conversations, identity
from lhkit.tuning.own_tools.phrase_file import HOW, TODO, PhraseFile, read_phrases
from lhkit.tuning.own_tools.skeleton import skeleton
from lhkit.vocab.printable import printable

_WORLDS: tuple[Mapping[str, Any], ...] = ({}, {"now": "2026-06-15T09:00:00+09:00"})
"""States that a skeleton tries: nothing at all, or no more than a clock."""

_ENOUGH = 0.7
"""Share of different conversations below which a file is told to hold too few phrases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitOptions:
    """What the user asked for. `locale` None means every language that the environment opens."""

    environment: str
    out: Path
    locale: str | None = None


async def write_skeleton(options: InitOptions, settings: Settings) -> int:
    """Write a phrase file to fill in; return the exit code.

    Raises:
        UsageError: no such environment or locale, it opens no world, or the file is there already.
    """
    if options.out.exists():
        raise UsageError(f"{options.out} is there already: give another --out, or delete it")
    locales = (options.locale,) if options.locale else _by_reader(settings.locale)
    for locale in locales:
        load_catalog(locale)  # refuses a language that we have no words for
    world, registries = _registries(options.environment, locales)
    text = skeleton(registries, world=world, reference=options.environment, reader=settings.locale)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, encoding="utf-8")
    catalog = load_catalog(settings.locale)
    written = catalog.text(
        "tune_own.written",
        out=options.out,
        tools=len(next(iter(registries.values()))),
        locales=", ".join(registries),
        todos=sum(TODO in line for line in text.splitlines() if not line.lstrip().startswith("#")),
    )
    following = catalog.text("tune_own.next", reference=options.environment, out=options.out)
    for line in (written, following):
        Console().print(printable(line), soft_wrap=True, highlight=False, markup=False)
    return 0


def _by_reader(reader: str) -> tuple[str, ...]:
    return tuple(sorted(available_locales(), key=lambda locale: locale != reader))


def _registries(
    reference: str, locales: tuple[str, ...]
) -> tuple[Mapping[str, Any], dict[str, ToolRegistry]]:
    """Return a world that opens, and the tools in each language in which it does."""
    environment = load_environment(reference)
    refusals: list[UsageError] = []
    for world in _WORLDS:
        found: dict[str, ToolRegistry] = {}
        for locale in locales:
            try:
                found[locale] = registry_of(environment, world, locale)
            except UsageError as error:
                refusals.append(error)
        if any(found.values()):
            return world, found
    if refusals:
        raise refusals[-1]
    raise UsageError(
        f"--environment {reference} has no tools: register one in the registry of its session"
    )


async def make_own_data(
    options: DataOptions,
    environment: str | None,
    phrases: Path | None,
    settings: Settings,
    *,
    progress: bool = True,
) -> int:
    """Draw conversations from a phrase file, play them and write them; return the exit code.

    In the end a line for each tool says how the wishes for it ended.

    Raises:
        UsageError: no such environment, or shares or a number that cannot be.
        TuningError: the phrase file is wrong or does not fit the tools, or a conversation could
            not be played.
    """
    if phrases is None:
        raise UsageError(f"--environment {environment} needs --phrases FILE: {HOW}")
    book = read_phrases(phrases)
    own = load_environment(environment)
    said: list[Said] = []
    stages = {locale: _stage(own, book, locale, said.append) for locale in book.phrases.locales}
    check_fit(book, {locale: stage.registry for locale, stage in stages.items()})
    drawn = tuple(
        conversations(
            book, stages, count=options.count, seed=options.seed, korean_share=options.korean_share
        )
    )
    different = len({identity(each) for each in drawn})
    if different < _ENOUGH * options.count:
        text = load_catalog(settings.locale).text(
            "tune_own.fewer", different=different, count=options.count
        )
        Console().print(text, soft_wrap=True, highlight=False, markup=False)
    await write_played(iter(drawn), own, options, settings, count=options.count, progress=progress)
    for answers in answers_of(book, said):
        line = printable(_told(answers, load_catalog(settings.locale)))
        Console().print(line, soft_wrap=True, highlight=False, markup=False)
    return 0


def _told(answers: Answers, catalog: Catalog) -> str:
    """Return the line of one tool."""
    counts = [f"{count} {outcome}" for outcome, count in answers.outcomes.items()]
    parts = [
        catalog.text("tune_own.outcomes", tool=answers.tool, outcomes=", ".join(counts) or "0")
    ]
    if answers.is_missing_much:
        parts.append(catalog.text("tune_own.missing", share=round(100 * answers.missing)))
    if answers.unused:
        parts.append(catalog.text("tune_own.unused", replies=", ".join(answers.unused)))
    return " ".join(parts)


def _stage(
    environment: Environment, book: PhraseFile, locale: str, notify: Callable[[Said], None]
) -> Stage:
    """Open each world once and return its day, with the tools, which are the same in all."""
    days: list[date] = []
    for number, world in enumerate(book.phrases.worlds):
        try:
            with opened(environment, world, locale) as session:
                days.append(session.today)
                registry = session.registry
                most_calls = session.assistant.max_turns - 1
        except UsageError as error:
            raise TuningError(f"{book.place(('worlds', number))}: {error}") from error
    return Stage(registry=registry, days=tuple(days), most_calls=most_calls, notify=notify)
