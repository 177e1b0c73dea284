"""The recorded time of cassettes."""

import time
from pathlib import Path

import pytest

from lhkit import app
from lhkit.harness.plan import run_clock
from lhkit.harness.run import replay
from lhkit.lifehelper import toolset as life_helper
from lhkit.models.cassette import CassetteModel, RecordingModel
from lhkit.models.scripted import ScriptedModel, say
from tests.harness.build import SteppingClock

pytestmark = pytest.mark.anyio


async def test_replay_of_cassette_has_recorded_latencies(tmp_path: Path) -> None:
    scenarios = app.shipped_scenarios("ac12-small-talk-ko-01", "ac12-out-of-scope-ko-01")
    toolset = life_helper.LifeHelperToolset()
    path = tmp_path / "cassette.json"
    recorder = RecordingModel(
        ScriptedModel([say("안녕하세요!"), say("그건 도와드릴 수 없어요.")]),
        path,
        clock=SteppingClock(7.0),
    )
    await replay(scenarios, recorder, toolset=toolset, progress=False)
    runs = [
        await replay(scenarios, CassetteModel.open(path), toolset=toolset, progress=False)
        for _ in range(2)
    ]
    spent = [[turn.duration_s for r in run.records for turn in r.evidence.turns] for run in runs]
    assert min(spent[0]) >= 14.0
    assert spent[0] == spent[1]
    assert [record.harness_s for record in runs[0].records] == [0.0, 0.0]


async def test_run_clock_is_machine_time_for_concurrent_or_other_models(tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    recorder = RecordingModel(ScriptedModel([say("네")]), path)
    scenarios = app.shipped_scenarios("ac12-small-talk-ko-01")
    await replay(scenarios, recorder, toolset=life_helper.LifeHelperToolset(), progress=False)
    cassette = CassetteModel.open(path)
    assert run_clock(cassette, concurrency=2) is time.perf_counter
    assert run_clock(recorder, concurrency=1) is time.perf_counter
