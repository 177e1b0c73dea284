"""The results of a user's scores, one line of `scores.jsonl` for each sample and score. Pure.

Records stay as they are: a line names the record by its hash and the score by the hash of its
source. The verdict of a failed check is applied when a run is loaded.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from pydantic import ConfigDict, TypeAdapter, ValidationError

from lhkit.base.json_values import compact, parse_json
from lhkit.base.redaction import masked
from lhkit.harness.records.record import SampleRecord, Verdict, encode_record, first_issue
from lhkit.harness.scenarios.sample_id import SampleId

ScoreKey: TypeAlias = tuple[str, str, str]
"""The hash of a record, the name of a score and the hash of its source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreValue:
    """One value of a score: None if a key of a mapping does not apply to the sample."""

    name: str
    value: bool | float | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAnswer:
    """A question to a model about a sample, and its answer.

    Attributes:
        key: the hash of the conversation, the question and the model: the same is asked once.
        model: the name of the model.
        prompt: the question as it was asked.
        answer: the model's answer.
    """

    key: str
    model: str
    prompt: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRecord:
    """The result of one score of one sample.

    Attributes:
        record_sha256: the hash of the scored record, as its line is stored.
        score: the name of the score.
        source_sha256: the hash of the score's source.
        fails: whether a False fails the sample.
        values: one value, named as the score, or one for each name of a mapping; none if the score
            does not apply to the sample, or failed.
        error: why the score has no values; empty if it has.
        duration_s: seconds of the computation.
        judge: question and answer, if the score is a judge that was answered.
    """

    sample_id: SampleId
    record_sha256: str
    score: str
    source_sha256: str
    fails: bool = False
    values: tuple[ScoreValue, ...] = ()
    error: str = ""
    duration_s: float = 0.0
    judge: JudgeAnswer | None = None
    schema: Literal[1] = 1

    @property
    def key(self) -> ScoreKey:
        """What it is the result of."""
        return self.record_sha256, self.score, self.source_sha256

    @property
    def failures(self) -> tuple[str, ...]:
        """The reasons of a check that failed, one for each False."""
        if not self.fails:
            return ()
        return tuple(
            f"{value.name}: {value.reason or 'False'}"
            for value in self.values
            if value.value is False
        )


_WRITER: Final = TypeAdapter(ScoreRecord)
_READER: Final = TypeAdapter(tuple[ScoreRecord], config=ConfigDict(allow_inf_nan=False))


def record_sha256(record: SampleRecord) -> str:
    """Return the hash of a record as its line is stored."""
    return hashlib.sha256(masked(encode_record(record)).encode()).hexdigest()


def encode_score(score: ScoreRecord) -> str:
    """Return the result as one line of strict JSON, without a newline."""
    return compact(_WRITER.dump_python(score, mode="python"))


def decode_score(line: str | bytes) -> ScoreRecord:
    """Parse a result from a line of strict JSON.

    Raises:
        ValueError: not valid JSON, or not a valid result; the message names the field.
        RecursionError: the JSON is nested too deep.
    """
    data: Any = parse_json(line)
    try:
        return _READER.validate_python((data,))[0]
    except ValidationError as error:
        raise ValueError(first_issue(error, drop=1)) from error


def with_checks(record: SampleRecord, scores: Iterable[ScoreRecord]) -> SampleRecord:
    """Return a record with the verdict of its checks: a failed one fails the sample.

    An invalid sample stays invalid. `SampleRecord.unchecked` is the record before.
    """
    record = record.unchecked
    reasons = tuple(reason for score in scores for reason in score.failures)
    if not reasons or not record.is_valid:
        return record
    score = record.score
    failed = replace(score, verdict=Verdict.FAIL, reasons=(*score.reasons, *reasons))
    return replace(record, score=failed, scenario_score=score)


class ScoredRecords(Sequence[SampleRecord]):
    """Records with the verdicts of their checks, each applied when it is accessed."""

    def __init__(
        self, records: Sequence[SampleRecord], scores: Mapping[SampleId, Sequence[ScoreRecord]]
    ) -> None:
        self._records = records
        self._scores = scores

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return ScoredRecords(self._records[index], self._scores)
        record = self._records[index]
        return with_checks(record, self._scores.get(record.sample_id, ()))


def newest_scores(
    scores: Iterable[ScoreRecord], sources: Mapping[str, str]
) -> dict[ScoreKey, ScoreRecord]:
    """Return the newest result of each record and score, of scores with these sources.

    Args:
        scores: the results, oldest first.
        sources: the hash of the source of each wanted score, by name.
    """
    return {each.key: each for each in scores if sources.get(each.score) == each.source_sha256}
