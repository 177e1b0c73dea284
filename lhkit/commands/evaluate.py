"""`lhkit eval`: scenarios against a model, a table, and an exit code for CI."""

import asyncio
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from lhkit import app
from lhkit.commands.environments import label_of, load_environment, registry_of, require_paths
from lhkit.commands.provenance import provenance
from lhkit.commands.sources import SCRIPTED, concurrency_for, opened_source
from lhkit.commands.thresholds import Thresholds, judged, require_percent, resumed
from lhkit.errors import UsageError
from lhkit.harness.records.journal import RECORDS, read_records
from lhkit.harness.records.record import Verdict
from lhkit.harness.replay.environment import Environment
from lhkit.harness.replay.plan import ModelSource, plan_run, require_playable
from lhkit.harness.replay.runner import replay
from lhkit.harness.replay.stress import parse_stress, stressed
from lhkit.harness.report.table import WIDTH, render
from lhkit.harness.results.run import Run
from lhkit.harness.scenarios.scenario import load_scenarios
from lhkit.harness.scenarios.script import Scenario
from lhkit.locales import Catalog, load_catalog
from lhkit.models.served import require_constraint
from lhkit.settings import Settings
from lhkit.tools.definition import ToolDefinition
from lhkit.vocab.printable import printable

_SHOWN_FAILURES = 10
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """What the user asked for on the command line.

    Without `split` and `paths` the split `dev` is played. Without `concurrency` it is chosen for
    the server. `begun_s` is when all began, on the clock of `time.perf_counter`.
    """

    paths: tuple[Path, ...] = ()
    split: str | None = None
    environment: str | None = None
    model: str | None = None
    base_url: str | None = None
    dialect: str = "json"
    constrain: str = "off"
    stress: str = ""
    repeats: int = 1
    concurrency: int | None = None
    limit: int | None = None
    max_tokens: int = 128
    name: str | None = None
    runs_dir: Path = Path("runs")
    fail_under: float | None = None
    max_violations: int | None = None
    baseline: Path | None = None
    keep_prompts: bool = False
    command: tuple[str, ...] = ()
    begun_s: float | None = None


async def evaluate(options: EvalOptions, settings: Settings) -> int:
    """Replay, show the table, return the exit code.

    Raises:
        LhkitError: scenarios, run folder, set-up or server are not as they must be.
    """
    begun_s = time.perf_counter() if options.begun_s is None else options.begun_s
    paths = _paths(options)
    plain = load_environment(options.environment, max_tokens=options.max_tokens)
    scenarios = load_scenarios(paths)[: options.limit]
    require_playable(
        len(scenarios),
        repeats=options.repeats,
        concurrency=options.concurrency or 1,
        max_tokens=options.max_tokens,
    )
    run_dir = _run_dir(options)
    thresholds = _thresholds(options)
    catalog = load_catalog(settings.locale)
    stress = parse_stress(options.stress)
    tools = _constrained_tools(options, plain, scenarios)
    choice = replace(_choice(options, settings), tools=tools)
    if choice.base_url is not None or choice.name not in SCRIPTED:
        app.require_choice(choice)

    def is_answered(source: ModelSource) -> bool:
        plan = plan_run(scenarios, *stressed(source, plain, stress), repeats=options.repeats)
        return plan.is_answered_by(read_records(run_dir))

    async with opened_source(choice, settings, is_answered) as opened:
        model, environment = stressed(opened.source, plain, stress)
        told = await provenance(settings, options.command)
        setup_s = time.perf_counter() - begun_s - opened.server_s
        with _resumable(run_dir, catalog):
            run = await replay(
                scenarios,
                model,
                environment=environment,
                run_dir=run_dir,
                repeats=options.repeats,
                concurrency=options.concurrency or concurrency_for(opened.source),
                keep_prompts=options.keep_prompts,
                report=lambda found: _print_lines(resumed(found, catalog)),
                provenance=replace(told, setup_s=setup_s, server_s=opened.server_s),
            )
    words = {} if options.environment else ac_words((each.ac for each in scenarios), catalog)
    return _report(run, run_dir, words, thresholds, catalog)


def _paths(options: EvalOptions) -> tuple[Path, ...]:
    """Return where the scenarios are.

    Raises:
        UsageError: no such split, a split beside paths, or tools of one's own without paths.
    """
    shipped = app.scenario_paths(options.split or "dev")
    if options.split is not None and (options.paths or options.environment):
        what = "PATHS" if options.paths else "--environment"
        raise UsageError(
            f"--split {options.split} takes shipped scenarios, not those of {what}: leave one out"
        )
    require_paths(options.environment, options.paths)
    return options.paths or shipped


def _constrained_tools(
    options: EvalOptions, environment: Environment, scenarios: Sequence[Scenario]
) -> tuple[ToolDefinition, ...]:
    """Return the tools that decoding is constrained to, as the first scenario has them.

    Raises:
        UsageError: in a language of the scenarios the tools cannot have this constraint: better
            said before a server is started for it.
    """
    constraint = app.constraint_of(options.constrain)
    opened: dict[str, Scenario] = {}  # the first of each language
    for each in scenarios if constraint != "off" else ():
        opened.setdefault(each.locale, each)
    tools = [
        registry_of(environment, each.world, each.locale).definitions for each in opened.values()
    ]
    for spoken in tools or [()]:
        require_constraint(options.dialect, constraint, spoken)
    return tools[0] if tools else ()


@contextmanager
def _resumable(run_dir: Path, catalog: Catalog) -> Iterator[None]:
    """Say to somebody who interrupts that nothing is lost."""
    try:
        yield
    except asyncio.CancelledError:
        _print_lines([catalog.text("eval.interrupted", path=run_dir)])
        raise


def _thresholds(options: EvalOptions) -> Thresholds:
    """Return what is asked of the run; a baseline is read before hours are spent on a run.

    Raises:
        UsageError: the floor is a share, not percent, or the baseline is no run or says nothing.
    """
    baseline = None
    require_percent(options.fail_under, "--fail-under")
    if options.baseline is not None:
        named = options.runs_dir / options.baseline
        baseline = Run.load(named if (named / RECORDS).exists() else options.baseline)
        if all(record.verdict is Verdict.INVALID for record in baseline.records):
            count = len(baseline.records)
            raise UsageError(
                f"--baseline {options.baseline}: none of its {count} samples is valid, so nothing "
                "can be compared with it: give its own eval command again first"
            )
    return Thresholds(
        fail_under=options.fail_under, max_violations=options.max_violations, baseline=baseline
    )


def _choice(options: EvalOptions, settings: Settings) -> app.ModelChoice:
    is_script = options.base_url is None and options.model in SCRIPTED
    return app.ModelChoice(
        name=options.model,
        base_url=options.base_url or (None if is_script else settings.base_url),
        api_key=settings.api_key,
        dialect=options.dialect,
        constraint=app.constraint_of(options.constrain),
    )


def _run_dir(options: EvalOptions) -> Path:
    folder = options.runs_dir / _run_name(options)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, no folder of a run: give another --name")
    return folder


def _run_name(options: EvalOptions) -> str:
    """Return the given name, or one that the same options always give: so a run resumes."""
    if options.name is None:
        model = options.model or (app.EMBEDDED if options.base_url is None else "served")
        words = [model, options.dialect]
        words += [label_of(options.environment)] if options.environment else []
        words += [options.constrain] if options.constrain != "off" else []
        words += [parse_stress(options.stress).label] if options.stress else []
        words += [options.split] if options.split not in {None, "dev"} else []
        return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words)).lstrip("-.")
    if not _RUN_NAME.fullmatch(options.name):
        raise UsageError(
            f"--name {options.name!r} cannot name a folder: use letters, digits, '.', '_', '-'"
        )
    return options.name


def _report(
    run: Run,
    run_dir: Path,
    words: Mapping[str, str],
    thresholds: Thresholds,
    catalog: Catalog,
) -> int:
    console = wide_console()
    console.print(render(run.summary(), catalog, words))
    _show_failures(run, run_dir, console, catalog)
    played = len(run.records) - run.kept
    records = catalog.text("eval.records", path=run_dir, played=played, kept=run.kept)
    console.print(Text(printable(records)), soft_wrap=True)
    found = judged(run, thresholds, catalog)
    _print_lines([*found.remarks, *found.missed])
    return found.exit_code


def ac_words(names: Iterable[str], catalog: Catalog) -> dict[str, str]:
    """Return a few words for each acceptance criterion; none for those that are not ours."""
    return {name: catalog.texts.get(f"ac.{name}", "") for name in names}


def wide_console() -> Console:
    """Return a console that does not cut the table where nobody sees the width."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def _show_failures(run: Run, run_dir: Path, console: Console, catalog: Catalog) -> None:
    failed = [record for record in run.records if record.verdict is not Verdict.PASS]
    if not failed:
        return
    console.print(Text(catalog.text("eval.failed"), style="bold"))
    for record in failed[:_SHOWN_FAILURES]:
        reason = record.reasons[0] if record.reasons else ""
        line = f"  {record.sample_id} · {record.verdict} · {reason}"
        console.print(Text(printable(line)), no_wrap=True, overflow="ellipsis")
    if len(failed) > _SHOWN_FAILURES:
        more = catalog.text("eval.more", count=len(failed) - _SHOWN_FAILURES, path=run_dir)
        console.print(Text(printable(f"  {more}")), soft_wrap=True)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        wide_console().print(Text(printable(line)), soft_wrap=True)
