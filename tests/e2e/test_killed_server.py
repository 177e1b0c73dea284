"""A real server killed in the middle of a run: invalid samples with a reason."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from lhkit.conversation.responses import ModelEvent, ModelIdentity, TextDelta
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint
from lhkit.models.serving.llama_cpp_server import ensure_gguf, gguf_plan
from lhkit.models.serving.server import LocalServer
from lhkit.settings import Settings
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import limit_tokens, load_toolset

pytestmark = [pytest.mark.anyio, pytest.mark.model, pytest.mark.timeout(1200)]

TALK = """
- id: talk-{}
  locale: en
  turns: [{{user: Please tell me a long story., expect: {{calls: []}}}}]
"""
SURVIVING_REQUESTS = 2
FAILURES = {"StreamBrokenError", "ServerUnreachableError", "ServerFailedError"}


class KillingModel:
    """Passes everything on, and kills the server in the middle of a later answer."""

    def __init__(self, inner: ChatModel, server: psutil.Process) -> None:
        self._inner = inner
        self._server = server
        self._requests = 0

    @property
    def identity(self) -> ModelIdentity:
        return self._inner.identity

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self._requests += 1
        async for event in self._inner.stream(request):
            if self._requests > SURVIVING_REQUESTS and isinstance(event, TextDelta):
                with suppress(psutil.NoSuchProcess):  # it may be gone already
                    for process in (*self._server.children(recursive=True), self._server):
                        process.kill()
            yield event

    async def aclose(self) -> None:
        await self._inner.aclose()


async def test_killed_server_makes_samples_invalid(light: Settings, tmp_path: Path) -> None:
    file = tmp_path / "talk.yaml"
    file.write_text("".join(map(TALK.format, range(6))), encoding="utf-8")
    scenarios = load_scenarios(file)
    weights = await ensure_gguf(light.cache_dir)
    plan = await gguf_plan("gemma", weights, light.cache_dir, light.now())
    # Without the adapter: the long replies of the base model leave time for the kill.
    async with LocalServer(replace(plan, adapter=None)) as server:
        model = await connect(Endpoint(base_url=server.base_url))
        run = await replay(
            scenarios,
            KillingModel(model, psutil.Process(server.pid)),
            toolset=limit_tokens(load_toolset(ToolRegistry()), 24),
            run_dir=tmp_path / "killed",
            max_attempts=1,
            progress=False,
        )
        await model.aclose()
    verdicts = [record.score.verdict for record in run.records]
    assert verdicts[0] is not Verdict.INVALID
    assert verdicts[-1] is Verdict.INVALID
    invalid = [record for record in run.records if record.score.verdict is Verdict.INVALID]
    assert all(record.score.reasons for record in invalid)
    assert "Traceback" not in "".join(
        reason for record in invalid for reason in record.score.reasons
    )
    failures = [turn for record in invalid for turn in record.trajectory.turns if turn.cause]
    assert failures
    assert {turn.cause for turn in failures} <= FAILURES
    assert all(turn.error for turn in failures)
