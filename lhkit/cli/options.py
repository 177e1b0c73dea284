"""Options and arguments that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lhkit.cli.command import Options
from lhkit.errors import UsageError
from lhkit.locales import DEFAULT_LOCALE, available_locales
from lhkit.precision import Dtype
from lhkit.settings import LLAMA_CPP, Runtime, Settings, validate_options

if TYPE_CHECKING:
    from lhkit.harness.scenario_filter import ScenarioFilter

LOCALES = " or ".join(sorted(available_locales(), key=lambda name: name != DEFAULT_LOCALE))
"""The values of `--locale` as text, the default first."""
DEFAULT_CHATS = Path("runs/chats")

BaseUrl = Annotated[
    str | None,
    typer.Option(help="URL of an OpenAI-compatible server, such as http://127.0.0.1:8000."),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="gemma or gemma-base (embedded), or the name that the server at --base-url serves."
    ),
]
Dialect = Annotated[
    str,
    typer.Option(
        help="Format of tool calls: json, pythonic, functiongemma, gemma4, or openai (the server "
        "parses them)."
    ),
]
Constraint = Annotated[
    Literal["off", "auto", "required"],
    typer.Option(
        "--constrain",
        metavar="MODE",
        help="Constrained decoding: off, auto (text or a valid call), required (a valid call).",
    ),
]
DtypeOption = Annotated[
    Dtype | None,
    typer.Option(
        metavar="TYPE",
        help="bfloat16 or float32. Default: LHKIT_DTYPE, else what is fast on this processor.",
    ),
]
RuntimeOption = Annotated[
    Runtime | None,
    typer.Option(
        metavar="NAME",
        help="Server of an embedded model: vllm or llama.cpp (one quantised file, starts in "
        "seconds). Default: LHKIT_RUNTIME, else vllm.",
    ),
]
Locale = Annotated[
    str | None,
    typer.Option(help=f"{LOCALES}. Default: LHKIT_LOCALE, else {DEFAULT_LOCALE}."),
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


_SCENARIOS = "Scenarios"  # title of a group of options in the help


class SelectOptions(Options):
    """Which scenarios to take; the names and meanings of `harness.scenario_filter`."""

    only: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="ID", rich_help_panel=_SCENARIOS, help="This id, or ac01-*; repeatable."
        ),
    ] = ()
    tag: Annotated[
        tuple[str, ...],
        typer.Option(metavar="TAG", rich_help_panel=_SCENARIOS, help="With this tag."),
    ] = ()
    ac: Annotated[
        tuple[str, ...],
        typer.Option(metavar="AC", rich_help_panel=_SCENARIOS, help="Of this criterion."),
    ] = ()
    locale: Annotated[
        tuple[str, ...],
        typer.Option(metavar="LOCALE", rich_help_panel=_SCENARIOS, help=f"In {LOCALES}."),
    ] = ()
    failed: Annotated[
        Path | None,
        typer.Option(metavar="RUN", rich_help_panel=_SCENARIOS, help="Those that failed there."),
    ] = None
    sample: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", rich_help_panel=_SCENARIOS, help="N of them at random."),
    ] = None
    seed: Annotated[int, typer.Option(min=0, rich_help_panel=_SCENARIOS, help="Of --sample.")] = 0
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", rich_help_panel=_SCENARIOS, help="The first N only."),
    ] = None

    def scenario_filter(self) -> "ScenarioFilter":
        """Return the filter.

        Raises:
            UsageError: a value is out of range.
        """
        from lhkit.harness.scenario_filter import ScenarioFilter

        names = ScenarioFilter.model_fields
        return validate_options(ScenarioFilter, **{name: getattr(self, name) for name in names})


def apply_server_options(
    settings: Settings, runtime: Runtime | None, dtype: Dtype | None, *addresses: str | None
) -> Settings:
    """Return the settings with `--runtime` and `--dtype` applied.

    Raises:
        UsageError: one is given for a server that already runs at one of the addresses, or a dtype
            for llama.cpp.
    """
    given = {"runtime": runtime, "dtype": dtype}
    changes = {name: value for name, value in given.items() if value is not None}
    if changes and (address := next(filter(None, addresses), None)):
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
