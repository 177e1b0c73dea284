"""The summary of a destructive call, for the person who decides; never raises."""

import inspect
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from lhkit.json_values import JSON, read_only_json
from lhkit.locales import Catalog

_log = logging.getLogger(__name__)

DEPS_PARAMETER = "deps"
"""A parameter of this name receives the dependencies, in tool functions and in summaries."""

Summarizer: TypeAlias = Callable[..., str]
"""Takes (a copy of the validated arguments, the `Catalog` of texts), returns the summary.
With a parameter named `deps` it also receives the dependencies, to look up names for ids; they are
not copied, so it must not change them."""


def summarize(
    summarizer: Summarizer | None, args: Mapping[str, JSON], catalog: Catalog, deps: Any = None
) -> str:
    """Return a tool's own summary of `args`; without a summarizer, the arguments as indented JSON.

    If the summarizer raises, the arguments follow a sentence that says so.
    """
    if summarizer is None:
        return pretty(args)
    try:
        more = {DEPS_PARAMETER: deps} if _takes_deps(summarizer) else {}
        return str(summarizer(dict(read_only_json(args)), catalog, **more))
    except Exception as error:  # noqa: BLE001 - boundary: it must not hide the arguments
        _log.warning("a summary failed: the arguments are shown instead", exc_info=True)
        return f"{catalog.text('confirm.no_summary', type=type(error).__name__)}\n{pretty(args)}"


def _takes_deps(summarizer: Summarizer) -> bool:
    try:
        return DEPS_PARAMETER in inspect.signature(summarizer).parameters
    except (TypeError, ValueError):  # some callables written in C have no signature
        return False


def pretty(args: Mapping[str, JSON]) -> str:
    """Return `args` as indented JSON; values that are not JSON appear as their `repr`."""
    try:
        return json.dumps(dict(args), ensure_ascii=False, indent=2, default=repr)
    except Exception:  # noqa: BLE001 - boundary: a value may raise when it is read
        try:
            return repr(args)
        except Exception:  # noqa: BLE001 - boundary: as above
            return f"<{type(args).__name__}>"
