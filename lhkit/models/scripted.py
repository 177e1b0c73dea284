"""An in-memory model that says what its script says: for tests, demos and gold replays.

The twin of `VllmHttp`: the controller cannot tell them apart. It proves nothing about a model.
"""

from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from lhkit.json_values import NotJsonError, compact
from lhkit.messages import ToolCall
from lhkit.models.base import ModelRequest
from lhkit.responses import (
    Finished,
    ModelEvent,
    ModelIdentity,
    TextDelta,
    ThinkingDelta,
    ToolCallParsed,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One scripted model message: words, calls, or an error to raise instead.

    `fragment` plays a call that was cut off by the token limit.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    fragment: str = ""
    error: Exception | None = None


Script: TypeAlias = Callable[[ModelRequest], Reply]
"""Decides the next reply from the request."""


def say(text: str) -> Reply:
    """Return a reply in words."""
    return Reply(text=text)


def call(name: str, /, **args: object) -> Reply:
    """Return a reply that calls one tool."""
    return Reply(calls=(ToolCall(name=name, args=args),))


class ScriptedModel:
    """Plays replies in order, or asks a function for each; keeps the requests it got.

    When the replies have run out it says nothing (an empty message). `chunk_chars` is the size of
    the streamed pieces of text, in characters. `identity` plays somebody else. With
    `needs_isolation` its calls come from a file, and are refused where they reach real data
    (`lhkit.toolset.require_isolated`).
    """

    def __init__(
        self,
        script: Iterable[Reply] | Script,
        *,
        name: str = "scripted",
        chunk_chars: int = 8,
        identity: ModelIdentity | None = None,
        needs_isolation: bool = False,
    ) -> None:
        self.needs_isolation = needs_isolation
        self._next = script if callable(script) else _in_order(script)
        self._chunk_chars = chunk_chars
        self._identity = identity or ModelIdentity(model=name, server="lhkit scripted model")
        self.requests: list[ModelRequest] = []

    @property
    def identity(self) -> ModelIdentity:
        """Who answers: the script."""
        return self._identity

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of the script's next reply.

        Raises:
            Exception: the reply's `error`, if it has one, after its text was streamed.
        """
        self.requests.append(request)
        reply = self._next(request)
        if reply.thinking:
            yield ThinkingDelta(text=reply.thinking)
        for start in range(0, len(reply.text), self._chunk_chars):
            yield TextDelta(text=reply.text[start : start + self._chunk_chars])
        if reply.error is not None:
            raise reply.error
        for tool_call in reply.calls:
            yield ToolCallParsed(call=tool_call)
        yield _finished(reply, self._identity)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


def _in_order(replies: Iterable[Reply]) -> Script:
    remaining = iter(replies)
    return lambda _request: next(remaining, Reply())


def _finished(reply: Reply, identity: ModelIdentity) -> Finished:
    written = [reply.text, *(_raw(tool_call) for tool_call in reply.calls), reply.fragment]
    return Finished(
        reason="length" if reply.fragment else "stop",
        text=reply.text,
        calls=reply.calls,
        fragment=reply.fragment,
        truncated=bool(reply.fragment),
        raw_text="".join(written),
        identity=identity,
    )


def _raw(tool_call: ToolCall) -> str:
    if tool_call.raw:
        return tool_call.raw
    try:
        return compact({"name": tool_call.name, "parameters": tool_call.args})
    except NotJsonError:
        return repr(tool_call)
