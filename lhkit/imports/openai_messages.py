"""Import recorded chats in OpenAI's format: scenarios, and tools that play them back.

A file is one conversation or many: a JSON list of messages, a list of such lists, or objects with
`messages` (and `tools`), as JSON or as one JSON object a line. A conversation that cannot be read
costs only itself.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lhkit.chat.controller import Assistant
from lhkit.chat.step import MAX_TURNS
from lhkit.errors import UsageError
from lhkit.harness.author.reference import gold_model
from lhkit.harness.author.scenario_yaml import detect_locale, expected_changes, literals
from lhkit.harness.sample import tried
from lhkit.harness.sessions import row_keys_of
from lhkit.imports.functions import (
    INSTRUCTIONS,
    RECORDED,
    FunctionToolset,
    function_toolset,
    json_or_text,
    read_json,
    tools_in,
)
from lhkit.imports.imported import (
    SILENCE_FAILS,
    Imported,
    ImportedFile,
    Loss,
    reference_calls,
    to_scenario,
)
from lhkit.imports.recorded import RecordedTurn, TurnReader, read_conversations
from lhkit.messages import ToolCall
from lhkit.tools.validation import Accepted
from lhkit.toolset import opened

SUITE = "toolset"
TOOLS_FILE = "tools.json"
INSTRUCTIONS_FILE = "instructions.md"


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
            and for tools without a description what their calls show.
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
    numbered: list[tuple[int, TurnReader]] = []
    listed = []
    for number, chat in enumerate(conversations, start=1):
        reader = TurnReader(where=chat.where)
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
    readers: Sequence[TurnReader],
    listed: Iterable[tuple[str, Sequence[dict[str, Any]]]],
    losses: list[Loss],
) -> list[dict[str, Any]]:
    """Return every tool that was given or called; what is not described is inferred from calls."""
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

    reader: TurnReader
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
            "locale": detect_locale([turn.user for turn in self.reader.turns], "en"),
            "world": world,
            "turns": [self._turn(turn, losses) for turn in self.reader.turns],
        }
        record = await tried(to_scenario(written), gold_model, self.toolset)
        for claim in record.judgement.false_claims:
            called = {each.call.name for each in self.reader.turns[claim.turn].called}
            has_write = bool(called & self.toolset.registry.destructive)
            code = "claim" if has_write else "claim_kept"  # a guess where all is read
            losses.append(Loss(code=code, where=name, detail=claim.words))
            if has_write:
                written["turns"][claim.turn]["gold"].pop("say", None)
        with opened(self.toolset, world, written["locale"]) as session:
            keys = row_keys_of(session, record.evidence.initial_state)
        return written | expected_changes(
            record.evidence.initial_state, record.evidence.final_state, keys
        )

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

    def _turn(self, recorded: RecordedTurn, losses: list[Loss]) -> dict[str, Any]:
        turn: dict[str, Any] = {"user": recorded.user}
        calls = [each.call for each in recorded.called]
        if any(call.name in self.toolset.registry.destructive for call in calls):
            turn["confirm"] = "accept"
        if calls:
            expected = [self._expected(call, losses) for call in calls]
            turn["expect"] = {"calls": expected, "extra": "reads"}
            turn["gold"] = {"calls": reference_calls(calls)}
        if recorded.words:
            turn["reply"] = SILENCE_FAILS
            turn["gold"] = turn.get("gold", {}) | {"say": recorded.words[-1]}
        else:
            losses.append(Loss(code="unanswered", where=self.reader.where, detail=recorded.user))
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
