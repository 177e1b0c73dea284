"""Are scenarios fit to be asked? Every fault with file, line, field and what to do.

Two kinds of checks: `read_checks` looks at what is written, `played_checks` plays scripted models
through the real runner. Whether a scenario notices mistakes is `mutate`'s business.
"""

from collections.abc import Callable

from lhkit.harness.author.findings import Finding, Level, Remark
from lhkit.harness.author.played_checks import played_remarks
from lhkit.harness.loader import SourceFault, Sources
from lhkit.toolset import Toolset, isolation_fault


def _nobody() -> None:
    """Tell nobody that a scenario is done."""


async def lint(
    sources: Sources, toolset: Toolset, *, tick: Callable[[], object] = _nobody
) -> tuple[Finding, ...]:
    """Return what is wrong with the scenarios, by file and line.

    Args:
        sources: as read by `read_sources`; faults of the files are findings too.
        toolset: knows the tools and the data, and is what the scenarios are played in.
        tick: called after each scenario, for who shows how far it is.
    """
    found = [_of_the_file(fault) for fault in sources.faults]
    fault = isolation_fault(toolset)
    if fault and sources.scenarios:
        first = sources.scenarios[0].id
        remark = Remark("not_isolated", (), f"{', '.join(_PLAYED)} were not checked: {fault}")
        found.append(remark.at(first, sources.origins[first]))
    for scenario in sources.scenarios:
        origin = sources.origins[scenario.id]
        remarks = await played_remarks(scenario, toolset)
        found += [remark.at(scenario.id, origin) for remark in remarks]
        tick()
    return tuple(sorted(found, key=lambda each: (each.file, each.line)))


_PLAYED = (
    "gold",
    "final_state",
    "violation",
    "broken_tool",
    "silent",
    "always_call",
    "unused_fault",
    "unknown_id",
)
"""Codes of the checks that call tools."""


def _of_the_file(fault: SourceFault) -> Finding:
    scenario, _, field = fault.place.partition(".")
    return Finding(
        level=Level.ERROR,
        code="file",
        file=str(fault.file),
        line=fault.line,
        scenario=scenario,
        field=field,
        message=fault.message,
    )
