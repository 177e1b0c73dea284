"""A run before its model is open: scenarios chosen, toolset under the run's conditions."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lhkit.base.errors import UsageError
from lhkit.confirm.policy import load_policy
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.records.store import select_scenarios
from lhkit.harness.running.descriptions import check_descriptions, with_descriptions
from lhkit.harness.running.plan import ModelSource, Plan, plan_run
from lhkit.harness.running.run_options import RunOptions
from lhkit.harness.running.stress import Stress, labelled, parse_stress, stressed
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.scenarios.scenario_filter import ScenarioSelection
from lhkit.toolset import Toolset, limit_tokens
from lhkit.toolset.instructions import with_instructions

MAX_SAMPLES = 100_000
"""The most samples of one run: their records are in memory for its report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenScenarios:
    """The scenarios of a run in their wordings; `selection` is None if they are all."""

    scenarios: tuple[Scenario, ...]
    selection: ScenarioSelection | None = None


def choose_scenarios(scenarios: Sequence[Scenario], options: RunOptions) -> ChosenScenarios:
    """Return the scenarios to run.

    Raises:
        UsageError: the filter fits no scenario, or there are too many samples.
        RunError: the run of `failed` cannot be read.
    """
    selected, selection = select_scenarios(options, scenarios)
    taken = all_wordings(selected, options)
    if len(taken) * options.repeats > MAX_SAMPLES:
        raise UsageError(
            f"{options.repeats} repeats of {len(taken)} scenarios are more than {MAX_SAMPLES} "
            "samples. Use fewer, or split the scenario files over several runs."
        )
    return ChosenScenarios(scenarios=taken, selection=selection)


def all_wordings(scenarios: Sequence[Scenario], options: RunOptions) -> tuple[Scenario, ...]:
    """Return scenarios in all their wordings, if the options ask for `variants`."""
    if not options.variants:
        return tuple(scenarios)
    return tuple(wording for scenario in scenarios for wording in scenario.wordings())


def under_conditions(toolset: Toolset, options: RunOptions) -> Toolset:
    """Return a toolset with the token limit, the texts and the stress of a run.

    Raises:
        UsageError: the stress is invalid.
    """
    if options.max_tokens is not None:
        toolset = limit_tokens(toolset, options.max_tokens)
    toolset = with_instructions(toolset, options.instructions)
    toolset = with_descriptions(toolset, options.tool_descriptions)
    return stressed(toolset, parse_stress(options.stress))


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A run that needs nothing but a model. Create it with `prepare_run`."""

    options: RunOptions
    chosen: ChosenScenarios
    toolset: Toolset
    stress: Stress
    _plans: dict[ModelIdentity, Plan] = field(default_factory=dict, init=False, repr=False)

    def label(self, model: ModelSource) -> ModelSource:
        """Return the model as it runs: its identity has the label of the stress."""
        return labelled(model, self.stress)

    def plan(self, model: ModelSource) -> Plan:
        """Return the plan with a model.

        Raises:
            UsageError: as `plan_run`.
        """
        if callable(model):  # it may create another model for each scenario
            return self._plan(model)
        # once for a model, wherever it is served: every scenario is opened for it
        identity = replace(model.identity, base_url="")
        if identity not in self._plans:
            self._plans[identity] = self._plan(model)
        return self._plans[identity].at(model.identity.base_url)

    def _plan(self, model: ModelSource) -> Plan:
        return plan_run(
            self.chosen.scenarios,
            self.label(model),
            self.toolset,
            repeats=self.options.repeats,
            user=self.options.user,
            logprobs=self.options.logprobs,
            policy=self.options.approvals,
        )


def prepare_run(chosen: ChosenScenarios, toolset: Toolset, options: RunOptions) -> PreparedRun:
    """Return a run of chosen scenarios.

    Raises:
        UsageError: the stress, the descriptions or the policy of approvals are invalid.
    """
    check_descriptions(options.tool_descriptions, toolset, chosen.scenarios)
    if options.approvals is not None:
        policy = load_policy(options.approvals)
        logprobs = options.logprobs or (policy is not None and policy.reads_logprobs)
        options = options.derive(approvals=policy, logprobs=logprobs)
    return PreparedRun(
        options=options,
        chosen=chosen,
        toolset=under_conditions(toolset, options),
        stress=parse_stress(options.stress),
    )
