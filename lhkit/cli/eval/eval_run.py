"""Run scenarios for `lhkit eval` and print the result."""

import asyncio
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import yarl
from rich.console import Console
from rich.text import Text

from lhkit import app
from lhkit.base.errors import UsageError
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.process import process_age_s
from lhkit.base.redaction import without_secrets
from lhkit.base.text import printable
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.evaluation import Evaluation, OpenedModel, prepare_evaluation, read_provenance
from lhkit.cli.eval.replicas import (
    SHARING_LIMITS,
    SharingLimits,
    open_replicas,
    share_server,
)
from lhkit.cli.frame.console import is_interactive, print_lines, wide_console
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.project import language_lines, shipped_lines
from lhkit.cli.frame.score_limits import parse_limits, require_known
from lhkit.cli.frame.thresholds import (
    ThresholdResult,
    check_thresholds,
    load_baseline,
    powerless_line,
)
from lhkit.cli.report import ReportFiles, require_page_packages, write_reports
from lhkit.harness.records.resume import Resumption
from lhkit.harness.records.store import read_manifest, require_run_name
from lhkit.harness.report.terminal import run_view
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.harness.running.prepared import choose_scenarios
from lhkit.harness.running.run_options import RunOptions
from lhkit.harness.running.scores import load_scores
from lhkit.harness.running.stress import parse_stress
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.views.tables import change_text, shortened_list
from lhkit.lifehelper.shipped import scenario_paths, scenarios_at
from lhkit.models.address import require_address
from lhkit.models.families import default_dialect
from lhkit.settings import Settings
from lhkit.toolset import DEFAULT, label_of, load

if TYPE_CHECKING:  # it needs NumPy
    from lhkit.harness.running.stopping import StopRule

PART = "part"
"""Ends the derived name of a run of selected scenarios, so that it replaces no whole one."""

_MAX_FAILURES = 10


async def run_eval(
    options: EvalOptions,
    settings: Settings,
    *,
    start_s: float | None,
    sharing: SharingLimits = SHARING_LIMITS,
) -> int:
    """Run the scenarios, print the table and return the exit code; see `evaluate`.

    `sharing` says from where on two processes run the samples.
    """
    if start_s is None:
        start_s = time.perf_counter() - process_age_s()
    run_options, placement = options.run_options(), options.placement()
    paths, toolset = _scenario_paths(options), load(options.toolset)
    scenarios, catalog = load_scenarios(paths), load_catalog(settings.locale)
    app.require_toolset(scenarios, options.toolset)
    folder, baseline = _run_folder(options, settings), _baseline(options)
    scores = {score.name for score in load_scores(run_options.scores, toolset)}
    require_known(parse_limits(options.min_score, options.max_score), scores)
    left_out = [name for name in read_manifest(folder).scores if name not in scores]
    files = ReportFiles(html=options.html, markdown=options.markdown, junit=options.junit)
    _require_packages(options)
    evaluation = prepare_evaluation(
        run_options,
        choose_scenarios(scenarios, run_options),
        toolset,
        folder=folder,
        settings=settings,
        placement=placement,
    )
    if options.split is None:
        print_lines(shipped_lines(options.paths, options.toolset, catalog))
    if not options.paths and not options.locale:
        chosen = evaluation.prepared.chosen.scenarios
        print_lines(language_lines([scenario.locale for scenario in chosen], catalog))
    print_lines(_ignored_lines(evaluation, catalog))
    if baseline is not None:
        planned = {scenario.id for scenario in evaluation.prepared.chosen.scenarios}
        line = powerless_line(options, baseline, planned, catalog)
        print_lines(filter(None, [line]), Console(stderr=True))
    replicas = None if placement is None else open_replicas(evaluation, placement, catalog)
    async with (
        evaluation.open(replicas) as model,
        share_server(evaluation, model, options, catalog, sharing) as opened,
    ):
        file, stop = str(options.approvals or ""), _stop_rule(options, baseline)
        run = await _run(evaluation, opened, start_s, catalog, file, stop)
    result = check_thresholds(run, options, catalog, baseline=baseline)
    console = wide_console()
    console.print(run_view(run, catalog, details=options.details), soft_wrap=True)
    _print_failures(run, folder, console, catalog)
    counts = {"completed": len(run.records) - run.kept, "kept": run.kept}
    print_lines([catalog.text("eval.records", path=folder, **counts)])
    print_lines(_stopped_lines(run, catalog))
    if not options.details:
        print_lines([catalog.text("eval.more_figures", path=folder)])
    print_lines([*opened.warnings(catalog), *result.remarks])
    if left_out:
        print_lines([catalog.text("scores.left_out", names=", ".join(left_out))])
    code = _print_decision(run, options, result, catalog)
    comparison = None
    if baseline is not None:
        seed = options.order_seed
        comparison = compare(baseline, run, margin=options.margin, order_seed=seed)
    written = write_reports(
        run,
        files,
        catalog,
        name=run.name or folder.name,
        comparison=comparison,
        result=result,
        exit_code=int(code),
    )
    print_lines(written)
    return code


def _stopped_lines(run: Run, catalog: Catalog) -> Iterator[str]:
    """Yield that the run stopped when it was decided, and how to run the rest."""
    selection = run.manifest.selection
    if selection is not None and (stopped := selection.stopped) is not None:
        counts = {"taken": selection.taken, "planned": stopped.planned}
        yield catalog.text("eval.stopped", **counts, name=stopped.baseline)


def _ignored_lines(evaluation: Evaluation, catalog: Catalog) -> Iterator[str]:
    """Yield which options have no effect on a scripted model."""
    options = evaluation.prepared.options
    names = {"constraint": "constrain"}
    changed = [
        f"--{names.get(name, name).replace('_', '-')}"
        for name in ("dialect", "chat_template", "constraint", "dtype", "runtime")
        if getattr(options, name) != RunOptions.model_fields[name].default
    ]
    if evaluation.is_scripted and changed:
        yield catalog.text("eval.scripted", model=options.model, options=", ".join(changed))


def _print_decision(
    run: Run, options: EvalOptions, result: ThresholdResult, catalog: Catalog
) -> ExitCode:
    """Print the reasons for the exit code, and return it."""
    if not options.exit_zero:
        print_lines(result.findings)
        return result.exit_code
    total = run.summary().total
    counts = {"passed": total.passed, "valid": total.valid}
    if result.exit_code in {ExitCode.FAILED, ExitCode.CANNOT_TELL}:
        code, why = int(result.exit_code), " ".join(result.findings)
        print_lines([catalog.text("eval.would_stop", **counts, code=code, why=why)])
        return ExitCode.OK
    if result.exit_code == ExitCode.OK:
        print_lines([catalog.text("eval.would_pass", **counts)])
    return result.exit_code


async def _run(
    evaluation: Evaluation,
    opened: OpenedModel,
    start_s: float,
    catalog: Catalog,
    file: str,
    stop: "StopRule | None",
) -> Run:
    """Run the missing samples; on Ctrl-C, print how to resume.

    `file` is that of the policy of approvals, empty without one.
    """
    provenance = replace(
        await read_provenance(evaluation.settings),
        command=("lhkit", *map(without_secrets, sys.argv[1:])),
        setup_s=time.perf_counter() - start_s - opened.server_s,
        server_s=opened.server_s,
    )
    print_lines(evaluation.concurrency_lines(opened, catalog), Console(stderr=True))
    print_lines(evaluation.policy_lines(opened, catalog, file), Console(stderr=True))
    try:
        return await evaluation.run(
            opened,
            provenance,
            stop=stop,
            on_resume=lambda resumption: print_lines(_resumption_lines(resumption, catalog)),
        )
    except asyncio.CancelledError:
        print_lines([catalog.text("eval.interrupted", path=evaluation.folder)])
        raise


def _scenario_paths(options: EvalOptions) -> tuple[Path, ...]:
    shipped = scenario_paths(options.split or "dev")
    has_own_tools = options.toolset != DEFAULT
    if options.split is not None and (options.paths or has_own_tools):
        other = "PATHS" if options.paths else "--toolset"
        raise UsageError(
            f"--split {options.split} takes shipped scenarios, not those of {other}: leave one out"
        )
    if has_own_tools:
        return scenarios_at(options.paths, options.toolset)
    return options.paths or shipped


def _baseline(options: EvalOptions) -> Run | None:
    """Return the baseline, loaded and checked before hours are spent on the run."""
    baseline = None
    if options.baseline is not None:
        baseline = load_baseline(
            options.baseline, options.runs_dir, is_failed_only=options.failed is not None
        )
    options.require_valid()
    return baseline


def _stop_rule(options: EvalOptions, baseline: Run | None) -> "StopRule | None":
    """Return when the run stops; None if it runs all scenarios."""
    if baseline is None or not options.stop_when_decided:
        return None
    from lhkit.harness.running.stopping import StopRule

    return StopRule(baseline=baseline, margin=options.margin, seed=options.seed)


def _require_packages(options: EvalOptions) -> None:
    """Check before hours are spent on the run that its result can be computed and written.

    Raises:
        MissingPackageError: a package of the extra `eval` is not installed.
    """
    if options.html is not None:
        require_page_packages()
    if options.repeats > 1 or options.variants or options.baseline is not None:
        import_module("lhkit.harness.figures.statistics")


def _run_folder(options: EvalOptions, settings: Settings) -> Path:
    folder = options.runs_dir / run_name(options, settings.base_url)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a run folder: give another --name")
    return folder


def run_name(options: EvalOptions, address: str | None = None) -> str:
    """Return the given name, or one derived from the options, so that the same command resumes.

    Args:
        options: of the command.
        address: of the server, if the options have none.

    Raises:
        UsageError: the given name cannot name a folder.
    """
    if options.name is None:
        base_url = options.base_url or address
        model = options.model or _server_name(base_url) or app.EMBEDDED
        dialect = options.dialect or default_dialect(options.model, is_embedded=not base_url)
        parts = [model, *([dialect] if dialect else [])]
        parts += [label_of(options.toolset)] if options.toolset != DEFAULT else []
        parts += [options.constraint] if options.constraint != "off" else []
        parts += [parse_stress(options.stress).label] if options.stress else []
        parts += [options.user] if options.user != "script" else []
        parts += [options.split] if options.split not in {None, "dev"} else []
        parts += ["variants"] if options.variants else []
        parts += [options.approvals.stem] if options.approvals else []
        selected = options.values().keys() - {"limit", "seed"}
        parts += [PART] if selected else []
        return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts)).lstrip("-.")
    return require_run_name(options.name, option="--name")


def _server_name(base_url: str | None) -> str:
    """Return host and port of an address; empty without one."""
    if base_url is None:
        return ""
    require_address(base_url)
    address = yarl.URL(base_url)
    return f"{address.host}-{address.port}"


def _print_failures(run: Run, folder: Path, console: Console, catalog: Catalog) -> None:
    failed = (record for record in run.records if not record.is_passed)
    first = list(islice(failed, _MAX_FAILURES))
    if not first:
        return
    console.print(Text(catalog.text("eval.failed"), style="bold"))
    for record in first:
        reasons = [catalog.translate(reason) for reason in record.score.reasons]
        verdict = catalog.text(f"report.verdict.{record.score.verdict}")
        place = f"  {record.sample_id} · {verdict}"
        if is_interactive(console):
            line = f"{place} · {next(iter(reasons), '')}"
            console.print(Text(printable(line)), no_wrap=True, overflow="ellipsis")
        else:  # a log keeps every reason, and whole
            line = f"{place} · {'; '.join(reasons)}"
            print_lines([line], console)
    if rest := sum(1 for _ in failed):
        print_lines([f"  {catalog.text('eval.more', count=rest, path=folder)}"], console)


def _resumption_lines(resumption: Resumption, catalog: Catalog) -> Iterator[str]:
    """Yield how many samples of the folder are changed, retried and kept."""
    asked = resumption.total
    if resumption.changed and [change.what for change in resumption.changes] == ["code"]:
        yield catalog.text("eval.new_code", count=resumption.changed, asked=asked)
    elif resumption.changed:
        reasons = "; ".join(_change_reasons(resumption, catalog))
        yield catalog.text(
            "eval.new_questions",
            count=resumption.changed,
            asked=asked,
            why=reasons or catalog.text("eval.unknown_change"),
        )
    if resumption.retried:
        yield catalog.text("eval.retried", count=resumption.retried, asked=asked)
    if resumption.kept:
        yield catalog.text("eval.kept", count=resumption.kept, asked=asked)
    if resumption.is_code_unknown:
        yield catalog.text("eval.unknown_code", count=resumption.kept)
    if resumption.unverified:
        yield catalog.text("eval.unsure", models=", ".join(resumption.unverified))


def _change_reasons(resumption: Resumption, catalog: Catalog) -> Iterator[str]:
    scenarios = [change.where for change in resumption.changes if change.what == "scenario"]
    if scenarios:
        yield f"{catalog.text('change.scenario')} {shortened_list(scenarios)}"
    for change in resumption.changes:
        if change.what != "scenario":
            yield change_text(change, catalog)
