"""`lhkit matrix`: runs missing arms, starts one server, prints one table."""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lhkit import app, embedded
from lhkit.base.errors import ServerUnreachableError, UsageError
from lhkit.cli import matrix as matrix_module
from lhkit.cli.matrix import MatrixOptions, run_matrix
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.running import plan
from lhkit.lifehelper import toolset as life_helper
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.recorded.scripted import Reply, ScriptedModel, say
from lhkit.settings import Settings

pytestmark = pytest.mark.anyio

SCENARIOS = """
- id: list-it
  ac: AC-5
  locale: ko
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns: [{user: 내 습관 보여 줘, expect: {calls: [{tool: list_habits, args: {}}]}}]
- id: greet
  ac: AC-12
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns: [{user: hello, reply: {matches: '\\S'}}]
"""


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


class Bench:
    """A suite with two scenarios in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "two.yaml").write_text(SCENARIOS, encoding="utf-8")
        self.settings = Settings(cache_dir=folder / "cache", locale="en", base_url=None)

    async def play(self, arms: str, **top: Any) -> int:
        lines = [f"{name} = {_toml(value)}" for name, value in top.items()]
        suite = self.folder / "suite.toml"
        shared = [] if "scenarios" in top else ['scenarios = ["two.yaml"]']
        text = "\n".join([*shared, *lines, arms])
        suite.write_text(text, encoding="utf-8")
        options = MatrixOptions(suite=suite, runs_dir=self.folder / "runs")
        return await run_matrix(options, self.settings)

    def lines(self, arm: str) -> int:
        records = self.folder / "runs" / "suite" / arm / "records.jsonl"
        return len(records.read_text(encoding="utf-8").splitlines())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def serve(
    monkeypatch: pytest.MonkeyPatch,
    identify: Callable[[app.ModelChoice, Settings], dict[str, Any]],
    end: Callable[[app.ModelChoice, Settings], None] = lambda *_: None,
) -> None:
    """Serve a text-only model at every address; `identify` returns its identity."""

    @asynccontextmanager
    async def opened(
        choice: app.ModelChoice, settings: Settings, **_: object
    ) -> AsyncIterator[ChatModel]:
        dialect = choice.known_dialect or "openai"
        reported = {"base_url": choice.base_url or "http://started:1", "dialect": dialect}
        identity = ModelIdentity(**reported | identify(choice, settings))
        yield ScriptedModel(lambda _request: say("hello"), identity=identity)
        end(choice, settings)

    monkeypatch.setattr(matrix_module, "open_model", opened)


@pytest.fixture
def model_choices(monkeypatch: pytest.MonkeyPatch) -> list[app.ModelChoice]:
    """Return the list of the models that were asked for."""
    choices: list[app.ModelChoice] = []

    def identify(choice: app.ModelChoice, settings: Settings) -> dict[str, Any]:
        choices.append(choice)
        return {
            "model": app.EMBEDDED if choice.is_embedded else choice.name or "served",
            "constraint": choice.constraint,
            "weights": embedded.embedded_folder(app.EMBEDDED, settings).name,
        }

    serve(monkeypatch, identify)
    return choices


async def test_matrix_compares_arms_with_the_first(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await bench.play('[arms]\nmodels = ["gold", "silent"]', repeats=3) == 0
    printed = capsys.readouterr().out
    gold, silent = (re.search(rf"│ {name} .*", printed) for name in ("gold", "silent"))
    assert gold
    assert silent
    assert "6/6 100%" in gold[0]
    assert "0/6 0%" in silent[0]
    assert "-100" in silent[0]
    assert "p " in printed.split("silent", 2)[2]
    assert bench.lines("gold") == bench.lines("silent") == 6


@pytest.mark.longer
async def test_matrix_plays_each_simulated_user_and_prints_its_gate(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    users = 'users = ["script", "hasty", "careful"]'
    assert await bench.play(f'[arms]\nmodels = ["gold"]\n{users}') == 0
    printed = capsys.readouterr().out
    assert bench.lines("hasty") == bench.lines("careful") == bench.lines("script") == 2
    for user in ("hasty", "careful"):
        assert f"{user}: confirm gate: asked" in printed
        assert f"{user}: unexpected writes proposed" in printed
    assert "script: confirm gate" not in printed


@pytest.mark.longer
async def test_matrix_exits_with_1_on_missed_threshold(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await bench.play('[arms]\nmodels = ["gold", "silent"]', fail_under=50) == 1
    assert "silent: " in capsys.readouterr().out
    assert await bench.play('[arms]\nmodels = ["gold"]', fail_under=50) == 0


KITCHEN = """
- id: eggs
  ac: read
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00", items: [{id: egg, name: eggs, amount: 4}]}
  turns: [{user: what is there?, expect: {calls: [{tool: find_item, args: {}}]}}]
"""


async def test_matrix_resolves_toolset_from_suite_folder(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pantry = Path(__file__).parents[2] / "evals" / "pantry" / "pantry.py"
    (tmp_path / "own_kitchen.py").write_text(pantry.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "two.yaml").write_text(KITCHEN, encoding="utf-8")
    arms = '[arms]\nmodels = ["gold"]\nconstraints = ["off"]'
    assert await bench.play(arms, toolset="own_kitchen.py:toolset") == 0
    assert "1/1 100%" in capsys.readouterr().out
    with pytest.raises(UsageError, match="no scenarios are shipped for this toolset"):
        await bench.play(arms, toolset="own_kitchen.py:toolset", scenarios="dev")


@pytest.mark.slow
async def test_matrix_shares_server_between_embedded_arms(
    bench: Bench, model_choices: list[app.ModelChoice], capsys: pytest.CaptureFixture[str]
) -> None:
    arms = '[arms]\nmodels = ["gemma"]\nconstraints = ["off", "auto", "required"]'
    assert await bench.play(arms) == 0
    assert [(each.base_url, each.constraint) for each in model_choices] == [
        (None, "off"),
        ("http://started:1", "auto"),
        ("http://started:1", "required"),
    ]
    model_choices.clear()
    assert await bench.play(arms) == 0
    assert model_choices == []
    assert capsys.readouterr().out.count("complete, not run again") == 3
    assert await bench.play(arms, repeats=2) == 0
    assert len(model_choices) == 3
    assert bench.lines("auto") == 4


@pytest.mark.usefixtures("model_choices")
async def test_matrix_says_that_arms_of_unknown_code_are_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = '[arms]\nmodels = ["gemma"]'
    with monkeypatch.context() as earlier:
        earlier.setattr(plan, "source_sha256", lambda _toolset: "")  # an earlier version of lhkit
        assert await bench.play(arms) == 0
    assert "were kept" not in capsys.readouterr().out
    assert await bench.play(arms) == 0
    text = "2 samples were kept although the tools' code cannot be compared"
    assert text in capsys.readouterr().out


@pytest.fixture
def by_runtime(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the servers of runtimes that began, were used again and ended."""
    seen: list[str] = []

    def sha256(settings: Settings) -> str:
        return ("a" if settings.runtime == "vllm" else "b") * 64

    def identify(choice: app.ModelChoice, settings: Settings) -> dict[str, Any]:
        seen.append(f"{settings.runtime} {'begins' if choice.is_embedded else 'again'}")
        return {
            "model": app.EMBEDDED,
            "server": f"{settings.runtime} 1",
            "weights": embedded.embedded_weights(app.EMBEDDED, settings).name,
            "weights_sha256": sha256(settings),
        }

    def end(choice: app.ModelChoice, settings: Settings) -> None:
        seen.extend([f"{settings.runtime} ends"] * choice.is_embedded)

    async def embedded_sha256(_name: str, settings: Settings) -> str:
        return sha256(settings)

    serve(monkeypatch, identify, end)
    monkeypatch.setattr(embedded, "embedded_sha256", embedded_sha256)
    return seen


@pytest.mark.longer
async def test_matrix_runs_runtimes_one_after_the_other(
    bench: Bench, by_runtime: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arms = '[arms]\nruntimes = ["vllm", "llama.cpp"]\ndialects = ["json", "pythonic"]'
    assert await bench.play(arms) == 0
    assert by_runtime == [
        "vllm begins",
        "vllm again",
        "vllm ends",
        "llama.cpp begins",
        "llama.cpp again",
        "llama.cpp ends",
    ]
    assert "vllm-json" in (printed := capsys.readouterr().out)
    assert "llama.cpp-pythonic" in printed
    manifest = bench.folder / "runs" / "suite" / "llama.cpp-json" / "manifest.json"
    (model,) = json.loads(manifest.read_text(encoding="utf-8"))["models"]
    assert model["server"] == "llama.cpp 1"
    by_runtime.clear()
    assert await bench.play(arms) == 0
    assert by_runtime == []


@pytest.mark.longer
async def test_matrix_reruns_folder_of_another_runtime(bench: Bench, by_runtime: list[str]) -> None:
    for runtime in ("vllm", "llama.cpp", "llama.cpp"):
        assert await bench.play(f'[arms]\nruntimes = ["{runtime}"]') == 0
    assert by_runtime == ["vllm begins", "vllm ends", "llama.cpp begins", "llama.cpp ends"]


async def test_matrix_opens_models_with_constrained_tools(
    bench: Bench, model_choices: list[app.ModelChoice]
) -> None:
    assert await bench.play('[arms]\nmodels = ["gemma"]\nconstraints = ["auto"]') == 0
    assert (
        model_choices[0].tools == life_helper.registry_of("ko").definitions
    )  # as the first one speaks


@pytest.mark.longer
async def test_matrix_prompt_arm_changes_only_its_locale(
    bench: Bench, model_choices: list[app.ModelChoice]
) -> None:
    arms = 'arms.prompts = ["default", "short"]\nprompts.short.en = "Be brief."'
    assert await bench.play(arms) == 0
    model_choices.clear()
    assert await bench.play(arms.replace("brief", "kind")) == 0
    assert len(model_choices) == 1
    assert (bench.lines("default"), bench.lines("short")) == (2, 3)


def hellos(count: int) -> str:
    """Return scenarios of which a reply `hello` passes."""
    return "".join(
        f"- id: s{number}\n"
        "  ac: AC-12\n"
        f"  locale: {('ko', 'en')[number % 2]}\n"
        '  world: {now: "2026-06-15T09:00:00+09:00"}\n'
        "  turns: [{user: hi, reply: {contains_any: [hello]}}]\n"
        for number in range(count)
    )


def serve_reader(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Serve a model that passes if the tool `list_habits` is described as good.

    Returns:
        The descriptions that it read.
    """
    read: list[str] = []

    def answer(request: ModelRequest) -> Reply:
        (tool,) = (tool for tool in request.tools if tool.name == "list_habits")
        read.append(tool.description)
        return say("hello" if "good" in tool.description else "what?")

    @asynccontextmanager
    async def opened(
        choice: app.ModelChoice, _settings: Settings, **_: object
    ) -> AsyncIterator[ChatModel]:
        reported = {"model": choice.name, "base_url": "http://box:1", "dialect": "openai"}
        yield ScriptedModel(answer, identity=ModelIdentity(**reported))

    monkeypatch.setattr(matrix_module, "open_model", opened)
    return read


WORDINGS = """
[[arms.models]]
name = "mine"
base_url = "http://box:1"

[descriptions.bad]
list_habits = "bad"

[descriptions.good]
list_habits = {ko = "좋은 good", en = "good"}
"""


@pytest.mark.longer
@pytest.mark.parametrize("locale", ["en", "ko"])
async def test_matrix_chooses_descriptions_on_one_half(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    locale: str,
) -> None:
    read = serve_reader(monkeypatch)
    (bench.folder / "two.yaml").write_text(hellos(24), encoding="utf-8")
    bench.settings = bench.settings.model_copy(update={"locale": locale})
    assert await bench.play(WORDINGS, halves_seed=5) == 0
    assert {"bad", "good", "좋은 good"} < set(read)
    printed = " ".join(capsys.readouterr().out.split())
    better, seed, not_compared = {
        "en": (
            "good is better than default on the half that did not choose it: +100.0 ",
            "Random halves (seed 5): 12 scenarios to choose, 12 scenarios to compare",
            "vs. first arm: paired",
        ),
        "ko": (
            "good 쪽이 default보다 낫습니다. 고르는 데 쓰지 않은 절반에서, 샘플 12개에서 +100.0 ",
            "(시드 5): 시나리오 12개로 고르고 12개로 비교합니다.",
            "차이: 같은 샘플",
        ),
    }[locale]
    assert better in printed
    assert seed in printed
    assert not_compared not in printed
    halves = json.loads((bench.folder / "runs" / "suite" / "halves.json").read_bytes())
    assert halves["seed"] == 5
    assert sorted(halves["choosing"] + halves["reporting"]) == sorted(f"s{n}" for n in range(24))
    (choice,) = halves["choices"]
    assert (choice["chosen"], choice["outcome"]) == ("good", "better")
    assert choice["passed"]["bad"] == {"choosing": 0, "reporting": 0}


@pytest.mark.longer
async def test_matrix_calls_nothing_better_if_descriptions_are_equal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_reader(monkeypatch)
    (bench.folder / "two.yaml").write_text(hellos(24), encoding="utf-8")
    await bench.play(WORDINGS.replace(" good", " bad").replace('"good"', '"bad"'))
    assert "default stays: no other arm passed more" in " ".join(capsys.readouterr().out.split())


@pytest.mark.longer
async def test_matrix_runs_only_the_arm_whose_descriptions_changed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read = serve_reader(monkeypatch)
    await bench.play(WORDINGS)
    assert len(read) == 6
    read.clear()
    capsys.readouterr()
    await bench.play(WORDINGS)
    assert read == []
    assert capsys.readouterr().out.count("complete, not run again") == 3
    await bench.play(WORDINGS.replace('"bad"', '"worse"'))
    assert read == ["worse", "worse"]
    assert (bench.lines("default"), bench.lines("bad"), bench.lines("good")) == (2, 4, 2)


@pytest.mark.longer
async def test_matrix_chooses_descriptions_for_each_model(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[arms]\nmodels = ["gold", "silent"]\n[descriptions.short]\nlist_habits = "x"'
    assert await bench.play(text, tool_descriptions={"add_habit": "y"}) == 0
    printed = capsys.readouterr().out
    assert "gold-default stays" in printed
    assert "silent-default stays" in printed
    for arm, described in (("gold-default", ["y"]), ("silent-short", ["x", "y"])):
        manifest = bench.folder / "runs" / "suite" / arm / "manifest.json"
        tools = json.loads(manifest.read_bytes())["locales"]["en"]["tools"]
        texts = {tool["name"]: tool["description"] for tool in tools}
        assert [texts[name] for name in ("list_habits", "add_habit")][
            -len(described) :
        ] == described


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            'list_habit = "x"',
            r"suite.toml: descriptions.short: list_habit: there is no tool 'list_habit': "
            "did you mean list_habits?",
        ),
        (
            '"add_habit.anchor" = "x"',
            "suite.toml: descriptions.short: add_habit.anchor: the tool 'add_habit' has no "
            "parameter 'anchor': did you mean anchor_when?",
        ),
        ('list_habits = " "', "suite.toml: descriptions.short.list_habits: must be more than"),
        ("list_habits = 3", "suite.toml: descriptions.short.list_habits: must be a text or"),
        ("list_habits = {ko = 3}", "suite.toml: descriptions.short.list_habits.ko: must be a text"),
        ("list_habits = {}", "suite.toml: descriptions.short: list_habits: has no text"),
        (
            'list_habits = {kr = "x"}',
            "suite.toml: descriptions.short: list_habits: there is no language 'kr': choose one "
            "of en, ko",
        ),
        (
            'add_habit.anchor_when = "x"',
            "suite.toml: descriptions.short: add_habit: write the description of a parameter as "
            '"add_habit.anchor_when" = "…"',
        ),
        ("", "suite.toml: descriptions.short: has no texts"),
        (
            'list_habits = "x"\n[arms]\ndescriptions = ["shorter"]',
            "suite.toml: arms.descriptions: there is no [descriptions.shorter]. Use one of "
            "default, short, or write that table.",
        ),
    ],
)
async def test_matrix_refuses_descriptions_that_fit_no_tool(
    bench: Bench, text: str, complaint: str
) -> None:
    arms = "" if "[arms]" in text else '\n[arms]\nmodels = ["gold"]'
    with pytest.raises(UsageError) as raised:
        await bench.play(f"[descriptions.short]\n{text}{arms}")
    assert complaint in str(raised.value)
    assert not (bench.folder / "runs").exists()


async def test_matrix_reruns_folder_of_another_condition(
    bench: Bench, model_choices: list[app.ModelChoice]
) -> None:
    assert await bench.play('[arms]\nmodels = ["gemma"]') == 0
    model_choices.clear()
    assert await bench.play('[arms]\nmodels = ["gemma"]\ndialects = ["pythonic"]') == 0
    assert len(model_choices) == 1


async def test_matrix_reruns_arm_with_other_weights(
    bench: Bench, model_choices: list[app.ModelChoice], monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = '[arms]\nmodels = ["gemma"]'
    assert await bench.play(arms) == 0
    model_choices.clear()
    monkeypatch.setattr(embedded, "embedded_folder", lambda *_: Path("/weights/trained-anew"))
    assert await bench.play(arms) == 0
    assert len(model_choices) == 1
    assert bench.lines("gemma") == 4


MINE = 'arms.models = [{name = "mine", base_url = "http://box:1"}]'


@pytest.mark.parametrize(("now", "runs"), [("a" * 64, 0), ("b" * 64, 1)])
async def test_matrix_checks_weights_of_server_at_address(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, now: str, runs: int
) -> None:
    for sha256 in ("a" * 64, now):
        reported = {"model": "mine", "weights_sha256": sha256}
        serve(monkeypatch, lambda *_, reported=reported: reported)
        assert await bench.play(MINE) == 0
    assert bench.lines("mine") == 2 + 2 * runs


async def test_matrix_warns_if_server_does_not_report_weights(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(*_: object) -> dict[str, Any]:
        raise ServerUnreachableError("nothing answers")

    serve(monkeypatch, lambda *_: {"model": "mine"})
    await bench.play(MINE)
    assert "weights hash" not in capsys.readouterr().out
    await bench.play(MINE)
    assert "mine (http://box:1) does not report a weights hash" in capsys.readouterr().out
    serve(monkeypatch, unreachable)
    await bench.play(MINE)
    assert "mine (http://box:1) does not report a weights hash" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arms", "complaint"),
    [
        ('[arms]\nmodels = ["gold"]\nstress = ["noise"]', "--stress"),
        ('[arms]\nmodels = ["gold"]\ndialects = ["klingon"]', "klingon"),
        ('[arms]\nmodels = ["gold"]\ndialects = ["pythonic"]\nconstraints = ["auto"]', "pythonic"),
        ('[arms]\nruntimes = ["ollama"]', "arms.runtimes"),
        ('[arms]\nruntimes = ["llama.cpp"]\nconstraints = ["auto"]', "--constrain off"),
        ('[arms]\nmodels = ["gold"]\nruntimes = ["vllm"]', "^arms.runtimes .* gold is not"),
        ('model = "gold"\nruntime = "vllm"', "^runtime .* gold is not"),
        (
            'arms.runtimes = ["vllm"]\narms.models = [{name = "m", base_url = "http://box:1"}]',
            "m is not",
        ),
    ],
)
async def test_matrix_refuses_invalid_suite_before_running(
    bench: Bench, arms: str, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        await bench.play(arms)
    assert not (bench.folder / "runs").exists()


@pytest.mark.longer
async def test_matrix_takes_dialect_of_each_family_and_warns_of_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, lambda choice, _: {"model": choice.name})
    names = ("functiongemma-270m", "gemma-4-E2B-it")
    rows = ", ".join(f'{{name = "{name}", base_url = "http://box:1"}}' for name in names)
    await bench.play(f"[arms]\nmodels = [{rows}]")
    assert "does not know the dialect" not in capsys.readouterr().out
    for name, dialect in zip(names, ("functiongemma", "gemma4"), strict=True):
        manifest = json.loads((bench.folder / f"runs/suite/{name}/manifest.json").read_bytes())
        assert manifest["models"][0]["dialect"] == dialect
    await bench.play(f'[arms]\nmodels = [{rows}]\ndialects = ["json"]')
    printed = capsys.readouterr().out
    for name in names:
        assert (
            f"{name}: Warning: none of 2 model messages contains a tool call. {name} is" in printed
        )


@pytest.mark.parametrize("locale", ["en", "ko"])
async def test_matrix_error_names_the_key_of_the_suite(bench: Bench, locale: str) -> None:
    bench.settings = bench.settings.model_copy(update={"locale": locale})
    with pytest.raises(ServerUnreachableError) as raised:
        await bench.play("[arms]\nmodels = ['silent']", base_url="http://127.0.0.1:9", model="a")
    assert "`base_url`" in str(raised.value)
    assert ("nothing answers" in str(raised.value)) == (locale == "en")
