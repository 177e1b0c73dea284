"""How quickly `match_calls` judges calls, beside BFCL's AST checker on the same calls.

Both sides' CPU is taken in turns within one run, and a ratio is the median of the rounds' ratios.
BFCL's checker does less: it strips punctuation, takes the first call that fits and stops at the
first fault. What that costs in right verdicts is on the page too. Run it with `make bench`.
"""

import json
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
import peers
from figures import Figure, Machine, Measurement
from matching_cases import JUDGED, TIMED, TOOLS, Case, for_bfcl, for_lhkit

from lhkit.harness.matching import match_calls

ROUNDS = 5
TIMES = 1_000
GOAL_A_SECOND = 20_000.0
GOAL_TIMES = 15.0
"""How many times BFCL's CPU ours may be where one or two calls are due, as in most turns."""
GOAL_MS = 1.0
"""What judging eight calls at once may take: less than the harness may spend on a model turn."""
FEW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one side said of one case: its verdict, and CPU microseconds a judgement."""

    accepts: bool
    cpu_us: float


def ours(case: Case, times: int) -> Told:
    """Return what `match_calls` says."""
    wanted, made = for_lhkit(case)
    accepts = match_calls(wanted, made, schemas=TOOLS).matched
    started_s = time.process_time()
    for _ in range(times):
        match_calls(wanted, made, schemas=TOOLS)
    return Told(accepts=accepts, cpu_us=(time.process_time() - started_s) / times * 1e6)


def theirs(python: Path, cases: Sequence[Case], times: int) -> tuple[list[Told], str]:
    """Return what BFCL's checker says of each case, and its version."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([for_bfcl(case) for case in cases], file)
        file.flush()
        rows = peers.told_by(python, "bfcl_checker.py", file.name, "--times", str(times))
    return [Told(accepts=row["accepts"], cpu_us=row["cpu_us"]) for row in rows], rows[0]["version"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One case and the rounds of both sides."""

    case: Case
    ours: Sequence[Told]
    theirs: Sequence[Told]

    @property
    def our_us(self) -> float:
        """The median of our CPU microseconds."""
        return statistics.median(told.cpu_us for told in self.ours)

    @property
    def their_us(self) -> float:
        """The median of BFCL's CPU microseconds."""
        return statistics.median(told.cpu_us for told in self.theirs)

    @property
    def ratio(self) -> float:
        """How many times BFCL's time ours is, as the median of the rounds."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(mine.cpu_us / other.cpu_us for mine, other in pairs)


def measure() -> tuple[list[Compared], list[Compared], str]:
    """Return the timed cases, the judged ones, and BFCL's version.

    Raises:
        AssertionError: a side is wrong about a timed case, so that its time would say nothing.
    """
    python = peers.peer_python(peers.BFCL)
    rounds: list[Any] = []
    for _ in range(ROUNDS):
        mine = [ours(case, TIMES) for case in TIMED]
        rounds.append((mine, theirs(python, TIMED, TIMES)[0]))
    timed = [
        Compared(case=case, ours=[r[0][i] for r in rounds], theirs=[r[1][i] for r in rounds])
        for i, case in enumerate(TIMED)
    ]
    for row in timed:
        said = {told.accepts for told in (*row.ours, *row.theirs)}
        if said != {row.case.is_right}:
            raise AssertionError(f"{row.case.name}: the verdicts are {said}")
    verdicts, version = theirs(python, JUDGED, 1)
    judged = [
        Compared(case=case, ours=[ours(case, 1)], theirs=[verdict])
        for case, verdict in zip(JUDGED, verdicts, strict=True)
    ]
    return timed, judged, version


def right(judged: Sequence[Compared]) -> tuple[int, int]:
    """Return how many of the judged cases lhkit and BFCL are right about."""
    mine = sum(row.ours[0].accepts is row.case.is_right for row in judged)
    return mine, sum(row.theirs[0].accepts is row.case.is_right for row in judged)


def found(
    timed: Sequence[Compared], judged: Sequence[Compared], version: str, machine: Machine
) -> Measurement:
    """Return the figures."""
    mine, other = right(judged)
    one = timed[0]
    return Measurement(
        title="Matching: `match_calls` beside BFCL's AST checker",
        command="python evals/benchmarks/call_matching.py",
        versions={"Python": platform.python_version(), "bfcl-eval": version},
        figures=(
            Figure(
                what="`match_calls`, one call",
                value=1e6 / one.our_us,
                unit="a second",
                at_least=GOAL_A_SECOND,
            ),
            *(figure for row in timed for figure in _figures(row)),
            Figure(
                what="hard verdicts that `match_calls` gets right",
                value=mine,
                unit=f"of {len(judged)}",
                at_least=len(judged),
            ),
            Figure(what="the same, BFCL", value=other, unit=f"of {len(judged)}"),
        ),
        machine=machine,
    )


def _figures(row: Compared) -> list[Figure]:
    what = f"CPU of `match_calls`, {row.case.name}"
    if len(row.case.expected) <= FEW:
        times = Figure(what=f"{what}: times BFCL's", value=row.ratio, unit="×", at_most=GOAL_TIMES)
        return [times]
    return [
        Figure(what=what, value=row.our_us / 1000, unit="ms", at_most=GOAL_MS),
        Figure(what=f"{what}: times BFCL's", value=row.ratio, unit="×"),
    ]


def page(timed: Sequence[Compared], judged: Sequence[Compared], told: Measurement) -> str:
    """Return the page."""
    marks = {True: "accepts", False: "refuses"}
    lines = [
        *figures.heading(told, f"medians of {ROUNDS} rounds of {TIMES:,} judgements"),
        "Both judge the same calls and agree on these. BFCL's checker is its package's own code;",
        "its table of models, which wants every vendor's client installed, is left empty.",
        "",
        "| calls | lhkit CPU µs | BFCL CPU µs | lhkit : BFCL |",
        "|---|---|---|---|",
        *(
            f"| {row.case.name} | {row.our_us:.1f} | {row.their_us:.1f} | {row.ratio:.1f} × |"
            for row in timed
        ),
        "",
        "BFCL takes the first call that fits and drops punctuation; `match_calls` assigns",
        "optimally, compares by schema, and says of every argument what is wrong. Where it shows:",
        "",
        "| calls | right would be | lhkit | BFCL |",
        "|---|---|---|---|",
        *(
            f"| {row.case.name} | {marks[row.case.is_right]} | {marks[row.ours[0].accepts]} "
            f"| {marks[row.theirs[0].accepts]} |"
            for row in judged
        ),
        "",
        *figures.goals(told.figures),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write the page."""
    machine = figures.this_machine()
    timed, judged, version = measure()
    measurement = found(timed, judged, version, machine)
    figures.write("call_matching", page(timed, judged, measurement), measurement)


if __name__ == "__main__":
    main()
