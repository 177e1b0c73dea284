"""What is the same question, and what is another one."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from lhkit.chat.controller import Assistant
from lhkit.harness.records import manifest
from lhkit.harness.records.questions import Resumption
from lhkit.harness.replay import plan
from lhkit.harness.replay.environment import Environment, SessionAround
from lhkit.harness.replay.plan import plan_run, scenario_hash
from lhkit.harness.replay.runner import replay
from lhkit.harness.scenarios.script import Scenario, Turn
from lhkit.locales import load_catalog
from lhkit.models import openai_messages
from lhkit.models.dialects import json_dialect, marked_turns, pythonic
from lhkit.models.scripted import ScriptedModel, say
from lhkit.tools.registry import ToolRegistry
from lhkit.vocab.generation import ModelIdentity

SCENARIO = Scenario(id="a", ac="x", locale="en", turns=(Turn(user="hi"), Turn(user="and now")))
IDENTITY = ModelIdentity(model="m", server="vllm 1", base_url="http://h:1", dialect="json")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session(SessionAround):
    registry: ToolRegistry
    assistant: Assistant


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An environment around another, with changes to what the model is told."""

    inner: Environment
    changes: Mapping[str, Any]
    registry: ToolRegistry | None = None

    def open(self, world: Mapping[str, Any], locale: str) -> _Session:
        session = self.inner.open(world, locale)
        return _Session(
            inner=session,
            registry=self.registry or session.registry,
            assistant=replace(session.assistant, **self.changes),
        )


@pytest.fixture
def environment(environment: Environment) -> Callable[..., Told]:
    def told(registry: ToolRegistry | None = None, **changes: Any) -> Told:
        return Told(inner=environment, changes=changes, registry=registry)

    return told


def hash_of(
    environment: Environment,
    *,
    scenario: Scenario = SCENARIO,
    identity: ModelIdentity = IDENTITY,
) -> str:
    (job,) = plan_run([scenario], ScriptedModel((), identity=identity), environment, repeats=1).jobs
    return job.content_hash


def test_a_field_that_a_scenario_does_not_use_leaves_its_old_runs_good() -> None:
    before_gone = "1da9e2c2e102cac4a8f4a13c7d5bfc40898013fa862ec5bb2c459868b1ddd1fb"
    plain = Scenario(id="a", ac="x", turns=(Turn(user="hi"),))
    assert scenario_hash(plain) == before_gone
    assert scenario_hash(replace(plain, gone={"notes": ({"id": "n1"},)})) != before_gone


@pytest.mark.promise("eval.questions")
@pytest.mark.parametrize("name", [each.name for each in fields(Assistant)])
def test_whatever_an_assistant_is_told_makes_another_question(
    environment: Callable[..., Told], name: str
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
    assert hash_of(environment()) != hash_of(environment(**{name: other}))


def test_a_context_is_what_is_told_in_a_scenario_not_how_it_is_made(
    environment: Callable[..., Told],
) -> None:
    def one(message: str) -> str:
        return "[now]" if message == "and now" else ""

    other = {"hi": "", "and now": "[now]"}.__getitem__
    assert hash_of(environment(context=one)) == hash_of(environment(context=other))
    short = replace(SCENARIO, turns=SCENARIO.turns[:1])
    assert hash_of(environment(context=one), scenario=short) == hash_of(
        environment(), scenario=short
    )


@pytest.mark.promise("eval.questions")
@pytest.mark.parametrize(
    ("dialect", "module", "name"),
    [
        ("json", json_dialect, "_PROTOCOL"),
        ("pythonic", pythonic, "_PROTOCOL"),
        ("json", json_dialect, "_result_line"),
        ("functiongemma", marked_turns, "result_text"),
        ("openai", openai_messages, "result_text"),
    ],
)
def test_other_words_of_a_dialect_make_another_question(
    environment: Callable[..., Told],
    monkeypatch: pytest.MonkeyPatch,
    dialect: str,
    module: Any,
    name: str,
) -> None:
    identity = replace(IDENTITY, dialect=dialect)
    before = hash_of(environment(), identity=identity)
    assert hash_of(environment(), identity=identity) == before
    words = getattr(module, name)
    other = (
        f"{words} Be quick." if isinstance(words, str) else lambda *_: '{"status":"told otherwise"}'
    )
    monkeypatch.setattr(module, name, other)
    assert hash_of(environment(), identity=identity) != before


@pytest.mark.parametrize("dialect", ["json", "openai", ""])
def test_the_order_of_tools_and_of_their_words_makes_another_question(
    environment: Callable[..., Told], registry: ToolRegistry, dialect: str
) -> None:
    identity = replace(IDENTITY, dialect=dialect)
    first, *rest = registry.definitions
    turned = replace(first, parameters=dict(reversed(first.parameters.items())))
    asked = {
        hash_of(environment(each), identity=identity)
        for each in (registry, ToolRegistry([*rest, first]), ToolRegistry([turned, *rest]))
    }
    assert len(asked) == 3


def test_weights_are_their_content_and_where_it_is_unknown_their_name(
    environment: Callable[..., Told],
) -> None:
    def asked(name: str, sha256: str, port: int = 1) -> str:
        identity = replace(
            IDENTITY, weights=name, weights_sha256=sha256, base_url=f"http://h:{port}"
        )
        return hash_of(environment(), identity=identity)

    assert asked("tuned", "aa", 1) == asked("renamed", "aa", 2)
    assert asked("tuned", "aa") != asked("tuned", "bb")
    assert asked("tuned", "") != asked("renamed", "")


@pytest.mark.anyio
async def test_a_context_that_fails_spoils_its_own_sample_only(
    environment: Callable[..., Told],
) -> None:
    def context(message: str) -> str:
        return {"hi": "[now]"}[message]

    scenarios = [replace(SCENARIO, turns=SCENARIO.turns[:1]), replace(SCENARIO, id="b")]
    run = await replay(
        scenarios,
        ScriptedModel(lambda _: say("hi")),
        environment=environment(context=context),
        progress=False,
    )
    assert [str(record.verdict) for record in run.records] == ["pass", "invalid"]
    assert "KeyError: 'and now'" in run.records[1].reasons[0]


def changed(
    what: str,
    environment: Callable[..., Told],
    registry: ToolRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Told, ModelIdentity]:
    """Return environment and model where one thing is otherwise."""
    told, identity = environment(), replace(IDENTITY, weights_sha256="a" * 64)
    match what:
        case "weights":
            identity = replace(IDENTITY, weights_sha256="b" * 64)
        case "context":
            told = environment(context=lambda _message: "[now]")
        case "rendering":
            monkeypatch.setattr(json_dialect, "_PROTOCOL", "Tools, to be called:")
        case "tools_order":
            told = environment(ToolRegistry(reversed(registry.definitions)))
        case "assistant":
            told = environment(max_turns=7)
        case "texts":
            texts: dict[str, str] = load_catalog("en").texts  # type: ignore[assignment]  # it is one
            monkeypatch.setitem(texts, "dispatch.truncated_call", "Again.")
        case "lhkit":
            monkeypatch.setattr(manifest, "_version", lambda _name: "9.9")
    return told, identity


HASH = "[0-9a-f]{12}"


@pytest.mark.anyio
@pytest.mark.promise("eval.questions")
@pytest.mark.parametrize(
    ("what", "where", "before", "after"),
    [
        ("weights", "", "m@a{12}", "m@b{12}"),
        ("context", "", HASH, HASH),
        ("rendering", "en", HASH, HASH),
        ("tools_order", "en", "find_notes, add_note, fin.*", "finish_note, add_note, fin.*"),
        ("assistant", "max_turns", "4", "7"),
        ("texts", "en", HASH, HASH),
        ("lhkit", "", ".*", "9.9"),
    ],
)
async def test_a_run_says_what_of_it_made_its_questions_new(  # noqa: PLR0917 - one table
    environment: Callable[..., Told],
    registry: ToolRegistry,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    what: str,
    where: str,
    before: str,
    after: str,
) -> None:
    found: list[Resumption] = []

    async def play(told: Told, identity: ModelIdentity) -> None:
        await replay(
            [SCENARIO],
            ScriptedModel(lambda _: say("hi"), identity=identity),
            environment=told,
            run_dir=tmp_path,
            report=found.append,
            progress=False,
        )

    await play(*changed("nothing", environment, registry, monkeypatch))
    await play(*changed("nothing", environment, registry, monkeypatch))
    await play(*changed(what, environment, registry, monkeypatch))
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
    left_out = set(plan._ELSEWHERE)  # noqa: SLF001 - the exceptions that are named
    assert left_out <= {each.name for each in fields(Assistant)}
