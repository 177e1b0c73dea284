"""Several servers as one model: placement of conversations, failed servers, records."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from lhkit.base.errors import ServerUnreachableError, UsageError
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.evaluate import evaluate
from lhkit.cli.eval.evaluation import OpenedModel, parse_addresses
from lhkit.conversation.messages import UserMessage
from lhkit.harness.figures.metrics import summarise
from lhkit.harness.records.record import SampleRecord, Verdict, encode_record
from lhkit.harness.records.store import read_manifest
from lhkit.harness.report.metadata import eval_command
from lhkit.harness.results.results import Run
from lhkit.harness.running.run import replay
from lhkit.harness.running.stress import parse_stress, stressed
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.base import ChatModel, ModelRequest, SupportsWarmUp
from lhkit.models.client.pool import ServerPool, connect_pool
from lhkit.models.client.served import connect, default_concurrency
from lhkit.models.client.transport import Endpoint
from lhkit.settings import Settings
from lhkit.testing import echo_tool
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import load_toolset
from tests.models.fake_vllm import FakeVllm, answers, completion, models, streams

pytestmark = pytest.mark.anyio

TALK = """
- id: talk-{n}
  ac: AC-1
  locale: en
  world: {{}}
  turns:
    - {{user: "this is {n}", reply: {{contains_any: ["{n}"]}}}}
    - {{user: "and again", reply: {{contains_any: ["odd"]}}}}
"""
MANY = 24


class Replica(FakeVllm):
    """A server whose answers follow from the prompt, so that any of several gives the same.

    With `dies_at` it hangs from that request on and sets `is_dying`, so that a test can
    kill it in the middle of a conversation.
    """

    def __init__(self, *, dies_at: int | None = None, **more: Any) -> None:
        super().__init__(routes={"/v1/completions": self._speak, **more.pop("routes", {})}, **more)
        self.dies_at = dies_at
        self.is_dying = asyncio.Event()

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(body := await request.json())
        if len(self.bodies) == self.dies_at:
            self.is_dying.set()
            await asyncio.Event().wait()
        number = number_in(body["prompt"])
        parity = "odd" if number % 2 else "even"
        return await streams(completion([f"{number} is ", parity]))(request)

    def talks(self) -> list[int]:
        """Return which conversations came, one number a request."""
        return [number_in(body["prompt"]) for body in self.bodies]


def number_in(prompt: str) -> int:
    """Return the number of the conversation; 0 without one."""
    _, said, rest = prompt.partition("this is ")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return int(digits) if said and digits else 0


def endpoints(*servers: FakeVllm) -> list[Endpoint]:
    return [Endpoint(base_url=each.base_url, retries=0, api_key="SECRET") for each in servers]


def asked(number: int) -> ModelRequest:
    return ModelRequest(messages=(UserMessage(text=f"this is {number}"),))


async def ask(model: ChatModel, request: ModelRequest) -> None:
    async with aclosing(model.stream(request)) as events:
        async for _ in events:
            pass


async def no_pause(_: float) -> None:
    await asyncio.sleep(0)


@pytest.fixture
def talks(tmp_path: Path) -> tuple[Scenario, ...]:
    file = tmp_path / "talks.yaml"
    file.write_text("".join(TALK.format(n=n) for n in range(1, MANY + 1)), encoding="utf-8")
    return load_scenarios([file])


async def played(
    talks: Sequence[Scenario], model: ServerPool | ChatModel, folder: Path, *, wide: int = 6
) -> Run:
    return await replay(
        talks,
        model,
        toolset=ToolRegistry([echo_tool()]),
        run_dir=folder,
        concurrency=wide,
        sleep=no_pause,
        progress=False,
    )


def verdicts(run: Run) -> dict[str, Verdict]:
    return {str(each.sample_id): each.judgement.verdict for each in run.records}


def addresses(record: SampleRecord) -> set[str]:
    calls = (call for turn in record.evidence.turns for call in turn.model_calls)
    return {call.response.identity.base_url for call in calls if call.response.identity}


async def test_pool_binds_conversations_and_sends_new_ones_to_the_least_busy() -> None:
    async with Replica() as a, Replica() as b, connect_pool(endpoints(a, b)) as pool:
        first, second, third = (pool.conversation() for _ in range(3))
        await ask(first, asked(1))
        await ask(second, asked(2))
        await ask(first, asked(1))
        await first.aclose()
        await ask(third, asked(3))
        await ask(second, asked(2))
        assert (a.talks(), b.talks()) == ([1, 1, 3], [2, 2])
        assert OpenedModel(source=pool).concurrency == 2 * default_concurrency(pool.identity)


async def test_pool_moves_samples_from_a_killed_server(
    talks: Sequence[Scenario], tmp_path: Path
) -> None:
    async with Replica() as alone, AsyncExitStack() as stack:
        model = await stack.enter_async_context(aclosing(await connect(endpoints(alone)[0])))
        one = await played(talks, model, tmp_path / "one")
    async with AsyncExitStack() as stack:
        a, b = [await stack.enter_async_context(Replica()) for _ in range(2)]
        dying = Replica(dies_at=5)
        await dying.__aenter__()
        pool = await stack.enter_async_context(connect_pool(endpoints(a, dying, b)))
        playing = asyncio.create_task(played(talks, pool, tmp_path / "three"))
        await dying.is_dying.wait()
        await dying.__aexit__(None, None, None)
        three = await playing
        assert pool.failed_addresses == (dying.base_url,)
    assert verdicts(three) == verdicts(one)
    assert set(verdicts(one).values()) == {Verdict.PASS, Verdict.FAIL}
    assert all(len(addresses(record)) == 1 for record in three.records)
    again = {str(record.sample_id) for record in three.records if record.attempts > 1}
    assert 0 < len(again) <= 3
    assert len({*a.talks(), *b.talks()} - {0}) >= MANY - 2  # of the dead one at most two were whole


async def test_pool_records_name_the_server_and_never_the_key(
    talks: Sequence[Scenario], tmp_path: Path
) -> None:
    async with Replica() as a, Replica() as b, connect_pool(endpoints(a, b)) as pool:
        run = await played(talks, pool, tmp_path)
    both = {a.base_url, b.base_url}
    assert {address for record in run.records for address in addresses(record)} == both
    [told] = read_manifest(tmp_path).models
    assert told["base_url"].split() == [a.base_url, b.base_url]
    [shown] = summarise(run.records).models
    assert set(shown.base_url.split()) == both
    without = replace(run, manifest=run.manifest.model_copy(update={"command": ()}))
    assert eval_command(without, summarise(run.records)).count("--base-url http") == 2
    assert {each["Authorization"] for each in a.headers + b.headers} == {"Bearer SECRET"}
    assert "SECRET" not in "".join(map(encode_record, run.records)) + json.dumps(
        run.manifest.plain()
    )


async def test_pool_binds_conversations_under_stress(talks: Sequence[Scenario]) -> None:
    async with Replica() as a, Replica() as b, connect_pool(endpoints(a, b)) as pool:
        registry = ToolRegistry([echo_tool()])
        source, _ = stressed(pool, load_toolset(registry), parse_stress("shuffle"))
        assert callable(source)
        first, second = source(talks[0], registry), source(talks[1], registry)
        for model, number in ((first, 1), (second, 2), (first, 1)):
            await ask(model, asked(number))
        assert (a.talks(), b.talks()) == ([1, 1], [2])


async def test_pool_warms_every_server_first() -> None:
    async with Replica() as a, Replica() as b, connect_pool(endpoints(a, b)) as pool:
        model = pool.conversation()
        assert isinstance(model, SupportsWarmUp)
        await model.warm(asked(7))
        assert (a.talks(), b.talks()) == ([7], [7])
        assert {body["max_tokens"] for body in a.bodies + b.bodies} == {1}


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        ({"/v1/models": models("gemma-base")}, "differ in model (gemma, gemma-base)"),
        ({"/version": answers(200, '{"version":"0.33.0"}')}, "server (vllm 0.32.0, vllm 0.33.0)"),
    ],
)
async def test_connect_pool_refuses_different_models(route: dict[str, Any], expected: str) -> None:
    async with Replica() as a, Replica(routes=route) as b:
        with pytest.raises(UsageError) as refused:
            async with connect_pool(endpoints(a, b)):
                pass
    assert expected in str(refused.value)
    assert a.base_url in str(refused.value)


async def test_pool_without_working_servers_fails_like_one_server(
    talks: Sequence[Scenario], tmp_path: Path
) -> None:
    async with Replica() as a, Replica() as b:
        two = endpoints(a, b)
        stack = AsyncExitStack()
        pool = await stack.enter_async_context(connect_pool(two))
    async with stack:
        run = await played(talks, pool, tmp_path)
    assert set(verdicts(run).values()) == {Verdict.INVALID}
    assert sum(record.attempts == 0 for record in run.records) > 0  # not tried to the last
    with pytest.raises(ServerUnreachableError):
        async with connect_pool(two):
            pass


async def evaluated(folder: Path, **options: Any) -> int:
    settings = Settings(cache_dir=folder / "cache", locale="en", base_url=None, api_key="SECRET")
    given = {"paths": (folder / "talks.yaml",), "toolset": f"{folder / 'own.py'}:tools"}
    eval_options = EvalOptions(runs_dir=folder / "runs", name="run", **{**given, **options})
    return await evaluate(eval_options, settings)


@pytest.mark.usefixtures("talks")
async def test_eval_uses_the_servers_of_a_file_and_reports_failed_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = "from lhkit import ToolRegistry\nfrom lhkit.testing import echo_tool\n"
    (tmp_path / "own.py").write_text(f"{own}tools = ToolRegistry([echo_tool()])\n", "utf-8")
    gone = Replica()
    async with gone:
        pass
    async with Replica() as a, Replica() as b:
        listed = f"{a.base_url}  # the first\n\n{b.base_url}/v1\n{gone.base_url}\n"
        (tmp_path / "servers.txt").write_text(listed, encoding="utf-8")
        assert await evaluated(tmp_path, base_urls=(f"@{tmp_path / 'servers.txt'}",)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{gone.base_url} failed and was dropped" in said
    assert a.base_url in said
    assert len(set(a.talks()) | set(b.talks())) == MANY + 1  # and the common beginning
    assert "SECRET" not in json.dumps(read_manifest(tmp_path / "runs" / "run").plain()) + said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["http://a:1", "http://a:1/v1"], "--base-url http://a:1 is given 2 times"),
        (["@missing.txt"], "--base-url @missing.txt cannot be read"),
        (["@empty.txt"], "--base-url @empty.txt: the file has no address"),
        (["http://a:1", "nope"], "nope"),
    ],
)
def test_eval_refuses_an_invalid_list_of_addresses(
    words: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n# nothing\n", encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        parse_addresses(words)
    assert expected in str(refused.value)
