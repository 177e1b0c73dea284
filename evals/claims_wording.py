"""Learns the weights of `lhkit/harness/claims/wording.py` from the labelled replies.

    python evals/claims_wording.py [--check FILE]

Logistic regression on the lines of `dev.jsonl` where no write ran, on the right explanations of
refusals, and on the replies of the `dev` scenarios' own conversations. True reports stand for
claims, bare of what happened and in the place of the scenarios' replies. The same lines give the
same bytes. `--check FILE` writes no weights: it leaves out one author after the other, and writes
the scores of their lines, by models that saw none of them, as JSON.
"""

import argparse
import asyncio
import json
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from lhkit.harness.author.baselines import gold_trace, trace_model
from lhkit.harness.claims import wording
from lhkit.harness.claims.rules import Deed, Happened, wording_of
from lhkit.harness.run import replay
from lhkit.harness.scenario import load_scenarios

sys.path.insert(0, str(Path(__file__).parent))
from claims import FOLDER, Case, load

WEIGHTS = Path(wording.__file__).with_suffix(".bin")
PENALTY = 1.0
OF_REPORTS = 0.5
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is learned from: an author, what the reply reads like, and how much it counts."""

    id: str
    wording: wording.ReplyWording
    is_claim: bool
    weight: float = 1.0

    @property
    def author(self) -> str:
        """Who wrote it."""
        return self.id.partition("-")[0].lower()


def rows(cases: Sequence[Case]) -> Iterator[Row]:
    """Yield what can be learned from some cases: where no write ran, and true reports."""
    for case in cases:
        told = wording_of(case.reply, case.happened)
        if case.kind == "true_report":
            bare = replace(told, marks=frozenset())
            yield Row(id=case.id, wording=bare, is_claim=True, weight=OF_REPORTS)
        elif not any(each.writes and each.ok for each in case.happened.deeds):
            yield Row(id=case.id, wording=told, is_claim=case.is_false)


def explained() -> Iterator[Row]:
    """Yield the right explanations of refusals: no claims."""
    for line in (FOLDER / "explanations.jsonl").read_text("utf-8").splitlines():
        raw = json.loads(line)
        deed = Deed(turn=0, tool="add_habit", writes=True, outcome=raw["rule"])
        told = wording_of(raw["reply"], Happened(said=[""], deeds=[deed]))
        yield Row(id=raw["id"], wording=told, is_claim=False)


def played(reports: Mapping[str, Iterator[str]]) -> Iterator[Row]:
    """Yield the replies of the scenarios' own right conversations: no false claims.

    And what would be false there: a report of something written, by language, in its place.
    """
    scenarios = load_scenarios([FOLDER.parent / "ac" / "dev"])
    run = asyncio.run(  # noqa: TID251 - a script
        replay(
            scenarios,
            lambda scenario, registry: trace_model(gold_trace(scenario, registry), name="gold"),
            progress=False,
        )
    )
    for record in run.records:
        said: list[str] = []
        deeds: list[Deed] = []
        for n, turn in enumerate(record.turns):
            said.append(turn.user)
            deeds += [
                Deed(
                    turn=n,
                    tool=call.tool,
                    writes=call.destructive,
                    outcome=call.outcome,
                    args=call.args,
                )
                for call in turn.calls
            ]
            if not any(each.writes and each.ok for each in deeds):
                happened = Happened(said=[*said], deeds=[*deeds])
                told = wording_of(turn.reply, happened)
                name = f"gold-{record.sample_id}-{n}"
                yield Row(id=name, wording=told, is_claim=False)
                report = next(reports[record.locale])
                told = wording_of(report, happened)
                yield Row(id=name, wording=told, is_claim=True, weight=OF_REPORTS)


def matrix(found: Sequence[Row]) -> csr_matrix:
    """Return the features of some rows, one row each."""
    places, values, ends = [], [], [0]
    for row in found:
        for place, value in row.wording.features():
            places.append(place)
            values.append(value)
        ends.append(len(places))
    return csr_matrix((values, places, ends), shape=(len(found), wording.SIZE))


def learned(features: csr_matrix, is_claim: NDArray[np.bool_], weight: Vector) -> Vector:
    """Return the weights that tell claims from others, held small."""
    used = np.unique(features.indices)
    part = features[:, used]
    turned = part.T.tocsr()
    sign = np.where(is_claim, 1.0, -1.0)

    def loss(weights: Vector) -> tuple[float, Vector]:
        margin = sign * (part @ weights)
        pull = -weight * sign / (1 + np.exp(np.clip(margin, -50, 50)))
        cost = weight @ np.logaddexp(0, -margin) + 0.5 * PENALTY * weights @ weights
        return float(cost), turned @ pull + PENALTY * weights

    best = minimize(
        loss, np.zeros(len(used)), jac=True, method="L-BFGS-B", options={"maxiter": 120}
    )
    weights = np.zeros(wording.SIZE)
    weights[used] = best.x
    return weights


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the weights, or the scores of the lines of left-out authors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", type=Path, help="leave out each author; write the scores here")
    options = parser.parse_args(arguments)
    cases = load(FOLDER / "dev.jsonl")
    reports = {
        locale: cycle(
            case.reply for case in cases if (case.kind, case.locale) == ("true_report", locale)
        )
        for locale in ("ko", "en")
    }
    found = [*rows(cases), *explained(), *played(reports)]
    features = matrix(found)
    is_claim = np.array([row.is_claim for row in found])
    weight = np.array([row.weight for row in found])
    if options.check:
        scores = {}
        for author in sorted({row.author for row in found} - {"gold"}):
            own = np.array([row.author == author for row in found])
            weights = learned(features[~own], is_claim[~own], weight[~own])
            told = features[own] @ weights
            ids = [row.id for row in found if row.author == author]
            scores.update(zip(ids, told.tolist(), strict=True))
            right = ((told > 0) == is_claim[own]).mean()
            print(f"{author}: {len(ids)} lines, {right:.1%} right", flush=True)
        options.check.write_text(json.dumps(scores), encoding="utf-8")
        return 0
    weights = learned(features, is_claim, weight)
    whole = np.clip(np.round(weights * wording.SCALE), -127, 127).astype(np.int8)
    WEIGHTS.write_bytes(zlib.compress(whole.tobytes(), 9))
    print(f"{WEIGHTS.name}: {WEIGHTS.stat().st_size:,} bytes from {len(found):,} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
