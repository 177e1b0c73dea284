"""Any server with OpenAI's chat endpoint: the server renders and parses."""

import hashlib
import json
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from lhkit.errors import ModelError, StreamBrokenError, UsageError
from lhkit.json_values import compact, json_or_repr, plain_json
from lhkit.messages import (
    Finished,
    ModelEvent,
    ModelIdentity,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolCallParsed,
)
from lhkit.models.base import ModelRequest, read_ahead
from lhkit.models.dialects.base import Constraint, ParsedEvent, ParseResult, ToolSpec
from lhkit.models.http import (
    Connection,
    Endpoint,
    Pace,
    ResponseReader,
    connecting,
    detokenized,
    no_completion,
    typed,
)
from lhkit.models.request import OPENAI, chat_asked, chat_body, names_of, read_again, stop_token_ids

# The choices of `/v1/chat/completions`: words and calls as the server parsed them. Pure.
#
# Nothing in the protocol says that one call is complete before all of them are, so calls are
# handed on at the very end, and never one that the token limit may have cut: servers close the
# JSON of such a call, or name another reason. What a server does loosely is read, and listed as a
# repair: `empty_arguments` ("" for {}), `object_arguments` (no string of JSON), `malformed` (no
# JSON at all).


_THINKING_KEYS = ("reasoning", "reasoning_content")


@dataclass(slots=True, kw_only=True)
class _CallParts:
    """One call as its pieces arrive; `place` is its index among the calls of the response."""

    place: int
    id: str = ""
    name: str = ""
    text: str = ""
    value: Any = None

    @property
    def raw(self) -> str:
        """The call as text, as far as it came."""
        given = self.text if self.value is None else json_or_repr(self.value)
        return f"{self.name} {given}".strip()

    def add(self, delta: Mapping[str, Any], known: Collection[str]) -> None:
        self.id = self.id or str(delta.get("id") or "")
        function = typed(delta, "function", dict) or {}
        name = typed(function, "name", str) or ""
        if name != self.name and self.name not in known:  # some servers repeat it in every piece
            self.name += name
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            self.text += arguments
        elif arguments is not None:
            self.value = arguments

    def call(self) -> ToolCall:
        args, repairs = self._arguments()
        return ToolCall(name=self.name, args=args, raw=self.raw, repairs=repairs)

    def _arguments(self) -> tuple[Any, tuple[str, ...]]:
        """Return the arguments; what is no JSON stays text, which validation tells the model."""
        try:
            if self.value is not None:
                return plain_json(self.value), ("object_arguments",)
            if not self.text.strip():
                return {}, ("empty_arguments",)
            return plain_json(json.loads(self.text)), ()
        except (ValueError, RecursionError):
            return self.text or self.raw, ("malformed",)


class ChatContent:
    """Collects one response that the server has parsed.

    Args:
        known: names of the tools, to tell a name that is repeated from one that goes on.
    """

    def __init__(self, known: Collection[str] = ()) -> None:
        self._known = frozenset(known)
        self._words: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[_CallParts] = []
        self._has_ended = False
        self.result: ParseResult | None = None

    @property
    def raw_text(self) -> str:
        """The words, and the calls as the server told them: not what the model wrote."""
        return "\n".join(part for part in ["".join(self._words), *self._raws()] if part)

    def has_token(self, choice: Mapping[str, Any]) -> bool:
        """Return True if the delta has words, thinking or a piece of a call."""
        delta = typed(choice, "delta", dict) or {}
        return any(delta.get(key) for key in ("content", "tool_calls", *_THINKING_KEYS))

    def feed(self, choice: Mapping[str, Any]) -> Iterator[ParsedEvent]:
        """Yield words and thinking; calls wait for the end.

        Raises:
            StreamBrokenError: it is no delta of a chat, or it comes after the end.
        """
        delta = typed(choice, "delta", dict) or {}
        if self._has_ended and self.has_token(choice):
            raise StreamBrokenError(
                "the server went on after the end: give --base-url of the server itself, without a "
                "proxy that changes its streams"
            )
        for key in _THINKING_KEYS:
            if thought := typed(delta, key, str):
                self._thinking.append(thought)
                yield ThinkingDelta(text=thought)
                break
        if text := typed(delta, "content", str):
            self._words.append(text)
            yield TextDelta(text=text)
        for piece in typed(delta, "tool_calls", list) or ():
            if not isinstance(piece, dict):
                raise no_completion(choice)
            self._parts_of(piece).add(piece, self._known)

    def end(self) -> Iterator[ParsedEvent]:
        """Yield nothing: whether the last call was cut is known at the close."""
        self._has_ended = True
        return iter(())

    def close(self, *, truncated: bool) -> Iterator[ParsedEvent]:
        """Yield the calls in order, without the last one if the response was cut."""
        parts = sorted(self._calls, key=lambda each: each.place)
        cut = parts.pop() if truncated and parts else None
        calls = tuple(each.call() for each in parts)
        words = "".join(self._words)
        self.result = ParseResult(
            text=words if words.strip() else "",
            calls=calls,
            fragment=cut.raw or "…" if cut else "",
            thinking="".join(self._thinking),
        )
        for call in calls:
            yield ToolCallParsed(call=call)

    def _raws(self) -> list[str]:
        return [each.raw for each in sorted(self._calls, key=lambda each: each.place)]

    def _parts_of(self, piece: Mapping[str, Any]) -> _CallParts:
        """Return the call that a piece belongs to, a new one if it begins one."""
        index, its_id = typed(piece, "index", int), typed(piece, "id", str) or ""
        if index is None:
            found = self._by_id(its_id) if its_id else self._last_unless_new(piece)
        else:
            found = next((each for each in reversed(self._calls) if each.place == index), None)
        if found is not None and not self._begins_another(found, piece, its_id):
            return found
        last = max((each.place for each in self._calls), default=-1)
        place = last + 1 if index is None or found is not None else index
        self._calls.append(_CallParts(place=place))
        return self._calls[-1]

    def _by_id(self, its_id: str) -> _CallParts | None:
        return next((each for each in self._calls if each.id == its_id), None)

    def _last_unless_new(self, piece: Mapping[str, Any]) -> _CallParts | None:
        """Return the last call, or None if a piece without index and id names a tool anew."""
        last = self._calls[-1] if self._calls else None
        names = bool((typed(piece, "function", dict) or {}).get("name"))
        has_arguments = last is not None and bool(last.text or last.value is not None)
        return None if names and has_arguments else last

    def _begins_another(self, found: _CallParts, piece: Mapping[str, Any], its_id: str) -> bool:
        """Return True for another id with a name: some servers give all calls the index 0."""
        names = bool((typed(piece, "function", dict) or {}).get("name"))
        return names and bool(its_id) and bool(found.id) and its_id != found.id


# Any OpenAI-compatible server that parses tool calls itself, through `/v1/chat/completions`.
#
# So that nobody is locked in: what the server parsed is handed on. Of a vLLM the token ids are
# asked for too, so that what the model really wrote, and what lhkit reads in it, stands beside the
# server's parse as evidence. No extension of vLLM is sent to any other server.


_PATH = "/v1/chat/completions"


class OpenAiHttp:
    """A served model whose server parses its calls. Make one with `connect`; close with `aclose`.

    Safe for many conversations at once. It holds a connection and no other state.
    """

    def __init__(self, identity: ModelIdentity, connection: Connection) -> None:
        self._identity = identity
        self._connection = connection
        self._is_vllm = identity.server.startswith("vllm ")

    @classmethod
    async def connect(cls, endpoint: Endpoint, *, pace: Pace | None = None) -> "OpenAiHttp":
        """Ask the server who it is and return a model that talks to it.

        Raises:
            UsageError: a constraint that no server promises, or an address that is none.
            UnknownModelError: the server does not serve that model; the message lists what it does.
            ModelError: nothing answers, or it refuses.
        """
        require_promised(endpoint.constraint)
        async with connecting(endpoint, pace) as (connection, identity):
            return cls(identity, connection)

    @property
    def identity(self) -> ModelIdentity:
        """Model name, server version, address, and `openai` as the dialect."""
        return self._identity

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one response; closing early closes the request on the server.

        Raises:
            ModelError: the server refused, failed, broke off or stalled.
            UsageError: a call is required and there is no tool.
        """
        body = chat_body(request, self._identity)
        reader = ResponseReader(
            content=ChatContent(names_of(request.tools)),
            max_tokens=request.sampling.max_tokens,
            clock=self._connection.pace.clock,
        )
        async with aclosing(self._connection.events(_PATH, body, reader)) as events:
            async for event in events:
                yield event
        prompt = compact(chat_asked(body))
        finished = reader.finished(
            identity=self._identity,
            prompt_text=prompt,
            prompt_sha256=hashlib.sha256(prompt.encode()).hexdigest(),
        )
        yield await self._with_second_opinion(finished, request.tools, reader.stop_token_id)

    async def warm(self, request: ModelRequest) -> None:
        """Have the server read a prompt in advance (see `ReadsAhead`).

        Raises:
            ModelError: as `stream`.
        """
        await read_ahead(self, request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()

    async def _with_second_opinion(
        self, finished: Finished, tools: Sequence[ToolSpec], stopped_by: int | None
    ) -> Finished:
        """Put what the server parsed and what lhkit reads in the same tokens side by side."""
        told = replace(finished, server_calls=finished.calls)
        if not self._is_vllm or not finished.token_ids:
            return told
        model = self._identity.model
        ends = {*stop_token_ids(model), stopped_by}
        token_ids = finished.token_ids
        written = token_ids[:-1] if token_ids[-1] in ends else token_ids
        try:
            raw_text = await detokenized(self._connection, model, written) if written else ""
        except ModelError:  # the answer is whole without it
            return told
        own = read_again(raw_text, tools, model)
        return replace(told, raw_text=raw_text, own_calls=own.calls, own_fragment=own.fragment)


def require_promised(constraint: Constraint) -> None:
    """Refuse a constraint that the protocol has no word for.

    `required` is its `tool_choice`. Its `auto` promises nothing of a call's arguments, so that the
    constraint `auto` would only be a word.

    Raises:
        UsageError: the constraint is `auto`, or none.
    """
    if constraint not in ("off", "required"):
        raise UsageError(
            f"the dialect {OPENAI} cannot promise --constrain {constraint}: give off, required, "
            "or a dialect of lhkit's own"
        )
