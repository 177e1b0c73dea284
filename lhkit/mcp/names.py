"""Names of a server's tools: as the server calls them, and as models see them.

Chat APIs allow fewer names than MCP, which also allows dots and slashes: `notes.get` is shown as
`notes_get`. A tool that has this name on the server keeps it; the other is then `notes_get_2`.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import count

from lhkit.tools.registration import NAME_PATTERN

_MAX_NAME = 64
_MAX_LISTED_CHARS = 400


class ToolNames:
    """The names of a server's tools, in the server's order.

    Args:
        served: the names on the server; repeated ones count once.
    """

    def __init__(self, served: Iterable[str]) -> None:
        served = list(dict.fromkeys(served))
        taken = {name for name in served if NAME_PATTERN.fullmatch(name)}
        self._shown: dict[str, str] = {}
        for name in served:
            if name not in taken:
                self._shown[name] = _free_name(name, taken | set(self._shown.values()))
            else:
                self._shown[name] = name
        self._served = {shown: name for name, shown in self._shown.items()}

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names on the server."""
        return iter(self._shown)

    def shown(self, served: str) -> str:
        """Return the name that models see."""
        return self._shown[served]

    def served(self, name: str) -> str | None:
        """Return the server's name of a tool, given by either name; None if there is no such."""
        return name if name in self._shown else self._served.get(name)


def _free_name(name: str, taken: set[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_MAX_NAME]
    numbered = (f"{plain[: _MAX_NAME - len(end)]}{end}" for end in map("_{}".format, count(2)))
    return plain if plain not in taken else next(name for name in numbered if name not in taken)


def shortened_names(names: Iterable[str]) -> str:
    """Return names in one line, and how many more there are."""
    names = list(names)
    listed, length = 0, 0
    for name in names:
        length += len(name) + 2
        if listed and length > _MAX_LISTED_CHARS:
            break
        listed += 1
    more = f" and {len(names) - listed} more" if listed < len(names) else ""
    return f"{', '.join(names[:listed])}{more}" or "none"
