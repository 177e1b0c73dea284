"""replay() in a real Jupyter kernel: interrupted, resumed, repeated, with the same verdicts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

pytestmark = pytest.mark.slow

SETUP = """
import asyncio, json
from contextlib import aclosing
from pathlib import Path
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.lifehelper import toolset as life_helper
from lhkit.harness.authoring.reference import gold_model, silent_model
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios

folder = Path({folder!r})
scenarios = load_scenarios(scenario_paths("dev"), limit=12)
toolset = life_helper.LifeHelperToolset()
PLAYED_BEFORE = 5

class Stalling:
    # gold, whose server sends nothing but keep-alives in the sixth conversation
    def __init__(self, inner, stalls):
        self.inner, self.stalls, self.identity = inner, stalls, inner.identity

    async def stream(self, request):
        if self.stalls:
            print("stalled", flush=True)
            while True:  # ipykernel notices an interrupt when its loop next wakes up
                await asyncio.sleep(0.02)
        async with aclosing(self.inner.stream(request)) as events:
            async for event in events:
                yield event

    async def aclose(self):
        pass

def stalling(scenario, registry):
    return Stalling(gold_model(scenario, registry), scenario is scenarios[PLAYED_BEFORE])

def show(run):
    verdicts = [[each.sample_id.scenario, str(each.score.verdict)] for each in run.records]
    print(json.dumps({{"kept": run.kept, "verdicts": verdicts}}), flush=True)
"""
RUN = """
show(await replay(scenarios, {model}, toolset=toolset, run_dir=folder / "{name}",
                  concurrency={concurrency}, progress=False))
"""


class Notebook:
    """Runs cells in one kernel, one after the other."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self._manager = manager
        self._client = client

    def cell(self, code: str, *, interrupt_at: str | None = None) -> tuple[str, str | None]:
        """Return a cell's output and the name of its error; interrupt it at some output."""
        printed: list[str] = []

        def on_message(message: Any) -> None:
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])
                if interrupt_at is not None and interrupt_at in printed[-1]:
                    self._manager.interrupt_kernel()

        reply = self._client.execute_interactive(code, output_hook=on_message, timeout=300)
        return "".join(printed), reply["content"].get("ename")

    def run(self, name: str, *, model: str = "gold_model", concurrency: int = 4) -> dict[str, Any]:
        """Return the output of a cell that calls replay()."""
        code = RUN.format(model=model, name=name, concurrency=concurrency)
        printed, error = self.cell(code)
        assert error is None, printed
        output: dict[str, Any] = json.loads(printed)
        return output


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    manager, client = start_new_kernel(startup_timeout=300)
    try:
        notebook = Notebook(manager, client)
        assert notebook.cell(SETUP.format(folder=str(tmp_path))) == ("", None)
        yield notebook
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_replay_resumes_after_interrupt_in_one_kernel(notebook: Notebook) -> None:
    plain = notebook.run("plain")
    assert [verdict for _, verdict in plain["verdicts"]] == ["pass"] * 12

    stalled = RUN.format(model="stalling", name="cut", concurrency=1)
    _, error = notebook.cell(stalled, interrupt_at="stalled")
    assert error in {"KeyboardInterrupt", "CancelledError"}

    resumed = notebook.run("cut")
    assert (resumed["kept"], resumed["verdicts"]) == (5, plain["verdicts"])
    assert notebook.run("cut") == {"kept": 12, "verdicts": plain["verdicts"]}

    _, error = notebook.cell(stalled.replace('"cut"', '"twice"'), interrupt_at="stalled")
    assert error in {"KeyboardInterrupt", "CancelledError"}
    silent = notebook.run("silent", model="silent_model()")
    assert notebook.run("fresh")["verdicts"] == plain["verdicts"]
    assert notebook.run("plain") == {"kept": 12, "verdicts": plain["verdicts"]}
    assert notebook.run("silent", model="silent_model()")["verdicts"] == silent["verdicts"]
    assert silent["verdicts"] != plain["verdicts"]
    assert notebook.cell("print(len(asyncio.all_tasks()) < 10)") == ("True\n", None)
