"""Records on disk: exact, whole lines only, one writer, whatever kills the process."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lhkit.errors import RunError
from lhkit.events import EndReason
from lhkit.harness.record import (
    CallRecord,
    Evidence,
    Judgement,
    ModelCallRecord,
    SampleId,
    SampleRecord,
    Severity,
    TableDiff,
    TurnRecord,
    TurnScore,
    Verdict,
    Violation,
    decode_record,
    encode_record,
)
from lhkit.harness.state_diff import state_diff, with_diff
from lhkit.harness.store import (
    MANIFEST,
    RECORDS,
    Journal,
    open_journal,
    read_manifest,
    read_records,
    write_manifest,
)
from lhkit.responses import Finished, ModelIdentity


def record(name: str = "a", text: str = "안녕") -> SampleRecord:
    call = CallRecord(tool="t", raw_args={"x": [1, 2.5, None]}, result={"status": "ok", "data": {}})
    request = ModelCallRecord(
        response=Finished(
            reason="stop", raw_text=text, token_ids=(1, 2), identity=ModelIdentity(model="m")
        )
    )
    return SampleRecord(
        sample_id=SampleId(scenario=name),
        content_hash="h",
        ac="AC-1",
        locale="ko",
        tags=("x",),
        state_diff={"t": TableDiff(added=({"a": 1},))},
        judgement=Judgement(
            verdict=Verdict.FAIL,
            reasons=("because",),
            violations=(Violation(code="validation", severity=Severity.ATTEMPTED, turn=0),),
            scores=(TurnScore(passed=True, due_calls=1),),
        ),
        evidence=Evidence(
            turns=(
                TurnRecord(
                    user=text,
                    ended=EndReason.ANSWERED,
                    calls=(call,),
                    model_calls=(request,),
                    reply=text,
                ),
            ),
            final_state={"t": ({"a": 1},)},
        ),
    )


@given(st.text())
@settings(deadline=None)
def test_a_record_survives_writing_and_reading(text: str) -> None:
    line = encode_record(record(text=text))
    assert "\n" not in line
    assert decode_record(json.loads(line.encode())) == record(text=text)


def test_a_lone_surrogate_is_still_strict_utf_8() -> None:
    line = encode_record(record(text="\ud800"))
    assert decode_record(json.loads(line.encode("utf-8"))) == record(text="\ud800")


def test_a_record_carries_what_a_reader_looks_for() -> None:
    data = json.loads(encode_record(record()))
    assert data["schema"] == 2
    assert data["sample_id"] == {"scenario": "a", "repeat": 0}
    assert data["judgement"]["verdict"] == "fail"
    assert data["judgement"]["violations"][0]["severity"] == "attempted"
    turn = data["evidence"]["turns"][0]
    assert turn["calls"][0].keys() >= {"tool", "raw_args", "gate", "ran", "raw_text"}
    assert turn["model_calls"][0]["response"].keys() >= {"raw_text", "token_ids", "usage", "timing"}


def test_what_was_appended_is_there(tmp_path: Path) -> None:
    with open_journal(tmp_path / "run") as journal:
        assert journal.found == ()
        journal.append(record("a"))
        assert read_records(tmp_path / "run") == (record("a"),)
        journal.append(record("b"))
    with open_journal(tmp_path / "run") as journal:
        assert journal.found == (record("a"), record("b"))


@pytest.mark.parametrize("half", [b"{", b'{"schema": 2', encode_record(record("b")).encode()])
def test_a_half_written_last_line_is_dropped_and_overwritten(tmp_path: Path, half: bytes) -> None:
    whole = encode_record(record("a")).encode() + b"\n"
    (tmp_path / RECORDS).write_bytes(whole + half)
    assert read_records(tmp_path) == (record("a"),)
    with open_journal(tmp_path) as journal:
        journal.append(record("c"))
    assert read_records(tmp_path) == (record("a"), record("c"))


@pytest.mark.parametrize("schema", [1, 3])
def test_a_run_of_another_versions_shape_says_so_and_stays_as_it_is(
    tmp_path: Path, schema: int
) -> None:
    line = encode_record(record()).replace('"schema":2', f'"schema":{schema}').encode() + b"\n"
    (tmp_path / RECORDS).write_bytes(line)
    told = rf"{RECORDS}:1 was written by another version of lhkit \(its record schema is {schema}"
    with pytest.raises(RunError, match=told):
        read_records(tmp_path)
    with pytest.raises(RunError, match="play it again under another name"), open_journal(tmp_path):
        pass
    assert (tmp_path / RECORDS).read_bytes() == line


@pytest.mark.parametrize(
    "bad",
    [
        b"nonsense",
        b"",
        b"[]",
        b'{"schema": 2}',
        b"\xff\xfe",
        b"[" * 100_000,
        encode_record(record()).replace('"fail"', '"maybe"').encode(),
        *(  # what could be read, but not be written again as JSON
            encode_record(record()).replace(*change).encode()
            for change in (
                ("2.5", "NaN"),
                ("2.5", "1e999"),
                ('"wall_s":0.0', '"wall_s":-1e999'),
                ('"wall_s":0.0', '"wall_s":"inf"'),
            )
        ),
    ],
)
def test_any_other_bad_line_is_named(tmp_path: Path, bad: bytes) -> None:
    whole = encode_record(record("a")).encode() + b"\n"
    (tmp_path / RECORDS).write_bytes(whole + bad + b"\n" + whole)
    with pytest.raises(RunError, match=rf"{RECORDS}:2 "), open_journal(tmp_path):
        pass
    assert (tmp_path / RECORDS).read_bytes() == whole + bad + b"\n" + whole


def test_a_second_writer_is_refused_with_a_sentence(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from lhkit.errors import RunError\n"
        "from lhkit.harness.store import open_journal\n"
        "try:\n    open_journal(Path(sys.argv[1])).__enter__()\n"
        "except RunError as error:\n    print(error)\n"
    )
    with open_journal(tmp_path), pytest.raises(RunError, match="in use"), open_journal(tmp_path):
        pass
    with open_journal(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            capture_output=True,
            check=True,
            text=True,
        )
    assert "in use by another run" in done.stdout
    with open_journal(tmp_path) as journal:
        assert journal.found == ()


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with (
        pytest.raises(RunError, match="cannot be written"),
        open_journal(tmp_path / "file" / "run"),
    ):
        pass


class FullDisk(io.BytesIO):
    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="No space left"):
        Journal(tmp_path, FullDisk(), ()).append(record())


def test_a_manifest_is_replaced_as_a_whole(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) == {}
    write_manifest(tmp_path, {"a": "가\ud800"})
    write_manifest(tmp_path, {"a": "나"})
    assert read_manifest(tmp_path) == {"a": "나"}
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST]


@pytest.mark.parametrize("schema", [1, 3, None])
def test_a_manifest_of_another_version_is_refused(tmp_path: Path, schema: int | None) -> None:
    write_manifest(tmp_path, {"schema": schema})
    told = "was written by another version of lhkit .* play the run again under another name"
    with pytest.raises(RunError, match=told):
        read_manifest(tmp_path)


@pytest.mark.parametrize("bad", [b"{", b"[]", b"\xff"])
def test_a_broken_manifest_is_named(tmp_path: Path, bad: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(bad)
    with pytest.raises(RunError, match=MANIFEST):
        read_manifest(tmp_path)


def test_a_diff_counts_rows_and_knows_types() -> None:
    before = {"t": ({"n": 1}, {"n": 1}), "same": ({"x": 1},)}
    after = {"t": ({"n": 1}, {"n": True}), "same": ({"x": 1},), "new": ({"y": 1},)}
    assert state_diff(before, after) == {
        "t": TableDiff(added=({"n": True},), removed=({"n": 1},), added_at=(1,), removed_at=(1,)),
        "new": TableDiff(added=({"y": 1},), added_at=(0,)),
    }
    assert with_diff(before, state_diff(before, after)) == after
