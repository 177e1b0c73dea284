"""Whether the user has agreed that their text goes to a model: asked once for each address.

One small JSON file in the user's config folder. A file that cannot be read means: not agreed.
"""

import json
from pathlib import Path

from lhkit.locales import Catalog
from lhkit.responses import ModelIdentity

FILE = "chat-opt-in.json"


class OptIns:
    """The agreements kept in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def has(self, identity: ModelIdentity) -> bool:
        """Return True if the user agreed to this model at this address before."""
        return _key(identity) in self._agreed()

    def add(self, identity: ModelIdentity) -> None:
        """Remember that the user agreed.

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
        return [each for each in agreed if isinstance(each, str)] if agreed else []


def licence_of(identity: ModelIdentity, catalog: Catalog) -> str:
    """Return a sentence on the licence terms of a model, by its name."""
    key = "gemma" if "gemma" in identity.model.lower() else "other"
    return catalog.text(f"notebook.licence_{key}")


def _key(identity: ModelIdentity) -> str:
    return f"{identity.model} @ {identity.base_url}"
