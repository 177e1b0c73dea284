"""`lhkit tune`: data, training and merging."""

import asyncio
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from tqdm.auto import tqdm

from lhkit.commands.options import in_dtype
from lhkit.commands.progress import setup_progress
from lhkit.commands.tune_options import (
    DataOptions,
    InitOptions,
    RunOptions,
    ShowOptions,
    TrainOptions,
)
from lhkit.errors import ModelError, RunError, SetupError, TuningError, UsageError
from lhkit.files import write_whole
from lhkit.harness.reviews import read_talks
from lhkit.harness.scenario import load_scenarios
from lhkit.locales import Catalog, available_locales, load_catalog
from lhkit.messages import UserMessage
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.json import read_back
from lhkit.models.light import require_llama_cpp
from lhkit.models.weights import ensure_weights, file_sha256, require_adapter
from lhkit.precision import chosen
from lhkit.settings import Settings, hardware
from lhkit.text import printable
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import (
    DEFAULT,
    Toolset,
    load,
    load_named,
    opened,
    opens,
    registry_of,
    their_code,
)
from lhkit.tuning.adapter import merge, require_base, require_device, require_mergeable
from lhkit.tuning.apart import Apart
from lhkit.tuning.data import (
    TrainingSequence,
    data_sha256,
    opening,
    read_sequences,
    write_sequences,
)
from lhkit.tuning.phrases.check import check_fit
from lhkit.tuning.phrases.file import (
    HOW,
    MORE,
    PhraseFile,
    lines_to_quote,
    read_phrases,
    todo_count,
)
from lhkit.tuning.phrases.generate import (
    Answers,
    DayRemarks,
    DrawingStage,
    Drawn,
    MisfitError,
    OddPlace,
    answers_of,
    conversations,
    day_remarks,
    has_made_up_names,
    identity,
    raise_misfit,
    require_playable,
    skeleton,
    unasked,
)
from lhkit.tuning.recipe import TrainingDevice, TuneSettings
from lhkit.tuning.reviewed import reviewed_conversations
from lhkit.tuning.scores import Score, score_words
from lhkit.tuning.scoring import EvalSet, Scorer, eval_set
from lhkit.tuning.teacher import Conversation, simulate
from lhkit.tuning.train import (
    ADAPTER,
    BrokenCheckpoint,
    Forecast,
    LeftOut,
    Material,
    Notice,
    Point,
    TrainingPlan,
    TrainingSurroundings,
    is_finished,
    is_over,
    read_log,
    train,
)

# `lhkit tune …`: training data as files, an adapter from them, and the model with it merged in.


_WHOLE_MINUTES = 10
_AT_A_TIME = 500
"""Conversations played in one go: their records are all in memory."""


def dev_path(out: Path) -> Path:
    """Return where the conversations for measuring lie: `train.jsonl` has `train.dev.jsonl`."""
    return out.with_suffix(f".dev{out.suffix}")


async def write_played(
    told: Sequence[Conversation],
    toolset: Toolset,
    options: DataOptions,
    settings: Settings,
    *,
    require: Callable[[], None] = lambda: None,
    look: Callable[[Sequence[TrainingSequence]], None] = lambda _played: None,
    dropped: Collection[str] = (),
    progress: bool = True,
) -> None:
    """Play conversations, write them and say so.

    The dev file holds no text that the training file holds, too; without a text there is none.
    Once everything is played, `require` may refuse it, and `look` is shown what is learnt from: all
    but those whose names `dropped` holds then.

    Raises:
        UsageError: nothing is left to learn from.
        TuningError: a conversation could not be played.
    """
    learnt_count = len(told) - round(len(told) * options.dev_share)
    is_apart = await asyncio.to_thread(_apart, options.apart)
    to_learn, to_measure = (
        [each for each in part if is_apart(line.user for line in each.lines)]
        for part in (told[:learnt_count], told[learnt_count:])
    )
    if not to_learn:
        raise UsageError(
            "nothing is left to learn from: raise --count, lower --dev-share, or say other things "
            "than the scenarios of --apart"
        )
    with tqdm(
        total=len(to_learn) + len(to_measure), unit="conversation", disable=not progress
    ) as bar:
        played = [await _played(part, toolset, bar) for part in (to_learn, to_measure)]
    require()
    learnt, dev = (
        [each for each in part if each.id.rpartition(".")[0] not in dropped] for part in played
    )
    look([*learnt, *dev])
    if options.apart:
        near_count = len(told) - len(to_learn) - len(to_measure)
        words = load_catalog(settings.locale).text("tune.apart", count=near_count)
        _tell(words, to_stderr=True)
    known = {sequence.text for sequence in learnt}
    fresh = [sequence for sequence in dev if sequence.text not in known]
    learnt = _cut(learnt, options)
    dev_path(options.out).unlink(missing_ok=True)
    if fresh:
        write_sequences(dev_path(options.out), fresh)
    write_sequences(options.out, learnt)  # last: where it is, the dev file is too
    _show(options, learnt, fresh, settings)


def _apart(scenarios: Sequence[Path]) -> Apart:
    """Return what says whether lines are near none of these scenarios'.

    Raises:
        ScenarioError: they cannot be read.
    """
    return Apart([turn.user for each in load_scenarios(scenarios) for turn in each.turns])


def _cut(learnt: Sequence[TrainingSequence], options: DataOptions) -> list[TrainingSequence]:
    rng = random.Random(f"openings/{options.seed}")
    return [opening(each) if rng.random() < options.openings else each for each in learnt]


async def _played(
    told: Sequence[Conversation], toolset: Toolset, bar: Any
) -> list[TrainingSequence]:
    sequences: list[TrainingSequence] = []
    for begin in range(0, len(told), _AT_A_TIME):
        chunk = told[begin : begin + _AT_A_TIME]
        sequences += await simulate(chunk, toolset, progress=False)
        bar.update(len(chunk))
    return sequences


def _show(
    options: DataOptions,
    learnt: Sequence[TrainingSequence],
    dev: Sequence[TrainingSequence],
    settings: Settings,
) -> None:
    locales = Counter(sequence.group for sequence in learnt)
    text = load_catalog(settings.locale).text(
        "tune.data",
        train=len(learnt),
        dev=len(dev),
        kinds=len({sequence.kind for sequence in learnt}),
        locales=", ".join(f"{name} {count}" for name, count in sorted(locales.items())),
        out=options.out,
        dev_out=dev_path(options.out),
        sha256=data_sha256(learnt)[:12],
    )
    _tell(text)


async def show_data(options: ShowOptions, settings: Settings) -> int:
    """Show what is said in the conversations of a data file; return the exit code.

    Raises:
        TuningError: it is no such file; names the line or the conversation.
        UsageError: it holds none of those that are asked for.
    """
    catalog = load_catalog(settings.locale)
    sequences = read_sequences(options.data)
    asked = _asked_for(sequences, options)
    begin = options.begin - 1
    shown = asked[begin : begin + options.count]
    if not shown:
        raise UsageError(f"--from {options.begin}: only {len(asked)} conversations are there")
    for number, each in enumerate(shown, start=options.begin):
        _tell("\n".join((f"{number} · {_named(each)}", *_said_in(each, options.data, catalog), "")))
    kinds = Counter(each.kind for each in sequences)
    counted = catalog.text(
        "tune.shown",
        first=options.begin,
        last=options.begin + len(shown) - 1,
        found=len(asked),
        file=options.data,
        kinds=", ".join(f"{kind} {count}" for kind, count in kinds.most_common()),
    )
    _tell(counted)
    return 0


def _asked_for(
    sequences: Sequence[TrainingSequence], options: ShowOptions
) -> Sequence[TrainingSequence]:
    for option, wanted, there in (
        ("--kind", options.kind, {each.kind for each in sequences}),
        ("--locale", options.locale, {each.group for each in sequences}),
    ):
        if wanted is not None and wanted not in there:
            known = ", ".join(sorted(there))
            raise UsageError(f"{option} {wanted}: {options.data} holds none: choose one of {known}")
    asked = [
        each
        for each in sequences
        if options.kind in {None, each.kind} and options.locale in {None, each.group}
    ]
    if not asked:
        raise UsageError(
            f"--kind {options.kind} --locale {options.locale}: {options.data} holds none of both: "
            "leave one of them out"
        )
    return asked


def _named(sequence: TrainingSequence) -> str:
    return f"{sequence.kind} · {sequence.group} · {sequence.id}"


def _said_in(sequence: TrainingSequence, file: Path, catalog: Catalog) -> Iterator[str]:
    try:
        spoken = read_back(sequence.text)
    except ValueError as error:
        raise TuningError(
            f"{file}: {sequence.id}: text: {error}: make it with `lhkit tune data`"
        ) from error
    for each in spoken:
        told = f"  {catalog.text(f'tune.said_{each.who}')}: {each.text}"
        yield told.replace("\n", "\n    ")


async def train_adapter(
    options: TrainOptions,
    settings: Settings,
    *,
    scored_on: EvalSet | None = None,
    progress: bool = True,
) -> int:
    """Train an adapter, or go on where it was stopped; return the exit code.

    On `scored_on` it is scored before the first step, if it begins from an adapter, and at each
    that is kept on the way; the end, and a bare base, are the caller's to score.

    Interrupting saves a checkpoint after the step at work, so that nothing is lost; that is told.
    After the last step there is nothing to go on with: then the adapter is told.

    Raises:
        TuningError: data, base model or checkpoint cannot be used.
        SetupError: packages or weights are missing.
    """
    settings = in_dtype(settings, options.dtype)
    _require_device_to_train(options.recipe.device, options.into)
    if options.start is not None:
        require_adapter(options.start)
    if options.base is not None:
        require_base(options.base)
    learnt, dev = read_sequences(options.data), dev_path(options.data)
    measured = read_sequences(dev) if dev.exists() else ()
    base = options.base or await _embedded(settings)  # may take minutes: the data are read already
    material = Material(train=learnt, dev=measured, base=base, start=options.start)
    tuning = _chosen(options.recipe, options.into, settings)
    stop = threading.Event()
    pauses = _Pauses(_scoring(options, scored_on, base, settings))
    work = asyncio.create_task(
        asyncio.to_thread(
            train,
            material,
            tuning,
            options.into,
            clock=time.perf_counter,
            progress=progress,
            stop=stop.is_set,
            surroundings=TrainingSurroundings(
                facts=hardware(),
                locale=settings.locale,
                notify=_teller(settings),
                keep_every_minutes=options.keep_every_minutes,
                pause=pauses,
            ),
        )
    )
    try:
        log = await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        text = load_catalog(settings.locale).text
        with tqdm.external_write_mode(file=sys.stderr):  # the bar steps aside
            _tell(text("tune.stopping"), to_stderr=True)
        await pauses.end()
        log = await work
        if is_over(options.recipe, log):  # it was the last step: nothing is left to go on with
            _show_training(log, options, settings)
        else:
            _tell(text("tune.stopped", step=len(log)), to_stderr=True)
        raise
    _show_training(log, options, settings)
    return 0


def _require_device_to_train(device: TrainingDevice, into: Path) -> None:
    """Refuse a device that is not here, unless its work in `into` is done.

    Raises:
        SetupError: torch cannot use it.
    """
    if not is_finished(into):
        require_device(device)


class _Pauses:
    """Does some work on this loop whenever the thread that trains pauses, until it is ended."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def __call__(self) -> None:
        """Wait until the work is done, or ended; called in the thread that trains."""
        with suppress(CancelledError):
            asyncio.run_coroutine_threadsafe(self._run(), self._loop).result()

    async def end(self) -> None:
        """Cancel what is being done, and do nothing more."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        if not self._is_over:
            self._task = asyncio.current_task()
            await self._work()


def _scorer(options: TrainOptions, asked: EvalSet, base: Path, settings: Settings) -> Scorer:
    def tell(score: Score) -> None:
        with tqdm.external_write_mode(file=sys.stdout):  # the bar steps aside
            _tell(score_words(score, load_catalog(settings.locale)))

    return Scorer(
        asked=asked,
        base=base,
        start=options.start,
        folder=options.into,
        settings=settings,
        tell=tell,
    )


def _scoring(
    options: TrainOptions, scored_on: EvalSet | None, base: Path, settings: Settings
) -> Callable[[], Awaitable[None]]:
    """Return what a training pauses for. Once there is something to lose, a fault is only told."""

    async def score() -> None:
        if scored_on is None:
            return
        is_begun = bool(await asyncio.to_thread(read_log, options.into))
        try:
            await _scorer(options, scored_on, base, settings).score_due()
        except (SetupError, ModelError, RunError, TuningError, OSError) as error:
            if not is_begun:
                raise
            with tqdm.external_write_mode(file=sys.stderr):
                text = load_catalog(settings.locale).text
                _tell(text("tune.unscored", error=error), to_stderr=True)

    return score


def _chosen(tuning: TuneSettings, into: Path, settings: Settings) -> TuneSettings:
    """Return how to train, with what to compute in; say that, where there is something to do."""
    on_card = tuning.device == "cuda"
    precision = chosen(tuning.dtype or settings.dtype, on_card=on_card)
    if not is_finished(into):
        _tell(precision.words(load_catalog(settings.locale)), to_stderr=True)
    return replace(tuning, dtype=precision.dtype)


async def merge_adapter(adapter: Path, into: Path, base: Path | None, settings: Settings) -> int:
    """Write the base model with the adapter merged into it; return the exit code.

    Raises:
        TuningError: the adapter does not fit, or the target is there already.
        SetupError: packages or weights are missing.
    """
    require_mergeable(adapter, into)
    if base is not None:
        require_base(base)
    await asyncio.to_thread(merge, base or await _embedded(settings), adapter, into)
    text = load_catalog(settings.locale).text("tune.merged", folder=into)
    _tell(text)
    return 0


async def _embedded(settings: Settings) -> Path:
    with setup_progress() as reports:
        return await ensure_weights(settings.cache_dir, report=reports.weights)


def _teller(settings: Settings) -> Callable[[Notice], None]:
    text = load_catalog(settings.locale).text

    def tell(notice: Notice) -> None:
        match notice:
            case LeftOut():
                told = text("tune.left_out", count=notice.count, most=notice.most_tokens)
            case BrokenCheckpoint():
                told = text("tune.broken", path=notice.path, step=notice.step)
            case TrainingPlan():
                told = _planned(notice, settings)
            case Forecast():
                told = text(
                    "tune.forecast",
                    done=notice.done,
                    left=notice.left,
                    minutes=_minutes(notice.minutes),
                )
        _tell(told, to_stderr=True)

    return tell


def _planned(plan: TrainingPlan, settings: Settings) -> str:
    text = load_catalog(settings.locale).text
    return text(
        "tune.plan",
        texts=plan.texts,
        tokens=f"{plan.tokens:,}",
        batches=plan.batches,
        step_tokens=f"{plan.step_tokens:,}",
        steps=plan.steps,
        minutes=_minutes(plan.minutes),
    )


def _minutes(minutes: float) -> str:
    return f"{minutes:.0f}" if minutes >= _WHOLE_MINUTES else f"{minutes:.1f}"


def _show_training(log: Sequence[Point], options: TrainOptions, settings: Settings) -> None:
    measured = [point.dev_loss for point in log if point.dev_loss is not None]
    adapter = options.into / ADAPTER
    text = load_catalog(settings.locale).text
    trained = text(
        "tune.trained",
        steps=len(log),
        loss=f"{log[-1].loss:.3f}",
        dev=f"{measured[-1]:.3f}" if measured else "–",
        adapter=adapter,
    )
    following = text("tune.next", adapter=adapter, folder=options.into / "merged")
    for line in (trained,) if options.is_whole else (trained, following):
        _tell(line)


def _tell(text: str, *, to_stderr: bool = False) -> None:
    """Print what may hold a path: no markup and no control characters of it take effect."""
    line = Text(printable(text))
    Console(stderr=to_stderr).print(line, soft_wrap=True, highlight=False)


# `lhkit tune init` and `lhkit tune data`: training data, from phrases or from Python code.


_WORLDS: tuple[Mapping[str, Any], ...] = ({}, {"now": "2026-06-15T09:00:00+09:00"})
"""States that a skeleton tries: nothing at all, or no more than a clock."""

_CONVERSATIONS = "--conversations"
_PLACES = 5
"""So many places of the file are named for each thing that is odd."""
_MOST_DROPPED = 0.1
"""Share of the conversations with made-up names that may not fit: more is a fault of the file."""

_ENOUGH = 0.7
"""Share of different conversations below which a file is told to hold too few phrases."""


async def write_skeleton(options: InitOptions, settings: Settings) -> int:
    """Write a phrase file to fill in; return the exit code.

    Raises:
        UsageError: no such toolset or locale, it opens no world, or the file is there already.
    """
    if options.out.exists():
        raise UsageError(f"{options.out} is there already: give another --out, or delete it")
    locales = (options.locale,) if options.locale else _by_reader(settings.locale)
    for locale in locales:
        load_catalog(locale)  # refuses a language that we have no words for
    world, registries = _registries(options.toolset, locales)
    reader = options.locale or settings.locale
    text = skeleton(registries, world=world, reference=options.toolset, reader=reader)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, encoding="utf-8")
    catalog = load_catalog(settings.locale)
    written = catalog.text(
        "tune_own.written",
        out=options.out,
        tools=len(next(iter(registries.values()))),
        locales=", ".join(registries),
        todos=todo_count(text),
    )
    following = catalog.text("tune_own.next", reference=options.toolset, out=options.out)
    for line in (written, following):
        Console().print(printable(line), soft_wrap=True, highlight=False, markup=False)
    return 0


def _by_reader(reader: str) -> tuple[str, ...]:
    return tuple(sorted(available_locales(), key=lambda locale: locale != reader))


def _registries(
    reference: str, locales: tuple[str, ...]
) -> tuple[Mapping[str, Any], dict[str, ToolRegistry]]:
    """Return a world that opens, and the tools in each language in which it does."""
    toolset = load(reference)
    refusals: list[UsageError] = []
    for world in _WORLDS:
        found: dict[str, ToolRegistry] = {}
        for locale in locales:
            try:
                found[locale] = registry_of(toolset, world, locale)
            except UsageError as error:
                refusals.append(error)
        if any(found.values()):
            return world, found
    if refusals:
        raise refusals[-1]
    raise UsageError(
        f"--toolset {reference} has no tools: register one in the registry of its session"
    )


async def make_data(options: DataOptions, settings: Settings, *, progress: bool = True) -> int:
    """Play conversations and write what there is to learn from them; return the exit code.

    They are what Python code writes, what people reviewed, or drawn from a phrase file; then a line
    for each tool says in the end how the wishes for it ended.

    Raises:
        UsageError: no such toolset, file or author, its code fails, shares or a number that cannot
            be, or nothing is left to learn from.
        TuningError: the phrase file is wrong or does not fit the tools, or a conversation could
            not be played.
    """
    if options.made_up_names and options.phrases is None:
        raise UsageError("--made-up-names is for a phrase file: give one with --phrases")
    sources = (options.phrases, options.conversations, options.reviewed)
    if sum(each is not None for each in sources) > 1:
        raise UsageError("--phrases, --conversations and --reviewed: give one of them")
    if options.phrases is not None:
        await _write_drawn(options.phrases, options, settings, progress=progress)
    elif options.conversations is not None:
        own = load(options.toolset or DEFAULT)
        told = _told_by(options.conversations, options)
        await write_played(told, own, options, settings, progress=progress)
    elif options.reviewed is not None:
        own = load(options.toolset or DEFAULT)
        told = tuple(reviewed_conversations(read_talks(options.reviewed), own))
        await write_played(told, own, options, settings, progress=progress)
    else:
        raise UsageError(f"tune data needs --phrases FILE: {HOW}; or {_CONVERSATIONS} FILE.py:NAME")
    return 0


def _told_by(author: str, options: DataOptions) -> tuple[Conversation, ...]:
    asked = f"{_CONVERSATIONS} {author}"
    write = load_named(_CONVERSATIONS, author)
    with their_code(f"{asked}: writing {options.count} conversations"):
        written = write(options.count, seed=options.seed, korean_share=options.korean_share)
        told = tuple(islice(written, options.count))
    for each in told:
        if not isinstance(each, Conversation):
            raise UsageError(
                f"{asked} wrote {each!r:.60}: give `lhkit.tuning.teacher.Conversation`"
            )
    if not told:
        raise UsageError(f"{asked} wrote no conversation")
    return told


async def _write_drawn(
    phrases: Path, options: DataOptions, settings: Settings, *, progress: bool
) -> None:
    book = read_phrases(phrases)
    own = load(options.toolset or DEFAULT)
    if quoted := lines_to_quote(phrases):
        lines = ", ".join(map(str, quoted))
        asked = load_catalog(settings.locale).text("tune_own.quote", file=phrases, lines=lines)
        _tell(asked, to_stderr=True)
    said: list[Drawn] = []
    played: list[TrainingSequence] = []
    misfits: list[MisfitError] = []
    dropped: dict[str, MisfitError] = {}
    stages = stages_of(own, book, said.append, misfits.append, dropped.__setitem__)
    check_fit(book, {locale: stage.registry for locale, stage in stages.items()})
    drawn = tuple(
        conversations(
            book,
            stages,
            count=options.count,
            seed=options.seed,
            korean_share=options.korean_share,
            made_up_names=options.made_up_names,
        )
    )
    made_up = sum(map(has_made_up_names, drawn))
    different = len({identity(each) for each in drawn})
    if different < _ENOUGH * options.count:
        text = load_catalog(settings.locale).text(
            "tune_own.fewer", different=different, count=options.count
        )
        Console().print(text, soft_wrap=True, highlight=False, markup=False)
    await write_played(
        drawn,
        own,
        options,
        settings,
        require=lambda: require_playable(_faults(misfits, dropped, made_up)),
        look=played.extend,
        dropped=dropped.keys(),
        progress=progress,
    )
    if options.made_up_names:
        words = load_catalog(settings.locale).text(
            "tune_own.made_up", made_up=made_up, count=len(drawn), dropped=len(dropped)
        )
        _tell(words, to_stderr=True)
        for first in {each.cause: each for each in reversed(dropped.values())}.values():
            _tell(str(first), to_stderr=True)
    for answers in answers_of(book, said):
        _tell(_told(answers, load_catalog(settings.locale)))
    beginnings = {locale: _beginning(stage) for locale, stage in stages.items()}
    for line in _remarks(
        day_remarks(played, said, beginnings), unasked(said), load_catalog(settings.locale)
    ):
        _tell(line)


def _beginning(stage: DrawingStage) -> str:
    """Return what every prompt of a language begins with: the instructions and the tools."""
    mark = "\x00"
    tools, asked = stage.registry.definitions, UserMessage(text=mark)
    return DIALECTS["json"].encode((asked,), tools, stage.instructions).partition(mark)[0]


def _remarks(
    days: DayRemarks, unasked_lines: Sequence[OddPlace], catalog: Catalog
) -> Iterator[str]:
    """Yield what is odd about days and questions, a heading and a line for each of some places."""
    for key, found in (
        ("days_reversed", days.reversed),
        ("days_other", days.others),
        ("days_unread", days.unread),
        ("unasked", unasked_lines),
    ):
        if not found:
            continue
        count = sum(each.count for each in found)
        yield catalog.text(f"tune_own.{key}", count=count, days=days.days)
        for each in found[:_PLACES]:
            yield f"  {each.place} ({each.count}): {each.example}"
        if len(found) > _PLACES:
            yield "  " + catalog.text("tune_own.more_places", count=len(found) - _PLACES)


def _faults(
    misfits: Sequence[MisfitError], dropped: Mapping[str, MisfitError], made_up: int
) -> Sequence[MisfitError]:
    """Return what the file has to be mended for; with other names a few plays need not fit."""
    return [*misfits, *(dropped.values() if len(dropped) > _MOST_DROPPED * made_up else ())]


def _told(answers: Answers, catalog: Catalog) -> str:
    """Return the line of one tool."""
    counts = [f"{count} {outcome}" for outcome, count in answers.outcomes.items()]
    parts = [
        catalog.text("tune_own.outcomes", tool=answers.tool, outcomes=", ".join(counts) or "0")
    ]
    if answers.is_missing_much:
        parts.append(catalog.text("tune_own.missing", share=round(100 * answers.missing)))
    if answers.blind:
        parts.append(catalog.text("tune_own.blind", replies=", ".join(map(repr, answers.blind))))
    if answers.unused:
        parts.append(catalog.text("tune_own.unused", replies=", ".join(answers.unused)))
    return " ".join(parts)


def stages_of(
    toolset: Toolset,
    book: PhraseFile,
    notify: Callable[[Drawn], None],
    refuse: Callable[[MisfitError], None],
    drop: Callable[[str, MisfitError], None] = raise_misfit,
) -> dict[str, DrawingStage]:
    """Return the tools of each language; who is told of what is as in `DrawingStage`.

    Raises:
        TuningError: a world does not open; a line for each.
    """
    faults: list[str] = []
    stages: dict[str, DrawingStage] = {}
    for locale in book.phrases.locales:
        try:
            stage = _stage(toolset, book, locale)
        except TuningError as error:
            faults += str(error).splitlines()
        else:
            stages[locale] = replace(stage, notify=notify, refuse=refuse, drop=drop)
    if faults:
        raise TuningError("\n".join([*dict.fromkeys(faults), MORE]))
    return stages


def _stage(toolset: Toolset, book: PhraseFile, locale: str) -> DrawingStage:
    """Open each world once and return its day, with the tools, which are the same in all."""
    worlds, own = book.worlds(locale), book.own_worlds(locale)
    faults: list[str] = []
    days: dict[int, date] = {}
    stage: DrawingStage | None = None
    for number, world in enumerate((*worlds, *own.values())):
        try:
            with opened(toolset, world.state, locale) as session:
                days[number] = session.today
                stage = stage or DrawingStage(
                    registry=session.registry,
                    days=(),
                    most_calls=session.assistant.max_turns - 1,
                    instructions=session.assistant.instructions,
                    opens=lambda world: opens(toolset, world, locale),
                )
        except UsageError as error:
            faults.append(f"{book.place(world.path)}: {error}")
    if faults or stage is None:
        raise TuningError("\n".join(faults))
    own_days = {number: days[len(worlds) + at] for at, number in enumerate(own)}
    return replace(stage, days=[days[number] for number in range(len(worlds))], own_days=own_days)


# `lhkit tune run`: from phrases to a model, in one command.


async def tune_own(options: RunOptions, settings: Settings, *, progress: bool = True) -> int:
    """Draw conversations from phrases, train on them, merge, and score; return the exit code.

    Given again it goes on wherever it was stopped: the same phrases are played to the same data,
    by which the training knows itself again, and what is merged already stays.

    Raises:
        UsageError: as `make_data`, or scenarios to be scored on are wrong.
        TuningError: as `make_data` and `train_adapter`.
        SetupError: packages or weights are missing.
        ModelError: the scenarios could not be played.
    """
    settings = in_dtype(settings, options.dtype)
    into = options.into / "training"
    _require_device_to_train(options.recipe.device, into)
    if options.base is not None:
        require_base(options.base)
    scored_on = _scored_on(options)
    data = DataOptions(
        out=options.data,
        count=options.count,
        seed=options.seed,
        dev_share=options.dev_share,
        openings=options.openings,
        made_up_names=options.made_up_names,
        toolset=options.toolset,
        phrases=options.phrases,
        apart=(*options.apart, *options.scored_on),
    )
    await make_data(data, settings, progress=progress)
    training = TrainOptions(
        data=options.data,
        into=into,
        base=options.base,
        start=options.start,
        tuning=options.recipe,
        is_whole=True,
        keep_every_minutes=options.keep_every_minutes,
    )
    await train_adapter(training, settings, scored_on=scored_on, progress=progress)
    adapter = training.into / ADAPTER
    if await asyncio.to_thread(is_merged, adapter, options.model):
        _tell(load_catalog(settings.locale).text("tune.merged", folder=options.model))
    else:
        await merge_adapter(adapter, options.model, options.base, settings)
    if scored_on is not None:
        base = options.base or await _embedded(settings)
        await _scorer(training, scored_on, base, settings).score_due()
    return 0


def _scored_on(options: RunOptions) -> EvalSet | None:
    """Return what the training is scored on, if it is, before anything else is done.

    Raises:
        MissingPackageError: llama.cpp is not installed.
        UsageError: the scenarios are wrong, or not for these tools.
    """
    if not options.scored_on:
        return None
    require_llama_cpp()
    return eval_set(options.scored_on, load(options.toolset))


def is_merged(adapter: Path, model: Path) -> bool:
    """Return whether `model` is there already; if not, note beside it what it will be made of.

    Raises:
        TuningError: it is there, and was made of another adapter.
    """
    weights_sha256 = file_sha256(adapter / "adapter_model.safetensors")
    note = model.with_name(f"{model.name}-made-of.txt")
    if not model.exists():
        note.parent.mkdir(parents=True, exist_ok=True)
        write_whole(note, f"{weights_sha256}\n".encode())
        return False
    if not note.is_file() or note.read_text(encoding="utf-8").strip() != weights_sha256:
        raise TuningError(
            f"{model} was made of another adapter than {adapter}: remove it, or give another --into"
        )
    return True
