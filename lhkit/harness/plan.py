"""What a run has to do: every sample with its content hash, and the facts for the manifest.

Two samples with the same hash are the same question to the same model: the answer is kept.
"""

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from lhkit.errors import NotIsolatedError, ScenarioError, UsageError
from lhkit.harness.fingerprint import (
    Briefing,
    Fingerprints,
    asked_sha256,
    contexts_sha256,
    scenario_hash,
)
from lhkit.harness.record import SampleId, SampleRecord, Verdict
from lhkit.harness.resume import Answered, Questions
from lhkit.harness.scenario import Scenario, User
from lhkit.harness.scripted_faults import breaking
from lhkit.harness.sessions import row_keys_of
from lhkit.models.base import ChatModel, PerConversation
from lhkit.models.cassette import CassetteModel
from lhkit.responses import ModelIdentity, Sampling
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset, name_of, opened, require_isolated, runs_on_of, state_of

_SHOWN_FAULTS = 10

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
    """One scenario, and all that the model is told in it.

    `contexts_sha256` is of the lines that stand beside the user's; empty where there are none.
    """

    scenario: Scenario
    identity: ModelIdentity
    sampling: Sampling
    told: Briefing
    told_sha256: str
    scenario_sha256: str
    contexts_sha256: str

    def job(self, repeat: int) -> Job:
        """Return one sample of this scene."""
        asked = asked_sha256(self.identity, seeded(self.sampling, repeat))
        content = f"{self.scenario_sha256} {self.contexts_sha256} {self.told_sha256} {asked}"
        content_hash = hashlib.sha256(content.encode()).hexdigest()
        return Job(scenario=self.scenario, repeat=repeat, content_hash=content_hash)

    def questions(self, repeats: int) -> list[str]:
        """Return the content hash of each repeat; one hash where all ask the same."""
        different = 1 if self.sampling.seed is None else repeats
        return [self.job(repeat).content_hash for repeat in range(different)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All samples, in order. `toolset` is the name of what they are played in."""

    scenes: tuple[Scene, ...]
    repeats: int
    toolset: str = ""
    user: User = "script"

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Every repeat of every scene."""
        return tuple(self.each_job())

    @property
    def questions(self) -> Questions:
        """The content hash of every sample."""
        hashes = {each.scenario.id: each.questions(self.repeats) for each in self.scenes}
        return Questions(hashes, self.repeats)

    def each_job(self) -> Iterator[Job]:
        """Yield every repeat of every scene, and hold none."""
        for scene in self.scenes:
            hashes = scene.questions(self.repeats)
            for repeat in range(self.repeats):
                content_hash = hashes[min(repeat, len(hashes) - 1)]
                yield Job(scenario=scene.scenario, repeat=repeat, content_hash=content_hash)

    def kept(self, found: Iterable[SampleRecord]) -> dict[SampleId, SampleRecord]:
        """Return, by sample, the newest valid record that answers exactly what is asked now."""
        asked = self.questions
        return {
            record.sample_id: record
            for record in found
            if asked.get(record.sample_id) == record.content_hash
            and record.judgement.verdict is not Verdict.INVALID
        }

    def is_answered_by(self, found: Iterable[Answered]) -> bool:
        """Return whether nothing would be left to play."""
        asked = self.questions
        valid = {
            sample
            for (sample, question), is_valid in found
            if is_valid and asked.get(sample) == question
        }
        return len(valid) == len(asked)

    def openings(self, jobs: Iterable[Job]) -> tuple[Job, ...]:
        """Return one job for each instructions with tools that several of the jobs begin with."""
        scenes = {scene.scenario.id: scene for scene in self.scenes}
        first: dict[tuple[ModelIdentity, str, str], Job] = {}
        counted: Counter[tuple[ModelIdentity, str, str]] = Counter()
        for job in jobs:
            scene = scenes[job.scenario.id]
            beginning = (scene.identity, scene.told.instructions, scene.told.tools_sha256)
            first.setdefault(beginning, job)
            counted[beginning] += 1
        return tuple(job for beginning, job in first.items() if counted[beginning] > 1)

    @property
    def facts(self) -> dict[str, Any]:
        """What the manifest says: toolset, models, sampling, hashes of prompts and scenarios."""
        locales = {scene.scenario.locale: scene for scene in self.scenes}
        tools = self._tools
        return {
            "models": [asdict(each) for each in dict.fromkeys(s.identity for s in self.scenes)],
            "sampling": [asdict(each) for each in dict.fromkeys(s.sampling for s in self.scenes)],
            "repeats": self.repeats,
            "toolset": self.toolset,
            "user": self.user,
            "locales": {
                locale: {**scene.told.facts(), "tools": list(tools[locale].values())}
                for locale, scene in locales.items()
            },
            **self._own_tools,
            "scenarios": {each.scenario.id: each.scenario_sha256 for each in self.scenes},
            "contexts": {
                each.scenario.id: each.contexts_sha256
                for each in self.scenes
                if each.contexts_sha256
            },
            "questions": {each.scenario.id: each.questions(self.repeats) for each in self.scenes},
        }

    @property
    def _tools(self) -> dict[str, dict[str, Mapping[str, Any]]]:
        """The tools of all scenarios of a language, by name."""
        found: defaultdict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
        for scene in self.scenes:
            for tool in scene.told.tools:
                found[scene.scenario.locale].setdefault(tool["name"], tool)
        return found

    @property
    def _own_tools(self) -> dict[str, dict[str, list[str]]]:
        """The names of the tools of each scenario that has not all of its language."""
        tools = self._tools
        named = {
            scene.scenario.id: [tool["name"] for tool in scene.told.tools]
            for scene in self.scenes
            if len(scene.told.tools) < len(tools[scene.scenario.locale])
        }
        return {"tools": named} if named else {}


def clock_of(source: ModelSource, *, concurrency: int) -> Callable[[], float]:
    """Return what a run measures with: a monotonic clock, or the recorded time of a cassette.

    Recorded times of conversations that play at once would add up, so these get the machine's.
    """
    if isinstance(source, CassetteModel) and concurrency == 1:
        return source.clock
    return time.perf_counter


def plan_run(
    scenarios: Sequence[Scenario],
    model: ModelSource,
    toolset: Toolset,
    *,
    repeats: int,
    user: User = "script",
) -> Plan:
    """Open each scenario's world once and return what there is to play, as `user` would click.

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
    known = Fingerprints()
    looked_at: set[frozenset[str]] = set()
    for scenario in (each.played_by(user) for each in scenarios):
        tables = frozenset(scenario.world)
        is_first = tables not in looked_at  # of worlds like this one: states may be large
        looked_at.add(tables)
        try:
            scenes.append(_scene(scenario, model, toolset, known, look_at_state=is_first))
        except NotIsolatedError:  # of the toolset: the same for every scenario
            raise
        except UsageError as error:
            faults += [_named(scenario.id, line) for line in str(error).splitlines()]
    if faults:
        raise ScenarioError("\n".join(_first(faults)))
    return Plan(scenes=tuple(scenes), repeats=repeats, toolset=name_of(toolset), user=user)


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
    toolset: Toolset,
    known: "Fingerprints",
    *,
    look_at_state: bool,
) -> Scene:
    with opened(toolset, scenario.world, scenario.locale) as session:
        registry, assistant = session.registry, session.assistant
        if look_at_state:
            row_keys_of(session, state_of(session))  # refuses what cannot be compared
        # refuses a tool that is not there
        breaking(registry, scenario.faults, coming=scenario.called)
        identity = chosen_model(model, scenario, registry, toolset).identity
        runs_on = runs_on_of(session)
        told, told_sha256 = known.told(scenario.locale, registry, assistant, identity, runs_on)
        return Scene(
            scenario=scenario,
            identity=identity,
            sampling=assistant.sampling,
            told=told,
            told_sha256=told_sha256,
            scenario_sha256=scenario_hash(scenario),
            contexts_sha256=contexts_sha256(scenario, assistant),
        )


def chosen_model(
    model: ModelSource, scenario: Scenario, registry: ToolRegistry, toolset: Toolset
) -> ChatModel:
    """Return the model that plays `scenario`.

    Raises:
        NotIsolatedError: its calls come from a file, and the toolset's sessions share real data.
    """
    if callable(model):
        chosen = model(scenario, registry)
    else:
        chosen = model.conversation() if isinstance(model, PerConversation) else model
    if getattr(chosen, "needs_isolation", False):
        require_isolated(toolset, f"run the scripted model {chosen.identity.model}")
    return chosen


def seeded(sampling: Sampling, repeat: int) -> Sampling:
    """Return the sampling of a repeat: a given seed counts up, so that repeats differ."""
    return sampling if sampling.seed is None else replace(sampling, seed=sampling.seed + repeat)
