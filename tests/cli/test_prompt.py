"""`lhkit prompt`: the prompt is the one that a model is asked, and its parts add up to it."""

import json
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.chat.controller import ChatController
from lhkit.cli.prompt import PromptOptions, show_prompt
from lhkit.embedded import embedded_folder
from lhkit.models.base import ModelRequest
from lhkit.models.dialects import DIALECTS
from lhkit.models.recorded.scripted import Reply, ScriptedModel, say
from lhkit.settings import Settings
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.toolset import load, opened

pytestmark = pytest.mark.anyio

PANTRY = Path(__file__).parents[2] / "evals" / "pantry"
REFERENCE = f"{PANTRY / 'pantry.py'}:toolset"
WORLD = {"now": "2026-06-15T09:00:00+09:00", "items": [{"id": "egg", "name": "eggs", "amount": 4}]}
SCENARIOS = """\
- id: eggs-en
  ac: read
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00", items: [{id: egg, name: eggs, amount: 4}]}
  turns: [{user: How many eggs?}]
- id: eggs-ko
  ac: read
  locale: ko
  world: {now: "2026-06-15T09:00:00+09:00", items: []}
  turns: [{user: 달걀 몇 개야?}]
"""
ONE_TOOL = '''\
from lhkit import ToolRegistry
from lhkit.toolset import BareToolset

registry = ToolRegistry()


@registry.tool()
def look() -> dict:
    """Look around."""
    return {}


class Lost:
    def open(self, world, locale):
        return {}["nowhere"]


class LeavesOut:
    def open(self, world, locale):
        session = BareToolset(registry=registry).open(world, locale)
        session.registry.left_out["book"] = "no schema"
        return session
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(SCENARIOS, encoding="utf-8")
    return path


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "look.py"
    path.write_text(ONE_TOOL, encoding="utf-8")
    return str(path)


def words_are_tokens(folder: Path) -> None:
    """Put a tokenizer into `folder` to which whatever stands between spaces is a token."""
    tokenizers = pytest.importorskip("tokenizers")
    folder.mkdir(parents=True)
    one = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, "?"))
    one.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    one.save(str(folder / "tokenizer.json"))


async def prompt_report(
    capsys: pytest.CaptureFixture[str], settings: Settings, **options: Any
) -> dict[str, Any]:
    assert await show_prompt(PromptOptions(as_json=True, **options), settings) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
async def test_prompt_equals_first_request_of_chat(
    dialect: str, file: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Reply:
        asked.append(request)
        return say("Four.")

    with opened(load(REFERENCE), WORLD, "en") as session:
        chat = ChatController(
            model=ScriptedModel(answer),
            dispatcher=ToolDispatcher(session.registry),
            assistant=session.assistant,
        )
        await chat.user_turn("How many eggs?")
    (request,) = asked
    expected = DIALECTS[dialect].encode(request.messages, request.tools, request.instructions)
    report = await prompt_report(
        capsys, settings, paths=(file,), toolset=REFERENCE, dialect=dialect
    )
    assert report["prompt"] == expected


@pytest.mark.parametrize("dialect", [*sorted(DIALECTS), "openai"])
async def test_prompt_parts_add_up_in_every_dialect(
    dialect: str, file: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    words_are_tokens(embedded_folder("gemma-base", settings))
    report = await prompt_report(
        capsys, settings, paths=(file,), toolset=REFERENCE, dialect=dialect
    )
    *parts, total = report["parts"]
    assert [each["kind"] for each in parts] == [
        "instructions",
        *["tool"] * 5,
        "context",
        "user",
        "protocol",
    ]
    assert total["characters"] == len(report["prompt"])
    assert total["bytes"] == len(report["prompt"].encode())
    assert total["tokens"] == len(report["prompt"].split())
    for measure in ("tokens", "characters", "bytes"):
        assert sum(each[measure] for each in parts) == total[measure]
        assert min(each[measure] for each in parts) >= 0


async def test_prompt_measures_single_tool_without_protocol(
    own: str, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    report = await prompt_report(capsys, settings, toolset=f"{own}:registry")
    sizes = {each["tool"] or each["kind"]: each["characters"] for each in report["parts"]}
    (line,) = [each for each in report["prompt"].splitlines() if '"Look around."' in each]
    assert sizes["look"] == len(f"{line}\n")
    assert sizes["instructions"] == sizes["context"] == sizes["user"] == 0
    assert sizes["protocol"] > len("To use a tool, answer with only this JSON")


async def test_prompt_opens_scenario_by_id(
    file: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    options = PromptOptions(paths=(file,), scenario="eggs-ko", toolset=REFERENCE)
    assert await show_prompt(options, settings) == 0
    report = capsys.readouterr().out
    assert "달걀 몇 개야?" in report
    assert "너는 부엌 살림을 돕는" in report
    assert "How many eggs?" not in report


async def test_prompt_without_tokenizer_counts_characters(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await show_prompt(PromptOptions(), settings) == 0
    report = capsys.readouterr().out
    assert "Tokens are not counted" in report
    assert "search_catalog" in report
    assert not settings.cache_dir.exists()


async def test_prompt_suggests_nearest_scenario_id(file: Path, settings: Settings) -> None:
    options = PromptOptions(paths=(file,), scenario="egg-en", toolset=REFERENCE)
    with pytest.raises(UsageError, match=r"egg-en: no such scenario .* did you mean eggs-en"):
        await show_prompt(options, settings)


async def test_prompt_reports_line_of_failing_toolset(own: str, settings: Settings) -> None:
    line = ONE_TOOL.splitlines().index('        return {}["nowhere"]') + 1
    with pytest.raises(UsageError, match=rf"look\.py:{line}: KeyError: 'nowhere'"):
        await show_prompt(PromptOptions(toolset=f"{own}:Lost"), settings)


async def test_prompt_names_tools_that_are_left_out(
    capsys: pytest.CaptureFixture[str], settings: Settings, own: str
) -> None:
    reference = f"{own}:LeavesOut"
    assert (await prompt_report(capsys, settings, toolset=reference))["left_out"] == {
        "book": "no schema"
    }
