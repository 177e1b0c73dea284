"""The one model of a run's options, and who reads it: `replay`, the command line and suites."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from lhkit.base.errors import UsageError
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.matrix import MatrixOptions
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.running.prepared import choose_scenarios, prepare_run
from lhkit.harness.running.run import replay
from lhkit.harness.running.run_options import RunOptions, RunOverrides
from lhkit.harness.running.suite import Suite, expand_arms, load_suite
from lhkit.harness.scenarios.scenario_filter import ScenarioFilter
from lhkit.models.base import ModelRequest
from lhkit.models.recorded.scripted import Reply, ScriptedModel, say
from lhkit.toolset import Session
from tests.harness.build import Load, Play
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

OPENS = {
    "model",
    "base_url",
    "chat_template",
    "dialect",
    "constraint",
    "dtype",
    "runtime",
    "toolset",
}
"""Options that say how to open the model and the toolset, which `replay` is given."""

NOT_OFFERED = {"instructions", "tool_descriptions"}
"""Options of a run that the command line does not have."""

CHATS = """
- id: ko-1
  ac: AC-1
  locale: ko
  tags: [plain]
  turns: [{user: 안녕, variants: [안녕하세요], expect: {calls: []}}]
- id: en-1
  ac: AC-2
  locale: en
  tags: [hard]
  turns: [{user: hello, expect: {calls: []}}]
"""


def overridable() -> set[str]:
    return RunOptions.model_fields.keys() - OPENS


def test_every_option_is_a_typed_keyword_of_replay() -> None:
    assert RunOverrides.__annotations__.keys() == overridable()


def test_signature_of_replay_lists_every_option_with_its_default() -> None:
    shown = inspect.signature(replay).parameters
    assert {name: shown[name].default for name in overridable()} == {
        name: getattr(RunOptions(), name) for name in overridable()
    }


def test_every_option_has_a_help_text() -> None:
    hidden = RunOptions.model_fields.keys() - EvalOptions.shown.keys()
    assert hidden == NOT_OFFERED | ScenarioFilter.model_fields.keys()
    assert MatrixOptions.shown.keys() == ScenarioFilter.model_fields.keys()
    assert EvalOptions.shown.keys() <= RunOptions.model_fields.keys()


@pytest.mark.longer
def test_options_load_neither_store_nor_scenarios() -> None:
    code = (
        "import sys, lhkit.harness.running.run_options\n"
        "loaded = {name.rpartition('.')[2] for name in sys.modules if name.startswith('lhkit')}\n"
        "print(*loaded & {'store', 'record', 'scenario', 'manifest', 'dialects', 'confirm'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


SAID = ScriptedModel(lambda _: say("hi"), identity=ModelIdentity(model="m", base_url="http://a:1"))


@pytest.mark.parametrize(
    "options",
    [
        {"repeats": 2},
        {"variants": True, "concurrency": 2},
        {"tag": ("hard",)},
        {"only": ("ko-*",), "variants": True, "keep_prompts": True},
        {"sample": 1, "seed": 3, "keep_states": True},
        {"stress": "distractors=2,shuffle,seed=1"},
        {"instructions": {"ko": "짧게 답해."}},
        {"tool_descriptions": {"add_note": "적기", "add_note.text": {"en": "what"}}},
        {"max_tokens": 7, "user": "careful"},
    ],
    ids="-".join,
)
async def test_options_and_keywords_of_replay_run_the_same(
    play: Play, load: Load, options: dict[str, Any]
) -> None:
    scenarios = load(CHATS)
    given = await play(scenarios, SAID, options=RunOptions(**options), clock=lambda: 0.0)
    typed = await play(scenarios, SAID, **options, clock=lambda: 0.0)
    assert given.records == typed.records
    assert given.manifest.content_hashes == typed.manifest.content_hashes
    assert given.manifest.selection == typed.manifest.selection


async def test_keyword_replaces_the_option(play: Play, load: Load) -> None:
    options = RunOptions(repeats=3, tag=("hard",))
    run = await play(load(CHATS), SAID, options=options, repeats=2)
    assert [str(record.sample_id) for record in run.records] == ["en-1", "en-1#2"]
    assert options.repeats == 3


@pytest.mark.parametrize("name", ["repeat", "dialect", "base_url", "runtime"])
async def test_replay_refuses_a_keyword_that_it_does_not_read(
    play: Play, load: Load, name: str
) -> None:
    with pytest.raises(TypeError, match=rf"replay\(\) got an unexpected .*'{name}'"):
        await play(load(CHATS), SAID, **{name: "x"})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"repeats": 0}, "repeats=0: give at least 1"),
        ({"max_tokens": 0}, "max_tokens=0: give at least 1"),
        ({"user": "nobody"}, "Invalid user 'nobody': choose one of script, careful, hasty"),
        ({"stress": "noise"}, "--stress is invalid: unknown part 'noise'"),
        ({"tag": "soft"}, "--tag soft fits no scenario's tag"),
    ],
)
async def test_replay_refuses_values(
    play: Play, load: Load, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        await play(load(CHATS), SAID, **options)


async def test_conditions_reach_the_model(play: Play, load: Load) -> None:
    seen: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Reply:
        seen.append(request)
        return say("hi")

    conditions = RunOptions(
        max_tokens=7, instructions={"ko": "짧게 답해."}, stress="distractors=2", locale=("ko",)
    )
    run = await play(load(CHATS), ScriptedModel(answer), options=conditions)
    (request,) = seen
    assert request.sampling.max_tokens == 7
    assert request.instructions == "짧게 답해."
    assert "get_weather" in [tool.name for tool in request.tools]
    (model,) = run.manifest.models
    assert model["stress"] == "distractors=2"


async def test_replay_takes_a_suite_as_options(play: Play, load: Load) -> None:
    run = await play(load(CHATS), SAID, options=Suite(repeats=2, limit=1))
    assert len(run.records) == 2


class Counting:
    """A toolset that counts how often it was opened."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.opened = 0

    def open(self, world: Any, locale: str) -> Session:
        self.opened += 1
        session: Session = self.inner.open(world, locale)
        return session


@pytest.mark.parametrize("stress", ["", "shuffle"])
async def test_plan_is_made_once_for_a_model_at_any_address(
    load: Load, toolset: Any, stress: str
) -> None:
    counting = Counting(toolset)
    options = RunOptions(stress=stress, repeats=2)
    prepared = prepare_run(choose_scenarios(load(CHATS), options), counting, options)

    def served(**identity: str) -> ScriptedModel:
        return ScriptedModel((), identity=ModelIdentity(**identity))

    first = prepared.plan(served(model="m", base_url=""))
    opened = counting.opened
    second = prepared.plan(served(model="m", base_url="http://a:2"))
    assert (counting.opened, opened) == (opened, 2)
    assert dict(first.hashes) == dict(second.hashes)
    assert [model["base_url"] for model in second.manifest.models] == ["http://a:2"]
    assert [model["stress"] for model in second.manifest.models] == [stress]
    retrained = prepared.plan(served(model="m", weights_sha256="0" * 64))
    assert counting.opened == 2 * opened
    assert dict(retrained.hashes) != dict(first.hashes)


async def test_plan_asks_a_factory_for_each_scenario(load: Load, toolset: Any) -> None:
    options = RunOptions()
    prepared = prepare_run(choose_scenarios(load(CHATS), options), toolset, options)
    assert prepared.plan(gold_model) == prepared.plan(gold_model)


def suite_of(folder: Path, text: str) -> Suite:
    path = folder / "suite.toml"
    path.write_text(text, encoding="utf-8")
    return load_suite(path)


@check_rows(
    ("text", "expected"),
    [
        ('dialect = "pythonic"', {"model": "gemma", "dialect": "pythonic"}),
        ('model = "silent"\nstress = "shuffle"', {"model": "silent", "stress": "shuffle"}),
        ('constraint = "auto"\ndtype = "float32"', {"constraint": "auto", "dtype": "float32"}),
        ('runtime = "llama.cpp"\nmax_tokens = 9', {"runtime": "llama.cpp", "max_tokens": 9}),
        ('instructions = {ko = "짧게."}', {"instructions": {"ko": "짧게."}}),
        (
            'tool_descriptions = {a = "b", c = "d"}\narms.descriptions = ["x"]\n'
            'descriptions.x = {a = "e", "a.f" = {ko = "g"}}',
            {"tool_descriptions": {"a": "e", "c": "d", "a.f": {"ko": "g"}}},
        ),
        ('dialect = "pythonic"\narms.dialects = ["json"]', {"dialect": "json"}),
        ('user = "hasty"\narms.users = ["careful"]', {"user": "careful"}),
    ],
)
def test_suite_takes_every_option_and_an_axis_varies_it(
    tmp_path: Path, text: str, expected: dict[str, Any]
) -> None:
    (arm,) = expand_arms(suite_of(tmp_path, text), tmp_path)
    assert type(arm.options) is RunOptions
    assert {name: getattr(arm.options, name) for name in expected} == expected


def test_every_option_is_valid_in_a_suite() -> None:
    assert TypeAdapter(Suite).json_schema()["properties"].keys() >= RunOptions.model_fields.keys()
