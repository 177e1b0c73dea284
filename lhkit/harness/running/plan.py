"""Planning a run: all samples with their content hashes, and the manifest.

Samples with equal content hashes are interchangeable, so a resumed run reuses their records.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from lhkit.base.errors import NotIsolatedError, ScenarioError, UsageError
from lhkit.base.locales import Catalog
from lhkit.confirm.policy import ApprovalPolicy, policy_line
from lhkit.conversation.responses import ModelIdentity, Sampling
from lhkit.harness.records.manifest import Manifest, Prompt, text_sha256, versions
from lhkit.harness.records.record import SCHEMA
from lhkit.harness.records.resume import SampleHashes
from lhkit.harness.running.fingerprint import (
    Fingerprints,
    contexts_sha256,
    model_sha256,
    scenario_hash,
    sha256,
)
from lhkit.harness.running.measured import measured_of
from lhkit.harness.running.sessions import read_row_keys
from lhkit.harness.running.tool_injection import inject_tool_failures
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.scenarios.user import User
from lhkit.models.base import ChatModel
from lhkit.models.recorded.cassette import CassetteModel
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import (
    Toolset,
    criteria_of,
    name_of,
    opened,
    read_state,
    require_isolated,
    source_sha256,
    tool_programs,
)

_SHOWN_ISSUES = 10

ModelSource: TypeAlias = ChatModel | Callable[[Scenario, ToolRegistry], ChatModel]
"""A model for all samples, or a factory that creates one for each, closed after its sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSample:
    """One sample to run. `content_hash` covers everything that can change its outcome."""

    scenario: Scenario
    repeat: int
    content_hash: str

    @property
    def sample_id(self) -> SampleId:
        """The id of the sample."""
        scenario = self.scenario
        return SampleId(scenario=scenario.id, repeat=self.repeat, wording=scenario.wording)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScenario:
    """One scenario with the hashes of everything that reaches the model in it.

    Attributes:
        contexts_sha256: of the context lines; empty if there are none.
        base_hashes: hashes of the repeats without the tools' code, or one if all are equal.
        code_sha256: of the tools' code; empty if it is unknown.
    """

    scenario: Scenario
    identity: ModelIdentity
    sampling: Sampling
    prompt: Prompt
    scenario_sha256: str
    contexts_sha256: str
    base_hashes: tuple[str, ...]
    code_sha256: str = ""

    @property
    def hashes(self) -> tuple[str, ...]:
        """The content hashes of the repeats, or one if all are equal."""
        if not self.code_sha256:
            return self.base_hashes
        return tuple(text_sha256(f"{sha256} {self.code_sha256}") for sha256 in self.base_hashes)

    def sample(self, repeat: int) -> PlannedSample:
        """Return the sample of a repeat, counted from 0."""
        content_hash = self.hashes[min(repeat, len(self.hashes) - 1)]
        return PlannedSample(scenario=self.scenario, repeat=repeat, content_hash=content_hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All samples of a run, in order.

    Attributes:
        toolset: the name of the toolset.
        code_sha256: of its code; empty if it is unknown, or if it was for the records to resume.
        policy: lets writes run without a question.
        criteria: its texts of the scenarios' criteria, by criterion and language.
        logprobs: log-probabilities are requested.
    """

    scenarios: tuple[PlannedScenario, ...]
    repeats: int
    toolset: str = ""
    user: User = "script"
    code_sha256: str = ""
    policy: ApprovalPolicy | None = None
    criteria: Mapping[str, dict[str, str]] = field(default_factory=dict)
    logprobs: bool = False

    def resuming(self, before: Manifest) -> "Plan":
        """Return the plan for a folder: without the tools' code, if its records are without it.

        Records of earlier versions of lhkit, and of code that was unknown, stay usable.
        """
        is_same = any(
            set(planned.base_hashes) & set(before.content_hashes.get(planned.scenario.name, ()))
            for planned in self.scenarios
        )
        if before.code_sha256 or not is_same:
            return self
        scenarios = tuple(replace(planned, code_sha256="") for planned in self.scenarios)
        return replace(self, scenarios=scenarios, code_sha256="")

    def at(self, base_url: str) -> "Plan":
        """Return the plan for the same model at another address, which no content hash covers."""
        scenarios = tuple(
            replace(planned, identity=replace(planned.identity, base_url=base_url))
            for planned in self.scenarios
        )
        return replace(self, scenarios=scenarios)

    @property
    def hashes(self) -> SampleHashes:
        """The content hash of every sample."""
        return SampleHashes(
            {planned.scenario.name: planned.hashes for planned in self.scenarios}, self.repeats
        )

    def samples(self) -> Iterator[PlannedSample]:
        """Yield every repeat of every scenario."""
        for planned in self.scenarios:
            for repeat in range(self.repeats):
                yield planned.sample(repeat)

    def warm_up_samples(self, samples: Iterable[PlannedSample]) -> tuple[PlannedSample, ...]:
        """Return one sample for each prompt prefix that several of `samples` share."""
        scenarios = {planned.scenario.name: planned for planned in self.scenarios}
        first: dict[tuple[ModelIdentity, str, str], PlannedSample] = {}
        counts: Counter[tuple[ModelIdentity, str, str]] = Counter()
        for sample in samples:
            planned = scenarios[sample.scenario.name]
            prompt = planned.prompt
            prefix = (planned.identity, prompt.instructions_sha256, prompt.tools_sha256)
            first.setdefault(prefix, sample)
            counts[prefix] += 1
        return tuple(sample for prefix, sample in first.items() if counts[prefix] > 1)

    def policy_lines(self, catalog: Catalog, *, file: str = "") -> list[str]:
        """Return what the policy lets run unasked, or why it does not apply.

        A line for each different thing in front, such as the prompts of two languages.

        Args:
            catalog: texts.
            file: the file of the policy, if it is from one.
        """
        if self.policy is None:
            return []
        different = {
            (planned.identity, planned.sampling, id(planned.prompt)): planned
            for planned in self.scenarios
        }
        fronts = [
            measured_of(
                asdict(planned.identity),
                {"temperature": planned.sampling.temperature},
                planned.prompt,
                planned.code_sha256,
            )
            for planned in different.values()
        ]
        lines = [policy_line(self.policy, front, catalog, file=file) for front in fronts]
        return [*dict.fromkeys(lines)]

    @property
    def manifest(self) -> Manifest:
        """The manifest of the plan: models, sampling and hashes, without invocations."""
        prompts: dict[str, Prompt] = {}
        tools: defaultdict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
        scenarios, contexts, hashes = {}, {}, {}
        several_prompts = False
        for planned in self.scenarios:
            name, locale = planned.scenario.name, planned.scenario.locale
            several_prompts |= not _is_same_prompt(prompts.get(locale), planned.prompt)
            prompts[locale] = planned.prompt
            for tool in planned.prompt.tools:
                tools[locale].setdefault(tool["name"], tool)
            scenarios[name], hashes[name] = planned.scenario_sha256, list(planned.hashes)
            if planned.contexts_sha256:
                contexts[name] = planned.contexts_sha256
        scenario_tools: dict[str, list[Any]] = {}
        for planned in self.scenarios:
            known = tools[planned.scenario.locale]
            specs = planned.prompt.tools
            listed = [t["name"] if known[t["name"]] == t else t for t in specs]
            if listed != list(known):
                scenario_tools[planned.scenario.id] = listed
        more: dict[str, Any] = {"tools": scenario_tools} if scenario_tools else {}
        if self.code_sha256:
            more["code_sha256"] = self.code_sha256
        if several_prompts:
            more["several_prompts"] = True
        if self.policy is not None:
            more["approvals"] = self.policy.model_dump(mode="json", exclude_none=True)
        if self.criteria:
            more["criteria"] = dict(self.criteria)
        if self.logprobs:
            more["logprobs"] = True
        identities = dict.fromkeys(planned.identity for planned in self.scenarios)
        samplings = dict.fromkeys(planned.sampling for planned in self.scenarios)
        return Manifest.model_construct(
            schema_version=SCHEMA,
            versions=versions(),
            models=[asdict(identity) for identity in identities],
            sampling=[asdict(sampling) for sampling in samplings],
            repeats=self.repeats,
            toolset=self.toolset,
            user=self.user,
            locales={
                locale: prompt.model_copy(update={"tools": list(tools[locale].values())})
                for locale, prompt in prompts.items()
            },
            scenarios=scenarios,
            contexts=contexts,
            content_hashes=hashes,
            **more,
        )


def _is_same_prompt(first: Prompt | None, second: Prompt) -> bool:
    """Return whether two prompts differ at most in their tools and how these are rendered."""
    names = ("instructions_sha256", "texts_sha256", "assistant")
    return first is None or all(getattr(first, n) == getattr(second, n) for n in names)


def run_clock(source: ModelSource, *, concurrency: int) -> Callable[[], float]:
    """Return the clock of a run: the machine's, or the recorded time of a cassette.

    Recorded times of concurrent conversations would add up, so these use the machine's clock.
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
    logprobs: bool = False,
    policy: ApprovalPolicy | None = None,
) -> Plan:
    """Open each scenario's initial state once and return the plan for a simulated user.

    The hashes of a run with `logprobs` differ, so that it reuses no record without them.

    Raises:
        ScenarioError: an initial state is invalid, or the model's factory refuses a scenario; one
            line for each of the first issues.
        UsageError: two scenarios have the same id.
    """
    counts = Counter(scenario.name for scenario in scenarios)
    if duplicates := [name for name, count in counts.items() if count > 1]:
        raise UsageError(
            f"Several scenarios have the same id: {', '.join(duplicates)}. Make each id unique."
        )
    issues: list[str] = []
    planned: list[PlannedScenario] = []
    fingerprints, code_sha256 = Fingerprints(), source_sha256(toolset)
    checked: set[frozenset[str]] = set()
    for scenario in scenarios:
        tables = frozenset(scenario.world)
        is_first = tables not in checked  # states may be large, so one of a kind is checked
        checked.add(tables)
        try:
            planned.append(
                _plan_scenario(
                    scenario.with_user(user),
                    model,
                    toolset,
                    fingerprints,
                    repeats,
                    code_sha256=code_sha256,
                    policy=policy,
                    checks_state=is_first,
                    logprobs=logprobs,
                )
            )
        except NotIsolatedError:  # the same for every scenario
            raise
        except UsageError as error:
            issues += [
                line if line.startswith(f"{scenario.id}.") else f"{scenario.id}.{line}"
                for line in str(error).splitlines()
            ]
    if len(issues) > _SHOWN_ISSUES:  # usually one mistake
        more = (
            f"… and {len(issues) - _SHOWN_ISSUES} more. `lhkit lint` lists all, with their lines."
        )
        issues = [*issues[:_SHOWN_ISSUES], more]
    if issues:
        raise ScenarioError("\n".join(issues))
    return Plan(
        scenarios=tuple(planned),
        repeats=repeats,
        toolset=name_of(toolset),
        user=user,
        code_sha256=code_sha256,
        policy=policy,
        criteria=used_criteria(toolset, scenarios),
        logprobs=logprobs,
    )


def _plan_scenario(
    scenario: Scenario,
    model: ModelSource,
    toolset: Toolset,
    fingerprints: Fingerprints,
    repeats: int,
    *,
    code_sha256: str,
    policy: ApprovalPolicy | None,
    checks_state: bool,
    logprobs: bool,
) -> PlannedScenario:
    with opened(toolset, scenario.world, scenario.locale) as session:
        registry, assistant = session.registry, session.assistant
        if checks_state:
            read_row_keys(session, read_state(session))  # raises for rows without their key
        # raises for an unknown tool
        inject_tool_failures(registry, scenario.tool_failures, later=scenario.called_tools)
        identity = select_model(model, scenario, registry, toolset).identity
        prompt, prompt_sha256 = fingerprints.prompt(
            scenario.locale, registry, assistant, identity, tool_programs(session)
        )
        scenario_sha256 = scenario_hash(scenario)
        contexts = contexts_sha256(scenario, assistant)
        sampling = assistant.sampling
        gate = "" if policy is None else f" {_policy_sha256(policy, registry)}"
        hashes = []
        for repeat in range(1 if sampling.seed is None else repeats):
            model_hash = model_sha256(identity, seed_sampling(sampling, repeat))
            content = f"{scenario_sha256} {contexts} {prompt_sha256} {model_hash}{gate}"
            content += " logprobs" if logprobs else ""
            hashes.append(text_sha256(content))
        return PlannedScenario(
            scenario=scenario,
            identity=identity,
            sampling=sampling,
            prompt=prompt,
            scenario_sha256=scenario_sha256,
            contexts_sha256=contexts,
            base_hashes=tuple(hashes),
            code_sha256=code_sha256,
        )


def _policy_sha256(policy: ApprovalPolicy, registry: ToolRegistry) -> str:
    """Return the hash of what decides which calls of a sample are not asked."""
    always = [tool.name for tool in registry.definitions if tool.always_ask]
    return sha256([policy.model_dump(mode="json"), always])


def used_criteria(toolset: Toolset, scenarios: Iterable[Scenario]) -> dict[str, dict[str, str]]:
    """Return a toolset's texts of the criteria of these scenarios, for the manifest.

    Raises:
        UsageError: the toolset's `criteria` are invalid.
    """
    used = {scenario.ac for scenario in scenarios}
    return {name: dict(texts) for name, texts in criteria_of(toolset).items() if name in used}


def select_model(
    source: ModelSource, scenario: Scenario, registry: ToolRegistry, toolset: Toolset
) -> ChatModel:
    """Return the model for a sample of `scenario`.

    Raises:
        NotIsolatedError: the model's calls come from a file, and sessions share real data.
    """
    model = source(scenario, registry) if callable(source) else source
    if getattr(model, "needs_isolation", False):
        require_isolated(toolset, f"run the scripted model {model.identity.model}")
    return model


def seed_sampling(sampling: Sampling, repeat: int) -> Sampling:
    """Return the sampling of a repeat: a given seed is increased, so that repeats differ."""
    return sampling if sampling.seed is None else replace(sampling, seed=sampling.seed + repeat)
