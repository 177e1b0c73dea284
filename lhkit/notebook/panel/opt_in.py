"""Remember the user's consent that text is sent to a model, by model and address.

It is a JSON file in the user's config folder; a file that cannot be read means no consent.
"""

import json
from pathlib import Path

from lhkit.base.locales import Catalog
from lhkit.conversation.responses import ModelIdentity
from lhkit.notebook.panel.state import OptInRequested

FILE = "chat-opt-in.json"

NO_CONSENT = (
    "the user has not consented that text is sent: press the button in the panel, call "
    "panel.opt_in(), or create the panel with opt_in=True"
)


class OptIns:
    """The consents stored in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def has(self, identity: ModelIdentity) -> bool:
        """Return whether the user has consented to this model at this address."""
        return _key(identity) in self._agreed()

    def add(self, identity: ModelIdentity) -> None:
        """Store the user's consent.

        Raises:
            OSError: the file cannot be written.
        """
        agreed = sorted({*self._agreed(), _key(identity)})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"agreed": agreed}, ensure_ascii=False, indent=2)
        self._path.write_text(text + "\n", encoding="utf-8")

    def _agreed(self) -> list[str]:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        agreed = content.get("agreed") if isinstance(content, dict) else None
        return [key for key in agreed if isinstance(key, str)] if agreed else []


def opt_in_request(
    identity: ModelIdentity, catalog: Catalog, licence: str | None = None
) -> OptInRequested:
    """Return the question for consent; the default sentence on the licence is chosen by name."""
    key = "gemma" if "gemma" in identity.model.lower() else "other"
    return OptInRequested(
        model=identity.model,
        address=identity.base_url,
        licence=licence or catalog.text(f"notebook.licence_{key}"),
    )


def _key(identity: ModelIdentity) -> str:
    return f"{identity.model} @ {identity.base_url}"
