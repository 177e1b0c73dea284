"""Untrusted text made safe for a terminal: no escape sequences, no direction tricks.

Not an HTML escape: that is the notebook renderer's business.
"""

import unicodedata

_KEPT = {"\n", "\t"}
_UNSAFE_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = {"\u200c", "\u200d"}  # needed inside words and emoji


def printable(text: str) -> str:
    """Return `text` with control, format and direction characters shown as escapes."""
    return "".join(char if _is_safe(char) else _escaped(char) for char in text)


def _is_safe(char: str) -> bool:
    if char in _KEPT or char in _JOINERS:
        return True
    return unicodedata.category(char) not in _UNSAFE_CATEGORIES


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004 - one byte
