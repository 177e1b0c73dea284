"""`tool_descriptions`: other texts of tools and parameters in a run."""

from collections.abc import Mapping
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.harness.running.descriptions import check_descriptions
from lhkit.harness.running.run_options import RunOptions
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.base import ModelRequest
from lhkit.models.recorded.scripted import Reply, ScriptedModel, say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareSession
from lhkit.toolset.base import BareToolset, day_of
from tests.harness.build import Load, Play

pytestmark = pytest.mark.anyio

CHATS = """
- id: ko-1
  ac: AC-1
  locale: ko
  turns: [{user: 안녕, expect: {calls: []}}]
- id: en-1
  ac: AC-2
  locale: en
  turns: [{user: hello, expect: {calls: []}}]
"""


@pytest.fixture
def seen() -> dict[str, ModelRequest]:
    """Return the last request of each user message."""
    return {}


@pytest.fixture
def model(seen: dict[str, ModelRequest]) -> ScriptedModel:
    def answer(request: ModelRequest) -> Reply:
        seen[request.messages[0].text] = request
        return say("hi")

    return ScriptedModel(answer)


def tool_of(request: ModelRequest, name: str) -> Any:
    return next(tool for tool in request.tools if tool.name == name)


async def test_descriptions_reach_the_model_in_its_language(
    play: Play, load: Load, model: ScriptedModel, seen: dict[str, ModelRequest]
) -> None:
    wording = {
        "find_notes": "Look.",
        "find_notes.query": {"en": "words"},
        "add_note": {"ko": "적기", "en": "Write."},
    }
    run = await play(load(CHATS), model, tool_descriptions=wording)
    korean, english = seen["안녕"], seen["hello"]
    assert tool_of(korean, "find_notes").description == "Look."
    assert tool_of(english, "find_notes").description == "Look."
    assert tool_of(korean, "add_note").description == "적기"
    assert tool_of(english, "add_note").description == "Write."
    properties = tool_of(english, "find_notes").parameters["properties"]
    assert properties["query"] == {"type": "string", "maxLength": 80, "description": "words"}
    assert properties["limit"] == {"type": "integer", "default": 5}
    assert "description" not in tool_of(korean, "find_notes").parameters["properties"]["query"]
    assert tool_of(korean, "finish_note").description == "Set whether a note is done"
    assert [tool["description"] for tool in run.manifest.locales["en"].tools][:2] == [
        "Look.",
        "Write.",
    ]


async def test_descriptions_change_the_fingerprint_of_their_language_only(
    play: Play, load: Load, model: ScriptedModel
) -> None:
    plain = await play(load(CHATS), model)
    other = await play(load(CHATS), model, tool_descriptions={"find_notes": {"en": "Look."}})
    same = await play(load(CHATS), model, tool_descriptions={"find_notes": "Find notes"})
    hashes = plain.manifest.content_hashes
    assert other.manifest.content_hashes["ko-1"] == hashes["ko-1"]
    assert other.manifest.content_hashes["en-1"] != hashes["en-1"]
    assert same.manifest.content_hashes == hashes


async def test_descriptions_stay_with_distractors_and_another_order(
    play: Play, load: Load, model: ScriptedModel, seen: dict[str, ModelRequest]
) -> None:
    stress = RunOptions(stress="distractors=2,shuffle", tool_descriptions={"add_note": "Write."})
    await play(load(CHATS), model, options=stress)
    assert tool_of(seen["hello"], "add_note").description == "Write."
    assert tool_of(seen["hello"], "get_weather").description == "Read the weather of a city"


async def test_descriptions_do_not_change_the_tools_of_the_toolset(
    play: Play, load: Load, model: ScriptedModel, toolset: Any
) -> None:
    await play(load(CHATS), model, tool_descriptions={"add_note.text": "what", "add_note": "W"})
    registry = toolset.open({}, "en").registry
    assert registry["add_note"].description == "Add a note"
    assert "description" not in registry["add_note"].parameters["properties"]["text"]


@pytest.mark.parametrize(
    ("wording", "complaint"),
    [
        ({"find_note": "x"}, "find_note: there is no tool 'find_note': did you mean find_notes?"),
        (
            {"zzz": "x"},
            "zzz: there is no tool 'zzz': choose one of find_notes, add_note, finish_note",
        ),
        (
            {"add_note.txt": "x"},
            "add_note.txt: the tool 'add_note' has no parameter 'txt': did you mean text?",
        ),
        (
            {"add_note.": "x"},
            "add_note.: the tool 'add_note' has no parameter '': choose one of text, tag",
        ),
        ({"add_note": {"fr": "x"}}, "add_note: there is no language 'fr': choose one of en, ko"),
        (
            {"add_note": {"text": "x"}},
            'add_note: write the description of a parameter as "add_note.text" = "…"',
        ),
        ({"add_note": "  "}, "tool_descriptions"),
        ({"add_note": 3}, "tool_descriptions"),
    ],
)
async def test_replay_refuses_descriptions_that_fit_no_tool(
    play: Play, load: Load, model: ScriptedModel, wording: Any, complaint: str
) -> None:
    with pytest.raises(UsageError) as raised:
        await play(load(CHATS), model, tool_descriptions=wording)
    assert complaint in str(raised.value)
    assert str(raised.value).startswith("tool_descriptions")


class ByWorld:
    """A toolset whose tools are named in the initial state."""

    name = "by world"

    def open(self, world: Mapping[str, Any], locale: str) -> BareSession:
        def tool(name: str) -> ToolDefinition:
            schema = {"type": "object", "properties": {}}
            return ToolDefinition(
                name=name, description=name, parameters=schema, handler=lambda *_: {}
            )

        registry = ToolRegistry([tool(row["id"]) for row in world["tools"]])
        return BareSession(
            registry=registry,
            assistant=BareToolset(registry=registry).assistant,
            today=day_of(None),
        )


def test_check_descriptions_finds_tools_of_any_scenario(load: Load) -> None:
    def scenario(name: str, tool: str) -> Scenario:
        world = f"{{tools: [{{id: {tool}}}]}}"
        return load(f"- {{id: {name}, locale: en, world: {world}, turns: [{{user: x}}]}}")[0]

    scenarios = [scenario("a", "first"), scenario("b", "second")]
    check_descriptions({"first": "x", "second": "y"}, ByWorld(), scenarios)
    with pytest.raises(UsageError, match=r"s\.toml: descriptions\.short: secnd: .* mean second\?"):
        check_descriptions({"secnd": "y"}, ByWorld(), scenarios, place="s.toml: descriptions.short")
