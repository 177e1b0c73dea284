"""Planning, content hashes and the clock of a run."""

import re
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from lhkit import app
from lhkit.base.locales import load_catalog
from lhkit.chat.assistant import Assistant
from lhkit.conversation.responses import ModelIdentity, Sampling
from lhkit.conversation.tool_results import ToolOk
from lhkit.harness.records import manifest
from lhkit.harness.records.resume import Resumption
from lhkit.harness.results.results import Run
from lhkit.harness.running import plan
from lhkit.harness.running.plan import plan_run, run_clock
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.scenario import Scenario, Turn
from lhkit.lifehelper import toolset as life_helper
from lhkit.models.client import request
from lhkit.models.dialects import json, native_prompt, pythonic, turns
from lhkit.models.recorded.cassette import CassetteModel, RecordingModel
from lhkit.models.recorded.scripted import ScriptedModel, say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset, WrappedToolset
from tests.harness.build import SteppingClock

pytestmark = pytest.mark.anyio

SCENARIO = Scenario(id="a", ac="x", locale="en", turns=(Turn(user="hi"), Turn(user="and now")))
IDENTITY = ModelIdentity(model="m", server="vllm 1", base_url="http://h:1", dialect="json")


MakeToolset = Callable[..., Toolset]


@pytest.fixture
def toolset(toolset: Toolset) -> MakeToolset:
    """Return a factory of toolsets with another registry or assistant."""

    def create(registry: ToolRegistry | None = None, **changes: Any) -> Toolset:
        return WrappedToolset(
            inner=toolset,
            registry=lambda session, _: registry or session.registry,
            assistant=lambda session, _: replace(session.assistant, **changes),
        )

    return create


def hash_of(
    toolset: Toolset, *, scenario: Scenario = SCENARIO, identity: ModelIdentity = IDENTITY
) -> str:
    (sample,) = plan_run(
        [scenario], ScriptedModel((), identity=identity), toolset, repeats=1
    ).samples()
    return sample.content_hash


@pytest.mark.parametrize("name", [each.name for each in fields(Assistant)])
def test_content_hash_covers_fields_of_assistant(toolset: MakeToolset, name: str) -> None:
    """Also a field that is added one day: here a number counts up, a text gets longer."""
    if name in {"deps", "history"}:
        return  # they follow from the scenario
    value = getattr(Assistant(), name)
    match name:
        case "context":
            other: Any = lambda message: f"[{message}]"  # noqa: E731 - a value
        case "sampling":
            other = replace(value, max_tokens=9)
        case "result_format":
            other = "plain"
        case _:
            other = f"{value}x" if isinstance(value, str) else value + 1
    assert hash_of(toolset()) != hash_of(toolset(**{name: other}))


def test_content_hash_covers_context_lines_only(toolset: MakeToolset) -> None:
    def one(message: str) -> str:
        return "[now]" if message == "and now" else ""

    other = {"hi": "", "and now": "[now]"}.__getitem__
    assert hash_of(toolset(context=one)) == hash_of(toolset(context=other))
    short = SCENARIO.model_copy(update={"turns": SCENARIO.turns[:1]})
    assert hash_of(toolset(context=one), scenario=short) == hash_of(toolset(), scenario=short)


@pytest.mark.parametrize(
    ("dialect", "module", "name"),
    [
        ("json", json.JsonDialect, "protocol"),
        ("pythonic", pythonic.PythonicDialect, "protocol"),
        ("json", turns, "result_text"),
        ("functiongemma", native_prompt, "result_text"),
        ("openai", request, "result_text"),
    ],
)
def test_content_hash_covers_rendering_of_dialect(
    toolset: MakeToolset, monkeypatch: pytest.MonkeyPatch, dialect: str, module: Any, name: str
) -> None:
    identity = replace(IDENTITY, dialect=dialect)
    before = hash_of(toolset(), identity=identity)
    assert hash_of(toolset(), identity=identity) == before
    words = getattr(module, name)
    other = f"{words} Be quick." if isinstance(words, str) else lambda *_: '{"status":"other"}'
    monkeypatch.setattr(module, name, other)
    assert hash_of(toolset(), identity=identity) != before


@pytest.mark.parametrize("dialect", ["json", "openai", ""])
def test_content_hash_covers_order_of_tools_and_keys(
    toolset: MakeToolset, registry: ToolRegistry, dialect: str
) -> None:
    identity = replace(IDENTITY, dialect=dialect)
    first, *rest = registry.definitions
    turned = replace(first, parameters=dict(reversed(first.parameters.items())))
    asked = {
        hash_of(toolset(each), identity=identity)
        for each in (registry, ToolRegistry([*rest, first]), ToolRegistry([turned, *rest]))
    }
    assert len(asked) == 3


def test_content_hash_covers_weights_by_hash_or_name(toolset: MakeToolset) -> None:
    def hash_with(name: str, sha256: str, port: int = 1) -> str:
        identity = replace(
            IDENTITY, weights=name, weights_sha256=sha256, base_url=f"http://h:{port}"
        )
        return hash_of(toolset(), identity=identity)

    assert hash_with("tuned", "aa", 1) == hash_with("renamed", "aa", 2)
    assert hash_with("tuned", "aa") != hash_with("tuned", "bb")
    assert hash_with("tuned", "") != hash_with("renamed", "")


async def test_failing_context_makes_only_its_sample_invalid(toolset: MakeToolset) -> None:
    def context(message: str) -> str:
        return {"hi": "[now]"}[message]

    scenarios = [
        SCENARIO.model_copy(update={"turns": SCENARIO.turns[:1]}),
        SCENARIO.model_copy(update={"id": "b"}),
    ]
    run = await replay(
        scenarios,
        ScriptedModel(lambda _: say("hi")),
        toolset=toolset(context=context),
        progress=False,
    )
    assert [str(record.score.verdict) for record in run.records] == ["pass", "invalid"]
    assert "KeyError: 'and now'" in run.records[1].score.reasons[0]


def changed(
    what: str, toolset: MakeToolset, registry: ToolRegistry, monkeypatch: pytest.MonkeyPatch
) -> tuple[Toolset, ModelIdentity]:
    """Return toolset and model where one thing is otherwise."""
    variant, identity = toolset(), replace(IDENTITY, weights_sha256="a" * 64)
    match what:
        case "weights" | "dtype":
            other = {"weights": {"weights_sha256": "b" * 64}, "dtype": {"dtype": "float32"}}
            identity = replace(identity, **other[what])
        case "context":
            variant = toolset(context=lambda _message: "[now]")
        case "rendering":
            monkeypatch.setattr(json.JsonDialect, "protocol", "Tools, to be called:")
        case "tools_order":
            variant = toolset(ToolRegistry(reversed(registry.definitions)))
        case "assistant":
            variant = toolset(max_turns=7)
        case "sampling":
            variant = toolset(sampling=Sampling(max_tokens=9))
        case "texts":
            texts: dict[str, str] = load_catalog("en").texts  # type: ignore[assignment]  # it is one
            monkeypatch.setitem(texts, "dispatch.truncated_call", "Again.")
        case "lhkit":
            monkeypatch.setattr(manifest, "installed_version", lambda _name: "9.9")
    return variant, identity


HASH = "[0-9a-f]{12}"


@pytest.mark.parametrize(
    ("what", "where", "before", "after"),
    [
        ("weights", "", "m@a{12}", "m@b{12}"),
        ("dtype", "", "-", "float32"),
        ("context", "", HASH, HASH),
        ("rendering", "en", HASH, HASH),
        ("tools_order", "en", "find_notes, add_note, fin.*", "finish_note, add_note, fin.*"),
        ("assistant", "max_turns", "4", "7"),
        ("sampling", "max_tokens", "256", "9"),
        ("texts", "en", HASH, HASH),
        ("lhkit", "", ".*", "9.9"),
    ],
)
async def test_resumption_names_change_of_content_hashes(
    toolset: MakeToolset,
    registry: ToolRegistry,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    what: str,
    where: str,
    before: str,
    after: str,
) -> None:
    resumptions: list[Resumption] = []

    async def play(variant: Toolset, identity: ModelIdentity) -> None:
        await replay(
            [SCENARIO],
            ScriptedModel(lambda _: say("hi"), identity=identity),
            toolset=variant,
            run_dir=tmp_path,
            on_resume=resumptions.append,
            progress=False,
        )

    await play(*changed("nothing", toolset, registry, monkeypatch))
    await play(*changed("nothing", toolset, registry, monkeypatch))
    await play(*changed(what, toolset, registry, monkeypatch))
    assert [(each.new, each.kept, each.changed) for each in resumptions] == [
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
    ]
    (change,) = resumptions[-1].changes
    assert (change.what, change.where) == (what, where)
    assert re.fullmatch(before, change.before)
    assert re.fullmatch(after, change.after)


@pytest.mark.longer
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
    spent = [[turn.duration_s for r in run.records for turn in r.trajectory.turns] for run in runs]
    assert min(spent[0]) >= 14.0
    assert spent[0] == spent[1]
    assert [record.harness_s for record in runs[0].records] == [0.0, 0.0]


@pytest.mark.longer
async def test_run_clock_is_machine_time_for_concurrent_or_other_models(tmp_path: Path) -> None:
    path = tmp_path / "cassette.json"
    recorder = RecordingModel(ScriptedModel([say("네")]), path)
    scenarios = app.shipped_scenarios("ac12-small-talk-ko-01")
    await replay(scenarios, recorder, toolset=life_helper.LifeHelperToolset(), progress=False)
    cassette = CassetteModel.open(path)
    assert run_clock(cassette, concurrency=2) is time.perf_counter
    assert run_clock(recorder, concurrency=1) is time.perf_counter


TOOLS = """
import lhkit

tools = lhkit.ToolRegistry()


@tools.tool()
def look() -> dict:
    "Look."
    return {"seen": 1}
"""


async def test_replay_runs_again_when_the_tools_code_changed(tmp_path: Path) -> None:
    file, folder = tmp_path / "looking.py", tmp_path / "run"
    scenario = Scenario(id="s", ac="AC-1", locale="en", turns=(Turn(user="hi"),))
    resumptions: list[Resumption] = []

    async def play(text: str) -> None:
        file.write_text(text, encoding="utf-8")
        await replay(
            [scenario],
            ScriptedModel(lambda _: say("hi")),
            toolset=f"{file}:tools",
            run_dir=folder,
            on_resume=resumptions.append,
            progress=False,
        )

    await play(TOOLS)
    await play(TOOLS)
    await play(TOOLS.replace("1", "2"))
    await play(TOOLS)
    counts = [(each.new, each.kept, each.changed) for each in resumptions]
    assert counts == [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 0)]
    assert [change.what for change in resumptions[2].changes] == ["code"]
    assert not any(each.is_code_unknown for each in resumptions)


async def test_replay_keeps_records_whose_code_is_unknown_and_says_so(
    tmp_path: Path, toolset: MakeToolset, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumptions: list[Resumption] = []

    async def play() -> Run:
        return await replay(
            [SCENARIO],
            ScriptedModel(lambda _: say("hi")),
            toolset=toolset(),
            run_dir=tmp_path,
            on_resume=resumptions.append,
            progress=False,
        )

    with monkeypatch.context() as earlier:
        earlier.setattr(plan, "source_sha256", lambda _toolset: "")  # an earlier version of lhkit
        first = await play()
    assert "code_sha256" not in first.manifest.plain()
    for _ in range(2):
        again = await play()
        assert again.records == first.records
        assert (again.kept, resumptions[-1].is_code_unknown) == (1, True)
        (remark,) = again.manifest.invocations[-1].remarks
        assert remark.startswith("1 sample was kept although the tools' code cannot be compared")


def test_plan_names_parameters_that_a_template_leaves_out_once(
    toolset: MakeToolset, caplog: pytest.LogCaptureFixture
) -> None:
    identity = replace(IDENTITY, dialect="functiongemma")
    properties = {"type": {"type": "string"}, "n": {"type": "integer"}}
    schema = {"type": "object", "properties": properties}
    scenarios = [SCENARIO, SCENARIO.model_copy(update={"id": "b"})]
    definition = ToolDefinition(
        name="f", description="F.", parameters=schema, handler=lambda _args, _deps: ToolOk({})
    )
    tools = toolset(registry=ToolRegistry([definition]))
    plan_run(scenarios, ScriptedModel((), identity=identity), tools, repeats=1).samples()
    [line] = [line for line in caplog.messages if "does not declare" in line]
    assert "functiongemma does not declare type" in line
