"""Tools that break on purpose: what a scenario lists under `faults`, played through the real path.

The handler raises, and the dispatcher does with it what it does with any handler that raises. A
call that never reaches the handler (refused, not confirmed) uses up no fault.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lhkit.errors import ScenarioError
from lhkit.harness.turn import ScriptedFault
from lhkit.json_values import JSON
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.registry import ToolRegistry


class ScriptedFaultError(Exception):
    """Raised in place of a tool's work, because the scenario says so."""


def breaking(
    registry: ToolRegistry, faults: Sequence[ScriptedFault], *, coming: Collection[str] = ()
) -> ToolRegistry:
    """Return the tools of which some fail at first; the count starts anew with every return.

    Args:
        registry: the tools.
        faults: which fail, and how often.
        coming: tools that may be registered later; they fail, too.

    Raises:
        ScenarioError: a fault names a tool that is not there; the message names the field.
    """
    for number, fault in enumerate(faults):
        if fault.tool not in registry and fault.tool not in coming:
            known = ", ".join(registry)
            raise ScenarioError(
                f"faults[{number}].tool: there is no tool {fault.tool!r}: choose one of {known}"
            )
    if not faults:
        return registry
    times = {fault.tool: fault.times for fault in faults}

    def broken(tool: ToolDefinition) -> ToolDefinition:
        count = times.get(tool.name, 0)
        return replace(tool, handler=_failing(tool.handler, count)) if count else tool

    return registry.mapped(broken)


def _failing(handler: Handler, times: int) -> Handler:
    left = times

    def handle(args: Mapping[str, JSON], deps: Any) -> Any:
        nonlocal left
        if left > 0:
            left -= 1
            raise ScriptedFaultError
        return handler(args, deps)

    return handle
