"""`lhkit audit` shows what was mended, and where a server read otherwise than we do."""

import json
from pathlib import Path
from typing import Any

import pytest

from lhkit.commands.report import audit_run
from lhkit.errors import RunError
from lhkit.harness.audit import audited
from lhkit.harness.record import (
    Evidence,
    Judgement,
    ModelCallRecord,
    SampleId,
    SampleRecord,
    TurnRecord,
    Verdict,
    encode_record,
)
from lhkit.messages import EndReason, Finished, ToolCall
from lhkit.settings import Settings

ENGLISH = Settings(locale="en")


def called(args: Any, *repairs: str) -> ToolCall:
    return ToolCall(name="search", args=args, repairs=repairs)


def run_of(folder: Path, *said: ModelCallRecord) -> Path:
    turn = audited(TurnRecord(user="?", ended=EndReason.ANSWERED, model_calls=said), {})
    record = SampleRecord(
        sample_id=SampleId(scenario="ac01-1"),
        content_hash="",
        ac="AC-1",
        locale="ko",
        judgement=Judgement(verdict=Verdict.PASS),
        evidence=Evidence(turns=(turn,)),
    )
    (folder / "records.jsonl").write_text(encode_record(record) + "\n", encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps({}), encoding="utf-8")
    return folder


@pytest.mark.anyio
async def test_three_readings_of_a_response_that_differs_stand_in_one_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, server = called({"query": "0101"}, "array"), called({"query": 101})
    differing = ModelCallRecord(
        response=Finished(
            reason="stop", raw_text="[…]", calls=(server,), server_calls=(server,), own_calls=(own,)
        )
    )
    same = ModelCallRecord(
        response=Finished(
            reason="stop", calls=(server,), server_calls=(server,), own_calls=(server,)
        )
    )
    assert await audit_run(run_of(tmp_path, differing, same), ENGLISH) == 0
    text = capsys.readouterr().out
    assert "2 responses were parsed by a server, which found calls in 2; 1 read otherwise" in text
    flat = " ".join(text.replace("│", " ").split())
    assert "server_changed_type 1" in flat
    assert '{"query":"0101"}' in flat.replace(" ", "")
    assert '{"query":101}' in flat.replace(" ", "")
    assert "strict repaired server" in " ".join(text.replace("┃", " ").split())
    assert "no call" in flat  # nothing stands in the strict column: it had to be mended


@pytest.mark.anyio
async def test_a_run_that_no_server_parsed_has_no_such_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ModelCallRecord(response=Finished(reason="stop", raw_text="…", calls=(called({}),)))
    assert await audit_run(run_of(tmp_path, said), ENGLISH) == 0
    assert "server" not in capsys.readouterr().out


@pytest.mark.anyio
async def test_a_folder_without_a_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no run: give a folder with"):
        await audit_run(tmp_path, ENGLISH)


@pytest.mark.anyio
async def test_an_answer_to_a_question_that_is_asked_otherwise_now_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_of(tmp_path, ModelCallRecord(response=Finished(reason="stop", raw_text="old")))
    old = (folder / "records.jsonl").read_text(encoding="utf-8")
    new = old.replace('"content_hash":""', '"content_hash":"new"')
    (folder / "records.jsonl").write_text(old + new, encoding="utf-8")
    assert await audit_run(folder, ENGLISH) == 0
    assert "1 responses" in capsys.readouterr().out
