"""What a destructive call would do, in words for the person who decides. Pure; never raises."""

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Protocol, TypeAlias

from lhkit.json_values import JSON
from lhkit.locales import Catalog

Summarizer: TypeAlias = Callable[[Mapping[str, JSON], Catalog], str]
"""A tool's own summary: (a copy of the validated arguments, texts) to words."""


class Summarizable(Protocol):
    """What `summarize` needs to know of a tool."""

    @property
    def summarize(self) -> Summarizer | None:
        """The tool's own summary, if it has one."""
        ...


def summarize(tool: Summarizable, args: Mapping[str, JSON], catalog: Catalog) -> str:
    """Return the tool's own summary of `args`, or the arguments as indented JSON."""
    if tool.summarize is None:
        return pretty(args)
    try:
        return str(tool.summarize(deepcopy(args), catalog))
    except Exception:  # noqa: BLE001 - boundary: a broken summary must not hide the arguments
        return pretty(args)


def pretty(args: Mapping[str, JSON]) -> str:
    """Return `args` as indented JSON; values that JSON has no word for appear as their `repr`."""
    for shown in (_indented, repr):
        try:
            return shown(args)
        except Exception:  # noqa: BLE001, S112 - boundary: what stands there may break when read
            continue
    return f"<{type(args).__name__}>"


def _indented(args: Mapping[str, JSON]) -> str:
    return json.dumps(dict(args), ensure_ascii=False, indent=2, default=repr)
