"""What a run has to do: every sample with its content hash, and the facts for the manifest.

Two samples with the same hash are the same question to the same model: the answer is kept.
"""

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from lhkit.errors import ScenarioError, UsageError
from lhkit.harness.records.manifest_shape import MAX_REPEATS
from lhkit.harness.records.record import SampleId, SampleRecord, Verdict
from lhkit.harness.replay.breakage import breaking
from lhkit.harness.replay.distractors import is_distractor
from lhkit.harness.replay.environment import Environment, opened, row_keys_of, state_of
from lhkit.harness.scenarios.script import Scenario
from lhkit.models.base import ChatModel
from lhkit.models.cassette import CassetteModel
from lhkit.tools.registry import ToolRegistry
from lhkit.vocab.generation import ModelIdentity, Sampling
from lhkit.vocab.json_values import NotJsonError, canonical, plain_json

_SCENARIO = TypeAdapter(Scenario)
_SHOWN_FAULTS = 10

ModelSource: TypeAlias = ChatModel | Callable[[Scenario, ToolRegistry], ChatModel]
"""One model for all samples, or a maker of one for each (it is closed after its sample)."""


MOST_SAMPLES = 100_000
"""The most samples of one run: their records are in memory when it is shown."""
MOST_CONCURRENCY = 4_096
MOST_ATTEMPTS = 100
MOST_TOKENS = 1_000_000
"""The most tokens of one model message: more than any context has."""

_Count: TypeAlias = tuple[str, int, int]


def require_playable(
    scenarios: int,
    *,
    repeats: int = 1,
    concurrency: int = 1,
    max_attempts: int = 1,
    max_tokens: int = 1,
) -> None:
    """Refuse numbers that no run can have.

    Raises:
        UsageError: one is below 1 or beyond all use, or all samples together are too many.
    """
    counts: tuple[_Count, ...] = (
        ("repeats", repeats, MAX_REPEATS),
        ("concurrency", concurrency, MOST_CONCURRENCY),
        ("max_attempts", max_attempts, MOST_ATTEMPTS),
        ("max_tokens", max_tokens, MOST_TOKENS),
    )
    for name, number, most in counts:
        if number < 1:
            raise UsageError(f"{name}={number}: give at least 1")
        if number > most:
            raise UsageError(f"{name}={number}: give at most {most}")
    if scenarios * repeats > MOST_SAMPLES:
        raise UsageError(
            f"repeats={repeats} of {scenarios} scenarios are more than {MOST_SAMPLES} samples: "
            "give fewer, or several runs with files of their own"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One sample to play. `content_hash` covers all that could change its outcome."""

    scenario: Scenario
    repeat: int
    content_hash: str

    @property
    def sample_id(self) -> SampleId:
        """Which sample this is."""
        return SampleId(scenario=self.scenario.id, repeat=self.repeat)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One scenario, and all that the model is told in it."""

    scenario: Scenario
    identity: ModelIdentity
    instructions: str
    max_turns: int
    sampling: Sampling
    tools: Sequence[Mapping[str, Any]]
    tools_sha256: str
    scenario_sha256: str

    def job(self, repeat: int) -> Job:
        """Return one sample of this scene."""
        sampling = seeded(self.sampling, repeat)
        told = _told_sha256(self.instructions, self.max_turns, sampling, self.identity)
        content = f"{self.scenario_sha256} {self.tools_sha256} {told}"
        content_hash = hashlib.sha256(content.encode()).hexdigest()
        return Job(scenario=self.scenario, repeat=repeat, content_hash=content_hash)

    def questions(self, repeats: int) -> list[str]:
        """Return the content hash of each repeat; one hash where all ask the same."""
        different = 1 if self.sampling.seed is None else repeats
        return [self.job(repeat).content_hash for repeat in range(different)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All samples, in order."""

    scenes: tuple[Scene, ...]
    repeats: int

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Every repeat of every scene."""
        return tuple(scene.job(repeat) for scene in self.scenes for repeat in range(self.repeats))

    def kept(self, found: Iterable[SampleRecord]) -> dict[SampleId, SampleRecord]:
        """Return, by sample, the newest valid record that answers exactly what is asked now."""
        asked = {(job.sample_id, job.content_hash) for job in self.jobs}
        return {
            record.sample_id: record
            for record in found
            if (record.sample_id, record.content_hash) in asked
            and record.verdict is not Verdict.INVALID
        }

    def is_answered_by(self, found: Iterable[SampleRecord]) -> bool:
        """Return whether nothing would be left to play."""
        return len(self.kept(found)) == len(self.scenes) * self.repeats

    def openings(self, jobs: Iterable[Job]) -> tuple[Job, ...]:
        """Return one job for each instructions with tools that several of the jobs begin with."""
        scenes = {scene.scenario.id: scene for scene in self.scenes}
        groups: defaultdict[tuple[ModelIdentity, str, str], list[Job]] = defaultdict(list)
        for job in jobs:
            scene = scenes[job.scenario.id]
            groups[scene.identity, scene.instructions, scene.tools_sha256].append(job)
        return tuple(group[0] for group in groups.values() if len(group) > 1)

    @property
    def facts(self) -> dict[str, Any]:
        """What the manifest says: models, sampling, hashes of prompts, tools and scenarios."""
        locales = {scene.scenario.locale: scene for scene in self.scenes}
        return {
            "models": [asdict(each) for each in dict.fromkeys(s.identity for s in self.scenes)],
            "sampling": [asdict(each) for each in dict.fromkeys(s.sampling for s in self.scenes)],
            "repeats": self.repeats,
            "locales": {locale: _locale_facts(scene) for locale, scene in locales.items()},
            "scenarios": {each.scenario.id: each.scenario_sha256 for each in self.scenes},
            "questions": {each.scenario.id: each.questions(self.repeats) for each in self.scenes},
        }


def clock_of(source: ModelSource, *, concurrency: int) -> Callable[[], float]:
    """Return what a run measures with: a monotonic clock, or the recorded time of a cassette.

    Recorded times of conversations that play at once would add up, so these get the machine's.
    """
    if isinstance(source, CassetteModel) and concurrency == 1:
        return source.clock
    return time.perf_counter


def plan_run(
    scenarios: Sequence[Scenario], model: ModelSource, environment: Environment, *, repeats: int
) -> Plan:
    """Open each scenario's world once and return what there is to play.

    Raises:
        ScenarioError: worlds that cannot be, states that are no JSON, or scenarios that the
            model's maker refuses; a line for each of the first faults.
        UsageError: two scenarios have one id.
    """
    counted = Counter(scenario.id for scenario in scenarios)
    if counted and max(counted.values()) > 1:
        twice = ", ".join(each for each, count in counted.items() if count > 1)
        raise UsageError(f"several scenarios have one id, {twice}: give each its own")
    faults: list[str] = []
    scenes: list[Scene] = []
    specs = _Specs()
    looked_at: set[frozenset[str]] = set()
    for scenario in scenarios:
        tables = frozenset(scenario.world)
        is_first = tables not in looked_at  # of worlds like this one: states may be large
        looked_at.add(tables)
        try:
            scenes.append(_scene(scenario, model, environment, specs, look_at_state=is_first))
        except UsageError as error:
            faults += [_named(scenario.id, line) for line in str(error).splitlines()]
    if faults:
        raise ScenarioError("\n".join(_first(faults)))
    return Plan(scenes=tuple(scenes), repeats=repeats)


def _first(faults: Sequence[str]) -> list[str]:
    """Return a screen of faults; so many of one kind are mostly one mistake."""
    if len(faults) <= _SHOWN_FAULTS:
        return list(faults)
    more = f"… and {len(faults) - _SHOWN_FAULTS} more: `lhkit lint` lists all, with their lines"
    return [*faults[:_SHOWN_FAULTS], more]


def _named(scenario_id: str, line: str) -> str:
    return line if line.startswith(f"{scenario_id}.") else f"{scenario_id}.{line}"


def _scene(
    scenario: Scenario,
    model: ModelSource,
    environment: Environment,
    specs: "_Specs",
    *,
    look_at_state: bool,
) -> Scene:
    with opened(environment, scenario.world, scenario.locale) as session:
        registry, assistant = session.registry, session.assistant
        if look_at_state:
            row_keys_of(session, state_of(session))  # refuses what cannot be compared
        breaking(registry, scenario.faults)  # refuses a tool that is not there
        tools, tools_sha256 = specs.of(registry)
        return Scene(
            scenario=scenario,
            identity=chosen_model(model, scenario, registry).identity,
            instructions=assistant.instructions,
            max_turns=assistant.max_turns,
            sampling=assistant.sampling,
            tools=tools,
            tools_sha256=tools_sha256,
            scenario_sha256=scenario_hash(scenario),
        )


@lru_cache(maxsize=64)
def _told_sha256(
    instructions: str, max_turns: int, sampling: Sampling, identity: ModelIdentity
) -> str:
    """Return the hash of who is asked, and how: the same for most samples of a run."""
    model = asdict(replace(identity, base_url=""))  # it may move to a new port
    if not identity.weights:  # a name that says it all: as records were hashed before this field
        del model["weights"]
    content = {
        "instructions": instructions,
        "max_turns": max_turns,
        "sampling": asdict(sampling),
        "model": model,
    }
    return sha256(content)


class _Specs:
    """The tools of each registry as plain data with their hash; most scenarios share one.

    The hash leaves out what only the scorers know: a better word on that asks nothing anew.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[ToolRegistry, list[dict[str, Any]], str]] = {}

    def of(self, registry: ToolRegistry) -> tuple[list[dict[str, Any]], str]:
        """Return the tools of `registry`, kept alive so that its id stays its own."""
        if id(registry) not in self._known:
            specs = tool_specs(registry)
            asked = [{k: v for k, v in spec.items() if k != "implied"} for spec in specs]
            self._known[id(registry)] = (registry, specs, sha256(asked))
        _, specs, digest = self._known[id(registry)]
        return specs, digest


def chosen_model(model: ModelSource, scenario: Scenario, registry: ToolRegistry) -> ChatModel:
    """Return the model that plays `scenario`."""
    return model(scenario, registry) if callable(model) else model


def seeded(sampling: Sampling, repeat: int) -> Sampling:
    """Return the sampling of a repeat: a given seed counts up, so that repeats differ."""
    return sampling if sampling.seed is None else replace(sampling, seed=sampling.seed + repeat)


def tool_specs(registry: ToolRegistry) -> list[dict[str, Any]]:
    """Return all that the model, the gate and the scorers know of the tools, as plain data."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "destructive": tool.is_destructive,
            **({"distractor": True} if is_distractor(tool) else {}),
            **({"implied": plain_json(tool.implied)} if tool.implied else {}),
        }
        for tool in registry.definitions
    ]


def scenario_hash(scenario: Scenario) -> str:
    """Return the hash that tells whether a scenario is still the one that was played.

    Raises:
        UsageError: it holds a value that JSON cannot carry.
    """
    told = _SCENARIO.dump_python(scenario)
    if not scenario.gone:
        del told["gone"]  # runs from before there was such a field are still good
    try:
        return sha256(told)
    except NotJsonError as error:  # one made in Python: a file holds nothing else
        raise UsageError(f"the scenario is no JSON: {error}: give plain values") from error


def sha256(content: Any) -> str:
    """Return the hash of plain data, independent of the order of keys."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def _locale_facts(scene: Scene) -> dict[str, Any]:
    return {
        "instructions_sha256": sha256(scene.instructions),
        "tools_sha256": scene.tools_sha256,
        "tools": scene.tools,
    }
