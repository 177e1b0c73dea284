"""A record keeps what was judged, as it was judged."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lhkit.events import EndReason
from lhkit.harness.record import (
    ArgumentScore,
    CallRecord,
    CallScore,
    Evidence,
    Judgement,
    SampleId,
    SampleRecord,
    TurnRecord,
    TurnScore,
    Verdict,
    decode_record,
    encode_record,
)


def record(*scores: TurnScore, verdict: Verdict = Verdict.PASS) -> SampleRecord:
    return SampleRecord(
        sample_id=SampleId(scenario="a"),
        content_hash="h",
        ac="AC-1",
        locale="ko",
        judgement=Judgement(verdict=verdict, scores=scores),
    )


def test_rows_of_calls_survive_writing_and_reading() -> None:
    argument = ArgumentScore(name="n", ok=False, expected={"any": True}, actual=1.0, reason="r")
    row = CallScore(expected=0, actual=2, tool="t", called="t", ok=False, arguments=(argument,))
    calls = (CallRecord(tool="t", raw_args={}, result={}),) * 3
    turn = TurnRecord(user="u", ended=EndReason.ANSWERED, calls=calls)
    scored = record(TurnScore(passed=False, calls=(row,)))
    written = replace(scored, evidence=Evidence(turns=(turn,)))
    read = decode_record(json.loads(encode_record(written)))
    assert read == written
    assert isinstance(read.judgement.scores[0].calls[0].arguments[0].actual, float)


def test_a_pass_that_needed_a_repair_is_no_strict_pass() -> None:
    strict = TurnScore(passed=True, strict_passed=True)
    mended = TurnScore(passed=True)
    assert record(strict).judgement.strict_verdict is Verdict.PASS
    assert record(strict, mended).judgement.strict_verdict is Verdict.FAIL
    assert record(mended, verdict=Verdict.INVALID).judgement.strict_verdict is Verdict.INVALID


@given(
    st.builds(
        SampleId,
        scenario=st.from_regex(r"[a-z0-9][a-z0-9_.-]*", fullmatch=True),
        repeat=st.integers(0, 10_000),
    )
)
def test_a_sample_is_written_as_it_is_read(sample: SampleId) -> None:
    assert SampleId.parse(str(sample)) == sample
    assert str(SampleId(scenario="add-01", repeat=1)) == "add-01#2"
