"""An engine that plays LiteRT-LM's, in this process, and lhkit's real server around it.

What it does was compared by hand with the real one (litert-lm-api 0.18.1, Gemma 3 270M): it puts a
start token before every text, a text in two halves may fall into other tokens than the whole, a
rewound session goes on as a fresh one would, and `cancel` ends what is being written.
"""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from aiohttp import web

from lhkit.models.litert_serving import EngineSession, Served, application

MARKS = {
    1: "<eos>",
    2: "<bos>",
    105: "<start_of_turn>",
    106: "<end_of_turn>",
    107: "\n",
    108: "\n\n",
}
ENDLESS, FULL, FAULT = "endless", "full", "fault"
_LETTERS = 1000
_PIECES = re.compile(
    "|".join(sorted(map(re.escape, MARKS.values()), key=len, reverse=True)) + "|.", re.DOTALL
)


class FakeEngine:
    """Answers with the replies it is given, in order: pieces of text, each a token.

    Three pieces are none: behind `ENDLESS` a reply goes on until somebody cancels, at `FULL` the
    limit of tokens is reached, at `FAULT` the engine fails. `read_texts` is all that any session
    has read, `prompts` what each reply answers, `most_at_once` how many were written together.
    With `miscounts` the engine counts so many tokens too many.
    """

    build = "0.18.1-0123456789ab"
    threads = 2
    start_id = 2
    stop_ids = frozenset({1, 106})

    def __init__(self, *replies: Sequence[str], context_tokens: int = 4096) -> None:
        self.replies = list(replies)
        self.context_tokens = context_tokens
        self.read_texts: list[str] = []
        self.rewound: list[int] = []
        self.prompts: list[list[int]] = []
        self.open_sessions = 0
        self.most_at_once = 0
        self.at_once = 0
        self.miscounts = 0
        self.cannot_rewind = False

    def tokens(self, text: str) -> list[int]:
        ids = {mark: number for number, mark in MARKS.items()}
        return [ids.get(each, _LETTERS + ord(each[0])) for each in _PIECES.findall(text)]

    def text(self, ids: Sequence[int]) -> str:
        return "".join(MARKS.get(each) or chr(each - _LETTERS) for each in ids)

    def session(self, max_tokens: int) -> EngineSession:
        self.open_sessions += 1
        return _FakeSession(self, max_tokens)


class _FakeSession:
    def __init__(self, engine: FakeEngine, max_tokens: int) -> None:
        self._engine = engine
        self._max_tokens = max_tokens
        self._ids: list[int] = []
        self._written = 0
        self._is_cancelled = threading.Event()

    def read(self, text: str) -> int:
        self._engine.read_texts.append(text)
        ids = [*(() if self._ids else (self._engine.start_id,)), *self._engine.tokens(text)]
        self._ids += ids
        return len(ids) + self._engine.miscounts

    def write(self) -> Iterator[str]:
        engine = self._engine
        engine.prompts.append(list(self._ids))
        engine.at_once += 1
        engine.most_at_once = max(engine.most_at_once, engine.at_once)
        self._is_cancelled.clear()
        self._written = 0
        most = min(self._max_tokens, engine.context_tokens - len(self._ids))
        try:
            reply = engine.replies.pop(0)
            for piece in self._pieces(reply):
                if self._is_cancelled.is_set():
                    return
                if self._written == most and reply[-1] != ENDLESS:
                    return
                if piece == FAULT:
                    raise RuntimeError("the engine fails")
                if piece == FULL:
                    self._written = self._max_tokens
                    return
                self._written += 1
                self._ids.append(_LETTERS + ord(piece[0]))
                yield piece
            self._written += self._written < most  # the token that ends it
        finally:
            engine.at_once -= 1

    @staticmethod
    def _pieces(reply: Sequence[str]) -> Iterator[str]:
        for piece in reply:
            while piece == ENDLESS:
                yield "."
            yield piece

    def written(self) -> int:
        return self._written

    def rewind(self, tokens: int) -> None:
        if self._engine.cannot_rewind:
            raise RuntimeError("the engine cannot rewind")
        self._engine.rewound.append(tokens)
        del self._ids[tokens:]

    def cancel(self) -> None:
        self._is_cancelled.set()

    def close(self) -> None:
        self._engine.open_sessions -= 1


class LiteRtServed:
    """The real server around a fake engine, at a free port."""

    def __init__(self, engine: FakeEngine, served: Served | None = None) -> None:
        self._served = served or Served(names=("tuned",), file="tuned-int8.litertlm")
        self._runner = web.AppRunner(
            application(engine, self._served), shutdown_timeout=0.01, handler_cancellation=True
        )
        self.base_url = ""

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        with suppress(ConnectionError):
            await self._runner.cleanup()
