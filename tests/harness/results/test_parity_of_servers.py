"""A difference that is planted in a server or its client comes out of two played runs by its name.

Of the same server with nothing planted nothing is said.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from lhkit.app import shipped_scenarios
from lhkit.chat.controller import Assistant
from lhkit.harness.parity import parity
from lhkit.harness.report.parity import facts_of
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.lifehelper.toolset import LIFE_HELPER
from lhkit.locales import load_catalog
from lhkit.models.http import Endpoint
from lhkit.models.served import connect
from lhkit.toolset import Session, Toolset, ToolsetAround
from tests.models.fake_llama_cpp import PROMPT_IDS, PROPS, FakeLlamaCpp, native
from tests.models.fake_vllm import Behaviour, answers, streams

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SAID = ["안녕하세요! ", "날씨가 좋네요."]
PLAIN = native(SAID)


async def twice(request: web.Request) -> web.StreamResponse:
    """A tokenizer that puts a `<bos>` before the one that the prompt has."""
    assert (await request.json())["parse_special"]
    return web.json_response({"tokens": [PROMPT_IDS[0], *PROMPT_IDS]})


def without_a_line(session: Session, locale: str) -> Assistant:
    told = session.assistant
    first, *_, last = told.instructions.splitlines()
    assert (first, locale) != (last, "")
    return replace(told, instructions=told.instructions.removesuffix(last))


def in_bits(name: str) -> Behaviour:
    return answers(200, json.dumps({**json.loads(PROPS), "model_ftype": name}))


async def played(
    events: list[bytes],
    routes: dict[str, Behaviour] | None = None,
    toolset: Toolset = LIFE_HELPER,
    name: str = "",
) -> Run:
    async with FakeLlamaCpp(streams(events), **(routes or {})) as server:
        model = await connect(Endpoint(base_url=server.base_url, retries=0))
        try:
            run = await replay(
                shipped_scenarios("ac12-small-talk-ko-01"), model, toolset=toolset, progress=False
            )
        finally:
            await model.aclose()
    return replace(run, name=name)


PLANTED: dict[str, tuple[Callable[[], dict[str, Any]], set[str]]] = {
    "nothing": (lambda: {"events": PLAIN}, set()),
    "a second <bos>": (
        lambda: {"events": PLAIN, "routes": {"/tokenize": twice}},
        {"phone begins its prompts with the first token twice"},
    ),
    "a lost line of the template": (
        lambda: {
            "events": PLAIN,
            "toolset": ToolsetAround(inner=LIFE_HELPER, assistant=without_a_line),
        },
        {"the prompts are other texts"},
    ),
    "a wrong stop token": (
        lambda: {"events": native([*SAID, "<end_of_turn>", "\nuser"], stop_type="limit")},
        {"phone wrote on past the end"},
    ),
    "a build of two bits": (
        lambda: {"events": PLAIN, "routes": {"/props": in_bits("Q2_K - Medium")}},
        {"Q8_0 → Q2_K - Medium"},
    ),
}
MARKS = {each for _, said in PLANTED.values() for each in said}


@pytest.mark.parametrize("planted", PLANTED)
async def test_what_is_planted_is_named_as_what_it_is_and_nothing_else_is(planted: str) -> None:
    plant, said = PLANTED[planted]
    served, phone = await played(PLAIN, name="served"), await played(**plant(), name="phone")
    lines = list(facts_of(parity(served, phone), load_catalog("en")))
    assert {mark for mark in MARKS if any(mark in line for line in lines)} == said, lines
