"""How many conversations `lhkit eval` runs at once if nobody says."""

from pathlib import Path
from typing import Any

import pytest

from lhkit.base.locales import load_catalog
from lhkit.cli.eval import evaluation as module
from lhkit.cli.eval.evaluation import FEW_CORES, OpenedModel, prepare_evaluation
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.running.prepared import choose_scenarios
from lhkit.harness.running.run_options import RunOptions
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.client.capacity import Capacity, default_capacity
from lhkit.models.recorded.scripted import ScriptedModel, say
from lhkit.settings import Settings
from lhkit.testing import echo_tool
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareToolset

SCENARIO = Scenario.model_validate({"id": "x", "locale": "en", "turns": [{"user": "hi"}]})


URL = "http://127.0.0.1:1"
ALONE = ("One conversation at a time", "한 번에 하나씩")
ASKED = {
    "card": Capacity(conversations=256, source="batch"),
    "cache": Capacity(conversations=56, source="cache", cache_tokens=466_000),
}


def served_by(server: str) -> OpenedModel:
    identity = ModelIdentity(model="gemma", server="vllm 0.25.1" if server in ASKED else server)
    source = ScriptedModel([say("hi")], identity=identity)
    if server in {"gold", "recorded"}:  # no server is asked
        return OpenedModel(source=source)
    return OpenedModel(source=source, asked=ASKED.get(server, default_capacity(identity)))


@pytest.mark.parametrize(
    ("server", "cores", "options", "default", "reason", "words"),
    [
        ("llama.cpp b1", 2, {}, 1, "few_cores", ALONE),
        ("llama.cpp b1", FEW_CORES - 1, {}, 1, "few_cores", ALONE),
        ("llama.cpp b1", FEW_CORES, {}, 8, "unknown", ("8 conversations at once", "대화 8개를")),
        ("llama.cpp b1", 2, {"concurrency": 4}, 1, "asked", ()),
        ("llama.cpp b1", 2, {"base_url": URL}, 8, "unknown", ("does not report", "알려 주지 않아")),
        ("vllm 0.32.0", 2, {}, 16, "vllm", ("16 conversations at once", "대화 16개를")),
        ("card", 2, {}, 256, "batch", ("the batch size of the server", "배치 크기에 맞춰")),
        ("cache", 2, {"base_url": URL}, 56, "cache", ("466,000 tokens", "466,000개")),
        ("gold", 2, {"model": "gold"}, 8, "", ()),
        ("recorded", 2, {}, 8, "", ()),
    ],
)
def test_default_concurrency_by_server_and_cores(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    cores: int,
    options: dict[str, Any],
    default: int,
    reason: str,
    words: tuple[str, ...],
) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: cores)
    run_options = RunOptions(**options)
    toolset = BareToolset(registry=ToolRegistry([echo_tool("echo")]))
    prepared = prepare_evaluation(
        run_options,
        choose_scenarios([SCENARIO], run_options),
        toolset,
        folder=tmp_path,
        settings=Settings(),
        placement=None,
    )
    opened = served_by(server)
    assert prepared.default_concurrency(opened, cores) == default
    assert prepared.concurrency_reason(opened, cores) == reason
    for locale, text in zip(("en", "ko"), words or ("", ""), strict=True):
        lines = list(prepared.concurrency_lines(opened, load_catalog(locale)))
        assert [text in line for line in lines] == [True] * bool(words)
