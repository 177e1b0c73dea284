"""`lhkit demo`: three requests and twelve scenarios with a scripted assistant, in a terminal.

The tools, their gate, the simulated users and the scores are those of every chat and run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import psutil
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lhkit import app
from lhkit.base.json_values import compact
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.text import visible
from lhkit.cli.chat.terminal import TerminalChat
from lhkit.cli.demo.assistant import demo_model, scenario_file
from lhkit.cli.frame.command import Options, command
from lhkit.cli.frame.console import is_interactive, print_lines
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import Locale
from lhkit.cli.init import init
from lhkit.cli.report import ReportFiles, require_page_packages, write_reports
from lhkit.confirm.gate import GuardedGate
from lhkit.confirm.terminal import TerminalGate
from lhkit.conversation.messages import GateOutcome
from lhkit.harness.figures.metrics import ConfirmScore, confirm_score, unexpected_writes
from lhkit.harness.records.record import CallRecord
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.harness.running.run import replay
from lhkit.harness.running.sessions import LiveSession
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.scenarios.user import User
from lhkit.settings import Settings
from lhkit.toolset import Toolset, closing_session, load

TOOLS = init.FILES["tools.py"]
"""The toolset of the demo: the one that `lhkit init` writes."""

USERS: Sequence[User] = ("careful", "hasty")

NEXT = {
    "init": "lhkit init shop",
    "eval": "lhkit eval shop --model gold",
    "own": "lhkit eval shop --base-url http://127.0.0.1:11434 --model NAME",
}
"""The commands that come next; each has its explanation under `demo.play_…`."""

WIDTH = 80

_KEY_S, _TEXT_S, _READ_S = 0.04, 0.03, 1.0
_LEAST_PAUSE = 0.4
"""The share of a pause that stays on a late machine, so that people can read."""

Sleep: TypeAlias = Callable[[float], Awaitable[object]]


class DemoOptions(Options):
    """Options of `lhkit demo`."""

    locale: Locale = None
    fast: Annotated[bool, typer.Option("--fast", help="Show everything at once, as in a pipe.")] = (
        False
    )
    html: Annotated[
        Path | None,
        typer.Option(dir_okay=False, metavar="FILE", help="Write the report of the scenarios."),
    ] = None


@command("lhkit demo", "lhkit demo --locale ko", "lhkit demo --html demo.html")
async def play_demo(
    options: DemoOptions,
    settings: Settings,
    *,
    sleep: Sleep = asyncio.sleep,
    clock: Callable[[], float] | None = None,
) -> int:
    """Play the demo, and return the exit code.

    Args:
        options: the command's options.
        settings: of this process.
        sleep: waits for so many seconds; only called where a person reads along.
        clock: returns the seconds since the start, by default that of the process; pauses are
            shorter where the machine is late.

    Raises:
        MissingPackageError: `html` is given, and the packages of the extra `eval` are missing.
        RunError: the report cannot be written.
    """
    if options.html is not None:
        require_page_packages()
    settings = settings.model_copy(update={"locale": options.locale or settings.locale})
    catalog, console = load_catalog(settings.locale), _console()
    is_read = is_interactive(console) and not options.fast
    pause = _Pace(sleep, clock or _process_age(settings)).pause if is_read else _no_pause
    screen = _Screen(console=console, catalog=catalog, sleep=pause)
    toolset = load(f"{TOOLS}:toolset")
    scenarios = load_scenarios(scenario_file(settings.locale))
    screen.show("demo.play_title", style="bold")
    screen.show("demo.play_lead")
    await _talk(screen, toolset, scenarios, settings)
    runs = await _evaluate(screen, toolset, scenarios)
    if options.html is not None:
        files, hasty = ReportFiles(html=options.html), runs["hasty"]
        comparison = compare(runs["careful"], hasty)
        print_lines(
            write_reports(hasty, files, catalog, name=hasty.name, comparison=comparison), console
        )
    _show_next(screen)
    return ExitCode.OK


def _console() -> Console:
    new = partial(Console, highlight=False, markup=False, emoji=False)
    console = new()
    return console if is_interactive(console) else new(width=WIDTH)


def _process_age(settings: Settings) -> Callable[[], float]:
    started_s = psutil.Process().create_time()
    return lambda: settings.now().timestamp() - started_s


async def _no_pause(_seconds: float) -> None:
    """Wait for nothing."""


class _Pace:
    """Pauses by a plan: what the machine takes for its work is taken from the pauses after it."""

    def __init__(self, sleep: Sleep, clock: Callable[[], float]) -> None:
        self._sleep, self._clock, self._next_s = sleep, clock, 0.0

    async def pause(self, seconds: float) -> None:
        """Wait until the plan's next time, or for the least share of the pause."""
        self._next_s += seconds
        await self._sleep(min(seconds, max(self._next_s - self._clock(), seconds * _LEAST_PAUSE)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Screen:
    console: Console
    catalog: Catalog
    sleep: Sleep

    def show(self, key: str, *, style: str = "") -> None:
        self.console.print(Text(self.catalog.text(key), style=style))

    def write(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line that the demo types: a message or an answer, after a note and a pause to read."""

    text: str
    note: str = ""


def _lines(scenarios: Sequence[Scenario]) -> Iterator[_Line]:
    """Yield what is typed: a request to approve, one to edit, and one with a false reply."""
    messages = {scenario.id: scenario.turns[0].user for scenario in scenarios}
    yield _Line(text=messages["bread"], note="demo.play_approve")
    yield _Line(text="y")
    yield _Line(text=messages["milk"], note="demo.play_edit")
    yield from (_Line(text=text) for text in ("e", "", "2", "y"))
    yield _Line(text=messages["eggs"], note="demo.play_lie")


async def _talk(
    screen: _Screen, toolset: Toolset, scenarios: Sequence[Scenario], settings: Settings
) -> None:
    """Play the three requests in one chat, as `lhkit chat` shows it."""
    world = next(scenario.world for scenario in scenarios if scenario.id == "count")
    live = LiveSession(toolset, world, None, now=settings.now, locale=settings.locale)
    typist = _Typist(screen, _lines(scenarios))
    gate = TerminalGate(typist.read, screen.write, screen.catalog, forget=typist.forget)
    model = demo_model(settings.locale, pause=partial(screen.sleep, _TEXT_S))
    with closing_session(live.session) as session:
        controller = app.open_chat(model, session, GuardedGate(gate), settings.locale, live.watch())
        chat = TerminalChat(
            controller,
            live,
            read=typist.read,
            console=screen.console,
            catalog=screen.catalog,
            now=settings.now,
            shows_reading=False,
        )
        await chat.converse()


class _Typist:
    """Types the lines of the demo in place of a person."""

    def __init__(self, screen: _Screen, lines: Iterable[_Line]) -> None:
        self._screen, self._lines = screen, iter(lines)

    async def read(self, prompt: str) -> str:
        """Show a prompt, type the next line after it, and return it."""
        line = next(self._lines, None)
        if line is None:
            await self._screen.sleep(_READ_S)
            raise EOFError
        if line.note:
            await self._screen.sleep(_READ_S)
            self._screen.write("")
            self._screen.show(line.note, style="cyan")
        print_part = partial(self._screen.console.print, end="", soft_wrap=True)
        print_part(Text(prompt))
        await self._screen.sleep(_READ_S)
        for letter in line.text:
            print_part(Text(letter, style="bold"))
            await self._screen.sleep(_KEY_S)
        self._screen.write("")
        return line.text

    async def forget(self) -> bool:
        """Return that nothing was typed early."""
        return False


async def _evaluate(
    screen: _Screen, toolset: Toolset, scenarios: Sequence[Scenario]
) -> dict[User, Run]:
    """Run the scenarios with both users, and show what became of the wrong writes."""
    screen.write("")
    screen.show("demo.play_scenarios", style="cyan")
    model = demo_model(screen.catalog.locale)
    runs: dict[User, Run] = {}
    for user in USERS:
        run = await replay(scenarios, model, toolset=toolset, user=user, progress=False)
        runs[user] = replace(run, name=screen.catalog.text(f"demo.play_{user}"))
    screen.console.print(_table(runs, screen.catalog))
    for line in _wrong_writes(scenarios, runs, screen.catalog):
        screen.write(line)
        await screen.sleep(_READ_S / 3)
    return runs


def _table(runs: dict[User, Run], catalog: Catalog) -> Table:
    """Return the wrong writes and what became of them, by user."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    for name in ("proposed", "corrected", "stopped", "through"):
        table.add_column(catalog.text(f"demo.play_{name}"), justify="right")
    for user, run in runs.items():
        table.add_row(catalog.text(f"demo.play_{user}"), *map(str, _counts(run)), style="bold")
    return table


def _counts(run: Run) -> tuple[int, int, int, int]:
    score: ConfirmScore = confirm_score(run.records)
    return (
        score.unexpected,
        score.unexpected_edited,
        score.unexpected_rejected,
        score.unexpected_executed,
    )


def _wrong_writes(
    scenarios: Sequence[Scenario], runs: dict[User, Run], catalog: Catalog
) -> Iterator[str]:
    """Yield each message with a wrong write, the call, and what each user did about it."""
    for scenario, *records in zip(scenarios, *(run.records for run in runs.values()), strict=True):
        writes = [list(unexpected_writes(record)) for record in records]
        if not writes[-1]:
            continue
        call = writes[-1][0]
        yield f"“{scenario.turns[0].user}”"
        yield visible(f"  ⚙ {call.tool} {compact(call.raw_args)}")
        ends = (
            f"{catalog.text(f'demo.play_{user}')}: {catalog.text(f'demo.play_{_end(each[0])}')}"
            for user, each in zip(runs, writes, strict=True)
            if each
        )
        yield f"    {' · '.join(ends)}"


def _end(call: CallRecord) -> str:
    if call.gate is GateOutcome.REJECTED:
        return "stopped"
    return "corrected" if call.is_edited else "through"


def _show_next(screen: _Screen) -> None:
    screen.write("")
    screen.show("demo.play_next", style="cyan")
    for name, line in NEXT.items():
        screen.write(f"  $ {line}")
        screen.show(f"demo.play_{name}", style="dim")
