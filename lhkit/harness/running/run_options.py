"""The options of a run, each declared once: for `replay`, the command line, suites, pytest and Ray.

A value and its limits, nothing else: light enough for the help of a command.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from lhkit.base.options import DEFAULT_TOOLSET, validate_options
from lhkit.harness.scenarios.sample_id import MAX_REPEATS
from lhkit.harness.scenarios.scenario_filter import Count, FilterOverrides, ScenarioFilter
from lhkit.harness.scenarios.user import User
from lhkit.models.decoding import Constraint
from lhkit.models.precision import Dtype
from lhkit.models.runtimes import Runtime

MAX_CONCURRENCY = 4_096
MAX_ATTEMPTS = 100
MAX_TOKENS = 1_000_000
"""The most tokens of one model message, above any context length."""

Text: TypeAlias = Annotated[str, Field(pattern=r"\S")]
"""A text with more than white space."""


class RunOptions(ScenarioFilter):
    """Options of a run: selection, conditions, storage.

    The first eight say how to open the model and the toolset; `replay`, which is given both, reads
    the rest.
    """

    model: str | None = None
    """The model: an embedded or scripted one, or as its server names it."""
    base_url: str | None = None
    """The address of a running server."""
    toolset: str = DEFAULT_TOOLSET
    """The reference of the toolset."""
    dialect: str | None = None
    """The format of tool calls; None for that of the model's family."""
    chat_template: Path | None = None
    """File or folder of the model's chat template."""
    constraint: Constraint = "off"
    """How decoding is constrained."""
    dtype: Dtype | None = None
    """The number type of an embedded model; None for that of the settings."""
    runtime: Runtime | None = None
    """The server of an embedded model; None for that of the settings."""

    user: User = "script"
    """The simulated user at the confirmation (`Scenario.with_user`)."""
    stress: str = ""
    """Harder conditions: the text for `parse_stress`."""
    instructions: Mapping[str, str] = Field(default_factory=dict)
    """Replacements of the assistant's instructions, by locale."""
    tool_descriptions: Mapping[str, Text | Mapping[str, Text]] = Field(default_factory=dict)
    """Replacements of the descriptions of tools (`find_item`) and of their parameters
    (`find_item.query`): a text, or one for each locale."""
    repeats: Count = Field(default=1, ge=1, le=MAX_REPEATS)
    """Samples per scenario."""
    variants: bool = False
    """Whether to run each scenario in all wordings of its user messages, each `repeats` times."""
    concurrency: Count | None = Field(default=None, ge=1, le=MAX_CONCURRENCY)
    """Conversations at a time; None for what the server can run at once, and for 1 in `replay`."""
    max_attempts: Count = Field(default=3, ge=1, le=MAX_ATTEMPTS)
    """Attempts per sample, if its errors may pass."""
    max_tokens: Count | None = Field(default=None, ge=1, le=MAX_TOKENS)
    """Most tokens of a model message; None for `REPLY_TOKENS`, and for the assistant's own limit in
    `replay`."""
    keep_prompts: bool = False
    """Whether to store the text of prompts, not only their hash."""
    keep_states: bool = False
    """Whether to store the initial and final states, not only the changes."""
    logprobs: bool = False
    """Whether to request the log-probabilities of the model's tokens, for `min_logprob` and
    `mean_logprob` of calls. Answers take longer."""
    approvals: Any = None
    """The policy of approvals (`ApprovalPolicy`) or its file: the writes that it lets through are
    not asked. Never by default."""
    scores: tuple[Any, ...] = ()
    """Scores of the user, or their references, besides those of the toolset (see `scores`)."""

    def derive(self, **changes: Any) -> "RunOptions":
        """Return these options, without those of a subclass, with other values.

        Raises:
            UsageError: a value is invalid.
        """
        values = {name: getattr(self, name) for name in RunOptions.model_fields}
        return validate_options(RunOptions, **{**values, **changes})


class RunOverrides(FilterOverrides, total=False):
    """The fields of `RunOptions` that `replay` reads, as keywords, for type checkers."""

    user: User
    stress: str
    instructions: Mapping[str, str]
    tool_descriptions: Mapping[str, str | Mapping[str, str]]
    repeats: int
    variants: bool
    concurrency: int | None
    max_attempts: int
    max_tokens: int | None
    keep_prompts: bool
    keep_states: bool
    logprobs: bool
    approvals: Any
    scores: Sequence[Any]
