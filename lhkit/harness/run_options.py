"""The options of a run, declared once for `replay`, the command line, suites and Ray.

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

MAX_SAMPLES = 100_000
"""The most samples of one run: their records are in memory for its report."""
MAX_CONCURRENCY = 4_096
MAX_ATTEMPTS = 100
MAX_TOKENS = 1_000_000
"""The most tokens of one model message, above any context length."""

ToolsetReference = Annotated[
    str,
    Field(
        description="Your own toolset: FILE.py:NAME, package.module:NAME or mcp:SERVER; requires "
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
    Field(description=f"Format of calls: {', '.join(DIALECTS)}; openai: parsed by the server."),
]
ConstraintName = Annotated[
    Constraint,
    Field(
        description="Constrained decoding: off, auto (text or valid call), required (valid call).",
        json_schema_extra={"option": "--constrain"},
    ),
]
DtypeName = Annotated[
    Dtype | None,
    Field(
        description="bfloat16 or float32. Default: LHKIT_DTYPE, else the faster one on this "
        "processor."
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
    """What is run and what is stored, independent of the model.

    The default of `concurrency` is what the server can run at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    toolset: ToolsetReference = DEFAULT_TOOLSET
    limit: Count | None = Field(default=None, ge=1, description="The first N scenarios.")
    user: User = Field(
        default="script",
        description="Simulated user at the confirmation: script (the scenario), careful (accepts "
        "expected calls only), hasty (accepts all). A scenario's reject, list of answers or absent "
        "gate stays.",
    )
    repeats: Count = Field(default=1, ge=1, le=MAX_REPEATS, description="Samples per scenario.")
    concurrency: Count | None = Field(
        default=None,
        ge=1,
        le=MAX_CONCURRENCY,
        description="Conversations at once. Default: as many as the server can run.",
    )
    max_attempts: Count = Field(default=3, ge=1, le=MAX_ATTEMPTS)
    max_tokens: Count = Field(
        default=REPLY_TOKENS, ge=1, le=MAX_TOKENS, description="Most tokens of one model message."
    )
    keep_prompts: bool = Field(default=False, description="Store prompt texts in records.")
    keep_states: bool = Field(
        default=False, description="Store whole states in records, not only changes."
    )

    def require_few(self, scenarios: int) -> None:
        """Refuse more samples than a run may have.

        Raises:
            UsageError: too many samples.
        """
        if scenarios * self.repeats > MAX_SAMPLES:
            raise UsageError(
                f"{self.repeats} repeats of {scenarios} scenarios are more than {MAX_SAMPLES} "
                "samples. Use fewer, or split the scenario files over several runs."
            )


class RunOptions(ReplayOptions):
    """The options of one run, with its model.

    Attributes:
        base_urls: servers of the same model.
        stress: the text for `parse_stress`.
        instructions: replacements of the assistant's instructions, by locale.
    """

    model: ModelName = None
    base_urls: tuple[str, ...] = Field(
        default=(),
        description="A running OpenAI-compatible vLLM server, such as http://127.0.0.1:8000. "
        "For several servers of one model repeat it, or give @FILE with one address a line.",
        json_schema_extra={"option": "--base-url"},
    )
    dialect: DialectName = "json"
    constraint: ConstraintName = "off"
    dtype: DtypeName = None
    runtime: RuntimeName = None
    stress: str = Field(
        default="", description="Stress test: distractors=10, shuffle, seed=1; joined by commas."
    )
    instructions: Mapping[str, str] = Field(default_factory=dict)
