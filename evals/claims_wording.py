"""Learns the weights of `lhkit/harness/claims/wording.py`, for replies where no write ran.

    python evals/claims_wording.py

Logistic regression on the lines of `dev.jsonl`, `hard.jsonl` and `more.jsonl` where no write ran,
and on their true reports with their writes taken away or failed; on written situations and replies
(`claims_made.py`); on the right explanations of refusals; and on honest turns: the right
conversations of the `dev` scenarios, life-helper's lessons and their small talk. `test` is not
learned from. The same lines give the same bytes. How well it does on authors that it has not seen,
`claims_unseen.py` counts.
"""

import asyncio
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from claims import FOLDER, LEARNED, Case, load
from claims_made import bare, failed, replies, situations

from evals.lessons.conversations import conversations
from lhkit.harness.author.baselines import gold_trace, trace_model
from lhkit.harness.claims import wording
from lhkit.harness.claims.rules import Deed, Happened, wording_of
from lhkit.harness.record import SampleRecord
from lhkit.harness.run import replay
from lhkit.harness.scenario import load_scenarios
from lhkit.models.dialects import DIALECTS
from lhkit.tuning.teacher import ExpertModel, scenario_of

WEIGHTS = Path(wording.__file__).with_suffix(".bin")
PENALTY = 1.0
OF_REPORTS, OF_SITUATIONS, OF_TALK = 0.5, 0.4, 0.5
LESSONS, LESSON_SEED = 260, 77
Vector = NDArray[np.float64]


class Featured(Protocol):
    """What has features: where the weight of each stands, and its value."""

    def features(self) -> Iterator[tuple[int, float]]:
        """Yield them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is learned from: an author, what the reply reads like, and how much it counts."""

    id: str
    wording: Featured
    is_claim: bool
    weight: float = 1.0

    @property
    def author(self) -> str:
        """Who wrote it."""
        return self.id.partition("-")[0].lower()


def rows(cases: Sequence[Case]) -> Iterator[Row]:
    """Yield what can be learned from some cases: where no write ran, and where none would have."""
    for number, case in enumerate(cases):
        if not ran(case.happened):
            told = wording_of(case.reply, case.happened)
            yield Row(id=case.id, wording=told, is_claim=case.is_false)
        elif case.kind == "true_report":
            for happened in (bare(case.happened), failed(case.happened, number)):
                told = wording_of(case.reply, happened)
                yield Row(id=case.id, wording=told, is_claim=True, weight=OF_REPORTS)


def made() -> Iterator[Row]:
    """Yield the written situations and replies."""
    for name in ("situations_en", "situations_ko", "voices_en", "voices_ko", "replies"):
        read = replies if name == "replies" else situations
        for each in read(FOLDER / f"{name}.txt"):
            told = wording_of(each.reply, each.happened)
            weight = 1.0 if name == "replies" else OF_SITUATIONS
            yield Row(id=f"made-{each.id}", wording=told, is_claim=each.is_claim, weight=weight)


def explained() -> Iterator[Row]:
    """Yield the right explanations of refusals: no claims."""
    for line in (FOLDER / "explanations.jsonl").read_text("utf-8").splitlines():
        raw = json.loads(line)
        deed = Deed(turn=0, tool="add_habit", writes=True, outcome=raw["rule"])
        told = wording_of(raw["reply"], Happened(said=[""], deeds=[deed]))
        yield Row(id=raw["id"], wording=told, is_claim=False)


def played(lessons: int, seed: int) -> Sequence[SampleRecord]:
    """Return right conversations: of the `dev` scenarios, and of lessons."""
    run = asyncio.run(  # noqa: TID251 - a script
        replay(
            load_scenarios([FOLDER.parent / "ac" / "dev"]),
            lambda scenario, registry: trace_model(gold_trace(scenario, registry), name="gold"),
            progress=False,
        )
    )
    taught = {each.name: each for each in conversations(lessons, seed=seed)}
    of_lessons = asyncio.run(  # noqa: TID251 - a script
        replay(
            [scenario_of(each) for each in taught.values()],
            lambda scenario, _: ExpertModel(taught[scenario.id], DIALECTS["json"]),
            max_attempts=1,
            progress=False,
        )
    )
    return [*run.records, *of_lessons.records]


def turns(records: Sequence[SampleRecord]) -> Iterator[Row]:
    """Yield the replies of recorded conversations, up to their first write that ran."""
    for name, reply, happened in told(records):
        if not ran(happened):
            yield Row(id=name, wording=wording_of(reply, happened), is_claim=False)


def ran(happened: Happened) -> bool:
    """Return True if a write ran."""
    return any(each.writes and each.ok for each in happened.deeds)


def told(records: Sequence[SampleRecord]) -> Iterator[tuple[str, str, Happened]]:
    """Yield each reply of recorded conversations, with a name and what had happened."""
    for record in records:
        said: list[str] = []
        deeds: list[Deed] = []
        for n, turn in enumerate(record.evidence.turns):
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
            happened = Happened(said=[*said], deeds=[*deeds])
            yield f"played-{record.sample_id}-{n}", turn.reply, happened


def talked() -> Iterator[Row]:
    """Yield the small talk of lessons, after nothing and after a failure: it claims nothing."""
    for file in sorted((FOLDER.parent / "lessons").glob("*talk_*.yaml")):
        lines = yaml.safe_load(file.read_text(encoding="utf-8"))["chat"]
        for number, line in enumerate(lines):
            said, _, reply = line.partition(" | ")
            for deeds in ([], [_FAILED]):
                told = wording_of(reply, Happened(said=[said], deeds=deeds))
                name = f"talk-{file.stem}-{number}-{len(deeds)}"
                yield Row(id=name, wording=told, is_claim=False, weight=OF_TALK)


_FAILED = Deed(turn=0, tool="update_item", writes=True, outcome="timeout")


def matrix(found: Sequence[Row], size: int = wording.SIZE) -> csr_matrix:
    """Return the features of some rows, one row each."""
    places, values, ends = [], [], [0]
    for row in found:
        for place, value in row.wording.features():
            places.append(place)
            values.append(value)
        ends.append(len(places))
    return csr_matrix((values, places, ends), shape=(len(found), size))


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
    weights = np.zeros(features.shape[1])
    weights[used] = best.x
    return weights


def gathered() -> Sequence[Row]:
    """Return all that is learned from."""
    cases = [case for part in LEARNED for case in load(FOLDER / f"{part}.jsonl")]
    honest = turns(played(LESSONS, LESSON_SEED))
    return [*rows(cases), *made(), *explained(), *honest, *talked()]


def weights_of(found: Sequence[Row], size: int) -> Callable[[str], bytes]:
    """Return what learns weights from some rows, without those of an author."""
    features = matrix(found, size)
    is_claim = np.array([row.is_claim for row in found])
    weight = np.array([row.weight for row in found])
    authors = np.array([row.author for row in found])

    def without(author: str) -> bytes:
        used = authors != author
        weights = learned(features[used], is_claim[used], weight[used])
        whole = np.clip(np.round(weights * wording.SCALE), -127, 127).astype(np.int8)
        return zlib.compress(whole.tobytes(), 9)

    return without


def write(file: Path, found: Sequence[Row], size: int) -> int:
    """Write the weights learned from some rows, a byte each."""
    file.write_bytes(weights_of(found, size)(""))
    print(f"{file.name}: {file.stat().st_size:,} bytes from {len(found):,} lines")
    return 0


if __name__ == "__main__":
    sys.exit(write(WEIGHTS, gathered(), wording.SIZE))
