"""`--toolset`: from a reference to tools, for every command; its issues as sentences."""

import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from lhkit.app import ModelChoice
from lhkit.base.errors import ScenarioError, UsageError
from lhkit.base.options import DEFAULT_TOOLSET
from lhkit.cli.chat.chat import open_live_session
from lhkit.cli.eval import evaluation
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.evaluate import evaluate
from lhkit.cli.lint import LintOptions, lint_paths
from lhkit.cli.mutate import MutateOptions, mutate_paths
from lhkit.cli.rescore import RescoreOptions, rescore_run
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.results.results import Run
from lhkit.harness.running.rescore import rescore
from lhkit.harness.running.run import replay
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.lifehelper.toolset import LIFE_HELPER
from lhkit.models.base import ChatModel
from lhkit.models.recorded.scripted import ScriptedModel, say
from lhkit.settings import Settings
from lhkit.testing import echo_tool
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import (
    BareToolset,
    Session,
    criteria_of,
    label_of,
    limit_tokens,
    load,
    load_toolset,
    open_session,
    opened,
    read_state,
    registry_of,
    supported_locales,
)
from tests.rows import check_rows

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


class Toolset:
    def open(self, world, locale):
        notes = [row["text"] for row in world["notes"]]
        sampling = Sampling(max_tokens=7, temperature=0.5)
        return Session(Assistant(deps=notes, sampling=sampling), notes)


def made():
    return Toolset()


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


class RuledToolset:
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


class UnpromisedInKorean(Toolset):
    def open(self, world, locale):
        return Unpromised(Assistant(), []) if locale == "ko" else super().open(world, locale)


toolset = Toolset()
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


def test_load_default_is_life_helper() -> None:
    assert load() is load("life-helper") is load("lhkit.lifehelper.toolset:LIFE_HELPER")
    assert load() is LIFE_HELPER


@pytest.mark.parametrize("name", ["toolset", "made", "Toolset"])
def test_load_accepts_object_function_and_class(notes: Path, name: str) -> None:
    toolset = load(f"{notes}:{name}")
    assert list(registry_of(toolset, WORLD, "en")) == ["read_notes"]
    module = sys.modules["lhkit_toolset_own_notes"]
    assert len(module.closed) == 1  # the world that was opened for it is closed again


def test_load_finds_module_in_current_folder(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (notes.parent / "own_kitchen.py").write_text("from own_notes import *\n", encoding="utf-8")
    monkeypatch.chdir(notes.parent)
    for reference in ("own_kitchen:toolset", "own_kitchen.py:toolset"):
        assert list(registry_of(load(reference), WORLD, "en")) == ["read_notes"]


def test_load_reads_changed_file_again(notes: Path) -> None:
    load(f"{notes}:toolset")
    notes.write_text(NOTES.replace("read_notes", "list_notes"), encoding="utf-8")
    changed = load(f"{notes}:toolset")
    assert list(registry_of(changed, WORLD, "en")) == ["list_notes"]


def test_limit_tokens_keeps_other_sampling(notes: Path) -> None:
    sampling = limit_tokens(load(f"{notes}:made"), 64).open(WORLD, "en").assistant.sampling
    assert (sampling.max_tokens, sampling.temperature) == (64, 0.5)


def test_wrapped_session_forwards_ids_and_rules(notes: Path) -> None:
    plain = limit_tokens(load(f"{notes}:toolset"), 9).open(WORLD, "en")
    ruled = limit_tokens(load(f"{notes}:RuledToolset"), 9).open({}, "en")
    assert ruled.known_ids() == {"note_id": ("a",)}
    assert ruled.broken_rules({}, {}) == [("r1_note", "told")]
    assert not hasattr(plain, "known_ids")
    assert not hasattr(plain, "broken_rules")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("notes.py", "has no colon and name: write FILE.py:NAME"),
        (":toolset", "has no colon and name"),
        ("nowhere/notes.py:toolset", "no Python file nowhere/notes.py"),
        ("{folder}/notes.yaml:toolset", "no Python file {folder}/notes.yaml"),
        ("own_nowhere.notes:toolset", "no module 'own_nowhere.notes' here"),
        ("{file}:number", "an object of type int has no method open(world, locale)"),
        ("{file}:broken", "calling broken without arguments failed at {file}:48: KeyError: "),
    ],
)
def test_load_reports_invalid_reference(
    notes: Path, scenario: Path, reference: str, message: str
) -> None:
    places = {"file": str(notes), "folder": str(scenario.parent)}
    with pytest.raises(UsageError) as error:
        load(reference.format(**places))
    assert message.format(**places) in str(error.value)
    assert "\n" not in str(error.value)


@check_rows(
    ("code", "message"),
    [
        ("import json\nimport own_nothing\n", ":2: ModuleNotFoundError: No module named"),
        ("\n\nenvironment = (\n", ":3: SyntaxError: '(' was never closed"),
        ("import json\njson.loads('{')\n", ":2: JSONDecodeError: "),
        ("raise SystemExit(3)\n", ":1: SystemExit: 3"),
    ],
)
def test_load_reports_line_of_import_error(tmp_path: Path, code: str, message: str) -> None:
    file = tmp_path / "own_broken.py"
    file.write_text(code, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        load(f"{file}:toolset")
    assert f"importing it failed at {file}{message}" in str(error.value)
    assert "lhkit_toolset_own_broken" not in sys.modules


def test_open_session_reports_line_of_failing_toolset(notes: Path) -> None:
    message = rf"open\(world, 'en'\) of Toolset failed at {notes}:\d+: KeyError: 'notes'"
    for broken in (load(f"{notes}:toolset"), limit_tokens(load(f"{notes}:toolset"), 9)):
        with pytest.raises(UsageError, match=message):
            open_session(broken, {}, "en")
    message = (
        rf"open\(\) of Half \({notes}:\d+\) returned an object of type object without registry"
    )
    with pytest.raises(UsageError, match=message):
        open_session(load(f"{notes}:half"), WORLD, "en")


FAILING = """
def boom(*_):
    return {}["nowhere"]


class Failing(Toolset):
    def __init__(self, name):
        self.part = name

    def open(self, world, locale):
        session = super().open(world, locale)
        if self.part == "context":
            return Session(Assistant(context=boom), [])
        object.__setattr__(session, self.part, boom)
        return session


state, close, known_ids, broken_rules, row_keys, context = map(
    Failing, ("state", "close", "known_ids", "broken_rules", "row_keys", "context")
)
"""


@pytest.fixture
def failing_notes(notes: Path) -> Path:
    notes.write_text(NOTES + FAILING, encoding="utf-8")
    return notes


@pytest.mark.parametrize(
    "part", ["state", "close", "known_ids", "broken_rules", "row_keys", "context"]
)
async def test_session_errors_report_line_of_user_code(
    failing_notes: Path,
    scenario: Path,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
    part: str,
) -> None:
    line = (NOTES + FAILING).splitlines().index('    return {}["nowhere"]') + 1
    message = rf"session: {part}\(\)[\w ]* failed at {failing_notes}:{line}: KeyError: 'nowhere'"
    linted = LintOptions(paths=(scenario,), toolset=f"{failing_notes}:{part}")
    assert await lint_paths(linted, settings) == 1
    shown = capsys.readouterr().out
    assert re.search(message, shown), shown
    (record,) = [
        await run_sample(each, gold_model, load(f"{failing_notes}:{part}"))
        for each in load_scenarios([scenario])
    ]
    if part == "known_ids":  # only lint asks for them
        assert record.score.verdict is Verdict.PASS
    else:
        assert re.fullmatch(message, record.score.reasons[0])


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("assistant", "'hi'", "whose assistant is a str: give an Assistant"),
        ("today", "'2026-01-01'", "whose today is a str: give a date, such as now.date()"),
        ("today", "datetime(2026, 1, 1)", "whose today is a datetime: give a date"),
    ],
)
def test_open_session_reports_part_of_wrong_type(
    notes: Path, part: str, value: str, message: str
) -> None:
    code = "from datetime import datetime\n" + NOTES + FAILING.replace("boom)", f"{value})")
    notes.write_text(f"{code}\nwrong = Failing({part!r})\n", encoding="utf-8")
    with pytest.raises(UsageError) as error:
        open_session(load(f"{notes}:wrong"), WORLD, "en")
    assert message in str(error.value)
    assert f"{notes}:" in str(error.value)


def test_load_suggests_toolsets_for_missing_name(notes: Path) -> None:
    with pytest.raises(UsageError) as error:
        load(f"{notes}:kitchen")
    named = str(error.value).partition("it defines ")[2].split(", ")
    assert {"registry", "toolset", "Toolset", "made", "half"} <= set(named)
    assert {"read_notes", "Session", "Ruled"}.isdisjoint(named)


async def test_eval_refuses_foreign_scenarios_without_toolset(
    tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plain.yaml"
    world = 'world: {now: "2026-06-15T09:00:00+09:00"}'
    text = SCENARIO.replace("world: {notes: [{text: buy milk}]}", world)
    file.write_text(text, encoding="utf-8")
    message = "life-helper has no tool 'read_notes': for other tools give their --toolset"
    with pytest.raises(ScenarioError, match=message):
        await evaluate(EvalOptions(paths=(file,), model="silent", runs_dir=tmp_path), settings)
    with pytest.raises(ScenarioError, match=message):
        await mutate_paths(MutateOptions(paths=(file,)), settings)
    assert await lint_paths(LintOptions(paths=(file,)), settings) == 1
    assert "--toolset FILE.py:NAME" in capsys.readouterr().out


def test_load_reports_line_of_invalid_tool(tmp_path: Path) -> None:
    file = tmp_path / "own_wordless.py"
    code = NOTES.replace('    """Read the notes."""\n', "", 1)
    file.write_text(code, encoding="utf-8")
    line = code.splitlines().index("@registry.tool()") + 1
    with pytest.raises(UsageError, match=rf"{file}:{line}: tool 'read_notes': .* docstring"):
        load(f"{file}:toolset")


async def test_eval_lint_and_mutate_use_toolset(
    notes: Path, scenario: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = f"{notes}:toolset"
    options = EvalOptions(
        paths=(scenario,), toolset=reference, model="gold", runs_dir=scenario.parent
    )
    assert await evaluate(options, settings) == 0
    shown = capsys.readouterr().out
    assert "1/1 100%" in shown
    assert "search" not in shown.lower()  # AC-1 is theirs: life-helper's words for it do not fit
    folder = scenario.parent / "gold-json-own_notes"
    assert Run.load(folder).records[0].trajectory.turns[0].calls[0].tool == "read_notes"
    rescored = RescoreOptions(run=folder, paths=(scenario,), toolset=reference)
    assert await rescore_run(rescored, settings) == 0
    assert "1/1 100%" in capsys.readouterr().out
    assert await lint_paths(LintOptions(paths=(scenario,), toolset=reference), settings) == 0
    mutating = MutateOptions(paths=(scenario,), toolset=reference, fail_under=100)
    assert await mutate_paths(mutating, settings) == 0


async def test_eval_opens_model_with_constrained_tools(
    notes: Path, scenario: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices: list[ModelChoice] = []

    @asynccontextmanager
    async def opened(choice: ModelChoice, *_: object) -> AsyncIterator[ChatModel]:
        choices.append(choice)
        yield ScriptedModel(lambda _: say("buy milk"))

    monkeypatch.setattr(evaluation, "open_model", opened)
    for constrain in ("required", "off"):
        options = EvalOptions(
            paths=(scenario,),
            toolset=f"{notes}:toolset",
            base_url="http://127.0.0.1:1",
            constraint=constrain,
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


async def test_eval_checks_constraint_in_all_locales(
    notes: Path, scenario: Path, korean: Path, settings: Settings
) -> None:
    options = EvalOptions(
        paths=(scenario, korean),
        toolset=f"{notes}:unpromised_in_korean",
        model="gold",
        constraint="auto",
        runs_dir=scenario.parent,
    )
    with pytest.raises(UsageError, match="'read_notes': decoding cannot be constrained by 'not'"):
        await evaluate(options, settings)


async def test_eval_with_toolset_requires_paths(notes: Path, settings: Settings) -> None:
    reference = f"{notes}:toolset"
    for trying in (
        evaluate(EvalOptions(toolset=reference, model="gold"), settings),
        lint_paths(LintOptions(toolset=reference), settings),
        mutate_paths(MutateOptions(toolset=reference), settings),
        rescore_run(RescoreOptions(run=notes.parent, toolset=reference), settings),
    ):
        with pytest.raises(UsageError, match=r"(?i)give scenario files or folders as PATHS"):
            await trying


@pytest.mark.parametrize(
    ("reference", "label"),
    [("pantry.py:e", "pantry"), ("a/b/notes.py:e", "notes"), ("shop.tools:e", "tools")],
)
def test_label_of_toolset_is_its_file_name(reference: str, label: str) -> None:
    assert label_of(reference) == label


BARE = """\
- id: bare-01
  ac: read
  locale: en
  turns:
    - user: "What did I write down?"
      expect: {calls: [{tool: read_notes}]}
      reply: {matches: "."}
      gold: {say: Nothing.}
"""


async def test_bare_registry_is_a_toolset(notes: Path, tmp_path: Path, settings: Settings) -> None:
    file = tmp_path / "bare.yaml"
    file.write_text(BARE, encoding="utf-8")
    options = EvalOptions(
        paths=(file,), toolset=f"{notes}:registry", model="gold", runs_dir=tmp_path
    )
    assert await evaluate(options, settings) == 0
    with opened(load(f"{notes}:registry"), {"now": "2026-03-04T09:00:00+01:00"}, "ko") as session:
        assert (session.today, session.state()) == (date(2026, 3, 4), {})
    with pytest.raises(UsageError, match=r"world.now is invalid: 'noon'"):
        open_session(load(f"{notes}:registry"), {"now": "noon"}, "ko")


def test_load_toolset_accepts_object_factory_and_reference(notes: Path) -> None:
    made = load(f"{notes}:toolset")
    for made_by in (made, lambda: made):
        assert load_toolset(made_by) is made
    assert type(load_toolset(f"{notes}:Toolset")).__name__ == "Toolset"
    assert list(registry_of(load_toolset(ToolRegistry([echo_tool("look")])), {}, "en")) == ["look"]
    with pytest.raises(UsageError, match=r"has no method open\(world, locale\) "):
        load_toolset(lambda: 3)  # type: ignore[arg-type,return-value] - what a user may do


def test_locales_of_toolset(notes: Path) -> None:
    assert supported_locales(load(), {}) == ("en", "ko")
    assert supported_locales(load(f"{notes}:toolset"), WORLD) == ("en", "ko")
    assert supported_locales(load(f"{notes}:toolset"), {}) == ()


async def test_replay_accepts_toolset_reference(notes: Path, scenario: Path) -> None:
    scenarios = load_scenarios([scenario])
    run = await replay(scenarios, gold_model, toolset=f"{notes}:toolset", progress=False)
    assert [record.score.verdict for record in run.records] == [Verdict.PASS]
    assert rescore(run, scenarios, f"{notes}:toolset").records == run.records


def live_session(
    settings: Settings,
    toolset: str = DEFAULT_TOOLSET,
    world: Path | None = None,
    file: Path | None = None,
) -> Session:
    return open_live_session(toolset, world, file, settings).session


def test_chat_starts_from_world_file(notes: Path, tmp_path: Path, settings: Settings) -> None:
    world = tmp_path / "world.yaml"
    world.write_text("notes: [{text: buy milk}]\n", encoding="utf-8")
    session = live_session(settings, toolset=f"{notes}:toolset", world=world)
    assert session.assistant.deps == ["buy milk"]
    world.write_text("notes: [\n  {text: a, text: b}]\n", encoding="utf-8")
    for options, message in (
        ({"world": world}, "world.yaml:2: duplicate key"),
        ({"world": tmp_path / "no.yaml"}, "no.yaml cannot be read"),
        ({"world": notes}, "not a valid initial state|not YAML"),
        ({"file": tmp_path / "a.sqlite3"}, "--toolset .* has none: leave one out"),
        ({}, r"open\(world, 'en'\) of Toolset failed at .*own_notes.py:\d+: KeyError: 'notes'"),
    ):
        with pytest.raises(UsageError, match=message):
            live_session(settings, toolset=f"{notes}:toolset", **options)


@pytest.mark.longer
def test_chat_keeps_data_of_life_helper(tmp_path: Path, settings: Settings) -> None:
    world = tmp_path / "world.yaml"
    world.write_text("habits: [{protocol_id: daily-walk}]\n", encoding="utf-8")
    for options, habits in (({}, 0), ({"world": world}, 1), ({"file": tmp_path / "own.db"}, 0)):
        with closing(live_session(settings, **options)) as session:
            assert len(read_state(session)["habits"]) == habits
    assert (tmp_path / "data" / "life-helper.sqlite3").is_file()
    assert (tmp_path / "own.db").is_file()
    with pytest.raises(UsageError, match="--world starts from a state of its own"):
        live_session(settings, world=world, file=tmp_path / "own.db")


def test_load_resolves_an_entry_point_of_an_installed_package(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site"
    (package / "notebook_tools-1.0.dist-info").mkdir(parents=True)
    (package / "notebook_tools-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: notebook-tools\nVersion: 1.0\n"
    )
    (package / "notebook_tools-1.0.dist-info" / "entry_points.txt").write_text(
        "[lhkit.toolsets]\nnotes = notebook_tools:toolset\n"
    )
    (package / "notebook_tools.py").write_text(notes.read_text(encoding="utf-8"))
    monkeypatch.syspath_prepend(package)
    assert type(load("notes")).__name__ == type(load(f"{notes}:toolset")).__name__
    with pytest.raises(UsageError, match=r"entry point of lhkit\.toolsets"):
        load("not-installed")


class Named:
    """A toolset with criteria."""

    def __init__(self, criteria: Any) -> None:
        self.criteria = criteria

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        return BareToolset(registry=ToolRegistry()).open(world, locale)


@check_rows(
    ("criteria", "expected"),
    [
        (None, {}),
        ({}, {}),
        ({"a": "finds"}, {"a": {"en": "finds", "ko": "finds"}}),
        ({"a": {"ko": "찾기"}, "b": {}}, {"a": {"ko": "찾기"}, "b": {}}),
        ({"a": {"en": " two\n lines "}}, {"a": {"en": "two lines"}}),
    ],
)
def test_criteria_of_returns_texts_by_language(criteria: Any, expected: Any) -> None:
    toolset = Named(criteria)
    assert criteria_of(toolset) == expected
    assert criteria_of(limit_tokens(toolset, 9)) == expected
    assert criteria_of(BareToolset(registry=ToolRegistry())) == {}


@check_rows(
    ("criteria", "shown"),
    [
        (["a"], '["a"]'),
        ("a", '"a"'),
        (lambda: {}, "<function"),
        ({"a": 1}, '{"a":1}'),
        ({"a": ""}, '{"a":""}'),
        ({"": "finds"}, '{"":"finds"}'),
        ({1: "finds"}, "{1: 'finds'}"),
        ({"a": {"en": None}}, '{"a":{"en":null}}'),
        ({"a": {"ko": ["찾기"]}}, '{"a":{"ko":["찾기"]}}'),
    ],
)
async def test_invalid_criteria_are_refused_before_a_run(criteria: Any, shown: str) -> None:
    scenario = Scenario.from_data({"id": "a", "ac": "a", "turns": [{"user": "hi"}]})
    with pytest.raises(UsageError, match=rf"^criteria of Named is invalid: {re.escape(shown)}"):
        await replay([scenario], gold_model, toolset=Named(criteria), progress=False)


def test_criteria_that_fail_name_the_line(tmp_path: Path) -> None:
    file = tmp_path / "own_failing.py"
    code = "class House:\n    @property\n    def criteria(self):\n        return {}[1]\n"
    file.write_text(f"{code}\n    def open(self, world, locale):\n        ...\n", encoding="utf-8")
    with pytest.raises(UsageError, match=rf"criteria of House failed at {file}:4: KeyError"):
        criteria_of(load(f"{file}:House"))
