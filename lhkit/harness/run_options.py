"""Options of a run, for `replay`, the command line, suites and Ray."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from lhkit.errors import UsageError
from lhkit.harness.manifest import MAX_REPEATS
from lhkit.harness.scenario import User
from lhkit.models.dialects.base import Constraint
from lhkit.precision import Dtype
from lhkit.runtimes import Runtime
from lhkit.settings import DEFAULT_TOOLSET, REPLY_TOKENS

MOST_SAMPLES = 100_000
"""The most samples of one run: their records are in memory when it is shown."""
MOST_CONCURRENCY = 4_096
MOST_ATTEMPTS = 100
MOST_TOKENS = 1_000_000
"""The most tokens of one model message: more than any context has."""

Count = Annotated[int, Field(strict=True)]


class ReplayOptions(BaseModel):
    """What is played and what is kept of it, whoever answers.

    Without `concurrency` as many conversations play at once as fit the server.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    toolset: str = DEFAULT_TOOLSET
    limit: Count | None = Field(default=None, ge=1)
    user: User = "script"
    repeats: Count = Field(default=1, ge=1, le=MAX_REPEATS)
    concurrency: Count | None = Field(default=None, ge=1, le=MOST_CONCURRENCY)
    max_attempts: Count = Field(default=3, ge=1, le=MOST_ATTEMPTS)
    max_tokens: Count = Field(default=REPLY_TOKENS, ge=1, le=MOST_TOKENS)
    keep_prompts: bool = False
    keep_states: bool = False

    def require_few(self, scenarios: int) -> None:
        """Refuse more samples than a run can show.

        Raises:
            UsageError: as the summary says.
        """
        if scenarios * self.repeats > MOST_SAMPLES:
            raise UsageError(
                f"repeats={self.repeats} of {scenarios} scenarios are more than {MOST_SAMPLES} "
                "samples: give fewer, or several runs with files of their own"
            )


class RunOptions(ReplayOptions):
    """What one run is asked for, and of which model.

    `base_urls` are addresses of servers of one model. `stress` is as `parse_stress` reads it.
    `instructions` replace the assistant's, by locale.
    """

    model: str | None = None
    base_urls: tuple[str, ...] = ()
    dialect: str = "json"
    constraint: Constraint = "off"
    dtype: Dtype | None = None
    runtime: Runtime | None = None
    stress: str = ""
    instructions: Mapping[str, str] = Field(default_factory=dict)
