"""Two real vLLM servers of the embedded Gemma on two nodes of Ray, beside one server.

The same conversations: are the verdicts the same, and do as many tokens of the prompts come from
the prefix cache? Run it with `python evals/benchmarks/scale_gemma.py`; it writes `scale_gemma.md`.
It takes about 3 GB of memory for each server.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import HERE, this_machine
from scale_kills import Nodes

from lhkit.harness.record import Verdict
from lhkit.harness.results import Run

SCENARIOS = 24
LIMIT_S = 3_000
POINTS = 2.0


def played(folder: Path, name: str, scenarios: int, *more: str) -> tuple[Run, float]:
    """Play the first scenarios of `dev` with the embedded Gemma; return the run and its seconds."""
    begun_s = time.monotonic()
    words = ("eval", "--model", "gemma", "--limit", str(scenarios), "--concurrency", "2")
    where = ("--name", name, "--runs-dir", str(folder), "--exit-zero")
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "lhkit", *words, *where, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT_S,
        check=False,
        text=True,
    )
    if done.returncode != 0:
        raise AssertionError(done.stdout)
    return Run.load(folder / name), time.monotonic() - begun_s


def cached_share(run: Run) -> float:
    """Return how much of the prompts came from the cache, in percent of their tokens."""
    return 100 * (run.summary().tokens.cached_share or 0.0)


def servers(run: Run) -> int:
    """Return how many servers answered."""
    return len(
        {
            call.response.identity.base_url
            for record in run.records
            for turn in record.evidence.turns
            for call in turn.model_calls
        }
    )


def page(one: Run, two: Run, one_s: float, two_s: float) -> str:
    """Return the page."""
    machine = this_machine()
    verdicts = [
        {each.sample_id: each.judgement.verdict for each in run.records} for run in (one, two)
    ]
    same = sum(verdicts[1][sample] is verdict for sample, verdict in verdicts[0].items())
    shares = [cached_share(run) for run in (one, two)]
    rows = "\n".join(
        f"| {name} | {servers(run)} | {list(told.values()).count(Verdict.PASS)} of {len(told)} | "
        f"{share:.1f} % | {whole_s:.0f} s |"
        for name, run, told, share, whole_s in (
            ("one server", one, verdicts[0], shares[0], one_s),
            ("two replicas", two, verdicts[1], shares[1], two_s),
        )
    )
    apart = abs(shares[0] - shares[1])
    goal = "met" if apart <= POINTS else "**not met**"
    return f"""# Scale: two real vLLM servers on two nodes

`python evals/benchmarks/scale_gemma.py` · the embedded Gemma, {len(verdicts[0])} conversations of
`dev`, two at once, on {machine.cores} cores at a load of {machine.load}. Two nodes of Ray on
loopback, on each a replica that starts a vLLM of its own and ends it.

| | servers that answered | passed | prompt tokens from the cache | whole command |
|---|---|---|---|---|
{rows}

The verdict is the same in {same} of {len(verdicts[0])} conversations. The shares of the cache are
{apart:.1f} points apart; the goal of at most {POINTS:.0f} is {goal}.
Both servers share the machine's cores, so the times say nothing of two machines.
"""


def main() -> None:
    """Play both, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=SCENARIOS)
    scenarios = parser.parse_args().scenarios
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as told:
        folder = Path(told)
        one, one_s = played(folder, "one", scenarios)
        nodes = Nodes(folder / "ray", cores=1)
        try:
            more = ("--ray", nodes.cluster.address, "--replicas", "2")
            two, two_s = played(folder, "two", scenarios, *more)
        finally:
            nodes.cluster.shutdown()
        text = page(one, two, one_s, two_s)
    (HERE / "scale_gemma.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
