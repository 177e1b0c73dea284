"""Replace the instructions of a toolset's assistant."""

from collections.abc import Mapping
from dataclasses import replace

from lhkit.chat.assistant import Assistant
from lhkit.toolset.base import Session, Toolset
from lhkit.toolset.sessions import WrappedToolset


def with_instructions(toolset: Toolset, instructions: Mapping[str, str]) -> Toolset:
    """Return the toolset with the instructions replaced, by locale."""

    def assistant(session: Session, locale: str) -> Assistant:
        original = session.assistant
        return replace(original, instructions=instructions.get(locale, original.instructions))

    return WrappedToolset(inner=toolset, assistant=assistant) if instructions else toolset
