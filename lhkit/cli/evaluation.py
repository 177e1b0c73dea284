"""One run as `eval` and `matrix` play it: what is asked, of which model, into which folder."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lhkit import app, scale
from lhkit.cli.overrides import served_by
from lhkit.cli.source import Opened, source_of
from lhkit.errors import UsageError
from lhkit.harness.manifest import Provenance
from lhkit.harness.plan import ModelSource, Plan, plan_run
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.run_options import RunOptions
from lhkit.harness.scenario import Scenario
from lhkit.harness.stress import Stress, parse_stress, stressed
from lhkit.models.served import UNKNOWN_CONCURRENCY, require_constraint
from lhkit.models.transport import Endpoint, require_address
from lhkit.models.vllm_server import MAX_NUM_SEQS
from lhkit.scale import SCRIPTED, Cluster, Placement, RaySampleRunner, ReplicaConfig, Resources
from lhkit.settings import Settings, hardware
from lhkit.tools.definition import ToolDefinition
from lhkit.toolset import Toolset, limit_tokens, registry_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One run, checked before anything is started. `toolset` is not under stress yet."""

    options: RunOptions
    scenarios: tuple[Scenario, ...]
    folder: Path
    settings: Settings
    choice: app.ModelChoice
    toolset: Toolset
    stress: Stress

    @property
    def is_scripted(self) -> bool:
        """Whether a script plays, and no served model."""
        return self.choice.is_embedded and self.choice.name in SCRIPTED

    def under_stress(self, source: ModelSource) -> tuple[ModelSource, Toolset]:
        """Return model and toolset as they are played."""
        return stressed(source, self.toolset, self.stress)

    def plan(self, source: ModelSource) -> Plan:
        """Return the plan of the run with a model."""
        model, toolset = self.under_stress(source)
        return plan_run(
            self.scenarios,
            model,
            toolset,
            repeats=self.options.repeats,
            user=self.options.user,
        )

    async def play(self, opened: Opened, provenance: Provenance, **more: Any) -> Run:
        """Play what is missing in the folder; `more` are arguments of `replay`."""
        model, toolset = self.under_stress(opened.source)
        return await replay(
            self.scenarios,
            model,
            toolset=toolset,
            runner=opened.runner,
            run_dir=self.folder,
            repeats=self.options.repeats,
            user=self.options.user,
            concurrency=self.options.concurrency or opened.concurrency,
            max_attempts=self.options.max_attempts,
            keep_prompts=self.options.keep_prompts,
            keep_states=self.options.keep_states,
            provenance=provenance,
            **more,
        )

    @asynccontextmanager
    async def on_replicas(
        self, cluster: Cluster, on_wait: Callable[[Resources], object] | None = None
    ) -> AsyncIterator[Opened]:
        """Yield replicas that play."""
        placement, choice = cluster.placement, self.choice
        base_urls = () if choice.base_url is None else (choice.base_url, *choice.beside)
        own = RunOptions.model_validate(self.options, from_attributes=True)
        options = own.model_copy(
            update={
                "toolset": cluster.toolset,
                "base_urls": base_urls,
                "dtype": self.settings.dtype,
            }
        )
        if self.options.concurrency is not None:
            concurrency = -(-self.options.concurrency // placement.replicas)
        elif self.is_scripted:
            concurrency = UNKNOWN_CONCURRENCY
        else:
            concurrency = scale.GPU_CONCURRENCY if placement.gpus else MAX_NUM_SEQS
        config = ReplicaConfig(options=options, gpus=placement.gpus, concurrency=concurrency)
        played = [each.with_user(self.options.user) for each in self.scenarios]
        async with RaySampleRunner(cluster, config, played, on_wait=on_wait) as runner:
            source = source_of(choice, runner)
            yield Opened(source=source, server_s=runner.server_s, runner=runner)


def prepared(
    options: RunOptions,
    scenarios: tuple[Scenario, ...],
    toolset: Toolset,
    *,
    folder: Path,
    settings: Settings,
    placement: Placement | None,
) -> Evaluation:
    """Return a run, after checking all that can be checked before a server is started.

    Raises:
        UsageError: an option is not valid, or does not go with another.
        MissingPackageError: Ray is asked for and not installed.
    """
    stress = parse_stress(options.stress)
    addresses = addresses_of(options.base_urls)
    settings = served_by(settings, options.runtime, options.dtype, *addresses, settings.base_url)
    options.require_few(len(scenarios))
    if placement is not None:
        scale.require_ray(placement.address)
    toolset = scale.with_instructions(
        limit_tokens(toolset, options.max_tokens), options.instructions
    )
    is_script = not addresses and options.model in SCRIPTED
    base_url = addresses[0] if addresses else None if is_script else settings.base_url
    choice = app.ModelChoice(
        name=options.model,
        base_url=base_url,
        beside=addresses[1:],
        api_key=settings.api_key,
        dialect=options.dialect,
        constraint=options.constraint,
        tools=_constrained_tools(options, toolset, scenarios),
    )
    if not is_script:
        require = app.require_choice if placement is None else scale.require_model
        require(choice, settings.runtime)
    return Evaluation(
        options=options,
        scenarios=scenarios,
        folder=folder,
        settings=settings,
        choice=choice,
        toolset=toolset,
        stress=stress,
    )


def _constrained_tools(
    options: RunOptions, toolset: Toolset, scenarios: Iterable[Scenario]
) -> tuple[ToolDefinition, ...]:
    """Return the tools that decoding is constrained to, as the first scenario has them.

    Raises:
        UsageError: in a language of the scenarios the tools cannot have this constraint.
    """
    firsts: dict[str, Scenario] = {}
    for each in scenarios if options.constraint != "off" else ():
        firsts.setdefault(each.locale, each)
    tools = [registry_of(toolset, each.world, each.locale).definitions for each in firsts.values()]
    for spoken in tools or [()]:
        require_constraint(options.dialect, options.constraint, spoken)
    return tools[0] if tools else ()


def addresses_of(words: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses of one model's servers; `@FILE` stands for a file with one a line.

    Blank lines and what follows a `#` are left out.

    Raises:
        UsageError: a file cannot be read or names none, an address is not valid or there twice.
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
    return [address for line in lines if (address := line.partition("#")[0].strip())]


async def provenance_of(settings: Settings) -> Provenance:
    """Return what only the command line knows of a run that begins now."""
    commit = None
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "rev-parse", "HEAD"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        pass
    else:
        output, _ = await process.communicate()
        commit = output.decode().strip() or None
    return Provenance(started_at=settings.now(), git_commit=commit, hardware=hardware())
