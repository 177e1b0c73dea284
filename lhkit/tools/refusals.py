"""Run the rules of a tool: what may refuse a call before the user is asked.

A rule is user code. Whatever goes wrong in it refuses the call: only None lets one through.
"""

import asyncio
import inspect
import logging
from collections.abc import Mapping
from typing import Any

from lhkit.base.json_values import JSON, plain_json
from lhkit.conversation.tool_results import ToolErr, ToolResult, serialisable
from lhkit.tools.definition import Rule, ToolDefinition
from lhkit.tools.rules import bound_rule

_log = logging.getLogger(__name__)


class RuleFailedError(Exception):
    """A rule did not decide; the message names the exception's type, or what it returned."""


async def refusal(
    tool: ToolDefinition, args: Mapping[str, JSON], deps: Any, *, locale: str
) -> ToolResult | None:
    """Return the refusal of the first rule that refuses a call; None if all allow it.

    Args:
        tool: the tool.
        args: the arguments as they would run; each rule gets a copy.
        deps: dependencies of the tool.
        locale: the language of the reason, if the rule has it in that language.

    Raises:
        RuleFailedError: a rule raised, was late, or returned neither None nor a `ToolErr`.
        CancelledError: the calling task was cancelled.
        KeyboardInterrupt: a rule was interrupted.
    """
    for rule in tool.rules:
        returned = await _returned(rule, tool, args, deps)
        if isinstance(returned, ToolErr):
            return serialisable(returned, locale)
        if returned is not None:
            _log.error("a rule of %s returned a %s", tool.name, type(returned).__name__)
            raise RuleFailedError(f"returned {type(returned).__name__}")
    return None


async def _returned(rule: Rule, tool: ToolDefinition, args: Mapping[str, JSON], deps: Any) -> Any:
    """Return what a rule returns, from a task of its own, which may swallow a cancellation."""
    failure: BaseException | None = None

    async def run() -> Any:
        nonlocal failure
        try:
            returned: Any = bound_rule(rule, deps)(plain_json(args))
            return await returned if inspect.isawaitable(returned) else returned
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - boundary: rules are user code
            _log.exception("a rule of %s failed", tool.name)
            failure = error

    task = asyncio.ensure_future(run())
    try:
        await asyncio.wait({task}, timeout=tool.timeout_s)
    finally:
        task.cancel()  # no more than a late one is still running
    if not task.done():
        _log.error("a rule of %s exceeded %s s", tool.name, tool.timeout_s)
        raise RuleFailedError("TimeoutError")
    if isinstance(failure, KeyboardInterrupt):
        raise failure
    if failure is not None or task.cancelled():
        kind = asyncio.CancelledError if failure is None else type(failure)
        raise RuleFailedError(kind.__name__)
    return task.result()
