"""Options and arguments that several commands share."""

import re
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from lhkit.base.errors import UsageError
from lhkit.base.locales import available_locales
from lhkit.cli.frame.command import Options
from lhkit.cli.frame.score_limits import parse_limits
from lhkit.harness.scenarios.scenario_filter import ScenarioFilter
from lhkit.models.decoding import Constraint
from lhkit.models.precision import Dtype
from lhkit.models.runtimes import LLAMA_CPP, Runtime
from lhkit.settings import Settings

LOCALES = " or ".join(available_locales())
"""The values of `--locale` as text."""
DEFAULT_CHATS = Path("runs/chats")

BASE_URL = typer.Option(help="URL of an OpenAI-compatible server, such as http://127.0.0.1:8000.")
BaseUrl = Annotated[str | None, BASE_URL]
Model = Annotated[
    str | None,
    typer.Option(
        help="gemma or gemma-base (embedded), or the name that the server at --base-url serves."
    ),
]
DIALECT = typer.Option(
    help="Format of tool calls: json, pythonic, functiongemma, gemma4, or openai (the server "
    "parses them). Default: that of the model's family, for others openai."
)
Dialect = Annotated[str | None, DIALECT]
CHAT_TEMPLATE = typer.Option(
    metavar="FILE",
    help="Chat template of the model, or its folder, to render the prompts of functiongemma "
    "and gemma4. Default: the server's, where it has one, else lhkit's own rendering.",
)
ChatTemplateFile = Annotated[Path | None, CHAT_TEMPLATE]
CONSTRAINT = typer.Option(
    "--constrain",
    metavar="MODE",
    help="Constrained decoding: off, auto (text or a valid call), required (a valid call).",
)
ConstraintOption = Annotated[Constraint, CONSTRAINT]
LOGPROBS = typer.Option(
    "--logprobs",
    help="Keep the weakest and the mean log-probability of each call, where the server reports "
    "them. Answers take longer.",
)
LogprobsOption = Annotated[bool, LOGPROBS]
DTYPE = typer.Option(
    metavar="TYPE",
    help="bfloat16 or float32. Default: LHKIT_DTYPE, else what is fast on this processor.",
)
DtypeOption = Annotated[Dtype | None, DTYPE]
RUNTIME = typer.Option(
    metavar="NAME",
    help="Server of an embedded model: vllm or llama.cpp (one quantised file, starts in "
    "seconds). Default: LHKIT_RUNTIME, else vllm.",
)
RuntimeOption = Annotated[Runtime | None, RUNTIME]
APPROVALS = typer.Option(
    metavar="FILE",
    help="Policy of `lhkit approvals --write`: the writes that it lets through are not asked.",
)
Approvals = Annotated[Path | None, APPROVALS]
SCORE = typer.Option(
    "--score",
    metavar="FILE.py:NAME",
    help="Your own score, or the name of an installed one; repeatable.",
)
Locale = Annotated[
    str | None,
    typer.Option(help=f"{LOCALES}. Default: LHKIT_LOCALE, else LANG, else en."),
]
Paths = Annotated[tuple[Path, ...], typer.Argument(help="Scenario files or folders.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder such as runs/NAME.")]
RunsDir = Annotated[Path, typer.Option(file_okay=False, help="Folder of the run folders.")]
Toolset = Annotated[
    str,
    typer.Option(
        metavar="FILE.py:NAME",
        help="Your own toolset: FILE.py:NAME, package.module:NAME or mcp:SERVER.",
    ),
]
World = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="YAML file with the initial state."),
]
Database = Annotated[
    Path | None,
    typer.Option("--db", dir_okay=False, help="Database file of life-helper."),
]
NewFolder = Annotated[
    Path, typer.Option(file_okay=False, help="Folder to create, with scenarios and toolset.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsJsonl = Annotated[bool, typer.Option("--jsonl", help="Write scenarios as JSON Lines, not YAML.")]
ChatsFolder = Annotated[
    Path, typer.Option("--in", metavar="FOLDER", file_okay=False, help="Folder of recorded chats.")
]
Details = Annotated[
    bool,
    typer.Option("--details", help="Print all figures: by criterion, scores, gate, tokens, times."),
]
MaxRegressions = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="With a baseline: exit with 1 if more scenarios than these passed there and fail now; "
        "repeats and wordings of a scenario count once. Takes the place of the paired test.",
    ),
]

HtmlFile = Annotated[Path | None, typer.Option(dir_okay=False, help="Write the run as HTML.")]
MarkdownFile = Annotated[
    Path | None, typer.Option(dir_okay=False, help="Write the run as Markdown, for a pull request.")
]
JunitFile = Annotated[Path | None, typer.Option(dir_okay=False, help="Write the run as JUnit XML.")]

_of_scenarios = partial(typer.Option, rich_help_panel="Scenarios")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s)")
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1)}


class SelectOptions(ScenarioFilter, Options):
    """Which scenarios to take."""

    shown: ClassVar = {
        "only": _of_scenarios(metavar="ID", help="This id, or ac01-*; repeatable."),
        "tag": _of_scenarios(metavar="TAG", help="With this tag."),
        "ac": _of_scenarios(metavar="AC", help="Of this criterion."),
        "locale": _of_scenarios(metavar="LOCALE", help=f"In {LOCALES}."),
        "failed": _of_scenarios(metavar="RUN", help="Those that failed there."),
        "sample": _of_scenarios(metavar="N", help="N of them at random."),
        "seed": _of_scenarios(help="Of --sample."),
        "limit": _of_scenarios(metavar="N", help="The first N only."),
    }


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as `3s` or `500ms`.

    Raises:
        typer.BadParameter: the text is not a duration above 0.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or not Decimal(match[1]):
        raise typer.BadParameter(
            f"{text!r} is not a duration: give a number with ms or s, such as 500ms or 3s"
        )
    return float(Decimal(match[1]) * _SECONDS[match[2]])


class ThresholdOptions(Options):
    """Options of the thresholds of a run."""

    fail_under: Annotated[
        float | None,
        typer.Option(min=0, max=100, help="Exit with 1 if the pass rate is below this percentage."),
    ] = None
    max_violations: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Exit with 1 if more violations were blocked; one that occurred always exits "
            "with 1.",
        ),
    ] = None
    max_p95_turn: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="DURATION",
            help="Exit with 1 if the p95 of a user turn takes longer, such as 3s.",
        ),
    ] = None
    max_p95_ttft: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="DURATION",
            help="Exit with 1 if the p95 of the time to first token is longer, such as 500ms.",
        ),
    ] = None
    max_prompt_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Exit with 1 if the prompt of a request has more tokens."),
    ] = None
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="BASELINE",
            help="Exit with 1 if this earlier run (name or folder) is better in a paired test, and "
            "with 4 if its scenarios are too few for the test to fail.",
        ),
    ] = None
    max_regressions: MaxRegressions = None
    min_score: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="NAME=NUMBER",
            help="Exit with 1 if the rate (0 to 1) or mean of your score is lower, and with 4 if "
            "that cannot be decided; repeatable.",
        ),
    ] = ()
    max_score: Annotated[
        tuple[str, ...],
        typer.Option(metavar="NAME=NUMBER", help="As --min-score, if it is higher."),
    ] = ()
    margin: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            metavar="POINTS",
            help="With --baseline: exit with 1 only if the run is worse by more than these points, "
            "and with 4 if that cannot be decided.",
        ),
    ] = None

    @property
    def order_seed(self) -> int | None:
        """The seed of the random order of a run that stops when it is decided; None for others."""
        return None

    @property
    def has_limits(self) -> bool:
        """Whether there is a threshold besides the baseline."""
        limits = ThresholdOptions.model_fields.keys() - {"baseline"}
        return any(getattr(self, name) not in {None, ()} for name in limits)

    def require_valid(self) -> None:
        """Check the thresholds before a run.

        Raises:
            UsageError: a percentage is given as a fraction, or a margin without a baseline.
        """
        require_percent(self.fail_under, "--fail-under")
        require_percent(self.margin, "--margin")
        parse_limits(self.min_score, self.max_score)
        for option in ("margin", "max_regressions"):
            if getattr(self, option) is not None and self.baseline is None:
                name = option.replace("_", "-")
                raise UsageError(f"--{name} is for a comparison: give --baseline too")


def require_percent(value: float | None, name: str) -> None:
    """Refuse a fraction where a percentage is meant.

    Raises:
        UsageError: `value` is between 0 and 1; the message calls it `name`.
    """
    if value is not None and 0 < value < 1:
        raise UsageError(f"{name} is in percent: for a share of {value:g} give {100 * value:g}")


def apply_server_options(
    settings: Settings, runtime: Runtime | None, dtype: Dtype | None, address: str | None = None
) -> Settings:
    """Return the settings with `--runtime` and `--dtype` applied.

    Raises:
        UsageError: one is given for a server that already runs at `address`, or a dtype for
            llama.cpp.
    """
    given = {"runtime": runtime, "dtype": dtype}
    changes = {name: value for name, value in given.items() if value is not None}
    if changes and address:
        raise UsageError(
            f"--{next(iter(changes))} is for a model that lhkit serves itself, and {address} "
            "serves already: leave one of them out"
        )
    settings = settings.model_copy(update=changes)
    if dtype is not None and settings.runtime == LLAMA_CPP:
        raise UsageError(
            f"--dtype is for vLLM: {LLAMA_CPP} serves files with a quantisation of their own. "
            "Leave it out"
        )
    return settings
