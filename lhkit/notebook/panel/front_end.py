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


def _kernel() -> Any:
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return getattr(running, "kernel", None)
