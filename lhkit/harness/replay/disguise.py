"""Other names for tools and arguments, and the way back. Pure: values in, values out.

The model is shown a disguised request and answers in the disguise; whoever dispatches, matches or
reads a record sees the real names. What a name meant before the disguise means nothing in it.
"""

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lhkit.models.base import ModelRequest
from lhkit.tools.definition import ToolDefinition
from lhkit.vocab.generation import Finished, ModelEvent, ToolCallParsed
from lhkit.vocab.messages import Message, ToolCall, ToolCallMessage
from lhkit.vocab.results import ToolErr, ToolResult

UNSEEN = "unseen:"
"""Marks a real name that a model wrote although it was shown another one."""

_LISTS = ("allOf", "anyOf", "oneOf")
_SUBSCHEMAS = ("if", "then", "else", "not")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disguise:
    """Which name stands for which, one to one; what is not listed keeps its name."""

    tools: Mapping[str, str]
    arguments: Mapping[str, str]

    @property
    def inverse(self) -> "Disguise":
        """The same names the other way round."""
        return Disguise(tools=_turned(self.tools), arguments=_turned(self.arguments))

    def request(self, request: ModelRequest) -> ModelRequest:
        """Return the request as the model is to see it."""
        return replace(
            request,
            tools=tuple(self.tool(each) for each in request.tools),
            instructions=self.text(request.instructions),
            messages=tuple(map(self._message, request.messages)),
        )

    def event(self, event: ModelEvent) -> ModelEvent:
        """Return what the model gave in terms of the real names; its raw text stays as it is."""
        match event:
            case ToolCallParsed(call=call):
                return replace(event, call=self.real(call))
            case Finished():
                return replace(
                    event,
                    calls=tuple(map(self.real, event.calls)),
                    server_calls=self._reals(event.server_calls),
                    own_calls=self._reals(event.own_calls),
                )
            case _:
                return event

    def tool(self, tool: ToolDefinition) -> ToolDefinition:
        """Return one tool under its other names."""
        return replace(
            tool,
            name=self.tools.get(tool.name, tool.name),
            description=self.text(tool.description),
            parameters=self._schema(tool.parameters),
        )

    def text(self, text: str) -> str:
        """Return prose with the names replaced.

        Only what is surely a name: every tool; an argument if it has an underscore, stands in
        quotes, or is followed by a bracket. An ordinary word like `date` is left alone.
        """
        return _pattern(self.tools, self.arguments).sub(self._instead, text)

    def real(self, call: ToolCall) -> ToolCall:
        """Return a call under its real names."""
        tools, arguments = _turned(self.tools), _turned(self.arguments)
        args = call.args
        if isinstance(args, Mapping):
            args = {_back(name, arguments): value for name, value in args.items()}
        return replace(call, name=_back(call.name, tools), args=args)

    def _reals(self, calls: tuple[ToolCall, ...] | None) -> tuple[ToolCall, ...] | None:
        return None if calls is None else tuple(map(self.real, calls))

    def _message(self, message: Message) -> Message:
        if not isinstance(message, ToolCallMessage):
            return message
        args = message.args
        if isinstance(args, Mapping):
            args = {_forth(name, self.arguments): value for name, value in args.items()}
        return replace(
            message,
            name=_forth(message.name, self.tools),
            args=args,
            result=self._result(message.result),
        )

    def _result(self, result: ToolResult) -> ToolResult:
        if not isinstance(result, ToolErr):
            return result
        return replace(result, reason=self.text(result.reason))

    def _instead(self, found: re.Match[str]) -> str:
        name = found[0].strip("'")
        return found[0].replace(name, self.tools.get(name) or self.arguments[name])

    def _schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object schema with its own properties renamed, not those of nested ones."""
        return {key: self._keyword(key, value) for key, value in schema.items()}

    def _keyword(self, key: str, value: Any) -> Any:
        match key:
            case "properties" | "dependentSchemas":
                return {self._named(name): self._described(each) for name, each in value.items()}
            case "required":
                return [self._named(name) for name in value]
            case "dependentRequired":
                return {
                    self._named(name): [*map(self._named, all_)] for name, all_ in value.items()
                }
            case _ if key in _LISTS:
                return [self._schema(each) for each in value]
            case _ if key in _SUBSCHEMAS:
                return self._schema(value)
            case _:
                return value

    def _named(self, name: str) -> str:
        return self.arguments.get(name, name)

    def _described(self, schema: Any) -> Any:
        if not isinstance(schema, Mapping) or "description" not in schema:
            return schema
        return {**schema, "description": self.text(schema["description"])}


def disguise(tools: Iterable[ToolDefinition], seed: int) -> Disguise:
    """Return names that say nothing: `tool_3`, `field_12`; an argument has one name everywhere."""
    known = tuple(tools)
    arguments = dict.fromkeys(name for tool in known for name in _arguments(tool))
    return Disguise(
        tools=_numbered("tool", [tool.name for tool in known], seed),
        arguments=_numbered("field", list(arguments), seed),
    )


def _arguments(tool: ToolDefinition) -> tuple[str, ...]:
    return tuple(tool.parameters.get("properties", {}))


def _numbered(prefix: str, names: list[str], seed: int) -> dict[str, str]:
    order = random.Random(f"{prefix} {seed}")  # noqa: S311 - names, not secrets
    numbers = order.sample(range(1, len(names) + 1), len(names))
    return {name: f"{prefix}_{number}" for name, number in zip(names, numbers, strict=True)}


def _turned(names: Mapping[str, str]) -> dict[str, str]:
    return {other: name for name, other in names.items()}


def _back(name: str, real: Mapping[str, str]) -> str:
    """Return the real name; one that was never shown does not count as itself."""
    if name in real:
        return real[name]
    return f"{UNSEEN}{name}" if name in real.values() else name


def _forth(name: str, other: Mapping[str, str]) -> str:
    return name.removeprefix(UNSEEN) if name.startswith(UNSEEN) else other.get(name, name)


def _pattern(tools: Mapping[str, str], arguments: Mapping[str, str]) -> re.Pattern[str]:
    sure = [re.escape(name) for name in (*tools, *arguments) if "_" in name or name in tools]
    words = [re.escape(name) for name in arguments if "_" not in name]
    parts = [rf"(?<![A-Za-z0-9_])(?:{'|'.join(sure)})(?![A-Za-z0-9_])"] if sure else []
    if words:
        either = "|".join(words)
        parts += [rf"'(?:{either})'", rf"(?<![A-Za-z0-9_'])(?:{either})(?=\()"]
    return re.compile("|".join(parts) or r"(?!)")
