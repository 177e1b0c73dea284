"""The files of a run folder: exact, whole lines only, one writer, records left on disk."""

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lhkit.base.errors import RunError, UsageError
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.authoring.reference import gold_model, silent_model
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import (
    ArgumentScore,
    CallRecord,
    CallScore,
    SampleRecord,
    TableDiff,
    TurnScore,
    decode_record,
    encode_record,
)
from lhkit.harness.records.resume import SampleHashes
from lhkit.harness.records.store import (
    MANIFEST,
    RECORDS,
    Journal,
    StoredRecords,
    open_journal,
    read_manifest,
    read_records,
    stored_records,
    write_manifest,
)
from lhkit.harness.results.results import Run
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scoring.state import state_diff, with_diff
from tests.harness.build import (
    FAIL,
    INVALID,
    PASS,
    Load,
    Play,
    blocked,
    model_call,
    sample,
    turn_of,
)
from tests.rows import check_rows

pytestmark = pytest.mark.anyio


def record(name: str = "a", text: str = "안녕") -> SampleRecord:
    call = CallRecord(tool="t", raw_args={"x": [1, 2.5, None]}, result={"status": "ok", "data": {}})
    argument = ArgumentScore(name="n", ok=False, expected={"any": True}, actual=1.0, reason="r")
    row = CallScore(expected=0, actual=0, tool="t", called="t", ok=False, arguments=(argument,))
    request = model_call(raw_text=text, token_ids=(1, 2), identity=ModelIdentity(model="m"))
    record = sample(
        name,
        FAIL,
        0,
        turn_of(request, user=text, calls=(call,), reply=text),
        tags=("x",),
        reasons=("because",),
        violations=(blocked("validation", 0),),
        turn_scores=(TurnScore(passed=True, due_calls=1, calls=(row,)),),
    )
    return replace(
        record,
        state_diff={"t": TableDiff(added=({"a": 1},))},
        trajectory=replace(record.trajectory, final_state={"t": ({"a": 1},)}),
    )


@given(st.text())
@settings(deadline=None)
def test_record_round_trips_as_json(text: str) -> None:
    line = encode_record(record(text=text))
    assert "\n" not in line
    read = decode_record(json.loads(line.encode()))
    assert read == record(text=text)
    assert isinstance(read.score.turn_scores[0].calls[0].arguments[0].actual, float)


def test_record_with_lone_surrogate_is_utf_8() -> None:
    line = encode_record(record(text="\ud800"))
    assert decode_record(json.loads(line.encode("utf-8"))) == record(text="\ud800")


@check_rows("number", [-3, 10**12, 1e300, -1e300, 821012345678])
def test_record_takes_any_number_of_a_model(number: float) -> None:
    """Arguments and results are data: only lhkit's own counts and durations have a range."""
    made = record()
    call = replace(made.trajectory.turns[0].calls[0], raw_args=number, result={"data": number})
    row = made.score.turn_scores[0].calls[0]
    argument = replace(row.arguments[0], expected=number, actual=number)
    turn = replace(made.trajectory.turns[0], calls=(call,))
    score = replace(made.score.turn_scores[0], calls=(replace(row, arguments=(argument,)),))
    made = replace(
        made,
        trajectory=replace(made.trajectory, turns=(turn,)),
        score=replace(made.score, turn_scores=(score,)),
    )
    assert decode_record(json.loads(encode_record(made))) == made


def test_record_json_has_stable_keys() -> None:
    data = json.loads(encode_record(record()))
    assert data["schema"] == 3
    assert data["sample_id"] == {"scenario": "a", "repeat": 0, "wording": 0}
    assert data["score"]["verdict"] == "fail"
    assert data["score"]["violations"][0]["severity"] == "attempted"
    turn = data["trajectory"]["turns"][0]
    assert turn["calls"][0].keys() >= {"tool", "raw_args", "gate", "ran", "raw_text"}
    assert turn["model_calls"][0]["response"].keys() >= {"raw_text", "token_ids", "usage", "timing"}


def test_journal_appends_records(tmp_path: Path) -> None:
    with open_journal(tmp_path / "run") as journal:
        assert journal.records == ()
        journal.append(record("a"))
        assert read_records(tmp_path / "run") == (record("a"),)
        journal.append(record("b"))
    with open_journal(tmp_path / "run") as journal:
        assert journal.records == (record("a"), record("b"))


@pytest.mark.parametrize("half", [b"{", b'{"schema": 3', encode_record(record("b")).encode()])
def test_journal_overwrites_half_written_line(tmp_path: Path, half: bytes) -> None:
    whole = encode_record(record("a")).encode() + b"\n"
    (tmp_path / RECORDS).write_bytes(whole + half)
    assert read_records(tmp_path) == (record("a"),)
    with open_journal(tmp_path) as journal:
        journal.append(record("c"))
    assert read_records(tmp_path) == (record("a"), record("c"))


EARLIER = "was written by an earlier lhkit before a first release"
NEWER = "was written by another version of lhkit (its schema is {schema}, and this version reads 3)"


@pytest.mark.parametrize(("schema", "why"), [(1, EARLIER), (2, EARLIER), (4, NEWER)])
def test_journal_refuses_other_schema(tmp_path: Path, schema: int, why: str) -> None:
    line = encode_record(record()).replace('"schema":3', f'"schema":{schema}').encode() + b"\n"
    (tmp_path / RECORDS).write_bytes(line)
    message = re.escape(f"{RECORDS}:1 {why.format(schema=schema)}. Run it again")
    with pytest.raises(RunError, match=message):
        read_records(tmp_path)
    with pytest.raises(RunError, match="Run it again under another name"), open_journal(tmp_path):
        pass
    assert (tmp_path / RECORDS).read_bytes() == line


@check_rows(
    "bad",
    [
        b"nonsense",
        b"",
        b"[]",
        b'{"schema": 3}',
        b"\xff\xfe",
        b"[" * 100_000,
        encode_record(record()).replace('"fail"', '"maybe"').encode(),
        *(  # what could be read, but not be written again as JSON
            encode_record(record()).replace(*change).encode()
            for change in (("2.5", "NaN"), ("2.5", "1e999"), ('"wall_s":0.0', '"wall_s":"inf"'))
        ),
    ],
)
def test_journal_names_invalid_line(tmp_path: Path, bad: bytes) -> None:
    whole = encode_record(record("a")).encode() + b"\n"
    (tmp_path / RECORDS).write_bytes(whole + bad + b"\n" + whole)
    with pytest.raises(RunError, match=rf"{RECORDS}:2 "), open_journal(tmp_path):
        pass
    assert (tmp_path / RECORDS).read_bytes() == whole + bad + b"\n" + whole


def test_strict_verdict_fails_repaired_pass() -> None:
    strict = TurnScore(passed=True, strict_passed=True)
    repaired = TurnScore(passed=True)
    assert sample(turn_scores=(strict,)).score.strict_verdict is PASS
    assert sample(turn_scores=(strict, repaired)).score.strict_verdict is FAIL
    assert sample("s", INVALID, turn_scores=(repaired,)).score.strict_verdict is INVALID


@given(
    st.builds(
        SampleId,
        scenario=st.from_regex(r"[a-z0-9][a-z0-9_.-]*", fullmatch=True),
        repeat=st.integers(0, 10_000),
        wording=st.integers(0, 9),
    )
)
def test_sample_id_round_trips_as_text(sample: SampleId) -> None:
    assert SampleId.parse(str(sample)) == sample
    assert str(SampleId(scenario="add-01", repeat=1, wording=2)) == "add-01~3#2"


def test_journal_refuses_folder_that_is_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with (
        pytest.raises(RunError, match="cannot be written"),
        open_journal(tmp_path / "file" / "run"),
    ):
        pass


class FullDisk(io.BytesIO):
    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_append_raises_run_error_on_full_disk(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="No space left"):
        Journal(tmp_path, FullDisk(), ()).append(record())


def test_write_manifest_replaces_file(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) == Manifest()
    write_manifest(tmp_path, Manifest(toolset="가\ud800"))
    write_manifest(tmp_path, Manifest(toolset="나"))
    assert read_manifest(tmp_path) == Manifest(toolset="나")
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST]


@check_rows(("schema", "why"), [(1, EARLIER), (2, EARLIER), (4, NEWER), (None, NEWER)])
def test_read_manifest_refuses_other_schema(tmp_path: Path, schema: int | None, why: str) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps({"schema": schema}))
    message = re.escape(f"{MANIFEST} {why.format(schema=schema)}. Run it again under another name.")
    with pytest.raises(RunError, match=message):
        read_manifest(tmp_path)


@pytest.mark.parametrize("bad", [b"{", b"[]", b"\xff"])
def test_read_manifest_names_invalid_file(tmp_path: Path, bad: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(bad)
    with pytest.raises(RunError, match=MANIFEST):
        read_manifest(tmp_path)


def test_state_diff_counts_rows_and_distinguishes_types() -> None:
    before = {"t": ({"n": 1}, {"n": 1}), "same": ({"x": 1},)}
    after = {"t": ({"n": 1}, {"n": True}), "same": ({"x": 1},), "new": ({"y": 1},)}
    assert state_diff(before, after) == {
        "t": TableDiff(added=({"n": True},), removed=({"n": 1},), added_at=(1,), removed_at=(1,)),
        "new": TableDiff(added=({"y": 1},), added_at=(0,)),
    }
    assert with_diff(before, state_diff(before, after)) == after


FIND = """
- id: find-{n}
  ac: AC-1
  turns:
    - user: find milk
      expect: {{calls: [{{tool: find_notes, args: {{query: milk}}}}]}}
"""
BENCHMARK = Path(__file__).parents[3] / "evals" / "benchmarks" / "growth.py"


async def run_into(folder: Path, play: Play, load: Load, model: Any = gold_model) -> Run:
    scenarios = load("".join(FIND.format(n=n) for n in range(4)))
    return await play(
        scenarios, model, run_dir=folder, repeats=2, keep_records=False, concurrency=3
    )


async def test_stored_records_equal_records_of_run(play: Play, load: Load, tmp_path: Path) -> None:
    run = await run_into(tmp_path / "run", play, load)
    assert isinstance(run.records, StoredRecords)
    assert tuple(run.records) == Run.load(tmp_path / "run").records
    assert [each.sample_id for each in run.records[2:4]] == [
        SampleId(scenario="find-1", repeat=0),
        SampleId(scenario="find-1", repeat=1),
    ]
    assert run.records[-1] == tuple(run.records)[-1]
    assert run.records[0].trajectory.turns[0].user == "find milk"
    assert run.summary().total.passed == len(run.records) == 8
    with pytest.raises(IndexError):
        run.records[8]


async def test_stored_records_are_newest_after_resume(
    play: Play, load: Load, tmp_path: Path
) -> None:
    await run_into(tmp_path / "run", play, load, silent_model())
    await run_into(tmp_path / "run", play, load)
    again = await run_into(tmp_path / "run", play, load)
    assert (again.kept, again.summary().total.passed) == (8, 8)


async def test_replay_without_records_requires_run_dir(play: Play, load: Load) -> None:
    with pytest.raises(UsageError, match="keep_records=False requires run_dir"):
        await play(load(FIND.format(n=0)), keep_records=False)


async def test_stored_records_name_missing_sample(play: Play, load: Load, tmp_path: Path) -> None:
    await run_into(tmp_path / "run", play, load)
    with pytest.raises(RunError, match="find-0"):
        stored_records(
            tmp_path / "run", SampleHashes({"find-0": ["another hash"]}, 1), is_complete=True
        )


@pytest.mark.nightly
async def test_stored_records_do_not_grow_memory(tmp_path: Path) -> None:
    """Five times as many samples, and not another record (4 KiB) for each."""

    def peak_mib(samples: int) -> float:
        folder = str(tmp_path / str(samples))
        line = [sys.executable, str(BENCHMARK), "--samples", str(samples), "--folder", folder]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        peak: float = json.loads(done.stdout)["peak_mib"]
        return peak

    few, many = 400, 2000
    assert 1024 * (peak_mib(many) - peak_mib(few)) / (many - few) < 2.5


def test_stored_names_are_those_of_the_first_release() -> None:
    data = json.loads(encode_record(record()))
    assert {"score", "trajectory"} <= data.keys()
    assert data["score"].keys() >= {"verdict", "reasons", "violations", "turn_scores"}
    assert data["trajectory"].keys() >= {"turns", "broken_rules", "error"}
    assert "notice" in data["trajectory"]["turns"][0]
    assert {"content_hashes", "invocations"} <= Manifest.model_fields.keys()
    invocation = Manifest.model_validate({"invocations": [{"completed": 3}]}).invocations[0]
    assert (invocation.completed, invocation.model_extra) == (3, {})
