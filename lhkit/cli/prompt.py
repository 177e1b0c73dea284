"""`lhkit prompt`: show what a model would read at the first turn, with tokens per part."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lhkit import embedded
from lhkit.cli.command import Options, command
from lhkit.cli.console import print_json
from lhkit.cli.options import LOCALES, OpenedToolset, Paths
from lhkit.errors import UsageError
from lhkit.harness.faults import did_you_mean
from lhkit.harness.loader import load_scenarios
from lhkit.harness.run_options import DialectName
from lhkit.harness.scenario import Scenario
from lhkit.lifehelper.shipped import scenarios_at
from lhkit.locales import Catalog, load_catalog
from lhkit.messages import UserMessage
from lhkit.models.dialects import DIALECTS
from lhkit.models.gemma import EMBEDDED_NAMES, load_encoder
from lhkit.models.request import OPENAI, chat_messages, chat_tools
from lhkit.models.served import require_constraint
from lhkit.settings import DEFAULT_TOOLSET, Settings
from lhkit.text import NOTHING, printable
from lhkit.tools.definition import ToolDefinition
from lhkit.toolset import assistant_of, load, opened

Measure: TypeAlias = Callable[[str], int]


class PromptOptions(Options):
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
    dialect: DialectName = "json"
    locale: Annotated[
        str | None, typer.Option(help=f"{LOCALES}. Default: the scenario's, else as in chat.")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Prompt and counts as JSON.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPart:
    """How much of a prompt is due to one part. `tokens` is None where nothing counts them.

    `kind` is `instructions`, `tool` (then `tool` is its name), `context`, `user`, `protocol` (what
    the dialect itself says) or `total`.
    """

    kind: str
    tool: str
    tokens: int | None
    characters: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opening:
    """All that a model reads before its first message."""

    instructions: str
    tools: tuple[ToolDefinition, ...]
    context: str
    words: str
    left_out: Mapping[str, str] = field(default_factory=dict)

    def text(self, dialect: str) -> str:
        """Return it as a server gets it; of one that renders itself, messages and tools."""
        said = (UserMessage(text=self.words, context=self.context),)
        if dialect != OPENAI:
            return DIALECTS[dialect].encode(said, self.tools, self.instructions)
        body = {"messages": chat_messages(said, self.instructions), "tools": chat_tools(self.tools)}
        return json.dumps(body, ensure_ascii=False, indent=1)


@command(
    "lhkit prompt --toolset mine.py:own",
    "lhkit prompt mine.yaml --scenario eggs-left --toolset mine.py:own --json",
)
async def show_prompt(options: PromptOptions, settings: Settings) -> int:
    """Print the prompt of the first turn and the size of its parts; return the exit code.

    Raises:
        UsageError: there is no such toolset, dialect or scenario, or the toolset's code fails.
        ScenarioError: a scenario is not well-formed.
        WeightsError: the tokenizer is broken.
    """
    require_constraint(options.dialect, "off", ())
    opening = _opening(options, settings)
    tokens = _tokens(settings)
    text = opening.text(options.dialect)
    parts = _parts(opening, options.dialect, tokens)
    console = Console()
    if options.as_json:
        told = {
            "dialect": options.dialect,
            "prompt": text,
            "parts": [asdict(p) for p in parts],
            "left_out": dict(opening.left_out),
        }
        print_json(console, told)
        return 0
    catalog = load_catalog(settings.locale)
    console.print(Text(printable(text)), soft_wrap=True)
    console.print(_table(parts, catalog))
    for name, reason in opening.left_out.items():
        warning = catalog.text("prompt.left_out", tool=name, reason=reason)
        console.print(Text(printable(warning), style="yellow"), soft_wrap=True)
    if options.dialect == OPENAI:
        console.print(catalog.text("prompt.server_renders"), soft_wrap=True)
    if tokens is None:
        console.print(catalog.text("prompt.no_tokenizer"), soft_wrap=True)
    return 0


def _opening(options: PromptOptions, settings: Settings) -> _Opening:
    toolset = load(options.toolset)
    scenario = _scenario(options)
    world = {"now": settings.now().isoformat(timespec="seconds")}
    locale = options.locale or (scenario.locale if scenario else settings.locale)
    words = scenario.turns[0].user if scenario else ""
    with opened(toolset, scenario.world if scenario else world, locale) as session:
        assistant = assistant_of(session)
        return _Opening(
            instructions=assistant.instructions,
            tools=session.registry.definitions,
            context=assistant.context(words),
            words=words,
            left_out=session.registry.left_out,
        )


def _scenario(options: PromptOptions) -> Scenario | None:
    if not options.paths and options.scenario is None:
        return None
    scenarios = load_scenarios(scenarios_at(options.paths, options.toolset))
    if options.scenario is None:
        return scenarios[0]
    known = {each.id: each for each in scenarios}
    if options.scenario not in known:
        near = did_you_mean(options.scenario, tuple(known)) or ": give the id of one"
        raise UsageError(f"--scenario {options.scenario}: no such scenario in these files{near}")
    return known[options.scenario]


def _tokens(settings: Settings) -> Measure | None:
    """Return what counts tokens with the embedded tokenizer; None if it is not on this machine."""
    if find_spec("tokenizers") is None:
        return None
    for name in EMBEDDED_NAMES:
        folder = embedded.embedded_folder(name, settings)
        if (folder / "tokenizer.json").is_file():
            encode = load_encoder(folder)
            return lambda text: len(encode(text))
    return None


def _parts(opening: _Opening, dialect: str, tokens: Measure | None) -> tuple[PromptPart, ...]:
    """Return the size of each part, of the rest, which is the protocol's, and of all.

    A part is worth what the prompt grows by, so that any dialect will do. A tool is added once
    more for it: without the only one all words about tools would go, too.
    """

    def sizes(changed: _Opening) -> tuple[int, int, int]:
        text = changed.text(dialect)
        return (tokens(text) if tokens else 0, len(text), len(text.encode()))

    whole = sizes(opening)

    def part(kind: str, more: Sequence[int], less: Sequence[int], tool: str = "") -> PromptPart:
        counted, characters, octets = (a - b for a, b in zip(more, less, strict=True))
        return PromptPart(
            kind=kind,
            tool=tool,
            tokens=counted if tokens else None,
            characters=characters,
            bytes=octets,
        )

    parts = (
        part("instructions", whole, sizes(replace(opening, instructions=""))),
        *(
            part("tool", sizes(replace(opening, tools=(*opening.tools, each))), whole, each.name)
            for each in opening.tools
        ),
        part("context", whole, sizes(replace(opening, context=""))),
        part("user", whole, sizes(replace(opening, words=""))),
    )
    told = [
        sum(each)
        for each in zip(*((p.tokens or 0, p.characters, p.bytes) for p in parts), strict=True)
    ]
    return (*parts, part("protocol", whole, told), part("total", whole, (0, 0, 0)))


def _table(parts: Sequence[PromptPart], catalog: Catalog) -> Table:
    table = Table(title=catalog.text("prompt.title"), title_justify="left")
    table.add_column(catalog.text("prompt.part"))
    for name in ("tokens", "characters", "bytes"):
        table.add_column(catalog.text(f"prompt.{name}"), justify="right")
    for part in parts:
        words = Text(printable(part.tool or catalog.text(f"prompt.{part.kind}")))
        tokens = NOTHING if part.tokens is None else str(part.tokens)
        table.add_row(words, tokens, str(part.characters), str(part.bytes))
    return table
