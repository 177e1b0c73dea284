"""lhkit beside vLLM's serving benchmark: the same requests on both sides, and all rounds count."""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import serving_sides
import throughput
from figures import Machine
from serving_sides import Bench, Sent, Side
from throughput import Pair

from lhkit import app
from lhkit.harness.scenario import Scenario
from lhkit.messages import Finished, ModelEvent, Usage
from lhkit.models.base import ModelRequest
from lhkit.models.serving import ServerSettings
from lhkit.testing import Reply, ScriptedModel, call, say

MACHINE = Machine(cpu="c", cores=2, memory_gib=8.0, system="Linux", python="3.11.7", load=0.5)
PLAN = ServerSettings(
    model=Path("gemma-folder"), served_name="gemma", log_path=Path("log"), dtype="bfloat16"
)


def side(tokens: int, seconds: float) -> Side:
    return Side(
        requests=4,
        prompt_tokens=400,
        output_tokens=tokens,
        seconds=seconds,
        first_token_s=0.25,
    )


def every_level(*rounds: tuple[float, float]) -> list[Pair]:
    return [
        Pair(at_once=at_once, ours=side(100, ours_s), theirs=side(100, theirs_s))
        for ours_s, theirs_s in rounds
        for at_once in throughput.LEVELS
    ]


def scenarios() -> tuple[Scenario, ...]:
    return app.shipped_scenarios("ac02-worry-by-id-en-01", "ac05-not-swimming-en-01")


class Recounted(ScriptedModel):
    """A script whose answers come with a prompt and with tokens, as a server's do."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        async for event in super().stream(request):
            if isinstance(event, Finished):
                usage = Usage(prompt_tokens=900, completion_tokens=20 + len(self.requests))
                said = f"prompt {len(self.requests)}"
                yield replace(event, prompt_text=said, usage=usage)
            else:
                yield event


def test_the_share_is_that_of_all_rounds_and_is_held_against_the_goal() -> None:
    share, ours, theirs, *_ = throughput.found(
        every_level((10.0, 9.0), (10.0, 11.0)), {}, MACHINE
    ).figures
    assert (share.value, share.unit, share.at_least, share.holds) == (100.0, "%", 95.0, True)
    assert (ours.value, theirs.value) == (10.0, 10.0)
    share, *_ = throughput.found(every_level((10.0, 9.4)), {}, MACHINE).figures
    assert share.value == pytest.approx(94.0)
    assert not share.holds


def test_every_level_is_a_row_with_the_share_of_each_of_its_rounds() -> None:
    pairs = every_level((10.0, 9.0), (10.0, 11.0))
    text = throughput.page(pairs, throughput.found(pairs, {"vLLM": "1"}, MACHINE), PLAN)
    rows = [line for line in text.splitlines() if "**100.0 %**" in line]
    told = "8 | 800 | 200 | 10.0 | 10.0 | **100.0 %** | 90.0, 110.0 | 0.25 / 0.25 s"
    assert rows == [f"| {at_once} | {told} |" for at_once in (1, 8, 16, 32)]
    assert "gemma-folder, bfloat16, 2 rounds" in text


@pytest.mark.parametrize("field", ["requests", "prompt_tokens", "output_tokens"])
def test_sides_that_did_not_do_the_same_are_not_compared(field: str) -> None:
    one = side(100, 10.0)
    Pair(at_once=8, ours=one, theirs=replace(one, seconds=9.0)).require_same_work()
    other = replace(one, **{field: getattr(one, field) - 1})
    with pytest.raises(AssertionError, match="8 at once"):
        Pair(at_once=8, ours=one, theirs=other).require_same_work()


def test_openings_are_first_turns_from_all_over_the_list() -> None:
    (first, _) = scenarios()
    many = [replace(first, id=f"s{n}", turns=first.turns * 2) for n in range(10)]
    chosen = serving_sides.openings(many, 3)
    assert [each.id for each in chosen] == ["s0", "s3", "s6"]
    assert [each.turns for each in chosen] == [first.turns[:1]] * 3


@pytest.mark.anyio
async def test_a_conversation_is_one_request_and_its_calls_are_run(tmp_path: Path) -> None:
    model = Recounted([call("list_habits"), say("No habits yet.")])
    played, sent = await serving_sides.ours(
        model, serving_sides.openings(scenarios(), 2), 1, tmp_path / "run"
    )
    assert sent == (
        Sent(prompt="prompt 1", output_tokens=21),
        Sent(prompt="prompt 2", output_tokens=22),
    )
    assert (played.requests, played.prompt_tokens, played.output_tokens) == (2, 1800, 43)
    (line, _) = (tmp_path / "run" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    (settled,) = json.loads(line)["evidence"]["turns"][0]["calls"]
    assert (settled["tool"], settled["ran"]) == ("list_habits", True)


@pytest.mark.anyio
async def test_a_request_that_failed_is_no_throughput(tmp_path: Path) -> None:
    model = Recounted([Reply(error=RuntimeError("gone"))])
    with pytest.raises(AssertionError, match="invalid"):
        await serving_sides.ours(model, serving_sides.openings(scenarios(), 1), 1, tmp_path / "run")


ECHO = """
import json, sys
print(json.dumps({"version": "1.2"}), flush=True)
for line in sys.stdin:
    words = json.loads(line)
    path = words[words.index("--dataset-path") + 1]
    asked = [json.loads(each) for each in open(path, encoding="utf-8")]
    if not asked:
        sys.exit("nothing to send")
    told = {
        "completed": len(asked),
        "total_input_tokens": sum(len(each["prompt"]) for each in asked),
        "total_output_tokens": sum(each["output_tokens"] for each in asked),
        "duration": float(words[words.index("--max-concurrency") + 1]),
        "median_ttft_ms": 250.0 if "--ignore-eos" in words else 0.0,
    }
    print(json.dumps(told), flush=True)
"""


async def asked(peer: Bench, sent: Sequence[Sent]) -> Side:
    return await serving_sides.theirs(peer, PLAN, "http://127.0.0.1:1", sent, 8)


@pytest.mark.anyio
async def test_vllms_benchmark_is_given_our_prompts_and_lengths_and_tells_if_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "echo.py"
    script.write_text(ECHO, encoding="utf-8")
    monkeypatch.setattr(serving_sides, "BENCH", script)
    sent = [Sent(prompt="물을 마셔요", output_tokens=7), Sent(prompt="two", output_tokens=5)]
    async with serving_sides.bench(PLAN, tmp_path) as peer:
        assert await peer.answer() == {"version": "1.2"}
        told = await asked(peer, sent)
        assert told == Side(
            requests=2, prompt_tokens=9, output_tokens=12, seconds=8.0, first_token_s=0.25
        )
        with pytest.raises(AssertionError, match="nothing to send"):
            await asked(peer, [])


def test_vllms_benchmark_takes_prompts_as_they_are_in_order_with_the_lengths_of_the_file() -> None:
    words = serving_sides.arguments(PLAN, "http://127.0.0.1:1", Path("sent.jsonl"), 4, 8)
    assert {"--disable-shuffle", "--skip-chat-template", "--ignore-eos"} <= set(words)
    assert "--custom-output-len=-1" in words
    pairs: dict[str, Any] = dict(pairwise(words))
    assert pairs["--tokenizer"] == "gemma-folder"
    assert (pairs["--num-prompts"], pairs["--max-concurrency"]) == ("4", "8")
    assert json.loads(pairs["--extra-body"]) == {"add_special_tokens": False}
