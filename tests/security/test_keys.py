"""Keys appear in no output, requests follow no redirect, and responses are bounded."""

import base64
import gzip
import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from html import escape
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import web

import lhkit
from lhkit import app
from lhkit.base.errors import ModelError, RequestRefusedError, RunError, StreamBrokenError
from lhkit.base.redaction import hide, masked
from lhkit.cli.export import _send_traces
from lhkit.cli.frame.finish import log_to_file
from lhkit.cli.report import ReportOptions, report_run
from lhkit.conversation.messages import UserMessage
from lhkit.harness.authoring.reference import gold_models
from lhkit.harness.records.record import Verdict
from lhkit.models.base import ModelRequest
from lhkit.models.client import transport
from lhkit.models.client.served import connect
from lhkit.settings import Settings
from tests.models.fake_vllm import Behaviour, FakeVllm, chat_call, chat_completion, event
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

KEY = 'sk-"canary"/+가-0123456789'
PLAIN = "sk-canary-0123456789abcdef"


SCENARIOS = Path(__file__).parent.parent.parent / "datasets" / "ac" / "dev" / "ac01.yaml"


def scenarios(count: int) -> tuple[lhkit.Scenario, ...]:
    return lhkit.load_scenarios([SCENARIOS], limit=count)


def bearer(request: web.Request) -> str:
    return request.headers.get("Authorization", "").removeprefix("Bearer ")


SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "url": lambda key: quote(key, safe=""),
    "json": json.dumps,
    "json escapes": lambda key: "".join(f"\\u{ord(char):04x}" for char in key),
    "html": escape,
    "basic": lambda key: base64.b64encode(f"user:{key}".encode()).decode(),
    "repr": repr,
    "cut": lambda key: "x" * 290 + key,
}


@check_rows("key", [KEY, PLAIN])
@check_rows("spelling", SPELLINGS)
def test_masked_removes_a_key_in_every_spelling(key: str, spelling: str) -> None:
    hide(key)
    text = masked(f"before {SPELLINGS[spelling](key)} after")
    assert text.startswith("before ")
    assert text.endswith(" after")
    assert "canary" not in text
    assert SPELLINGS[spelling](key)[3:20] not in text.replace("x", "") or spelling == "cut"


def test_masked_leaves_placeholders_that_are_words() -> None:
    hide("EMPTY")
    assert masked("the list is EMPTY") == "the list is EMPTY"


def echo(status: int, spell: Callable[[str], str], kind: str) -> Behaviour:
    """Respond with the received key, in an error, a stream or a name."""

    async def answer(request: web.Request) -> web.StreamResponse:
        key = spell(bearer(request))
        if kind == "stream error":
            body = event({"error": {"message": f"bad key {key}", "code": 500}}).decode()
            return web.Response(text=body, content_type="text/event-stream")
        if kind == "stream noise":
            return web.Response(text=f"data: {key}\n\n", content_type="text/event-stream")
        text = json.dumps({"error": {"message": f"bad key {key}"}}) if kind == "error" else key
        return web.Response(status=status, text=text, content_type="application/json")

    return answer


def request_hello() -> ModelRequest:
    return ModelRequest(messages=(UserMessage(text="hello"),))


@check_rows("spelling", ["plain", "json escapes", "cut"])
@check_rows("kind", ["error", "page", "stream error", "stream noise"])
async def test_request_error_contains_no_key(kind: str, spelling: str) -> None:
    status = 400 if kind in {"error", "page"} else 200
    async with FakeVllm(echo(status, SPELLINGS[spelling], kind)) as server:
        endpoint = lhkit.Endpoint(base_url=server.base_url, api_key=PLAIN, retries=0)
        with pytest.raises(ModelError) as raised:
            await stream_response(endpoint)
    error: BaseException | None = raised.value
    while error is not None:
        assert "canary" not in f"{error}{error!r}{error.args!r}"
        assert quote(PLAIN)[:12] not in f"{error!r}"
        error = error.__cause__


@pytest.mark.parametrize("place", ["/v1/models", "/version"])
async def test_model_identity_contains_no_key(place: str) -> None:
    async def names(request: web.Request) -> web.Response:
        named = {"data": [{"id": f"gemma {bearer(request)}"}], "version": bearer(request)}
        return web.json_response(named)

    async with FakeVllm(routes={place: names}) as server:
        endpoint = lhkit.Endpoint(base_url=server.base_url, api_key=PLAIN, dialect="json")
        model = await connect(endpoint)
        assert "canary" not in repr(model.identity)
        with pytest.raises(ModelError) as raised:
            await connect(replace(endpoint, model="other"))
        assert "canary" not in str(raised.value)
        await model.aclose()


def files_under(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


@pytest.mark.slow
async def test_run_folder_reports_and_logs_contain_no_key(tmp_path: Path) -> None:
    """The key is sent in an error, and in a reply in pieces that are not the key by themselves."""
    handler = log_to_file(Settings(cache_dir=tmp_path, api_key=PLAIN))
    pieces: list[dict[str, object]] = [
        {"content": piece} for piece in ("It is ", PLAIN[:9], PLAIN[9:], ".")
    ]
    pieces += [
        {"tool_calls": [chat_call(0, name, arguments, id="a")]}
        for name, arguments in (("find", f'{{"q": "{PLAIN[:9]}'), (None, f'{PLAIN[9:]}"}}'))
    ]

    async def reply(_request: web.Request) -> web.Response:
        body = b"".join(chat_completion(pieces)).decode()
        return web.Response(text=body, content_type="text/event-stream")

    behaviours = [echo(400, str, "error"), *[reply] * 8]
    async with FakeVllm(*behaviours, routes={"/detokenize": echo(400, str, "error")}) as server:
        endpoint = lhkit.Endpoint(base_url=server.base_url, api_key=PLAIN, retries=0)
        model = await connect(replace(endpoint, dialect="openai"))
        folder = tmp_path / "run"
        run = await lhkit.replay(
            scenarios(2), model, run_dir=folder, max_attempts=1, progress=False
        )
        await model.aclose()
    assert [record.score.verdict for record in run.records].count(Verdict.INVALID) == 1
    files = {name: tmp_path / f"report.{name}" for name in ("html", "junit", "markdown")}
    await report_run(ReportOptions(folder=folder, **files), Settings(cache_dir=tmp_path))
    assert handler is not None
    logging.getLogger("lhkit").error("bad key %s", PLAIN, exc_info=ValueError(PLAIN))
    written = files_under(tmp_path)
    assert {"records.jsonl", "lhkit.log", *(file.name for file in files.values())} <= {
        file.name for file in written
    }
    for file in written:
        assert b"canary" not in file.read_bytes(), file


def holders() -> list[object]:
    return [
        lhkit.Endpoint(base_url="http://127.0.0.1:1", api_key=PLAIN),
        Settings(api_key=PLAIN),
        app.ModelChoice(api_key=PLAIN),
    ]


def test_repr_contains_no_key() -> None:
    for holder in holders():
        assert PLAIN not in f"{holder!r}{holder}{[holder]}", type(holder)


async def stream_response(endpoint: lhkit.Endpoint) -> None:
    """Read one response to its end."""
    model = await connect(replace(endpoint, dialect="openai"))
    try:
        async for _ in model.stream(request_hello()):
            pass
    finally:
        await model.aclose()


@check_rows("status", [301, 302, 303, 307, 308])
@check_rows("path", ["/v1/models", "/v1/chat/completions"])
async def test_client_refuses_a_redirect_and_names_both_addresses(path: str, status: int) -> None:
    async with FakeVllm() as other:

        async def elsewhere(_request: web.Request) -> web.Response:
            return web.Response(status=status, headers={"Location": f"{other.base_url}{path}"})

        async with FakeVllm(elsewhere, routes={path: elsewhere}) as server:
            endpoint = lhkit.Endpoint(base_url=server.base_url, retries=0)
            with pytest.raises(RequestRefusedError) as raised:
                await stream_response(endpoint)
        assert server.base_url in str(raised.value)
        assert other.base_url in str(raised.value)
        assert not other.headers


@pytest.mark.longer
async def test_export_refuses_a_redirect_of_the_receiver(tmp_path: Path) -> None:
    async with FakeVllm() as other:

        async def elsewhere(_request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": f"{other.base_url}/v1/traces"})

        async with FakeVllm(routes={"/v1/traces": elsewhere}) as server:
            run = await lhkit.replay(
                scenarios(1), gold_models(), run_dir=tmp_path / "run", progress=False
            )
            with pytest.raises(RunError, match="redirects to") as raised:
                await _send_traces(run, server.base_url)
        assert server.base_url in str(raised.value)
        assert other.base_url in str(raised.value)
        assert not other.headers


def streams(pieces: Callable[[], AsyncIterator[bytes]], **headers: str) -> Behaviour:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **headers})
        await response.prepare(request)
        async for piece in pieces():
            await response.write(piece)
        return response

    return answer


async def endless_events() -> AsyncIterator[bytes]:
    while True:
        yield event({"choices": [{"delta": {"content": "a"}}]}) * 500


async def endless_line() -> AsyncIterator[bytes]:
    while True:
        yield b"a" * (1 << 20)


async def endless_comments() -> AsyncIterator[bytes]:
    while True:
        yield (b": " + b"wait" * 1_000 + b"\n") * 250


async def bomb(size: int = 64 << 20) -> AsyncIterator[bytes]:
    yield gzip.compress(b"a" * size)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pieces", "headers"),
    [
        (endless_events, {}),
        (endless_line, {}),
        (endless_comments, {}),
        (bomb, {"Content-Encoding": "gzip"}),
        (bomb, {"Content-Encoding": "br"}),
    ],
)
async def test_client_aborts_an_endless_stream(
    pieces: Callable[[], AsyncIterator[bytes]], headers: dict[str, str]
) -> None:
    async with FakeVllm(streams(pieces, **headers)) as server:
        with pytest.raises(StreamBrokenError, match=r"sent too much|not requested"):
            await stream_response(lhkit.Endpoint(base_url=server.base_url, retries=0))


@pytest.mark.longer
@check_rows("status", [200, 500])
@check_rows(
    ("pieces", "headers"),
    [(endless_line, {}), (lambda: bomb(4 << 20), {"Content-Encoding": "gzip"})],
)
async def test_client_aborts_an_endless_body(
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    pieces: Callable[[], AsyncIterator[bytes]],
    headers: dict[str, str],
) -> None:
    monkeypatch.setattr(transport, "MAX_BODY_BYTES", 1 << 20)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers=headers)
        await response.prepare(request)
        async for piece in pieces():
            await response.write(piece)
        return response

    async with FakeVllm(routes={"/v1/models": answer}) as server:
        with pytest.raises(ModelError) as raised:
            await connect(lhkit.Endpoint(base_url=server.base_url, dialect="openai"))
    assert len(str(raised.value)) < 600
    assert status == 500 or "more than 1 MiB in one answer" in str(raised.value)


async def test_client_reads_a_compressed_body() -> None:
    async def answer(_request: web.Request) -> web.Response:
        body = gzip.compress(json.dumps({"data": [{"id": "gemma"}]}).encode())
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async with FakeVllm(routes={"/v1/models": answer}) as server:
        model = await connect(lhkit.Endpoint(base_url=server.base_url, dialect="openai"))
        assert model.identity.model == "gemma"
        await model.aclose()
