"""A recorded conversation and run folders, shared by the tests of exports."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lhkit.conversation.messages import ToolCall
from lhkit.harness.records.record import SampleRecord, encode_record
from lhkit.harness.records.store import RECORDS
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from tests.harness.build import sample

CHAT = r"""
- id: shop-01
  ac: AC-1
  locale: ko
  world: {notes: [{id: n1, text: 우유}]}
  final: {notes: [{text: 빵}]}
  turns:
    - user: 우유 메모 찾아 줘
      expect: {calls: [{tool: find_notes, args: {query: 우유}}]}
      reply: {matches: '\S'}
    - user: 빵도 적어 줘
      confirm: accept
      expect: {calls: [{tool: add_note, args: {text: 빵}}]}
      reply: {matches: '\S'}
    - user: 물도 적어 줘
      confirm: reject
      expect: {calls: [{tool: add_note, args: {text: 물}, result: cancelled}]}
      reply: {matches: '\S'}
"""
SCRIPT = (
    Reply(text="찾을게요.", calls=(ToolCall(name="find_notes", args={"query": "우유"}),)),
    say("우유가 있어요 \U0001f95b."),
    call("add_note", text="빵"),
    say("적었어요."),
    call("add_note", text="물"),
    say("그만둘게요."),
)


async def record_run(
    scenarios: Sequence[Scenario], script: Sequence[Reply], toolset: Any, folder: Path
) -> Path:
    def model(*_: Any) -> ScriptedModel:
        return ScriptedModel(script)

    await replay(scenarios, model, toolset=toolset, run_dir=folder, progress=False)
    return folder


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def record(
    name: str, question: str = "q", verdict: str = "pass", repeat: int = 0, **more: Any
) -> SampleRecord:
    return sample(name, verdict, repeat, content_hash=question, **more)


def run_of(folder: Path, *records: SampleRecord, tail: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    text = "".join(f"{encode_record(each)}\n" for each in records)
    (folder / RECORDS).write_text(text + tail, encoding="utf-8")
    return folder
