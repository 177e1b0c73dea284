"""The chat panel for notebooks, its confirm card, A/B and review boards, and a demo.

Names are loaded when first used, so that an import displays and starts nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lhkit.base.errors import importing

if TYPE_CHECKING:
    from lhkit.notebook.boards.ab import ABPanel
    from lhkit.notebook.boards.draft_review import DraftReview
    from lhkit.notebook.boards.review import Review
    from lhkit.notebook.demo import demo_panel, life_helper_panel
    from lhkit.notebook.demo_script import demo_reply
    from lhkit.notebook.panel.confirm import ButtonConfirmGate
    from lhkit.notebook.panel.panel import ChatPanel

_HOMES = {
    "ABPanel": "boards.ab",
    "ButtonConfirmGate": "panel.confirm",
    "ChatPanel": "panel.panel",
    "DraftReview": "boards.draft_review",
    "demo_panel": "demo",
    "demo_reply": "demo_script",
    "Review": "boards.review",
    "life_helper_panel": "demo",
}

__all__ = [
    "ABPanel",
    "ButtonConfirmGate",
    "ChatPanel",
    "DraftReview",
    "Review",
    "demo_panel",
    "demo_reply",
    "life_helper_panel",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used.

    Raises:
        AttributeError: the name is unknown.
        MissingPackageError: the notebook's packages are not installed.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'lhkit.notebook' has no attribute {name!r}")
    with importing("notebook"):
        value = getattr(import_module(f"lhkit.notebook.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
