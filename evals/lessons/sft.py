"""Draw `datasets/life_helper_sft`: the conversations as messages and tools, in Parquet.

    python -m evals.lessons.sft [--count 20000] [--seed 31] [--out datasets/life_helper_sft]

Each conversation is played with the real tools; one with a line that is nearly one of the held-out
scenarios is left out and counted, and the next is drawn in its place.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import fastparquet  # noqa: TID253 - a script
import pandas as pd  # noqa: TID253 - a script
import typer

from evals.lessons.conversations import conversations
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario, load_scenarios
from lhkit.json_values import compact
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.messages import Message, ModelEvent, ModelMessage
from lhkit.models.base import ModelRequest
from lhkit.models.dialects import DIALECTS
from lhkit.models.request import chat_messages, chat_tools
from lhkit.models.scripted import Reply
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import DEFAULT, load
from lhkit.tuning.apart import Apart
from lhkit.tuning.teacher import Conversation, ExpertModel, scenario_of

EVALS = Path(__file__).parents[1]
HELD_OUT = (
    *scenario_paths("all"),
    EVALS / "plain",
    EVALS / "pantry" / "scenarios",
    EVALS / "diary" / "scenarios.yaml",
)
_AT_A_TIME = 250
_MOST = 10_000_000


class _Keeping(ExpertModel):
    """Keeps what the expert was last asked, and what it then said."""

    def __init__(self, conversation: Conversation) -> None:
        super().__init__(conversation, DIALECTS["json"])
        self.requests: list[ModelRequest] = []
        self.replies: list[Reply] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        async for event in super().stream(request):
            yield event

    def _reply(self, request: ModelRequest) -> Reply:
        reply = super()._reply(request)
        self.replies.append(reply)
        return reply


def _row(conversation: Conversation, model: _Keeping, record: SampleRecord) -> dict[str, Any]:
    if record.judgement.verdict is Verdict.INVALID:
        raise SystemExit(f"{conversation.name}: {record.judgement.reasons}")
    last = model.requests[-1]
    said: list[Message] = [*last.messages]
    if model.replies[-1].calls:
        raise SystemExit(f"{conversation.name} ends with a call")
    said.append(ModelMessage(text=model.replies[-1].text))
    messages = chat_messages(said, last.instructions)
    for earlier in model.requests:
        if said[: len(earlier.messages)] != list(earlier.messages):
            raise SystemExit(f"{conversation.name}: a later request does not continue {earlier}")
    answers = [each for each in messages if each["role"] == "assistant"]
    slips = [
        number in line.slips
        for turn, line in zip(record.evidence.turns, conversation.lines, strict=True)
        for number, _ in enumerate(turn.model_calls)
    ]
    if len(answers) != len(slips):
        raise SystemExit(f"{conversation.name}: {len(answers)} answers, {len(slips)} requests")
    for answer, is_slip in zip(answers, slips, strict=True):
        if is_slip:
            answer["weight"] = 0
    return {
        "id": conversation.name,
        "kind": conversation.kind,
        "locale": conversation.locale,
        "messages": compact(messages),
        "tools": compact(chat_tools(last.tools)),
    }


async def _played(told: list[Conversation]) -> Iterator[dict[str, Any]]:
    by_name = {each.name: each for each in told}
    models: dict[str, _Keeping] = {}

    def expert(scenario: Scenario, _registry: ToolRegistry) -> ExpertModel:
        return models.setdefault(scenario.id, _Keeping(by_name[scenario.id]))

    run = await replay(
        [scenario_of(each) for each in told],
        expert,
        toolset=load(DEFAULT),
        max_attempts=1,
        progress=False,
    )
    return (
        _row(each, models[each.name], record)
        for each, record in zip(told, run.records, strict=True)
    )


async def draw(count: int, seed: int, out: Path) -> None:
    """Write the file, and print what the card says of it."""
    held_out = [turn.user for each in load_scenarios(HELD_OUT) for turn in each.turns]
    is_apart = Apart(held_out)
    drawn = conversations(_MOST, seed=seed)
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    begun = time.monotonic()
    while len(rows) < count:
        told = list(islice(drawn, min(_AT_A_TIME, count - len(rows))))
        kept = [each for each in told if is_apart(line.user for line in each.lines)]
        left_out += [each.name for each in told if each not in kept]
        rows += await _played(kept)
        sys.stderr.write(f"{len(rows)} {len(left_out)} {time.monotonic() - begun:.0f}s\n")
    frame = pd.DataFrame(rows)
    out.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else runs
    file = out / "train.parquet"
    fastparquet.write(str(file), frame, compression="ZSTD", object_encoding="utf8")
    messages = [json.loads(each) for each in frame["messages"]]
    facts = {
        "rows": len(frame),
        "held_out_lines": len(set(held_out)),
        "left_out": left_out,
        "equal_rows": int(frame["messages"].duplicated().sum()),
        "locales": dict(Counter(frame["locale"])),
        "roles": dict(Counter(each["role"] for row in messages for each in row)),
        "calls": dict(
            Counter(
                call["function"]["name"]
                for row in messages
                for each in row
                for call in each.get("tool_calls", ())
            )
        ),
        "weight_0": sum("weight" in each for row in messages for each in row),
        "kinds": frame["kind"].nunique(),
        "bytes": file.stat().st_size,
    }
    sys.stdout.write(json.dumps(facts, ensure_ascii=False, indent=1) + "\n")


def main(
    count: Annotated[int, typer.Option(min=1)] = 20_000,
    seed: Annotated[int, typer.Option(min=0)] = 31,
    out: Annotated[Path, typer.Option(file_okay=False)] = Path("datasets/life_helper_sft"),
) -> None:
    """Draw the conversations and write them as Parquet."""
    asyncio.run(draw(count, seed, out))  # noqa: TID251 - a script's own loop


if __name__ == "__main__":
    typer.run(main)
