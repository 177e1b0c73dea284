"""The data of a head start: conversations with many generated toolsets, in one file.

    python -m evals.head_start.make --count 8000 --out runs/head-start/train.jsonl

Each toolset is spoken to in Korean and in English, by a phrase file of its own. The dev file beside
the data is of domains that the data do not hold: what is measured with it is unseen toolsets.
"""

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated
from zlib import crc32

import typer
from tqdm.auto import tqdm

from evals.head_start.domains import domains
from evals.head_start.phrases import phrases_of
from evals.head_start.toolsets import GeneratedToolset, toolsets
from evals.lessons.conversations import conversations as lessons
from evals.own_tools.proof import SCENARIOS
from lhkit.cli import finish
from lhkit.commands.tune import dev_path, stages_of
from lhkit.errors import UsageError
from lhkit.harness.scenario import load_scenarios
from lhkit.settings import Settings
from lhkit.toolset import Toolset, load
from lhkit.tuning.apart import Apart
from lhkit.tuning.data import TrainingSequence, opening, write_sequences
from lhkit.tuning.phrases.check import check_fit
from lhkit.tuning.phrases.file import read_phrases
from lhkit.tuning.phrases.generate import (
    Drawn,
    MisfitError,
    conversations,
    ignore,
    require_playable,
)
from lhkit.tuning.teacher import Conversation, simulate

_LIFE_HELPER = "life-helper"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadStart:
    """What to draw.

    Of `count` conversations, `lessons` is the share with life-helper, `dev` how many are kept for
    measuring, with toolsets of `dev_domains` domains that are learnt nothing of. `openings` is the
    share that ends at the first calls, `korean_share` that of Korean ones.
    """

    toolsets: int = 300
    count: int = 8_000
    seed: int = 1
    lessons: float = 0.1
    openings: float = 0.3
    korean_share: float = 0.55
    dev: int = 60
    dev_domains: int = 3

    @property
    def theirs(self) -> int:
        """How many conversations are with life-helper."""
        return round(self.count * self.lessons)

    @property
    def ours(self) -> int:
        """How many are with generated toolsets, to learn from."""
        return self.count - self.theirs - self.dev


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A toolset, and what is said to it; `is_kept` if it is for measuring."""

    name: str
    toolset: Toolset
    talks: tuple[Conversation, ...]
    is_kept: bool = False


def parts(
    head_start: HeadStart,
    misfits: list[MisfitError],
    notify: Callable[[Drawn], None] = ignore,
) -> Iterator[Part]:
    """Yield each toolset with its conversations; the same arguments give the same ones.

    What does not fit when they are played comes into `misfits`; what is answered is told.
    """
    kept = kept_domains(head_start)
    drawn = list(toolsets(head_start.toolsets, seed=head_start.seed))
    for_dev = [each for each in drawn if each.domain.key in kept]
    to_learn = [each for each in drawn if each.domain.key not in kept]
    shares = [*zip(to_learn, _shared(head_start.ours, len(to_learn)), strict=True)]
    shares += zip(for_dev, _shared(head_start.dev, len(for_dev)), strict=True)
    for toolset, count in shares:
        talks = talks_with(toolset, count, head_start, misfits, notify)
        yield Part(
            name=toolset.name, toolset=toolset, talks=talks, is_kept=toolset.domain.key in kept
        )
    if theirs := head_start.theirs:
        told = tuple(lessons(theirs, seed=head_start.seed, korean_share=head_start.korean_share))
        yield Part(name=_LIFE_HELPER, toolset=load(_LIFE_HELPER), talks=told)


def kept_domains(head_start: HeadStart) -> frozenset[str]:
    """Return the domains that are for measuring."""
    rng = random.Random(f"kept/{head_start.seed}")
    names = [each.key for each in domains()][: head_start.toolsets]
    return frozenset(rng.sample(names, head_start.dev_domains if head_start.dev else 0))


def _shared(count: int, among: int) -> list[int]:
    """Return a number in so many parts that differ by one at most."""
    return [count // among + (number < count % among) for number in range(among)] if among else []


def talks_with(
    toolset: GeneratedToolset,
    count: int,
    head_start: HeadStart,
    misfits: list[MisfitError],
    notify: Callable[[Drawn], None] = ignore,
) -> tuple[Conversation, ...]:
    """Return conversations with a toolset, drawn from its phrase file.

    Raises:
        TuningError: the file does not fit the tools.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{toolset.name}.yaml"
        file.write_text(phrases_of(toolset, seed=head_start.seed), encoding="utf-8")
        book = read_phrases(file)
    stages = stages_of(toolset, book, notify, misfits.append)
    check_fit(book, {locale: stage.registry for locale, stage in stages.items()})
    drawn = conversations(
        book,
        stages,
        count=count,
        seed=crc32(f"{head_start.seed}/{toolset.name}".encode()),
        korean_share=head_start.korean_share,
    )
    return tuple(replace(each, name=f"{toolset.name}.{each.name}") for each in drawn)


async def played(part: Part) -> tuple[TrainingSequence, ...]:
    """Play conversations; those of one toolset and language are a group, since they begin alike."""
    if not part.talks:
        return ()
    sequences = await simulate(part.talks, part.toolset, progress=False)
    return tuple(replace(each, group=f"{part.name}.{each.group}") for each in sequences)


async def make(
    head_start: HeadStart, out: Path, *, apart: Sequence[Path] = SCENARIOS, progress: bool = True
) -> int:
    """Write the data and its dev file, say what it is, and return the exit code.

    Raises:
        UsageError: nothing would be left to learn from.
        TuningError: phrases do not fit their tools, or it cannot be written.
    """
    if head_start.ours < 1:
        raise UsageError(
            f"--count {head_start.count} leaves nothing to learn from beside --dev "
            f"{head_start.dev} and --lessons {head_start.lessons:g}: raise --count, or lower these"
        )
    is_apart = Apart([turn.user for each in load_scenarios(apart) for turn in each.turns])
    rng = random.Random(f"openings/{head_start.seed}")
    misfits: list[MisfitError] = []
    learnt: list[TrainingSequence] = []
    dev: list[TrainingSequence] = []
    outcomes: Counter[str] = Counter()
    near = 0

    def count(drawn: Drawn) -> None:
        outcomes[drawn.outcome] += 1

    with tqdm(total=head_start.count, unit="conversation", disable=not progress) as bar:
        for part in parts(head_start, misfits, count):
            talks = tuple(each for each in part.talks if is_apart(line.user for line in each.lines))
            near += len(part.talks) - len(talks)
            sequences = await played(replace(part, talks=talks))
            if part.is_kept:
                dev += sequences
            else:
                learnt += (
                    opening(each) if rng.random() < head_start.openings else each
                    for each in sequences
                )
            bar.update(len(part.talks))
    require_playable(misfits)
    dev_path(out).unlink(missing_ok=True)
    if dev:
        write_sequences(dev_path(out), dev)
    write_sequences(out, learnt)
    for line in _told(head_start, learnt, dev, outcomes):
        typer.echo(line)
    typer.echo(f"{near} conversations were nearly a scenario and are left out")
    return 0


def _told(
    head_start: HeadStart,
    learnt: Sequence[TrainingSequence],
    dev: Sequence[TrainingSequence],
    outcomes: Counter[str],
) -> Iterator[str]:
    """Yield lines that say what was written."""
    locales = Counter(each.group.rpartition(".")[2] for each in learnt)
    told = ", ".join(f"{locale} {count}" for locale, count in sorted(locales.items()))
    yield f"{len(learnt)} texts ({told}) in {len({each.group for each in learnt})} groups"
    if dev:
        yield f"{len(dev)} for measuring, about {', '.join(sorted(kept_domains(head_start)))}"
    yield "wishes: " + ", ".join(f"{count} {key}" for key, count in outcomes.most_common())


_DEFAULT = HeadStart()


def main(
    *,
    toolsets: Annotated[int, typer.Option(min=4, help="How many toolsets.")] = _DEFAULT.toolsets,
    count: Annotated[int, typer.Option(min=1, help="How many conversations.")] = _DEFAULT.count,
    seed: Annotated[int, typer.Option(min=0, help="Decides everything.")] = _DEFAULT.seed,
    lessons: Annotated[
        float, typer.Option(min=0, max=1, help="Share of conversations with life-helper.")
    ] = _DEFAULT.lessons,
    openings: Annotated[
        float, typer.Option(min=0, max=1, help="Share that ends at the first calls.")
    ] = _DEFAULT.openings,
    korean_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of Korean conversations.")
    ] = _DEFAULT.korean_share,
    dev: Annotated[
        int, typer.Option(min=0, help="Conversations for measuring, of domains of their own.")
    ] = _DEFAULT.dev,
    out: Annotated[Path, typer.Option(dir_okay=False, help="File to write.")] = Path(
        "runs/head-start/train.jsonl"
    ),
    apart: Annotated[
        list[Path] | None, typer.Option(help="Scenarios to stay away from. Default: all there are.")
    ] = None,
) -> None:
    """Write conversations with many toolsets, for `lhkit tune train`."""
    head_start = HeadStart(
        toolsets=toolsets,
        count=count,
        seed=seed,
        lessons=lessons,
        openings=openings,
        korean_share=korean_share,
        dev=dev,
    )

    async def write(_settings: Settings) -> int:
        return await make(head_start, out, apart=tuple(apart or SCENARIOS))

    finish(asyncio.run, write)  # noqa: TID251 - a script's own loop


if __name__ == "__main__":
    typer.run(main)
