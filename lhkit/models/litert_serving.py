"""A script: serve one `.litertlm` file by LiteRT-LM until SIGTERM, or until its starter is gone.

Run in a process of its own: the engine lives inside of it. LiteRT-LM has no server; this one
speaks as much of OpenAI's `/v1/completions` as lhkit asks for, and has one conversation at a time,
as a phone has. What the engine does not tell is left out: the ids of the tokens that it writes.
"""

import asyncio
import ctypes
import hashlib
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

SOFTWARE = "litert-lm"
"""What `/version` calls the engine."""
_HOST = "127.0.0.1"
_BUILD_CHARS = 12
_WATCH_S = 1.0
_MOST_BYTES = 2**24
_DEFAULT_TOKENS = 256
_CUT = "\ufffd"
"""What the engine tells of a character whose bytes are not whole."""
_NEVER_WRITTEN = "<unused5>"
_TRIED_CUTS = 64
"""So many places are tried before a prompt is read anew: a text may fall into other tokens."""


# What is asked of the engine: little enough that a test can play it.


class EngineSession(Protocol):
    """One text that is read and written on, token by token. The first token is a start token."""

    def read(self, text: str) -> int:
        """Read text behind all that is there; return how many tokens were read, start included."""
        ...

    def write(self) -> Iterator[str]:
        """Yield the text of the likeliest tokens up to a stop token, the limit or `cancel`."""
        ...

    def written(self) -> int:
        """Return how many tokens the last `write` wrote, one that ended it included."""
        ...

    def rewind(self, tokens: int) -> None:
        """Forget all behind the first `tokens`, the start token included."""
        ...

    def cancel(self) -> None:
        """Have a `write` in another thread end soon."""
        ...

    def close(self) -> None:
        """Give back its memory."""
        ...


class Engine(Protocol):
    """A loaded file."""

    @property
    def build(self) -> str:
        """Which engine: its version and the begin of its library's SHA-256."""
        ...

    @property
    def threads(self) -> int:
        """How many it computes with."""
        ...

    @property
    def context_tokens(self) -> int:
        """What a session has room for."""
        ...

    @property
    def start_id(self) -> int:
        """The token that it puts before every text."""
        ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """The tokens at which it ends by itself."""
        ...

    def tokens(self, text: str) -> list[int]:
        """Return the ids of a text, without a start token."""
        ...

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids, control tokens included."""
        ...

    def session(self, max_tokens: int) -> EngineSession:
        """Return a session that writes at most so many tokens at a time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a server tells of itself: the file and its names, its quantisation if anybody knows."""

    names: tuple[str, ...]
    file: str
    quantisation: str = ""


class RefusedError(Exception):
    """A request that cannot be answered as it is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    prompt: str
    max_tokens: int
    stops: tuple[str, ...]
    streams: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Account:
    """What is known when a response has ended. `ids` are None where they are not sure."""

    ids: tuple[int, ...] | None
    prompt_tokens: int
    cached_tokens: int
    written: int
    reason: str


class KeptSession:
    """The one session of the engine, kept from request to request.

    What a prompt has in common with what was read before (the tools, the turns so far) is not read
    again: the session is rewound to there. Its methods block; one thread at a time calls them, but
    for `interrupt`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session: EngineSession | None = None
        self._max_tokens = 0
        self._ids: list[int] = []

    def interrupt(self) -> None:
        """Have the engine end what it writes; `answer` ends with it if its `left` is set."""
        if (session := self._session) is not None:
            session.cancel()

    def answer(self, asked: _Asked, told: Callable[[str], None], left: threading.Event) -> _Account:
        """Tell the pieces of an answer as they come, and return the account of it.

        Once `left` is set nobody listens any more, and it ends soon.

        Raises:
            RefusedError: the prompt is too long, or empty.
        """
        ids = self._engine.tokens(asked.prompt)
        if not ids:
            raise RefusedError("prompt: there is nothing to read")
        if len(ids) + 1 >= self._engine.context_tokens:
            raise RefusedError(
                f"the prompt has {len(ids) + 1} tokens, and the maximum context length of the file "
                f"is {self._engine.context_tokens}"
            )
        texts = StopTexts(asked.stops)
        pieces: list[str] = []
        try:
            session, kept, read = self._read(asked, ids)
            is_sure = kept + read == len(ids) + 1
            self._ids = ids if is_sure else []
            for piece in () if left.is_set() else session.write():
                pieces.append(piece)
                if texts.is_met or left.is_set():
                    session.cancel()  # until it has ended the session must not be touched
                elif shown := texts.feed(piece):
                    told(shown)
            written = session.written()
        except BaseException:
            self.close()  # nobody knows what the session holds now
            raise
        if rest := texts.close():
            told(rest)
        room = min(asked.max_tokens, self._engine.context_tokens - len(ids) - 1)
        is_full = written >= room and not texts.is_met and not self._has_end(pieces, written)
        return _Account(
            ids=(self._engine.start_id, *ids) if is_sure else None,
            prompt_tokens=len(ids) + 1,
            cached_tokens=kept,
            written=written,
            reason="length" if is_full else "stop",
        )

    def _has_end(self, pieces: Sequence[str], written: int) -> bool:
        """Return whether one token more was written than the text has: the one that ended it.

        The engine does not tell it. A piece is the text of a token, or of the bytes of characters
        that have none of their own: of a character that is cut nobody knows how many.
        """
        if pieces and pieces[-1].endswith(_CUT):
            return False
        return written == 1 + sum(len(self._engine.tokens(piece)) for piece in pieces)

    def close(self) -> None:
        """Give back the session."""
        session, self._session = self._session, None
        self._ids = []
        if session is not None:
            session.close()

    def _read(self, asked: _Asked, ids: Sequence[int]) -> tuple[EngineSession, int, int]:
        """Have the session know the prompt; return it, and how many tokens it knew and read."""
        cut, rest = self._cut(asked, ids)
        if cut and self._session is not None:
            with suppress(RuntimeError):  # it cannot: a new one reads all
                self._session.rewind(cut + 1)
                return self._session, cut + 1, self._session.read(rest)
        self.close()
        self._session = self._engine.session(asked.max_tokens)
        self._max_tokens = asked.max_tokens
        return self._session, 0, self._session.read(asked.prompt)

    def _cut(self, asked: _Asked, ids: Sequence[int]) -> tuple[int, str]:
        """Return how many tokens of the prompt the session has read, and the text behind them.

        At least one is left to be read. The text behind has to fall into the tokens that it falls
        into within the whole.
        """
        if self._session is None or self._max_tokens != asked.max_tokens:
            return 0, asked.prompt
        most = min(len(self._ids), len(ids) - 1)
        both = zip(self._ids[:most], ids[:most], strict=True)
        same = next((place for place, (ours, its) in enumerate(both) if ours != its), most)
        for cut in range(same, max(0, same - _TRIED_CUTS), -1):
            known = self._engine.text(ids[:cut])
            rest = asked.prompt.removeprefix(known)
            if known and rest != asked.prompt and self._engine.tokens(rest) == list(ids[cut:]):
                return cut, rest
        return 0, asked.prompt


class StopTexts:
    """Gives out text up to the first of some texts, and holds back what may become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(filter(None, stops))
        self._held = ""
        self.is_met = False

    def feed(self, piece: str) -> str:
        """Return what is certain to come before a stop text."""
        if self.is_met:
            return ""
        self._held += piece
        places = [place for each in self._stops if (place := self._held.find(each)) >= 0]
        if places:
            self.is_met = True
            shown, self._held = self._held[: min(places)], ""
            return shown
        keep = max(
            (
                size
                for each in self._stops
                for size in range(1, len(each))
                if self._held.endswith(each[:size])
            ),
            default=0,
        )
        end = len(self._held) - keep
        shown, self._held = self._held[:end], self._held[end:]
        return shown

    def close(self) -> str:
        """Return what was held back: nothing more comes."""
        rest, self._held = self._held, ""
        return rest


# The server.


def application(engine: Engine, served: Served) -> web.Application:
    """Return the server of a loaded file. It answers one request at a time; others wait."""
    return _Server(engine, served).application()


class _Server:
    def __init__(self, engine: Engine, served: Served) -> None:
        self._engine = engine
        self._served = served
        self._conversation = KeptSession(engine)
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=SOFTWARE)

    def application(self) -> web.Application:
        application = web.Application(client_max_size=_MOST_BYTES)
        application.router.add_get("/health", self._health)
        application.router.add_get("/version", self._version)
        application.router.add_get("/v1/models", self._models)
        application.router.add_post("/v1/completions", self._complete)
        application.router.add_post("/tokenize", self._tokenize)
        application.router.add_post("/detokenize", self._detokenize)
        application.on_cleanup.append(self._close)
        return application

    async def _close(self, _: web.Application) -> None:
        async with self._turn:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._conversation.close)
        self._thread.shutdown()

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _version(self, _: web.Request) -> web.Response:
        told = {
            "engine": SOFTWARE,
            "version": self._engine.build,
            "threads": self._engine.threads,
            "file": self._served.file,
            "quantisation": self._served.quantisation,
            "max_model_len": self._engine.context_tokens,
        }
        return web.json_response(told)

    async def _models(self, _: web.Request) -> web.Response:
        listed = [
            {"id": name, "object": "model", "root": self._served.file, "owned_by": SOFTWARE}
            for name in self._served.names
        ]
        return web.json_response({"object": "list", "data": listed})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({"tokens": self._ids_of(str(body.get("prompt") or ""))})

    async def _detokenize(self, request: web.Request) -> web.Response:
        ids = (await request.json()).get("tokens") or []
        return web.json_response({"prompt": self._engine.text(ids)})

    def _ids_of(self, prompt: str) -> list[int]:
        """Return the ids of a prompt that has its own start token."""
        start = self._engine.text([self._engine.start_id])
        ids = self._engine.tokens(prompt.removeprefix(start))
        return [self._engine.start_id, *ids] if prompt.startswith(start) else ids

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = self._asked(await request.json())
        except (ValueError, RefusedError) as error:
            return _refused(str(error))
        async with self._turn, aclosing(self._answered(asked)) as events:
            try:
                first = await anext(events)
            except RefusedError as error:
                return _refused(str(error))
            if not asked.streams:
                return web.json_response(await _whole(first, events))
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            with suppress(ConnectionError):  # who asked has gone: `aclosing` ends the answer
                await _sent(response, first)
                async for event in events:
                    await _sent(response, event)
                await response.write(b"data: [DONE]\n\n")
            return response

    def _asked(self, body: Mapping[str, Any]) -> _Asked:
        """Return what a body asks for.

        Raises:
            RefusedError: it asks for what the engine does not do.
        """
        if not isinstance(body, dict) or not isinstance(prompt := body.get("prompt"), str):
            raise RefusedError("prompt: give one text")
        if (name := body.get("model")) not in (None, *self._served.names):
            raise RefusedError(f"the model `{name}` does not exist")
        if body.get("temperature") not in (None, 0, 0.0):
            raise RefusedError("temperature: only 0 is served, the likeliest token each time")
        if body.get("structured_outputs") or body.get("logprobs") is not None:
            raise RefusedError("structured_outputs, logprobs: the engine has neither")
        limit = body.get("max_tokens", _DEFAULT_TOKENS)
        if type(limit) is not int or limit < 1:
            raise RefusedError("max_tokens: give a number from 1")
        start = self._engine.text([self._engine.start_id])
        if body.get("add_special_tokens") is False:
            if not prompt.startswith(start):
                raise RefusedError(
                    f"prompt: the engine puts {start} before every text, so begin it with {start} "
                    "or leave add_special_tokens out"
                )
            prompt = prompt.removeprefix(start)  # the engine puts it there
        stops = body.get("stop") or []
        ids = [
            each for each in body.get("stop_token_ids") or [] if each not in self._engine.stop_ids
        ]
        return _Asked(
            prompt=prompt,
            max_tokens=limit,
            stops=(
                *([stops] if isinstance(stops, str) else map(str, stops)),
                *(self._engine.text([each]) for each in ids),
            ),
            streams=body.get("stream") is True,
        )

    async def _answered(self, asked: _Asked) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the events of one response; closing early ends it in the engine, too.

        Raises:
            RefusedError: the prompt is too long.
        """
        loop = asyncio.get_running_loop()
        left = threading.Event()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        def told(piece: str | None) -> None:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        def work() -> _Account:
            try:
                return self._conversation.answer(asked, told, left)
            finally:
                told(None)

        future = loop.run_in_executor(self._thread, work)
        try:
            while (piece := await pieces.get()) is not None:
                yield self._event({"text": piece, "finish_reason": None})
            account = await future
            ids = {} if account.ids is None else {"prompt_token_ids": list(account.ids)}
            yield self._event({"text": "", "finish_reason": account.reason, **ids}, account)
        finally:
            if not future.done():
                left.set()
                self._conversation.interrupt()
                await _ended(future)

    def _event(self, choice: Mapping[str, Any], account: _Account | None = None) -> dict[str, Any]:
        told: dict[str, Any] = {
            "object": "text_completion",
            "model": self._served.names[0],
            "choices": [{"index": 0, **choice}],
        }
        if account is not None:
            told["usage"] = {
                "prompt_tokens": account.prompt_tokens,
                "completion_tokens": account.written,
                "total_tokens": account.prompt_tokens + account.written,
                "prompt_tokens_details": {"cached_tokens": account.cached_tokens},
            }
        return told


async def _ended(future: "asyncio.Future[_Account]") -> None:
    """Wait until the engine has let go, however often we are told not to."""
    is_cancelled = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            is_cancelled = True
    if not future.cancelled():
        future.exception()  # nobody is left to hear of it
    if is_cancelled:
        raise asyncio.CancelledError


async def _whole(first: dict[str, Any], events: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    told = [first, *[each async for each in events]]
    text = "".join(each["choices"][0]["text"] for each in told)
    return {**told[-1], "choices": [{**told[-1]["choices"][0], "text": text}]}


async def _sent(response: web.StreamResponse, event: Mapping[str, Any]) -> None:
    await response.write(f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode())


def _refused(words: str) -> web.Response:
    error = {"message": words, "type": "BadRequestError", "code": int(HTTPStatus.BAD_REQUEST)}
    return web.json_response({"error": error}, status=HTTPStatus.BAD_REQUEST)


# The engine itself, out of the package `litert-lm-api`.


class LiteRtEngine:
    """A file that LiteRT-LM has loaded, on the CPU."""

    def __init__(self, file: Path, cache_dir: Path, threads: int) -> None:
        import litert_lm
        from litert_lm import _ffi

        litert_lm.set_min_log_severity(litert_lm.LogSeverity.ERROR)
        self._litert = litert_lm
        self._library = _ffi._get_lib()
        rewind = self._library.litert_lm_session_rewind_to_step
        rewind.restype, rewind.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]
        self.threads = threads
        self.context_tokens = int(litert_lm.ModelInfo(str(file)).max_context_tokens)
        self._engine = litert_lm.Engine(
            str(file),
            backend=litert_lm.Backend.CPU(thread_count=threads),
            cache_dir=str(cache_dir),
            enable_benchmark=True,  # it counts tokens then
        )
        self.start_id = int(self._engine.bos_token_id)
        self.stop_ids = frozenset(ids[0] for ids in self._engine.eos_token_ids if len(ids) == 1)
        library = Path(str(litert_lm.__file__)).parent / "liblitert-lm.so"
        with library.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        self.build = f"{version('litert-lm-api')}-{digest[:_BUILD_CHARS]}"

    def tokens(self, text: str) -> list[int]:
        """See `Engine`."""
        return list(self._engine.tokenize(text)) if text else []

    def text(self, ids: Sequence[int]) -> str:
        """See `Engine`."""
        return str(self._engine.detokenize(list(ids))) if ids else ""

    def session(self, max_tokens: int) -> EngineSession:
        """See `Engine`."""
        session = self._engine.create_session(
            apply_prompt_template=False,
            sampler_config=self._litert.SamplerConfig(top_k=1, top_p=1.0, temperature=0.0, seed=0),
            max_output_tokens=max_tokens,
        )
        return _LiteRtSession(session, self._library)

    def close(self) -> None:
        """Give back its memory; its sessions have to be closed before."""
        self._engine.close()


class _LiteRtSession:
    def __init__(self, session: Any, library: Any) -> None:
        self._session = session
        self._library = library

    def read(self, text: str) -> int:
        self._session.run_prefill([text])
        return int(self._session.get_benchmark_info().last_prefill_token_count)

    def write(self) -> Iterator[str]:
        for each in self._session.run_decode_async():
            yield from each.texts

    def written(self) -> int:
        return int(self._session.get_benchmark_info().last_decode_token_count)

    def rewind(self, tokens: int) -> None:
        """See `EngineSession`.

        The engine still knows the tokens behind the place, and what is read next is taken for
        known where it is the same: a reply that was written and is now read as part of a prompt
        would be lost (0.18.1; its checkpoints are the same). So another token is put there first.
        """
        self._rewind(tokens)
        self._session.run_prefill([_NEVER_WRITTEN])
        self._rewind(tokens)

    def _rewind(self, tokens: int) -> None:
        if self._library.litert_lm_session_rewind_to_step(self._session._ptr, tokens):
            raise RuntimeError(f"LiteRT-LM cannot rewind to token {tokens}")

    def cancel(self) -> None:
        self._session.cancel_process()

    def close(self) -> None:
        self._session.close()


def quantisation_of(file: Path, sha256: str) -> str:
    """Return how a file was quantised, by the manifest that its export left; empty if untold.

    A manifest of another file tells nothing.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        told = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
        if told["file"]["sha256"] == sha256:
            return str(told["to"]).partition(":")[2]
    return ""


async def _run(engine: Engine, served: Served, port: int) -> None:
    """Serve until SIGTERM, or until who started it is gone."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    runner = web.AppRunner(application(engine, served), handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, _HOST, port).start()
    print(f"{served.file} is served at http://{_HOST}:{port}", flush=True)  # noqa: T201 - a script
    starter = os.getppid()
    try:
        while not ended.is_set() and os.getppid() == starter:
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), _WATCH_S)
    finally:
        await runner.cleanup()


def main(arguments: Sequence[str]) -> None:
    """Serve what the arguments say: file, port, threads, the file's SHA-256, names."""
    file, port, threads, sha256, *names = arguments
    path = Path(file)
    served = Served(names=tuple(names), file=path.name, quantisation=quantisation_of(path, sha256))
    with tempfile.TemporaryDirectory() as cache:
        engine = LiteRtEngine(path, Path(cache), int(threads))
        try:
            asyncio.run(_run(engine, served, int(port)))  # noqa: TID251 - a script
        finally:
            engine.close()


if __name__ == "__main__":
    main(sys.argv[1:])
