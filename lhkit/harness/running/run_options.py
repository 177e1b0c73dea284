"""Options of a run, for `replay`, the command line, suites and Ray."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from lhkit.base.errors import UsageError
from lhkit.base.options import DEFAULT_TOOLSET, REPLY_TOKENS
from lhkit.harness.records.manifest import MAX_REPEATS
from lhkit.harness.records.store import select_scenarios
from lhkit.harness.scenarios.scenario import Scenario, User
from lhkit.harness.scenarios.scenario_filter import Count, ScenarioFilter, ScenarioSelection
from lhkit.models.dialects.base import Constraint
from lhkit.models.precision import Dtype
from lhkit.models.runtimes import Runtime

MAX_SAMPLES = 100_000
"""The most samples of one run: their records are in memory for its report."""
MAX_CONCURRENCY = 4_096
MAX_ATTEMPTS = 100
MAX_TOKENS = 1_000_000
"""The most tokens of one model message, above any context length."""


class ReplayOptions(ScenarioFilter):
    """What is run and what is stored, independent of the model.

    The default of `concurrency` is what the server can run at once.
    """

    toolset: str = DEFAULT_TOOLSET
    user: User = "script"
    variants: bool = False
    repeats: Count = Field(default=1, ge=1, le=MAX_REPEATS)
    concurrency: Count | None = Field(default=None, ge=1, le=MAX_CONCURRENCY)
    max_attempts: Count = Field(default=3, ge=1, le=MAX_ATTEMPTS)
    max_tokens: Count = Field(default=REPLY_TOKENS, ge=1, le=MAX_TOKENS)
    keep_prompts: bool = False
    keep_states: bool = False

    def expand(self, scenarios: Iterable[Scenario]) -> tuple[Scenario, ...]:
        """Return scenarios in all their wordings, if `variants` are requested."""
        return tuple(
            wording
            for scenario in scenarios
            for wording in (scenario.wordings() if self.variants else (scenario,))
        )

    def choose(
        self, scenarios: Sequence[Scenario]
    ) -> tuple[tuple[Scenario, ...], ScenarioSelection | None]:
        """Return the scenarios to run, and how they were selected; None if they are all.

        Raises:
            UsageError: the filter fits no scenario, or there are too many samples.
            RunError: the run of `failed` cannot be read.
        """
        taken, selection = select_scenarios(self, scenarios)
        wordings = self.expand(taken)
        if len(wordings) * self.repeats > MAX_SAMPLES:
            raise UsageError(
                f"{self.repeats} repeats of {len(wordings)} scenarios are more than {MAX_SAMPLES} "
                "samples. Use fewer, or split the scenario files over several runs."
            )
        return wordings, selection


class RunOptions(ReplayOptions):
    """The options of one run, with its model.

    Attributes:
        base_urls: servers of the same model.
        dialect: format of tool calls; None takes that of the model's family.
        chat_template: file or folder of the model's chat template.
        stress: the text for `parse_stress`.
        instructions: replacements of the assistant's instructions, by locale.
    """

    model: str | None = None
    base_urls: tuple[str, ...] = ()
    dialect: str | None = None
    chat_template: Path | None = None
    constraint: Constraint = "off"
    dtype: Dtype | None = None
    runtime: Runtime | None = None
    stress: str = ""
    instructions: Mapping[str, str] = Field(default_factory=dict)
