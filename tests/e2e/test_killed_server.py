"""A real server killed in the middle of a run: invalid samples with a reason."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from lhkit import app
from lhkit.conversation.responses import ModelEvent, ModelIdentity, Sampling, TextDelta
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.model, pytest.mark.timeout(1200)]

TALKATIVE = "gemma-base"  # its long replies leave time for the kill
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
    scenarios = load_scenarios(scenario_paths("dev"))[:6]
    others = set(psutil.Process().children())
    async with app.open_model(app.ModelChoice(name=TALKATIVE), light) as model:
        [server] = set(psutil.Process().children()) - others
        run = await replay(
            scenarios,
            KillingModel(model, server),
            toolset=life_helper.LifeHelperToolset(sampling=Sampling(max_tokens=24)),
            run_dir=tmp_path / "killed",
            max_attempts=1,
            progress=False,
        )
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
