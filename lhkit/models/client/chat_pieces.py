"""Join the pieces of a streamed chat response: text, and tool calls.

No I/O. Servers deviate from the protocol in known ways; whatever has one meaning is accepted.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lhkit.base.json_values import json_or_repr
from lhkit.base.text import is_whole
from lhkit.conversation.messages import ToolCall
from lhkit.models.client.sse import typed, whole_number
from lhkit.models.dialects.arguments import read_arguments

_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_BYTES = re.compile("[\udc80-\udcff]+")  # as `surrogateescape` decodes them
_BEGUN = re.compile(
    "(?:[\ud800-\udbff\udcc2-\udcdf]|[\udce0-\udcef][\udc80-\udcbf]?"
    "|[\udcf0-\udcf4][\udc80-\udcbf]{0,2})\\Z"
)
"""The first part of a character: a surrogate, or bytes of UTF-8."""
_VALUE = re.compile(r"[^ \t\r\n]")
_STRUCTURE = re.compile(r'["\\{}\[\]]')
_PROVED_CHARS = 16
"""A piece of this length is not repeated in full, and continued, by chance."""
_PROVED_PIECES = 4
_WORD_CHARS = 3
_PHRASE_CHARS = 8
_CALL_KEYS = frozenset({"index", "id", "type", "function"})
_PART_KEYS = frozenset({"type", "index", "id", "format"})
_FUNCTION_KEYS = frozenset({"name", "arguments"})


def join_halves(text: str) -> str:
    """Return `text` with the parts of each character joined: surrogates, or bytes of UTF-8."""
    text = _HALVES.sub(
        lambda match: match.group().encode("utf-16", "surrogatepass").decode("utf-16"), text
    )
    return _BYTES.sub(_joined_bytes, text)


def has_stray_bytes(text: str) -> bool:
    """Return True if `text` has bytes that are not UTF-8."""
    return _BYTES.search(text) is not None


def _joined_bytes(match: re.Match[str]) -> str:
    try:
        return match.group().encode("utf-8", "surrogateescape").decode()
    except UnicodeDecodeError:
        return match.group()


class TextPieces:
    """Joins a text that arrives in pieces; halves of a character wait for the other half.

    Some servers repeat the whole text so far in every piece. They are recognised only if
    every piece continues the one before and they are long, many, or whole words. Until that is
    certain the text is held back.

    Args:
        may_repeat: whether pieces may repeat the text so far.

    Attributes:
        is_cumulative: the pieces repeat the text so far.
    """

    def __init__(self, *, may_repeat: bool = True) -> None:
        self.is_cumulative = False
        self._is_certain = not may_repeat
        self._pieces: list[str] = []  # of the first ones, while it is uncertain
        self._newest = ""
        self._before = ""  # the piece that the newest one continues
        self._growths = 0
        self._joined: list[str] = []
        self._half = ""

    @property
    def text(self) -> str:
        """The text so far, without what is held back."""
        return "".join(self._joined)

    def add(self, piece: str) -> str:
        """Add a piece; return the text that is certain now."""
        if not piece:
            return ""
        if self.is_cumulative and piece.startswith(self._newest):
            new = piece[len(self._newest) :]
            self._newest = piece
            return self._emit(new)
        if self._is_certain:
            return self._emit(piece)
        if not self._pieces or piece.startswith(self._newest):
            if piece != self._newest:
                self._before, self._newest = self._newest, piece
                self._growths += bool(self._pieces)
            self._pieces.append(piece)
            if len(self._pieces) == 1:
                return self._emit(piece)
            is_over = len(self._pieces) > _PROVED_PIECES
            return self._decide() if is_over or self._is_proved(at_end=False) else ""
        self._is_certain = True
        return self._emit("".join([*self._pieces[1:], piece]))

    def close(self) -> str:
        """Return the text that was held back."""
        rest = "" if self._is_certain else self._decide()
        half, self._half = self._half, ""
        self._joined.append(half)
        return rest + half

    def _decide(self) -> str:
        self._is_certain = True
        if len(self._pieces) > 1 and self._is_proved(at_end=True):
            self.is_cumulative = True
            return self._emit(self._newest[len(self._pieces[0]) :])
        return self._emit("".join(self._pieces[1:]))

    def _is_proved(self, *, at_end: bool) -> bool:
        before, growths = self._before, self._growths
        if growths == 0 or _is_periodic(self._newest) or not re.search(r"[^\W\d_]", before):
            return False
        if len(before) >= _PROVED_CHARS or growths >= _PROVED_PIECES:
            return True
        is_word = len(before) >= _WORD_CHARS and before[0].isalpha() and before[-1].isalpha()
        return at_end and (growths > 1 or is_word or len(before) >= _PHRASE_CHARS)

    def _emit(self, text: str) -> str:
        if not self._half and is_whole(text):
            self._joined.append(text)
            return text
        text = join_halves(self._half + text)
        begun = _BEGUN.search(text, max(0, len(text) - 3))
        self._half = begun.group() if begun else ""
        text = text[: len(text) - len(self._half)]
        self._joined.append(text)
        return text


def _is_periodic(text: str) -> bool:
    """Return True for a text that repeats one part, such as `haha`."""
    return text in (text + text)[1:-1]


class _ValueEnd:
    """Finds the end of a JSON value in pieces; visits each character once."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False
        self._last = ""

    @property
    def is_complete(self) -> bool:
        return not self._is_in_string and self._depth <= 0 and self._last in {"}", "]", '"', "l"}

    def feed(self, text: str) -> None:
        at = 0
        if self._is_escaped:
            at, self._is_escaped = 1, False
        while match := _STRUCTURE.search(text, at):
            mark, at = match.group(), match.end()
            if mark == "\\":
                self._is_escaped = at == len(text)
                at += 1
            elif mark == '"':
                self._is_in_string = not self._is_in_string
            elif not self._is_in_string:
                self._depth += 1 if mark in "{[" else -1
        self._last = text.rstrip()[-1:] or self._last


@dataclass(slots=True, kw_only=True)
class PartialCall:
    """A call as its pieces arrive.

    Attributes:
        index: its index in the response, as the server gave it.
        event: the number of the last event with a piece of it.
        extra: fields of the call that lhkit does not know.
        function_extra: the same, of its function.
    """

    index: int | None
    id: str = ""
    name: str = ""
    value: Any = None
    event: int = -1
    extra: dict[str, Any] = field(default_factory=dict)
    function_extra: dict[str, Any] = field(default_factory=dict)
    _pieces: list[str] = field(default_factory=list)
    _is_cumulative: bool = True  # every piece began with the one before, so far
    _newest: str = ""
    _has_text: bool = False
    _again: list["PartialCall"] = field(default_factory=list)
    _end: _ValueEnd = field(default_factory=_ValueEnd)

    @property
    def text(self) -> str:
        """The arguments received as text."""
        return "".join(self._pieces)

    @property
    def sent_arguments(self) -> str:
        """The arguments as the server sent them, as text."""
        return join_halves(_raw_arguments(self))

    @property
    def raw(self) -> str:
        """The call received so far, as text."""
        return join_halves(
            f"{self.name} {''.join(map(_raw_arguments, [self, *self._again]))}".strip()
        )

    @property
    def has_arguments(self) -> bool:
        """True if there is a part of the arguments."""
        return self.value is not None or self._has_text

    @property
    def is_empty(self) -> bool:
        """True if there is neither a name nor an argument."""
        return not self.name and not self.has_arguments

    @property
    def is_complete(self) -> bool:
        """True if the arguments so far are a whole JSON value."""
        return self.value is not None or self._end.is_complete

    def continues(self, name: str, known: Collection[str]) -> bool:
        """Return True if `name` is a part of this call's name, or all of it so far again."""
        if name == self.name or not self.name:
            return True
        if self.has_arguments:
            return False
        if self.name + name in known:
            return True
        is_longer = name.startswith(self.name)
        return self.name not in known and (is_longer or name not in known)

    def add(self, piece: Mapping[str, Any], known: Collection[str], event: int) -> None:
        """Add a piece, which is known to be of this call."""
        self.event = event
        self.id = self.id or call_id(piece)
        function = typed(piece, "function", dict) or {}
        self._add_name(called_name(piece), known)
        self.extra |= _unknown(piece, _CALL_KEYS)
        self.function_extra |= _unknown(function, _FUNCTION_KEYS)
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            self.add_text(arguments)
        elif arguments or self.value is None:  # an empty object may also follow the complete one
            self.value = arguments

    def _add_name(self, name: str, known: Collection[str]) -> None:
        if not name or name == self.name or (self.name and self.has_arguments):
            return
        if self.name + name in known:
            self.name += name
        elif self.name not in known:
            is_longer = bool(self.name) and name.startswith(self.name)
            self.name = name if is_longer or name in known else self.name + name

    def add_text(self, text: str) -> None:
        """Add arguments."""
        if not text:
            return
        self._is_cumulative = self._is_cumulative and text.startswith(self._newest)
        self._pieces.append(text)
        self._has_text = self._has_text or not text.isspace()
        self._newest = text
        if self._is_cumulative:
            self._end = _ValueEnd()
        self._end.feed(text)

    @property
    def key(self) -> str:
        """The arguments as text to compare; empty if there are none."""
        return _key(self.arguments()[0]) if self.has_arguments else ""

    def merge(self, again: "PartialCall") -> None:
        """Take over the same call, sent again."""
        self.id = self.id or again.id
        self.extra |= again.extra
        self.function_extra |= again.function_extra
        if again.has_arguments:
            self._again.append(again)

    def call(self) -> ToolCall:
        """Return the call."""
        args, repairs = self.arguments()
        sent = {"call": self.extra, "function": self.function_extra}
        return ToolCall(
            name=join_halves(self.name),
            args=args,
            raw=self.raw,
            repairs=repairs,
            echo={key: fields for key, fields in sent.items() if fields} or None,
        )

    def arguments(self) -> tuple[Any, tuple[str, ...]]:
        """Return arguments and repairs; invalid JSON stays text for validation."""
        args, repairs = self._own_arguments()
        if not self._again:
            return args, repairs
        for again in self._again if args == {} else ():
            args = again._own_arguments()[0] or args
        return args, ("repeated_arguments", *repairs)

    def _own_arguments(self) -> tuple[Any, tuple[str, ...]]:
        text = join_halves(self.text)
        if self.value is None:
            args, repairs = read_arguments(text)
        elif not text.strip():
            args, repairs = read_arguments(self.value)
            repairs = ("object_arguments", *repairs)
        else:
            args, repairs = text, ("malformed",)
        if "malformed" not in repairs:
            return args, repairs
        try:
            return _common_object([*_json_texts(text), self.value])
        except (ValueError, RecursionError):
            pass
        if self._is_cumulative and len(self._pieces) > 1 and self.value is None:
            args, repairs = read_arguments(join_halves(self._newest))
            if isinstance(args, dict):
                return args, ("cumulative_arguments", *repairs)
        return text or self.raw, ("malformed",)


class CallPieces:
    """Assigns the pieces of tool calls to calls.

    A piece belongs to the call of its id or index. Where calls share these or have none, a piece
    with a name begins another call if the name is another one, or if the arguments of the call
    before are complete and it begins new ones. Sent again with the same arguments, a call is one.

    Args:
        known: names of the tools, to distinguish a repeated name from a continued one.
    """

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self._calls: list[PartialCall] = []
        self._by_index: dict[int | None, PartialCall] = {}
        self._by_id: dict[str, PartialCall] = {}
        self._event = 0

    @property
    def calls(self) -> Sequence[PartialCall]:
        """The calls in order: by index, or by arrival if calls share one or have none."""
        indices = [call.index for call in self._calls]
        if None in indices or len(set(indices)) < len(indices):
            return self._calls
        return sorted(self._calls, key=lambda call: call.index or 0)

    def feed(self, pieces: Sequence[Mapping[str, Any]]) -> None:
        """Add the pieces of one event."""
        self._event += 1
        for piece in map(_with_function, pieces):
            call = self._call_for(piece)
            call.add(piece, self._known, self._event)
            self._by_id[call.id] = call

    def _call_for(self, piece: Mapping[str, Any]) -> PartialCall:
        index = whole_number(piece, "index")
        call = self._find(piece, index)
        if call is not None and not self._begins_another(call, piece):
            return call
        call = self._by_index[index] = PartialCall(index=index)
        self._calls.append(call)
        return call

    def _find(self, piece: Mapping[str, Any], index: int | None) -> PartialCall | None:
        """Return the latest call that a piece may belong to."""
        own_id = call_id(piece)
        if own_id and own_id in self._by_id and (index is None or not called_name(piece)):
            return self._by_id[own_id]
        if index is None:
            return self._calls[-1] if self._calls else None
        return self._by_index.get(index) or self._by_index.get(None)

    def _begins_another(self, call: PartialCall, piece: Mapping[str, Any]) -> bool:
        name, own_id = called_name(piece), call_id(piece)
        if not name:
            return False
        has_begun = bool(call.id) or (call.index is None and call.has_arguments)
        if own_id and own_id != call.id and has_begun:
            return True
        is_whole = call.is_complete or (call.event == self._event and call.has_arguments)
        if name == call.name:
            return is_whole and _begins_value(piece)
        if call.event == self._event and call.name:
            return True
        if call.continues(name, self._known):
            return False
        is_rest = call.has_arguments and not call.is_complete and not _begins_value(piece)
        return name in self._known or not is_rest

    def close(self) -> None:
        """Merge calls that were sent again into the first one of them."""
        firsts: dict[Any, tuple[PartialCall, str]] = {}
        calls: list[PartialCall] = []
        for call in self._calls:
            place, key = (call.index, call.name), call.key
            first, first_key = firsts.get(place, (None, ""))
            is_same_id = first is not None and bool(call.id) and call.id == first.id
            if key and not (is_same_id and "{}" in {key, first_key}):
                may_repeat = bool(call.id) or call.index is not None
                first, first_key = (
                    firsts.get((place, key), (None, "")) if may_repeat else (None, "")
                )
            if first is None or (call.id and first.id and call.id != first.id):
                calls.append(call)
                firsts[place] = firsts[place, key] = (call, key)
            else:
                first.merge(call)
                firsts[place] = firsts[place, key] = (first, max(key, first_key, key=len))
        self._calls = calls


def join_values(values: Sequence[Any]) -> Any:
    """Return the value of a field that arrived in pieces: texts, or lists of parts; else the last.

    A part with the type and index of the one before continues it.
    """
    if all(isinstance(value, str) for value in values):
        return join_halves("".join(values))
    if not all(isinstance(value, list) for value in values):
        return values[-1]
    groups: list[list[Any]] = []
    for part in (part for value in values for part in value):
        if groups and _continues(groups[-1][-1], part):
            groups[-1].append(part)
        else:
            groups.append([part])
    return [group[0] if len(group) == 1 else _joined_part(group) for group in groups]


def _continues(before: Any, part: Any) -> bool:
    if not (isinstance(before, dict) and isinstance(part, dict)):
        return False
    return all(before.get(key) == part.get(key) for key in ("type", "index"))


def _joined_part(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for key in dict.fromkeys(key for part in parts for key in part):
        values = [part[key] for part in parts if part.get(key) is not None]
        is_text = key not in _PART_KEYS and bool(values)
        joined[key] = join_values(values) if is_text else next(iter(values), None)
    return joined


def _raw_arguments(call: PartialCall) -> str:
    return call.text + ("" if call.value is None else json_or_repr(call.value))


def _with_function(piece: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a piece with its name and arguments under `function`, where a few servers omit it."""
    if piece.get("function") is not None or not piece.keys() & _FUNCTION_KEYS:
        return piece
    function = {key: piece[key] for key in _FUNCTION_KEYS if key in piece}
    others = {key: value for key, value in piece.items() if key not in _FUNCTION_KEYS}
    return {**others, "function": function}


def _begins_value(piece: Mapping[str, Any]) -> bool:
    """Return True if the arguments of a piece begin a value, or if it has none yet."""
    arguments = (typed(piece, "function", dict) or {}).get("arguments")
    if not isinstance(arguments, str):
        return True
    return arguments.lstrip()[:1] in {"", "{", '"', "n"}


def called_name(piece: Mapping[str, Any]) -> str:
    """Return the tool's name, or a part of it, in a piece of a call; empty if it has none."""
    return (typed(typed(piece, "function", dict) or {}, "name", str) or "").strip()


def call_id(piece: Mapping[str, Any]) -> str:
    """Return the id of a call, an integer on some servers; empty if it has none."""
    value = piece.get("id")
    if type(value) is int:
        return str(value)
    return typed(piece, "id", str) or ""


def _unknown(fields: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in known and value is not None}


def _json_texts(text: str) -> Iterator[str]:
    """Yield concatenated JSON values, each as text.

    Raises:
        ValueError: the text contains something else.
    """
    decoder = json.JSONDecoder()
    at = 0
    while start := _VALUE.search(text, at):
        _, at = decoder.raw_decode(text, start.start())
        yield text[start.start() : at]


def _common_object(values: Sequence[Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the object that all non-empty values are equal to, and the repairs.

    Raises:
        ValueError: they differ, or one is not an object.
    """
    distinct: dict[str, dict[str, Any]] = {}
    codes = {"repeated_arguments": None}
    for value in values:
        args, repairs = read_arguments(value)
        if not isinstance(args, dict):
            raise ValueError("not an object")
        if args:
            distinct[_key(args)] = args
            codes |= dict.fromkeys(repairs)
    if len(distinct) > 1:
        raise ValueError("the arguments are several values")
    return next(iter(distinct.values()), {}), tuple(codes)


def _key(args: Any) -> str:
    """Return arguments as text to compare, because 1 == 1.0 == True in Python."""
    return json.dumps(args, sort_keys=True)
