"""`--environment`: from a reference to what scenarios are played in; its faults as sentences."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lhkit.app import LifeHelperEnvironment, ModelChoice
from lhkit.commands import sources
from lhkit.commands.environments import label_of, load_environment, registry_of
from lhkit.commands.evaluate import EvalOptions, evaluate
from lhkit.commands.lint import lint_paths
from lhkit.commands.mutate import MutateOptions, mutate_paths
from lhkit.commands.rescore import rescore_run
from lhkit.errors import UsageError
from lhkit.harness.replay.environment import KnowsIds, KnowsRules
from lhkit.harness.results.run import Run
from lhkit.models.base import ChatModel
from lhkit.models.scripted import ScriptedModel, say
from lhkit.settings import Settings, load_settings

pytestmark = pytest.mark.anyio

NOTES = '''\
from dataclasses import dataclass
from datetime import date
from typing import Annotated

from pydantic import Field

from lhkit import Assistant, Sampling, ToolOk, ToolRegistry

registry = ToolRegistry()
closed = []


@registry.tool()
def read_notes(deps) -> dict:
    """Read the notes."""
    return {"notes": deps}


@dataclass(frozen=True)
class Session:
    assistant: Assistant
    notes: list
    today: date = date(2026, 1, 1)

    @property
    def registry(self):
        return registry

    def state(self):
        return {"notes": []}

    def close(self):
        closed.append(self)


class Environment:
    def open(self, world, locale):
        notes = [row["text"] for row in world["notes"]]
        sampling = Sampling(max_tokens=7, temperature=0.5)
        return Session(Assistant(deps=notes, sampling=sampling), notes)


def made():
    return Environment()


def broken():
    return {}["nothing"]


class Half:
    def open(self, world, locale):
        return object()


class Ruled(Session):
    def known_ids(self):
        return {"note_id": ("a",)}

    def broken_rules(self, before, after):
        return [("r1_note", "told")]


class RuledEnvironment:
    def open(self, world, locale):
        return Ruled(Assistant(), [])


class Unpromised(Session):
    @property
    def registry(self):
        own = ToolRegistry()

        @own.tool()
        def read_notes(tag: Annotated[str, Field(json_schema_extra={"not": {}})], deps) -> dict:
            """Read the notes."""
            return {}

        return own


class UnpromisedEnvironment:
    def open(self, world, locale):
        return Unpromised(Assistant(), [])


class UnpromisedInKorean:
    def open(self, world, locale):
        return (UnpromisedEnvironment if locale == "ko" else Environment)().open(world, locale)


environment = Environment()
unpromised = UnpromisedEnvironment()
unpromised_in_korean = UnpromisedInKorean()
half = Half()
number = 3
'''
WORLD = {"notes": [{"text": "buy milk"}]}
SCENARIO = """\
- id: notes-01
  ac: AC-1
  locale: en
  world: {notes: [{text: buy milk}]}
  turns:
    - user: "What did I write down?"
      expect: {calls: [{tool: read_notes}]}
      reply: {contains_any: [milk]}
"""


@pytest.fixture(autouse=True)
def _same_modules() -> Iterator[None]:
    """Forget what the environments of a test brought with them."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - modules:
        if name.startswith(("lhkit_environment_", "own_")):
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def settings() -> Settings:
    return load_settings().model_copy(update={"locale": "en"})


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    file = tmp_path / "own_notes.py"
    file.write_text(NOTES, encoding="utf-8")
    return file


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "notes.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    return file


def test_without_a_reference_it_is_life_helper_with_the_limit_of_tokens() -> None:
    environment = load_environment(None, max_tokens=9)
    assert isinstance(environment, LifeHelperEnvironment)
    assert environment.sampling.max_tokens == 9
    assert load_environment(None) == LifeHelperEnvironment()


@pytest.mark.parametrize("name", ["environment", "made", "Environment"])
def test_an_object_a_function_and_a_class_all_give_an_environment(notes: Path, name: str) -> None:
    environment = load_environment(f"{notes}:{name}")
    assert list(registry_of(environment, WORLD, "en")) == ["read_notes"]
    module = sys.modules["lhkit_environment_own_notes"]
    assert len(module.closed) == 1  # the world that was opened for it is closed again


def test_a_module_beside_us_is_found_and_may_import_its_neighbours(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (notes.parent / "own_kitchen.py").write_text("from own_notes import *\n", encoding="utf-8")
    monkeypatch.chdir(notes.parent)
    for reference in ("own_kitchen:environment", "own_kitchen.py:environment"):
        assert list(registry_of(load_environment(reference), WORLD, "en")) == ["read_notes"]


def test_a_file_that_changed_is_read_again(notes: Path) -> None:
    load_environment(f"{notes}:environment")
    notes.write_text(NOTES.replace("read_notes", "list_notes"), encoding="utf-8")
    changed = load_environment(f"{notes}:environment")
    assert list(registry_of(changed, WORLD, "en")) == ["list_notes"]


def test_tokens_are_limited_only_where_that_was_asked_for(notes: Path) -> None:
    for max_tokens, expected in ((None, 7), (64, 64)):
        session = load_environment(f"{notes}:made", max_tokens=max_tokens).open(WORLD, "en")
        assert session.assistant.sampling.max_tokens == expected
        assert session.assistant.sampling.temperature == 0.5


def test_what_a_session_knows_of_ids_and_rules_comes_through(notes: Path) -> None:
    plain = load_environment(f"{notes}:environment").open(WORLD, "en")
    ruled = load_environment(f"{notes}:RuledEnvironment").open({}, "en")
    assert isinstance(ruled, KnowsIds)
    assert isinstance(ruled, KnowsRules)
    assert ruled.known_ids() == {"note_id": ("a",)}
    assert ruled.broken_rules({}, {}) == [("r1_note", "told")]
    assert isinstance(plain, KnowsIds)
    assert isinstance(plain, KnowsRules)
    assert (plain.known_ids(), plain.broken_rules({}, {})) == ({}, ())


@pytest.mark.promise("own_tools.errors")
@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("notes.py", "has no colon and name: write FILE.py:NAME"),
        (":environment", "has no colon and name"),
        ("nowhere/notes.py:environment", "no Python file nowhere/notes.py"),
        ("{folder}/notes.yaml:environment", "no Python file {folder}/notes.yaml"),
        ("own_nowhere.notes:environment", "no module 'own_nowhere.notes' here"),
        ("{file}:kitchen", "has no 'kitchen': it defines Environment, Half, "),
        ("{file}:number", "an object of type int has no method open(world, locale)"),
        ("{file}:broken", "calling broken without arguments failed at {file}:48: KeyError: "),
        ("{file}:registry", "an object of type ToolRegistry has no method open(world, locale)"),
    ],
)
def test_a_wrong_reference_is_one_sentence_with_the_way_out(
    notes: Path, scenario: Path, reference: str, told: str
) -> None:
    places = {"file": str(notes), "folder": str(scenario.parent)}
    with pytest.raises(UsageError) as error:
        load_environment(reference.format(**places))
    assert told.format(**places) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import json\nimport own_nothing\n", ":2: ModuleNotFoundError: No module named"),
        ("\n\nenvironment = (\n", ":3: SyntaxError: '(' was never closed"),
        ("import json\njson.loads('{')\n", ":2: JSONDecodeError: "),
        ("raise SystemExit(3)\n", ":1: SystemExit: 3"),
    ],
)
def test_code_that_cannot_be_imported_is_told_with_its_own_line(
    tmp_path: Path, code: str, told: str
) -> None:
    file = tmp_path / "own_broken.py"
    file.write_text(code, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        load_environment(f"{file}:environment")
    assert f"importing it failed at {file}{told}" in str(error.value)
    assert "lhkit_environment_own_broken" not in sys.modules


def test_a_world_that_their_code_stumbles_over_is_told_with_their_line(notes: Path) -> None:
    environment = load_environment(f"{notes}:environment")
    with pytest.raises(UsageError, match=rf"failed at {notes}:\d+: KeyError: 'notes'"):
        environment.open({}, "en")
    with pytest.raises(UsageError, match="without registry, assistant, today, state, close"):
        load_environment(f"{notes}:half").open(WORLD, "en")


async def test_scenarios_are_played_linted_and_spoiled_in_it(
    notes: Path, scenario: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = f"{notes}:environment"
    options = EvalOptions(
        paths=(scenario,), environment=reference, model="gold", runs_dir=scenario.parent
    )
    assert await evaluate(options, settings) == 0
    shown = capsys.readouterr().out
    assert "1/1 100%" in shown
    assert "search" not in shown.lower()  # AC-1 is theirs: life-helper's words for it do not fit
    folder = scenario.parent / "gold-json-own_notes"
    assert Run.load(folder).records[0].turns[0].calls[0].tool == "read_notes"
    assert await rescore_run(folder, (scenario,), None, settings, reference) == 0
    assert "1/1 100%" in capsys.readouterr().out
    assert await lint_paths([scenario], settings, as_json=False, environment=reference) == 0
    mutating = MutateOptions(paths=(scenario,), environment=reference, fail_under=100)
    assert await mutate_paths(mutating, settings) == 0


async def test_a_constraint_is_checked_against_their_tools(
    notes: Path, scenario: Path, settings: Settings
) -> None:
    options = EvalOptions(
        paths=(scenario,),
        environment=f"{notes}:unpromised",
        model="gold",
        constrain="required",
        runs_dir=scenario.parent,
    )
    with pytest.raises(
        UsageError, match="tool 'read_notes': decoding cannot be constrained by 'not'"
    ):
        await evaluate(options, settings)


async def test_a_model_is_opened_with_the_tools_that_it_is_constrained_to(
    notes: Path, scenario: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices: list[ModelChoice] = []

    @asynccontextmanager
    async def opened(choice: ModelChoice, *_: object) -> AsyncIterator[ChatModel]:
        choices.append(choice)
        yield ScriptedModel(lambda _: say("buy milk"))

    monkeypatch.setattr(sources, "opened_model", opened)
    for constrain in ("required", "off"):
        options = EvalOptions(
            paths=(scenario,),
            environment=f"{notes}:environment",
            base_url="http://127.0.0.1:1",
            constrain=constrain,
            runs_dir=scenario.parent,
        )
        await evaluate(options, settings)
    constrained, free = choices
    assert [getattr(tool, "name", None) for tool in constrained.tools] == ["read_notes"]
    assert free.tools == ()


@pytest.fixture
def korean(tmp_path: Path) -> Path:
    text = SCENARIO.replace("notes-01", "notes-02").replace("locale: en", "locale: ko")
    file = tmp_path / "korean.yaml"
    file.write_text(text, encoding="utf-8")
    return file


async def test_a_constraint_is_checked_in_each_language_of_the_scenarios(
    notes: Path, scenario: Path, korean: Path, settings: Settings
) -> None:
    options = EvalOptions(
        paths=(scenario, korean),
        environment=f"{notes}:unpromised_in_korean",
        model="gold",
        constrain="auto",
        runs_dir=scenario.parent,
    )
    with pytest.raises(UsageError, match="'read_notes': decoding cannot be constrained by 'not'"):
        await evaluate(options, settings)


async def test_without_paths_there_is_nothing_to_play_in_it(
    notes: Path, settings: Settings
) -> None:
    reference = f"{notes}:environment"
    for trying in (
        evaluate(EvalOptions(environment=reference, model="gold"), settings),
        lint_paths([], settings, as_json=False, environment=reference),
        mutate_paths(MutateOptions(environment=reference), settings),
        rescore_run(notes.parent, (), None, settings, reference),
    ):
        with pytest.raises(UsageError, match="give scenario files or folders as PATHS"):
            await trying


@pytest.mark.parametrize(
    ("reference", "label"),
    [("pantry.py:e", "pantry"), ("a/b/notes.py:e", "notes"), ("shop.tools:e", "tools")],
)
def test_the_word_for_an_environment_is_the_name_of_its_file(reference: str, label: str) -> None:
    assert label_of(reference) == label
