"""The mutation report: which mistakes of a model would a scenario not notice?

Every gold trace is spoilt in one place at a time and played through the real controller, gate,
tools and judge; it must not pass. What counts as a mistake is said in the modules of the kinds:
`wrong_calls`, `wrong_arguments`, `surplus_calls`, `wrong_words`, `skipped_gate`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from lhkit.errors import ScenarioError
from lhkit.harness.authoring.gold import trace_model
from lhkit.harness.authoring.mutate.mutant import ADVICE, Mutant, Setting, setting_of
from lhkit.harness.authoring.mutate.report import MutationReport, Outcome, Survivors, read_survivors
from lhkit.harness.authoring.mutate.skipped_gate import skipped_gates
from lhkit.harness.authoring.mutate.surplus_calls import (
    duplicate_writes,
    extra_reads,
    extra_writes,
    retries_after_rejection,
)
from lhkit.harness.authoring.mutate.wrong_arguments import (
    altered_arguments,
    altered_quotations,
    dropped_arguments,
)
from lhkit.harness.authoring.mutate.wrong_calls import dropped_calls, reordered_calls, swapped_tools
from lhkit.harness.authoring.mutate.wrong_words import false_claims, silences, unrelated_answers
from lhkit.harness.records.record import Verdict
from lhkit.harness.records.state_diff import state_diff
from lhkit.harness.replay.environment import Environment
from lhkit.harness.replay.trial import tried
from lhkit.harness.scenarios.script import Scenario
from lhkit.harness.verdicts.scorers import ToolFacts, judge

__all__ = [
    "ADVICE",
    "Mutant",
    "MutationReport",
    "Outcome",
    "Survivors",
    "mutants_of",
    "mutate",
    "read_survivors",
]

Operator: TypeAlias = Callable[[Setting], Iterator[Mutant]]

OPERATORS: Sequence[Operator] = (
    dropped_calls,
    swapped_tools,
    reordered_calls,
    dropped_arguments,
    altered_arguments,
    altered_quotations,
    extra_writes,
    duplicate_writes,
    extra_reads,
    skipped_gates,
    retries_after_rejection,
    false_claims,
    silences,
    unrelated_answers,
)


async def mutate(scenarios: Sequence[Scenario], environment: Environment) -> MutationReport:
    """Return which mistakes each scenario notices.

    Raises:
        ScenarioError: a scenario whose gold trace does not pass: `lint` says why.
    """
    outcomes: list[Outcome] = []
    for scenario in scenarios:
        setting = await setting_of(scenario, environment)
        if setting.gold.verdict is not Verdict.PASS:
            raise ScenarioError(f"{scenario.id}: the gold trace does not pass: run lhkit lint")
        for mutant in mutants_of(setting):
            outcomes += await _outcome(setting, mutant, environment)
    return MutationReport(outcomes=tuple(outcomes))


def mutants_of(setting: Setting) -> Iterator[Mutant]:
    """Yield every mistake that matters in one scenario."""
    for operator in OPERATORS:
        yield from operator(setting)


async def _outcome(
    setting: Setting, mutant: Mutant, environment: Environment
) -> tuple[Outcome, ...]:
    """Return what became of a mistake; nothing if it turns out to be none."""
    if mutant.evidence is not None:
        return (_named(setting, mutant, _judged(setting, mutant)),)
    model = trace_model(mutant.trace, name="mutant")
    record = await tried(setting.scenario, model, environment)
    if mutant.needs_effect and not state_diff(record.final_state, setting.gold.final_state):
        return ()
    return (_named(setting, mutant, record.verdict),)


def _named(setting: Setting, mutant: Mutant, verdict: Verdict) -> Outcome:
    return Outcome(
        scenario=setting.scenario.id,
        ac=setting.scenario.ac,
        kind=mutant.kind,
        key=mutant.key,
        change=mutant.change,
        verdict=verdict,
    )


def _judged(setting: Setting, mutant: Mutant) -> Verdict:
    tools = ToolFacts(
        schemas={tool.name: tool.schema_on(setting.today) for tool in setting.registry.definitions},
        destructive=setting.registry.destructive,
    )
    evidence = mutant.evidence or setting.gold.evidence
    judgement = judge(
        setting.scenario, evidence, tools, today=setting.today, row_keys=setting.row_keys
    )
    return judgement.verdict
