"""What the commands are asked for: each option once, with its help, its default and its place.

A field that is an option or an argument has a type of `Annotated[X, typer.Option(…)]`; `parser`
makes the command line of it. The fields stand in the order in which `--help` shows them. Nothing
heavy is imported here, since every `--help` reads it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lhkit.locales import DEFAULT_LOCALE, available_locales
from lhkit.settings import DEFAULT_TOOLSET, REPLY_TOKENS

DIALECTS = "{dialects}"
"""Stands in a help text for the names of all dialects but `openai`: they come of slow imports."""
LOCALES = " or ".join(sorted(available_locales(), key=lambda name: name != DEFAULT_LOCALE))
"""What `--locale` takes, in words: the default first."""
MOST = 1_000_000
"""The most of whatever is counted: conversations, steps, tokens. More is a slip of the hand."""
MOST_REPLICAS = 4_096
SHAPE = "FILE.py:NAME"
USUAL_CHATS = Path("runs/chats")

BaseUrl = Annotated[
    str | None,
    typer.Option(help="A running OpenAI-compatible vLLM server, such as http://127.0.0.1:8000."),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="gemma or gemma-base (embedded), gold, silent (the no-op baseline); "
        "with --base-url a served name."
    ),
]
Dialect = Annotated[
    str,
    typer.Option(help=f"How calls are written: {DIALECTS}; openai: the server parses them."),
]
Constrain = Annotated[
    str, typer.Option(help="Decoding: off, auto (words or a valid call), required (a valid call).")
]
Locale = Annotated[
    str | None,
    typer.Option(help=f"{LOCALES}. Default: LHKIT_LOCALE, else {DEFAULT_LOCALE}."),
]
Paths = Annotated[tuple[Path, ...], typer.Argument(help="Scenario files or folders.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder such as runs/NAME.")]
RunsDir = Annotated[Path, typer.Option(file_okay=False, help="Where run folders are.")]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="bfloat16 or float32. Default: LHKIT_DTYPE, else what this processor is quick in."
    ),
]
Runtime = Annotated[
    str | None,
    typer.Option(
        help="vllm or llama.cpp, for an embedded model: one quantised file, served in seconds. "
        "Default: LHKIT_RUNTIME, else vllm."
    ),
]
PlayedToolset = Annotated[
    str,
    typer.Option(
        metavar=SHAPE,
        help="Tools of your own: FILE.py:NAME, package.module:NAME or mcp:SERVER; then give PATHS.",
    ),
]
OpenedToolset = Annotated[
    str,
    typer.Option(
        metavar=SHAPE,
        help="Tools of your own: FILE.py:NAME, package.module:NAME or mcp:SERVER.",
    ),
]
OtherToolset = Annotated[
    str | None,
    typer.Option(
        metavar=SHAPE,
        help="Tools of your own; package.module:NAME works too. Default: life-helper.",
    ),
]
NewFolder = Annotated[Path, typer.Option(file_okay=False, help="A new folder for what is made.")]
AsJsonl = Annotated[bool, typer.Option("--jsonl", help="Scenarios one a line, instead of YAML.")]
Markdown = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False, allow_dash=True, help="For a pull request; - writes to the terminal."
    ),
]
Database = Annotated[
    Path | None,
    typer.Option("--db", dir_okay=False, help="The file that life-helper keeps its data in."),
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Play on replicas that Ray places: local (a cluster for this command), auto (this "
        "node's), or HOST:PORT.",
    ),
]
Replicas = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_REPLICAS, help="With --ray: how many servers. Default: 1."),
]
Gpus = Annotated[
    int | None,
    typer.Option(
        "--gpus-per-replica",
        min=0,
        max=MOST_REPLICAS,
        help="With --ray: graphics cards of each. Default: 0.",
    ),
]
Cpus = Annotated[
    float | None,
    typer.Option(
        "--cpus-per-replica",
        min=0,
        max=MOST_REPLICAS,
        help="With --ray: cores of each. Default: 1.",
    ),
]
ChatsFolder = Annotated[Path, typer.Argument(file_okay=False)]
InChatsFolder = Annotated[
    Path, typer.Option("--in", metavar="FOLDER", file_okay=False, help="Where chats are kept.")
]
ChatName = Annotated[str, typer.Argument(help="As `lhkit chats list` names it.")]
ChatNames = Annotated[list[str] | None, typer.Argument(metavar="[CHAT]...", help="Names of chats.")]
AllChats = Annotated[bool, typer.Option("--all", help="All that are kept in the folder.")]
ComparedRun = Annotated[Path, typer.Argument(metavar="RUN_A", help="The run to compare with.")]
RunInQuestion = Annotated[Path, typer.Argument(metavar="RUN_B", help="The run in question.")]
BfclFolder = Annotated[
    Path, typer.Argument(file_okay=False, help="Folder of the package bfcl_eval.")
]
TauFolder = Annotated[
    Path, typer.Argument(file_okay=False, help="Your clone of sierra-research/tau-bench.")
]
TauSplit = Annotated[
    str, typer.Option(help="test (what tau-bench reports), dev, train (retail's), or all.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """What `lhkit eval` plays, with whom, and what is asked of the run.

    Without `split` and `paths` the split `dev` is played. `base_urls` are as `addresses_of` takes
    them. Without `concurrency` it is chosen for the server. With `ray` replicas play. With
    `exit_zero` a finding (exit code 1) is told and ends with 0; wrong use and a world that failed
    end as ever.
    """

    paths: Paths = ()
    split: Annotated[
        str | None,
        typer.Option(help="Shipped scenarios, instead of PATHS: dev (default), test, all."),
    ] = None
    toolset: PlayedToolset = DEFAULT_TOOLSET
    model: Model = None
    base_urls: Annotated[
        tuple[str, ...],
        typer.Option(
            "--base-url",
            help="A running OpenAI-compatible vLLM server, such as http://127.0.0.1:8000. Several "
            "of one model: give it again, or @FILE with one address a line.",
        ),
    ] = ()
    dialect: Dialect = "json"
    constrain: Constrain = "off"
    dtype: Dtype = None
    runtime: Runtime = None
    stress: Annotated[
        str,
        typer.Option(help="Make it harder: distractors=10, shuffle, seed=1; joined by commas."),
    ] = ""
    user: Annotated[
        str,
        typer.Option(
            help="Who clicks: script (the scenario), careful (yes to expected calls only), hasty "
            "(yes to all). Where a scenario says no, lists answers or has nobody to ask, that "
            "stays."
        ),
    ] = "script"
    repeats: Annotated[int, typer.Option(min=1, help="Times to play each scenario.")] = 1
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="Conversations at once; by default what fits the server."),
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="The first N scenarios.")] = None
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of one model message.")] = (
        REPLY_TOKENS
    )
    name: Annotated[str | None, typer.Option(help="Name of the run's folder.")] = None
    runs_dir: RunsDir = Path("runs")
    ray: Ray = None
    replicas: Replicas = None
    gpus: Gpus = None
    cpus: Cpus = None
    fail_under: Annotated[
        float | None, typer.Option(min=0, max=100, help="Lowest pass rate in percent.")
    ] = None
    max_violations: Annotated[
        int | None, typer.Option(min=0, help="Most blocked violations allowed; none may happen.")
    ] = None
    baseline: Annotated[
        Path | None, typer.Option(help="Earlier run (name or folder): fails if that was better.")
    ] = None
    keep_prompts: Annotated[
        bool, typer.Option("--keep-prompts", help="Keep prompt texts in records.")
    ] = False
    keep_states: Annotated[
        bool,
        typer.Option("--keep-states", help="Keep whole states in records, not only what changed."),
    ] = False
    exit_zero: Annotated[
        bool,
        typer.Option("--exit-zero", help="For people: end with 0, and say why it would be 1."),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixOptions:
    """Which suite `lhkit matrix` plays, and where; with `ray` replicas play."""

    suite: Annotated[Path, typer.Argument(help="A suite such as evals/constraints.toml.")]
    runs_dir: RunsDir = Path("runs")
    ray: Ray = None
    replicas: Replicas = None
    gpus: Gpus = None
    cpus: Cpus = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """Who `lhkit chat` talks to, and about what.

    `world` is a file with the state that the chat begins in; `file` is where a toolset that keeps
    its data has it, by default in the data folder of lhkit. `record` is where the talk is kept.
    """

    model: Model = None
    base_url: BaseUrl = None
    dialect: Dialect = "json"
    constrain: Constrain = "off"
    dtype: Dtype = None
    runtime: Runtime = None
    locale: Locale = None
    toolset: OpenedToolset = DEFAULT_TOOLSET
    world: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="YAML file: the state that the chat begins in."),
    ] = None
    file: Database = None
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            help="Keep the talk there, such as runs/chats; else nothing is kept.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What `lhkit serve` serves: a `model`, or `weights` of your own (a Hugging Face folder).

    With `server_parser` the server also parses calls itself, for `--dialect openai`. A `compiled`
    one takes longer until it serves, and is faster then. `lora` is served beside `model`, which is
    gemma-base by default then.
    """

    model: Annotated[
        str | None,
        typer.Argument(
            help="gemma (default) or gemma-base (embedded), a name such as org/model, or a GGUF "
            "file."
        ),
    ] = None
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Default: a free port; for org/model vLLM's own."),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the line that serves MODEL.")
    ] = False
    device: Annotated[
        str | None, typer.Option(help="gpu (default) or cpu, for org/model only.")
    ] = None
    dtype: Dtype = None
    runtime: Runtime = None
    server_parser: Annotated[
        bool,
        typer.Option("--server-parser", help="The server parses calls, too: for --dialect openai."),
    ] = False
    compiled: Annotated[
        bool,
        typer.Option("--compile", help="Embedded: start later, answer faster. For long runs."),
    ] = False
    weights: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder of a tuned model, instead of MODEL."),
    ] = None
    lora: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Folder of a LoRA adapter, served beside MODEL (default: gemma-base) by vLLM.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeToolsOptions:
    """What `lhkit mcp serve` serves; `world` and `file` as in `lhkit chat`."""

    toolset: OpenedToolset = DEFAULT_TOOLSET
    world: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="YAML file: the state that the tools begin in."),
    ] = None
    file: Database = None
    locale: Locale = None
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Also for a client that cannot ask its person.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Which server `lhkit doctor` looks at: an address, or the one that `lhkit serve` keeps."""

    base_url: BaseUrl = None
    model: Model = None
    dialect: Dialect = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOptions:
    """Which scenarios `lhkit lint` checks: all shipped ones where there are no `paths`."""

    paths: Paths = ()
    toolset: PlayedToolset = DEFAULT_TOOLSET
    as_json: Annotated[bool, typer.Option("--json", help="Findings as JSON.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MutateOptions:
    """Which gold traces `lhkit mutate` spoils.

    `survivors` is the list of known ones; the shipped by default.
    """

    paths: Paths = ()
    toolset: PlayedToolset = DEFAULT_TOOLSET
    fail_under: Annotated[
        float | None,
        typer.Option(min=0, max=100, help="Lowest share of noticed mistakes in percent."),
    ] = None
    survivors: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, exists=True, help="TOML list of known survivors with reasons."
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptOptions:
    """What `lhkit accept` takes as right.

    `sample` is a scenario, with `#2` behind it for its second repeat. `turn`, `call` and `arg`
    choose among several wrong arguments; `phrase` takes words of the reply instead.
    """

    run: RunFolder
    sample: Annotated[
        str,
        typer.Argument(metavar="SAMPLE", help="SCENARIO, or SCENARIO#2 for its second repeat."),
    ]
    turn: Annotated[int | None, typer.Option(min=0, max=MOST, help="User turn, from 0.")] = None
    call: Annotated[int | None, typer.Option(min=0, max=MOST, help="Call of the turn, from 0.")] = (
        None
    )
    arg: Annotated[str | None, typer.Option(help="Name of the argument.")] = None
    phrase: Annotated[
        str | None, typer.Option(help="Words of the reply to accept, instead of an argument.")
    ] = None
    paths: Annotated[
        tuple[Path, ...], typer.Option("--scenarios", help="Files that hold the scenario.")
    ] = ()
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Show the change, write nothing.")] = (
        False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions:
    """What `lhkit prompt` shows. Without `paths` and `scenario` nobody has said anything yet.

    `scenario` is an id in `paths`, by default of the shipped ones; without it the first of `paths`
    is taken.
    """

    paths: Paths = ()
    scenario: Annotated[
        str | None,
        typer.Option(help="Id of the scenario that is opened. Default: the first of PATHS."),
    ] = None
    toolset: OpenedToolset = DEFAULT_TOOLSET
    dialect: Dialect = "json"
    locale: Annotated[
        str | None, typer.Option(help=f"{LOCALES}. Default: the scenario's, else as in chat.")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Prompt and counts as JSON.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportChatsOptions:
    """Which chats `lhkit import openai-messages` makes scenarios and a toolset of."""

    file: Annotated[
        Path, typer.Argument(dir_okay=False, help="Recorded chats: JSON, or one a line.")
    ]
    into: NewFolder
    tools: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="JSON of the tools, as OpenAI's API takes it."),
    ] = None
    handlers: Annotated[
        str | None,
        typer.Option(
            metavar=SHAPE,
            help="Functions (data, **args) that do the work; else results are played back.",
        ),
    ] = None
    data: Annotated[
        Path | None, typer.Option(dir_okay=False, help="JSON that the functions begin with.")
    ] = None
    as_jsonl: AsJsonl = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoreOptions:
    """Which run `lhkit rescore` scores again, into a folder of its own.

    Nothing in the run is changed. `paths` are today's scenarios, the shipped ones by default;
    `toolset` is what the run was played in.
    """

    run: RunFolder
    paths: Paths = ()
    toolset: PlayedToolset = DEFAULT_TOOLSET
    into: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder of the result; RUN-rescored by default."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """What `lhkit report` writes; without any file, the HTML report goes into the run's folder."""

    folder: RunFolder
    html: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="One self-contained file. Default: RUN/report.html."),
    ] = None
    markdown: Markdown = None
    junit: Annotated[Path | None, typer.Option(dir_okay=False, help="JUnit XML for CI.")] = None
    baseline: Annotated[
        Path | None, typer.Option(metavar="BASELINE", help="An earlier run to compare with.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What `lhkit export` writes: a run, in each format that has a place.

    `scenarios`, `reviewed`, `held_out` and `toolset` are for `sft`, which needs no run.
    """

    folder: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Folder such as runs/NAME.")
    ] = None
    openai_messages: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help="JSON lines: a conversation each, as OpenAI's API has them."
        ),
    ] = None
    sft: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="Training conversations: passed samples of RUN, or references of --scenarios.",
        ),
    ] = None
    scenarios: Annotated[
        tuple[Path, ...],
        typer.Option("--scenarios", help="For --sft: scenario files, with RUN those of the run."),
    ] = ()
    reviewed: Annotated[
        tuple[Path, ...],
        typer.Option("--reviewed", dir_okay=False, help="For --sft: a file of Review.to_training."),
    ] = ()
    held_out: Annotated[
        tuple[Path, ...],
        typer.Option(
            "--held-out",
            help="For --sft: scenario files whose near-duplicates are left out.",
        ),
    ] = ()
    parquet: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", file_okay=False, help="Tables: samples, turns, calls and more."
        ),
    ] = None
    inspect: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="A log for `inspect view`, such as run.eval."),
    ] = None
    otel: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="Traces of OpenTelemetry: a file, or a receiver such as http://127.0.0.1:4318.",
        ),
    ] = None
    toolset: OtherToolset = None
    locale: Locale = None
