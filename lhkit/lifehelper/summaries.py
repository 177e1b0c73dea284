"""What a person reads before a habit or an entry is written; texts come from the locales.

Values are shown on one line, so that a sentence cannot imitate another line of the question.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lhkit.lifehelper.catalog import ProtocolCatalog
from lhkit.locales import Catalog

_NUMBERED = re.compile(r"-\d+$")


@dataclass(frozen=True, slots=True)
class Summaries:
    """The summaries of the two tools that write, with the titles of `protocols`."""

    protocols: ProtocolCatalog

    def add_habit(self, args: Mapping[str, Any], catalog: Catalog) -> str:
        """Return which protocol is added, in which frame, sentence and anchors."""
        return catalog.text(
            "summary.add_habit",
            title=self._title(args["protocol_id"], catalog.locale),
            frame=catalog.text(f"frame.{args['frame_level']}"),
            sentence=_line(args["framed_text"]),
            anchors=_anchors(args, catalog),
        )

    def log_tracker_entry(self, args: Mapping[str, Any], catalog: Catalog) -> str:
        """Return what is saved for which habit and day."""
        return catalog.text(
            "summary.log_tracker_entry",
            habit=self._title(args["habit_id"], catalog.locale),
            date=args.get("date") or catalog.text("summary.today"),
            value=catalog.text(f"summary.{args['value']}"),
        )

    def _title(self, key: str, locale: str) -> str:
        """Return the title of a protocol or of a habit (`<protocol id>` or `<protocol id>-2`)."""
        protocol = self.protocols.get(key) or self.protocols.get(_NUMBERED.sub("", key))
        text = protocol.texts.get(locale) if protocol else None
        return text.title if text else _line(key)


def _anchors(args: Mapping[str, Any], catalog: Catalog) -> str:
    """Return the anchors that are given, each with what it is."""
    given = (
        ("when", args.get("anchor_when", "")),
        ("after_what", args.get("anchor_after_what", "")),
    )
    said = [catalog.text(f"summary.{key}", text=_line(text)) for key, text in given if _line(text)]
    return " / ".join(said) or "-"


def _line(text: str) -> str:
    return " ".join(text.split())
