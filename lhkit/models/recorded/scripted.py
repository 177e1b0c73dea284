"""A model in memory that returns scripted replies.

For tests, demos and reference replays. It has the interface of `VllmHttp`. A replay of it measures
the harness, not a model.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from lhkit.base.json_values import NotJsonError, compact
from lhkit.conversation.messages import ToolCall
from lhkit.conversation.responses import (
    Finished,
    ModelEvent,
    ModelIdentity,
    TextDelta,
    ThinkingDelta,
    ToolCallParsed,
)
from lhkit.models.base import ModelRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One scripted model message: text, calls, or an error to raise instead.

    `fragment` simulates a call that was cut off by the token limit.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    fragment: str = ""
    error: Exception | None = None


Script: TypeAlias = Callable[[ModelRequest], Reply]
"""Returns the reply to a request."""


def say(text: str) -> Reply:
    """Return a reply with text."""
    return Reply(text=text)


def call(name: str, /, **args: object) -> Reply:
    """Return a reply with one tool call."""
    return Reply(calls=(ToolCall(name=name, args=args),))


class ScriptedModel:
    """A model that returns scripted replies; `requests` lists its requests.

    Args:
        script: replies, followed by empty messages, or a function from request to reply.
        name: name of the model.
        chunk_chars: length of the streamed chunks of text, in characters.
        identity: identity to report instead of the script's.
        needs_isolation: the calls come from a file, so that they are refused where they would
            reach real data (`lhkit.toolset.require_isolated`).
        pause: awaited before every chunk of text, to show how it streams.
    """

    def __init__(
        self,
        script: Iterable[Reply] | Script,
        *,
        name: str = "scripted",
        chunk_chars: int = 8,
        identity: ModelIdentity | None = None,
        needs_isolation: bool = False,
        pause: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._pause = pause
        self.needs_isolation = needs_isolation
        if callable(script):
            self._next = script
        else:
            remaining = iter(script)
            self._next = lambda _request: next(remaining, Reply())
        self._chunk_chars = chunk_chars
        self._identity = identity or ModelIdentity(model=name, server="lhkit scripted model")
        self.requests: list[ModelRequest] = []

    @property
    def identity(self) -> ModelIdentity:
        """The script's identity."""
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
            if self._pause is not None:
                await self._pause()
            yield TextDelta(text=reply.text[start : start + self._chunk_chars])
        if reply.error is not None:
            raise reply.error
        for tool_call in reply.calls:
            yield ToolCallParsed(call=tool_call)
        yield _finished(reply, self._identity)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


def _finished(reply: Reply, identity: ModelIdentity) -> Finished:
    raw_parts = [reply.text, *(_raw_call(tool_call) for tool_call in reply.calls), reply.fragment]
    return Finished(
        reason="length" if reply.fragment else "stop",
        text=reply.text,
        calls=reply.calls,
        fragment=reply.fragment,
        truncated=bool(reply.fragment),
        raw_text="".join(raw_parts),
        identity=identity,
    )


def _raw_call(tool_call: ToolCall) -> str:
    if tool_call.raw:
        return tool_call.raw
    try:
        return compact({"name": tool_call.name, "parameters": tool_call.args})
    except NotJsonError:
        return repr(tool_call)
