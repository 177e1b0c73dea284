"""`lhkit prompt --against`: where two renderings of one conversation differ."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from lhkit.base.errors import UsageError
from lhkit.cli.against import Conversation, Rendering, compare_prompts
from lhkit.cli.doctor import DoctorOptions, examine
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.evaluate import evaluate
from lhkit.cli.export import ExportOptions, export_run
from lhkit.cli.prompt import PromptOptions, show_prompt
from lhkit.conversation.messages import ModelMessage, ToolCallMessage, UserMessage
from lhkit.conversation.tool_results import ToolOk
from lhkit.models.base import ModelRequest
from lhkit.models.client.chat_template import ChatTemplate
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint
from lhkit.settings import Settings
from lhkit.tools.definition import ToolDefinition
from tests.models.dialects.chat_templates import NEWEST, revision_text
from tests.models.fake_llama_cpp import PROPS, FakeLlamaCpp, native
from tests.models.fake_vllm import (
    Behaviour,
    FakeVllm,
    answers,
    completion,
    models,
    streams,
)
from tests.models.templates_of_tests import FUNCTIONGEMMA, GEMMA3, GEMMA4
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 6, 15)
TOOLS = tuple(
    ToolDefinition(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": {
                "beta": {"type": "string", "description": "이름"},
                "alpha": {"type": "integer", "description": "number"},
            },
            "required": ["beta", "alpha"],
        },
        handler=lambda _args, _deps: ToolOk({}),
    )
    for name, description in (("add", "Add a row."), ("look", "보기"))
)
REQUEST = ModelRequest(
    messages=(
        UserMessage(text="우유 추가해줘"),
        ToolCallMessage.of(
            name="add", args={"beta": "우유", "alpha": 1}, result=ToolOk({"id": 7, "is_new": True})
        ),
        ModelMessage(text="추가했어요."),
        UserMessage(text="And eggs?"),
    ),
    tools=TOOLS,
    instructions="Be kind.",
)

DRIFTS = {
    "doubled bos": ("{{- bos_token -}}", "{{- bos_token + bos_token -}}", "start"),
    "no bos": ("{{- bos_token -}}", "", "start"),
    "no new line after system": ("'<|turn>system\\n'", "'<|turn>system'", "instructions"),
    "space before instructions": (
        "messages[0].content | trim",
        "' ' + messages[0].content",
        "instructions",
    ),
    "instructions after tools": (
        "{{- '<turn|>\\n' -}}\n{%- endif -%}\n{%- set ns",
        "{{- messages[0].content + '<turn|>\\n' -}}\n{%- endif -%}\n{%- set ns",
        "instructions",
    ),
    "lower-case type": ("p.type | upper", "p.type | lower", "tool"),
    "types as they are": ("OBJECT", "object", "tool"),
    "unsorted properties": (
        "f.parameters.properties | dictsort",
        "f.parameters.properties.items()",
        "tool",
    ),
    "sorted required": (
        "for n in f.parameters.required",
        "for n in f.parameters.required | sort",
        "tool",
    ),
    "no required": ("{%- if f.parameters.required -%}", "{%- if false -%}", "tool"),
    "no description": ("description:<|\"|>' + f.description", "description:<|\"|>'", "tool"),
    "space after comma": ("{{ ',' if not loop.last }}\n", "{{ ', ' if not loop.last }}\n", "tool"),
    "tools in reverse": ("for tool in tools or []", "for tool in (tools or []) | reverse", "tool"),
    "plain quotes": (
        '{%- if v is string -%}<|"|>{{ v }}<|"|>',
        '{%- if v is string -%}"{{ v }}"',
        "call",
    ),
    "arguments in their order": (
        "for key, item in v | dictsort",
        "for key, item in v.items()",
        "call",
    ),
    "Python's booleans": ("{{ 'true' if v else 'false' }}", "{{ v }}", "result"),
    "no prefix of calls": ("'<|tool_call>call:'", "'<|tool_call>'", "call"),
    "result of no tool": (
        "'<|tool_response>response:' + r.name",
        "'<|tool_response>response:unknown'",
        "result",
    ),
    "role assistant": (
        "'<|turn>model\\n' if not ns.open",
        "'<|turn>assistant\\n' if not ns.open",
        "message",
    ),
    "user text is not trimmed at its end": (
        "m.content | trim + '<turn|>",
        "m.content + ' <turn|>",
        "message",
    ),
    "no new line after a turn": ("| trim + '<turn|>\\n'", "| trim + '<turn|>'", "message"),
    "no open turn": (
        "{{- '<|turn>model\\n' if add_generation_prompt and not ns.open -}}",
        "",
        "message",
    ),
    "two new lines after the role": ("'<|turn>user\\n'", "'<|turn>user\\n\\n'", "message"),
}


@pytest.fixture
def gemma4() -> Rendering:
    """Return a rendering that keeps its process."""
    return Rendering(dialect="gemma4", template=template(GEMMA4))


@pytest.mark.slow  # renders in processes
@check_rows("drift", DRIFTS)
async def test_against_shows_every_drift_of_a_template(
    drift: str, gemma4: Rendering, tmp_path: Path
) -> None:
    before, after, kind = DRIFTS[drift]
    assert before in GEMMA4
    file = tmp_path / "chat_template.jinja"
    file.write_text(GEMMA4.replace(before, after), encoding="utf-8")
    comparison = await against(str(file), gemma4)
    assert comparison.places
    assert kind in {place.kind for place in comparison.places}
    joined = [(place.ours, place.theirs) for place in comparison.places]
    assert all(ours != theirs for ours, theirs in joined)


def test_drifts_are_at_least_twenty() -> None:
    assert len(DRIFTS) >= 20


def template(text: str) -> ChatTemplate:
    return ChatTemplate(text=text, source="of a test", now=NOW)


async def against(what: str, rendering: Rendering, **more: Any) -> Any:
    conversation = Conversation(first=REQUEST, last=REQUEST, is_whole=True)
    given: dict[str, Any] = {"model": None, "settings": Settings(base_url=None), **more}
    return await compare_prompts(what, conversation, None, rendering, **given)


@pytest.mark.longer
async def test_against_the_same_template_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(GEMMA4, encoding="utf-8")
    rendering = Rendering(dialect=None, template=template(GEMMA4))
    for what in (tmp_path, tmp_path / "chat_template.jinja"):
        comparison = await against(str(what), rendering)
        assert (comparison.places, comparison.dialect) == ((), "gemma4")


@pytest.mark.longer
async def test_against_names_message_and_tool_of_each_place(tmp_path: Path) -> None:
    changed = GEMMA4.replace("p.type | upper", "p.type").replace(
        "trim + '<turn|>", "trim + '!<turn|>"
    )
    (tmp_path / "t.jinja").write_text(changed, encoding="utf-8")
    rendering = Rendering(dialect=None, template=template(GEMMA4))
    places = (await against(str(tmp_path / "t.jinja"), rendering)).places
    assert [(place.kind, place.name, place.number, place.role) for place in places] == [
        ("tool", "add", 0, ""),
        ("tool", "add", 0, ""),
        ("tool", "look", 0, ""),
        ("tool", "look", 0, ""),
        ("message", "", 1, "user"),
        ("message", "", 3, "user"),
    ]
    assert (places[0].ours, places[0].theirs) == ("INTEGER", "integer")
    assert (places[-1].before[-5:], places[-1].ours, places[-1].theirs) == ("eggs?", "", "!")


@pytest.mark.longer
async def test_against_of_prompted_dialect_compares_the_turns(tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text(GEMMA3, encoding="utf-8")
    same = await against(str(tmp_path / "t.jinja"), Rendering(dialect=None))
    assert (same.places, same.dialect) == ((), "json")
    (tmp_path / "t.jinja").write_text(GEMMA3.replace("<end_of_turn>\\n", "<end_of_turn>"))
    assert len((await against(str(tmp_path / "t.jinja"), Rendering(dialect="json"))).places) > 1


@pytest.mark.longer
@pytest.mark.parametrize(
    ("locale", "first"),
    [
        ("en", "4 places differ between the prompt of lhkit (dialect gemma4)"),
        ("ko", "lhkit의 프롬프트(호출 형식 gemma4)와"),
    ],
)
async def test_prompt_against_prints_places_and_exits_with_1(
    locale: str, first: str, *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jinja").write_text(GEMMA4, encoding="utf-8")
    (tmp_path / "b.jinja").write_text(GEMMA4.replace("OBJECT", "object"), encoding="utf-8")
    one_tool = tmp_path / "tools.py"
    one_tool.write_text(
        "from lhkit import ToolRegistry\nregistry = ToolRegistry()\n\n\n"
        + "".join(
            f'@registry.tool()\ndef {name}() -> dict:\n    """Look."""\n    return {{}}\n\n\n'
            for name in ("one", "two", "three", "four")
        ),
        encoding="utf-8",
    )
    options = PromptOptions(
        toolset=f"{one_tool}:registry",
        against=str(tmp_path / "b.jinja"),
        chat_template=tmp_path / "a.jinja",
    )
    settings = Settings(locale=locale, base_url=None)
    assert await show_prompt(options, settings) == 1
    printed = capsys.readouterr().out
    assert first in printed
    assert all(name in printed for name in ("one", "two", "three", "four", "OBJECT", "object"))
    same = options.model_copy(update={"against": str(tmp_path / "a.jinja"), "as_json": True})
    assert await show_prompt(same, settings) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["identical"], report["places"]) == (True, [])
    assert report["prompt"] == report["other"]


SCENARIO = """
- id: hello
  ac: AC-12
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns: [{user: hello, reply: {contains_any: [right]}}]
"""


@pytest.mark.longer
@pytest.mark.parametrize("keeps", [True, False])
async def test_prompt_against_run_compares_what_was_sent(
    *, keeps: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hello.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    settings = Settings(locale="en", base_url=None, cache_dir=tmp_path)
    routes = {"/v1/models": models("gemma-4-E2B-it")}
    async with FakeVllm(streams(completion(["right"])), routes=routes) as server:
        options = EvalOptions(
            paths=(file,),
            base_url=server.base_url,
            name="run",
            runs_dir=tmp_path,
            keep_prompts=keeps,
        )
        await evaluate(options, settings)
    asked = PromptOptions(paths=(file,), against=str(tmp_path / "run"))
    assert await show_prompt(asked, settings) == 0
    assert "The prompt is the same as that of" in capsys.readouterr().out
    other = asked.model_copy(update={"dialect": "functiongemma"})
    if keeps:
        assert await show_prompt(other, settings) == 1
    else:
        with pytest.raises(UsageError, match="Run it with --keep-prompts"):
            await show_prompt(other, settings)


async def test_prompt_against_sft_file_compares_training_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, sft = tmp_path / "hello.yaml", tmp_path / "train.jsonl"
    file.write_text(SCENARIO, encoding="utf-8")
    settings = Settings(locale="en", base_url=None, cache_dir=tmp_path)
    await export_run(ExportOptions(sft=sft, scenarios=(file,)), settings)
    options = PromptOptions(paths=(file,), against=str(sft))
    for dialect in ("json", "functiongemma", "gemma4"):
        given = options.model_copy(update={"dialect": dialect})
        assert await show_prompt(given, settings) == 0, capsys.readouterr().out
    row = json.loads(sft.read_text(encoding="utf-8").splitlines()[0])
    row["tools"][0]["function"]["description"] += " Now."
    sft.write_text(json.dumps(row) + "\n", encoding="utf-8")
    capsys.readouterr()
    assert await show_prompt(options, settings) == 1
    name = row["tools"][0]["function"]["name"]
    assert f"tool {name}" in capsys.readouterr().out
    row["messages"][1]["content"] = "something else"
    sft.write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match="No conversation of"):
        await show_prompt(options, settings)


LIFE_HELPER = ("ac12-add-one-ko-01", "ac04-check-then-log-en-01", "ac01-snack-and-oversleep-ko-01")
PANTRY = ROOT / "evals" / "pantry"


@pytest.mark.slow  # renders in processes
@pytest.mark.parametrize(
    ("given", "revision", "theirs"),
    [
        ({"scenario": LIFE_HELPER[0]}, "gemma4_v5", set()),
        *(
            pytest.param({"scenario": name}, "gemma4_v5", set(), marks=pytest.mark.nightly)
            for name in LIFE_HELPER[1:]
        ),
        ({"scenario": "pantry-freezer-roll-call-ko-01"}, "gemma4_v5", set()),
        pytest.param(
            {"scenario": "ac04-check-then-log-en-01"},
            "gemma4_v4",
            {"None"},
            marks=pytest.mark.nightly,
        ),
        ({"scenario": "ac01-snack-and-oversleep-ko-01"}, "gemma4_v2", {"<|turn>model\n"}),
    ],
)
async def test_prompt_against_googles_templates_shows_what_the_docs_say(
    given: dict[str, Any],
    revision: str,
    theirs: set[str],
    *,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The newest revision renders whole conversations as lhkit; older ones as in the table."""
    file = tmp_path / "chat_template.jinja"
    file.write_text(revision_text(revision), encoding="utf-8")
    if given["scenario"].startswith("pantry"):
        given = {**given, "toolset": f"{PANTRY}/pantry.py:toolset", "paths": (PANTRY,)}
    options = PromptOptions(against=str(file), as_json=True, **given)
    code = await show_prompt(options, Settings(base_url=None))
    report = json.loads(capsys.readouterr().out)
    assert (report["dialect"], report["is_whole"], code) == ("gemma4", True, int(bool(theirs)))
    assert {place["theirs"] for place in report["places"]} == theirs


def renders(text: str) -> Behaviour:
    """Answer as a server that renders chat messages with this template."""

    async def behave(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        variables = {
            name: body.get(name) for name in ("messages", "tools", "add_generation_prompt")
        }
        prompt = template(text).render(variables)
        if request.path == "/apply-template":
            return web.json_response({"prompt": prompt.removeprefix("<bos>")})
        return web.json_response({"tokens": [ord(char) for char in prompt]})

    return behave


async def detokenizes(request: web.Request) -> web.StreamResponse:
    ids = (await request.json())["tokens"]
    return web.json_response({"prompt": "".join(map(chr, ids))})


SPACED = GEMMA3.replace("m.content +", "' ' + m.content +")
FIRST = ModelRequest(messages=REQUEST.messages[:1], tools=TOOLS, instructions="Be kind.")


@pytest.mark.longer
@check_rows("server", ["vllm", "llama.cpp"])
@check_rows(("text", "count"), [(GEMMA4, 0), (GEMMA4.replace("OBJECT", "object"), 2)])
async def test_against_server_takes_its_own_rendering(server: str, text: str, count: int) -> None:
    if server == "vllm":
        routes = {
            "/v1/models": models("gemma-4-E2B-it"),
            "/tokenize": renders(text),
            "/detokenize": detokenizes,
        }
        fake: FakeVllm = FakeVllm(routes=routes)
    else:
        fake = FakeLlamaCpp(**{"/apply-template": renders(text)})
    conversation = Conversation(first=FIRST, last=FIRST, is_whole=False)
    async with fake:
        comparison = await compare_prompts(
            fake.base_url,
            conversation,
            None,
            Rendering(dialect="gemma4", template=template(GEMMA4)),
            model=None,
            settings=Settings(base_url=None),
        )
    assert len(comparison.places) == count


async def test_against_server_without_a_template_says_so() -> None:
    routes = {"/v1/models": models("gemma-4-E2B-it")}
    async with FakeVllm(routes=routes) as server:
        with pytest.raises(UsageError, match="does not show how it renders a prompt"):
            await against(server.base_url, Rendering(dialect=None))


@check_rows(
    ("name", "text"),
    [
        ("missing.jinja", None),
        ("bad.jsonl", "{"),
        ("list.jsonl", "[1]"),
        ("tokenizer_config.json", "{}"),
    ],
)
async def test_against_reports_what_it_cannot_read(
    name: str, text: str | None, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=name.replace(".", r"\.")):
        await against(str(tmp_path / name), Rendering(dialect=None))


@pytest.mark.longer
@pytest.mark.parametrize(
    ("dialect", "text", "line", "code"),
    [
        ("json", GEMMA3, "renders a first request as lhkit does in the dialect json", 0),
        ("json", SPACED, "so this concerns other clients only", 0),
        ("json", None, "does not show how its template renders", 0),
        ("gemma4", GEMMA4.replace("OBJECT", "object"), "renders a first request differently", 3),
    ],
)
async def test_doctor_compares_rendering_of_server(
    dialect: str, text: str | None, line: str, code: int, *, capsys: pytest.CaptureFixture[str]
) -> None:
    warm = streams(completion(["네"], cached_tokens=640))
    begun = streams(completion(['{"name": "', "add"], reason="length"))
    routes = {"/tokenize": renders(text), "/detokenize": detokenizes} if text else {}
    refused = answers(400, '{"error":{"message":"no parser","code":400}}')
    more = [begun] if dialect == "json" else []
    async with FakeVllm(
        *(warm, warm, *more, refused),
        routes={**routes, "/v1/models": models(f"{dialect.replace('json', 'gemma')}")},
    ) as server:
        options = DoctorOptions(base_url=server.base_url)
        assert await examine(options, Settings(locale="en")) == code
    assert line in capsys.readouterr().out


@pytest.mark.longer
@pytest.mark.parametrize("name", ["gemma-4-E2B-it", "functiongemma-270m-it"])
async def test_doctor_finds_server_with_own_template_the_same(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server renders chat messages, in which FunctionGemma's sentence is sent too."""
    text = FUNCTIONGEMMA if name.startswith("function") else revision_text(NEWEST)
    warm = streams(completion(["네"], cached_tokens=640))
    refused = answers(400, '{"error":{"message":"no parser","code":400}}')
    routes = {"/tokenize": renders(text), "/detokenize": detokenizes, "/v1/models": models(name)}
    async with FakeVllm(warm, warm, refused, routes=routes) as server:
        assert await examine(DoctorOptions(base_url=server.base_url), Settings(locale="en")) == 0
    assert "renders a first request as lhkit does" in capsys.readouterr().out


@pytest.mark.longer
async def test_llama_cpp_template_renders_the_prompts() -> None:
    """The served template is the source: it is asked for once, and its hash is in the identity."""
    sent: list[str] = []

    async def tokenizes(request: web.Request) -> web.StreamResponse:
        sent.append((await request.json())["content"])
        return web.json_response({"tokens": [2, 3]})

    async def detokenizes_one(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"content": "<x>"})

    changed = GEMMA4.replace("OBJECT", "THING")
    props = json.dumps({**json.loads(PROPS), "chat_template": changed})
    fake = FakeLlamaCpp(
        streams(native(["네"])),
        **{
            "/props": answers(200, props),
            "/tokenize": tokenizes,
            "/detokenize": detokenizes_one,
        },
    )
    async with fake as server:
        model = await connect(Endpoint(base_url=server.base_url))
        assert [event async for event in model.stream(FIRST)]
        await model.aclose()
    assert model.identity.dialect == "gemma4"
    assert model.identity.template_sha256 == template(changed).sha256
    assert "THING" in sent[-1]
    assert FUNCTIONGEMMA not in sent
