"""The summary of a destructive call, for the person who decides; never raises."""

import inspect
import json
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from lhkit.base.json_values import JSON, escaped_key, plain_json
from lhkit.base.locales import Catalog

_log = logging.getLogger(__name__)

DEPS_PARAMETER = "deps"
"""A parameter of this name receives the dependencies, in tool functions and in summaries."""

Summarizer: TypeAlias = Callable[..., str]
"""Takes (a copy of the validated arguments, the `Catalog` of texts), returns the summary.
With a parameter named `deps` it also receives the dependencies, to look up names for ids; they are
not copied, so it must not change them."""


def summarize(
    summarizer: Summarizer | None,
    args: Mapping[str, JSON],
    catalog: Catalog,
    deps: Any = None,
    *,
    filled_in: Collection[str] = (),
) -> str:
    """Return a tool's own summary of `args`; without a summarizer, the arguments as indented JSON.

    If the summarizer raises, the arguments follow a sentence that says so.

    Args:
        summarizer: the tool's own.
        args: the arguments.
        catalog: texts.
        deps: dependencies of the tool.
        filled_in: JSON Pointers of the values that the model left out.
    """
    if summarizer is None:
        return argument_text(args, filled_in, catalog)
    try:
        more = {DEPS_PARAMETER: deps} if _takes_deps(summarizer) else {}
        return str(summarizer(plain_json(args), catalog, **more))
    except Exception as error:  # noqa: BLE001 - boundary: it must not hide the arguments
        _log.warning("a summary failed: the arguments are shown instead", exc_info=True)
        sentence = catalog.text("confirm.no_summary", type=type(error).__name__)
        return f"{sentence}\n{argument_text(args, filled_in, catalog)}"


def argument_text(args: Mapping[str, JSON], filled_in: Collection[str], catalog: Catalog) -> str:
    """Return the arguments as indented JSON, with a word after each value that was filled in.

    Args:
        args: the arguments.
        filled_in: JSON Pointers of the values that the model left out.
        catalog: texts.
    """
    if not filled_in:
        return pretty(args)
    return _marked(args, frozenset(filled_in), f" ({catalog.text('confirm.default')})")


def _marked(value: Any, filled_in: frozenset[str], mark: str, at: str = "") -> str:
    """Return the text of `pretty`, with a mark after each value at one of these pointers."""
    indent = "  " * (at.count("/") + 1)
    if at in filled_in:
        return _indented(value, indent[2:]) + mark
    if isinstance(value, Mapping) and value:
        items = [
            f"{json.dumps(key, ensure_ascii=False)}: "
            + _marked(item, filled_in, mark, f"{at}/{escaped_key(key)}")
            for key, item in value.items()
        ]
        opening, closing = "{", "}"
    elif isinstance(value, list) and value:
        items = [_marked(item, filled_in, mark, f"{at}/{i}") for i, item in enumerate(value)]
        opening, closing = "[", "]"
    else:
        return _indented(value, indent[2:])
    inner = ",\n".join(indent + item for item in items)
    return f"{opening}\n{inner}\n{indent[2:]}{closing}"


def _indented(value: Any, indent: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n" + indent)


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
