"""`lhkit mcp serve`: lhkit's tools for other clients, with confirmed writes."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from mcp.shared.memory import create_client_server_memory_streams
from mcp_types import ElicitRequestFormParams, ElicitResult, InputRequiredResult

from lhkit.__main__ import main
from lhkit.cli.mcp import McpServeOptions, serve_tools
from lhkit.confirm.gate import ScriptedGate
from lhkit.confirm.policy import ApprovalPolicy, Measured, ToolRule, tool_sha256
from lhkit.conversation.tool_results import ToolOk
from lhkit.mcp import serving
from lhkit.mcp.toolset import McpToolset
from lhkit.settings import Settings
from lhkit.toolset import load, opened, registry_of, source_sha256
from tests.mcp.conftest import START_S, Writer, dispatched, written

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(300)]

TOOLS = '''\
from pathlib import Path

from lhkit import ToolErr, ToolRegistry

notes = ToolRegistry()
FILE = Path({file!r})


@notes.tool()
def read() -> dict:
    """Read all."""
    return {{"text": FILE.read_text() if FILE.exists() else ""}}


@notes.tool(destructive=True)
def write(text: str) -> dict:
    """Write it down."""
    print("a tool that prints must not spoil the protocol")
    if not text:
        return ToolErr("r1_empty", "Write something.")
    FILE.write_text(text)
    return {{"written": text}}


@notes.tool(destructive=True)
def drop() -> dict:
    """Delete all."""
    return {{}}
'''


Near = Callable[..., Client]


class Asked:
    """A client's person, who answers all questions so."""

    def __init__(self, action: Any, **content: Any) -> None:
        self.answer = ElicitResult(action=action, content=content or None)
        self.questions: list[str] = []

    async def __call__(self, _context: Any, params: Any) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        self.questions.append(params.message)
        return self.answer


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where the notes are written."""
    return tmp_path / "notes.txt"


@pytest.fixture
def words(tmp_path: Path, file: Path, commands: Path) -> list[str]:
    """Return the command that serves the notes."""
    tools = tmp_path / "mine.py"
    tools.write_text(TOOLS.format(file=str(file)), encoding="utf-8")
    options = ["--toolset", f"{tools}:notes", "--locale", "en"]
    return [str(commands / "lhkit"), "mcp", "serve", *options]


def client(words: list[str], *more: str, **options: Any) -> Client:
    """Return a client of the command in a process of its own."""
    server = StdioServerParameters(
        command=words[0], args=[*words[1:], *more], cwd=Path(__file__).parents[2]
    )
    return Client(stdio_client(server), cache=None, **options)


@pytest.fixture
def near(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Near:
    """Return a function that returns a client of the same command in this process."""

    @asynccontextmanager
    async def streams(options: McpServeOptions) -> AsyncIterator[Any]:
        async with create_client_server_memory_streams() as (ours, theirs):
            monkeypatch.setattr(serving, "stdio_server", lambda: nullcontext(theirs))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve_tools, options, Settings())
                yield ours
                await ours[1].aclose()  # which ends the command

    def made(mode: Any, person: Any = None, **given: Any) -> Client:
        toolset = words[words.index("--toolset") + 1]
        options = McpServeOptions(toolset=toolset, locale="en", **given)
        return Client(streams(options), cache=None, mode=mode, elicitation_callback=person)

    return made


def text_of(result: Any) -> str:
    return str(result.content[0].text)


async def test_serving_lists_schemas_and_hints(words: list[str], file: Path) -> None:
    async with client(words, "--allow-writes", mode="legacy") as served:
        listed = {tool.name: tool for tool in (await served.list_tools()).tools}
        assert served.server_info is not None
        assert served.server_info.name == "tools"
        hints = {name: tool.annotations for name, tool in listed.items()}
        assert {name: (h.read_only_hint, h.destructive_hint) for name, h in hints.items() if h} == {
            "read": (True, False),
            "write": (False, True),
            "drop": (False, True),
        }
        assert listed["write"].input_schema["required"] == ["text"]
        read = await served.call_tool("read", {})
        assert (read.structured_content, read.is_error) == ({"text": ""}, False)
        wrong = await served.call_tool("write", {})
        assert wrong.is_error
        assert text_of(wrong).startswith("validation: ")
        unknown = await served.call_tool("nothing", {})
        assert text_of(unknown).startswith("unknown_tool: ")
        await served.call_tool("write", {"text": "rent"})
    assert written(file) == "rent"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_serving_writes_only_after_elicitation(
    words: list[str], file: Path, mode: str
) -> None:
    refusals: list[tuple[Any, Any]] = [("decline", None), ("cancel", None), ("accept", None)]
    person = Asked("accept", run=False)
    async with client(words, mode=mode, elicitation_callback=person) as served:
        for action, given in [*refusals, ("accept", {"run": False})]:
            person.answer = ElicitResult(action=action, content=given)
            done = await served.call_tool("write", {"text": "rent"})
            assert (done.is_error, text_of(done)) == (True, "cancelled: user did not confirm")
            question = person.questions.pop()
            assert "write: Write it down." in question
            assert '"text": "rent"' in question
            assert written(file) == ""
        person.answer = ElicitResult(action="accept", content={"run": True})
        done = await served.call_tool("write", {"text": "rent"})
        assert done.structured_content == {"written": "rent"}
        rule = await served.call_tool("write", {"text": ""})
        assert text_of(rule) == "r1_empty: Write something."
    assert written(file) == "rent"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_serving_takes_a_reason_and_shows_an_edit_before_it_runs(
    near: Near, file: Path, mode: str
) -> None:
    person = Asked("accept", run=False, user_message="not today")
    async with near(mode, person) as served:
        done = await served.call_tool("write", {"text": "rent"})
        assert text_of(done) == "cancelled: user did not confirm"
        assert done.content[1].text == '{"user_message":"not today"}'
    assert written(file) == ""
    person = Asked("accept", **{"run": True, "args.text": "rent 2"})
    async with near(mode, person) as served:
        done = await served.call_tool("write", {"text": "rent"})
        assert done.structured_content == {"written": "rent 2"}
        assert done.content[1].text == '{"edited":{"text":"rent 2"}}'
    first, second = person.questions
    assert ('"text": "rent"' in first, '"text": "rent 2"' in second) == (True, True)
    assert written(file) == "rent 2"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_serving_question_escapes_invisible_characters(
    near: Near, file: Path, mode: str
) -> None:
    person, text = Asked("accept", run=True), "re\u202ent\x9b\u200b\u2028\u3164\xa0"
    async with near(mode, person) as served:
        await served.call_tool("write", {"text": text})
    (question,) = person.questions
    assert "re\\u202ent\\x9b\\u200b\\u2028\\u3164\\xa0" in question
    assert not set(question) & set(text) - set("rent")
    assert written(file) == text


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_serving_without_elicitation_needs_allow_writes(
    near: Near, file: Path, mode: str
) -> None:
    async with near(mode) as served:
        done = await served.call_tool("write", {"text": "rent"})
        assert done.is_error
        assert "--allow-writes" in text_of(done)
    assert written(file) == ""
    async with near(mode, allow_writes=True) as served:
        await served.call_tool("write", {"text": "rent"})
    assert written(file) == "rent"


async def test_serving_answer_is_bound_to_the_arguments(near: Near, file: Path) -> None:
    yes = {"run": ElicitResult(action="accept", content={"run": True})}
    person = Asked("accept", run=True)
    async with near("auto", person) as served:
        call = served.session.call_tool
        unasked = await call("write", {"text": "a"}, input_responses=yes, allow_input_required=True)
        assert isinstance(unasked, InputRequiredResult)
        other = await call(
            "write",
            {"text": "b"},
            input_responses=yes,
            request_state=unasked.request_state,
            allow_input_required=True,
        )
        assert isinstance(other, InputRequiredResult)
        assert written(file) == ""


async def test_serving_works_with_lhkit_as_client(words: list[str], file: Path) -> None:
    toolset = McpToolset(server=" ".join(words), start_s=START_S, reads=["read"])
    with opened(toolset, {}, "en") as session:
        person = Writer(True, typed={"run": "true"})  # the card, and the server's own question
        done = await dispatched(session, "write", person, text="rent")
        assert done == ToolOk({"written": "rent"})
        ((_, form),) = person.forms
        shown = [(field.name, field.typed, field.is_required) for field in form.fields]
        assert shown == [
            ("run", "", True),
            ("user_message", "", False),
            ("args.text", "rent", False),
        ]
        again = await dispatched(session, "write", ScriptedGate([True]), text="more")
        assert not isinstance(again, ToolOk)
    assert written(file) == "rent"


def test_serving_reports_a_missing_toolset(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["lhkit", "mcp", "serve", "--toolset", "no.py:x"])
    with pytest.raises(SystemExit) as left:
        main()
    out, err = capfd.readouterr()
    assert (left.value.code, out) == (2, "")
    assert "no Python file no.py" in err


def approvals(words: list[str], folder: Path, *, description: str = "Write it down.") -> Path:
    """Write a policy that lets the notes be written unasked."""
    reference = words[words.index("--toolset") + 1]
    toolset = load(reference)
    tools = registry_of(toolset, {}, "en")
    measured = Measured(
        model="gemma sha256:1",
        prompt="sha256:2",
        tools={
            name: tool_sha256(
                name, description if name == "write" else tool.description, tool.parameters
            )
            for name, tool in tools.items()
        },
        dialect="json sha256:3",
        constraint="off",
    )
    assert source_sha256(toolset)  # which is not compared, as it was not measured
    rule = ToolRule(rule="run", proposed=200, wrong=0, scenarios=200, upper=0.015)
    policy = ApprovalPolicy(
        risk=0.02, confidence=0.95, runs=("x",), measured={"en": measured}, tools={"write": rule}
    )
    policy.write(folder / "approvals.toml")
    return folder / "approvals.toml"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_serving_runs_unasked_only_if_the_user_says_that_the_client_is_the_measured_one(
    near: Near, words: list[str], file: Path, tmp_path: Path, mode: str
) -> None:
    given = approvals(words, tmp_path)
    no = Asked("accept", run=False)
    rows: list[tuple[dict[str, Any], int, str]] = [
        ({}, 1, ""),
        ({"approvals": given}, 1, ""),
        ({"approvals": given, "is_measured_client": True}, 0, "rent"),
    ]
    for options, questions, text in rows:
        async with near(mode, no, **options) as served:
            await served.call_tool("write", {"text": "rent"})
        assert (len(no.questions), written(file)) == (questions, text)
        no.questions.clear()
    other = approvals(words, tmp_path, description="Write it.")
    async with near(mode, no, approvals=other, is_measured_client=True) as served:
        await served.call_tool("write", {"text": "other"})
    assert (len(no.questions), written(file)) == (1, "rent")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("ending", ["declined", "failed", "cancelled", "open"])
async def test_serving_asks_about_all_while_and_after_a_question_without_a_yes(
    near: Near, words: list[str], file: Path, tmp_path: Path, mode: str, ending: str
) -> None:
    given = approvals(words, tmp_path)
    is_asked, is_over, done = anyio.Event(), anyio.Event(), list[Any]()

    class Slow(Asked):
        async def __call__(self, context: Any, params: Any) -> ElicitResult:
            is_asked.set()
            if "drop" in params.message and ending == "failed":
                raise MCPError(-32000, "the person does not answer")
            if "drop" in params.message and ending != "declined":
                await is_over.wait()
            return await super().__call__(context, params)

    person = Slow("decline")
    async with near(mode, person, approvals=given, is_measured_client=True) as served:

        async def drop() -> None:
            with suppress(Exception):  # of the failing client
                await served.call_tool("drop", {})

        async def write() -> None:
            done.append(await served.call_tool("write", {"text": "rent"}))

        async with anyio.create_task_group() as others:
            others.start_soon(drop)
            await is_asked.wait()
            if ending == "open":
                others.start_soon(write)
                await served.call_tool("read", {})  # so that the write has begun
                is_over.set()
            if ending == "cancelled":
                others.cancel_scope.cancel()
        if ending != "open":
            await write()
    assert text_of(done[0]).startswith("cancelled: ")
    assert any("write" in question for question in person.questions)
    assert written(file) == ""


async def test_serving_says_at_the_start_why_a_policy_does_not_apply(
    near: Near, words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = approvals(words, tmp_path)
    async with near("legacy", approvals=file):
        pass
    out, err = capfd.readouterr()
    assert (out, "cannot see the client's model and prompt" in err) == ("", True), err
    said = await anyio.run_process(
        [*words, "--approvals", str(file), "--measured-client"], cwd=Path(__file__).parents[2]
    )
    assert said.stdout == b""
    assert b"these run without asking, at a risk of at most 2%: write" in said.stderr
