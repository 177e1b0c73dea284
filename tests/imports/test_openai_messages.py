"""The import of recorded chats: scenarios, replayed results, losses and invalid files."""

import copy
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lhkit.base.errors import UsageError
from lhkit.cli import imports
from lhkit.cli.imports import import_with
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.imports.importers import Imported, to_scenario
from lhkit.imports.openai_messages import import_messages
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.settings import load_settings
from lhkit.toolset import Toolset, load
from tests.rows import check_rows

pytestmark = pytest.mark.anyio


def tool(name: str, description: str, *fields: str) -> dict[str, Any]:
    properties = {field: {"type": "string"} for field in fields}
    parameters = {"type": "object", "properties": properties, "required": list(fields)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = [
    tool("get_order", "Look an order up.", "order_id"),
    tool("move_order", "Send an order somewhere else.", "order_id", "city"),
]

FUNCTIONS = '''\
"""An order book as functions over data."""


def get_order(data, order_id):
    return data["orders"].get(order_id) or "Error: no such order"


class Move:
    @staticmethod
    def invoke(data, order_id, city):
        data["orders"][order_id]["city"] = city
        return "moved"


FUNCTIONS = {"get_order": get_order, "move_order": Move}
'''


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def calls(*made: tuple[str, str, dict[str, Any]], text: str | None = None) -> dict[str, Any]:
    """Return a message with calls of (id, tool, arguments), the arguments as JSON text."""
    functions = [(call_id, {"name": name, "arguments": json.dumps(a)}) for call_id, name, a in made]
    listed = [{"id": call_id, "type": "function", "function": each} for call_id, each in functions]
    return {"role": "assistant", "content": text, "tool_calls": listed}


def back(name: str, content: Any) -> dict[str, Any]:
    text = content if isinstance(content, str) else json.dumps(content)
    return {"role": "tool", "tool_call_id": name, "content": text}


CHAT = [
    {"role": "system", "content": "You keep the order book."},
    user("Where does order 7 go?"),
    calls(("a", "get_order", {"order_id": "7"})),
    back("a", {"city": "Ulm"}),
    reply("To Ulm."),
    user("Send it to Bonn instead."),
    calls(("b", "move_order", {"order_id": "7", "city": "Bonn"})),
    back("b", "moved"),
    reply("It goes to Bonn now."),
]


def put(folder: Path, content: Any, name: str = "chats.json") -> Path:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


async def imported(folder: Path, chat: Any, **more: Any) -> Imported:
    return await import_messages(put(folder, chat), **more)


def only(converted: Imported) -> Scenario:
    (written,) = converted.suites[0].scenarios
    return to_scenario(written)


async def folder_of(
    tmp_path: Path, chat: Any, into: Path | None = None, **more: Any
) -> tuple[Path, int]:
    into = into or tmp_path / "mine"
    file = put(tmp_path, chat)
    return into, await import_with("openai-messages", load_settings(), file=file, into=into, **more)


def toolset_in(into: Path) -> Toolset:
    return load(f"{into}/toolset.py:toolset")


async def test_import_messages_gold_replays_the_recording(tmp_path: Path) -> None:
    into, code = await folder_of(tmp_path, CHAT, tools=put(tmp_path, TOOLS, "tools.json"))
    scenarios = load_scenarios([into / "scenarios.yaml"])
    assert [scenario.ac for scenario in scenarios] == [None]  # a recorded chat has none
    run = await replay(
        scenarios,
        gold_model,
        toolset=toolset_in(into),
        progress=False,
    )
    (record,) = run.records
    assert code == 0
    assert record.score.verdict is Verdict.PASS
    assert [turn.reply for turn in record.trajectory.turns] == ["To Ulm.", "It goes to Bonn now."]
    results = [call.result for turn in record.trajectory.turns for call in turn.calls]
    assert [result["data"] for result in results] == [{"city": "Ulm"}, {"result": "moved"}]


@pytest.mark.parametrize(
    "form",
    [
        json.dumps([CHAT, CHAT]),
        json.dumps([{"messages": CHAT}, {"messages": CHAT}]),
        f"{json.dumps({'messages': CHAT, 'tools': TOOLS})}\n{json.dumps(CHAT)}\n",
    ],
)
async def test_import_messages_accepts_lists_objects_and_json_lines(
    tmp_path: Path, form: str
) -> None:
    converted = await imported(tmp_path, form)
    assert [scenario["id"] for scenario in converted.suites[0].scenarios] == ["chats-1", "chats-2"]


async def test_replay_handler_returns_not_recorded_for_other_calls(tmp_path: Path) -> None:
    into, _ = await folder_of(tmp_path, CHAT)
    other = ScriptedModel([call("get_order", order_id="8"), say("Nowhere."), say("No.")])
    (scenario,) = load_scenarios([into / "scenarios.yaml"])
    record = await run_sample(scenario, other, toolset_in(into))
    assert record.trajectory.turns[0].calls[0].result["code"] == "not_recorded"
    assert record.score.verdict is Verdict.FAIL


async def test_replay_handler_returns_results_of_equal_calls_in_order(tmp_path: Path) -> None:
    imported_messages = {"order_id": "7"}
    chat = [
        user("Where is it?"),
        calls(("a", "get_order", imported_messages)),
        back("a", {"city": "Ulm"}),
        reply("In Ulm."),
        user("And now?"),
        calls(("b", "get_order", imported_messages)),
        back("b", {"city": "Bonn"}),
        reply("In Bonn."),
    ]
    into, _ = await folder_of(tmp_path, chat)
    (scenario,) = load_scenarios([into / "scenarios.yaml"])
    record = await run_sample(scenario, gold_model, toolset_in(into))
    results = [call.result for turn in record.trajectory.turns for call in turn.calls]
    assert [result["data"]["city"] for result in results] == ["Ulm", "Bonn"]


async def test_import_messages_with_functions_compares_the_final_state(tmp_path: Path) -> None:
    data = put(tmp_path, {"orders": {"7": {"city": "Ulm"}, "8": {"city": "Ulm"}}}, "data.json")
    place = put(tmp_path, FUNCTIONS, "book.py")
    into, code = await folder_of(tmp_path, CHAT, handlers=f"{place}:FUNCTIONS", data=data)
    (scenario,) = load_scenarios([into / "scenarios.yaml"])
    assert code == 0
    assert scenario.final == {"orders": ({"_key": "7", "city": "Bonn"},)}
    for _ in range(2):  # a session changes nothing for the next one
        record = await run_sample(scenario, gold_model, toolset_in(into))
        assert record.score.verdict is Verdict.PASS
    wrong = ScriptedModel([call("get_order", order_id="7"), say("Ulm."), say("Bonn, done.")])
    record = await run_sample(scenario, wrong, toolset_in(into))
    assert record.score.state_equal is False


async def test_import_messages_names_a_missing_function(tmp_path: Path) -> None:
    place = put(tmp_path, "FUNCTIONS = {}", "book.py")
    with pytest.raises(UsageError, match=r"book\.py:FUNCTIONS has no function 'get_order'"):
        await imported(tmp_path, CHAT, handlers=f"{place}:FUNCTIONS")


async def test_import_messages_confirms_tools_that_may_write(tmp_path: Path) -> None:
    scenario = only(await imported(tmp_path, CHAT))
    assert [turn.confirm for turn in scenario.turns] == [(), "accept"]


async def test_import_messages_puts_differing_instructions_into_the_world(tmp_path: Path) -> None:
    other = [{"role": "system", "content": "You are rude."}, *CHAT[1:]]
    converted = await imported(tmp_path, [CHAT, CHAT, other])
    worlds = [scenario["world"].get("instructions") for scenario in converted.suites[0].scenarios]
    assert worlds == [None, None, [{"text": "You are rude."}]]
    assert converted.files["instructions.md"] == "You keep the order book."


def imported_messages(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return [user("?"), *messages, reply("1")]


X_A, RESULT_A = calls(("a", "x", {})), back("a", "1")


@check_rows(
    ("chat", "code"),
    [
        ([reply("Hello!"), *CHAT], "opening"),
        ([*CHAT, user("And?")], "no_answer"),
        ([user("?"), X_A, RESULT_A], "unanswered"),
        ([*CHAT, user(" "), reply("Yes?")], "blank"),
        ([*CHAT, {"role": "critic", "content": "Bad."}], "role"),
        (imported_messages(X_A), "no_result"),
        (imported_messages(calls(("a", "x", {}), text="Wait."), RESULT_A), "words_before_calls"),
        (
            imported_messages(calls(("a", "x", {}), ("b", "y", {})), RESULT_A, back("b", "2")),
            "parallel",
        ),
        (imported_messages(X_A, RESULT_A, calls(("b", "x", {})), back("b", "1")), "repeated"),
        ([{"role": "user", "content": ["?", {"type": "image_url"}]}, reply("A cat.")], "part"),
        ([reply("Is anybody there?")], "no_user"),
        ({"messages": CHAT, "tools": [{"type": "web_search"}]}, "builtin_tool"),
    ],
)
async def test_import_messages_reports_losses(tmp_path: Path, chat: Any, code: str) -> None:
    converted = await imported(tmp_path, chat)
    places = [loss.where for loss in converted.losses if loss.code == code]
    assert places == ["chats.json[0]"]


@pytest.mark.parametrize(
    "refusal",
    [
        {"content": None, "refusal": "I cannot."},
        {"content": [{"type": "refusal", "refusal": "I cannot."}]},
    ],
)
async def test_import_messages_takes_a_refusal_as_the_reply(
    tmp_path: Path, refusal: dict[str, Any]
) -> None:
    converted = await imported(tmp_path, [user("Do harm."), {"role": "assistant", **refusal}])
    (scenario,) = converted.suites[0].scenarios
    assert scenario["turns"][0]["gold"] == {"say": "I cannot."}
    assert converted.losses == ()


async def test_import_messages_expects_a_validation_error_for_a_corrected_call(
    tmp_path: Path,
) -> None:
    chat = [
        user("?"),
        calls(("a", "get_order", {"order_id": 7})),
        back("a", "Error"),
        calls(("b", "get_order", {"order_id": "7"})),
        back("b", "Ulm"),
        reply("Ulm."),
    ]
    converted = await imported(tmp_path, {"messages": chat, "tools": TOOLS})
    expected = only(converted).turns[0].expect.calls
    assert [(call.result, call.optional) for call in expected] == [
        ("validation", True),
        (None, False),
    ]


async def test_import_messages_drops_a_false_success_claim(tmp_path: Path) -> None:
    chat = [
        user("Cancel order 7."),
        calls(("a", "cancel_order", {"order_id": "7"})),
        back("a", "Error: it was sent"),
        reply("Done, I've cancelled your order."),
    ]
    into, code = await folder_of(tmp_path, chat)
    assert code == 0
    assert "chats-1: false" not in (into / "NOTES.md").read_text(encoding="utf-8")
    assert load_scenarios([into / "scenarios.yaml"])[0].turns[0].gold.say is None


async def test_import_messages_reports_a_claim_after_reads_only(tmp_path: Path) -> None:
    chat = [
        user("Move order 7 to Bonn."),
        calls(("a", "get_order", {"order_id": "7"})),
        back("a", '{"order_id": "7"}'),
        reply("I've moved your order to Bonn."),
    ]
    into, code = await folder_of(tmp_path, {"messages": chat, "tools": TOOLS})
    assert code == 0
    assert load_scenarios([into / "scenarios.yaml"])[0].turns[0].gold.say == chat[-1]["content"]
    notes = (into / "NOTES.md").read_text(encoding="utf-8")
    (words,) = [line for line in notes.splitlines() if line.startswith("  - chats-1: ")]
    assert "moved your order to Bonn" in words


@check_rows(
    ("text", "message"),
    [
        ("[", "is not valid JSON"),
        ("[]", "has no conversation"),
        ('{"messages": [{"content": "x"}]}', "not a valid conversation"),
        ('{"messages": []}\n{"messages"', r"chats\.json:2: not valid JSON"),
    ],
)
async def test_import_messages_refuses_a_file_without_chats(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        await folder_of(tmp_path, text)


async def test_import_messages_names_the_reason_if_no_scenario_is_left(tmp_path: Path) -> None:
    chat = [user("?"), calls(("a", "x", {"day": {"date": "tomorrow"}})), back("a", "1"), reply("1")]
    with pytest.raises(UsageError, match=r"chats\.json\[0\]: date 'tomorrow' needs a clock"):
        await folder_of(tmp_path, chat)
    assert not (tmp_path / "mine").exists()


async def test_import_messages_refuses_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    put(tmp_path, "kept", "mine.txt")
    with pytest.raises(UsageError, match="exists already: name a new folder"):
        await folder_of(tmp_path, CHAT, tmp_path)


def tool_calls(*made: tuple[str | None, str, Any]) -> dict[str, Any]:
    listed = [
        {"function": {"name": name, "arguments": args}} | ({"id": call_id} if call_id else {})
        for call_id, name, args in made
    ]
    return {"role": "assistant", "content": None, "tool_calls": listed}


def result(content: Any, **keys: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, **keys}


def recorded(converted: Imported) -> list[tuple[Any, Any]]:
    (scenario,) = converted.suites[0].scenarios
    return [(row["args"], row.get("result")) for row in scenario["world"]["recorded"]]


OSLO, BONN = {"city": "Oslo"}, {"city": "Bonn"}


NO_IDS = tool_calls((None, "w", OSLO), (None, "w", BONN))
SAME_IDS = tool_calls(("a", "w", OSLO), ("a", "w", BONN))
SUN, RAIN = result("sun"), result("rain")
SUN_A, RAIN_A = result("sun", tool_call_id="a"), result("rain", tool_call_id="a")


@check_rows(
    "messages",
    [
        [NO_IDS, SUN, RAIN],
        [SAME_IDS, SUN, RAIN],
        [SAME_IDS, SUN_A, RAIN_A],
        [NO_IDS, result("sun", name="w"), result("rain", name="w")],
        [
            tool_calls((None, "w", OSLO), (None, "v", BONN)),
            result("rain", name="v"),
            result("sun", name="w"),
        ],
        [tool_calls(("a", "w", OSLO), ("b", "w", BONN)), result("rain", tool_call_id="b"), SUN_A],
        [
            tool_calls(("a", "w", OSLO), ("a", "v", BONN)),
            result("rain", tool_call_id="a", name="v"),
            result("sun", tool_call_id="a", name="w"),
        ],
        [tool_calls((None, "w", OSLO)), tool_calls((None, "w", BONN)), SUN, RAIN],
        [
            tool_calls(("a", "w", OSLO)),
            SUN_A,
            *(reply("Sun."), user("And there?")),
            tool_calls(("a", "w", BONN)),
            RAIN_A,
        ],
    ],
)
async def test_turn_reader_assigns_results_to_calls(tmp_path: Path, messages: list[Any]) -> None:
    converted = await imported(tmp_path, [user("?"), *messages, reply("Sun and rain.")])
    assert recorded(converted) == [(OSLO, "sun"), (BONN, "rain")]
    assert not {"no_result", "stray_result"} & {loss.code for loss in converted.losses}


async def test_turn_reader_reports_stray_results(tmp_path: Path) -> None:
    chat = [
        user("?"),
        tool_calls(("a", "w", OSLO)),
        reply("No answer."),
        user("And there?"),
        tool_calls(("b", "w", BONN)),
        result("rain"),
        result("ice", tool_call_id="z"),
        reply("Rain."),
    ]
    converted = await imported(tmp_path, chat)
    assert recorded(converted) == [(OSLO, None), (BONN, "rain")]
    lost = [(loss.code, loss.detail) for loss in converted.losses if "result" in loss.code]
    assert sorted(lost) == [("no_result", "w"), ("stray_result", "ice")]


@check_rows(
    ("content", "read"),
    [
        ({"sky": "blue"}, {"sky": "blue"}),
        ([{"sky": "blue"}, 3], [{"sky": "blue"}, 3]),
        ([{"type": "hotel", "name": "x"}], [{"type": "hotel", "name": "x"}]),
        (["Oslo", "Bonn"], ["Oslo", "Bonn"]),
        ([{"type": "text", "text": "blue"}], "blue"),
        (7, 7),
        (0, 0),
        (False, False),
        ("", ""),
        ([], []),
        (None, None),
        ('{"n": NaN}', '{"n": NaN}'),
        ('{"n": "\\ud800"}', '{"n": "\\ud800"}'),
        ("[" * 100_000, "[" * 100_000),
        ("[" * 2000 + "]" * 2000, "[" * 2000 + "]" * 2000),
    ],
    ids=repr,
)
async def test_turn_reader_keeps_the_content_of_results(
    tmp_path: Path, content: Any, read: Any
) -> None:
    chat = [user("?"), tool_calls(("a", "w", OSLO)), result(content, tool_call_id="a"), reply("Ok")]
    assert recorded(await imported(tmp_path, chat)) == [(OSLO, read)]


async def test_turn_reader_encodes_object_content(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": OSLO}, reply("Sun.")]
    assert only(await imported(tmp_path, chat)).turns[0].user == '{"city":"Oslo"}'


async def test_import_messages_accepts_calls_and_tools_as_json_text(tmp_path: Path) -> None:
    function = json.dumps({"name": "get_order", "arguments": '{"order_id": "7"}'})
    call_text = json.dumps([{"id": "a", "function": function}])
    messages = [
        user("?"),
        {"role": "assistant", "tool_calls": call_text},
        back("a", "Ulm"),
        reply("To Ulm."),
    ]
    converted = await imported(tmp_path, {"messages": messages, "tools": json.dumps(TOOLS)})
    assert recorded(converted) == [({"order_id": "7"}, "Ulm")]
    assert [tool["name"] for tool in json.loads(converted.files["tools.json"])["tools"]] == [
        "get_order",
        "move_order",
    ]


INVALID: dict[str, str] = {
    "call text": json.dumps([user("?"), {"role": "assistant", "tool_calls": ["x"]}]),
    "call -1": json.dumps([user("?"), {"role": "assistant", "tool_calls": -1}]),
    "function true": json.dumps(
        [user("?"), {"role": "assistant", "tool_calls": [{"function": True}]}]
    ),
    "no name": json.dumps(
        [user("?"), {"role": "assistant", "function_call": {"name": None, "arguments": "{}"}}]
    ),
    "a number": "-1",
    "message is text": '[{"role": "user", "content": "?"}, "x"]',
    "surrogate": json.dumps([user("\ud800"), reply("?")]),
    "surrogate in instructions": json.dumps([{"role": "system", "content": "\ud800"}, user("?")]),
    "surrogate in a key": json.dumps([user("?"), tool_calls(("a", "f", {"\ud800": 1}))]),
    "NaN": '[{"role": "user", "content": "?", "n": NaN}]',
    "huge": '[{"role": "user", "content": ' + "9" * 5000 + "}]",
    "2,000 brackets": '[{"role": "user", "content": ' + "[" * 2000 + "]" * 2000 + "}]",
    "100,000 brackets": '[{"role": "user", "content": ' + "[" * 100_000 + "]" * 100_000 + "}]",
    "tools": json.dumps({"messages": CHAT, "tools": "x"}),
    "tool schema": json.dumps(
        {"messages": CHAT, "tools": [{"name": "f", "parameters": {"type": 3}}]}
    ),
    "tool name": json.dumps({"messages": CHAT, "tools": [{"name": "?!"}]}),
}


@pytest.mark.longer
@pytest.mark.parametrize("is_list", [True, False], ids=["list", "lines"])
async def test_import_messages_skips_invalid_conversations(tmp_path: Path, is_list: bool) -> None:
    texts = [json.dumps(CHAT), *INVALID.values(), json.dumps(CHAT)]
    into, code = await folder_of(tmp_path, f"[{', '.join(texts)}]" if is_list else "\n".join(texts))
    ids = [scenario.id for scenario in load_scenarios([into / "scenarios.yaml"])]
    assert (code, ids) == (1, ["chats-01", f"chats-{len(texts)}"])
    notes = (into / "NOTES.md").read_text(encoding="utf-8")
    for number in range(1, len(texts) - 1):
        place = f"chats.json[{number}]" if is_list else f"chats.json:{number + 1}"
        assert f"\n- {place}: " in notes


@pytest.mark.longer
@check_rows("invalid", INVALID)
async def test_import_messages_refuses_a_single_invalid_conversation(
    tmp_path: Path, invalid: str
) -> None:
    with pytest.raises(UsageError):
        await folder_of(tmp_path, INVALID[invalid])
    assert not (tmp_path / "mine").exists()


async def test_read_chats_splits_at_newlines_only(tmp_path: Path) -> None:
    texts = [json.dumps([user(f"a{end}b"), reply("?")], ensure_ascii=False) for end in "\u2028\x85"]
    converted = await imported(tmp_path, "\n".join(texts))
    assert [scenario["turns"][0]["user"] for scenario in converted.suites[0].scenarios] == [
        "a\u2028b",
        "a\x85b",
    ]


async def test_import_messages_removes_the_folder_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setitem(imports._WRITERS, "yaml", fail)
    (tmp_path / "mine").mkdir()
    with pytest.raises(OSError, match="disk full"):
        await folder_of(tmp_path, CHAT)
    assert list((tmp_path / "mine").iterdir()) == []


ODD_VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, -1, 0.5, 10**30, float("nan"), "", "x", "\ud800", "\u2028"),
        *("[", "{}", '{"a": NaN}', "system", "tool"),
        *([], ["x"], [[]], {}, {"name": "f"}, {"type": "text"}),
    ]
)


def places_in(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    places = [at] if at else []
    for key, item in inner:
        is_nest = isinstance(item, dict | list)
        places += places_in(item, (*at, key)) if is_nest else [(*at, key)]
    return places


@st.composite
def mutated_chats(draw: st.DrawFn) -> Any:
    """Draw a conversation that one to three invalid values or deletions have changed.

    All draws are made here, not by `st.data()` inside an asynchronous test: what Hypothesis raises
    when data run out would end the event loop that the tests share.
    """
    chat: Any = json.loads(json.dumps({"messages": CHAT}))
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(places_in(chat) or [("messages",)]))
        place = chat
        for key in way:
            place = place[key]
        if draw(st.booleans()):
            place[last] = copy.deepcopy(draw(ODD_VALUES))  # later steps change it
        elif len(place) > 1:
            del place[last]
    return chat


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(chat=mutated_chats())
async def test_import_messages_accepts_mutated_conversations(tmp_path: Path, chat: Any) -> None:
    with TemporaryDirectory(dir=tmp_path) as folder:
        into, _ = await folder_of(Path(folder), [CHAT, chat])
        notes = (into / "NOTES.md").read_text(encoding="utf-8")
        ids = [scenario.id for scenario in load_scenarios([into / "scenarios.yaml"])]
    assert "chats-1" in ids
    assert "chats-2" in ids or "chats.json[1]" in notes or "chats-2" in notes
