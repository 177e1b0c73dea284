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
from lhkit.models.recorded.scripted import ScriptedModel, say
from lhkit.settings import Settings
from lhkit.testing import echo_tool
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareToolset

SCENARIO = Scenario.model_validate({"id": "x", "locale": "en", "turns": [{"user": "hi"}]})


def served_by(server: str) -> OpenedModel:
    identity = ModelIdentity(model="gemma", server=server)
    return OpenedModel(source=ScriptedModel([say("hi")], identity=identity))


@pytest.mark.parametrize(
    ("server", "cores", "options", "default", "is_said"),
    [
        ("llama.cpp b1", 2, {}, 1, True),
        ("llama.cpp b1", FEW_CORES - 1, {}, 1, True),
        ("llama.cpp b1", FEW_CORES, {}, 8, False),
        ("llama.cpp b1", 2, {"concurrency": 4}, 1, False),
        ("llama.cpp b1", 2, {"base_url": "http://127.0.0.1:1"}, 8, False),
        ("vllm 0.32.0", 2, {}, 16, False),
    ],
)
def test_embedded_model_on_few_cores_runs_one_conversation_at_a_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    cores: int,
    options: dict[str, Any],
    default: int,
    is_said: bool,
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
    for locale, words in (("en", "One conversation at a time"), ("ko", "한 번에 하나씩")):
        lines = list(prepared.concurrency_lines(opened, load_catalog(locale)))
        assert [words in line and f"{cores}" in line for line in lines] == [True] * is_said
