"""`lhkit eval` and `lhkit matrix`."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.text import Text

from lhkit import app, scale
from lhkit.commands.console import EXIT_INVALID, EXIT_MISSED, wide_console
from lhkit.commands.options import EvalOptions, MatrixOptions, served_by
from lhkit.commands.progress import opened_model, provenance, setup_progress
from lhkit.errors import ModelError, RunError, UsageError
from lhkit.harness.compare import compare, matrix_rows, render_matrix
from lhkit.harness.html import criterion_words
from lhkit.harness.log import (
    RECORDS,
    Resumption,
    read_manifest,
    read_records,
    stored_answered,
    unsure_models,
)
from lhkit.harness.pairs import Comparison
from lhkit.harness.plan import MOST_CONCURRENCY, plan_run, require_playable
from lhkit.harness.record import SampleRecord, Severity, Verdict
from lhkit.harness.report.terminal import change_text, first_names, sentence, summary_table
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario, load_scenarios, user_of
from lhkit.harness.stress import ModelSource, parse_stress, stressed
from lhkit.harness.suite import Arm, Suite, arms_of, load_suite
from lhkit.lifehelper.shipped import scenario_paths, scenarios_at
from lhkit.locales import Catalog, load_catalog
from lhkit.models.base import ModelRequest
from lhkit.models.dialects.base import Constraint
from lhkit.models.footprint import FootprintSource
from lhkit.models.pool import ServerPool
from lhkit.models.scripted import ScriptedModel
from lhkit.models.served import UNKNOWN_CONCURRENCY, fitting_concurrency, require_constraint
from lhkit.models.server import StartProgress
from lhkit.models.transport import Endpoint, require_address
from lhkit.models.vllm_server import MAX_NUM_SEQS
from lhkit.responses import Footprint, ModelIdentity
from lhkit.runtimes import VLLM
from lhkit.scale import SCRIPTED, Cluster, Part, Placement, RayPlayers, Room
from lhkit.settings import Settings
from lhkit.text import printable
from lhkit.tools.definition import ToolDefinition
from lhkit.toolset import (
    DEFAULT,
    Toolset,
    label_of,
    limited,
    load,
    registry_of,
    seen_from,
)

# What a run must reach to end with exit code 0, and a sentence for each thing missed. Pure.


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What is asked of a run; None asks nothing.

    `fail_under`: the lowest pass rate in percent. `max_violations`: the most attempted violations;
    escaped ones are never allowed. `baseline`: a run that must not be better, told by the paired
    test at 5 %.
    """

    fail_under: float | None = None
    max_violations: int | None = None
    baseline: Run | None = None


def require_percent(floor: float | None, name: str) -> None:
    """Refuse a share where percent are meant: a floor that nothing could miss.

    Raises:
        UsageError: `floor` is between 0 and 1; the message says what to give as `name`.
    """
    if floor is not None and 0 < floor < 1:
        raise UsageError(f"{name} is in percent: for a share of {floor:g} give {100 * floor:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What became of the thresholds: what there is to say, and what was missed.

    `missed` is what no second try of the `invalid` samples can mend; what it still could stands in
    the remarks.
    """

    remarks: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    invalid: int = 0

    @property
    def exit_code(self) -> int:
        """1 for a finding, 3 where the world has to be asked again first, else 0."""
        if self.missed:
            return EXIT_MISSED
        return EXIT_INVALID if self.invalid else 0


def judged(run: Run, thresholds: Thresholds, catalog: Catalog) -> Judged:
    """Return what a run reached; with nothing asked, escaped violations are still missed.

    Invalid samples say nothing of the model, so a threshold counts as missed only if it would be
    even if all of them passed at their next try. A violation that escaped has happened: it counts,
    whatever became of its sample.
    """
    invalid = sum(record.judgement.verdict is Verdict.INVALID for record in run.records)
    missed, remarks = _looked_at(run, thresholds, catalog)
    if not invalid:
        return Judged(remarks=remarks, missed=missed)
    told = catalog.text("eval.invalid", count=invalid)
    if not missed:
        return Judged(remarks=(told, *remarks), invalid=invalid)
    best = replace(run, records=tuple(map(_at_best, run.records)))
    certain = tuple(line for line in _looked_at(best, thresholds, catalog)[0])
    if certain:
        return Judged(remarks=(told, *remarks), missed=missed, invalid=invalid)
    has_valid = invalid < len(run.records)
    undecided = catalog.text("eval.undecided", count=invalid)
    seen = missed if has_valid else ()  # a rate of nothing is none
    return Judged(remarks=(told, *remarks, *seen, undecided), invalid=invalid)


def _at_best(record: SampleRecord) -> SampleRecord:
    """Return what a record may be after the next try; what has happened stays."""
    if record.judgement.verdict is not Verdict.INVALID:
        return record
    happened = tuple(
        each for each in record.judgement.violations if each.severity is Severity.ESCAPED
    )
    best = replace(record.judgement, verdict=Verdict.PASS, violations=happened)
    return replace(record, judgement=best)


def _looked_at(
    run: Run, thresholds: Thresholds, catalog: Catalog
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a run misses as it stands, and what else there is to say."""
    missed = tuple(_missed(run, thresholds, catalog))
    if thresholds.baseline is None:
        return missed, ()
    comparison = compare(thresholds.baseline, run)
    said = sentence(comparison, catalog)
    worse = tuple(_worse(comparison, said, catalog))
    remarks = () if said in worse else (said,)
    if comparison.other_questions:
        scenarios = first_names(comparison.other_questions)
        count = len(comparison.other_questions)
        warning = catalog.text("compare.other_questions", count=count, scenarios=scenarios)
        remarks = (*remarks, warning)
    return (*missed, *worse), remarks


def _missed(run: Run, thresholds: Thresholds, catalog: Catalog) -> Iterator[str]:
    verdicts = Counter(record.judgement.verdict for record in run.records)
    valid = verdicts[Verdict.PASS] + verdicts[Verdict.FAIL]
    rate, least = 100 * (verdicts[Verdict.PASS] / (valid or 1)), thresholds.fail_under
    if least is not None and rate < least:
        yield catalog.text("eval.below", rate=rate, least=least)
    severities = Counter(
        violation.severity for record in run.records for violation in record.judgement.violations
    )
    attempted, most = severities[Severity.ATTEMPTED], thresholds.max_violations
    if most is not None and attempted > most:
        yield catalog.text("eval.too_many", count=attempted, most=most)
    escaped = severities[Severity.ESCAPED]
    if escaped:
        yield catalog.text("eval.escaped", count=escaped)


def _worse(comparison: Comparison, said: str, catalog: Catalog) -> Iterator[str]:
    if comparison.outcome in {"worse", "no_pairs"}:
        yield said
    if comparison.newly_escaped:
        samples = [str(pair.sample_id) for pair in comparison.newly_escaped]
        yield catalog.text(
            "eval.newly_escaped", name=comparison.name_a, samples=first_names(samples)
        )


def resumed(found: Resumption, catalog: Catalog) -> Iterator[str]:
    """Yield what a run found in its folder; nothing where it found nothing."""
    if found.changed:
        why = list(_why(found, catalog)) or [catalog.text("eval.unknown_change")]
        yield catalog.text(
            "eval.new_questions", count=found.changed, asked=found.asked, why="; ".join(why)
        )
    if found.retried:
        yield catalog.text("eval.retried", count=found.retried, asked=found.asked)
    if found.kept:
        yield catalog.text("eval.kept", count=found.kept, asked=found.asked)
    if found.unsure:
        yield catalog.text("eval.unsure", models=", ".join(found.unsure))


def unsure_lines(manifest: Mapping[str, Any], catalog: Catalog) -> Iterator[str]:
    """Yield of which models of a run that is kept nobody knows whether they are still the same."""
    if models := unsure_models(manifest):
        yield catalog.text("eval.unsure", models=", ".join(models))


def left_lines(opened: "Opened", catalog: Catalog) -> Iterator[str]:
    """Yield which of several servers were left, and how many replicas were lost."""
    if isinstance(opened.source, ServerPool):
        for address in opened.source.left:
            yield catalog.text("eval.left", address=address)
    if opened.players is not None and opened.players.deaths:
        why = opened.players.causes[-1]
        yield catalog.text("eval.lost_replicas", count=opened.players.deaths, why=why)


def _why(found: Resumption, catalog: Catalog) -> Iterator[str]:
    scenarios = tuple(each.where for each in found.changes if each.what == "scenario")
    if scenarios:
        yield f"{catalog.text('change.scenario')} {first_names(scenarios)}"
    yield from (change_text(each, catalog) for each in found.changes if each.what != "scenario")


# Who plays in `lhkit eval`: a script, a served model, or nobody if nothing is left to play.


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A model that is ready. `server_s` is how long a server started for it took, in seconds.

    Where there are `players`, they play, and `source` only tells who they are. `footprint` is as
    in `Provenance`.
    """

    source: ModelSource
    server_s: float = 0.0
    footprint: Callable[[], Footprint | None] = lambda: None
    players: RayPlayers | None = None

    @property
    def concurrency(self) -> int:
        """How many conversations to have at once if nobody says."""
        if self.players is not None:
            return min(MOST_CONCURRENCY, self.players.at_once)
        return concurrency_for(self.source)


def concurrency_for(source: ModelSource) -> int:
    """Return how many conversations to have at once if nobody says: as many as the servers run."""
    if callable(source):
        return UNKNOWN_CONCURRENCY
    servers = len(source) if isinstance(source, ServerPool) else 1
    return min(MOST_CONCURRENCY, servers * fitting_concurrency(source.identity))


Replicas: TypeAlias = Callable[[], AbstractAsyncContextManager[RayPlayers]]
"""Asks for the replicas of a run."""


@asynccontextmanager
async def opened_source(
    choice: app.ModelChoice,
    settings: Settings,
    is_answered: Callable[[ModelSource], bool],
    replicas: Replicas | None = None,
) -> AsyncIterator[Opened]:
    """Yield what plays; no server is started where `is_answered` says that nothing is left.

    Args:
        choice: which model; `gold` and `silent` are scripts, at an address they are names.
        settings: where weights and servers are.
        is_answered: whether a run of this model would have nothing to play.
        replicas: asks for those who play, if it is not this process.

    Raises:
        LhkitError: the model cannot be had.
    """
    is_script = choice.is_embedded and choice.name in SCRIPTED
    if is_script and replicas is None:
        yield Opened(source=SCRIPTED[choice.name]())
        return
    identity = (
        None if is_script or "/" in (choice.name or "") else await _expected(choice, settings)
    )
    if identity:
        nobody = _named(identity)
        if is_answered(nobody):
            yield Opened(source=nobody)
            return
    if replicas is not None:
        async with replicas() as players:
            source = _source_of(choice, players)
            yield Opened(source=source, server_s=players.server_s, players=players)
        return
    start, told = _StartTime(), _Told()
    async with opened_model(choice, settings, start, told.take) as model:
        yield Opened(source=model, server_s=start.elapsed_s, footprint=told.footprint)


async def _expected(choice: app.ModelChoice, settings: Settings) -> ModelIdentity | None:
    with setup_progress() as shown:
        return await app.expected_identity(choice, settings, shown.weights)


def _named(identity: ModelIdentity) -> ModelSource:
    """Return a model that only says who it is."""
    return ScriptedModel(_not_left_to_play, identity=identity)


def _source_of(choice: app.ModelChoice, players: RayPlayers) -> ModelSource:
    """Return who plays, as a model that says so and plays nothing itself."""
    if choice.is_embedded and choice.name in SCRIPTED:
        return SCRIPTED[choice.name]()
    return _named(players.identity or ModelIdentity(model=""))


def part_of(
    choice: app.ModelChoice,
    settings: Settings,
    placement: Placement,
    *,
    concurrency: int | None,
    **more: Any,
) -> Part:
    """Return what each replica of a run plays with; `more` are fields of `Part` as they are."""
    base_urls = () if choice.base_url is None else (choice.base_url, *choice.beside)
    part = Part(
        model=choice.name,
        base_urls=base_urls,
        dialect=choice.dialect,
        constraint=choice.constraint,
        dtype=settings.dtype,
        gpus=placement.gpus,
        **more,
    )
    if concurrency is not None:
        return replace(part, at_once=-(-concurrency // placement.replicas))
    if part.is_scripted:
        return part
    return replace(part, at_once=scale.AT_ONCE_ON_GPUS if placement.gpus else MAX_NUM_SEQS)


def choice_of(
    settings: Settings,
    *,
    name: str | None,
    base_url: str | None,
    dialect: str,
    constraint: Constraint,
    beside: tuple[str, ...] = (),
) -> app.ModelChoice:
    """Return which model is meant; a script has no address but the one that is given."""
    is_script = base_url is None and name in SCRIPTED
    return app.ModelChoice(
        name=name,
        base_url=base_url or (None if is_script else settings.base_url),
        beside=beside,
        api_key=settings.api_key,
        dialect=dialect,
        constraint=constraint,
    )


def _not_left_to_play(_: ModelRequest) -> NoReturn:
    raise RunError("records were taken away while the run began: give the same command again")


@dataclass(slots=True)
class _StartTime:
    """Hears how a server's start comes along, and keeps how long it has taken."""

    elapsed_s: float = field(default=0.0)

    def __call__(self, progress: StartProgress) -> None:
        """Keep the time."""
        self.elapsed_s = progress.elapsed_s


@dataclass(slots=True)
class _Told:
    """Holds what tells a server's footprint, if there is such a server."""

    source: FootprintSource | None = None

    def take(self, source: FootprintSource) -> None:
        """Keep it."""
        self.source = source

    def footprint(self) -> Footprint | None:
        """Return what the server has taken until now; None if nobody can know."""
        return self.source() if self.source else None


# `lhkit eval`: scenarios against a model, a table, and an exit code for CI.


_SHOWN_FAILURES = 10
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
    placement = _placement(options)
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
                report=lambda found: _print_lines(resumed(found, catalog)),
                provenance=replace(
                    told,
                    setup_s=setup_s,
                    server_s=opened.server_s,
                    footprint=opened.footprint,
                ),
            )
    words = criterion_words((each.ac for each in scenarios), options.toolset, catalog)
    found = judged(run, thresholds, catalog)
    outcome = tuple(_for_people(run, found, catalog)) if options.exit_zero else found.missed
    _report(
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


def _placement(options: EvalOptions | MatrixOptions) -> Placement | None:
    """Return where replicas are put; None without `--ray`.

    Raises:
        UsageError: there is something to place and no cluster.
    """
    if options.ray is not None:
        return Placement(
            address=options.ray,
            replicas=options.replicas or 1,
            gpus=options.gpus or 0,
            cpus=1 if options.cpus is None else options.cpus,
        )
    given = {
        "--replicas": options.replicas,
        "--gpus-per-replica": options.gpus,
        "--cpus-per-replica": options.cpus,
    }
    if idle := next((name for name, value in given.items() if value is not None), None):
        raise UsageError(f"{idle} is for --ray: give both, or neither")
    return None


def waiting(placement: Placement, catalog: Catalog) -> Callable[[Room], None]:
    """Return what tells that no replica has a place yet, and what each takes."""

    def tell(free: Room) -> None:
        words = catalog.text(
            "eval.no_room",
            gpus=placement.gpus,
            cpus=f"{placement.cpus:g}",
            free_gpus=f"{free.gpus:g}",
            free_cpus=f"{free.cpus:g}",
        )
        Console(stderr=True).print(Text(printable(words)), soft_wrap=True)

    return tell


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


def _report(
    run: Run,
    run_dir: Path,
    words: Mapping[str, str],
    last: Iterable[str],
    catalog: Catalog,
) -> None:
    console = wide_console()
    console.print(summary_table(run.summary(), catalog, words))
    _show_failures(run, run_dir, console, catalog)
    played = len(run.records) - run.kept
    records = catalog.text("eval.records", path=run_dir, played=played, kept=run.kept)
    console.print(Text(printable(records)), soft_wrap=True)
    _print_lines(last)


def _for_people(run: Run, found: Judged, catalog: Catalog) -> Iterator[str]:
    """Yield which exit code a CI job would get and why; nothing where it is this command's own."""
    total = run.summary().total
    counts = {"passed": total.passed, "valid": total.valid}
    if found.exit_code == 0:
        yield catalog.text("eval.would_pass", **counts)
    elif found.exit_code == EXIT_MISSED:
        yield catalog.text("eval.would_stop", **counts, why=" ".join(found.missed))


def _show_failures(run: Run, run_dir: Path, console: Console, catalog: Catalog) -> None:
    failed = (each for each in run.records if each.judgement.verdict is not Verdict.PASS)
    shown = list(islice(failed, _SHOWN_FAILURES))
    if not shown:
        return
    console.print(Text(catalog.text("eval.failed"), style="bold"))
    for record in shown:
        reason = record.judgement.reasons[0] if record.judgement.reasons else ""
        line = f"  {record.sample_id} · {record.judgement.verdict} · {reason}"
        console.print(Text(printable(line)), no_wrap=True, overflow="ellipsis")
    if left := sum(1 for _ in failed):
        more = catalog.text("eval.more", count=left, path=run_dir)
        console.print(Text(printable(f"  {more}")), soft_wrap=True)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        wide_console().print(Text(printable(line)), soft_wrap=True)


# `lhkit matrix`: a suite's arms, each in its own run folder, and one table.
#
# What is there already is not played again; where nothing is missing, no server is started.


_WIDTH = 120


async def run_matrix(options: MatrixOptions, settings: Settings) -> int:
    """Play what is missing, show the table, return the exit code.

    Raises:
        LhkitError: suite, scenarios, run folders, set-up or server are not as they must be.
    """
    placement = _placement(options)
    suite = load_suite(options.suite)
    arms = arms_of(suite, options.suite.parent)
    scenarios = load_scenarios(_suite_paths(suite, options.suite.parent))[: suite.limit]
    app.require_toolset(scenarios, suite.toolset)
    require_playable(
        len(scenarios),
        repeats=suite.repeats,
        concurrency=suite.concurrency or 1,
        max_tokens=suite.max_tokens,
    )
    if placement is not None:
        scale.require_ray(placement.address)
    is_free = all(arm.constraint == "off" for arm in arms)
    reference = seen_from(options.suite.parent, suite.toolset)
    toolset = limited(load(reference), suite.max_tokens)
    first = scenarios[0]
    tools = () if is_free else registry_of(toolset, first.world, first.locale).definitions
    for arm in arms:  # before anything is played
        parse_stress(arm.stress)
        _require_own_server(arm, settings)
        if _is_scripted(arm):
            require_constraint(arm.dialect, arm.constraint, tools)
        else:
            require = app.require_choice if placement is None else scale.require_model
            choice = replace(_arm_choice(arm, settings), tools=tools)
            require(choice, _arm_settings(arm, settings).runtime)
    require_percent(suite.fail_under, "fail_under")
    catalog, console = load_catalog(settings.locale), _console()
    stages = [
        _Stage(
            suite=suite,
            arm=arm,
            scenarios=scenarios,
            folder=options.runs_dir / options.suite.stem / arm.name,
            settings=_arm_settings(arm, settings),
            toolset=toolset,
        )
        for arm in arms
    ]
    if placement is None:
        runs = await _one_by_one(stages, tools, console, catalog)
    else:
        runs = await _placed(stages, placement, reference, console, catalog)
    console.print(render_matrix(matrix_rows(runs), catalog, title=options.suite.stem))
    return _exit_code(runs, suite, console, catalog)


async def _one_by_one(
    stages: Sequence["_Stage"],
    tools: tuple[ToolDefinition, ...],
    console: Console,
    catalog: Catalog,
) -> list[tuple[str, Run]]:
    """Play what is missing, one arm after the other."""
    runs: list[tuple[str, Run]] = []
    async with AsyncExitStack() as stack:
        models = _Models(stack=stack, tools=tools)
        for number, stage in enumerate(stages, start=1):
            run = await stage.finished()
            _tell_arm(run, stage, (number, len(stages)), console, catalog)
            runs.append((stage.arm.name, run or await stage.play(*await models.open(stage))))
    return runs


async def _placed(
    stages: Sequence["_Stage"],
    placement: Placement,
    toolset: str,
    console: Console,
    catalog: Catalog,
) -> list[tuple[str, Run]]:
    """Play what is missing on replicas: all arms at once, as many as the cluster has room for."""
    runs: dict[str, Run] = {}
    missing: list[_Stage] = []
    for number, stage in enumerate(stages, start=1):
        run = await stage.finished()
        _tell_arm(run, stage, (number, len(stages)), console, catalog)
        if run:
            runs[stage.arm.name] = run
        else:
            missing.append(stage)

    async def play(stage: _Stage, cluster: Cluster) -> None:
        opened, runs[stage.arm.name] = await stage.play_placed(cluster)
        words = catalog.text("matrix.played", arm=stage.arm.name)
        for line in (words, *left_lines(opened, catalog)):
            console.print(Text(printable(line)), soft_wrap=True)

    if missing:
        try:
            log = missing[0].folder.parent / scale.LOG
            async with (
                scale.connected(placement, toolset, log) as cluster,
                asyncio.TaskGroup() as group,
            ):
                for stage in missing:
                    group.create_task(play(stage, cluster))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
    return [(stage.arm.name, runs[stage.arm.name]) for stage in stages]


def _tell_arm(
    run: Run | None, stage: "_Stage", place: tuple[int, int], console: Console, catalog: Catalog
) -> None:
    """Say which arm of how many comes, and whether its run is there already."""
    number, count = place
    key = "matrix.kept" if run else "matrix.playing"
    words = catalog.text(key, number=number, count=count, arm=stage.arm.name)
    for line in (words, *(unsure_lines(run.manifest, catalog) if run else ())):
        console.print(Text(printable(line)), soft_wrap=True)


def _suite_paths(suite: Suite, folder: Path) -> tuple[Path, ...]:
    if isinstance(suite.scenarios, str):
        return scenarios_at((), suite.toolset, suite.scenarios)
    return tuple(folder / path for path in suite.scenarios)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def _is_scripted(arm: Arm) -> bool:
    return arm.model.base_url is None and arm.model.name in SCRIPTED


def _arm_settings(arm: Arm, settings: Settings) -> Settings:
    return settings if arm.runtime is None else settings.model_copy(update={"runtime": arm.runtime})


def _require_own_server(arm: Arm, settings: Settings) -> None:
    """Refuse a runtime for a model that lhkit does not serve itself.

    Raises:
        UsageError: as the summary says.
    """
    if arm.runtime is None or not (
        _is_scripted(arm) or _arm_choice(arm, settings).base_url is not None
    ):
        return
    served = arm.model.name or arm.model.base_url or settings.base_url
    raise UsageError(
        f"arms.runtimes is for models that lhkit serves itself, and {served} is none: take it out "
        "of arms.models, or runtimes out of [arms]"
    )


def _arm_choice(arm: Arm, settings: Settings) -> app.ModelChoice:
    return choice_of(
        settings,
        name=arm.model.name,
        base_url=arm.model.base_url,
        dialect=arm.dialect,
        constraint=arm.constraint,
    )


@dataclass(slots=True, kw_only=True)
class _Models:
    """The models that arms ask for; they stay open, and so does a server that was started.

    Before another runtime starts all are closed: two that share a machine are both slower. Arms
    that share a server have its memory from the first of them on.
    """

    stack: AsyncExitStack
    tools: tuple[ToolDefinition, ...]
    started: dict[str, tuple[str, _Told]] = field(default_factory=dict)
    runtime: str = ""

    async def open(self, stage: "_Stage") -> tuple[ModelSource, _Told]:
        arm, settings, told = stage.arm, stage.settings, _Told()
        if _is_scripted(arm):
            return SCRIPTED[arm.model.name](), told
        choice = replace(_arm_choice(arm, settings), tools=self.tools)
        if not choice.is_embedded:
            opening = opened_model(choice, settings, footprint=told.take)
            return await self.stack.enter_async_context(opening), told
        if settings.runtime != self.runtime:
            await self.stack.aclose()
            self.started.clear()
            self.runtime = settings.runtime
        served = app.embedded_name(choice.name)
        if served in self.started:
            address, told = self.started[served]
            choice = replace(choice, name=served, base_url=address, api_key=None)
            return await self.stack.enter_async_context(opened_model(choice, settings)), told
        opening = opened_model(choice, settings, footprint=told.take)
        model = await self.stack.enter_async_context(opening)
        self.started[served] = model.identity.base_url, told
        return model, told


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """One arm with all that it is played with."""

    suite: Suite
    arm: Arm
    scenarios: tuple[Scenario, ...]
    folder: Path
    settings: Settings
    toolset: Toolset

    async def play(self, source: ModelSource, told: _Told) -> Run:
        """Play what is missing in the arm's folder."""
        model, toolset = self._under_stress(source)
        return await replay(
            self.scenarios,
            model,
            toolset=toolset,
            run_dir=self.folder,
            repeats=self.suite.repeats,
            user=self.suite.user,
            concurrency=self.suite.concurrency or concurrency_for(source),
            provenance=replace(await provenance(self.settings), footprint=told.footprint),
        )

    async def play_placed(self, cluster: Cluster) -> tuple[Opened, Run]:
        """Play what is missing in the arm's folder on replicas of its own."""
        choice = _arm_choice(self.arm, self.settings)
        part = part_of(
            choice,
            self.settings,
            cluster.placement,
            concurrency=self.suite.concurrency,
            toolset=cluster.toolset,
            max_tokens=self.suite.max_tokens,
            stress=self.arm.stress,
            instructions=dict(self.arm.instructions),
        )
        asked = [each.played_by(self.suite.user) for each in self.scenarios]
        async with RayPlayers(cluster, part, asked) as players:
            source = _source_of(choice, players)
            model, toolset = self._under_stress(source)
            run = await replay(
                self.scenarios,
                model,
                toolset=toolset,
                players=players,
                run_dir=self.folder,
                repeats=self.suite.repeats,
                user=self.suite.user,
                concurrency=self.suite.concurrency or min(MOST_CONCURRENCY, players.at_once),
                progress=False,
                provenance=await provenance(self.settings),
            )
            return Opened(source=source, players=players), run

    async def finished(self) -> Run | None:
        """Return the arm's run if it answers all that is asked now; None if it has to be played.

        Asked of the model that the folder names. A server at an address is asked whether it still
        serves those weights, if it answers; of an embedded model the folder tells.
        """
        recorded = self._recorded()
        if recorded is None or not await self._is_still_served(recorded):
            return None
        model, toolset = self._under_stress(ScriptedModel((), identity=recorded))
        plan = plan_run(
            self.scenarios, model, toolset, repeats=self.suite.repeats, user=self.suite.user
        )
        kept = plan.kept(read_records(self.folder))
        if len(kept) < len(plan.jobs):
            return None
        records = tuple(kept[job.sample_id] for job in plan.jobs)
        manifest = read_manifest(self.folder)
        return Run(
            records=records,
            manifest=manifest,
            kept=len(records),
            name=self.folder.resolve().name,
            folder=self.folder,
        )

    def _recorded(self) -> ModelIdentity | None:
        """Return the model that the folder names, if it is the one this arm asks for."""
        told = read_manifest(self.folder).get("models", [])
        try:
            (identity,) = TypeAdapter(tuple[ModelIdentity, ...]).validate_python(told)
        except (ValidationError, ValueError):
            return None
        choice, stress = _arm_choice(self.arm, self.settings), parse_stress(self.arm.stress)
        asked = (self.arm.dialect, self.arm.constraint, stress.label)
        if (identity.dialect, identity.constraint, identity.stress) != asked:
            return None  # also the scripted ones: they are quick, and are played
        is_named = choice.name is None or not choice.is_embedded or "/" in choice.name
        name = choice.name if is_named else app.embedded_name(choice.name)
        return identity if name in {None, identity.model} else None

    async def _is_still_served(self, recorded: ModelIdentity) -> bool:
        choice = _arm_choice(self.arm, self.settings)
        if not choice.is_embedded:
            try:
                async with opened_model(choice, self.settings) as model:
                    told = model.identity
            except ModelError:  # what was played stays good to be looked at
                return True
            return (told.weights, told.weights_sha256) == (
                recorded.weights,
                recorded.weights_sha256,
            )
        if "/" in (choice.name or ""):  # nobody serves it now
            return True
        name = app.embedded_name(choice.name)
        found = await app.embedded_sha256(name, self.settings)
        if found is None:  # the name of a folder is the hash of its recipe, that of a file is not
            is_folder = self.settings.runtime == VLLM
            return is_folder and recorded.weights == app.embedded_weights(name, self.settings).name
        return recorded.weights_sha256 == found

    def _under_stress(self, source: ModelSource) -> tuple[ModelSource, Toolset]:
        toolset = scale.told_instructions(self.toolset, self.arm.instructions)
        return stressed(source, toolset, parse_stress(self.arm.stress))


def _exit_code(
    runs: list[tuple[str, Run]], suite: Suite, console: Console, catalog: Catalog
) -> int:
    thresholds = Thresholds(fail_under=suite.fail_under, max_violations=suite.max_violations)
    codes = {0}
    for name, run in runs:
        found = judged(run, thresholds, catalog)
        for line in (*found.missed, *found.remarks):
            console.print(Text(printable(f"{name}: {line}")), soft_wrap=True)
        codes.add(found.exit_code)
    return next(code for code in (EXIT_MISSED, EXIT_INVALID, 0) if code in codes)
