"""`lhkit eval`: scenarios against a model, a table, and an exit code for CI."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from lhkit import app, scale
from lhkit.cli.console import EXIT_MISSED
from lhkit.cli.options import EvalOptions
from lhkit.cli.overrides import served_by
from lhkit.cli.provenance import provenance
from lhkit.cli.replicas import part_of, placement_of, waiting
from lhkit.cli.results import exit_code_lines, print_lines, resumed, show_run
from lhkit.cli.source import Replicas, choice_of, left_lines, opened_source
from lhkit.cli.thresholds import Thresholds, judged, require_percent
from lhkit.errors import UsageError
from lhkit.harness.loader import load_scenarios
from lhkit.harness.plan import ModelSource, plan_run, require_playable
from lhkit.harness.record import Verdict
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario, user_of
from lhkit.harness.store import RECORDS
from lhkit.harness.stored_records import stored_answered
from lhkit.harness.stress import parse_stress, stressed
from lhkit.harness.tables import criterion_words
from lhkit.lifehelper.shipped import scenario_paths, scenarios_at
from lhkit.locales import Catalog, load_catalog
from lhkit.models.served import require_constraint
from lhkit.models.transport import Endpoint, require_address
from lhkit.scale import SCRIPTED, Placement, RayPlayers
from lhkit.settings import Settings
from lhkit.text import printable
from lhkit.tools.definition import ToolDefinition
from lhkit.toolset import DEFAULT, Toolset, label_of, limited, load, registry_of

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


async def evaluate(
    options: EvalOptions,
    settings: Settings,
    *,
    command: tuple[str, ...] = (),
    begun_s: float | None = None,
) -> int:
    """Replay, show the table, return the exit code.

    Args:
        options: what the user asked for.
        settings: of this process.
        command: the words that were typed, for the manifest.
        begun_s: when all began, on the clock of `time.perf_counter`; now if nobody says.

    Raises:
        LhkitError: scenarios, run folder, set-up or server are not as they must be.
    """
    begun_s = time.perf_counter() if begun_s is None else begun_s
    settings = served_by(
        settings, options.runtime, options.dtype, *options.base_urls, settings.base_url
    )
    placement = placement_of(options)
    paths = _paths(options)
    plain = limited(load(options.toolset), options.max_tokens)
    scenarios = load_scenarios(paths, limit=options.limit)
    app.require_toolset(scenarios, options.toolset)
    require_playable(
        len(scenarios),
        repeats=options.repeats,
        concurrency=options.concurrency or 1,
        max_tokens=options.max_tokens,
    )
    run_dir = _run_dir(options)
    thresholds = _thresholds(options)
    catalog = load_catalog(settings.locale)
    stress, user = parse_stress(options.stress), user_of(options.user)
    choice = _required_choice(options, settings, _constrained_tools(options, plain, scenarios))

    def is_answered(source: ModelSource) -> bool:
        model, toolset = stressed(source, plain, stress)
        plan = plan_run(scenarios, model, toolset, repeats=options.repeats, user=user)
        return plan.is_answered_by(stored_answered(run_dir))

    replicas = _replicas(options, placement, choice, settings, scenarios) if placement else None
    async with opened_source(choice, settings, is_answered, replicas) as opened:
        model, toolset = stressed(opened.source, plain, stress)
        told = await provenance(settings, command)
        setup_s = time.perf_counter() - begun_s - opened.server_s
        with _resumable(run_dir, catalog):
            run = await replay(
                scenarios,
                model,
                toolset=toolset,
                players=opened.players,
                run_dir=run_dir,
                repeats=options.repeats,
                user=user,
                concurrency=options.concurrency or opened.concurrency,
                keep_prompts=options.keep_prompts,
                keep_states=options.keep_states,
                report=lambda found: print_lines(resumed(found, catalog)),
                provenance=replace(told, setup_s=setup_s, server_s=opened.server_s),
            )
    words = criterion_words((each.ac for each in scenarios), options.toolset, catalog)
    found = judged(run, thresholds, catalog)
    outcome = tuple(exit_code_lines(run, found, catalog)) if options.exit_zero else found.missed
    show_run(
        run,
        run_dir,
        words,
        [*left_lines(opened, catalog), *found.remarks, *outcome],
        catalog,
    )
    return 0 if options.exit_zero and found.exit_code == EXIT_MISSED else found.exit_code


def _required_choice(
    options: EvalOptions, settings: Settings, tools: tuple[ToolDefinition, ...]
) -> app.ModelChoice:
    """Return who is asked.

    Raises:
        UsageError: nobody could be asked so.
    """
    choice = replace(_choice(options, settings), tools=tools)
    if choice.base_url is not None or choice.name not in SCRIPTED:
        require = app.require_choice if options.ray is None else scale.require_model
        require(choice, settings.runtime)
    return choice


def _replicas(
    options: EvalOptions,
    placement: Placement,
    choice: app.ModelChoice,
    settings: Settings,
    scenarios: Sequence[Scenario],
) -> Replicas:
    """Return how to ask for the replicas of a run.

    Raises:
        UsageError: the address is that of Ray's client.
        MissingPackageError: Ray is not installed.
    """
    scale.require_ray(placement.address)
    part = part_of(
        choice,
        settings,
        placement,
        concurrency=options.concurrency,
        toolset=options.toolset,
        max_tokens=options.max_tokens,
        stress=options.stress,
        keep_prompts=options.keep_prompts,
        keep_states=options.keep_states,
    )
    played = [each.played_by(user_of(options.user)) for each in scenarios]

    @asynccontextmanager
    async def replicas() -> AsyncIterator[RayPlayers]:
        catalog = load_catalog(settings.locale)
        words = catalog.text("eval.ray", count=placement.replicas, address=placement.address)
        Console(stderr=True).print(Text(printable(words)), soft_wrap=True)
        log = _run_dir(options) / scale.LOG
        async with (
            scale.connected(placement, options.toolset, log) as cluster,
            RayPlayers(cluster, part, played, waits=waiting(placement, catalog)) as players,
        ):
            yield players

    return replicas


def _paths(options: EvalOptions) -> tuple[Path, ...]:
    """Return where the scenarios are.

    Raises:
        UsageError: no such split, a split beside paths, or tools of one's own without paths.
    """
    shipped = scenario_paths(options.split or "dev")
    is_own = options.toolset != DEFAULT
    if options.split is not None and (options.paths or is_own):
        what = "PATHS" if options.paths else "--toolset"
        raise UsageError(
            f"--split {options.split} takes shipped scenarios, not those of {what}: leave one out"
        )
    return scenarios_at(options.paths, options.toolset) if is_own else options.paths or shipped


def _constrained_tools(
    options: EvalOptions, toolset: Toolset, scenarios: Sequence[Scenario]
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
    tools = [registry_of(toolset, each.world, each.locale).definitions for each in opened.values()]
    for spoken in tools or [()]:
        require_constraint(options.dialect, constraint, spoken)
    return tools[0] if tools else ()


@contextmanager
def _resumable(run_dir: Path, catalog: Catalog) -> Iterator[None]:
    """Say to somebody who interrupts that nothing is lost."""
    try:
        yield
    except asyncio.CancelledError:
        print_lines([catalog.text("eval.interrupted", path=run_dir)])
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
        if all(record.judgement.verdict is Verdict.INVALID for record in baseline.records):
            count = len(baseline.records)
            raise UsageError(
                f"--baseline {options.baseline}: none of its {count} samples is valid, so nothing "
                "can be compared with it: give its own eval command again first"
            )
    return Thresholds(
        fail_under=options.fail_under, max_violations=options.max_violations, baseline=baseline
    )


def _choice(options: EvalOptions, settings: Settings) -> app.ModelChoice:
    first, *beside = addresses_of(options.base_urls) or (None,)
    return choice_of(
        settings,
        name=options.model,
        base_url=first,
        beside=tuple(beside),
        dialect=options.dialect,
        constraint=app.constraint_of(options.constrain),
    )


def addresses_of(words: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses of one model's servers; `@FILE` stands for a file with one a line.

    Blank lines and what follows a `#` are left out.

    Raises:
        UsageError: a file cannot be read or names none, an address is none or there twice.
    """
    found: list[str] = []
    for word in words:
        listed = _listed(Path(word[1:])) if word.startswith("@") else [word]
        if not listed:
            raise UsageError(f"--base-url {word}: there is no address in it: write one a line")
        found += listed
    for each in found:
        require_address(each)
    roots = Counter(Endpoint(base_url=each).root for each in found)
    if twice := [root for root, count in roots.items() if count > 1]:
        raise UsageError(f"--base-url {twice[0]} is given {roots[twice[0]]} times: give it once")
    return tuple(found)


def _listed(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--base-url @{path} cannot be read ({error}): give a file with one address a line"
        ) from error
    return [told for line in lines if (told := line.partition("#")[0].strip())]


def _run_dir(options: EvalOptions) -> Path:
    folder = options.runs_dir / _run_name(options)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, no folder of a run: give another --name")
    return folder


def _run_name(options: EvalOptions) -> str:
    """Return the given name, or one that the same options always give: so a run resumes."""
    if options.name is None:
        model = options.model or ("served" if options.base_urls else app.EMBEDDED)
        words = [model, options.dialect]
        words += [label_of(options.toolset)] if options.toolset != DEFAULT else []
        words += [options.constrain] if options.constrain != "off" else []
        words += [parse_stress(options.stress).label] if options.stress else []
        words += [options.user] if options.user != "script" else []
        words += [options.split] if options.split not in {None, "dev"} else []
        return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words)).lstrip("-.")
    if not _RUN_NAME.fullmatch(options.name):
        raise UsageError(
            f"--name {options.name!r} cannot name a folder: use letters, digits, '.', '_', '-'"
        )
    return options.name
