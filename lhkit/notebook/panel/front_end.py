"""Detect the kernel, the running cell and a terminal, and ask the user by text."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from lhkit.base.locales import Catalog
from lhkit.confirm.terminal import TerminalGate, discard_pending_input, is_terminal

Ask: TypeAlias = Callable[[str], str]
"""Shows a prompt and returns a line; raises if there is no user to ask."""

_Answer = TypeVar("_Answer")


def in_kernel() -> bool:
    """Return True in a Jupyter kernel, where a widget may be shown."""
    return _kernel() is not None


def in_cell() -> bool:
    """Return whether a cell runs in this context, so that `input` reaches its page."""
    kernel = _kernel()
    if kernel is None:
        return False
    header = kernel.get_parent("shell").get("header") or {}
    return header.get("msg_type") == "execute_request"


async def ask_by_text(
    question: Callable[[TerminalGate], Awaitable[_Answer]], catalog: Catalog, ask: Ask
) -> _Answer | None:
    """Ask by text, and block until the question is answered.

    Text typed into a terminal before the question is discarded.

    Returns:
        The answer; None without a cell whose front end takes input, or a terminal.
    """
    if not (in_cell() if in_kernel() else is_terminal()):
        return None
    shown: list[str] = []

    async def read(prompt: str) -> str:
        text = "\n".join([*shown, prompt])
        shown.clear()
        return ask(text)

    try:
        return await question(TerminalGate(read, shown.append, catalog, forget=_forget))
    except (OSError, RuntimeError):  # the front end takes no input
        return None


async def _forget() -> bool:
    """Discard earlier terminal input; a cell's front end buffers none."""
    return False if in_kernel() else await discard_pending_input()


def show(widget: Any) -> None:
    """Display a widget in the output of the running cell."""
    from IPython.display import display

    display(widget)  # type: ignore[no-untyped-call]


class SavedOutput:
    """The copy of a panel in its notebook: an output below the widget, renewed in place.

    A notebook file keeps no widget. The widget's own output stays untouched, because a page that
    renews it builds the widget again, and the user would lose the focus and what they type.

    Args:
        content: returns the copy as HTML and as text.
        send: sends a message to the pages that show the widget.
    """

    def __init__(
        self, content: Callable[[], tuple[str, str]], send: Callable[[dict[str, Any]], None]
    ) -> None:
        self._content, self._send = content, send
        self._handle: Any = None
        self._model_id = ""
        self._kept: tuple[str, str] | None = None

    def display(self, widget: Any, name: str) -> None:
        """Display a widget, which a viewer without it shows as `name`, and the copy below it."""
        from IPython.display import DisplayHandle, display

        view = widget._repr_mimebundle_()
        data, metadata = view if isinstance(view, tuple) else (view, {})  # Colab reads metadata
        shown = {**data, "text/plain": name}
        display(shown, raw=True, metadata=metadata)  # type: ignore[no-untyped-call]
        if self._handle is None:
            self._handle = DisplayHandle()  # type: ignore[no-untyped-call]
        self._model_id, self._kept = widget.model_id, self._content()
        self._handle.display(_bundle(self._kept), raw=True)

    def renew(self) -> None:
        """Renew the copy wherever it was displayed, if it has changed."""
        if self._kept is None or not in_kernel():
            return
        content = self._content()
        if content != self._kept:
            self._kept = content
            self._handle.update(_bundle(content), raw=True)
            self.resend()

    def resend(self) -> None:
        """Send the copy to the pages: one that was opened after the cell ran gets no update."""
        if self._kept is not None:
            data = _bundle(self._kept)
            self._send({"type": "copy", "model_id": self._model_id, "data": data})


def _bundle(content: tuple[str, str]) -> dict[str, str]:
    html, text = content
    return {"text/html": html, "text/plain": text}


def _kernel() -> Any:
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return getattr(running, "kernel", None)
