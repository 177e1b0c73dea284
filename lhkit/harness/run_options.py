"""What a run is asked for: each option once, for `replay`, the command line, suites and Ray.

A field with a description is an option of `lhkit eval`.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from lhkit.errors import UsageError
from lhkit.harness.manifest import MAX_REPEATS
from lhkit.harness.scenario import User
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.base import Constraint
from lhkit.precision import Dtype
from lhkit.settings import DEFAULT_TOOLSET, REPLY_TOKENS, Runtime

MOST_SAMPLES = 100_000
"""The most samples of one run: their records are in memory when it is shown."""
MOST_CONCURRENCY = 4_096
MOST_ATTEMPTS = 100
MOST_TOKENS = 1_000_000
"""The most tokens of one model message: more than any context has."""

ToolsetReference = Annotated[
    str,
    Field(
        description="Tools of your own: FILE.py:NAME, package.module:NAME or mcp:SERVER; then give "
        "PATHS.",
        json_schema_extra={"metavar": "FILE.py:NAME"},
    ),
]
ModelName = Annotated[
    str | None,
    Field(
        description="gemma or gemma-base (embedded), gold, silent (the no-op baseline); "
        "with --base-url a served name."
    ),
]
DialectName = Annotated[
    str,
    Field(
        description=f"How calls are written: {', '.join(DIALECTS)}; openai: the server parses them."
    ),
]
ConstraintName = Annotated[
    Constraint,
    Field(
        description="Decoding: off, auto (words or a valid call), required (a valid call).",
        json_schema_extra={"option": "--constrain"},
    ),
]
DtypeName = Annotated[
    Dtype | None,
    Field(
        description="bfloat16 or float32. Default: LHKIT_DTYPE, else what this processor is quick "
        "in."
    ),
]
RuntimeName = Annotated[
    Runtime | None,
    Field(
        description="vllm or llama.cpp, for an embedded model: one quantised file, served in "
        "seconds. Default: LHKIT_RUNTIME, else vllm."
    ),
]
Count = Annotated[int, Field(strict=True)]


class ReplayOptions(BaseModel):
    """What is played and what is kept of it, whoever answers.

    Without `concurrency` as many conversations play at once as fit the server.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    toolset: ToolsetReference = DEFAULT_TOOLSET
    limit: Count | None = Field(default=None, ge=1, description="The first N scenarios.")
    user: User = Field(
        default="script",
        description="Who clicks: script (the scenario), careful (yes to expected calls only), "
        "hasty (yes to all). Where a scenario says no, lists answers or has nobody to ask, that "
        "stays.",
    )
    repeats: Count = Field(
        default=1, ge=1, le=MAX_REPEATS, description="Times to play each scenario."
    )
    concurrency: Count | None = Field(
        default=None,
        ge=1,
        le=MOST_CONCURRENCY,
        description="Conversations at once; by default what fits the server.",
    )
    max_attempts: Count = Field(default=3, ge=1, le=MOST_ATTEMPTS)
    max_tokens: Count = Field(
        default=REPLY_TOKENS, ge=1, le=MOST_TOKENS, description="Tokens of one model message."
    )
    keep_prompts: bool = Field(default=False, description="Keep prompt texts in records.")
    keep_states: bool = Field(
        default=False, description="Keep whole states in records, not only what changed."
    )

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

    model: ModelName = None
    base_urls: tuple[str, ...] = Field(
        default=(),
        description="A running OpenAI-compatible vLLM server, such as http://127.0.0.1:8000. "
        "Several of one model: give it again, or @FILE with one address a line.",
        json_schema_extra={"option": "--base-url"},
    )
    dialect: DialectName = "json"
    constraint: ConstraintName = "off"
    dtype: DtypeName = None
    runtime: RuntimeName = None
    stress: str = Field(
        default="", description="Make it harder: distractors=10, shuffle, seed=1; joined by commas."
    )
    instructions: Mapping[str, str] = Field(default_factory=dict)
