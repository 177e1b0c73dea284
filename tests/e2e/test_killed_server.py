"""A real vLLM that is killed in the middle of a run: invalid samples and a sentence each."""

from collections.abc import AsyncGenerator
from pathlib import Path

import psutil
import pytest

from lhkit import embedded
from lhkit.harness.loader import load_scenarios
from lhkit.harness.record import Verdict
from lhkit.harness.run import replay
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.models.base import ModelRequest
from lhkit.models.transport import Endpoint
from lhkit.models.vllm import VllmHttp
from lhkit.models.vllm_server import VllmServer
from lhkit.responses import ModelEvent, ModelIdentity, Sampling, TextDelta
from lhkit.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.model, pytest.mark.timeout(1200)]

TALKATIVE = "gemma-base"  # it talks to the end of its tokens: each answer has a middle
SURVIVING_REQUESTS = 2
FAULTS = {"StreamBrokenError", "ServerUnreachableError", "ServerFailedError"}


class KillingModel:
    """Passes everything on, and kills the server in the middle of a later answer."""

    def __init__(self, inner: VllmHttp, server: VllmServer) -> None:
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
                kill_api_server(self._server.pid)
            yield event

    async def aclose(self) -> None:
        await self._inner.aclose()


def kill_api_server(watcher_pid: int) -> None:
    """Kill vLLM's front; whoever watches it then ends its other processes."""
    if psutil.pid_exists(watcher_pid):
        for process in psutil.Process(watcher_pid).children():
            process.kill()


async def test_a_server_killed_mid_run_makes_samples_invalid_not_wrong(
    settings: Settings, tmp_path: Path
) -> None:
    scenarios = load_scenarios(scenario_paths("dev"))[:6]
    plan = await embedded.embedded_server(settings, name=TALKATIVE)
    async with VllmServer(plan) as server:
        model = await VllmHttp.connect(Endpoint(base_url=server.base_url))
        run = await replay(
            scenarios,
            KillingModel(model, server),
            toolset=life_helper.LifeHelperToolset(sampling=Sampling(max_tokens=24)),
            run_dir=tmp_path / "killed",
            max_attempts=1,
            progress=False,
        )
        await model.aclose()
    verdicts = [record.judgement.verdict for record in run.records]
    assert verdicts[0] is not Verdict.INVALID
    assert verdicts[-1] is Verdict.INVALID
    invalid = [record for record in run.records if record.judgement.verdict is Verdict.INVALID]
    assert all(record.judgement.reasons for record in invalid)
    assert "Traceback" not in "".join(
        reason for record in invalid for reason in record.judgement.reasons
    )
    faults = [turn for record in invalid for turn in record.evidence.turns if turn.cause]
    assert faults
    assert {turn.cause for turn in faults} <= FAULTS
    assert all(turn.error for turn in faults)
    plan = await embedded.embedded_server(settings, name=TALKATIVE)
