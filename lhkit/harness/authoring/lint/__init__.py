"""Are scenarios fit to be asked? Every fault with file, line, field and what to do.

Two kinds of checks: `written` looks at what stands there, `played` plays scripted models through
the real runner. Whether a scenario notices mistakes is `mutate`'s business.
"""

from lhkit.harness.authoring.lint.finding import LEVELS, Finding, Level
from lhkit.harness.authoring.lint.played import played_remarks
from lhkit.harness.replay.environment import Environment
from lhkit.harness.scenarios.scenario import SourceFault, Sources

__all__ = ["LEVELS", "Finding", "Level", "lint"]


async def lint(sources: Sources, environment: Environment) -> tuple[Finding, ...]:
    """Return what is wrong with the scenarios, by file and line.

    Args:
        sources: as read by `read_sources`; faults of the files are findings too.
        environment: knows the tools and the data, and is what the scenarios are played in.
    """
    found = [_of_the_file(fault) for fault in sources.faults]
    for scenario in sources.scenarios:
        origin = sources.origins[scenario.id]
        remarks = await played_remarks(scenario, environment)
        found += [remark.at(scenario.id, origin) for remark in remarks]
    return tuple(sorted(found, key=lambda each: (each.file, each.line)))


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
