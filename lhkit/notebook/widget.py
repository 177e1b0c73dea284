"""The widget in the front end."""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

import anywidget
import ipywidgets
import traitlets

from lhkit.confirm.form import Form, FormAnswer
from lhkit.confirm.gate import ConfirmRequest, FormLines, forget_typed, is_yes
from lhkit.locales import Catalog, load_catalog
from lhkit.notebook.export import to_lines
from lhkit.notebook.render import Patch, View, patches, render
from lhkit.notebook.state import PanelEvent, PanelState, fold
from lhkit.text import whole_unicode

# The event loop that owns a panel, reached from any thread.
#
# Callbacks of widgets may run in another thread with another loop (ipykernel's subshells), so they
# only hand over to this one.


class HomeLoop:
    """The loop that ran when this was made, or the first one that `bind` meets."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # made outside a loop: bound by the first awaited method
            return

    def bind(self) -> asyncio.AbstractEventLoop:
        """Return the loop; it must be called from a coroutine on it."""
        running = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = running
        return self._loop

    def hand_over(self, call: Callable[..., Any], *args: Any) -> None:
        """Run `call` on the loop, soon. Any thread; nothing happens where there is no loop."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)

    def later(self, delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle | None:
        """Run `call` on the loop after `delay_s`; None where no loop runs. The loop's thread."""
        if self._loop is None or not self._loop.is_running():
            return None
        return self._loop.call_later(delay_s, call)


# What stands around the kernel: is there one, is a cell running, can a person type?


Ask: TypeAlias = Callable[[str], str]
"""Shows a prompt and returns a line; raises if nobody can be asked."""


def in_kernel() -> bool:
    """Return True in a Jupyter kernel, where a widget may be shown."""
    return _kernel() is not None


def in_cell() -> bool:
    """Return True while a cell runs in this context, so that `input` reaches its front end."""
    kernel = _kernel()
    if kernel is None:
        return False
    header = kernel.get_parent("shell").get("header") or {}
    return header.get("msg_type") == "execute_request"


async def typed_answer(prompt: str, ask: Ask = input) -> bool | None:
    """Ask in words where a person can answer; None where nobody can.

    In a kernel that is a cell whose front end takes input, elsewhere a terminal, where what was
    typed before the question does not count. It blocks until the person answers.
    """
    if not _can_type():
        return None
    await _forget()
    try:
        return is_yes(ask(prompt))
    except (EOFError, OSError, RuntimeError):  # nobody can type after all
        return None


async def typed_form(
    request: ConfirmRequest, form: Form, catalog: Catalog, ask: Ask = input
) -> FormAnswer | None:
    """Ask a form in words, as `typed_answer`; None where nobody can answer."""
    if not _can_type():
        return None
    shown: list[str] = []

    async def read(prompt: str) -> str:
        told = "\n".join([*shown, prompt])
        shown.clear()
        return ask(told)

    try:
        return await FormLines(read, shown.append, catalog, forget=_forget).fill_in(request, form)
    except (OSError, RuntimeError):
        return None


def _can_type() -> bool:
    return in_cell() if in_kernel() else _is_terminal()


async def _forget() -> bool:
    """Throw away what was typed before; a cell's front end has no such thing."""
    return False if in_kernel() else await forget_typed()


def show(widget: Any) -> None:
    """Display a widget in the output of the running cell."""
    from IPython.display import display

    display(widget)  # type: ignore[no-untyped-call]


def _kernel() -> Any:
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return getattr(running, "kernel", None)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


# What runs for a panel: one turn at a time, and the work that buttons started.


HEARTBEAT_S = 0.25
"""How long an await may sleep: an Interrupt is only seen when the loop wakes."""

Work: TypeAlias = Coroutine[Any, Any, None]


class Running:
    """Owns the tasks of one panel, all of them on its loop.

    Args:
        loop: the loop of the panel.
        failed: is told of a fault in work that nobody awaits.
    """

    def __init__(self, loop: HomeLoop, failed: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._failed = failed
        self._turn: asyncio.Task[None] | None = None
        self._started: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """True while a turn runs."""
        return self._turn is not None

    @property
    def is_active(self) -> bool:
        """True while a turn runs or a button's work is about to begin one."""
        return self.is_busy or not all(task.done() for task in self._started)

    async def turn(self, work: Work, interrupt: Callable[[], None]) -> None:
        """Run a turn to its end. When the caller is cancelled, `interrupt` must end the turn."""
        self._loop.bind()
        self._turn = task = asyncio.create_task(work)
        try:
            with _ended_by_signal(lambda: self._loop.hand_over(interrupt)):
                while not task.done():
                    await asyncio.wait({task}, timeout=HEARTBEAT_S)
            task.result()
        except (asyncio.CancelledError, KeyboardInterrupt):
            while not task.done():
                interrupt()
                await asyncio.wait({task}, timeout=HEARTBEAT_S)
            raise
        finally:
            self._turn = None

    def start(self, work: Work) -> None:
        """Begin work for a button; its fault is told."""
        task = asyncio.ensure_future(work)
        self._started.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._started.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)


@contextmanager
def _ended_by_signal(interrupt: Callable[[], None]) -> Iterator[None]:
    """Let Jupyter's Interrupt end a turn that a button began.

    While no cell runs a kernel ignores the signal; while one does, the signal is the cell's.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    is_over = False

    def on_signal(*_: object) -> None:
        if not is_over:  # a cell that ran meanwhile may put this back when it ends
            interrupt()

    signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        is_over = True
        if signal.getsignal(signal.SIGINT) is on_signal:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


# The shell in the browser: traits, patches and messages. It holds no logic and no state.
#
# The list of messages is state of the widget (a reloaded page gets it whole) but travels as
# patches, so that an update sends only what changed.


_STATIC = Path(__file__).parent / "static"


class _Sent(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget is skipped by mypy
    """A widget whose messages always arrive: half a surrogate pair in one would stop it.

    A model can write one in JSON, and the kernel's messages are UTF-8.
    """

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return the traits as a page gets them."""
        state: dict[str, Any] = _whole(super().get_state(key, drop_defaults))
        return state

    def send(self, content: Any, buffers: Any = None) -> None:
        """Send a message to the pages."""
        super().send(_whole(content), buffers)


def _whole(value: Any) -> Any:
    match value:
        case str():
            return whole_unicode(value)
        case list():
            return [_whole(each) for each in value]
        case dict():
            return {key: _whole(each) for key, each in value.items()}
        case _:
            return value


class PanelWidget(_Sent):
    """One panel or card as the browser sees it.

    Args:
        name: returns what `repr` says; without an address, so that saved outputs are stable.
        document: returns the HTML of all messages and the number of the last patch.
        receive: is handed every message of the browser, in whatever thread that comes.
    """

    _esm = _STATIC / "panel.js"
    _css = _STATIC / "panel.css"

    fragments = traitlets.List(traitlets.Unicode()).tag(sync=True)
    revision = traitlets.Int(0).tag(sync=True)
    status = traitlets.Unicode("").tag(sync=True)
    controls = traitlets.Dict().tag(sync=True)
    labels = traitlets.Dict().tag(sync=True)
    locales = traitlets.List(traitlets.Unicode()).tag(sync=True)
    locale = traitlets.Unicode("").tag(sync=True)
    has_input = traitlets.Bool(default_value=True).tag(sync=True)
    title = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        *,
        name: Callable[[], str],
        document: Callable[[], tuple[list[str], int]],
        receive: Callable[[Mapping[str, Any]], None],
        **traits: Any,
    ) -> None:
        self._name = name
        self._document = document
        super().__init__(**traits)
        self.on_msg(lambda _widget, content, _buffers: receive(content))

    def __repr__(self) -> str:
        return self._name()

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return the traits for a page that opens, with the messages as they are now."""
        state: dict[str, Any] = super().get_state(key, drop_defaults)
        if {"fragments", "revision"} & state.keys():
            fragments, revision = self._document()
            state |= {"fragments": _whole(fragments), "revision": revision}
        return state

    def send_patches(self, revision: int, changes: Sequence[Patch]) -> None:
        """Send what changed; `revision` numbers the patches from 1, without a gap."""
        self.send({"type": "patch", "revision": revision, "changes": list(changes)})

    def resend(self) -> None:
        """Send all messages, to a page that may have missed some, and that we hear it."""
        self.send_state(["fragments", "revision"])
        self.send({"type": "here"})

    def call_roll(self) -> None:
        """Ask the pages that show this to say so once more."""
        self.send({"type": "roll_call"})

    def give_back(self, view: str, text: str) -> None:
        """Put words that were not taken back into the text area of a page."""
        self.send({"type": "unsent", "view": view, "text": text})

    def send_file(self, name: str, text: str) -> None:
        """Let the browser save a file."""
        self.send({"type": "file", "name": name, "text": text})


# A state and the widget that shows it: folds events, publishes at most 20 times a second.


UPDATE_S = 0.05
"""At least so many seconds between two updates of the browser."""

_LABELS = (
    *("send", "stop", "retry", "clear", "markdown", "json", "scenario", "locale", "placeholder"),
    *("copy", "copied", "messages", "lost", "waiting"),
)


class Screen:
    """Shows a panel or a single card. All methods belong to the loop's thread.

    Args:
        loop: the loop of the panel.
        catalog: the texts.
        name: what the widget's `repr` says, before the conversation in words.
        receive: is handed messages of the browser, on the loop.
        has_input: False for a card alone.
        locales: the languages to choose from.
        title: stands above the messages, where there is one.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        loop: HomeLoop,
        catalog: Catalog,
        name: str,
        receive: Callable[[Mapping[str, Any]], None],
        has_input: bool = True,
        locales: Sequence[str] = (),
        title: str = "",
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._loop = loop
        self._catalog = catalog
        self._clock = clock
        self._receive = receive
        self._state = PanelState()
        self._view: View | None = None
        self._revision = 0
        self._updated_s = -UPDATE_S
        self._timer: Any = None
        self._viewers: set[str] = set()
        self.was_seen = False
        self.updates = 0
        self.widget = PanelWidget(
            name=lambda: "\n  ".join([name, *to_lines(self._state, self._catalog)]),
            document=self._document,
            receive=lambda content: loop.hand_over(self.take_message, content),
            has_input=has_input,
            locale=catalog.locale,
            locales=list(locales),
            title=title,
            labels=_labels(catalog, locales),
        )

    @property
    def state(self) -> PanelState:
        """What is shown, or will be within `UPDATE_S`."""
        return self._state

    @property
    def is_watched(self) -> bool:
        """True while a front end that can click shows it."""
        return bool(self._viewers)

    @property
    def catalog(self) -> Catalog:
        """The texts."""
        return self._catalog

    @catalog.setter
    def catalog(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.widget.labels = _labels(catalog, self.widget.locales)
        self.widget.locale = catalog.locale
        self._soon()

    def take(self, event: PanelEvent) -> None:
        """Fold an event and show it soon."""
        self._state = fold(self._state, event, at_s=self._clock())
        self._soon()

    def flush(self) -> None:
        """Show the present state now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        view = render(self._state, self._catalog, self._view)
        changes = patches(self._view, view)
        self._view = view
        self._updated_s = self._clock()
        self.updates += 1
        self.widget.controls = dict(view.controls)  # first: a patch tells the page to look at them
        self.widget.status = view.status
        if changes:
            self._revision += 1
            self.widget.send_patches(self._revision, changes)

    def _soon(self) -> None:
        if self._timer is not None:
            return
        wait_s = max(0.0, self._updated_s + UPDATE_S - self._clock())
        self._timer = self._loop.later(wait_s, self.flush)
        if self._timer is None:
            self.flush()

    def _document(self) -> tuple[list[str], int]:
        fragments = self._view.fragments if self._view else ()
        return [fragment.html for fragment in fragments], self._revision

    def take_message(self, content: Mapping[str, Any]) -> None:
        """Take in what a page sent: that it shows this or no longer does, or a press."""
        match content:
            case {"type": "ready", "view": str(view)}:
                self._viewers.add(view)
                self.was_seen = True
                self.widget.resend()
            case {"type": "gone", "view": str()}:
                self._viewers.clear()  # a page that was reloaded or closed never said so
                self.widget.call_roll()
            case {"type": str()}:
                self._receive(content)
            case _:
                pass


def _labels(catalog: Catalog, locales: Sequence[str]) -> dict[str, str]:
    """Return the words of the page; each language is called what it calls itself."""
    names = {f"locale_{each}": load_catalog(each).text("notebook.locale_name") for each in locales}
    return {key: catalog.text(f"notebook.{key}") for key in _LABELS} | names


# A board: parts of HTML with buttons, keys and fields, and what is pressed in it.


class BoardWidget(_Sent):
    """One board as the browser sees it.

    Args:
        name: returns what `repr` says.
        receive: is handed every message of the browser, in whatever thread that comes.
    """

    _esm = _STATIC / "board.js"
    _css = _STATIC / "panel.css"

    parts = traitlets.List(traitlets.Unicode()).tag(sync=True)
    labels = traitlets.Dict().tag(sync=True)
    locale = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        *,
        name: Callable[[], str],
        receive: Callable[[Mapping[str, Any]], None],
        **traits: Any,
    ) -> None:
        self._name = name
        super().__init__(**traits)
        self.on_msg(lambda _widget, content, _buffers: receive(content))

    def __repr__(self) -> str:
        return self._name()


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """What was pressed in a board, with the fields as they were; `view` names the page."""

    name: str
    value: str = ""
    fields: Mapping[str, str]
    view: str = ""


class Board:
    """Shows parts of HTML and hands on what is pressed. All methods belong to the loop's thread.

    Args:
        loop: the loop of the panel.
        catalog: the texts.
        title: what the board is called for those who hear it.
        name: returns what the widget's `repr` says.
        receive: is handed presses, on the loop.
    """

    def __init__(
        self,
        *,
        loop: HomeLoop,
        catalog: Catalog,
        title: str,
        name: Callable[[], str],
        receive: Callable[[Press], None],
    ) -> None:
        self._receive = receive
        words = {key: catalog.text(f"notebook.{key}") for key in ("waiting", "lost")}
        self.widget = BoardWidget(
            name=name,
            receive=lambda content: loop.hand_over(self.take_message, content),
            labels={**words, "title": title},
            locale=catalog.locale,
        )

    def show(self, parts: Sequence[str]) -> None:
        """Show these parts, top to bottom."""
        self.widget.parts = list(parts)

    def give_back(self, view: str, text: str) -> None:
        """Put words that were not taken back into the text area of a page."""
        self.widget.send({"type": "unsent", "view": view, "text": text})

    def take_message(self, content: Mapping[str, Any]) -> None:
        """Take in what a page sent; what is no press is ignored."""
        match content:
            case {"type": "ready"}:
                self.widget.send_state("parts")
                self.widget.send({"type": "here"})
            case {"type": "press", "press": str(name), "value": str(value), "fields": dict(fields)}:
                told = {str(key): each for key, each in fields.items() if isinstance(each, str)}
                view = str(content.get("view", ""))
                self._receive(Press(name=name, value=value, fields=told, view=view))
            case _:
                pass


def stacked(sides: Sequence[Any], board: Any) -> Any:
    """Return widgets beside each other, over a board, as one widget."""
    row = ipywidgets.Box(list(sides))
    row.add_class("lhkit-sides")
    both = ipywidgets.Box([row, board])
    both.add_class("lhkit-ab")
    return both
