"""What is the same question, and what is another one."""

import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from lhkit.chat.controller import Assistant
from lhkit.harness import fingerprint, manifest
from lhkit.harness.plan import plan_run
from lhkit.harness.resume import Resumption
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario, Turn
from lhkit.locales import load_catalog
from lhkit.models import chat_messages
from lhkit.models.dialects import json, markup, pythonic, turns
from lhkit.models.scripted import ScriptedModel, say
from lhkit.responses import ModelIdentity
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset, WrappedToolset

SCENARIO = Scenario(id="a", ac="x", locale="en", turns=(Turn(user="hi"), Turn(user="and now")))
IDENTITY = ModelIdentity(model="m", server="vllm 1", base_url="http://h:1", dialect="json")


MakeToolset = Callable[..., Toolset]


@pytest.fixture
def toolset(toolset: Toolset) -> MakeToolset:
    """Return a function that changes what the model is told."""

    def told(registry: ToolRegistry | None = None, **changes: Any) -> Toolset:
        return WrappedToolset(
            inner=toolset,
            registry=lambda session, _: registry or session.registry,
            assistant=lambda session, _: replace(session.assistant, **changes),
        )

    return told


def hash_of(
    toolset: Toolset,
    *,
    scenario: Scenario = SCENARIO,
    identity: ModelIdentity = IDENTITY,
) -> str:
    (job,) = plan_run([scenario], ScriptedModel((), identity=identity), toolset, repeats=1).jobs
    return job.content_hash


@pytest.mark.parametrize("name", [each.name for each in fields(Assistant)])
def test_whatever_an_assistant_is_told_makes_another_question(
    toolset: MakeToolset, name: str
) -> None:
    """Also a field that is added one day: here a number counts up, a text gets longer."""
    if name == "deps":
        return  # the world of the scenario
    value = getattr(Assistant(), name)
    match name:
        case "context":
            other: Any = lambda message: f"[{message}]"  # noqa: E731 - a value
        case "sampling":
            other = replace(value, max_tokens=9)
        case _:
            other = f"{value}x" if isinstance(value, str) else value + 1
    assert hash_of(toolset()) != hash_of(toolset(**{name: other}))


def test_a_context_is_what_is_told_in_a_scenario_not_how_it_is_made(
    toolset: MakeToolset,
) -> None:
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
        ("functiongemma", markup, "result_text"),
        ("openai", chat_messages, "result_text"),
    ],
)
def test_other_words_of_a_dialect_make_another_question(
    toolset: MakeToolset,
    monkeypatch: pytest.MonkeyPatch,
    dialect: str,
    module: Any,
    name: str,
) -> None:
    identity = replace(IDENTITY, dialect=dialect)
    before = hash_of(toolset(), identity=identity)
    assert hash_of(toolset(), identity=identity) == before
    words = getattr(module, name)
    other = (
        f"{words} Be quick." if isinstance(words, str) else lambda *_: '{"status":"told otherwise"}'
    )
    monkeypatch.setattr(module, name, other)
    assert hash_of(toolset(), identity=identity) != before


@pytest.mark.parametrize("dialect", ["json", "openai", ""])
def test_the_order_of_tools_and_of_their_words_makes_another_question(
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


def test_weights_are_their_content_and_where_it_is_unknown_their_name(
    toolset: MakeToolset,
) -> None:
    def asked(name: str, sha256: str, port: int = 1) -> str:
        identity = replace(
            IDENTITY, weights=name, weights_sha256=sha256, base_url=f"http://h:{port}"
        )
        return hash_of(toolset(), identity=identity)

    assert asked("tuned", "aa", 1) == asked("renamed", "aa", 2)
    assert asked("tuned", "aa") != asked("tuned", "bb")
    assert asked("tuned", "") != asked("renamed", "")


@pytest.mark.anyio
async def test_a_context_that_fails_spoils_its_own_sample_only(
    toolset: MakeToolset,
) -> None:
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
    assert [str(record.judgement.verdict) for record in run.records] == ["pass", "invalid"]
    assert "KeyError: 'and now'" in run.records[1].judgement.reasons[0]


def changed(
    what: str,
    toolset: MakeToolset,
    registry: ToolRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Toolset, ModelIdentity]:
    """Return toolset and model where one thing is otherwise."""
    told, identity = toolset(), replace(IDENTITY, weights_sha256="a" * 64)
    match what:
        case "weights" | "dtype":
            field, other = {
                "weights": ("weights_sha256", "b" * 64),
                "dtype": ("dtype", "float32"),
            }[what]
            identity = replace(identity, **{field: other})
        case "context":
            told = toolset(context=lambda _message: "[now]")
        case "rendering":
            monkeypatch.setattr(json.JsonDialect, "protocol", "Tools, to be called:")
        case "tools_order":
            told = toolset(ToolRegistry(reversed(registry.definitions)))
        case "assistant":
            told = toolset(max_turns=7)
        case "texts":
            texts: dict[str, str] = load_catalog("en").texts  # type: ignore[assignment]  # it is one
            monkeypatch.setitem(texts, "dispatch.truncated_call", "Again.")
        case "lhkit":
            monkeypatch.setattr(manifest, "version_of", lambda _name: "9.9")
    return told, identity


HASH = "[0-9a-f]{12}"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("what", "where", "before", "after"),
    [
        ("weights", "", "m@a{12}", "m@b{12}"),
        ("dtype", "", "-", "float32"),
        ("context", "", HASH, HASH),
        ("rendering", "en", HASH, HASH),
        ("tools_order", "en", "find_notes, add_note, fin.*", "finish_note, add_note, fin.*"),
        ("assistant", "max_turns", "4", "7"),
        ("texts", "en", HASH, HASH),
        ("lhkit", "", ".*", "9.9"),
    ],
)
async def test_a_run_says_what_of_it_made_its_questions_new(
    toolset: MakeToolset,
    registry: ToolRegistry,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    what: str,
    where: str,
    before: str,
    after: str,
) -> None:
    found: list[Resumption] = []

    async def play(told: Toolset, identity: ModelIdentity) -> None:
        await replay(
            [SCENARIO],
            ScriptedModel(lambda _: say("hi"), identity=identity),
            toolset=told,
            run_dir=tmp_path,
            report=found.append,
            progress=False,
        )

    await play(*changed("nothing", toolset, registry, monkeypatch))
    await play(*changed("nothing", toolset, registry, monkeypatch))
    await play(*changed(what, toolset, registry, monkeypatch))
    assert [(each.new, each.kept, each.changed) for each in found] == [
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
    ]
    (change,) = found[-1].changes
    assert (change.what, change.where) == (what, where)
    assert re.fullmatch(before, change.before)
    assert re.fullmatch(after, change.after)


def test_no_field_that_is_left_out_is_misspelt() -> None:
    left_out = set(fingerprint._ELSEWHERE)
    assert left_out <= {each.name for each in fields(Assistant)}
