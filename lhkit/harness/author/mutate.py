"""The mutation report: which mistakes of a model would a scenario not notice?

Every gold trace is spoilt in one place at a time and played through the real controller, gate,
tools and judge; it must not pass. What counts as a mistake is said in the modules of the kinds:
`wrong_calls`, `wrong_arguments`, `surplus_calls`, `wrong_words`, `skipped_gate`.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeAlias

from lhkit.errors import ScenarioError
from lhkit.harness.author.gold import trace_model
from lhkit.harness.author.mutants import Mutant, Setting, Untried, setting_of
from lhkit.harness.author.skipped_gate import skipped_gates
from lhkit.harness.author.surplus_calls import (
    duplicate_writes,
    extra_reads,
    extra_writes,
    retries_after_rejection,
)
from lhkit.harness.author.survivors import MutationReport, TriedMutant
from lhkit.harness.author.wrong_arguments import (
    added_arguments,
    altered_arguments,
    altered_quotations,
    dropped_arguments,
    swapped_values,
)
from lhkit.harness.author.wrong_calls import dropped_calls, reordered_calls, swapped_tools
from lhkit.harness.author.wrong_words import false_claims, silences, unrelated_answers
from lhkit.harness.equality import normal
from lhkit.harness.record import Evidence, Verdict
from lhkit.harness.sample import tried
from lhkit.harness.scenario import Scenario
from lhkit.harness.scoring.verdict import ToolFacts, judge
from lhkit.harness.state_diff import state_diff
from lhkit.toolset import Toolset, require_isolated

Operator: TypeAlias = Callable[[Setting], Iterator[Mutant | Untried]]

OPERATORS: Sequence[Operator] = (
    dropped_calls,
    swapped_tools,
    reordered_calls,
    dropped_arguments,
    altered_arguments,
    added_arguments,
    swapped_values,
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


async def mutate(scenarios: Sequence[Scenario], toolset: Toolset) -> MutationReport:
    """Return which mistakes each scenario notices.

    Raises:
        NotIsolatedError: sessions of the toolset share real data.
        ScenarioError: a scenario whose gold trace does not pass: `lint` says why.
    """
    require_isolated(toolset, "run mutate")
    outcomes: list[TriedMutant] = []
    untried: list[Untried] = []
    for scenario in scenarios:
        setting = await setting_of(scenario, toolset)
        if setting.gold.judgement.verdict is not Verdict.PASS:
            raise ScenarioError(f"{scenario.id}: the gold trace does not pass: run lhkit lint")
        made = [each for operator in OPERATORS for each in operator(setting)]
        untried += [each for each in made if isinstance(each, Untried)]
        for mutant in made:
            if isinstance(mutant, Mutant):
                outcomes += await _outcome(setting, mutant, toolset)
    return MutationReport(outcomes=tuple(outcomes), untried=tuple(untried))


def mutants_of(setting: Setting) -> Iterator[Mutant]:
    """Yield every mistake that matters in one scenario, but for those that cannot be made."""
    for operator in OPERATORS:
        yield from (each for each in operator(setting) if isinstance(each, Mutant))


async def _outcome(setting: Setting, mutant: Mutant, toolset: Toolset) -> tuple[TriedMutant, ...]:
    """Return what became of a mistake; nothing if it turns out to be none."""
    if mutant.evidence is not None:
        return (_named(setting, mutant, _judged(setting, mutant)),)
    model = trace_model(mutant.trace, name="mutant")
    record = await tried(setting.scenario, model, toolset)
    if mutant.needs_effect and not _has_effect(record.evidence, setting.gold.evidence):
        return ()
    return (_named(setting, mutant, record.judgement.verdict),)


def _has_effect(evidence: Evidence, gold: Evidence) -> bool:
    """Return whether another state was left behind, or not all came that came to the gold."""
    if state_diff(evidence.final_state, gold.final_state):
        return True
    return bool(_results(gold) - _results(evidence))


def _results(evidence: Evidence) -> Counter[Hashable]:
    return Counter(normal(call.result) for turn in evidence.turns for call in turn.calls)


def _named(setting: Setting, mutant: Mutant, verdict: Verdict) -> TriedMutant:
    return TriedMutant(
        scenario=setting.scenario.id,
        ac=setting.scenario.ac,
        kind=mutant.kind,
        key=mutant.key,
        change=mutant.change,
        verdict=verdict,
    )


def _judged(setting: Setting, mutant: Mutant) -> Verdict:
    tools = ToolFacts.of(setting.registry.definitions, setting.today)
    evidence = mutant.evidence or setting.gold.evidence
    judgement = judge(
        setting.scenario, evidence, tools, today=setting.today, row_keys=setting.row_keys
    )
    return judgement.verdict
