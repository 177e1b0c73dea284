"""What a destructive call would do, in words for the person who decides. Pure; never raises."""

import inspect
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from lhkit.json_values import JSON, read_only_json
from lhkit.locales import Catalog

_log = logging.getLogger(__name__)

DEPS_PARAMETER = "deps"
"""A parameter of this name gets what the tools work on, in handlers and in summaries."""

Summarizer: TypeAlias = Callable[..., str]
"""A tool's own summary: (the validated arguments, in a mapping of its own, texts) to words.
With a parameter named `deps` it is handed what the handlers get, to look up whom or what an id
means. That is no copy: a summary only reads it."""


class Summarizable(Protocol):
    """What `summarize` needs to know of a tool."""

    @property
    def summarize(self) -> Summarizer | None:
        """The tool's own summary, if it has one."""
        ...


def summarize(
    tool: Summarizable, args: Mapping[str, JSON], catalog: Catalog, deps: Any = None
) -> str:
    """Return the tool's own summary of `args`, or the arguments as indented JSON.

    Where the tool's own summary fails, a sentence above the arguments says so.
    """
    own = tool.summarize
    if own is None:
        return pretty(args)
    try:
        more = {DEPS_PARAMETER: deps} if _takes_deps(own) else {}
        return str(own(dict(read_only_json(args)), catalog, **more))
    except Exception as error:  # noqa: BLE001 - boundary: it must not hide the arguments
        _log.warning("a summary failed: the arguments are shown as they are", exc_info=True)
        return f"{catalog.text('confirm.no_summary', type=type(error).__name__)}\n{pretty(args)}"


def _takes_deps(own: Summarizer) -> bool:
    try:
        return DEPS_PARAMETER in inspect.signature(own).parameters
    except (TypeError, ValueError):  # a callable of C tells no signature
        return False


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
