"""The texts of a function's docstring: its description, and what it says of each parameter.

Google, NumPy and Sphinx styles, read by griffe, which is imported only for a docstring that has
such a part.
"""

import logging
import re
from dataclasses import dataclass, field
from typing import Any

_log = logging.getLogger(__name__)

_GOOGLE = r"(?:(?:keyword )?arg(?:ument)?s|(?:other )?param(?:eter)?s):"
_STYLES = {
    "sphinx": re.compile(r"^[ \t]*:(?:param|parameter|arg|argument|key|keyword)\b.*?:", re.M),
    "numpy": re.compile(r"^[ \t]*(?:other )?parameters[ \t]*\n[ \t]*-{3,}[ \t]*$", re.M | re.I),
    "google": re.compile(rf"^{_GOOGLE}[ \t]*\n[ \t]+\S", re.M | re.I),
}
_NO_BLANK_LINE = re.compile(rf"(?<=\S)[ \t]*\n(?={_GOOGLE}[ \t]*\n[ \t])", re.I)

_PAD = "."
_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class DocTexts:
    """The texts of a docstring, each on one line.

    Attributes:
        description: the first paragraph, without the part about parameters.
        parameters: the text of each parameter, by name.
    """

    description: str
    parameters: dict[str, str] = field(default_factory=dict)


def read_docstring(doc: str) -> DocTexts:
    """Return the texts of a docstring without indentation."""
    for style, pattern in _STYLES.items():
        if pattern.search(doc):
            text, parameters = _parsed(doc, style)
            if parameters:
                return DocTexts(description=_paragraph(text), parameters=parameters)
    return DocTexts(description=_paragraph(doc))


def _paragraph(text: str) -> str:
    return _line(text.split("\n\n")[0])


def _line(text: str) -> str:
    return " ".join(text.split())


def _parsed(doc: str, style: str) -> tuple[str, dict[str, str]]:
    """Return the text before the first section, and the texts of the parameters."""
    import griffe  # takes 70 ms, and few docstrings need it

    # a heading is one only after a blank line, and not at the very start
    padded = f"{_PAD}\n\n{_NO_BLANK_LINE.sub(chr(10) * 2, doc)}"
    try:
        parse: Any = griffe.parse
        sections = parse(griffe.Docstring(padded, lineno=1), style, warnings=False)
    except Exception:  # noqa: BLE001 - boundary: any text, and the tool works without it
        _log.warning("the docstring is not read: %r", doc[:_SHOWN_CHARS], exc_info=True)
        return doc, {}
    parameters = {
        parameter.name: _line(parameter.description or "")
        for section in sections
        if section.kind.value in ("parameters", "other parameters")
        for parameter in section.value
    }
    text = next((section.value for section in sections if section.kind.value == "text"), "")
    return text.removeprefix(_PAD).lstrip("\n"), parameters
