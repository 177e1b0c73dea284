"""`lhkit prompt`: show the prompt of the first turn, with tokens per part."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from typing import Annotated, ClassVar, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lhkit import embedded
from lhkit.base.errors import UsageError
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.options import DEFAULT_TOOLSET
from lhkit.base.text import NOTHING, printable
from lhkit.cli.against import (
    Comparison,
    Conversation,
    Rendering,
    compare_prompts,
    reference_conversation,
)
from lhkit.cli.frame.command import Options, command
from lhkit.cli.frame.console import print_json, print_lines
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import LOCALES, AsJson, ChatTemplateFile, Dialect, Paths, Toolset
from lhkit.conversation.messages import Message, UserMessage
from lhkit.harness.scenarios.issues import did_you_mean
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.lifehelper.shipped import scenarios_at
from lhkit.models.base import ModelRequest
from lhkit.models.client.chat_template import ChatTemplate, read_chat_template
from lhkit.models.client.request import OPENAI, chat_messages, chat_tools
from lhkit.models.client.served import require_constraint
from lhkit.models.dialects import DIALECTS
from lhkit.models.families import default_dialect
from lhkit.models.names import EMBEDDED_NAMES
from lhkit.models.weights.tokenizer import load_encoder
from lhkit.settings import Settings
from lhkit.tools.definition import ToolDefinition
from lhkit.toolset import assistant_of, load, opened

_SHOWN_CHARS = 200

TokenCounter: TypeAlias = Callable[[str], int]


class PromptOptions(Options):
    """Options of `lhkit prompt`.

    Without `paths` and `scenario` there is no user message. `paths` are by default the shipped
    scenarios.
    """

    prints_data: ClassVar = True

    paths: Paths = ()
    scenario: Annotated[
        str | None,
        typer.Option(help="Id of the scenario. Default: the first of PATHS."),
    ] = None
    toolset: Toolset = DEFAULT_TOOLSET
    dialect: Dialect = None
    model: Annotated[
        str | None,
        typer.Option(help="Name of a model, such as google/gemma-4-E2B-it, for its dialect."),
    ] = None
    chat_template: ChatTemplateFile = None
    against: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="Show where the prompt differs from that of a chat template, a model's folder, a "
            "server (URL), a run, or a file of `lhkit export --sft`; exit with 1 if it does.",
        ),
    ] = None
    locale: Annotated[
        str | None, typer.Option(help=f"{LOCALES}. Default: that of the scenario, else of chat.")
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPart:
    """The size of a part of a prompt.

    Attributes:
        kind: `instructions`, `tool`, `history` (messages before the first one), `context`, `user`,
            `protocol` (text of the dialect itself) or `total`.
        tool: name of the tool, if it is one.
        tokens: None without a tokenizer.
        characters: number of characters.
        bytes: number of bytes in UTF-8.
    """

    kind: str
    tool: str
    tokens: int | None
    characters: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prompt:
    """The parts of a prompt before the first message of the model."""

    instructions: str
    tools: tuple[ToolDefinition, ...]
    context: str
    user: str
    history: tuple[Message, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    template: ChatTemplate | None = None

    @property
    def request(self) -> ModelRequest:
        """The request with this prompt."""
        return ModelRequest(
            messages=(*self.history, UserMessage(text=self.user, context=self.context)),
            tools=self.tools,
            instructions=self.instructions,
        )

    def text(self, dialect: str) -> str:
        """Return the rendered prompt, or messages and tools as JSON if the server renders it."""
        messages = (*self.history, UserMessage(text=self.user, context=self.context))
        if self.template is not None:
            return self.template.encode(dialect, messages, self.tools, self.instructions)
        if dialect != OPENAI:
            return DIALECTS[dialect].encode(messages, self.tools, self.instructions)
        body = {
            "messages": chat_messages(messages, self.instructions),
            "tools": chat_tools(self.tools),
        }
        return json.dumps(body, ensure_ascii=False, indent=1)


@command(
    "lhkit prompt --toolset shop.py:toolset",
    "lhkit prompt shop.yaml --scenario add --toolset shop.py:toolset --json",
    "lhkit prompt --toolset shop.py:toolset --against http://127.0.0.1:8080",
)
async def show_prompt(options: PromptOptions, settings: Settings) -> int:
    """Print the prompt of the first turn and the size of its parts; return the exit code.

    Raises:
        UsageError: the toolset, dialect or scenario is invalid, or the toolset's code fails.
        ScenarioError: a scenario is invalid.
        WeightsError: the tokenizer is invalid.
    """
    if options.against is not None:
        return await _compare(options, options.against, settings)
    template = await asyncio.to_thread(_read_template, options, settings)
    dialect = _chosen_dialect(options, template)
    prompt = replace(_first_prompt(options, settings), template=template)
    count_tokens = _token_counter(settings)
    text = prompt.text(dialect)
    parts = _measure_parts(prompt, dialect, count_tokens)
    console = Console()
    if options.as_json:
        report = {
            "dialect": dialect,
            "prompt": text,
            "parts": [asdict(p) for p in parts],
            "left_out": dict(prompt.left_out),
        }
        print_json(console, report)
        return ExitCode.OK
    catalog = load_catalog(settings.locale)
    console.print(Text(printable(text)), soft_wrap=True)
    console.print(_table(parts, catalog))
    if dialect == OPENAI:
        console.print(catalog.text("prompt.server_renders"), soft_wrap=True)
    if count_tokens is None:
        console.print(catalog.text("prompt.no_tokenizer"), soft_wrap=True)
    return ExitCode.OK


async def _compare(options: PromptOptions, what: str, settings: Settings) -> int:
    """Print where the prompt differs from another rendering; return the exit code."""
    named = options.dialect or default_dialect(options.model, is_embedded=False)
    if named is not None:
        require_constraint(named, "off", ())
    scenario = _find_scenario(options)
    request = _first_prompt(options, settings).request
    conversation = Conversation(first=request, last=request, is_whole=False)
    if scenario is not None:
        conversation = await reference_conversation(scenario, load(options.toolset), request)
    template = await asyncio.to_thread(_read_template, options, settings)
    comparison = await compare_prompts(
        what,
        conversation,
        scenario,
        Rendering(dialect=named, template=template),
        model=options.model,
        settings=settings,
    )
    console, catalog = Console(), load_catalog(settings.locale)
    if options.as_json:
        print_json(console, {**asdict(comparison), "identical": not comparison.places})
    else:
        print_lines(comparison_lines(comparison, catalog))
    return ExitCode.FAILED if comparison.places else ExitCode.OK


def comparison_lines(comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield the number of places where two prompts differ, and each with its texts."""
    values = {"against": comparison.against, "dialect": comparison.dialect}
    if not comparison.is_whole:
        yield catalog.text("prompt.first_only")
    if not comparison.places:
        yield catalog.text("prompt.same", **values)
        return
    yield catalog.text("prompt.differ", count=len(comparison.places), **values)
    for place in comparison.places:
        where = catalog.text(
            f"prompt.place.{place.kind}", name=place.name, number=place.number, role=place.role
        )
        yield f"  {where}: …{_shown(place.before)}"
        yield f"    lhkit: {_shown(place.ours) or catalog.text('prompt.nothing')}"
        yield f"    {comparison.against}: {_shown(place.theirs) or catalog.text('prompt.nothing')}"


def _shown(text: str) -> str:
    """Return a text in one line, with its white space visible, and shortened."""
    escaped = json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"')
    return escaped if len(escaped) <= _SHOWN_CHARS else f"{escaped[:_SHOWN_CHARS]}…"


def _read_template(options: PromptOptions, settings: Settings) -> ChatTemplate | None:
    path = options.chat_template
    return None if path is None else read_chat_template(path, settings.now())


def _chosen_dialect(options: PromptOptions, template: ChatTemplate | None) -> str:
    """Return the given dialect, or that of the template's or the model's family.

    Raises:
        UsageError: the dialect is invalid, or the model is of no known family.
    """
    is_embedded = options.model in {None, *EMBEDDED_NAMES}
    dialect = options.dialect
    if dialect is None and template is not None and template.family is not None:
        dialect = template.family.dialect
    dialect = dialect or default_dialect(options.model, is_embedded=is_embedded)
    if dialect is None:
        raise UsageError(
            f"--model {options.model} is of no known model family. Choose a format with --dialect."
        )
    require_constraint(dialect, "off", ())
    return dialect


def _first_prompt(options: PromptOptions, settings: Settings) -> _Prompt:
    toolset = load(options.toolset)
    scenario = _find_scenario(options)
    empty = {"now": settings.now().isoformat(timespec="seconds")}
    locale = options.locale or (scenario.locale if scenario else settings.locale)
    user = scenario.turns[0].user if scenario else ""
    with opened(toolset, scenario.world if scenario else empty, locale) as session:
        assistant = assistant_of(session)
        return _Prompt(
            instructions=assistant.instructions,
            tools=session.registry.definitions,
            context=assistant.context(user),
            user=user,
            history=assistant.history,
            left_out=session.registry.left_out,
        )


def _find_scenario(options: PromptOptions) -> Scenario | None:
    if not options.paths and options.scenario is None:
        return None
    scenarios = load_scenarios(scenarios_at(options.paths, options.toolset))
    if options.scenario is None:
        return scenarios[0]
    by_id = {scenario.id: scenario for scenario in scenarios}
    if options.scenario not in by_id:
        hint = did_you_mean(options.scenario, tuple(by_id)) or ": give the id of one"
        raise UsageError(f"--scenario {options.scenario}: no such scenario in these files{hint}")
    return by_id[options.scenario]


def _token_counter(settings: Settings) -> TokenCounter | None:
    """Return a counter that uses the embedded tokenizer; None if it is not installed."""
    if find_spec("tokenizers") is None:
        return None
    for name in EMBEDDED_NAMES:
        folder = embedded.embedded_folder(name, settings)
        if (folder / "tokenizer.json").is_file():
            encode = load_encoder(folder)
            return lambda text: len(encode(text))
    return None


def _measure_parts(
    prompt: _Prompt, dialect: str, count_tokens: TokenCounter | None
) -> tuple[PromptPart, ...]:
    """Return the size of each part, of the rest (the protocol), and of the whole prompt.

    The size of a part is what the prompt grows by, in any dialect. A tool is measured by adding it
    a second time: removing an only tool would also remove the dialect's text about tools.
    """

    def sizes(changed: _Prompt) -> tuple[int, int, int]:
        text = changed.text(dialect)
        return (count_tokens(text) if count_tokens else 0, len(text), len(text.encode()))

    def part(
        kind: str, larger: Sequence[int], smaller: Sequence[int], tool: str = ""
    ) -> PromptPart:
        tokens, characters, octets = (a - b for a, b in zip(larger, smaller, strict=True))
        return PromptPart(
            kind=kind,
            tool=tool,
            tokens=tokens if count_tokens else None,
            characters=characters,
            bytes=octets,
        )

    whole = sizes(prompt)
    parts = (
        part("instructions", whole, sizes(replace(prompt, instructions=""))),
        *(
            part("tool", sizes(replace(prompt, tools=(*prompt.tools, tool))), whole, tool.name)
            for tool in prompt.tools
        ),
        *([part("history", whole, sizes(replace(prompt, history=())))] if prompt.history else ()),
        part("context", whole, sizes(replace(prompt, context=""))),
        part("user", whole, sizes(replace(prompt, user=""))),
    )
    rows = ((p.tokens or 0, p.characters, p.bytes) for p in parts)
    sums = [sum(column) for column in zip(*rows, strict=True)]
    return (*parts, part("protocol", whole, sums), part("total", whole, (0, 0, 0)))


def _table(parts: Sequence[PromptPart], catalog: Catalog) -> Table:
    table = Table(title=catalog.text("prompt.title"), title_justify="left")
    table.add_column(catalog.text("prompt.part"), overflow="fold")
    for name in ("tokens", "characters", "bytes"):
        table.add_column(catalog.text(f"prompt.{name}"), justify="right")
    for part in parts:
        label = Text(printable(part.tool or catalog.text(f"prompt.{part.kind}")))
        tokens = NOTHING if part.tokens is None else str(part.tokens)
        table.add_row(label, tokens, str(part.characters), str(part.bytes))
    return table
