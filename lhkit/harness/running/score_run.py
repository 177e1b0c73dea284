"""Computing scores after a run: what is missing, outside every measured time.

Results are stored beside the records as they are computed. A result is reused if the record and the
source of the score are the same; a failure is tried again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from lhkit.base.errors import UsageError
from lhkit.harness.records.record import SampleRecord, State
from lhkit.harness.records.score_record import (
    ScoreKey,
    ScoreRecord,
    encode_score,
    record_sha256,
)
from lhkit.harness.records.store import (
    SCORES,
    Journal,
    apply_scores,
    open_journal,
    read_manifest,
    read_scores,
    write_manifest,
)
from lhkit.harness.results.results import Run
from lhkit.harness.running.sample import state_sha256
from lhkit.harness.running.score_call import TIMEOUT, call_score, close_score
from lhkit.harness.running.scores import (
    JudgeFunction,
    Score,
    ScoreLike,
    load_scores,
)
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.scoring.state import with_diff
from lhkit.harness.views.sample import Sample, States
from lhkit.toolset import (
    DEFAULT,
    Toolset,
    ToolsetSource,
    load_toolset,
    opened,
    read_state,
)

MOST_TIMEOUTS = 3
"""After so many samples in a row for which a score exceeds its limit, it is not called again."""

_FLUSH_S = 1.0


async def add_scores(
    run: Run | Path | str,
    scores: Iterable[ScoreLike],
    *,
    scenarios: Iterable[Scenario] = (),
    toolset: ToolsetSource = DEFAULT,
) -> Run:
    """Return a run with further scores, of which only the missing results are computed.

    They are stored in the run's folder, if it has one; its records do not change.

        run = await add_scores("runs/today", [polite])

    Args:
        run: a run, or its folder.
        scores: scores, or their references such as `scores.py:polite`.
        scenarios: the scenarios of the run, for scores that read states which are not stored.
        toolset: the toolset of these scenarios, or its reference.

    Raises:
        RunError: the folder has no run, an invalid one, or one in use.
        UsageError: a score is invalid.
    """
    old = run if isinstance(run, Run) else Run.load(run)
    known = tuple(scenarios)
    states = rebuilt_states(known, load_toolset(toolset)) if known else None
    return await score_run(old, load_scores(scores), states=states, adds=True)


async def score_run(
    run: Run,
    scores: Sequence[Score],
    *,
    states: Callable[[SampleRecord], States] | None = None,
    adds: bool = False,
    known: Sequence[ScoreRecord] = (),
    progress: bool = False,
) -> Run:
    """Return a run with the results of scores, of which only the missing ones are computed.

    Args:
        run: the run; results are written to its folder, if it has one, each within a second.
        scores: the scores.
        states: rebuilds the states of a record that does not have them.
        adds: whether the run keeps the other scores that it has.
        known: results of another run, whose answers a judge uses for the same questions.
        progress: show a progress bar.

    Raises:
        RunError: the folder is in use or cannot be written, or a stored result is invalid.
    """
    sources = {score.name: score.source for score in scores}
    folder = None if run.folder is None else run.folder.absolute()  # a score may change the folder
    whole = run.manifest if folder is None else read_manifest(folder)
    kept = dict(whole.scores) if adds else {}
    if not sources and kept == run.manifest.scores:
        return run
    counting = {**kept, **sources}
    manifest = run.manifest.model_copy(update={"scores": counting})
    stored = run.score_records if folder is None else read_scores(folder)
    scorer = Scorer(scores, stored, states=states, known=known)
    # not the records, which may be on disk
    hashes = [record_sha256(record) if record.is_valid else "" for record in run.records]
    missing = {
        score: frozenset(sha256 for sha256 in hashes if sha256 and scorer.lacks(score, sha256))
        for score in scores
    }
    total = sum(map(len, missing.values()))
    with ExitStack() as stack:
        journal = None
        if folder is not None:
            journal = stack.enter_context(open_journal(folder, reads=False, file_name=SCORES))
        writer = _Writer(journal=journal)
        bar = stack.enter_context(tqdm(total=total, unit="score", disable=not (progress and total)))

        async def work(score: Score, jobs: Iterator[tuple[SampleRecord, str]]) -> None:
            for record, sha256 in jobs:
                writer.add(await scorer.compute(score, record, sha256))
                bar.update()

        try:
            async with asyncio.TaskGroup() as group:
                for score, wanted in missing.items():
                    jobs = _jobs(run.records, hashes, wanted)
                    for _ in range(min(score.concurrency, len(wanted))):
                        group.create_task(work(score, jobs))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            writer.flush()
            await scorer.aclose()
        if folder is not None:  # `run` may be a part of it
            write_manifest(folder, whole.model_copy(update={"scores": counting}))
    records, score_records = apply_scores(manifest, run.records, scorer.results)
    return replace(run, records=records, manifest=manifest, score_records=score_records)


def _jobs(
    records: Sequence[SampleRecord], hashes: Sequence[str], wanted: frozenset[str]
) -> Iterator[tuple[SampleRecord, str]]:
    for number, sha256 in enumerate(hashes):
        if sha256 in wanted:
            yield records[number].unchecked, sha256


@dataclass(slots=True, kw_only=True)
class _Writer:
    """Writes results to a journal, at least once a second."""

    journal: Journal | None
    waiting: list[ScoreRecord] = field(default_factory=list)
    flushed_s: float = 0.0

    def add(self, result: ScoreRecord) -> None:
        self.waiting.append(result)
        if time.monotonic() - self.flushed_s > _FLUSH_S:
            self.flush()

    def flush(self) -> None:
        waiting, self.waiting = self.waiting, []
        self.flushed_s = time.monotonic()
        if waiting and self.journal is not None:
            self.journal.append(*map(encode_score, waiting))


class Scorer:
    """Computes what is missing of the results of some scores.

    Args:
        scores: the scores.
        stored: earlier results, oldest first.
        states: rebuilds the states of a record that does not have them.
        known: results of another run, whose answers a judge uses for the same questions.

    Attributes:
        results: all results, by record and score.
    """

    def __init__(
        self,
        scores: Sequence[Score],
        stored: Iterable[ScoreRecord] = (),
        *,
        states: Callable[[SampleRecord], States] | None = None,
        known: Sequence[ScoreRecord] = (),
    ) -> None:
        self.scores = scores
        self.results: dict[ScoreKey, ScoreRecord] = {result.key: result for result in stored}
        for score in scores:
            if isinstance(score.function, JudgeFunction):
                score.function.remember((*self.results.values(), *known))
        self._states = states
        self._timeouts: Counter[str] = Counter()

    def lacks(self, score: Score, sha256: str) -> bool:
        """Return whether a record has no result of a score, or a failure, which may pass."""
        found = self.results.get((sha256, score.name, score.source.source_sha256))
        return found is None or bool(found.error)

    async def compute(self, score: Score, record: SampleRecord, sha256: str) -> ScoreRecord:
        """Return the result of a score of one record; it is not called after many timeouts."""
        if self._timeouts[score.name] >= MOST_TIMEOUTS:
            reason = f"not called: it exceeded its limit {MOST_TIMEOUTS} times in a row"
            result = _result(score, record, sha256, error=reason)
        else:
            result = await score_record(score, record, states=self._states, sha256=sha256)
            is_late = result.error.startswith(TIMEOUT)
            self._timeouts[score.name] = self._timeouts[score.name] + 1 if is_late else 0
        self.results[result.key] = result
        return result

    async def score(
        self, record: SampleRecord
    ) -> tuple[tuple[ScoreRecord, ...], list[ScoreRecord]]:
        """Return all results of one record, and those of them that were computed now."""
        if not record.is_valid or not self.scores:
            return (), []
        sha256 = record_sha256(record)
        new = [
            await self.compute(score, record.unchecked, sha256)
            for score in self.scores
            if self.lacks(score, sha256)
        ]
        keys = [(sha256, score.name, score.source.source_sha256) for score in self.scores]
        return tuple(self.results[key] for key in keys), new

    async def aclose(self) -> None:
        """Close the models of judges."""
        for score in self.scores:
            await close_score(score)


async def score_record(
    score: Score,
    record: SampleRecord,
    *,
    states: Callable[[SampleRecord], States] | None = None,
    sha256: str = "",
) -> ScoreRecord:
    """Return the result of a score of one record; whatever the score does is part of it.

    Args:
        score: the score.
        record: the record, which is valid.
        states: rebuilds the states of a record that does not have them.
        sha256: the hash of the record, if it is known.
    """
    record = record.unchecked
    sha256 = sha256 or record_sha256(record)
    started_s = time.perf_counter()
    outcome = await call_score(score, Sample.of(record, states=states))
    return _result(
        score,
        record,
        sha256,
        values=outcome.values,
        error=outcome.error,
        duration_s=time.perf_counter() - started_s,
        judge=outcome.answer,
    )


def _result(score: Score, record: SampleRecord, sha256: str, **more: Any) -> ScoreRecord:
    return ScoreRecord(
        sample_id=record.sample_id,
        record_sha256=sha256,
        score=score.name,
        source_sha256=score.source.source_sha256,
        fails=score.fails,
        **more,
    )


def rebuilt_states(
    scenarios: Iterable[Scenario], toolset: Toolset
) -> Callable[[SampleRecord], States]:
    """Return a function that rebuilds the states of a record from its scenario and its changes."""
    by_name = {wording.name: wording for scenario in scenarios for wording in scenario.wordings()}

    @lru_cache(maxsize=16)
    def initial_state(name: str) -> State:
        scenario = by_name[name]
        with opened(toolset, scenario.world, scenario.locale) as session:
            return read_state(session)

    def states(record: SampleRecord) -> States:
        name = record.sample_id.name
        if name not in by_name:
            raise UsageError(f"the state is unknown: the scenario {name} does not exist today")
        before = initial_state(name)
        if state_sha256(before) != record.trajectory.initial_sha256:
            raise UsageError(
                "the state is unknown: the initial state of the scenario differs today"
            )
        return before, with_diff(before, record.state_diff)

    return states
