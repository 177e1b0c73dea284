"""Toolsets of real MCP servers, over pipes and HTTP: confirmation, results, errors."""

import asyncio
import json
import re
import shlex
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from lhkit.base.errors import McpServerError, MissingPackageError, UsageError
from lhkit.base.locales.messages import translate
from lhkit.confirm.form import CANCELLED, DECLINED, Form, FormAnswer
from lhkit.confirm.gate import ConfirmGate, ConfirmRequest, DenyGate, ScriptedGate
from lhkit.conversation.messages import GateOutcome
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk
from lhkit.mcp.launch import Launch, Remote
from lhkit.mcp.toolset import McpToolset, StateRead
from lhkit.mcp.transport import connection_failure
from lhkit.models.recorded.scripted import ScriptedModel, say
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.toolset import (
    label_of,
    load,
    name_of,
    open_session,
    opened,
    read_state,
    reference_from,
    tool_programs,
)
from tests.mcp.conftest import (
    LEDGER,
    START_S,
    Person,
    Writer,
    dispatch_traced,
    dispatched,
    written,
)
from tests.node_servers import server
from tests.rows import check_rows

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

Ledger = Callable[..., McpToolset]


def yes() -> ScriptedGate:
    return ScriptedGate(repeat(True))


async def test_toolset_confirms_every_tool_by_default(ledger: Ledger, file: Path) -> None:
    with opened(ledger(), {}, "en") as session:
        assert session.registry.destructive == frozenset(session.registry)
        for tool in ("add_entry", "sneak"):
            assert await dispatched(session, tool, text="no") == ToolCancelled()
            assert await dispatched(session, tool, DenyGate(), text="no") == ToolCancelled()
        assert written(file) == ""
        done = await dispatched(session, "add_entry", yes(), text="rent")
    assert done == ToolOk({"result": "added rent"})
    assert written(file) == "rent\n"


async def test_toolset_runs_declared_reads_without_confirmation(ledger: Ledger) -> None:
    with opened(ledger(reads=["read_entries"]), {}, "en") as session:
        assert await dispatched(session, "read_entries") == ToolOk({"entries": []})
        assert set(session.registry) - session.registry.destructive == {"read_entries"}


async def test_toolset_trusts_annotations_when_declared(ledger: Ledger) -> None:
    with opened(ledger(trust="annotations"), {}, "en") as session:
        assert set(session.registry) - session.registry.destructive == {"read_entries", "sneak"}


async def test_elicitation_is_accepted_only_by_a_person(ledger: Ledger, file: Path) -> None:
    with opened(ledger(), {}, "en") as session:
        person = Person(True, True)
        done = await dispatch_traced(session, "add_if_sure", person, text="rent")
        assert done.result == ToolOk({"result": "added rent"})
        card, asked = person.asked
        assert (card.args, asked.args) == ({"text": "rent"}, {"sure": True})
        assert asked.summary.splitlines()[-1] == "Sure: Yes"
        assert "Really add rent?" in asked.summary
        assert "ledger" in asked.description
        assert done.gate is GateOutcome.ACCEPTED
        for gate in (Person(True, False), yes()):  # a no, and a script that says yes to cards
            refused = await dispatched(session, "add_if_sure", gate, text="more")
            assert refused == ToolOk({"result": "not added"})
    assert written(file) == "rent\n"


async def test_elicitation_form_sends_typed_values(ledger: Ledger, file: Path) -> None:
    typed = {"who": "Kim", "book": "w", "cash": "false", "tag": "rent"}
    person = Writer(True, typed=typed)
    with opened(ledger(), {}, "en") as session:
        done = await dispatch_traced(session, "add_detailed", person, text="rent")
    sent = {"amount": 5, "book": "w", "cash": False, "tag": "rent", "who": "Kim"}
    assert written(file) == f"rent {json.dumps(sent)}\n"
    ((request, form),) = person.forms
    assert request.summary == "Details of rent?"
    assert "The server ledger asks this" in request.description
    assert [each.label for each in form.fields] == [
        *("Who pays?", "mail", "amount", "cash", "book", "tag")
    ]
    assert done.gate is GateOutcome.ACCEPTED


async def test_elicitation_form_reports_decline_and_cancel(ledger: Ledger, file: Path) -> None:
    cases: list[tuple[ConfirmGate, str]] = [
        (Writer(True, typed=DECLINED), "decline"),
        (Writer(True, typed=CANCELLED), "cancel"),
        (Person(True), "decline"),  # a gate that knows no forms
        (ScriptedGate([True]), "decline"),  # no user, as in an eval
    ]
    with opened(ledger(), {}, "en") as session:
        for person, action in cases:
            done = await dispatched(session, "add_detailed", person, text="rent")
            assert done == ToolOk({"result": f"not added: {action}"})
    assert written(file) == ""


async def test_elicitation_declines_unsupported_forms(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    person = Writer(True, typed={})
    with opened(ledger(), {}, "en") as session:
        done = await dispatched(session, "ask_what_no_form_has", person)
    assert done == ToolOk({"result": "decline"})
    assert person.forms == []
    assert "field 'a': type \"object\" is not allowed" in caplog.text


async def test_elicitation_form_warns_about_secrets(ledger: Ledger) -> None:
    person = Writer(True, typed=DECLINED)
    with opened(ledger(), {}, "en") as session:
        await dispatched(session, "add_with_pin", person, text="rent")
    ((_, form),) = person.forms
    assert form.is_secret


class Leaving:
    """A person who never answers; `gone` is set when the question is taken from them."""

    is_person = True

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def confirm(self, request: ConfirmRequest) -> bool:
        return True

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.gone.set()
        raise AssertionError


async def test_elicitation_ends_with_its_server(ledger: Ledger) -> None:
    person = Leaving()
    with opened(ledger(), {}, "en") as session:
        done = await dispatched(session, "ask_and_die", person)
        await person.gone.wait()
    assert isinstance(done, ToolErr)
    assert done.code == "handler_error"


async def test_toolset_refuses_sampling_requests(ledger: Ledger) -> None:
    with opened(ledger(), {}, "en") as session:
        done = await dispatched(session, "think", yes())
    assert isinstance(done, ToolOk)
    assert str(done.data["result"]).startswith("refused:")


async def test_toolset_leaves_patterns_to_the_server(ledger: Ledger, file: Path) -> None:
    with opened(ledger(), {}, "en") as session:
        assert "pattern" not in str(session.registry["add_code"].parameters)
        slow = await dispatched(session, "add_code", yes(), code="a" * 60 + "!")
        assert isinstance(slow, ToolErr)
        assert slow.code == "tool_error"
        assert await dispatched(session, "add_code", yes(), code="aa") == ToolOk(
            {"result": "added aa"}
        )
    assert written(file) == "aa\n"


async def test_panel_close_ends_the_server(ledger: Ledger) -> None:
    panel = ChatPanel(model=ScriptedModel([say("hello")]), toolset=ledger(), opt_in=True)
    await panel.send("hello")
    (started,) = [each for each in threading.enumerate() if each.name == "lhkit-mcp"]
    panel.close()
    assert not started.is_alive()


async def test_call_with_lone_surrogate_fails_alone(ledger: Ledger) -> None:
    with opened(ledger(), {}, "en") as session:
        half = await dispatched(session, "add_entry", yes(), text="\ud800")
        assert isinstance(half, ToolErr)
        assert half.code == "handler_error"
        done = await dispatched(session, "add_entry", yes(), text="whole")
        assert done == ToolOk({"result": "added whole"})


async def test_call_timeout_keeps_the_server(ledger: Ledger) -> None:
    with opened(ledger(timeout_s=0.5, reads=["read_entries"]), {}, "en") as session:
        late = await dispatched(session, "sleep", yes(), seconds=600)
        assert isinstance(late, ToolErr)
        assert (late.code, "TimeoutError" in late.reason) == ("handler_error", True)
        read_state(session)  # it is still there


@pytest.mark.parametrize(
    ("tool", "args", "why"),
    [("die", {}, "ended"), ("shout", {"megabytes": 40}, "more than 16 MiB")],
)
async def test_dead_or_oversized_server_fails_call_and_state(
    ledger: Ledger, tool: str, args: dict[str, Any], why: str
) -> None:
    with opened(ledger(), {}, "en") as session:
        assert isinstance(await dispatched(session, "shout", yes(), megabytes=3), ToolOk)
        done = await dispatched(session, tool, yes(), **args)
        assert isinstance(done, ToolErr)
        assert done.code == "handler_error"
        again = await dispatched(session, "read_entries", yes())
        assert isinstance(again, ToolErr)
        with pytest.raises(McpServerError, match=why):
            read_state(session)


def python(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "start_s", "why"),
    [
        (python("import sys; sys.exit('no such ledger')"), START_S, "no such ledger"),
        (python("print('x' * 40_000_000, flush=True); input()"), 3, "did not start"),
        ("no-such-command-of-anybody --x", START_S, "No such file"),
        ("http://127.0.0.1:9/mcp", 20, r"http://127\.0\.0\.1:9/mcp`.*: nothing answers there"),
        (python("pass"), START_S, "it closed the connection"),
    ],
)
async def test_start_error_contains_the_reason(command: str, start_s: float, why: str) -> None:
    with pytest.raises(McpServerError, match=why):
        open_session(McpToolset(server=command, start_s=start_s), {}, "en")


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@check_rows(
    ("error", "text"),
    [
        (httpx2.ConnectError("All connection attempts failed"), "nothing answers there: check"),
        (
            caused(httpx2.ConnectError("[Errno -2] Name"), socket.gaierror(-2, "Name or service")),
            "no computer of that name is known: check the address",
        ),
        (
            caused(
                httpx2.ConnectError("[SSL: WRONG_VERSION_NUMBER] wrong version number"),
                ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"),
            ),
            "no secure connection could be made (",
        ),
        (httpx2.ConnectTimeout("timed out"), "it did not answer in time"),
        (httpx2.ReadTimeout(""), "it did not answer in time"),
        (
            httpx2.RemoteProtocolError("Server disconnected without sending a response."),
            "the connection broke off (RemoteProtocolError)",
        ),
        (httpx2.ReadError(""), "the connection broke off (ReadError)"),
        (MCPError(-32000, "Connection closed"), "it closed the connection"),
        (MCPError(-32000, "Connection closed by the moderator"), ""),
        (ValueError("something"), ""),
    ],
)
def test_connection_failure_has_its_own_words_in_both_languages(
    error: Exception, text: str
) -> None:
    reason = connection_failure(error)
    assert reason.startswith(text)
    assert bool(reason) == bool(text)
    korean = translate(reason, "ko")
    assert not text or not re.search("[a-z]{2,} [a-z]{2,}", re.sub(r"\(.*?\)", "", korean))


async def test_toolset_works_over_http(address: str, file: Path) -> None:
    toolset = McpToolset(server=address, reads=["read_entries"])
    with opened(toolset, {}, "ko") as one, opened(toolset, {}, "ko") as other:
        assert tool_programs(one) == {"server": "ledger", "version": "7.1"}
        assert await dispatched(one, "add_entry", text="no") == ToolCancelled()
        assert await dispatched(one, "add_entry", yes(), text="rent") == ToolOk(
            {"result": "added rent"}
        )
        read = await dispatched(other, "read_entries")
        assert read == ToolOk({"entries": [{"id": 0, "text": "rent"}]})
    assert written(file) == "rent\n"


@pytest.mark.nightly
async def test_reference_file_server_uses_the_session_folder() -> None:
    toolset = McpToolset(
        server=shlex.join([server("filesystem"), "{folder}"]),
        folder="/notes",
        reads=["read_text_file", "list_allowed_directories"],
    )
    world = {"files": [{"path": "a/b.txt", "text": "hello"}, {"path": "empty/"}]}
    with opened(toolset, world, "en") as session:
        assert read_state(session) == {
            "files": ({"path": "a/b.txt", "text": "hello"}, {"path": "empty/"})
        }
        where = await dispatched(session, "list_allowed_directories")
        assert where == ToolOk({"content": "Allowed directories:\n/notes"})
        for path in ("a/b.txt", "/notes/a/b.txt"):
            read = await dispatched(session, "read_text_file", path=path)
            assert read == ToolOk({"content": "hello"})
        outside = await dispatched(session, "write_file", yes(), path="/etc/x", content="")
        assert isinstance(outside, ToolErr)
        assert outside.code == "tool_error"
        assert "not in /notes" in outside.reason
        path = "/notes/c.txt"
        assert isinstance(
            await dispatched(session, "write_file", path=path, content="c"), ToolCancelled
        )
        assert len(read_state(session)["files"]) == 2
        await dispatched(session, "write_file", yes(), path=path, content="at /notes/c.txt")
        assert {"path": "c.txt", "text": "at /notes/c.txt"} in read_state(session)["files"]
        assert tool_programs(session)["server"] == "secure-filesystem-server"
    with opened(toolset, world, "en") as session:  # another folder
        assert len(read_state(session)["files"]) == 2


@pytest.mark.nightly
async def test_reference_memory_server_returns_state(tmp_path: Path) -> None:
    entry = {
        "command": server("memory"),
        "env": {"MEMORY_FILE_PATH": "{folder}/memory.jsonl"},
        "type": "stdio",
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"memory": entry}}))
    (tmp_path / "memory.toml").write_text(
        'server = "mcp.json#memory"\nfolder = "/memory"\nreads = ["read_graph"]\n'
        '[state]\nentities = {tool = "read_graph", rows = "entities", key = ["name"]}\n'
    )
    toolset = load(f"mcp:{tmp_path / 'memory.toml'}")
    kim = {"name": "Kim", "entityType": "person", "observations": ["likes tea"]}
    made = {"calls": [{"tool": "create_entities", "args": {"entities": [kim]}}]}
    with opened(toolset, {**made, "entities": [kim]}, "ko") as session:
        assert read_state(session)["entities"] == (kim,)
        await dispatched(session, "delete_entities", yes(), entityNames=["Kim"])
        assert read_state(session)["entities"] == ()
    with (
        pytest.raises(UsageError, match=r"world\.entities: the server begins with \[\]"),
        opened(toolset, {"entities": [kim]}, "ko"),
    ):
        pass


def test_reference_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEDGER_TOKEN", "s3")
    remote = {"type": "http", "url": "https://x.org/mcp", "headers": {"X-Key": "${LEDGER_TOKEN}"}}
    Path("mcp.json").write_text(json.dumps({"servers": {"far": remote}}))
    Path("own.toml").write_text('server = "npx -y some-server"\nreads = ["look"]\n')
    assert name_of(load("mcp:npx -y @modelcontextprotocol/server-memory@1.2")) == "memory"
    assert name_of(load("mcp:https://x.org/mcp")) == "x.org"
    far = load("mcp:mcp.json#far")
    assert isinstance(far, McpToolset)
    assert far.launched == Remote(url="https://x.org/mcp", headers={"X-Key": "s3"})
    own = load("mcp:own.toml")
    assert isinstance(own, McpToolset)
    assert (own.name, own.reads) == ("own", ["look"])
    assert [label_of(f"mcp:{each}") for each in ("own.toml", "mcp.json#far", "uvx a-b")] == [
        "own",
        "far",
        "a-b",
    ]
    there = Path("/there")
    assert reference_from(there, "mcp:own.toml") == "mcp:/there/own.toml"
    assert reference_from(there, "mcp:mcp.json#far") == "mcp:/there/mcp.json#far"
    assert reference_from(there, "mcp:uvx a-b") == "mcp:uvx a-b"


@check_rows(
    ("text", "why"),
    [
        ("server = 'x'\nread = ['a']", "read: Unexpected"),
        ("reads = ['a']", "server: Field required"),
        ("server = 'x'\ntrust = 'all'", "trust: Input should be"),
        ("server = 'x'\ntimeout_s = 0", "timeout_s"),
        ("server = 'x {folder}'", "give both or neither"),
        ("server = 'x'\nfolder = '/a'", "give both or neither"),
        ("server = 'x {folder}'\nfolder = 'a b'", "not a valid name"),
        ("server = 'x \"'", "not a valid command line"),
        ("server = 'mcp.json#a'", r"mcp\.json cannot be read"),
        ("[state.files]\n", "server"),
        ("server = ", "not valid TOML"),
    ],
)
def test_declaration_errors_name_the_file(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=why) as refused:
        load(f"mcp:{file}")
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_declaration_hides_variable_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_TOKEN", "s3 cret")
    monkeypatch.delenv("LEDGER_PORT", raising=False)
    far, near, table = (tmp_path / f"{name}.toml" for name in ("far", "near", "table"))
    far.write_text('server = "https://x.org:${LEDGER_PORT:-80}/${LEDGER_TOKEN}/mcp"\n')
    near.write_text('server = "serve-it --token ${env:LEDGER_TOKEN}"\n')
    table.write_text('[server]\nurl = "https://x.org"\nheaders = {Key = "${LEDGER_TOKEN}"}\n')
    made = [load(f"mcp:{file}") for file in (far, near, table)]
    assert [each.launched for each in made if isinstance(each, McpToolset)] == [
        Remote(url="https://x.org:80/s3 cret/mcp"),
        Launch(command="serve-it", args=("--token", "s3 cret")),
        Remote(url="https://x.org", headers={"Key": "s3 cret"}),
    ]
    assert "s3 cret" not in repr(made)
    monkeypatch.delenv("LEDGER_TOKEN")
    with pytest.raises(UsageError, match=r"far\.toml: .*variable LEDGER_TOKEN is not set"):
        load(f"mcp:{far}")


async def test_start_error_masks_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_TOKEN", "s3cret")
    file = tmp_path / "own.toml"
    code = "import sys; sys.exit('refused ' + sys.argv[1])"
    words = [sys.executable, "-c", code, "${LEDGER_TOKEN}"]
    file.write_text(f"server = {json.dumps(shlex.join(words))}\n")
    with pytest.raises(McpServerError) as refused:
        open_session(load(f"mcp:{file}"), {}, "en")
    assert "refused ${LEDGER_TOKEN}" in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.slow
async def test_server_gets_variable_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path, commands: Path
) -> None:
    monkeypatch.setenv("LEDGER_FILE", str(file))
    words = shlex.join([str(commands / "python"), str(LEDGER)])
    own = tmp_path / "own.toml"
    own.write_text(f"server = {json.dumps(f'{words} ${{LEDGER_FILE}}')}\nstart_s = 120\n")
    with opened(load(f"mcp:{own}"), {}, "en") as session:
        await dispatched(session, "add_entry", yes(), text="rent")
    assert written(file) == "rent\n"


@check_rows(
    ("content", "why"),
    [
        ("{", "not valid JSON"),
        ('{"mcpServers": {"b": {}}}', "no server 'a': it has b"),
        ('{"mcpServers": {"a": {}}}', "a has neither a command nor an address: it has nothing"),
        ('{"mcpServers": {"a": {"command": "${LHKIT_NO}"}}}', "variable LHKIT_NO is not set"),
        ("[]", "it has none"),
        ({"command": "x", "env": {"K": "${input:api-key}"}}, r"Write \$\{API_KEY\}"),
        ({"url": "https://x.org", "headers": {"K": "Bearer ${input:key}"}}, r"Write \$\{KEY\}"),
        ({"command": "x", "args": ["${user_config.key}"]}, r"\$\{user_config\.key\} cannot"),
        ({"command": "x", "args": ["${config:a.b}"]}, "cannot be filled in"),
        ({"url": "https://x.org/sse", "type": "sse"}, "'sse' is not supported"),
        ({"url": "https://x.org/sse", "transport": "SSE"}, "'sse' is not supported"),
        ({"command": "x", "envFile": ".env"}, r"a\.envFile is not supported"),
        ({"url": "https://x.org", "headersHelper": "x"}, r"a\.headersHelper is not supported"),
    ],
)
def test_mcp_json_errors(tmp_path: Path, content: str | dict[str, Any], why: str) -> None:
    text = content if isinstance(content, str) else json.dumps({"servers": {"a": content}})
    (tmp_path / "mcp.json").write_text(text)
    with pytest.raises(UsageError, match=why):
        load(f"mcp:{tmp_path / 'mcp.json'}#a")


@pytest.mark.parametrize(
    ("options", "world", "why"),
    [
        ({"reads": ["nothing"]}, {}, "no tool 'nothing': it has read_entries"),
        ({"tools": ["nothing"]}, {}, "no tool 'nothing'"),
        ({"state": {"t": StateRead(tool="nothing")}}, {}, "no tool 'nothing'"),
        ({}, {"entries": []}, r"world\.entries: an MCP server has no such table"),
        ({}, {"files": []}, "have no folder"),
        ({}, {"calls": [{}]}, r"world\.calls: give a list of rows with tool"),
        ({}, {"calls": [{"tool": "refuse"}]}, "refuse failed: the ledger is full"),
    ],
)
def test_open_rejects_unknown_tools_and_invalid_worlds(
    ledger: Ledger, options: dict[str, Any], world: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        open_session(ledger(isolated=True, **options), world, "en")


def test_world_files_stay_in_the_folder() -> None:
    toolset = McpToolset(server="true {folder}", folder="/n")
    for path in ("../x", "/etc/x", "."):
        with pytest.raises(UsageError, match="not inside the folder"):
            open_session(toolset, {"files": [{"path": path}]}, "en")


def test_open_without_sdk_names_the_extra(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lhkit.mcp.connection", None)
    with pytest.raises(MissingPackageError, match=r"lhkit\[mcp\]"):
        open_session(ledger(), {}, "en")


async def test_tools_are_selected_ordered_and_renamed_for_models(
    ledger: Ledger, file: Path
) -> None:
    person = Person(True)
    with opened(ledger(tools=["entries.add/many", "read_entries"]), {}, "en") as session:
        assert list(session.registry) == ["entries_add_many", "read_entries"]
        assert await dispatched(session, "entries_add_many", person, texts=["rent"]) == ToolOk(
            {"result": "added rent"}
        )
    assert person.asked[0].summary.splitlines()[0] == "entries.add/many"
    assert written(file) == "rent\n"
