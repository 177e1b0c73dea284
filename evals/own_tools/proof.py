"""From phrases to a scored table: data, training, merging, and the scenarios before and after.

    python -m evals.own_tools.proof pantry [--minutes 60] [--into runs/own-tools]

What is called is what anybody calls for tools of their own: `lhkit tune run` with `--apart` and
`--keep-every`, then `lhkit eval` of the bare model, of what was kept on the way and of the last.
Where it was stopped it goes on; what was played is not played again.
"""

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from lhkit.cli import finish
from lhkit.commands.evaluate import evaluate
from lhkit.commands.options import EvalOptions
from lhkit.commands.tune import is_merged, merge_adapter, tune_own
from lhkit.commands.tune_options import RunOptions
from lhkit.errors import RunError, SetupError
from lhkit.files import write_whole
from lhkit.harness.metrics import Tally
from lhkit.harness.results import Run
from lhkit.harness.scenario import load_scenarios
from lhkit.harness.shares import wilson
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.settings import Settings, hardware
from lhkit.tuning.recipe import FROM_NOTHING
from lhkit.tuning.train import KEPT

FOLDER = Path(__file__).parent
EVALS = FOLDER.parent
BARE, TUNED = "bare", "tuned"
_MOST_STEPS = 1_000_000
_SERVED = re.compile(r" is (?:already )?served(?: in \w+)? at (\S+)")
"""What `lhkit serve` says; already: where an earlier call was killed and left its server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """Tools, the phrases that teach them, and the scenarios that score it."""

    name: str
    toolset: str
    scenarios: Path
    count: int = 3_000
    seed: int = 1

    @property
    def phrases(self) -> Path:
        """What people say."""
        return FOLDER / f"{self.name}.yaml"

    @property
    def figures(self) -> Path:
        """What came of it."""
        return FOLDER / f"{self.name}.json"


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

SCENARIOS = (*(each.scenarios for each in OWN.values()), *scenario_paths("all"))
"""Nothing that is nearly said there is learnt from, whichever tools it is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a model makes of the scenarios, after so many minutes and steps of training."""

    arm: str
    minutes: float
    steps: int
    right_calls: int
    counted_calls: int
    passed: int
    valid: int

    @classmethod
    def of(cls, arm: str, told: Mapping[str, Any], total: Tally) -> "Score":
        """Return the score of a run; `told` is the manifest of the adapter that played."""
        return cls(
            arm=arm,
            minutes=round(told.get("seconds", 0.0) / 60, 1),
            steps=told.get("steps_done", 0),
            right_calls=total.right_calls,
            counted_calls=total.counted_calls,
            passed=total.passed,
            valid=total.valid,
        )


def row(score: Score) -> str:
    """Return a score as a row of the table."""
    return (
        f"| {score.arm} | {score.minutes:g} | {score.steps} | "
        f"{share(score.right_calls, score.counted_calls)} | {share(score.passed, score.valid)} |"
    )


def share(part: int, whole: int) -> str:
    """Return so many of so many, with the share and its 95 % interval [Wilson]."""
    if not whole:
        return "–"
    interval = wilson(part, whole)
    ends = f"{100 * interval.low:.0f}–{100 * interval.high:.0f}"
    return f"{part} of {whole}, {100 * part / whole:.0f} % [{ends}]"


def table(scores: Sequence[Score]) -> str:
    """Return the scores as Markdown."""
    head = (
        "| model | minutes | steps | right calls | scenarios passed |",
        "| --- | --: | --: | --- | --- |",
    )
    return "\n".join([*head, *map(row, scores)])


def chart(scores: Sequence[Score]) -> Any:
    """Return the two shares over the minutes of training."""
    import altair as alt

    rows = [
        {"minutes": each.minutes, "what": what, "share": 100 * part / whole if whole else None}
        for each in scores
        for what, part, whole in (
            ("right calls", each.right_calls, each.counted_calls),
            ("scenarios passed", each.passed, each.valid),
        )
    ]
    base = alt.Chart(alt.Data(values=rows)).encode(  # type: ignore[no-untyped-call]  # altair's own
        x=alt.X("minutes:Q", title="minutes of training"),
        y=alt.Y("share:Q", title="percent", scale=alt.Scale(domain=[0, 100])),
        color=alt.Color("what:N", title=None),
    )
    marks = base.mark_line(point=True)
    return marks.properties(width=480, height=260, background="white")


def draw(scores: Sequence[Score], file: Path) -> None:
    """Write the chart as SVG."""
    import vl_convert  # noqa: PLC0415 - heavy

    write_whole(file, f"{vl_convert.vegalite_to_svg(chart(scores).to_json())}\n".encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A model to score. `adapter` None is the bare one, which lhkit serves by itself."""

    name: str
    adapter: Path | None = None

    def told(self) -> Mapping[str, Any]:
        """Return the manifest of its training; nothing for the bare model."""
        if self.adapter is None:
            return {}
        told: Mapping[str, Any] = json.loads((self.adapter / "manifest.json").read_bytes())
        return told


def arms(training: Path) -> list[Arm]:
    """Return the bare model, the adapters that were kept on the way, and the last one."""
    last = Arm(name=TUNED, adapter=training / "adapter")
    kept = [Arm(name=each.name, adapter=each) for each in sorted((training / KEPT).glob("step-*"))]
    done = last.told()["steps_done"]
    return [Arm(name=BARE), *(each for each in kept if each.told()["steps_done"] < done), last]


@asynccontextmanager
async def served(model: Path) -> AsyncIterator[str]:
    """Yield where a merged model is served; a server that this starts ends with the block.

    Raises:
        SetupError: it does not start.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lhkit", "serve", "--weights", str(model)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield await _address(process, model)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.wait()


def address_in(line: str) -> str | None:
    """Return the address that a line of `lhkit serve` tells."""
    found = _SERVED.search(line)
    return found and found.group(1).rstrip(".")


async def _address(process: asyncio.subprocess.Process, model: Path) -> str:
    if process.stdout is not None:
        async for line in process.stdout:
            if address := address_in(line.decode(errors="replace")):
                return address
    raise SetupError(f"{model} could not be served: try `lhkit serve --weights {model}`")


def is_played(folder: Path, count: int) -> bool:
    """Return True if so many scenarios were played and judged there."""
    try:
        return sum(1 for _ in Run.load(folder).records) >= count
    except RunError:
        return False


async def played(own: Own, arm: Arm, into: Path, count: int, settings: Settings) -> Score:
    """Play the scenarios with an arm, unless they were, and return its score."""
    runs = into / "runs"
    if not is_played(runs / arm.name, count):
        options = EvalOptions(
            paths=(own.scenarios,),
            toolset=own.toolset,
            name=arm.name,
            runs_dir=runs,
            exit_zero=True,
        )
        if arm.adapter is None:
            await evaluate(replace(options, model="gemma-base"), settings)
        else:
            is_last = arm.name == TUNED  # `tune run` has merged it
            model = into / ("model" if is_last else f"models/{own.name}-{arm.name}")
            if not await asyncio.to_thread(is_merged, arm.adapter, model):
                await merge_adapter(arm.adapter, model, None, settings)
            async with served(model) as address:
                await evaluate(replace(options, base_urls=(address,)), settings)
    return Score.of(arm.name, arm.told(), Run.load(runs / arm.name).summary().total)


async def score(own: Own, training: Path, into: Path, settings: Settings) -> list[Score]:
    """Play all arms of a training, and write the figures and the picture."""
    count = len(load_scenarios([own.scenarios]))
    scores: list[Score] = []
    for arm in arms(training):
        print(f"{own.name}: {arm.name}", flush=True)
        scores.append(await played(own, arm, into, count, settings))
        print(row(scores[-1]), flush=True)
    told = {"machine": hardware(), "scores": [asdict(each) for each in scores]}
    text = json.dumps(told, indent=2, ensure_ascii=False)
    write_whole(own.figures, f"{text}\n".encode())
    draw(scores, own.figures.with_suffix(".svg"))
    return scores


async def prove(own: Own, options: RunOptions, settings: Settings) -> int:
    """Train, unless that is done, and score; return the exit code."""
    await tune_own(options, settings)
    print(table(await score(own, options.into / "training", options.into, settings)))
    return 0


def main(
    name: Annotated[str, typer.Argument(help="pantry or diary.")],
    minutes: Annotated[float, typer.Option(help="Minutes of training.")] = 60,
    keep_every: Annotated[float, typer.Option(help="Minutes between two scores.")] = 15,
    into: Annotated[
        Path, typer.Option(file_okay=False, help="Folder of data, training, models and runs.")
    ] = Path("runs/own-tools"),
    start: Annotated[
        Path | None, typer.Option("--from", file_okay=False, help="Adapter to go on from.")
    ] = None,
) -> None:
    """From phrases to a scored table. The same command again goes on where it was stopped."""
    if name not in OWN:
        raise typer.BadParameter(f"no such toolset {name!r}: choose {' or '.join(OWN)}")
    own = OWN[name]
    options = RunOptions(
        toolset=own.toolset,
        phrases=own.phrases,
        into=into / name,
        tuning=replace(FROM_NOTHING, steps=_MOST_STEPS, minutes=minutes),
        count=own.count,
        seed=own.seed,
        start=start,
        apart=SCENARIOS,
        keep_every_minutes=keep_every,
    )
    finish(asyncio.run, lambda settings: prove(own, options, settings))  # noqa: TID251 - a script


if __name__ == "__main__":
    typer.run(main)
