"""`FILE.json#NAME`: entries as other clients write them."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.base.notices import NOTICE
from lhkit.mcp.launch import Launch, Remote, parse_server, split_entry
from lhkit.mcp.toolset import McpToolset, from_reference
from tests.rows import check_rows

ADDRESS = "http://127.0.0.1:9/mcp"


@pytest.fixture
def entry_file(tmp_path: Path) -> Any:
    def write(content: Any, name: str = "mcp.json") -> Path:
        file = tmp_path / name
        file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return file

    return write


@check_rows(
    "entry",
    [
        {"url": ADDRESS},
        {"httpUrl": ADDRESS},
        {"serverUrl": ADDRESS},
        {"type": "streamable-http", "url": ADDRESS},
        {"type": "streamableHttp", "serverURL": ADDRESS},
        {"transport": {"type": "http"}, "server_url": ADDRESS},
        {"url": "http://127.0.0.1:9/sse", "httpUrl": ADDRESS},
        {"endpoint": ADDRESS, "disabled": True, "alwaysAllow": ["a"]},
    ],
)
def test_address_is_read_under_the_keys_of_other_clients(entry_file: Any, entry: Any) -> None:
    file = entry_file({"mcpServers": {"a": entry}})
    assert McpToolset(server=f"{file}#a").shown == ADDRESS


def test_variables_are_read_as_gemini_writes_them(entry_file: Any) -> None:
    env = {"KEY": "$MY_KEY", "PRICE": "$5", "PASSWORD": "a$ECRET", "PATH": "${HOME}/x"}
    file = entry_file({"mcpServers": {"a": {"command": "x", "args": ["$MY_KEY"], "env": env}}})
    assert parse_server(f"{file}#a", None) == Launch(
        command="x", args=("${MY_KEY}",), env={**env, "KEY": "${MY_KEY}"}
    )
    remote = {"httpUrl": ADDRESS, "headers": {"Authorization": "Bearer $MY_KEY"}}
    file = entry_file({"mcpServers": {"a": remote}})
    assert parse_server(f"{file}#a", None) == Remote(
        url=ADDRESS, headers={"Authorization": "Bearer ${MY_KEY}"}
    )


@check_rows(
    "more",
    [
        {"headers": {"X-Team": "1", "X-On": True}},
        {"headers": {"X-Team": 1, "X-On": "true"}},
        {"http_headers": {"X-Team": "1", "X-On": "true"}},
        {"requestInit": {"headers": {"X-Team": "1", "X-On": "true"}}},
    ],
)
def test_headers_are_read_under_the_keys_of_other_clients(entry_file: Any, more: Any) -> None:
    file = entry_file({"mcpServers": {"a": {"url": ADDRESS, **more}}})
    assert parse_server(f"{file}#a", None) == Remote(
        url=ADDRESS, headers={"X-Team": "1", "X-On": "true"}
    )


COMMANDS: list[dict[str, Any]] = [
    {"command": "npx", "args": ["-y", "s", "8"], "env": {"PORT": "80"}},
    {"command": "npx", "args": ["-y", "s", 8], "env": {"PORT": 80}, "type": "stdio"},
    {"type": "local", "command": ["npx", "-y", "s", "8"], "environment": {"PORT": "80"}},
    {"command": {"path": "npx", "args": ["-y", "s", "8"]}, "env": {"PORT": "80"}},
]


@check_rows("entry", COMMANDS)
@check_rows(
    "table",
    [
        lambda entry: {"mcpServers": {"a": entry}},
        lambda entry: {"servers": {"a": entry}, "inputs": []},
        lambda entry: {"mcp": {"servers": {"a": entry}}},
        lambda entry: {"mcp": {"a": entry}},
        lambda entry: {"context_servers": {"a": entry}},
        lambda entry: {"mcpServers": [{"name": "a", **entry}]},
        lambda entry: {"mcpServers": {"b": {}}, "servers": {"a": entry}},
    ],
)
def test_command_is_read_from_the_files_of_other_clients(
    entry_file: Any, entry: Any, table: Any
) -> None:
    file = entry_file(table(entry))
    wanted = Launch(command="npx", args=("-y", "s", "8"), env={"PORT": "80"})
    assert parse_server(f"{file}#a", None) == wanted


def test_entry_file_may_have_comments_blanks_in_its_path_and_a_home(
    entry_file: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = '\ufeff{// mine\n "servers": {"a b": {"url": "http://127.0.0.1:9/mcp",},}, /* all */}\n'
    file = entry_file(text, "my servers.json")
    assert McpToolset(server=f"{file}#a b").shown == ADDRESS
    monkeypatch.setenv("HOME", str(tmp_path))
    assert McpToolset(server="~/my servers.json#a b").shown == ADDRESS
    entry_file({"servers": {"a": {"url": ADDRESS}}}, "mcp.jsonc")
    assert from_reference("mcp:~/mcp.jsonc#a").shown == ADDRESS
    assert split_entry("node server.js config.json") is None
    assert split_entry("node config.json#a") is None


@check_rows(
    ("content", "why"),
    [
        (
            {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y", "disabled": True}}},
            r"mcp\.json#a: it has a, b \(disabled there\)$",
        ),
        ({"servers": {"one": {"url": ADDRESS}}}, r"name one, such as .*mcp\.json#one: it has one"),
        ({"mcp": {"x": {"enabled": False}}}, r"x \(disabled there\)"),
        ({}, "no servers under mcpServers or servers"),
        ([], "no servers under"),
        ("{", "not valid JSON"),
    ],
)
def test_reference_without_a_name_lists_the_servers(
    entry_file: Any, content: Any, why: str
) -> None:
    file = entry_file(content)
    for reference in (f"{file}", f"{file}#"):
        with pytest.raises(UsageError, match=why):
            McpToolset(server=reference)
        with pytest.raises(UsageError, match=why):
            from_reference(f"mcp:{reference}")


@check_rows(
    ("entry", "why"),
    [
        ({"uri": "x", "type": "http"}, "neither a command nor an address: it has uri, type"),
        ({"url": 5}, "neither a command nor an address: it has url"),
        ({"url": ADDRESS, "type": "SSE"}, "'sse' is not supported"),
        ({"url": ADDRESS, "transport": {"type": "ws"}}, "'ws' is not supported"),
        ({"url": ADDRESS, "authorization_token": "k"}, "a.authorization_token is not supported"),
        ({"url": ADDRESS, "bearer_token_env_var": "K"}, "bearer_token_env_var is not supported"),
        ({"url": ADDRESS, "oauth": {"clientId": "x"}}, "a.oauth is not supported"),
        ({"command": "x", "envFile": ".env"}, "a.envFile is not supported"),
        ({"command": 5}, "a.command: Input should be a valid string"),
        ({"command": "x", "args": "y"}, "a.args"),
        ({"command": "x", "env": {"A": None}}, "a.env.A"),
        ("x", "expected an object"),
    ],
)
def test_entry_that_cannot_be_used_says_why(entry_file: Any, entry: Any, why: str) -> None:
    file = entry_file({"mcpServers": {"a": entry}})
    with pytest.raises(UsageError, match=why):
        McpToolset(server=f"{file}#a")


def test_entry_keys_that_are_not_read_are_named(
    entry_file: Any, caplog: pytest.LogCaptureFixture
) -> None:
    file = entry_file(
        {"mcpServers": {"a": {"command": "x", "timeout": 9, "tools": ["*"], "disabled": True}}}
    )
    with caplog.at_level(logging.WARNING):
        parse_server(f"{file}#a", None)
    (record,) = caplog.records
    assert getattr(record, NOTICE)[1] == {"server": f"{file}#a", "keys": "timeout, tools"}
    assert record.getMessage() == f"{file}#a: timeout, tools: not read"
