"""Results of MCP servers as the model gets them: errors, texts, structured content, secrets."""

import json
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import McpServerError, UsageError
from lhkit.confirm.gate import ScriptedGate
from lhkit.conversation.tool_results import ToolErr, ToolOk, ToolResult
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.mcp.launch import Launch, Remote
from lhkit.mcp.toolset import McpToolset, StateRead
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.toolset import load, open_session, opened, read_state, tool_programs
from tests.mcp.conftest import START_S, dispatch_traced, dispatched

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

RAW = Path(__file__).with_name("raw.py")
KEY = 'sk-live/51H"x y+Zq0987654321abcdef'

Raw = Callable[..., McpToolset]


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def yes() -> ScriptedGate:
    return ScriptedGate(repeat(True))


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    """Return a function that makes a toolset of a server with the given answers."""

    def made(
        answers: dict[str, Any],
        *,
        words: str = "",
        options: dict[str, Any] | None = None,
        **more: Any,
    ) -> McpToolset:
        file = tmp_path / "script.json"
        file.write_text(json.dumps({"answers": answers, **more}), encoding="utf-8")
        command = f"{shlex.join([sys.executable, str(RAW), str(file)])} {words}"
        return McpToolset(server=command, **{"start_s": START_S, **(options or {})})

    return made


def failed(reason: str) -> ToolErr:
    return ToolErr(code="tool_error", reason=reason)


def refusal(**fields: Any) -> dict[str, Any]:
    return {"result": {**fields, "isError": True}}


def result(content: list[Any] | None, structured: Any = None) -> dict[str, Any]:
    parts = {"content": content, "structuredContent": structured}
    present = {key: value for key, value in parts.items() if value is not None}
    return {"result": {**present, "isError": None}}


ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "invalid": ({"error": {"code": -32602, "message": "Invalid params: q"}}, "Invalid params: q"),
    "closed": ({"error": {"code": -32000, "message": "Connection closed"}}, "Connection closed"),
    "silent": ({"error": {"code": -32603, "message": ""}}, "JSON-RPC error -32603"),
    "detailed": (
        {"error": {"code": -32602, "message": "No such card", "data": {"param": "card"}}},
        'No such card\n{"param": "card"}',
    ),
    "coded": (refusal(structuredContent={"code": "LATE"}), '{"code": "LATE"}'),
    "explained": (
        refusal(content=[text("slow down")], structuredContent={"retry_after": 5}),
        'slow down\n{"retry_after": 5}',
    ),
    "repeated": (
        refusal(content=[text('{"retry_after": 5}')], structuredContent={"retry_after": 5}),
        '{"retry_after": 5}',
    ),
    "no_reason": (refusal(content=[], structuredContent={}), "no reason was given"),
}
IMAGE = {"type": "image", "data": "AAAA" * 4_000, "mimeType": "image/png"}
RESULTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "both": (result([text("# A")], {"file": "a.md"}), {"file": "a.md", "text": "# A"}),
    "key_text": (
        result([text("more")], {"text": "less"}),
        {"text": "less", "text_content": "more"},
    ),
    "only_text": (result([text("hello")], {}), {"text": "hello"}),
    "nothing": (result([], {}), {}),
    "same_text": (result([text("hello")], {"content": "hello"}), {"content": "hello"}),
    "same_json": (result([text('{"b": 1, "a": 2}')], {"a": 2, "b": 1}), {"a": 2, "b": 1}),
    "same_numbers": (result([text("1"), text("2")], {"result": [1, 2]}), {"result": [1, 2]}),
    "same_texts": (result([text("x"), text("y")], {"result": ["x", "y"]}), {"result": ["x", "y"]}),
    "empty_text": (result([text("")], {"a": 1}), {"a": 1}),
    "a_list": (result([text("done")], [1, 2]), {"value": [1, 2], "text": "done"}),
    "no_content": (result(None, {"a": 1}), {"a": 1}),
    "null_text": (
        result([{"type": "text", "text": None}], {"a": 1}),
        {"a": 1, "text": '{"type": "text", "text": null}'},
    ),
    "new_kind": (result([{"type": "new", "x": 1}]), {"text": '{"type": "new", "x": 1}'}),
    "image": (
        result([text("a cat"), IMAGE]),
        {"text": "a cat", "not_shown": ["image (image/png, 12000 bytes)"]},
    ),
}


async def test_results_and_errors_are_converted(raw: Raw) -> None:
    expected: dict[str, ToolResult] = {
        **{name: failed(reason) for name, (_, reason) in ERRORS.items()},
        **{name: ToolOk(data) for name, (_, data) in RESULTS.items()},
    }
    answers = {name: answer for name, (answer, _) in {**ERRORS, **RESULTS}.items()}
    with opened(raw(answers), {}, "en") as session:
        results = {name: await dispatched(session, name, yes()) for name in answers}
        read_state(session)  # the server goes on
    assert results == expected


async def test_result_violating_output_schema_is_an_error(raw: Raw) -> None:
    rows = {"entries": {"type": "array", "items": {"type": "object"}}}
    promise = {"outputSchema": {"type": "object", "properties": rows, "required": ["entries"]}}
    answers = {
        "wrong": result([text("added")], {"entries": [{}, "no entry"]}),
        "nothing": result([text("added")]),
    }
    whys = {"wrong": 'entries.1 is "no entry" and should be object', "nothing": "no structured"}
    with opened(raw(answers, tools=dict.fromkeys(answers, promise)), {}, "en") as session:
        for tool, why in whys.items():
            done = await dispatch_traced(session, tool, yes())
            assert isinstance(done.result, ToolErr)
            assert (done.result.code, done.ran) == ("bad_result", True)
            assert why in done.result.reason
            assert "Whatever it did is done" in done.result.reason


async def test_result_with_nan_is_reported(raw: Raw) -> None:
    structured = {"structuredContent": {"share": float("nan")}}
    answers = {
        "bare": {"result": {"content": [], **structured}},
        "text": {"result": {"content": [text("share: unknown")], **structured}},
    }
    with opened(raw(answers), {}, "en") as session:
        bare = await dispatched(session, "bare", yes())
        assert isinstance(bare, ToolErr)
        assert (bare.code, "the tool ran" in bare.reason) == ("bad_result", True)
        result_with_text = await dispatched(session, "text", yes())
        assert isinstance(result_with_text, ToolOk)
        assert result_with_text.data["text"] == "share: unknown"
        assert "structured content" in str(result_with_text.data["not_shown"])


@pytest.fixture
def keyed(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> Raw:
    """Return `raw` with a key of the environment among the words of the command."""
    monkeypatch.setenv("RAW_KEY", KEY)

    def made(answers: dict[str, Any], **more: Any) -> McpToolset:
        return raw(answers, words="'${RAW_KEY}'", **more)

    return made


async def test_results_mask_secrets(keyed: Raw) -> None:
    answers = {
        "text": {"result": {"content": [text(f"key {KEY} ok")]}},
        "data": {"result": {"content": [], "structuredContent": {KEY: [f"<{KEY}>"]}}},
        "fail": {"result": {"content": [text(f"bad {KEY}")], "isError": True}},
        "error": {"error": {"code": -32602, "message": f"bad {KEY}", "data": {"key": KEY}}},
        "broken": {"result": {"content": [], "structuredContent": {"n": "x" * 50 + KEY}}},
        "rows": {"result": {"content": [], "structuredContent": {"rows": [{"k": KEY}]}}},
    }
    tools = {
        "text": {"description": f"{'x' * 1_990}{KEY}", "title": KEY},
        "broken": {"outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    }
    toolset = keyed(
        answers,
        tools=tools,
        info={"name": f"raw {KEY}", "version": KEY},
        options={"reads": ["rows"], "state": {"rows": StateRead(tool="rows", rows="rows")}},
    )
    with opened(toolset, {}, "en") as session:
        seen = [
            repr(session.registry["text"]),
            repr(tool_programs(session)),
            repr(read_state(session)),
        ]
        seen += [repr(await dispatched(session, tool, yes())) for tool in answers]
    for each in seen:
        for begin in range(0, len(KEY) - 6, 3):
            assert KEY[begin : begin + 6] not in each.replace("\\", ""), each
    assert "${RAW_KEY}" in seen[3]


@pytest.mark.parametrize("after", [255, 270, 285, 300, 64 * 2**10 - 20])
async def test_stderr_text_masks_cut_secrets(keyed: Raw, after: int) -> None:
    toolset = keyed({"end": "die"}, last=f"start {'x' * 200} {KEY}{'.' * after}")
    with opened(toolset, {}, "en") as session:
        await dispatched(session, "end", yes())
        with pytest.raises(McpServerError) as refused:
            read_state(session)
    for begin in range(0, len(KEY) - 4, 2):
        assert KEY[begin : begin + 4] not in str(refused.value)


@pytest.mark.parametrize("value", ["1", "true", "8080", str(Path(__file__).parent)])
async def test_results_keep_short_variable_values_and_paths(
    raw: Raw, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("RAW_FLAG", value)
    answers = {"go": result([text(f"on {value}/a")])}
    with opened(raw(answers, words="${RAW_FLAG}"), {}, "en") as session:
        assert await dispatched(session, "go", yes()) == ToolOk({"text": f"on {value}/a"})


def test_server_repr_hides_variable_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAW_KEY", KEY)
    near = Launch(command="x", args=("--key", "${RAW_KEY}"), env={"A": "${RAW_KEY}", "B": KEY})
    far = Remote(url="https://x.org/${RAW_KEY}", headers={"Authorization": "Bearer ${RAW_KEY}"})
    for server in (near, far, Remote(url="https://x.org", headers={"Authorization": KEY})):
        toolset = McpToolset(server=server)
        assert KEY not in repr(toolset) + repr(toolset.launched)
    assert "--key ${RAW_KEY}" in repr(McpToolset(server=near).launched)
    assert McpToolset(server=near).launched == Launch(
        command="x", args=("--key", KEY), env={"A": KEY, "B": KEY}
    )


def test_mcp_json_allows_comments_and_trailing_commas(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(
        """{
  "inputs": [{"type": "promptString", "id": "key", "password": true}], // as VS Code writes
  // servers of mine, "quoted" /* in */ a comment
  "servers": {
    /* two
       lines */
    "a": {"command": "x", "args": ["http://y//z", "a,]", "/* no */", "\\"//",], /* last */ },
  }, // the end
}
""",
        encoding="utf-8",
    )
    toolset = load(f"mcp:{tmp_path / 'mcp.json'}#a")
    assert isinstance(toolset, McpToolset)
    assert toolset.launched == Launch(command="x", args=("http://y//z", "a,]", "/* no */", '"//'))


class Refusing(BaseHTTPRequestHandler):
    """Answers each request with one status."""

    status, body, kind = 401, "", "text/plain"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(self.status)
        self.send_header("content-type", self.kind)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body.encode())

    def log_message(self, *_args: Any) -> None:
        """Write nothing."""


@pytest.fixture
def refusing() -> Iterator[Callable[..., str]]:
    """Return a function that starts a server which refuses all, and returns its address."""
    stopped: list[ThreadingHTTPServer] = []

    def started(**attributes: Any) -> str:
        handler = type("Handler", (Refusing,), attributes)
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        stopped.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/mcp"

    yield started
    for server in stopped:
        with closing(server.socket):
            server.shutdown()


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_http_status_error_has_a_hint(
    refusing: Callable[..., str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAW_KEY", KEY)
    address = refusing(status=status, body=f"no good: {KEY}")
    remote = Remote(url=address, headers={"X-Key": "${RAW_KEY}"})
    with pytest.raises(McpServerError, match=f"HTTP {status}.*key") as refused:
        open_session(McpToolset(server=remote, start_s=START_S), {}, "en")
    assert "no good: ${RAW_KEY}" in str(refused.value)
    assert KEY not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "shown"),
    [
        ('{"jsonrpc": "2.0",\n "id": 0}\n', '{"jsonrpc": "2.0",'),
        ("\x1b[1mBanner\x1b[0m\n", "Banner"),
    ],
)
async def test_start_timeout_shows_invalid_output(raw: Raw, before: str, shown: str) -> None:
    toolset = raw({"go": {}}, before=before, silent=True, options={"start_s": 3})
    with pytest.raises(McpServerError, match="not a valid message") as late:
        open_session(toolset, {}, "en")
    assert shown in str(late.value)
    assert "\x1b" not in str(late.value)


async def test_invalid_response_error_is_one_line(raw: Raw) -> None:
    toolset = raw({"go": {}}, tools={"go": {"name": None}})
    with pytest.raises(UsageError, match="called: number 1: name: Input should be") as refused:
        open_session(toolset, {}, "en")
    assert "input_value" not in str(refused.value)
    assert "errors.pydantic.dev" not in str(refused.value)


NOTHING = {"type": "object", "properties": {}}
LATEST = "https://json-schema.org/draft/2020-12/schema"
WORD = {"type": "string"}


SCHEMAS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"inputSchema": None}, NOTHING),
    ({"inputSchema": {}}, NOTHING),
    ({"inputSchema": {"type": None, "properties": None, "required": None}}, NOTHING),
    ({"inputSchema": {"properties": {"q": WORD}}}, {**NOTHING, "properties": {"q": WORD}}),
    ({"inputSchema": {"type": ["object", "null"]}}, NOTHING),
    (
        {"inputSchema": {"type": "object", "properties": {"q": {"items": [WORD]}}}},
        {**NOTHING, "properties": {"q": {"prefixItems": [WORD]}}, "$schema": LATEST},
    ),
]
UNUSABLE: list[tuple[dict[str, Any], str]] = [
    ({"inputSchema": {"type": "array"}}, "inputSchema.type: Input should be 'object'"),
    ({"inputSchema": "q"}, "inputSchema: Input should be a valid dictionary"),
    ({"description": 3}, "description: Input should be a valid string"),
    ({"inputSchema": {"properties": {"q": {"type": "any"}}}}, "'any' is not valid"),
]


def test_tool_without_a_name_is_left_out_alone(raw: Raw) -> None:
    with opened(raw({"a": {}, "b": {}}, tools={"a": {"name": 5}}), {}, "en") as session:
        assert list(session.registry) == ["b"]
        assert list(session.registry.left_out) == ["number 1"]


@pytest.mark.longer
async def test_unusable_tools_are_left_out_alone(raw: Raw) -> None:
    odd = {f"odd{number}": tool for number, (tool, _) in enumerate([*SCHEMAS, *UNUSABLE])}
    answers = dict.fromkeys(odd, result([text("fine")]))
    toolset = raw(answers, tools=odd, before="\ufeff")
    with opened(toolset, {}, "en") as session:
        registry = session.registry
        listed = [registry[name].parameters for name in registry]
        done = [await dispatched(session, name, yes()) for name in registry]
    assert listed == [parameters for _, parameters in SCHEMAS]
    assert done == [ToolOk({"text": "fine"})] * len(SCHEMAS)
    assert len(registry.left_out) == len(UNUSABLE)
    for reason, (_, why) in zip(registry.left_out.values(), UNUSABLE, strict=True):
        assert why in reason
    turn = {"user": "Go.", "confirm": "accept"}
    scenario = Scenario.from_data({"id": "go", "ac": "a", "locale": "en", "turns": [turn]})
    model = ScriptedModel([call("odd0"), say("Done.")])
    (record,) = (await replay([scenario], model, toolset=toolset, progress=False)).records
    assert [made.outcome for made in record.trajectory.turns[0].calls] == ["ok"]


@pytest.mark.longer
def test_declared_tool_that_is_invalid_is_an_error(raw: Raw) -> None:
    odd = {"odd": {"inputSchema": {"type": "array"}}}
    for options in ({"tools": ["odd"]}, {"reads": ["odd"]}):
        toolset = raw({"odd": {}, "go": {}}, tools=odd, options=options)
        with pytest.raises(UsageError, match=r"tool 'odd' is invalid: inputSchema\.type"):
            open_session(toolset, {}, "en")
    with pytest.raises(UsageError, match="no tool that can be called: odd: inputSchema"):
        open_session(raw({"odd": {}}, tools=odd), {}, "en")
