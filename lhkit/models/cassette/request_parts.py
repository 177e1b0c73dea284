"""What a request is compared by, and how two requests differ.

Only content counts: handlers, summaries and time limits of tools do not, nor hints to the user,
which no model is sent.
"""

import difflib
import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

from lhkit.errors import CassetteError
from lhkit.json_values import NotJsonError, canonical, plain_json
from lhkit.messages import Message, SystemMessage, ToolCallMessage, UserMessage
from lhkit.models.base import ModelRequest
from lhkit.models.cassette.layout import folded, laid_out
from lhkit.text import printable
from lhkit.tool_results import MAX_RESULT_BYTES, envelope, envelope_bytes

_LABEL_CHARS = 12
_DIFF_LINES = 24
_LINE_CHARS = 120
_COMPARED_CHARS = 2000


@dataclass(frozen=True, kw_only=True)
class RequestParts:
    """What identifies a request, as plain JSON. Hints to the user, never sent, are left out."""

    instructions: str
    tools: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    sampling: dict[str, Any]

    @cached_property
    def key(self) -> str:
        """The hash of the content: equal requests have equal keys."""
        return _hash([self.instructions, self.tools, self.messages, self.sampling])


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestChange:
    """A part that differs: its name, and its content then and now (None where there is none)."""

    name: str
    recorded: Any
    asked: Any

    def diff(self) -> str:
        """Return a short unified diff, laid out as in the file."""
        lines = list(
            difflib.unified_diff(
                _lines(self.recorded),
                _lines(self.asked),
                f"recorded {self.name}",
                f"asked {self.name}",
                n=1,
                lineterm="",
            )
        )
        left_out = len(lines) - _DIFF_LINES
        more = [f"… {left_out} more lines"] if left_out > 0 else []
        if _composed(self.recorded) == _composed(self.asked):
            more.append("they look the same: one has Korean composed (NFC), one not (NFD)")
        return "\n".join([*map(printable, lines[:_DIFF_LINES]), *more])


def parts_of(request: ModelRequest) -> RequestParts:
    """Return what identifies a request.

    Raises:
        CassetteError: JSON cannot carry a part of it.
    """
    sampling = request.sampling
    try:
        return RequestParts(
            instructions=request.instructions,
            tools=[
                plain_json(
                    {"name": t.name, "description": t.description, "parameters": t.parameters}
                )
                for t in request.tools
            ],
            messages=[
                plain_json(_message(each))
                for each in request.messages
                if not isinstance(each, SystemMessage)
            ],
            sampling={
                "max_tokens": sampling.max_tokens,
                "temperature": float(sampling.temperature),  # 0 and 0.0 are one temperature
                "seed": sampling.seed,
            },
        )
    except NotJsonError as error:
        raise CassetteError(
            f"a cassette cannot hold this request ({error}): ask the model itself"
        ) from error


def nearest(asked: RequestParts, recorded: Sequence[RequestParts]) -> RequestParts:
    """Return the recorded request most like `asked`; there must be one."""
    return max(recorded, key=lambda each: _likeness(asked, each))


def changes(recorded: RequestParts, asked: RequestParts) -> list[RequestChange]:
    """Return the parts that differ; of the messages only the first that does."""
    found = [
        RequestChange(name=name, recorded=getattr(recorded, name), asked=getattr(asked, name))
        for name in ("instructions", "tools", "sampling")
        if canonical(getattr(recorded, name)) != canonical(getattr(asked, name))
    ]
    start = _shared_start(recorded, asked)
    pairs = list(zip_longest(recorded.messages, asked.messages))[start : start + 1]
    found += [
        RequestChange(name=f"message {start + 1}", recorded=then, asked=now) for then, now in pairs
    ]
    return found


def label(value: Any) -> str:
    """Return a short name for content, the same for the same content."""
    return _hash(value)[:_LABEL_CHARS]


def plain(value: Any) -> Any:
    """Return dataclasses as mappings, without the fields that are empty as they are by default."""
    if is_dataclass(value) and not isinstance(value, type):
        items = {each: plain(getattr(value, each.name)) for each in fields(value)}
        return {
            each.name: item
            for each, item in items.items()
            if item or getattr(value, each.name) != each.default
        }
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def _message(message: Message) -> dict[str, Any]:
    match message:
        case ToolCallMessage(call=call, result=result):
            told = {"name": call.name, "args": plain(call.args)}
            told |= {"text": message.text, "index": message.index, "raw": call.raw}
            if envelope_bytes(result) > message.max_bytes:  # else no model reads these
                told["hint"] = message.hint
                if message.max_bytes != MAX_RESULT_BYTES:
                    told["max_bytes"] = message.max_bytes
            told = {key: each for key, each in told.items() if each or key in {"name", "args"}}
            return {"from": "tool", **told, "result": envelope(result)}
        case UserMessage():
            return {"from": "user", **plain(message)}
        case _:
            return {"from": "model", **plain(message)}


def _likeness(asked: RequestParts, recorded: RequestParts) -> tuple[int, int, float]:
    changed = changes(recorded, asked)
    return (
        _shared_start(recorded, asked),
        -len(changed),
        _similarity(changed),
    )


def _similarity(changed: list[RequestChange]) -> float:
    last = changed[-1]
    then, now = (canonical(each)[:_COMPARED_CHARS] for each in (last.recorded, last.asked))
    return difflib.SequenceMatcher(None, then, now, autojunk=False).quick_ratio()


def _shared_start(one: RequestParts, other: RequestParts) -> int:
    """Return how many messages are the same from the first on."""
    pairs = list(zip(one.messages, other.messages, strict=False))
    same = (canonical(then) == canonical(now) for then, now in pairs)
    return next((i for i, is_same in enumerate(same) if not is_same), len(pairs))


def _lines(value: Any) -> list[str]:
    if value is None:
        return []
    text = laid_out(folded({"text": value} if isinstance(value, str) else value))
    return [
        line[start : start + _LINE_CHARS]
        for line in text.split("\n")
        for start in range(0, len(line), _LINE_CHARS)
    ]


def _composed(value: Any) -> str:
    return unicodedata.normalize("NFC", canonical(value))


def _hash(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()
