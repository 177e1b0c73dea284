"""A record keeps what was judged, and lines from before a field was there are still read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.harness.records.record import (
    ArgumentScore,
    BrokenRule,
    CallScore,
    SampleId,
    SampleRecord,
    TurnScore,
    Verdict,
)
from lhkit.harness.records.record_line import decode_record, encode_record

OLD_LINE = (
    '{"sample_id":{"scenario":"a","repeat":0},"content_hash":"h","verdict":"pass","reasons":['
    '],"ac":"AC-1","locale":"ko","tags":[],"violations":[],"scores":[{"passed":true,"due_call'
    's":1,"right_calls":1,"surplus_calls":0}],"turns":[{"user":"u","ended":"answered","error"'
    ':null,"cause":null,"detail":null,"calls":[{"tool":"t","raw_args":{"x":[1]},"result":{"st'
    'atus":"ok","data":{}},"args":null,"extra_args":[],"gate":"not_needed","ran":false,"destr'
    'uctive":false,"validation_s":0.0,"waiting_s":0.0,"handler_s":0.0,"raw_text":"","model_ca'
    'll":null}],"model_calls":[{"offset_s":0.0,"duration_s":0.0,"raw_text":"hi","token_ids":['
    '1,2],"prompt_sha256":"","prompt_text":null,"text":"","calls":[{"name":"t","args":{"x":[1'
    ']},"raw":"","repairs":[]}],"fragment":"","strict":true,"reason":"","truncated":false,"us'
    'age":{"prompt_tokens":0,"completion_tokens":0,"cached_tokens":null},"timing":{"headers_s'
    '":null,"first_chunk_s":null,"first_token_s":null,"first_text_s":null,"call_ready_s":null'
    ',"last_token_s":null,"done_s":null,"chunk_gaps_s":[]},"server_metrics":null,"identity":{'
    '"model":"m","server":"","base_url":"","dialect":"","constraint":"off"}}],"reply":"hi","h'
    'int":null,"duration_s":0.0}],"initial_state":{},"final_state":{"t":[{"a":1}]},"state_dif'
    'f":{},"fault":null,"attempts":1,"wall_s":0.0,"harness_s":0.0,"started_at":null,"schema":'
    "1}"
)
"""Written before calls were scored one by one."""


def record(*scores: TurnScore, verdict: Verdict = Verdict.PASS) -> SampleRecord:
    return SampleRecord(
        sample_id=SampleId(scenario="a"),
        content_hash="h",
        verdict=verdict,
        ac="AC-1",
        locale="ko",
        scores=scores,
    )


@pytest.mark.promise("eval.old_records")
def test_a_line_from_before_the_scores_of_calls_is_still_a_record() -> None:
    old = decode_record(json.loads(OLD_LINE))
    assert old.scores == (TurnScore(passed=True, due_calls=1, right_calls=1),)
    assert (old.state_equal, old.broken_rules) == (None, ())
    assert old.turns[0].model_calls[0].server_calls is None
    assert decode_record(json.loads(encode_record(old))) == old


def test_rows_of_calls_survive_writing_and_reading() -> None:
    argument = ArgumentScore(name="n", ok=False, expected={"any": True}, actual=1.0, reason="r")
    row = CallScore(expected=0, actual=2, tool="t", called="t", ok=False, arguments=(argument,))
    written = record(TurnScore(passed=False, calls=(row,), server_right_calls=0))
    read = decode_record(json.loads(encode_record(written)))
    assert read == written
    assert isinstance(read.scores[0].calls[0].arguments[0].actual, float)


def test_broken_rules_are_evidence() -> None:
    read = decode_record({**json.loads(OLD_LINE), "broken_rules": [{"code": "r3_quota"}]})
    assert read.evidence.broken_rules == (BrokenRule(code="r3_quota"),)


def test_a_pass_that_needed_a_repair_is_no_strict_pass() -> None:
    strict = TurnScore(passed=True, strict_passed=True)
    mended = TurnScore(passed=True)
    assert record(strict).strict_verdict is Verdict.PASS
    assert record(strict, mended).strict_verdict is Verdict.FAIL
    assert record(mended, verdict=Verdict.INVALID).strict_verdict is Verdict.INVALID


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
