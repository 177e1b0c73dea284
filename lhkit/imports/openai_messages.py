"""Recorded chats in OpenAI's chat-completions format: scenarios, and tools that play them back.

A file is one conversation or many: a JSON list of messages, a list of such lists, or objects with
`messages` (and `tools`), as JSON or as one JSON object a line. A conversation that cannot be read
costs only itself.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lhkit.chat.controller import Assistant
from lhkit.chat.step import MAX_TURNS
from lhkit.errors import LhkitError, UsageError
from lhkit.harness.author.gold import gold_model
from lhkit.harness.author.written import changes, literals, spoken
from lhkit.harness.sample import tried
from lhkit.harness.sessions import row_keys_of
from lhkit.imports.functions import (
    INSTRUCTIONS,
    RECORDED,
    FunctionToolset,
    function_toolset,
    json_or_text,
    playing_back,
    read_json,
    registry_of_tools,
    tools_in,
    utf8_json,
)
from lhkit.imports.imported import (
    SILENCE_FAILS,
    Imported,
    ImportedFile,
    Loss,
    gold_calls,
    scenario_of,
)
from lhkit.json_values import canonical, compact
from lhkit.messages import ToolCall
from lhkit.tools.registry import NAME_PATTERN
from lhkit.tools.validation import Accepted
from lhkit.toolset import opened

SUITE = "toolset"
TOOLS_FILE = "tools.json"
INSTRUCTIONS_FILE = "instructions.md"


# ------------------------------------------------------------------------------- reading the file
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChat:
    """The messages of one conversation, where they stand, and the tools that were given along.

    `fault` is the reason why it cannot be read; it has no messages then.
    """

    where: str
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    fault: str = ""


def read_conversations(file: Path) -> tuple[RecordedChat, ...]:
    """Return the conversations of a file, with the faults of those that cannot be read.

    Raises:
        UsageError: it cannot be read, or contains no conversation; the sentence names the line or
            the place in the list.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: no UTF-8 text: {error}") from error
    chats = tuple(_chats(file, text))
    if all(chat.fault for chat in chats):
        raise UsageError(chats[0].fault)
    return chats


_HOW = 'give a list of messages, or objects with "messages", as JSON or one a line'


def _chats(file: Path, text: str) -> Iterator[RecordedChat]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = [(n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
        if parts := _elements(text):
            named = [(f"{file.name}[{i}]", part) for i, part in enumerate(parts)]
        elif len(lines) > 1:
            named = [(f"{file.name}:{number}", line) for number, line in lines]
        else:
            raise UsageError(f"{file}: no JSON: {error}") from error
        for where, part in named:
            yield _read_chat(part, where)
        return
    entries = [whole] if _is_conversation(whole) else whole
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{file}: no conversation there: {_HOW}")
    for number, entry in enumerate(entries):
        yield _chat(entry, f"{file.name}[{number}]")


_JSON_MARK = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)


def _elements(text: str) -> list[str]:
    """Return the texts of the conversations in a JSON list that cannot be read as a whole.

    Empty if it is no list of conversations, or if its brackets do not match.
    """
    parts: list[str] = []
    depth = begin = 0
    if not text.lstrip().startswith("["):
        return []
    for mark in _JSON_MARK.finditer(text):
        if mark.group() in {"[", "{"}:
            depth += 1
            begin = mark.end() if depth == 1 else begin
        elif (mark.group() == "," and depth == 1) or (mark.group() in {"]", "}"} and depth == 1):
            parts.append(text[begin : mark.start()])
            begin = mark.end()
            depth -= mark.group() != ","
        elif mark.group() in {"]", "}"}:
            depth -= 1
    is_messages = any(re.match(r'\s*\{\s*"role"', part) for part in parts)
    return [] if depth or is_messages or text[begin:].strip() else parts


def _read_chat(text: str, where: str) -> RecordedChat:
    try:
        entry = json.loads(text)
    except ValueError as error:
        return RecordedChat(where=where, fault=f"{where}: no JSON: {error}")
    except RecursionError:
        return RecordedChat(where=where, fault=f"{where} is no conversation: nested too deep")
    return _chat(entry, where)


def _is_conversation(told: Any) -> bool:
    if isinstance(told, Mapping):
        return True
    return isinstance(told, list) and any(
        isinstance(each, Mapping) and "role" in each for each in told
    )


def _chat(entry: Any, where: str) -> RecordedChat:
    try:
        utf8_json(entry)
    except UnicodeEncodeError:
        return RecordedChat(where=where, fault=f"{where} is no conversation: half a surrogate pair")
    except (ValueError, RecursionError) as error:
        return RecordedChat(where=where, fault=f"{where} is no conversation: {error}")
    messages = entry.get("messages") if isinstance(entry, Mapping) else entry
    if not isinstance(messages, list) or not all(
        isinstance(each, Mapping) and isinstance(each.get("role"), str) for each in messages
    ):
        return RecordedChat(where=where, fault=f"{where} is no conversation: {_HOW}")
    given = _unpacked(entry.get("tools") or entry.get("functions")) if messages is not entry else ()
    try:
        tools = tools_in(given) if given else ()
        for tool in tools:
            registry_of_tools([tool], playing_back)
    except LhkitError as error:
        return RecordedChat(where=where, fault=f"{where}: {error}")
    return RecordedChat(where=where, messages=tuple(messages), tools=tools)


def _unpacked(value: Any) -> Any:
    """Return what a JSON text contains; any other value, and any other text, as it is."""
    if not isinstance(value, str):
        return value
    try:
        return utf8_json(json.loads(value))
    except (ValueError, RecursionError):
        return value


# ------------------------------------------------------------------------- messages to user turns
@dataclass(frozen=True, slots=True, kw_only=True)
class _Called:
    """A call of the recording, and what the model then read; None if nothing came back."""

    call: ToolCall
    content: str | None = None


@dataclass(slots=True, kw_only=True)
class _Said:
    """One thing a user said, and all that came until the next."""

    user: str
    called: list[_Called] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A call without a result; `place` is its turn and number, None if the call was left out."""

    id: str | None
    name: str
    place: tuple[_Said, int] | None = None


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Reads the messages of one conversation in order, and keeps what it has to leave out.

    `waiting` are the calls without a result, oldest first; those from `latest` on are of the last
    model messages.
    """

    where: str
    instructions: str = ""
    turns: list[_Said] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    waiting: list[_Waiting] = field(default_factory=list)
    latest: int = 0
    is_calling: bool = False

    def read(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Take in all messages.

        Raises:
            UsageError: a call has no form that can be read.
        """
        for message in messages:
            match message["role"]:
                case "system" | "developer":
                    self.instructions = f"{self.instructions}\n\n{self._text(message)}".strip()
                case "user":
                    self._user(self._text(message))
                case "assistant":
                    self._assistant(message)
                case "tool" | "function":
                    self._result(message)
                case other:
                    self._lose("role", other)

    def _lose(self, code: str, detail: str = "") -> None:
        self.losses.append(Loss(code=code, where=self.where, detail=detail))

    def _text(self, message: Mapping[str, Any]) -> str:
        """Return the content as text; an object or list that is no list of parts as JSON."""
        content = message.get("content")
        if content is None or isinstance(content, str):
            return content or ""
        is_result = message["role"] in {"tool", "function"}
        if not isinstance(content, list) or not all(_is_part(p, is_result) for p in content):
            return compact(content)
        texts = [part if isinstance(part, str) else part.get("text") for part in content]
        for part, text in zip(content, texts, strict=True):
            if not isinstance(text, str):
                self._lose("part", str(part.get("type", "")))
        return "\n".join(text for text in texts if isinstance(text, str))

    def _user(self, text: str) -> None:
        self.is_calling = False
        if not text.strip():
            self._lose("blank")
        elif self.turns and not self.turns[-1].words and not self.turns[-1].called:
            self.turns[-1].user += f"\n{text}"
        else:
            self.turns.append(_Said(user=text))

    def _assistant(self, message: Mapping[str, Any]) -> None:
        text, calls = self._text(message), list(_calls_of(message, self.where))
        if calls and not self.is_calling:
            self.latest = len(self.waiting)
            self.is_calling = True
        if not self.turns:
            self._lose("opening", text or ", ".join(name for _, name, _ in calls))
            return
        turn = self.turns[-1]
        if text.strip():
            turn.words.append(text)
        if calls and text.strip():
            self._lose("words_before_calls", text)
        if len(calls) > 1:
            self._lose("parallel", ", ".join(name for _, name, _ in calls))
        for called_id, name, written in calls:
            call = self._call(name, written)
            place = None if call is None else (turn, len(turn.called))
            self.waiting.append(_Waiting(id=called_id, name=name, place=place))
            if call is not None:
                turn.called.append(_Called(call=call))

    def _call(self, name: str, written: Any) -> ToolCall | None:
        """Return a call that can be made again; None, and a loss, where it cannot."""
        args = _arguments(written)
        if args is None:
            self._lose("arguments", f"{name}({written})")
            return None
        if not NAME_PATTERN.fullmatch(name):
            self._lose("name", name)
            return None
        call = ToolCall(name=name, args=args)
        if self.turns[-1].called and _same(self.turns[-1].called[-1].call, call):
            self._lose("repeated", name)
            return None
        return call

    def _result(self, message: Mapping[str, Any]) -> None:
        self.is_calling = False
        content = self._text(message)
        number = self._called_at(_id_of(message.get("tool_call_id")), message)
        if number is None:
            self._lose("stray_result", content)
            return
        place = self.waiting.pop(number).place
        self.latest -= number < self.latest
        if place is not None:
            turn, at = place
            turn.called[at] = replace(turn.called[at], content=content)

    def _called_at(self, result_id: str | None, message: Mapping[str, Any]) -> int | None:
        """Return the number of the waiting call that a result belongs to.

        By id, by the tool's name, by order: the first that fits, of the last model messages before
        those of earlier ones.
        """
        name = message.get("name") or message.get("tool_name")
        places = [*range(self.latest, len(self.waiting)), *range(self.latest)]
        same_id = [i for i in places if result_id is not None and self.waiting[i].id == result_id]
        if not same_id and result_id is not None:
            places = [i for i in places if self.waiting[i].id is None]
        same_name = [i for i in same_id or places if self.waiting[i].name == name]
        if same_id or name is None:
            return next(iter(same_name or same_id or places), None)
        return next(iter(same_name), None)


_PARTS = frozenset(
    {"text", "input_text", "output_text", "refusal", "image_url", "image", "input_image"}
    | {"input_audio", "audio", "file", "input_file", "video_url"}
)


def _is_part(part: Any, is_result: bool) -> bool:
    """Return True for a part of a message; in a result, objects and texts can be data too."""
    if is_result:
        return isinstance(part, Mapping) and part.get("type") in _PARTS
    return isinstance(part, str | Mapping)


def _calls_of(message: Mapping[str, Any], where: str) -> Iterator[tuple[str | None, str, Any]]:
    """Yield id, name and written arguments of each call; the older `function_call` is one, too.

    Raises:
        UsageError: one is no object with a name.
    """
    calls = _unpacked(message.get("tool_calls") or [])
    if not isinstance(calls, list):
        raise UsageError(f"{where} is no conversation: tool_calls is no list")
    old = _unpacked(message.get("function_call"))
    for number, call in enumerate([*calls, *([{"function": old}] if old else [])]):
        function = _unpacked(call.get("function", call)) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise UsageError(f"{where} is no conversation: tool_calls[{number}] names no function")
        yield _id_of(call.get("id")), function["name"], function.get("arguments")


def _id_of(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


def _arguments(written: Any) -> dict[str, Any] | None:
    """Return the arguments as an object; None if they are none."""
    unpacked = {} if written in (None, "") else _unpacked(written)
    return dict(unpacked) if isinstance(unpacked, Mapping) else None


def _same(first: ToolCall, second: ToolCall) -> bool:
    return first.name == second.name and canonical(first.args) == canonical(second.args)


# ------------------------------------------------------------------------ user turns to scenarios
async def import_messages(
    file: Path,
    *,
    tools: Path | None = None,
    functions: str | None = None,
    data: Path | None = None,
) -> Imported:
    """Return recorded chats as scenarios, with a toolset to play them in.

    Args:
        file: the chats (`read_conversations`).
        tools: JSON, as OpenAI's API takes it under `tools`; by default what the file gives along,
            and for tools that nobody describes what their calls show.
        functions: `FILE.py:NAME` of functions `(data, **args)` that do the work; by default the
            recorded results are played back.
        data: JSON: what the functions begin with.

    Raises:
        UsageError: a file is not there or is wrong, or a tool has no function.
    """
    conversations = read_conversations(file)
    losses = [
        Loss(code="invalid", where=chat.where, detail=chat.fault)
        for chat in conversations
        if chat.fault
    ]
    numbered: list[tuple[int, _Reader]] = []
    listed = []
    for number, chat in enumerate(conversations, start=1):
        reader = _Reader(where=chat.where)
        try:
            reader.read(chat.messages)
        except UsageError as error:
            losses.append(Loss(code="invalid", where=chat.where, detail=str(error)))
            continue
        if not chat.fault:
            numbered.append((number, reader))
            listed.append((chat.where, chat.tools))
    readers = [reader for _, reader in numbered]
    if losses and not any(reader.turns for reader in readers):
        raise UsageError(losses[0].detail)
    losses += [loss for reader in readers for loss in reader.losses]
    listed += [(str(tools), tools_in(read_json(tools)))] if tools else []
    described = _described(readers, listed, losses)
    instructions = Counter(each.instructions for each in readers).most_common(1)[0][0]
    most = max((len(turn.called) for each in readers for turn in each.turns), default=0)
    toolset = function_toolset(
        described,
        functions,
        data=data,
        assistant=Assistant(instructions=instructions, max_turns=max(MAX_TURNS, most + 2)),
    )
    scenarios = []
    for number, reader in numbered:
        if not reader.turns:
            losses.append(Loss(code="no_user", where=reader.where))
            continue
        name = f"{_slug(file)}-{number:0{len(str(len(conversations)))}}"
        writer = _Writer(reader=reader, toolset=toolset, plays_back=functions is None)
        try:
            scenarios.append(await writer.scenario(name, _slug(file), losses))
        except (ValueError, RecursionError) as error:  # a text that no scenario may have
            losses.append(Loss(code="invalid", where=reader.where, detail=str(error)))
    return Imported(
        toolset=_code(toolset, functions, data),
        suites=(ImportedFile(name=SUITE, scenarios=tuple(scenarios)),),
        losses=tuple(losses),
        files={
            TOOLS_FILE: json.dumps({"tools": described}, ensure_ascii=False, indent=1) + "\n",
            INSTRUCTIONS_FILE: instructions,
        },
    )


def _described(
    readers: Sequence[_Reader],
    listed: Iterable[tuple[str, Sequence[dict[str, Any]]]],
    losses: list[Loss],
) -> list[dict[str, Any]]:
    """Return every tool that was given or called; what nobody describes is seen by its calls."""
    described: dict[str, dict[str, Any]] = {}
    for where, tools in listed:
        for tool in tools:
            if described.get(tool["name"], tool) != tool:
                losses.append(Loss(code="tool_changed", where=where, detail=tool["name"]))
            described[tool["name"]] = tool
    calls: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for called in (c for reader in readers for turn in reader.turns for c in turn.called):
        calls[called.call.name].append(called.call.args)
    for name in sorted(calls.keys() - described.keys()):
        losses.append(Loss(code="inferred", where=name))
        described[name] = {"name": name, "parameters": _seen_schema(calls[name])}
    return list(described.values())


def _seen_schema(calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a schema that all these arguments fit; required is what none leaves out."""
    names = dict.fromkeys(name for args in calls for name in args)
    kinds = {
        name: {_KINDS.get(type(args[name])) for args in calls if name in args} for name in names
    }
    return {
        "type": "object",
        "properties": {
            name: {"type": found.pop()} if len(found) == 1 and None not in found else {}
            for name, found in kinds.items()
        },
        "required": [name for name in names if all(name in args for args in calls)],
    }


_KINDS: Mapping[type, str] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def _slug(file: Path) -> str:
    """Return the file's name as it may begin an id; without `-`, which parts a language off."""
    return re.sub(r"[^a-z0-9]+", "_", file.stem.lower()).strip("_") or "chat"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    """Writes what was read of one conversation as a scenario."""

    reader: _Reader
    toolset: FunctionToolset
    plays_back: bool

    async def scenario(self, name: str, criterion: str, losses: list[Loss]) -> dict[str, Any]:
        world: dict[str, Any] = {}
        if self.reader.instructions not in {"", self.toolset.assistant.instructions}:
            world[INSTRUCTIONS] = [{"text": self.reader.instructions}]
        if self.plays_back:
            world |= {RECORDED: list(self._results(losses))} if self._has_calls else {}
        written: dict[str, Any] = {
            "id": name,
            "ac": criterion,
            "tags": ["recorded"],
            "locale": spoken([turn.user for turn in self.reader.turns], "en"),
            "world": world,
            "turns": [self._turn(turn, losses) for turn in self.reader.turns],
        }
        record = await tried(scenario_of(written), gold_model, self.toolset)
        for claim in record.judgement.false_claims:
            called = {each.call.name for each in self.reader.turns[claim.turn].called}
            if called & self.toolset.registry.destructive:  # the flag is a guess where all is read
                losses.append(Loss(code="claim", where=name, detail=claim.words))
                written["turns"][claim.turn]["gold"].pop("say", None)
        with opened(self.toolset, world, written["locale"]) as session:
            keys = row_keys_of(session, record.evidence.initial_state)
        return written | changes(record.evidence.initial_state, record.evidence.final_state, keys)

    @property
    def _has_calls(self) -> bool:
        return any(turn.called for turn in self.reader.turns)

    def _results(self, losses: list[Loss]) -> Iterator[dict[str, Any]]:
        """Yield what came back of each call, in order."""
        for called in (each for turn in self.reader.turns for each in turn.called):
            if called.content is None:
                losses.append(
                    Loss(code="no_result", where=self.reader.where, detail=called.call.name)
                )
                continue
            yield {
                "tool": called.call.name,
                "args": called.call.args,
                "result": json_or_text(called.content),
            }

    def _turn(self, said: _Said, losses: list[Loss]) -> dict[str, Any]:
        turn: dict[str, Any] = {"user": said.user}
        calls = [each.call for each in said.called]
        if any(call.name in self.toolset.registry.destructive for call in calls):
            turn["confirm"] = "accept"
        if calls:
            expected = [self._expected(call, losses) for call in calls]
            turn["expect"] = {"calls": expected, "extra": "reads"}
            turn["gold"] = {"calls": gold_calls(calls)}
        if said.words:
            turn["reply"] = SILENCE_FAILS
            turn["gold"] = turn.get("gold", {}) | {"say": said.words[-1]}
        else:
            losses.append(Loss(code="unanswered", where=self.reader.where, detail=said.user))
        return turn

    def _expected(self, call: ToolCall, losses: list[Loss]) -> dict[str, Any]:
        """Return a call as an expectation; one that its own tool refuses need not be made."""
        expected: dict[str, Any] = {"tool": call.name, "args": literals(call.args)}
        checked = self.toolset.registry.validator(call.name).check(call.args)
        if isinstance(checked, Accepted):
            return expected
        losses.append(Loss(code="refused", where=self.reader.where, detail=call.name))
        return expected | {"result": "validation", "optional": True}


def _code(toolset: FunctionToolset, functions: str | None, data: Path | None) -> str:
    """Return the file of the toolset, for the folder that tools and instructions are in."""
    reads = [name for name in toolset.registry if name not in toolset.registry.destructive]
    how = "whose results are played back" if functions is None else "with functions of your own"
    lines = [
        f'"""Written by `lhkit import openai-messages`: tools of recorded chats, {how}."""',
        "",
        "from pathlib import Path",
        "",
        "from lhkit import Assistant",
        "from lhkit.imports.functions import function_toolset",
        "",
        "HERE = Path(__file__).parent",
        "",
        "# The tools that change nothing: nobody is asked before them. All others ask first.",
        f"READS = {_listed(reads)}",
        "",
        f"{SUITE} = function_toolset(",
        f'    HERE / "{TOOLS_FILE}",',
        *([] if functions is None else [f"    functions={_quoted(_absolute(functions))},"]),
        *([] if data is None else [f"    data=Path({_quoted(str(data.resolve()))}),"]),
        "    reads=READS,",
        "    assistant=Assistant(",
        f'        instructions=(HERE / "{INSTRUCTIONS_FILE}").read_text(encoding="utf-8"),',
        f"        max_turns={toolset.assistant.max_turns},",
        "    ),",
        ")",
    ]
    return "\n".join(lines) + "\n"


def _absolute(reference: str) -> str:
    place, _, name = reference.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else reference


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _listed(names: Iterable[str]) -> str:
    inside = "".join(f"\n    {_quoted(name)}," for name in names)
    return f"[{inside}\n]" if inside else "[]"
