"""The import of data sets of calls: each shape in, one response scored, spoiled answers fail."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lhkit.base.errors import UsageError
from lhkit.cli.accept import AcceptOptions, accept_sample
from lhkit.cli.imports import import_with
from lhkit.cli.rescore import RescoreOptions, rescore_run
from lhkit.conversation.messages import ToolCall
from lhkit.harness.authoring.lint import scenario_remarks
from lhkit.harness.authoring.mutate import mutate
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.running.run import replay
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.imports.calls import import_calls
from lhkit.imports.importers import Loss
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.settings import load_settings
from lhkit.toolset import Toolset, load, opened

pytestmark = pytest.mark.anyio

Calls = Sequence[tuple[str, dict[str, Any]]]

MAIL = {"to": "bo@x.org", "subject": "Tee"}
ANN, BO = {"first_name": "Ann", "last_name": "Lee"}, {"first_name": "Bo", "last_name": "Ray"}


class Row(NamedTuple):
    """What every format writes: a question, the calls, or the reply where no tool applies."""

    user: str
    calls: Calls = ()
    reply: str = ""


ROWS = (
    Row("Show me Bonn", [("show_map", {"query": "Bonn"})]),
    Row("불 켜 줘", [("turn_on_light", {})]),
    Row("Mail Bo, then light", [("send_email", MAIL), ("turn_on_light", {})]),
    Row("Add Ann and Bo", [("create_contact", ANN), ("create_contact", BO)]),
    Row("Sing a song", reply="I cannot sing."),
)


def schema(kind: str = "string", top: str = "object") -> dict[str, Any]:
    names = {"show_map": ["query"], "send_email": ["to", "subject"], "turn_on_light": []}
    return {
        name: {
            "type": top,
            "properties": {field: {"type": kind, "description": field} for field in fields},
            **({"required": fields} if fields else {}),
        }
        for name, fields in {**names, "create_contact": ["first_name", "last_name"]}.items()
    }


def function(name: str, parameters: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "parameters": parameters}


PLAIN = [function(name, parameters) for name, parameters in schema().items()]
CAPITALS = [
    {"function": function(name, parameters)}
    for name, parameters in schema("STRING", "OBJECT").items()
]


def mobile_actions(row: Row, number: int) -> dict[str, Any]:
    tools = [CAPITALS[2], {"function": {"name": "stop", "parameters": None}}, *CAPITALS[:2]]
    listed = [*tools, CAPITALS[3]] if number % 2 else [*CAPITALS]
    calls = [{"function": {"name": name, "arguments": args}} for name, args in row.calls]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    return {
        "metadata": "eval" if number else "train",
        "tools": listed,
        "messages": [
            {"role": "developer", "content": f"Day {number}. You can do function calling."},
            {"role": "user", "content": row.user},
            message if calls else {"role": "assistant", "content": row.reply, "tool_calls": None},
        ],
    }


def padded(row: Row, number: int) -> dict[str, Any]:
    """Return a row as an Arrow table gives it back: each object has the fields of all."""
    names = ("query", "to", "subject", "first_name", "last_name")
    made = mobile_actions(row, number)
    for tool in made["tools"]:
        inner = tool["function"]
        inner.setdefault("description", None)
        if inner["parameters"] is not None:
            table = inner["parameters"]["properties"]
            inner["parameters"] = {
                "type": "OBJECT",
                "required": inner["parameters"].get("required"),
                "properties": {name: table.get(name) for name in names},
            }
    for message in made["messages"]:
        message.setdefault("tool_calls", None)
        for each in message["tool_calls"] or ():
            args = each["function"]["arguments"]
            each["function"]["arguments"] = {name: args.get(name) for name in names}
    return made


def openai(row: Row, number: int) -> dict[str, Any]:
    encoded = [
        {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(args)},
        }
        for n, (name, args) in enumerate(row.calls)
    ]
    if number == 3:  # encoded twice
        for each in encoded:
            each["function"]["arguments"] = json.dumps(each["function"]["arguments"])
    last = {"role": "assistant", "content": row.reply or None, "tool_calls": encoded or None}
    tools = [{"type": "function", "function": tool} for tool in PLAIN]
    messages = [{"role": "system", "content": "Help."}, {"role": "user", "content": row.user}]
    return {"messages": [*messages, last], "tools": tools, "split": "test"}


def hermes(row: Row, number: int) -> dict[str, Any]:
    described = repr([{"type": "function", "function": tool} for tool in PLAIN])
    texts = [repr({"arguments": args, "name": name}) for name, args in row.calls]
    return {
        "id": f"u-{number}",
        "category": "Home",
        "conversations": [
            {
                "from": "system",
                "value": "You are a function calling AI model. You are provided with function "
                "signatures within <tools> </tools> XML tags. Be brief.\n"
                f"<tools>\n{described}\n</tools>\nFor each function call return a json object with "
                "function name and arguments within <tool_call> </tool_call> tags with the "
                "following schema:\n<tool_call>\n{'arguments': <args-dict>, 'name': "
                "<function-name>}\n</tool_call>\n",
            },
            {"from": "human", "value": row.user},
            {
                "from": "gpt",
                "value": "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in texts)
                or row.reply,
            },
        ],
    }


def xlam(row: Row, number: int) -> dict[str, Any]:
    tools = [
        {
            **function(tool["name"], None),
            "parameters": {
                field: {"type": "str", "description": field}
                for field in tool["parameters"]["properties"]
            }
            | {"note": {"type": "List[int], optional", "description": "More."}},
        }
        for tool in PLAIN
    ]
    calls = [{"name": name, "arguments": args} for name, args in row.calls]
    answers = json.dumps(calls) if calls else "[]"
    return {"id": number, "query": row.user, "answers": answers, "tools": json.dumps(tools)}


def toolace(row: Row, _number: int) -> dict[str, Any]:
    tools = [
        {**tool, "name": tool["name"].replace("_", " ").title(), "required": None}
        for tool in json.loads(json.dumps(PLAIN).replace('"object"', '"dict"'))
    ]
    calls = ", ".join(
        f"{name.replace('_', ' ').title()}({', '.join(f'{k}={v!r}' for k, v in args.items())})"
        for name, args in row.calls
    )
    return {
        "system": "You are an expert in composing functions.\nHere is a list of functions in JSON "
        f"format that you can invoke:\n{json.dumps(tools)}. \nShould you decide to return the "
        "function call(s). \nPut it in the format of [func1(params_name=params_value), func2("
        "params)]\n\nNO other text MUST be included. \n",
        "conversations": [
            {"from": "user", "value": row.user},
            {"from": "assistant", "value": f"[{calls}]" if calls else row.reply},
        ],
    }


def glaive(row: Row, _number: int) -> dict[str, Any]:
    described = "\n".join(json.dumps(tool, indent=4) for tool in PLAIN)
    texts = [
        f'<functioncall> {{"name": "{name}", "arguments": \'{json.dumps(args)}\'}}'
        for name, args in row.calls
    ]
    said = "\n".join(texts) or row.reply
    return {
        "system": "SYSTEM: You are a helpful assistant with access to the following functions. Use "
        f"them if required -\n{described}\n",
        "chat": f"USER: {row.user}\n\n\nASSISTANT: {said} <|endoftext|>\n\n\n",
    }


FORMATS = {
    "mobile-actions": mobile_actions,
    "padded": padded,
    "openai": openai,
    "hermes": hermes,
    "xlam": xlam,
    "toolace": toolace,
    "glaive": glaive,
}


class Imported(NamedTuple):
    code: int
    scenarios: tuple[Scenario, ...]
    toolset: Toolset
    output: list[str]
    notes: str


@pytest.fixture
def import_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    monkeypatch.setenv("LHKIT_LOCALE", "en")

    async def run(rows: Any, *, name: str = "rows.jsonl", **more: Any) -> Imported:
        file, into = tmp_path / name, tmp_path / "mine"
        if isinstance(rows, str):
            file.write_text(rows, encoding="utf-8")
        elif rows is not None:
            file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        code = await import_with("calls", load_settings(), files=[file], into=into, **more)
        return Imported(
            code,
            load_scenarios([into / "scenarios.yaml"]),
            load(f"{into}/toolset.py:toolset"),
            capsys.readouterr().out.splitlines(),
            (into / "NOTES.md").read_text(encoding="utf-8"),
        )

    return run


async def passes(scenario: Scenario, toolset: Toolset, *replies: Reply) -> bool:
    return (await run_sample(scenario, ScriptedModel([*replies]), toolset)).is_passed


def message(calls: Calls) -> Reply:
    made = tuple(ToolCall(name=name, args=args) for name, args in calls)
    return Reply(calls=made) if made else say("No.")


def spoiled(calls: Calls) -> dict[str, Calls]:
    """Return answers with one mistake each."""
    extra = ("show_map", {"query": "Ulm"})
    if not calls:
        return {"a call": [extra]}
    name, args = calls[0]
    other = ("turn_on_light", {}) if name != "turn_on_light" else extra
    answers: dict[str, Calls] = {
        "name": [other, *calls[1:]],
        "extra call": [*calls, extra],
        "call twice": [*calls, calls[-1]],
        "no call": [],
    }
    if args:
        field = next(iter(args))
        answers["argument"] = [(name, {**args, field: f"{args[field]}x"}), *calls[1:]]
        answers["more arguments"] = [(name, {**args, "note": "x"}), *calls[1:]]
    if len(calls) > 1:
        answers["order"] = calls[::-1]
        answers["a call less"] = calls[:-1]
    return answers


# every answer of every row is played: two formats, one with nulls and one with renamed tools, are
# enough for each run of the fast suite
@pytest.mark.longer
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in {"padded", "toolace"} else pytest.mark.slow)
        for name in FORMATS
    ],
)
async def test_import_calls_scores_one_response_in_every_format(
    name: str, import_rows: Any
) -> None:
    rows = [FORMATS[name](row, number) for number, row in enumerate(ROWS)]
    imported = await import_rows(rows)
    assert (imported.code, len(imported.scenarios)) == (0, len(ROWS))
    assert imported.output[-1].startswith(f"{len(ROWS)} of {len(ROWS)}")
    run = await replay(imported.scenarios, gold_model, toolset=imported.toolset, progress=False)
    assert [record.is_passed for record in run.records] == [True] * len(ROWS)
    shape = "mobile-actions" if name == "padded" else name
    for row, scenario in zip(ROWS, imported.scenarios, strict=True):
        assert shape in scenario.tags
        rename = {new.title().replace("_", " "): new for new, _ in row.calls}
        tools = [each.tool for turn in scenario.turns for each in turn.expect.calls]
        names = {tool: tool.lower() for tool in tools}  # ToolACE's names have capitals
        assert sorted(names.values()) == sorted(set(rename.values()))
        back = {lower: tool for tool, lower in names.items()}
        with opened(imported.toolset, scenario.world, scenario.locale) as session:
            listed = {tool.lower(): tool for tool in session.registry}
        right = [(back[tool], args) for tool, args in row.calls]
        assert await passes(scenario, imported.toolset, message(right))
        # whatever a model would do after it, its one response was right
        assert await passes(scenario, imported.toolset, message(right), message([*right, *right]))
        for kind, calls in spoiled(row.calls).items():
            wrong = [(listed[tool], args) for tool, args in calls]
            # the right answer after it is too late
            replies = message(wrong), message(right)
            assert not await passes(scenario, imported.toolset, *replies), f"{row}: {kind}"


async def test_import_calls_plays_a_row_with_its_tools_only(import_rows: Any) -> None:
    rows = [mobile_actions(row, number) for number, row in enumerate(ROWS)]
    imported = await import_rows(rows)
    for row, scenario in zip(rows, imported.scenarios, strict=True):
        with opened(imported.toolset, scenario.world, scenario.locale) as session:
            assert list(session.registry) == [tool["function"]["name"] for tool in row["tools"]]
            assert session.assistant.instructions == row["messages"][0]["content"]
    assert [scenario.tags[2:] for scenario in imported.scenarios] == [("train",)] + [("eval",)] * 4


async def test_import_calls_imports_one_split(import_rows: Any) -> None:
    rows = [mobile_actions(row, number) for number, row in enumerate(ROWS)]
    with pytest.raises(UsageError, match=r"'test': give one of train \(1\), eval \(4\)"):
        await import_rows(rows, split="test")
    imported = await import_rows(rows, split="eval")
    assert [scenario.id for scenario in imported.scenarios] == [f"rows-{n}" for n in range(2, 6)]
    assert "split eval: 4 of 5 rows" in imported.output


async def test_import_calls_prints_formats_and_guessed_writes(import_rows: Any) -> None:
    imported = await import_rows([openai(row, number) for number, row in enumerate(ROWS)])
    assert "format: openai 5" in imported.output
    (line,) = [line for line in imported.output if line.startswith("asks before: ")]
    assert line.startswith("asks before: send_email, turn_on_light, create_contact; only reads:")
    assert "show_map" in line


XLAM = {"query": "Show Bonn", "tools": json.dumps(PLAIN[:1])}
GLAIVE = glaive(ROWS[0], 0)
TOOLACE = toolace(ROWS[0], 0)


def spoken(row: Any, text: str) -> dict[str, Any]:
    conversations = [row["conversations"][0], {"from": "assistant", "value": text}]
    return {**row, "conversations": conversations}


NO_MEANING: dict[str, tuple[Any, str]] = {
    "broken line": ('{"query": ', "not valid JSON"),
    "answers that are no JSON": ({**XLAM, "answers": "[{'name': sh"}, "answers is not valid JSON"),
    "blank answers": ({**XLAM, "answers": ""}, "answers is empty"),
    "null answers": ({**XLAM, "answers": None}, "answers is empty"),
    "null answers as text": ({**XLAM, "answers": " null"}, "answers is empty"),
    "None as answers": ({**XLAM, "answers": "None"}, "answers is empty"),
    "answers of nothing but null": ({**XLAM, "answers": "[null]"}, "answers is empty"),
    "answers that are an empty object": ({**XLAM, "answers": "{}"}, "answers is empty"),
    "a call of no tool": (
        {**XLAM, "answers": '[{"name": "fly", "arguments": {}}]'},
        "fly, which is not among the listed tools",
    ),
    "arguments that are a list": (
        {**XLAM, "answers": '[{"name": "show_map", "arguments": [1]}]'},
        "not a JSON object",
    ),
    "arguments that the tool refuses": (
        {**XLAM, "answers": '[{"name": "show_map", "arguments": {"query": 3}}]'},
        "refuses its arguments",
    ),
    "a call without a name": ({**XLAM, "answers": '[{"arguments": {}}]'}, "no function name"),
    "an invalid call in Glaive's text": (
        {**GLAIVE, "chat": "USER: Bonn\n\n\nASSISTANT: <functioncall> {name: show_map} "},
        "cannot be read",
    ),
    "another notation of ToolACE": (
        spoken(TOOLACE, "[Show Map-[\"query\"-'Bonn']]"),
        "cannot be read",
    ),
    "another bracket of ToolACE": (
        spoken(TOOLACE, "<Show Map|<query|'Bonn'>>"),
        "cannot be read",
    ),
    "a call within ToolACE's prose": (
        spoken(TOOLACE, "Sure: [Show Map(query='Bonn')]"),
        "cannot be read",
    ),
    "a call of no tool in ToolACE's text": (spoken(TOOLACE, "[Fly To(x=1)]"), "not listed"),
    "ToolACE's calls of no tool": (spoken(TOOLACE, "[Fly(), Land.Now(at='울산')]"), "not listed"),
    "a call of no tool after words": (spoken(TOOLACE, "네: [Fly To(x=1)]"), "not listed"),
    "a call without arguments after words": (
        spoken(TOOLACE, "Sure: [Turn On Light()]"),
        "cannot be read",
    ),
    "a call on its own line": (
        spoken(TOOLACE, "Here you are.\nTurn On Light()\n"),
        "cannot be read",
    ),
    "a call of no tool without brackets": (spoken(TOOLACE, "fly_to(x='a (b)')"), "not listed"),
    "Llama's call of no tool": (
        spoken(TOOLACE, '{"name": "fly", "parameters": {"to": "Bonn"}}'),
        "not listed",
    ),
    "JSON of a call of no tool after words": (
        spoken(TOOLACE, 'Sure. {"name": "fly", "arguments": {}}'),
        "not listed",
    ),
    "a half call in Hermes' text": (
        spoken(hermes(ROWS[0], 0), "<tool_call>\n{'name': 'show_map', 'arg"),
        "cannot be read",
    ),
    "names of tools in brackets": (spoken(TOOLACE, "[Show Map, Turn On Light]"), "cannot be read"),
    "the name of a tool": (spoken(TOOLACE, "Turn On Light"), "cannot be read"),
    "an argument twice": (spoken(TOOLACE, "[Show Map(query='x', query='y')]"), "cannot be read"),
    "an argument twice, in JSON": (
        spoken(
            hermes(ROWS[0], 0),
            '<tool_call>{"name": "show_map", "arguments": {"query": 1, "query": 2}}</tool_call>',
        ),
        "cannot be read",
    ),
    "an argument twice, as text": (
        json.dumps(openai(ROWS[0], 0)).replace('Bonn\\"}', 'Bonn\\", \\"query\\": \\"Ulm\\"}'),
        "not a JSON object",
    ),
    "tools that are no list": ({**XLAM, "answers": "[]", "tools": "show_map"}, "tools is not a"),
    "two tools of one name": (
        {**XLAM, "answers": "[]", "tools": json.dumps([{"name": "a b"}, {"name": "a_b"}])},
        "two tools would be called a_b",
    ),
}


async def test_import_calls_names_each_row_that_has_no_single_meaning(import_rows: Any) -> None:
    good = json.dumps(xlam(ROWS[0], 0))
    lines = [t if isinstance(t, str) else json.dumps(t) for t, _ in NO_MEANING.values()]
    imported = await import_rows("\n".join([good, *lines, good]))
    count = len(lines) + 2
    assert imported.code == 1
    assert [each.id for each in imported.scenarios] == ["rows-01", f"rows-{count}"]
    assert imported.output[-1].startswith(f"2 of {count} conversations; {len(lines)} left out: ")
    listed = imported.notes.partition("## Left out\n\n")[2].splitlines()
    for number, (kind, (_, reason)) in enumerate(NO_MEANING.items(), start=2):
        (line,) = [line for line in listed if line.startswith(f"- rows.jsonl:{number}: ")]
        assert reason in line, kind


async def test_import_calls_fails_if_no_row_can_be_read(import_rows: Any) -> None:
    with pytest.raises(UsageError, match=r"rows\.jsonl is not valid JSON: .* line 2"):
        await import_rows('{"query": \n{"answers"')
    with pytest.raises(UsageError, match="not a row of the format xlam: no answers, query"):
        await import_rows([openai(ROWS[0], 0)], format="xlam")
    with pytest.raises(UsageError, match="Unknown format 'csv': give one of"):
        await import_rows([openai(ROWS[0], 0)], format="csv")


def arrow_rows() -> list[dict[str, Any]]:
    rows = [padded(row, number) for number, row in enumerate(ROWS)]
    for row in rows:
        for tool in row["tools"]:
            tool["function"].setdefault("parameters", None)
    return rows


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["parquet", "text", "saved", "repository"])
async def test_import_calls_reads_tables_and_folders(
    kind: str, import_rows: Any, tmp_path: Path
) -> None:
    import pyarrow
    from pyarrow import ipc, parquet

    rows: Any = arrow_rows()
    if kind == "text":  # what `load_dataset("text")` makes of JSON lines
        rows = [{"text": json.dumps(row)} for row in rows]
    table = pyarrow.Table.from_pylist(rows)
    name = "rows.parquet" if kind in {"parquet", "text"} else "rows"
    if kind in {"parquet", "text"}:
        parquet.write_table(table, tmp_path / name)
    elif kind == "repository":
        (tmp_path / name / "data").mkdir(parents=True)
        (tmp_path / name / ".cache").mkdir()
        (tmp_path / name / ".cache" / "x.json").write_text("{")
        parquet.write_table(table, tmp_path / name / "data" / "test-00000-of-00001.parquet")
    else:
        folder = tmp_path / name / "test"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text("{}")
        with ipc.new_stream(folder / "data-00000-of-00001.arrow", table.schema) as stream:
            stream.write_table(table)
    imported = await import_rows(None, name=name)
    assert (imported.code, len(imported.scenarios)) == (0, len(ROWS))
    for row, scenario in zip(ROWS, imported.scenarios, strict=True):
        calls = [(c.tool, dict(c.args)) for t in scenario.turns for c in t.expect.calls]
        assert calls == list(row.calls)
    assert "Omitted nulls in arguments" in imported.notes


async def test_import_calls_refuses_an_invalid_table(import_rows: Any) -> None:
    with pytest.raises(UsageError, match=r"rows\.parquet is not a valid parquet file: "):
        await import_rows("no table", name="rows.parquet")


async def test_import_calls_plays_on_where_results_are_recorded(import_rows: Any) -> None:
    def calls(name: str, **args: Any) -> dict[str, Any]:
        function = {"name": name, "arguments": args}
        return {"role": "assistant", "tool_calls": [{"function": function}]}

    def ask(text: str) -> dict[str, Any]:
        return {"role": "user", "content": text}

    gemma = {"role": "tool", "content": [{"name": "show_map", "response": {"zoom": 3}}]}
    bonn, mail = calls("show_map", query="Bonn"), calls("send_email", **MAIL)
    imported = await import_rows(
        [
            {"tools": PLAIN, "messages": [ask("Map"), bonn, gemma, mail]},
            {"tools": PLAIN, "messages": [ask("Map"), bonn, gemma, ask("Mail Bo"), mail]},
            {
                "tools": PLAIN,
                "messages": [ask("Map"), bonn, gemma, {"role": "assistant", "content": "There."}],
            },
        ]
    )
    assert imported.code == 0
    one_turn, two_turns, whole = imported.scenarios
    right = [call("show_map", query="Bonn"), call("send_email", **MAIL)]
    assert await passes(one_turn, imported.toolset, *right)
    assert not await passes(one_turn, imported.toolset, call("show_map", query="x"), *right)
    assert not await passes(one_turn, imported.toolset, right[0], say("Done."))
    assert await passes(two_turns, imported.toolset, right[0], say("There."), right[1])
    assert await passes(whole, imported.toolset, right[0], say("Zoom 3."))
    assert await passes(
        whole, imported.toolset, call("show_map", query="Ulm"), right[0], say("Zoom 3.")
    )  # a further read, as in recorded chats
    assert "2 scenarios lack the result of a call" in "\n".join(imported.output)


async def test_import_calls_makes_tags_of_metadata(tmp_path: Path) -> None:
    rows = [
        {**openai(ROWS[0], 0), "id": f"x{n}", "difficulty": "easy", "note": f"row {n}"}
        for n in range(21)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    imported = await import_calls([file])
    tags = ["recorded", "openai", "test", "difficulty:easy"]
    assert imported.suites[0].scenarios[0]["tags"] == tags
    assert Loss(code="metadata", where="note") in imported.losses


@pytest.mark.longer
async def test_accept_keeps_the_exact_figure_of_imported_calls(
    import_rows: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [openai(row, number) for number, row in enumerate(ROWS[:2])]
    other = json.loads(json.dumps(rows[0]).replace("Show me", "Find"))  # its own description
    other["tools"][0]["function"]["parameters"]["properties"]["query"] = {"type": "string"}
    imported = await import_rows([rows[1], rows[1], rows[0], other])
    model = ScriptedModel(
        lambda request: (
            call("show_map", query="in Bonn")
            if any("Bonn" in getattr(m, "text", "") for m in request.messages)
            else call("turn_on_light")
        )
    )
    folder = tmp_path / "runs" / "a"
    await replay(
        imported.scenarios, model, toolset=imported.toolset, run_dir=folder, progress=False
    )
    file = tmp_path / "mine" / "scenarios.yaml"
    for name in ("rows-3", "rows-4"):
        await accept_sample(AcceptOptions(run=folder, sample=name, paths=(file,)), load_settings())
    options = RescoreOptions(
        run=folder, paths=(file,), toolset=f"{tmp_path}/mine/toolset.py:toolset"
    )
    capsys.readouterr()
    await rescore_run(options, load_settings())
    cells = [line.replace("│", " ").split() for line in capsys.readouterr().out.splitlines()]
    assert ["show_map", "0/2", "0%", "2/2", "100%"] in [row[:5] for row in cells]
    assert ["total", "2/4", "50%", "4/4", "100%"] in [row[:5] for row in cells]


@pytest.mark.longer
async def test_imported_calls_need_no_reply_for_lint_and_mutate(import_rows: Any) -> None:
    imported = await import_rows([openai(row, number) for number, row in enumerate(ROWS)])
    remarks = [
        (scenario.id, remark.code)
        for scenario in imported.scenarios
        for remark in await scenario_remarks(scenario, imported.toolset)
    ]
    assert remarks == [("rows-5", "echo")]  # the reply of a row without calls
    report = await mutate(imported.scenarios[:4], imported.toolset)
    assert [mutant.key for mutant in report.survivors] == []
    assert {"swap_tool", "reorder", "drop_call"} <= {mutant.kind for mutant in report.outcomes}


MAP = {"function": {"name": "show_map", "arguments": {"query": "Bonn"}}}
ASK = {"role": "user", "content": "Bonn?"}
BONN = [("show_map", {"query": "Bonn"})]
FENCED = '```json\n{"name": "show_map", "arguments": {"query": "Bonn"}}\n```'
TAGGED = '<tool_call>\n{"name": "show_map", "arguments": {"query": "Bonn"}}\n</tool_call>'
GEMMA = "<start_function_call>call:show_map{query:<escape>Bonn<escape>}<end_function_call>"
V1 = (
    "SYSTEM: You are an helpful assistant who has access to the following functions to help the "
    f"user, you can use the functions if needed-\n{json.dumps(PLAIN[0], indent=4)}\nUSER: Bonn?\n"
    'ASSISTANT: <functioncall> {"name":"show_map", "arguments":\'{"query": "Bonn"}\'} <|endoftext|>'
)


def answered(tools: Any = PLAIN, **answer: Any) -> dict[str, Any]:
    return {"messages": [ASK, {"role": "assistant", **answer}], "tools": tools}


def sharegpt(*turns: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"conversations": [{"from": who, "value": text} for who, text in turns], **more}


TAKEN: dict[str, tuple[Any, Any]] = {
    "function_call of LLaMA-Factory": (
        sharegpt(
            ("human", "Bonn?"),
            ("function_call", json.dumps(MAP["function"])),
            tools=json.dumps(PLAIN),
            system="Be kind.",
        ),
        [BONN],
    ),
    "xlam as objects, padded": (
        {
            "query": "Bonn?",
            "tools": PLAIN,
            "answers": [{"name": "show_map", "arguments": {"query": "Bonn", "zoom": None}}],
        },
        [BONN],
    ),
    "xlam with one call, encoded twice": (
        {
            "query": "Bonn?",
            "tools": json.dumps(PLAIN),
            "answers": json.dumps({"name": "show_map", "arguments": '{"query": "Bonn"}'}),
        },
        [BONN],
    ),
    "xlam with null for no tools": ({"query": "Hi", "tools": None, "answers": "[]"}, [[]]),
    "Hermes without tools": (
        sharegpt(("system", "You are kind. <tools> [] </tools>"), ("human", "Hi"), ("gpt", "Hi!")),
        [[]],
    ),
    "code in a reply": (answered(content="Write print('x') or f[0], then see [1]."), [[]]),
    "a tool described in a reply": (
        answered(content=f"I miss {json.dumps(function('fly', {'type': 'object'}))}"),
        [[]],
    ),
    "xlam with a reply": (
        {"query": "Bonn?", "tools": json.dumps(PLAIN), "answers": "I cannot do that."},
        [[]],
    ),
    "a call while thinking": (
        sharegpt(
            ("human", "Bonn?"),
            ("gpt", f"<think>\nshow_map(query='x')?\n</think>\n{TAGGED}"),
            tools=json.dumps(PLAIN),
        ),
        [BONN],
    ),
    "Anthropic's blocks": (
        answered(
            [{**PLAIN[0], "parameters": None, "input_schema": PLAIN[0]["parameters"]}],
            content=[{"type": "tool_use", "id": "a", "name": "show_map", "input": BONN[0][1]}],
        ),
        [BONN],
    ),
    "function_call": (
        answered(function_call={"name": "show_map", "arguments": BONN[0][1]}),
        [BONN],
    ),
    "prompt and completion": (
        {
            "prompt": [ASK],
            "completion": [{"role": "assistant", "tool_calls": [MAP]}],
            "tools": PLAIN,
        },
        [BONN],
    ),
    "calls as text": (answered(tool_calls=json.dumps([MAP])), [BONN]),
    "no arguments": (
        answered(tool_calls=[{"function": {"name": "turn_on_light", "arguments": ""}}]),
        [[("turn_on_light", {})]],
    ),
    "one call twice": (answered(tool_calls=[MAP, MAP]), [BONN * 2]),
    "one tool twice": (answered([*PLAIN, PLAIN[0]], tool_calls=[MAP]), [BONN]),
    "fenced JSON": (answered(content=FENCED), [BONN]),
    "FunctionGemma's text": (answered(content=GEMMA), [BONN]),
    "tools in the instructions": (
        {
            "messages": [
                {"role": "system", "content": f"<tools>\n{json.dumps(PLAIN[0])}\n</tools>"},
                ASK,
                {"role": "assistant", "content": TAGGED},
            ]
        },
        [BONN],
    ),
    "the name of a tool in a reply": (answered(content="show_map needs a city."), [[]]),
    "Glaive's first version": ({"sample": V1}, [BONN]),
    "Python values": (
        spoken(
            {**TOOLACE, "system": TOOLACE["system"].replace("Show Map", "Show.Map")},
            "[Show.Map(query='it\\'s [Bonn], (really)')]",
        ),
        [[("Show_Map", {"query": "it's [Bonn], (really)"})]],
    ),
    "two turns": (
        {
            "messages": [
                ASK,
                {"role": "assistant", "tool_calls": [MAP]},
                {"role": "user", "content": "Licht"},
                {"role": "assistant", "tool_calls": [{"name": "turn_on_light", "args": {}}]},
            ],
            "tools": PLAIN,
        },
        [BONN, [("turn_on_light", {})]],
    ),
}


@pytest.mark.longer
async def test_import_calls_takes_other_forms_of_a_row(import_rows: Any) -> None:
    imported = await import_rows([row for row, _ in TAKEN.values()])
    taken = [
        [[(c.tool, dict(c.args)) for c in turn.expect.calls] for turn in scenario.turns]
        for scenario in imported.scenarios
    ]
    assert dict(zip(TAKEN, taken, strict=True)) == {
        kind: calls for kind, (_, calls) in TAKEN.items()
    }
    texts = [row["text"] for s in imported.scenarios for row in s.world.get("instructions", ())]
    assert not [text for text in texts if "<tool" in text or "JSON format" in text or "{" in text]


async def test_import_calls_reads_splits_of_one_file(import_rows: Any) -> None:
    rows = {"train": [xlam(ROWS[0], 0)], "test": [xlam(row, 1) for row in ROWS[:2]]}
    imported = await import_rows(json.dumps(rows), name="r.json", split="test", format="apigen")
    assert [scenario.id for scenario in imported.scenarios] == ["r-2", "r-3"]
    assert imported.scenarios[0].tags == ("recorded", "xlam", "test")
