"""Keys that a person writes into a command line, an address or a file of servers stay there."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import lhkit
from lhkit import app
from lhkit.base.errors import McpServerError, UsageError
from lhkit.base.redaction import is_secret_name, masked, may_be_data, without_secrets
from lhkit.mcp.launch import Launch, Remote, parse_server, server_label
from lhkit.settings import Settings
from lhkit.toolset import name_of
from tests.rows import check_rows

KEY = "canary-7f3a-0123"
GITHUB = "ghp_canary0123456789abcdef"

WRITTEN = [
    f"python x.py --key {KEY}",
    f"npx -y server --api-key={KEY}",
    f"npx -y server --apiKey {KEY} /notes",
    f"npx -y server --access_token '{KEY}' /notes",
    f'npx -y server --password "{KEY}"',
    f"docker run -i -e API_KEY={KEY} image",
    f"docker run --env=GITHUB_TOKEN={KEY} image",
    f"env SECRET={KEY} npx server",
    f"npx mcp-remote https://host/mcp --header 'Authorization: Bearer {KEY}'",
    f"npx mcp-remote https://host/mcp --header Authorization:Bearer {KEY}",
    f"npx mcp-remote https://host/mcp -H 'X-Api-Key: {KEY}'",
    f"server postgres://user:{KEY}@host/db",
    f"server {GITHUB}",
    f"server --verbose {GITHUB} /notes",
    f"https://user:{KEY}@host/mcp",
    f"https://host/mcp?api_key={KEY}&team=1",
    f"https://host/mcp?team=1&access_token={KEY}#part",
    f"https://host/runtime/webhooks/mcp?code={KEY}",
    f"server --db-pw {KEY}",
    f"server pw={KEY}",
]


@check_rows("written", WRITTEN)
def test_toolset_shows_no_written_key(written: str) -> None:
    toolset = lhkit.McpToolset(server=written)
    server = parse_server(written, None)
    texts = [
        repr(toolset),
        str(toolset),
        f"{[toolset]}",
        toolset.shown,
        repr(server),
        name_of(toolset),
        server_label(server),
        masked(json.dumps({"command": ["lhkit", "eval", f"mcp:{written}"]})),
        without_secrets(f"mcp:{written}"),
    ]
    assert [text for text in texts if "canary" in text] == []
    assert all("***" in text for text in texts[:5])


@check_rows(
    "server",
    [
        Launch(command="python", args=("x.py", "--key", KEY), env={"K": KEY}),
        Launch(command="python", args=("x.py", KEY), env={"ACCESS_TOKEN": KEY}),
        Launch(command="python", args=(f"--token={KEY}",)),
        Launch(command=f"/opt/{GITHUB}/run"),
        Remote(url="https://host/mcp", headers={"Authorization": f"Bearer {KEY}", "X": KEY}),
        Remote(url=f"https://host/mcp?key={KEY}"),
    ],
)
def test_server_shows_no_key(server: Any) -> None:
    toolset = lhkit.McpToolset(server=server)
    for holder in (server, toolset, toolset.launched, [toolset]):
        assert "canary" not in f"{holder!r}{holder}", type(holder)
    assert "canary" not in toolset.shown


@check_rows(
    "text",
    [
        "npx -y @modelcontextprotocol/server-filesystem@2026.8.31 /notes",
        "server --key ${K} --token=${TOKEN} -H 'Authorization: Bearer ${T}' {folder}",
        "https://host/mcp?api_key=${K}",
        "server --author Bob --max-tokens 500 --key-file a.pem --token-limit 8 --monkey x",
        "uvx mcp-server-key-value-store --keyboard us sk-learn-helper-tools",
        "python server.py --port 8000 https://host:8000/a?team=12&page=2",
    ],
)
def test_without_secrets_leaves_ordinary_words(text: str) -> None:
    assert without_secrets(text) == text


def test_secret_names_and_values() -> None:
    names = [
        "key",
        "api-key",
        "apiKey",
        "API_KEY",
        "accessToken",
        "X-Api-Key",
        "DB_PASSWORD",
        "pwd",
    ]
    others = ["keyboard", "author", "tokens", "max_tokens", "key-file", "monkey", "path", "bypass"]
    assert [name for name in names if not is_secret_name(name)] == []
    assert [name for name in others if is_secret_name(name)] == []
    assert [
        value for value in ("disabled", "none", "12345678", "us") if not may_be_data(value)
    ] == []
    assert not may_be_data(KEY)


def test_launch_error_shows_no_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = tmp_path / "broken.py"
    program.write_text(
        "import os, sys; sys.exit(f'bad {sys.argv[-1]} {os.environ.get(\"MY_TOKEN\")}')"
    )
    import sys

    server = Launch(
        command=sys.executable,
        args=(str(program), "--key", KEY),
        env={"MY_TOKEN": GITHUB},
    )
    toolset = lhkit.McpToolset(server=server, start_s=60)
    with caplog.at_level(logging.DEBUG), pytest.raises(McpServerError) as raised:
        toolset.open({}, "en")
    assert "canary" not in f"{raised.value}{raised.value!r}"
    assert "bad *** ***" in str(raised.value)
    assert "canary" not in "".join(masked(record.getMessage()) for record in caplog.records)


def test_reference_error_shows_no_key() -> None:
    with pytest.raises(UsageError) as raised:
        lhkit.McpToolset(server=f"npx 'server --token {KEY}")
    assert "canary" not in str(raised.value)
    from lhkit.mcp.toolset import from_reference

    with pytest.raises(UsageError) as raised:
        from_reference(f"mcp:npx server {{folder}} --token {KEY}")
    assert "canary" not in str(raised.value)


def test_addresses_of_models_show_no_key() -> None:
    address = f"http://user:{KEY}@host/v1"
    holders = [
        lhkit.Endpoint(base_url=address),
        lhkit.Endpoint(base_url=f"http://host/v1?token={KEY}"),
        app.ModelChoice(base_url=address),
        Settings(base_url=address),
    ]
    for holder in holders:
        assert "canary" not in f"{holder!r}{holder}", type(holder)
        assert "***" in repr(holder)
