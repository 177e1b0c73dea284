"""The tokens of a family that has its own call markup, and how its values are written.

Shared by FunctionGemma and Gemma 4: `call:NAME{key:value}` with strings between two equal
delimiter tokens, everything else as in JSON. Reading is in `marked_calls`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lhkit.json_values import compact, plain_json
from lhkit.models.dialects.strings import quoted

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_BARE_KEY = re.compile(r"[\w.\-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Markup:
    """One family's tokens; pairs are (start, end).

    `quote` stands before and after a string. `control` matches the `<` of every control token.
    `thinking` holds all spellings of the start, and the end; `preamble` opens the system turn
    where there are tools.
    """

    turn: tuple[str, str]
    system_role: str
    declaration: tuple[str, str]
    call: tuple[str, str]
    response: tuple[str, str]
    quote: str
    control: re.Pattern[str]
    thinking: tuple[tuple[str, ...], str] = ((), "")
    preamble: str = ""

    def defused(self, text: str) -> str:
        """Return `text` without control tokens: `<escape>` becomes `< escape>`."""
        return self.control.sub("< ", _LONE_SURROGATE.sub("\ufffd", text))

    def object(self, members: Mapping[str, Any]) -> str:
        r"""Return an object as text that reads back exactly.

        A string with a control token in it, such as the delimiter itself, is written in JSON
        quotes with `\u003c`; a key that is no plain word is written as a string. Both are our
        extension: the format has no word for them.

        Raises:
            NotJsonError: if JSON cannot carry a value.
        """
        return self._value(plain_json(members))

    def _value(self, plain: Any) -> str:
        if isinstance(plain, str):
            return self._string(plain)
        if isinstance(plain, dict):
            members = (f"{self._key(key)}:{self._value(item)}" for key, item in plain.items())
            return "{" + ",".join(members) + "}"
        if isinstance(plain, list):
            return "[" + ",".join(map(self._value, plain)) + "]"
        return compact(plain)

    def _key(self, key: str) -> str:
        return key if _BARE_KEY.fullmatch(key) else self._string(key)

    def _string(self, text: str) -> str:
        if self.control.search(text) or _LONE_SURROGATE.search(text):
            return quoted(text, self.control)
        return f"{self.quote}{text}{self.quote}"
