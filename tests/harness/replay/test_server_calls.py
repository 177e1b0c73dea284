"""A run against a server that parses calls: both readings and the fault classes are on disk."""

import json
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from lhkit.harness.log import read_records
from lhkit.harness.record import Verdict
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario
from lhkit.models.http import Endpoint
from lhkit.models.served import connect
from lhkit.toolset import Toolset
from tests.models.fake_vllm import FakeVllm, answers, chat_call, chat_completion, streams

SCENARIO = """
- id: find
  ac: AC-1
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns:
    - user: find 0101
      expect: {calls: [{tool: find_notes, args: {query: "0101"}}]}
"""
WROTE = '[find_notes(query="0101", limit="3")]'
CALLED = [{"tool_calls": [chat_call(0, "find_notes", '{"query": 101, "limit": "3"}')]}]


@pytest.mark.anyio
async def test_what_the_server_parsed_is_recorded_beside_what_we_read(
    load: Callable[[str], tuple[Scenario, ...]], toolset: Toolset, tmp_path: Path
) -> None:
    told = chat_completion(CALLED, reason="tool_calls", tokens=3)
    behaviours = [streams(told), streams(chat_completion([{"content": "no such note"}]))]
    routes = {"/detokenize": answers(200, json.dumps({"prompt": WROTE}))}
    models = {"/v1/models": answers(200, '{"data": [{"id": "gemma-3-4b-it"}]}')}
    async with FakeVllm(*behaviours, routes=routes | models) as server:
        model = await connect(Endpoint(base_url=server.base_url, dialect="openai"))
        async with aclosing(model):
            await replay(load(SCENARIO), model, toolset=toolset, run_dir=tmp_path, progress=False)
    [record] = read_records(tmp_path)
    said = record.evidence.turns[0].model_calls[0]
    assert said.response.raw_text == WROTE
    assert said.response.server_calls == said.response.calls
    assert [call.args for call in said.response.calls] == [{"query": 101, "limit": "3"}]
    assert [call.args for call in said.response.own_calls or ()] == [
        {"query": "0101", "limit": "3"}
    ]
    assert said.faults == ("stringified_number", "server_changed_type")
    assert (
        record.judgement.verdict is Verdict.FAIL
    )  # 101 is not "0101": what was dispatched is judged
