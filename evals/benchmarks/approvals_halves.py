"""Make a policy of approvals from one half of a run's scenarios, and measure it on the other half.

Prints a table for budgets of 2, 5, 10 and 50 %, in both directions: which tools may run unasked,
how many cards of the other half that saves, and how many of those writes were wrong, with the
two-sided 95 % interval of their risk. With a folder, writes each policy into it.

    lhkit eval datasets/ac/dev datasets/ac/test --model gemma --logprobs --name both
    python evals/benchmarks/approvals_halves.py runs/both policies
"""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lhkit import Run
from lhkit.harness.chats.approvals import policy_of
from lhkit.harness.figures.approvals import Proposal, WriteTools, approvals_of, run_evidence
from lhkit.harness.figures.risk_limits import lower_limit, upper_limit
from lhkit.harness.records.record import SampleRecord

RISKS = (0.02, 0.05, 0.1, 0.5)
_TWO_SIDED = 0.975


def half_of(record: SampleRecord) -> int:
    """Return the half of a sample's scenario, by a hash of its id: 0 or 1."""
    return hashlib.sha256(f"half {record.sample_id.scenario}".encode()).digest()[0] % 2


def let_through(proposals: Sequence[Proposal]) -> str:
    """Return how many writes were wrong, and the interval of their risk by scenario."""
    if not proposals:
        return "0 of 0"
    wrong = sum(each.is_wrong is True for each in proposals)
    clusters: dict[str, list[bool]] = {}
    for each in proposals:
        clusters.setdefault(each.cluster, []).append(each.is_wrong is True)
    shares = [sum(each) / len(each) for each in clusters.values()]
    low, high = lower_limit(shares, _TWO_SIDED), upper_limit(shares, _TWO_SIDED)
    return f"{wrong} of {len(proposals)} ({100 * low:.1f}–{100 * high:.1f} %)"


def rows(run: Run, folder: Path | None) -> Iterator[str]:
    """Yield the rows of the table, and write the policies."""
    tools = WriteTools.of([run.manifest])
    for risk in RISKS:
        for half in (0, 1):
            measured = [record for record in run.records if half_of(record) == half]
            others = [record for record in run.records if half_of(record) != half]
            table = approvals_of(run_evidence(measured), tools=tools, risk=risk)
            known = [each for each in run_evidence(others).proposals if each.is_wrong is not None]
            policy = policy_of(table, [run])
            unasked = [each for each in known if policy.tools[each.tool].may_run(each.min_logprob)]
            names = ", ".join(f"{row.tool} ({row.decision})" for row in table.tools if row.saved)
            yield (
                f"| {100 * risk:g} % | {'AB'[half]} | {names or 'none'} | "
                f"{len(unasked)} of {len(known)} | {let_through(unasked)} |"
            )
            if folder is not None:
                policy.write(folder / f"{'ab'[half]}-{100 * risk:g}.toml")


def main(run_folder: Path, folder: Path | None = None) -> None:
    """Print the table of a run."""
    run = Run.load(run_folder)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    print("| budget | measured on half | may run unasked | cards saved | wrong, let through |")
    print("|---|---|---|--:|--:|")
    print("\n".join(rows(run, folder)))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
