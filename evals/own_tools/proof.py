"""From phrases to a scored table: `lhkit tune run --eval`, and its figures beside the page.

    python -m evals.own_tools.proof pantry [--minutes 60] [--into runs/own-tools]
    python -m evals.own_tools.proof pantry --sentences 300 --minutes 15   # what fewer words bring
    python -m evals.own_tools.proof pantry --steps 600 --device cuda      # on a graphics card

Where it was stopped it goes on; what was played is not played again. `NAME.json` holds a row for
each training: with how many sentences, at which rank, from what, and its scores on the way.
"""

import asyncio
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any

import typer

from lhkit.cli import finish
from lhkit.commands.options import MOST
from lhkit.commands.tune import tune_own
from lhkit.commands.tune_options import (
    DecisiveWeight,
    MadeUpNames,
    Minutes,
    Openings,
    Rank,
    RunOptions,
    Start,
    TrainOn,
)
from lhkit.errors import TuningError
from lhkit.files import write_whole
from lhkit.harness.report.picture import BLUE, RED
from lhkit.harness.scenario import read_yaml
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.models.weights import ADAPTER_WEIGHTS, file_sha256
from lhkit.settings import Settings
from lhkit.tuning.adapter import MANIFEST
from lhkit.tuning.recipe import FROM_NOTHING, AdapterShape, TrainingDevice
from lhkit.tuning.scores import Score, share_words, shown_scores
from lhkit.tuning.train import ADAPTER

FOLDER = Path(__file__).parent
EVALS = FOLDER.parent
_DIGITS = 8
_TITLE_CHARS = 60
_MINUTES = 60
_TALKS = ("small_talk", "out_of_scope", "near_misses")


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """Tools, the phrases that teach them, and the scenarios that score it."""

    name: str
    toolset: str
    scenarios: Path
    count: int = 9_000
    seed: int = 1
    folder: Path = FOLDER

    @property
    def phrases(self) -> Path:
        """What people say."""
        return self.folder / f"{self.name}.yaml"

    @property
    def figures(self) -> Path:
        """What came of it."""
        return self.folder / f"{self.name}.json"


OWN = {
    "pantry": Own(
        name="pantry",
        toolset=f"{EVALS / 'pantry' / 'pantry.py'}:toolset",
        scenarios=EVALS / "pantry" / "scenarios",
    ),
    "diary": Own(
        name="diary",
        toolset=f"{EVALS / 'diary' / 'diary.py'}:toolset",
        scenarios=EVALS / "diary" / "scenarios.yaml",
    ),
}

SCENARIOS = (*(each.scenarios for each in OWN.values()), EVALS / "plain", *scenario_paths("all"))
"""Nothing that is nearly said there is learnt from, whichever tools it is for."""


def _said(locale: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what holds sentences of a language that stand alone, under `say`."""
    yield from (tool for tool in locale["tools"].values() if tool.get("say"))
    for kind in _TALKS:
        yield from locale.get(kind, ())


def sentences(phrases: Mapping[str, Any]) -> int:
    """Return how many sentences a phrase file holds: each way to say each line."""
    return sum(
        len(each["say"])
        for locale in phrases["locales"].values()
        for each in (
            *_said(locale),
            *(line for talk in locale.get("follow_ups", ()) for line in talk["lines"]),
        )
    )


def thinned(text: str, most: int, seed: int) -> str:
    """Return a phrase file with about `most` of its sentences, drawn evenly from everywhere.

    Of each tool, each talk and the follow-ups one stays at least; words, worlds and replies stay.
    """
    phrases = read_yaml(text).value
    if (share := most / sentences(phrases)) >= 1:
        return text
    rng = random.Random(f"thinned/{seed}")  # noqa: S311 - training data, no secret
    for locale in phrases["locales"].values():
        for each in _said(locale):
            each["say"] = _drawn(each["say"], share, rng)
        if told := locale.get("follow_ups"):
            locale["follow_ups"] = _drawn(told, share, rng)
    return json.dumps(phrases, ensure_ascii=False, indent=1)  # JSON is YAML


def _drawn(values: Sequence[Any], share: float, rng: random.Random) -> list[Any]:
    count = max(1, round(share * len(values)))
    return [values[number] for number in sorted(rng.sample(range(len(values)), count))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training and its scores.

    `phrases` is the hash of the whole phrase file, `start` that of the adapter that it went on
    from, empty: none; eight digits each. `decisive_weight`, `openings` and `made_up_names` as of
    `lhkit tune run`. It was over after so many `minutes`, or, if these are 0, after `steps`. What
    came of it are `scores`, and the `machine` that trained.
    """

    phrases: str
    sentences: int
    rank: int
    minutes: float
    start: str
    machine: Mapping[str, Any] = field(default_factory=dict)
    decisive_weight: float = 1.0
    openings: float = 0.0
    made_up_names: float = 0.0
    steps: int = 0
    device: TrainingDevice = "cpu"
    scores: tuple[Score, ...] = ()

    @property
    def told(self) -> str:
        """What stands before its scores in the table."""
        return f"{self.sentences:,} sentences of {self.phrases}, " + ", ".join(self._how())

    @property
    def spent(self) -> str:
        """After what it was over."""
        return f"{self.steps} steps" if self.steps else f"{self.minutes:g} minutes"

    @property
    def folder(self) -> str:
        """What its folder is called."""
        words = f"{self.phrases}-{self.sentences}-sentences"
        return "-".join([words, *(each.replace(" ", "-") for each in (self.spent, *self._how()))])

    def _how(self) -> Iterator[str]:
        yield f"rank {self.rank}"
        if self.decisive_weight != 1:
            yield f"decisive weight {self.decisive_weight:g}"
        if self.openings:
            yield f"openings {self.openings:g}"
        if self.made_up_names:
            yield f"made-up names {self.made_up_names:g}"
        if self.start:
            yield f"from {self.start}"
        if self.device != "cpu":
            yield "on a card"

    def is_like(self, other: "Training", *, but: str = "") -> bool:
        """Return True if the other is this training again, or differs in the field `but` alone."""
        names = {each.name for each in fields(self)} - {"machine", "scores", but}
        return all(getattr(self, each) == getattr(other, each) for each in names)


def read_trainings(file: Path) -> list[Training]:
    """Return what was kept of a toolset's trainings.

    Raises:
        TuningError: it was written by another version, or is broken.
    """
    if not file.exists():
        return []
    try:
        return [
            Training(**{**each, "scores": tuple(Score(**score) for score in each["scores"])})
            for each in json.loads(file.read_text(encoding="utf-8"))
        ]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TuningError(f"{file} cannot be read ({error}): move it away") from error


def table(trainings: Sequence[Training]) -> str:
    """Return the scores as Markdown."""
    head = (
        "| phrases | minutes | steps | right calls | scenarios passed |",
        "| --- | --: | --: | --- | --- |",
    )
    rows = (
        f"| {training.told if not number else ''} | {score.seconds / 60:.0f} | {score.step} | "
        f"{share_words(score.right_calls, score.counted_calls)} | "
        f"{share_words(score.passed, score.valid)} |"
        for training in trainings
        for number, score in enumerate(training.scores)
    )
    return "\n".join([*head, *rows])


def chart(trainings: Sequence[Training], phrases: str) -> Any:
    """Return the two shares over the minutes of a training, and over the sentences.

    The first is of the longest training of those with most sentences of the file `phrases`, by its
    hash, and of two as long the one that was kept last; the second of trainings that differ in
    nothing else, where there are such.
    """
    import altair as alt

    present = [each for each in trainings if each.phrases == phrases]
    first = max(reversed(present), key=_size)
    title = ["minutes of training:", *wrap(first.told, _TITLE_CHARS)]
    panels = [_panel([(each.seconds / 60, each) for each in first.scores], title)]
    groups = [[each for each in present if each.is_like(one, but="sentences")] for one in present]
    if len(like := max(groups, key=len)) > 1:
        title = [f"sentences in the phrase file, {like[0].spent}"]
        panels.append(_panel([(each.sentences, each.scores[-1]) for each in like], title))
    return alt.hconcat(*panels, background="white")


def _panel(points: Sequence[tuple[float, Score]], title: Sequence[str]) -> Any:
    import altair as alt

    rows = [
        {"x": x, "what": what, "share": 100 * part / whole}
        for x, score in points
        for what, part, whole in (
            ("right calls", score.right_calls, score.counted_calls),
            ("scenarios passed", score.passed, score.valid),
        )
        if whole
    ]
    colours = alt.Scale(domain=["right calls", "scenarios passed"], range=[BLUE, RED])
    base = alt.Chart(alt.Data(values=rows)).encode(  # type: ignore[no-untyped-call]  # altair's own
        x=alt.X("x:Q", title=title, scale=alt.Scale(zero=True)),
        y=alt.Y("share:Q", title="percent", scale=alt.Scale(domain=[0, 100])),
        color=alt.Color("what:N", title=None, scale=colours),
    )
    return base.mark_line(point=True).properties(width=360, height=240)


def _size(training: Training) -> tuple[int, float, int]:
    return training.sentences, training.minutes, training.steps


def keep(figures: Path, training: Training) -> list[Training]:
    """Put a training among the figures of its toolset, draw those of its file, and return all."""
    import vl_convert  # noqa: PLC0415 - heavy

    others = [each for each in read_trainings(figures) if not each.is_like(training)]
    trainings = sorted([*others, training], key=_size, reverse=True)
    text = json.dumps([asdict(each) for each in trainings], indent=2, ensure_ascii=False)
    write_whole(figures, f"{text}\n".encode())
    drawn = vl_convert.vegalite_to_svg(chart(trainings, training.phrases).to_json())
    write_whole(figures.with_suffix(".svg"), f"{drawn}\n".encode())
    return trainings


async def prove(own: Own, options: RunOptions, most: int | None, settings: Settings) -> int:
    """Train and score, unless that is done; keep and print the figures; return the exit code.

    `options.into` is the folder of all trainings, `options.phrases` the whole file, of which about
    `most` sentences are used, or all.
    """
    read_trainings(own.figures)  # before an hour is spent
    text = options.phrases.read_text(encoding="utf-8")
    few = text if most is None else thinned(text, most, own.seed)
    training = Training(
        phrases=_hash(options.phrases),
        sentences=sentences(read_yaml(few).value),
        rank=options.recipe.adapter.rank,
        minutes=options.recipe.minutes or 0,
        steps=0 if options.recipe.minutes else options.recipe.steps,
        device=options.recipe.device,
        start="" if options.start is None else _hash(options.start / ADAPTER_WEIGHTS),
        decisive_weight=options.recipe.decisive_weight,
        openings=options.openings,
        made_up_names=options.made_up_names,
    )
    folder = options.into / own.name / training.folder
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(phrases := folder / "phrases.yaml", few.encode())
    await tune_own(replace(options, phrases=phrases, into=folder), settings)
    made = replace(
        training,
        machine=_machine(folder / "training" / ADAPTER),
        scores=shown_scores(folder / "training"),
    )
    print(table(keep(own.figures, made)))
    return 0


def _machine(adapter: Path) -> Mapping[str, Any]:
    """Return what an adapter was trained on, which need not be what scores it."""
    told: Mapping[str, Any] = json.loads((adapter / MANIFEST).read_text(encoding="utf-8"))
    return told["machine"]  # type: ignore[no-any-return]  # JSON


def _hash(file: Path) -> str:
    return file_sha256(file)[:_DIGITS]


def main(
    name: Annotated[str, typer.Argument(help="pantry or diary.")],
    *,
    minutes: Minutes = None,
    keep_every: Annotated[float, typer.Option(help="Minutes between two scores.")] = 15,
    most: Annotated[
        int | None,
        typer.Option(
            "--sentences", min=1, help="Use about so many of the sentences. Default: all."
        ),
    ] = None,
    rank: Rank = FROM_NOTHING.adapter.rank,
    decisive_weight: DecisiveWeight = FROM_NOTHING.decisive_weight,
    openings: Openings = 0,
    made_up_names: MadeUpNames = 0,
    steps: Annotated[
        int | None,
        typer.Option(min=1, max=MOST, help="Steps of training, instead of --minutes."),
    ] = None,
    device: TrainOn = "cpu",
    into: Annotated[
        Path, typer.Option(file_okay=False, help="Folder of data, training, models and runs.")
    ] = Path("runs/own-tools"),
    start: Start = None,
) -> None:
    """From phrases to a scored table, in an hour of training unless it is told otherwise.

    The same command again goes on where it was stopped.
    """
    if name not in OWN:
        raise typer.BadParameter(f"no such toolset {name!r}: choose {' or '.join(OWN)}")
    if steps is not None and minutes is not None:
        raise typer.BadParameter("--steps and --minutes: give one of them")
    own = OWN[name]
    options = RunOptions(
        toolset=own.toolset,
        phrases=own.phrases,
        into=into,
        tuning=replace(
            FROM_NOTHING,
            steps=steps or MOST,
            minutes=minutes if minutes or steps else _MINUTES,
            device=device,
            decisive_weight=decisive_weight,
            adapter=AdapterShape(rank=rank, alpha=2 * rank),
        ),
        count=own.count,
        openings=openings,
        made_up_names=made_up_names,
        seed=own.seed,
        start=start,
        apart=SCENARIOS,
        scored_on=(own.scenarios,),
        keep_every_minutes=keep_every,
    )
    finish(asyncio.run, lambda settings: prove(own, options, most, settings))  # noqa: TID251 - a script


if __name__ == "__main__":
    typer.run(main)
