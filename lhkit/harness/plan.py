"""What a run has to do: every sample with its content hash, and the facts for the manifest.

Two samples with the same hash are the same question to the same model: the answer is kept.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from lhkit.errors import ScenarioError, UsageError
from lhkit.harness.environment import Environment
from lhkit.harness.record import SampleId
from lhkit.harness.script import Scenario
from lhkit.models.base import ChatModel
from lhkit.tools.registry import ToolRegistry
from lhkit.vocab.generation import ModelIdentity, Sampling
from lhkit.vocab.json_values import canonical

ModelSource: TypeAlias = ChatModel | Callable[[Scenario, ToolRegistry], ChatModel]
"""One model for all samples, or a maker of one for each (it is closed after its sample)."""


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

    def job(self, repeat: int) -> Job:
        """Return one sample of this scene."""
        content = {
            "scenario": asdict(self.scenario),
            "tools": self.tools,
            "instructions": self.instructions,
            "max_turns": self.max_turns,
            "sampling": asdict(seeded(self.sampling, repeat)),
            "model": asdict(replace(self.identity, base_url="")),  # it may move to a new port
        }
        return Job(scenario=self.scenario, repeat=repeat, content_hash=sha256(content))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All samples, in order."""

    scenes: tuple[Scene, ...]
    repeats: int

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Every repeat of every scene."""
        return tuple(scene.job(repeat) for scene in self.scenes for repeat in range(self.repeats))

    @property
    def facts(self) -> dict[str, Any]:
        """What the manifest says: models, sampling, hashes of prompts, tools and scenarios."""
        models = {scene.identity: asdict(scene.identity) for scene in self.scenes}
        samplings = {scene.sampling: asdict(scene.sampling) for scene in self.scenes}
        return {
            "models": list(models.values()),
            "sampling": list(samplings.values()),
            "repeats": self.repeats,
            "locales": {scene.scenario.locale: _locale_facts(scene) for scene in self.scenes},
            "scenarios": {each.scenario.id: sha256(asdict(each.scenario)) for each in self.scenes},
        }


def plan_run(
    scenarios: Sequence[Scenario], model: ModelSource, environment: Environment, *, repeats: int
) -> Plan:
    """Open each scenario's world once and return what there is to play.

    Raises:
        ScenarioError: worlds that cannot be, or scenarios that the model's maker refuses; one line
            per fault.
        UsageError: two scenarios have one id.
    """
    counted = Counter(scenario.id for scenario in scenarios)
    if counted and max(counted.values()) > 1:
        twice = ", ".join(each for each, count in counted.items() if count > 1)
        raise UsageError(f"several scenarios have one id: {twice}")
    faults: list[str] = []
    scenes: list[Scene] = []
    for scenario in scenarios:
        try:
            scenes.append(_scene(scenario, model, environment))
        except UsageError as error:
            faults += [_named(scenario.id, line) for line in str(error).splitlines()]
    if faults:
        raise ScenarioError("\n".join(faults))
    return Plan(scenes=tuple(scenes), repeats=repeats)


def _named(scenario_id: str, line: str) -> str:
    return line if line.startswith(f"{scenario_id}.") else f"{scenario_id}.{line}"


def _scene(scenario: Scenario, model: ModelSource, environment: Environment) -> Scene:
    with closing(environment.open(scenario.world, scenario.locale)) as session:
        registry, assistant = session.registry, session.assistant
        return Scene(
            scenario=scenario,
            identity=chosen_model(model, scenario, registry).identity,
            instructions=assistant.instructions,
            max_turns=assistant.max_turns,
            sampling=assistant.sampling,
            tools=tool_specs(registry),
        )


def chosen_model(model: ModelSource, scenario: Scenario, registry: ToolRegistry) -> ChatModel:
    """Return the model that plays `scenario`."""
    return model(scenario, registry) if callable(model) else model


def seeded(sampling: Sampling, repeat: int) -> Sampling:
    """Return the sampling of a repeat: a given seed counts up, so that repeats differ."""
    return sampling if sampling.seed is None else replace(sampling, seed=sampling.seed + repeat)


def tool_specs(registry: ToolRegistry) -> list[dict[str, Any]]:
    """Return all that the model and the gate know of the tools, as plain data."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "destructive": tool.is_destructive,
        }
        for tool in registry.definitions
    ]


def sha256(content: Any) -> str:
    """Return the hash of plain data, independent of the order of keys."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def _locale_facts(scene: Scene) -> dict[str, Any]:
    return {
        "instructions_sha256": sha256(scene.instructions),
        "tools_sha256": sha256(scene.tools),
        "tools": scene.tools,
    }
