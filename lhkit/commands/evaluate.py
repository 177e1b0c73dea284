"""`lhkit eval`: scenarios against a model, a table, and an exit code for CI."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from lhkit import app
from lhkit.commands.progress import opened_model
from lhkit.errors import UsageError
from lhkit.harness.gold import gold_model, silent_model
from lhkit.harness.manifest import Provenance
from lhkit.harness.metrics import Summary
from lhkit.harness.plan import ModelSource
from lhkit.harness.record import Verdict
from lhkit.harness.run import Run
from lhkit.harness.runner import replay
from lhkit.harness.scenario import load_scenarios
from lhkit.harness.script import Scenario
from lhkit.harness.table import WIDTH, render
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import Settings, hardware
from lhkit.vocab.generation import Sampling
from lhkit.vocab.printable import printable

EXIT_MISSED = 1
EXIT_INVALID = 3

_SHOWN_FAILURES = 10
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """What the user asked for on the command line."""

    paths: tuple[Path, ...] = ()
    model: str | None = None
    base_url: str | None = None
    dialect: str = "json"
    constrain: str = "off"
    repeats: int = 1
    concurrency: int = 8
    limit: int | None = None
    max_tokens: int = 128
    name: str | None = None
    runs_dir: Path = Path("runs")
    fail_under: float | None = None
    keep_prompts: bool = False


async def evaluate(options: EvalOptions, settings: Settings) -> int:
    """Replay, show the table, return the exit code.

    Raises:
        LhkitError: scenarios, run folder, set-up or server are not as they must be.
    """
    scenarios = load_scenarios(options.paths or (app.scenario_folder(),))[: options.limit]
    run_dir = options.runs_dir / _run_name(options)
    async with _model_source(options, settings) as model:
        run = await replay(
            scenarios,
            model,
            environment=app.LifeHelperEnvironment(sampling=_sampling(options)),
            run_dir=run_dir,
            repeats=options.repeats,
            concurrency=options.concurrency,
            keep_prompts=options.keep_prompts,
            provenance=Provenance(
                started_at=settings.now(), git_commit=await _git_commit(), hardware=hardware()
            ),
        )
    return _report(run, run_dir, scenarios, options, load_catalog(settings.locale))


@asynccontextmanager
async def _model_source(options: EvalOptions, settings: Settings) -> AsyncIterator[ModelSource]:
    base_url = options.base_url or settings.base_url
    constraint = app.constraint_of(options.constrain)
    if options.base_url is None and options.model == "gold":
        yield gold_model
    elif options.base_url is None and options.model == "silent":
        yield silent_model()
    else:
        choice = app.ModelChoice(
            name=options.model,
            base_url=base_url,
            api_key=settings.api_key,
            dialect=options.dialect,
            constraint=constraint,
        )
        async with opened_model(choice, settings) as model:
            yield model


def _sampling(options: EvalOptions) -> Sampling:
    return Sampling(max_tokens=options.max_tokens)


def _run_name(options: EvalOptions) -> str:
    """Return the given name, or one that the same options always give: so a run resumes."""
    if options.name is None:
        model = options.model or (app.EMBEDDED if options.base_url is None else "served")
        words = [model, options.dialect]
        words += [options.constrain] if options.constrain != "off" else []
        return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words)).lstrip("-.")
    if not _RUN_NAME.fullmatch(options.name):
        raise UsageError(
            f"--name {options.name!r} cannot name a folder: use letters, digits, '.', '_', '-'"
        )
    return options.name


async def _git_commit() -> str | None:
    """Return the commit of the folder we are in, None outside a repository or without git."""
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "rev-parse", "HEAD"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    output, _ = await process.communicate()
    return output.decode().strip() or None


def _report(
    run: Run, run_dir: Path, scenarios: tuple[Scenario, ...], options: EvalOptions, catalog: Catalog
) -> int:
    console = _console()
    summary = run.summary()
    words = {scenario.ac: catalog.text(f"ac.{scenario.ac}") for scenario in scenarios}
    console.print(render(summary, catalog, words))
    _show_failures(run, run_dir, console, catalog)
    played = len(run.records) - run.kept
    console.print(
        Text(catalog.text("eval.records", path=run_dir, played=played, kept=run.kept)),
        soft_wrap=True,
    )
    return _exit_code(summary, options.fail_under, console, catalog)


def _console() -> Console:
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
        line = f"  {record.sample_id.scenario} · {record.verdict} · {reason}"
        console.print(Text(printable(line)), no_wrap=True, overflow="ellipsis")
    if len(failed) > _SHOWN_FAILURES:
        more = catalog.text("eval.more", count=len(failed) - _SHOWN_FAILURES, path=run_dir)
        console.print(Text(f"  {more}"), soft_wrap=True)


def _exit_code(
    summary: Summary, fail_under: float | None, console: Console, catalog: Catalog
) -> int:
    total = summary.total
    code = 0
    if total.invalid:
        console.print(Text(catalog.text("eval.invalid", count=total.invalid)), soft_wrap=True)
        code = EXIT_INVALID
    rate = 100 * (total.pass_rate or 0.0)
    if fail_under is not None and rate < fail_under:
        console.print(catalog.text("eval.below", rate=rate, least=fail_under))
        code = EXIT_MISSED
    escaped = sum(total.escaped.values())
    if escaped:
        console.print(catalog.text("eval.escaped", count=escaped))
        code = EXIT_MISSED
    return code
