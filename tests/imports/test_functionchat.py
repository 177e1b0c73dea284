"""The FunctionChat-Bench import, with made-up questions: one response is judged."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.cli.imports import import_with
from lhkit.conversation.messages import ModelMessage, ToolCallMessage, UserMessage
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.imports.functionchat import import_functionchat
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.settings import load_settings
from lhkit.toolset import load

pytestmark = [pytest.mark.anyio, pytest.mark.longer]


def tool(name: str, **fields: Any) -> dict[str, Any]:
    properties = {
        key: {"type": kind} if isinstance(kind, str) else kind for key, kind in fields.items()
    }
    parameters = {"type": "object", "properties": properties, "required": list(fields)}
    return {
        "type": "function",
        "function": {"name": name, "description": name, "parameters": parameters},
    }


def answer(name: str, **args: Any) -> dict[str, Any]:
    return {"name": name, "arguments": json.dumps(args, ensure_ascii=False)}


def calls(name: str, **args: Any) -> dict[str, Any]:
    function = {"id": "random_id", "type": "function", "function": answer(name, **args)}
    return {"role": "assistant", "content": None, "tool_calls": [function]}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def asks(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


BREW, STOP = tool("brewTea", leaf="string", cups="integer"), tool("stop")
DATED = tool("book", day={"type": "string", "format": "date"})
ASKED = [asks("차 좀 우려 줘"), says("무슨 차요?"), asks("3번")]
BREWED = [*ASKED, calls("brewTea", leaf="녹차", cups=3)]

SINGLECALL = [
    {
        "query": [{"serial_num": 1, "content": "녹차 세 잔"}, {"serial_num": 2, "content": "멈춰"}],
        "ground_truth": [
            {"serial_num": 1, "content": json.dumps(answer("brewTea", leaf="녹 차", cups=3))},
            {"serial_num": 2, "content": json.dumps(answer("stop"))},
        ],
        "acceptable_arguments": [
            {"serial_num": 1, "content": '{"leaf": ["Green Tea"], "cups": 3.0}'},
            {"serial_num": 2, "content": "Only ground truth is allowed."},
        ],
        "tools": [
            {"type": "exact", "content": [STOP]},
            {"type": "4_close", "content": [BREW, STOP]},
        ],
    }
]
CALLDECISION = [
    ("CALL", "call", [asks("내일로 잡아")], calls("book", day="내일")),
    ("REJECT", "relevance", [asks("주가 알려 줘")], says("못 합니다.")),
    ("SLOT-all", "slot", [asks("차 우려 줘")], says("무슨 차요?")),
    ("SLOT-some", "slot", ASKED, says("몇 잔요?")),
]
RESULT = {"role": "tool", "tool_call_id": "random_id", "name": "brewTea", "content": '{"min": 4}'}
DIALOG = [
    ("call", ASKED, BREWED[-1]),
    ("completion", [*BREWED, RESULT], says("4분 걸려요.")),
    ("relevance", [*BREWED, RESULT, says("4분"), asks("노래 틀어")], says("노래는 못 틀어요.")),
]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    rows: dict[str, list[Any]] = {
        "Singlecall": [
            {**SINGLECALL[0], "query": SINGLECALL[0]["query"][n : n + 1], "tools": tools}
            for n, tools in ((0, SINGLECALL[0]["tools"][1:]), (1, SINGLECALL[0]["tools"]))
        ],
        "CallDecision": [
            {
                "serial_num": number,
                "category": category,
                "type_of_output": kind,
                "input_messages": [{"role": "system", "content": "Speak Korean."}, *messages],
                "input_tools": [BREW, DATED],
                "ground_truth": truth,
                "acceptable_arguments": None,
            }
            for number, (category, kind, messages, truth) in enumerate(CALLDECISION, start=1)
        ],
        "Dialog": [
            {
                "dialog_num": 1,
                "tools": [BREW],
                "turns": [
                    {
                        "serial_num": number,
                        "query": query,
                        "ground_truth": truth,
                        "type_of_output": kind,
                        "acceptable_arguments": {"leaf": "green tea"} if kind == "call" else None,
                    }
                    for number, (kind, query, truth) in enumerate(DIALOG, start=1)
                ],
            }
        ],
    }
    folder = tmp_path / "FunctionChat-Bench" / "data"
    folder.mkdir(parents=True)
    (folder / "system_prompt.txt").write_text("Speak Korean.\n", encoding="utf-8")
    for part, items in rows.items():
        text = "".join(f"{json.dumps(item, ensure_ascii=False)}\n" for item in items)
        (folder / f"FunctionChat-{part}.jsonl").write_text(text, encoding="utf-8")
    return folder.parent


@pytest.fixture
async def into(clone: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    assert await import_with("functionchat", load_settings(), path=clone, into=folder) == 0
    return folder


async def test_functionchat_references_pass_in_rows_by_category_and_tool_set(into: Path) -> None:
    run = await replay(
        load_scenarios([into]), gold_model, toolset=f"{into / 'toolset.py'}:toolset", progress=False
    )
    assert Counter(record.score.verdict for record in run.records) == {Verdict.PASS: 10}
    assert {(record.ac, record.tags[1]) for record in run.records} == {
        *(("exact", "singlecall"), ("4_close", "singlecall"), ("completion", "dialog")),
        *((category, "calldecision") for category, *_ in CALLDECISION),
        *(("call", "dialog"), ("relevance", "dialog")),
    }
    # what only a judge of prose can score is in a file of its own, without a command for a rate
    assert [s.id for s in load_scenarios([into / "completions.yaml"])] == ["dialog-01-002"]
    notes = (into / "NOTES.md").read_text(encoding="utf-8")
    assert "completions.yaml --toolset" not in notes
    assert "dialog.yaml --toolset" in notes
    assert "calldecision-001: book" in notes  # whose format the reference does not keep to
    assert notes.count("calldecision-00") == 4
    assert "(4)" in notes


BREW_3 = call("brewTea", leaf="녹차", cups=3)
CASES = [
    ("singlecall-001-4_close", BREW_3, True),
    ("singlecall-001-4_close", call("brewTea", leaf="GREEN tea", cups=3), True),
    ("singlecall-001-4_close", call("brewTea", leaf="홍차", cups=3), False),
    ("singlecall-001-4_close", call("brewTea", leaf="녹차", cups=4), False),
    ("singlecall-001-4_close", call("stop"), False),
    ("singlecall-001-4_close", say("네"), False),
    ("singlecall-001-4_close", Reply(calls=(*BREW_3.calls, *call("stop").calls)), False),
    ("singlecall-002-exact", call("stop"), True),
    ("calldecision-001", call("book", day="내일"), True),
    ("calldecision-001", call("book", day="2026-01-02"), False),
    ("calldecision-002", say("어렵습니다."), True),
    ("calldecision-002", BREW_3, False),
    ("calldecision-003", say(""), False),
    ("calldecision-004", say("몇 잔 드릴까요?"), True),
    ("calldecision-004", BREW_3, False),
    ("dialog-01-001", call("brewTea", leaf="Green Tea", cups=3), True),
    ("dialog-01-001", say("네"), False),
    ("dialog-01-003", say("안 됩니다."), True),
    ("dialog-01-003", BREW_3, False),
]


async def test_functionchat_judges_one_response_to_the_given_conversation(into: Path) -> None:
    toolset = load(f"{into / 'toolset.py'}:toolset")
    scenarios = {scenario.id: scenario for scenario in load_scenarios([into])}
    for name, reply, passes in CASES:
        model = ScriptedModel([reply])
        record = await run_sample(scenarios[name], model, toolset)
        verdict = record.score.verdict
        assert (name, reply, verdict is Verdict.PASS) == (name, reply, passes)
        assert len(model.requests) == 1
    history = model.requests[0].messages
    assert [type(message) for message in history[:3]] == [UserMessage, ModelMessage, UserMessage]
    assert isinstance(history[3], ToolCallMessage)
    assert history[3].result.data == {"min": 4}  # type: ignore[union-attr]
    assert model.requests[0].instructions == "Speak Korean."


async def test_import_functionchat_names_what_is_missing_or_invalid(clone: Path) -> None:
    with pytest.raises(UsageError, match=r"does not contain FunctionChat-Bench: give a folder"):
        import_functionchat(clone.parent)
    file = clone / "data" / "FunctionChat-Dialog.jsonl"
    file.write_text("{}\n{", encoding="utf-8")
    with pytest.raises(UsageError, match=r"FunctionChat-Dialog\.jsonl:2 is not valid JSON"):
        import_functionchat(clone)
