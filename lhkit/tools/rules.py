"""The signature of a tool's rules: they take (args), or (args, deps)."""

import inspect
from functools import partial
from typing import Any

from lhkit.confirm.summary import DEPS_PARAMETER
from lhkit.tools.definition import Rule

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def bound_rule(rule: Rule, deps: Any) -> Rule:
    """Return a rule of the arguments alone."""
    names = _parameters(rule)
    if DEPS_PARAMETER in names:
        return partial(rule, **{DEPS_PARAMETER: deps})
    return (lambda args: rule(args, deps)) if len(names) > 1 else rule


def _parameters(rule: Any) -> list[str]:
    """Return the names of the parameters that a rule has to get, and `deps`."""
    try:
        parameters = inspect.signature(rule).parameters.values()
    except (TypeError, ValueError):  # some callables written in C have no signature
        return ["args"]
    return [p.name for p in parameters if p.name == DEPS_PARAMETER or _is_required(p)]


def _is_required(parameter: inspect.Parameter) -> bool:
    is_listed = parameter.kind in (*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
    return is_listed and parameter.default is parameter.empty


def takes_more_than_arguments(check: Any) -> bool:
    """Return whether a function needs more than the arguments of a call."""
    return len(_parameters(check)) > 1


def rule_issue(rule: Any) -> str | None:
    """Return why something cannot be a rule; None if it can."""
    if not callable(rule):
        return f"{type(rule).__name__} is not callable"
    names = _parameters(rule)
    others = [name for name in names if name != DEPS_PARAMETER]
    if len(others) > 2 or (len(others) == 2 and len(names) > 2):
        listed = ", ".join(names)
        return f"({listed}): a rule takes (args) or (args, deps), where args has all arguments"
    return None
