"""Exports, read by their own readers and by our importer."""

import json
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evals.benchmarks import peers
from lhkit.base.errors import RunError, UsageError
from lhkit.cli.export import ExportOptions, export_run
from lhkit.conversation.events import EndReason
from lhkit.conversation.messages import ToolCall
from lhkit.conversation.tool_results import TRUNCATION_HINT
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.exports.openai_messages import write_openai_messages
from lhkit.harness.records.manifest import AssistantLimits, Manifest, Prompt
from lhkit.harness.records.record import CallRecord, Trajectory, TurnRecord, encode_record
from lhkit.harness.records.resume import select_records
from lhkit.harness.records.store import RECORDS
from lhkit.harness.results.results import Run
from lhkit.harness.running.run import replay
from lhkit.imports.chat_files import read_chat_file
from lhkit.imports.importers import to_scenario
from lhkit.imports.openai_messages import import_messages
from lhkit.models.recorded.scripted import Reply, say
from lhkit.settings import load_settings
from lhkit.toolset import load as load_toolset
from tests.harness.build import Load
from tests.harness.results.runs import CHAT, SCRIPT, lines, record, record_run, run_of

pytestmark = pytest.mark.anyio

Read = Callable[[Path], Any]


async def exported(folder: Path, **places: Path) -> None:
    assert await export_run(ExportOptions(folder=folder, **places), load_settings()) == 0


def bytes_in(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.fixture(scope="module")
def inspect_reads() -> Iterator[Read]:
    """Return a function that returns what inspect-ai reads in a log."""
    reader = Path(__file__).with_name("inspect_reader.py")
    line = [str(peers.peer_python(peers.INSPECT)), str(reader)]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:

        def read(file: Path) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{file}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer, process.communicate()[1]
            return json.loads(answer)

        yield read


async def test_openai_messages_export_has_messages_and_results(
    load: Load, toolset: Any, tmp_path: Path
) -> None:
    run = await record_run(load(CHAT), SCRIPT, toolset, tmp_path / "run")
    await exported(run, openai_messages=tmp_path / "new" / "chats.jsonl")
    text = (tmp_path / "new" / "chats.jsonl").read_text(encoding="utf-8")
    (chat,) = lines(tmp_path / "new" / "chats.jsonl")
    assert "우유가 있어요 \U0001f95b." in text
    assert [(each["role"], each["content"]) for each in chat["messages"]] == [
        ("user", "우유 메모 찾아 줘"),
        ("assistant", "찾을게요."),
        ("tool", '{"status":"ok","data":{"notes":[{"done":false,"id":"n1","text":"우유"}]}}'),
        ("assistant", "우유가 있어요 \U0001f95b."),
        ("user", "빵도 적어 줘"),
        ("assistant", None),
        ("tool", '{"status":"ok","data":{"id":"note-1"}}'),
        ("assistant", "적었어요."),
        ("user", "물도 적어 줘"),
        ("assistant", None),
        ("tool", '{"status":"cancelled","reason":"user did not confirm"}'),
        ("assistant", "그만둘게요."),
    ]
    ids = [c["id"] for each in chat["messages"] for c in each.get("tool_calls", ())]
    assert ids == [each["tool_call_id"] for each in chat["messages"] if each["role"] == "tool"]
    assert len(set(ids)) == 3
    names = [each["function"]["name"] for each in chat["tools"]]
    assert names == ["find_notes", "add_note", "finish_note"]


async def test_openai_messages_export_round_trips_through_import(
    load: Load, toolset: Any, tmp_path: Path
) -> None:
    odd = CHAT.replace("shop-01", "odd").replace("빵도 적어 줘", '"빵\\u2028도\\u0085 적어 줘"')
    run = await record_run((*load(CHAT), *load(odd)), SCRIPT, toolset, tmp_path / "run")
    first, second = tmp_path / "chats.jsonl", tmp_path / "again.jsonl"
    await exported(run, openai_messages=first)
    assert [[*each.messages] for each in read_chat_file(first).chats] == [
        each["messages"] for each in lines(first)
    ]
    imported = await import_messages(first)
    for name, text in {**imported.files, "toolset.py": imported.toolset}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    own = load_toolset(f"{tmp_path / 'toolset.py'}:toolset")
    scenarios = [to_scenario(each) for suite in imported.suites for each in suite.scenarios]
    await replay(scenarios, gold_model, toolset=own, run_dir=tmp_path / "back", progress=False)
    await exported(tmp_path / "back", openai_messages=second)
    before, after = lines(first), lines(second)
    for chat in before:  # reference calls have no text before a call
        chat["messages"][1]["content"] = None
    assert [each["messages"] for each in after] == [each["messages"] for each in before]


@pytest.mark.parametrize("hint", ["", "{bytes} bytes: ask for less"])
def test_exported_result_is_truncated_as_for_the_model(hint: str, tmp_path: Path) -> None:
    result = {"status": "ok", "data": {"text": "x" * 900}}
    call = CallRecord(tool="find", raw_args={}, result=result)
    turn = TurnRecord(user="hi", ended=EndReason.ANSWERED, calls=(call,))
    chat = replace(record("a"), trajectory=Trajectory(turns=(turn,)))
    limits = AssistantLimits(max_result_bytes=300, truncation_hint=hint)
    manifest = Manifest(locales={"ko": Prompt(assistant=limits)})
    write_openai_messages(Run(records=(chat,), manifest=manifest), tmp_path / "c.jsonl")
    ((_, _, read),) = [each["messages"] for each in lines(tmp_path / "c.jsonl")]
    expected = (hint or TRUNCATION_HINT).replace("{bytes}", "934")
    assert json.loads(read["content"])["data"] == {"_truncated": True, "_hint": expected}


@pytest.mark.slow
async def test_exports_keep_invalid_and_truncated_calls_as_text(
    load: Load, toolset: Any, tmp_path: Path, inspect_reads: Read
) -> None:
    script = (
        Reply(calls=(ToolCall(name="find_notes", args=["우유"], raw='{"name": ["우유"]}'),)),
        Reply(fragment='{"name": "find_'),
        say("없어요\ud800."),
    )
    run = await record_run(load(CHAT), script, toolset, tmp_path / "run")
    await exported(run, openai_messages=tmp_path / "c.jsonl", inspect=tmp_path / "log" / "c.eval")
    (chat,) = lines(tmp_path / "c.jsonl")
    replies = [each for each in chat["messages"] if each["role"] == "assistant"]
    assert replies[0]["tool_calls"][0]["function"]["arguments"] == '["우유"]'
    assert (replies[1]["content"], "tool_calls" in replies[1]) == ('{"name": "find_', False)
    assert replies[2]["content"] == "없어요\ufffd."
    (read,) = inspect_reads(tmp_path / "log" / "c.eval")["samples"]
    assert read["messages"][1] == ["assistant", "", [["find_notes", {}, '["우유"]']]]
    assert read["messages"][4][1] == "없어요\ufffd."


@pytest.mark.slow
async def test_inspect_reads_samples_calls_and_approvals(
    load: Load, toolset: Any, tmp_path: Path, inspect_reads: Read
) -> None:
    run = await record_run(load(CHAT), SCRIPT, toolset, tmp_path / "run")
    await exported(run, inspect=tmp_path / "log" / "run.eval")
    read = inspect_reads(tmp_path / "log" / "run.eval")
    (sample,) = read.pop("samples")
    assert read == {
        "listed": ["run"],
        "status": "success",
        "model": "scripted",
        "accuracy": 1.0,
        "summaries": [["shop-01", 1, None, {"lhkit": "C"}]],
    }
    assert sample["times"] == sorted(sample["times"])
    assert sample["approvals"] == [["add_note", "approve"], ["add_note", "reject"]]
    turn = ["model", "approval", "tool", "model", "info"]
    assert sample["events"] == ["model", "tool", "model", "info", *turn, *turn, "score"]
    calls = [["find_notes", {"query": "우유"}, None]]
    assert sample["messages"][1] == ["assistant", "찾을게요.", calls]
    assert sample["target"] == ["find_notes", "add_note", "add_note"]
    assert (sample["input"], sample["scores"]) == ("우유 메모 찾아 줘", {"lhkit": "C"})


@pytest.mark.slow
async def test_inspect_reads_repeats_as_epochs_and_invalid_samples_as_errors(
    tmp_path: Path, inspect_reads: Read
) -> None:
    invalid = record("b", verdict="invalid")
    invalid = replace(invalid, trajectory=replace(invalid.trajectory, error="서버가 죽었다"))
    run = run_of(
        tmp_path / "run", record("a"), record("a", "q", "fail", 1), invalid, record("dir/c d")
    )
    await exported(run, inspect=tmp_path / "log" / "run.eval")
    read = inspect_reads(tmp_path / "log" / "run.eval")
    calls = [(each["id"], each["epoch"], each["scores"], each["error"]) for each in read["samples"]]
    assert sorted(calls, key=lambda each: each[:2]) == [
        ("a", 1, {"lhkit": "C"}, None),
        ("a", 2, {"lhkit": "I"}, None),
        ("b", 1, {}, "서버가 죽었다"),
        ("dir/c d", 1, {"lhkit": "C"}, None),
    ]
    assert read["accuracy"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("kind", ["openai_messages", "inspect"])
async def test_exports_leave_files_unchanged_after_an_error(tmp_path: Path, kind: str) -> None:
    place = tmp_path / {"openai_messages": "a.jsonl", "inspect": "a.eval"}[kind]
    good = run_of(tmp_path / "good", record("a"))
    await exported(good, **{kind: place})
    before = bytes_in(tmp_path)
    line = encode_record(record("c")).replace('"AC-1"', "17")
    bad = run_of(tmp_path / "bad", record("b"), tail=f"{line}\n")
    with pytest.raises(RunError, match=r"records\.jsonl.* is not a valid record .*ac"):
        await exported(bad, **{kind: place})
    after = bytes_in(tmp_path)
    del after[bad / RECORDS]
    assert after == before


async def test_inspect_export_is_deterministic(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", record("a"), record("b"))
    one, other = tmp_path / "1.eval", tmp_path / "2.eval"
    await exported(run, inspect=one)
    await exported(run, inspect=other)
    assert one.read_bytes() == other.read_bytes()
    with zipfile.ZipFile(one) as log:
        assert {each.date_time for each in log.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_run_load_without_keeping_records_gives_the_same_records(tmp_path: Path) -> None:
    chat = (
        record("b", "q1"),
        record("a", "q1", "fail"),
        record("a", "q2"),
        record("a", "q2", "invalid"),
        record("b", "q1", "fail"),
    )
    folder = run_of(tmp_path / "run", *chat, tail='{"sample_id": {"sc')
    stored = Run.load(folder, keep_records=False).records
    assert [*stored] == [*Run.load(folder).records] == [*select_records(chat, {})]
    assert not isinstance(stored, tuple)


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        ({}, "nothing to write: give --openai-messages"),
        ({"inspect": Path("log.json")}, r"log\.json is not a valid name of an Inspect log"),
    ],
)
async def test_export_command_rejects_invalid_options(
    tmp_path: Path, places: dict[str, Path], sentence: str
) -> None:
    options = ExportOptions(folder=run_of(tmp_path / "run", record("a")), **places)
    with pytest.raises(UsageError, match=sentence):
        await export_run(options, load_settings())
