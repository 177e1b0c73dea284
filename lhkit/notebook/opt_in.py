"""Remember the user's consent that text is sent to a model, by model and address.

It is a JSON file in the user's config folder; a file that cannot be read means no consent.
"""

import json
from pathlib import Path

from lhkit.locales import Catalog
from lhkit.responses import ModelIdentity

FILE = "chat-opt-in.json"


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


def licence_of(identity: ModelIdentity, catalog: Catalog) -> str:
    """Return a sentence on the licence terms of a model, chosen by its name."""
    key = "gemma" if "gemma" in identity.model.lower() else "other"
    return catalog.text(f"notebook.licence_{key}")


def _key(identity: ModelIdentity) -> str:
    return f"{identity.model} @ {identity.base_url}"
