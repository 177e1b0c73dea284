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
    Fingerprints,
    PromptFingerprint,
    asked_sha256,
    contexts_sha256,
    scenario_hash,
)
from lhkit.harness.manifest import Manifest, versions
from lhkit.harness.record import SCHEMA, SampleId, SampleRecord, Verdict
from lhkit.harness.resume import Answered, Questions
from lhkit.harness.scenario import Scenario, User
from lhkit.harness.scripted_faults import breaking
from lhkit.harness.sessions import row_keys_of
from lhkit.models.base import ChatModel, PerConversation
from lhkit.models.cassette import CassetteModel
from lhkit.responses import ModelIdentity, Sampling
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset, name_of, opened, read_state, require_isolated, tool_programs

_SHOWN_FAULTS = 10

ModelSource: TypeAlias = ChatModel | Callable[[Scenario, ToolRegistry], ChatModel]
"""One model for all samples, or a maker of one for each (it is closed after its sample)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSample:
    """One sample to play. `content_hash` covers all that could change its outcome."""

    scenario: Scenario
    repeat: int
    content_hash: str

    @property
    def sample_id(self) -> SampleId:
        """Which sample this is."""
        return SampleId(scenario=self.scenario.id, repeat=self.repeat)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScenario:
    """One scenario, and all that reaches the model in it.

    `hashes` are the content hashes of its repeats, or one where all ask the same. `contexts_sha256`
    is of the lines that stand beside the user's; empty where there are none.
    """

    scenario: Scenario
    identity: ModelIdentity
    sampling: Sampling
    prompt: PromptFingerprint
    scenario_sha256: str
    contexts_sha256: str
    hashes: tuple[str, ...]

    def job(self, repeat: int) -> PlannedSample:
        """Return one sample of this scenario."""
        content_hash = self.hashes[min(repeat, len(self.hashes) - 1)]
        return PlannedSample(scenario=self.scenario, repeat=repeat, content_hash=content_hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All samples, in order. `toolset` is the name of what they are played in."""

    scenarios: tuple[PlannedScenario, ...]
    repeats: int
    toolset: str = ""
    user: User = "script"

    @property
    def jobs(self) -> tuple[PlannedSample, ...]:
        """Every repeat of every scenario."""
        return tuple(self.each_job())

    @property
    def questions(self) -> Questions:
        """The content hash of every sample."""
        hashes = {each.scenario.id: each.hashes for each in self.scenarios}
        return Questions(hashes, self.repeats)

    def each_job(self) -> Iterator[PlannedSample]:
        """Yield every repeat of every scenario, and hold none."""
        for planned in self.scenarios:
            for repeat in range(self.repeats):
                yield planned.job(repeat)

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

    def openings(self, jobs: Iterable[PlannedSample]) -> tuple[PlannedSample, ...]:
        """Return one job for each instructions with tools that several of the jobs begin with."""
        scenarios = {each.scenario.id: each for each in self.scenarios}
        first: dict[tuple[ModelIdentity, str, str], PlannedSample] = {}
        counted: Counter[tuple[ModelIdentity, str, str]] = Counter()
        for job in jobs:
            planned = scenarios[job.scenario.id]
            prompt = planned.prompt
            beginning = (planned.identity, prompt.instructions, prompt.tools_sha256)
            first.setdefault(beginning, job)
            counted[beginning] += 1
        return tuple(job for beginning, job in first.items() if counted[beginning] > 1)

    @property
    def manifest(self) -> Manifest:
        """What the manifest says of the plan: models, sampling, and hashes of all that was asked.

        Under `tools` are the names of the tools of each scenario that has not all of its language.
        """
        prompts: dict[str, PromptFingerprint] = {}
        tools: defaultdict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
        scenarios, contexts, questions = {}, {}, {}
        for each in self.scenarios:
            name, locale = each.scenario.id, each.scenario.locale
            prompts[locale] = each.prompt
            for tool in each.prompt.tools:
                tools[locale].setdefault(tool["name"], tool)
            scenarios[name], questions[name] = each.scenario_sha256, list(each.hashes)
            if each.contexts_sha256:
                contexts[name] = each.contexts_sha256
        own_tools = {
            each.scenario.id: [tool["name"] for tool in each.prompt.tools]
            for each in self.scenarios
            if len(each.prompt.tools) < len(tools[each.scenario.locale])
        }
        more: dict[str, Any] = {"tools": own_tools} if own_tools else {}
        identities = dict.fromkeys(each.identity for each in self.scenarios)
        samplings = dict.fromkeys(each.sampling for each in self.scenarios)
        return Manifest.model_construct(
            schema_version=SCHEMA,
            versions=versions(),
            models=[asdict(each) for each in identities],
            sampling=[asdict(each) for each in samplings],
            repeats=self.repeats,
            toolset=self.toolset,
            user=self.user,
            locales={
                locale: prompt.facts(list(tools[locale].values()))
                for locale, prompt in prompts.items()
            },
            scenarios=scenarios,
            contexts=contexts,
            questions=questions,
            **more,
        )


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
    planned: list[PlannedScenario] = []
    known = Fingerprints()
    looked_at: set[frozenset[str]] = set()
    for scenario in scenarios:
        tables = frozenset(scenario.world)
        is_first = tables not in looked_at  # of worlds like this one: states may be large
        looked_at.add(tables)
        try:
            planned.append(
                _planned(
                    scenario.played_by(user), model, toolset, known, repeats, look_at_state=is_first
                )
            )
        except NotIsolatedError:  # of the toolset: the same for every scenario
            raise
        except UsageError as error:
            faults += [
                line if line.startswith(f"{scenario.id}.") else f"{scenario.id}.{line}"
                for line in str(error).splitlines()
            ]
    if len(faults) > _SHOWN_FAULTS:  # so many of one kind are mostly one mistake
        more = f"… and {len(faults) - _SHOWN_FAULTS} more: `lhkit lint` lists all, with their lines"
        faults = [*faults[:_SHOWN_FAULTS], more]
    if faults:
        raise ScenarioError("\n".join(faults))
    return Plan(scenarios=tuple(planned), repeats=repeats, toolset=name_of(toolset), user=user)


def _planned(
    scenario: Scenario,
    model: ModelSource,
    toolset: Toolset,
    known: Fingerprints,
    repeats: int,
    *,
    look_at_state: bool,
) -> PlannedScenario:
    with opened(toolset, scenario.world, scenario.locale) as session:
        registry, assistant = session.registry, session.assistant
        if look_at_state:
            row_keys_of(session, read_state(session))  # refuses what cannot be compared
        # refuses a tool that is not there
        breaking(registry, scenario.faults, coming=scenario.called)
        identity = chosen_model(model, scenario, registry, toolset).identity
        prompt, prompt_sha256 = known.prompt(
            scenario.locale, registry, assistant, identity, tool_programs(session)
        )
        scenario_sha256 = scenario_hash(scenario)
        contexts = contexts_sha256(scenario, assistant)
        sampling = assistant.sampling
        hashes = []
        for repeat in range(1 if sampling.seed is None else repeats):
            asked = asked_sha256(identity, seeded(sampling, repeat))
            content = f"{scenario_sha256} {contexts} {prompt_sha256} {asked}"
            hashes.append(hashlib.sha256(content.encode()).hexdigest())
        return PlannedScenario(
            scenario=scenario,
            identity=identity,
            sampling=sampling,
            prompt=prompt,
            scenario_sha256=scenario_sha256,
            contexts_sha256=contexts,
            hashes=tuple(hashes),
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
