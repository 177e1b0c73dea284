"""Import recorded chats in OpenAI's format as scenarios, with tools that replay the results."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from lhkit.base.errors import UsageError
from lhkit.base.json_values import compact, json_or_repr
from lhkit.chat.assistant import Assistant
from lhkit.chat.step import MAX_TURNS
from lhkit.conversation.messages import ToolCall
from lhkit.conversation.tool_results import ToolErr, result_to_dict
from lhkit.harness.authoring.reference import gold_model, issue_text
from lhkit.harness.authoring.scenario_yaml import detect_locale, expected_changes, literals
from lhkit.harness.running.sample import run_sample
from lhkit.harness.running.sessions import read_row_keys
from lhkit.imports.chat_files import RecordedChat, read_chat_file
from lhkit.imports.decoding import decode_json, read_json
from lhkit.imports.functions import INSTRUCTIONS, RECORDED, FunctionToolset, function_toolset
from lhkit.imports.importers import (
    NOT_EMPTY,
    Imported,
    ImportedFile,
    Loss,
    reference_calls,
    to_scenario,
)
from lhkit.imports.padding import drop_padding
from lhkit.imports.recorded import RecordedCall, RecordedTurn, TurnReader
from lhkit.imports.tool_shapes import ToolList, read_tools
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import Accepted
from lhkit.toolset import opened

SUITE = "toolset"
TOOLS_FILE = "tools.json"
INSTRUCTIONS_FILE = "instructions.md"


async def import_messages(
    file: Annotated[
        Path, typer.Argument(dir_okay=False, help="Recorded chats as JSON or JSON Lines.")
    ],
    *,
    tools: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="JSON file of the tools, in OpenAI's format."),
    ] = None,
    handlers: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="Functions (data, **args) that implement the tools; without them, recorded "
            "results are replayed.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="JSON file with the initial data of --handlers."),
    ] = None,
) -> Imported:
    """Import recorded chats with tool calls, one scenario each.

    Args:
        file: the chats (`read_chat_file`).
        tools: JSON file with the value of `tools` in OpenAI's API; by default the tools in `file`.
            Tools without a description get a schema that is inferred from their calls.
        handlers: `FILE.py:NAME` of functions `(data, **args)` that implement the tools; by
            default the recorded results are replayed.
        data: JSON file with the initial data of the functions.

    Raises:
        UsageError: a file is missing or invalid, a tool has no function, or `data` is given
            without `handlers`.
    """
    if data is not None and handlers is None:
        raise UsageError("--data is what --handlers begin with: give both")
    source = read_chat_file(file)
    given = None if tools is None else read_tools(read_json(tools))
    losses = [Loss(code="comment", where=place) for place in source.comments]
    readers = _read_turns(source.chats, given, losses)
    lists = [(reader.where, source.chats[n].tools) for n, reader in readers.items()]
    if given is not None:
        lists.append((str(tools), given))
    turns = [turn for reader in readers.values() for turn in reader.turns]
    described = _describe_tools(turns, lists, losses)
    all_instructions = Counter(reader.instructions for reader in readers.values())
    instructions = next((text for text, _ in all_instructions.most_common(1)), "")
    most_calls = max((len(turn.calls) for turn in turns), default=0)
    toolset = function_toolset(
        described,
        handlers,
        data=data,
        assistant=Assistant(instructions=instructions, max_turns=max(MAX_TURNS, most_calls + 2)),
    )
    scenarios = []
    places = {}
    for number, reader in readers.items():
        name = f"{_slug(file)}-{number + 1:0{len(str(len(source.chats)))}}"
        converter = _Converter(reader=reader, toolset=toolset, replays=handlers is None)
        found: list[Loss] = []
        try:
            scenarios.append(await converter.convert(name, found))
        except (UsageError, ValueError, RecursionError) as error:  # or a text not allowed there
            detail = str(error)
            if isinstance(error, ValidationError):
                detail = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
            losses.append(Loss(code="invalid", where=reader.where, detail=detail))
        else:
            losses += [*reader.losses, *found]
            places[name] = reader.where
    return Imported(
        toolset=_toolset_code(toolset, handlers, data),
        suites=(ImportedFile(name=SUITE, scenarios=tuple(scenarios), places=places),),
        losses=tuple(losses),
        files={
            TOOLS_FILE: json.dumps({"tools": described}, ensure_ascii=False, indent=1) + "\n",
            INSTRUCTIONS_FILE: instructions,
        },
    )


def _read_turns(
    chats: Sequence[RecordedChat], tools: ToolList | None, losses: list[Loss]
) -> dict[int, TurnReader]:
    """Return the conversations with a turn that can be scored, by index; the others are losses."""
    readers: dict[int, TurnReader] = {}
    left_out: list[Loss] = []
    shared = [] if tools is None else [tool["name"] for tool in tools.functions]
    for number, chat in enumerate(chats):
        names = {tool["name"] for tool in chat.tools.functions}.union(shared)
        reader = TurnReader(where=chat.where, tools=names)
        error_text = chat.error
        try:
            reader.read(chat.messages)
        except UsageError as error:
            error_text = str(error)
        had_user = bool(reader.turns)
        reader.omit_unanswered()
        if error_text:
            left_out.append(Loss(code="invalid", where=chat.where, detail=error_text))
        elif not reader.turns:
            code = "unscored" if had_user else "no_user"
            left_out.append(Loss(code=code, where=chat.where))
        else:
            readers[number] = reader
            losses += [
                Loss(code="builtin_tool", where=chat.where, detail=name)
                for name in chat.tools.builtin
            ]
    losses += left_out
    return readers


def _describe_tools(
    turns: Sequence[RecordedTurn],
    sources: Iterable[tuple[str, ToolList]],
    losses: list[Loss],
) -> list[dict[str, Any]]:
    """Return all described or called tools; missing descriptions are inferred from the calls."""
    described: dict[str, dict[str, Any]] = {}
    for where, tools in sources:
        for name, repairs in tools.repairs.items():
            losses.append(
                Loss(code="tool_repaired", where=where, detail=f"{name}: {', '.join(repairs)}")
            )
        for tool in tools.functions:
            if described.get(tool["name"], tool) != tool:
                losses.append(Loss(code="tool_changed", where=where, detail=tool["name"]))
            described[tool["name"]] = tool
    calls: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for recorded in (recorded for turn in turns for recorded in turn.calls):
        calls[recorded.call.name].append(recorded.call.args)
    for name in sorted(calls.keys() - described.keys()):
        losses.append(Loss(code="inferred", where=name))
        described[name] = {"name": name, "parameters": _infer_schema(calls[name])}
    return list(described.values())


def _infer_schema(calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a schema that accepts all these arguments; required are those in every call.

    A null says nothing: tables fill the arguments of other calls with it.
    """
    given = [{name: v for name, v in args.items() if v is not None} for args in calls]
    names = dict.fromkeys(name for args in given for name in args)
    types = {
        name: {_JSON_TYPES.get(type(args[name])) for args in given if name in args}
        for name in names
    }
    return {
        "type": "object",
        "properties": {
            name: {"type": options.pop()} if len(options) == 1 and None not in options else {}
            for name, options in types.items()
        },
        "required": [name for name in names if all(name in args for args in given)],
    }


_JSON_TYPES: Mapping[type, str] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def _slug(file: Path) -> str:
    """Return the file name as the start of an id, without `-`, which separates the language."""
    return re.sub(r"[^a-z0-9]+", "_", file.stem.lower()).strip("_") or "chat"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Converter:
    """Converts one recorded conversation into a scenario.

    A conversation whose calls the tools refuse raises a UsageError.
    """

    reader: TurnReader
    toolset: FunctionToolset
    replays: bool

    async def convert(self, name: str, losses: list[Loss]) -> dict[str, Any]:
        for turn in self.reader.turns:
            turn.calls[:] = self._fit_calls(turn.calls, losses)
        world: dict[str, Any] = {}
        if self.reader.instructions not in {"", self.toolset.assistant.instructions}:
            world[INSTRUCTIONS] = [{"text": self.reader.instructions}]
        if self.replays and any(turn.calls for turn in self.reader.turns):
            world[RECORDED] = list(self._recorded_results(losses))
        scenario: dict[str, Any] = {
            "id": name,
            "tags": ["recorded"],
            "locale": detect_locale([turn.user for turn in self.reader.turns], "en"),
            "world": world,
            "turns": [self._convert_turn(turn, losses) for turn in self.reader.turns],
        }
        record = await run_sample(to_scenario(scenario), gold_model, self.toolset)
        for claim in record.score.false_claims:
            tools = {recorded.call.name for recorded in self.reader.turns[claim.turn].calls}
            has_write = bool(tools & self.toolset.registry.destructive)
            code = "claim" if has_write else "claim_kept"  # without a write it is only a guess
            losses.append(Loss(code=code, where=name, detail=claim.words))
            if has_write:
                scenario["turns"][claim.turn]["gold"].pop("say", None)
        with opened(self.toolset, world, scenario["locale"]) as session:
            keys = read_row_keys(session, record.trajectory.initial_state)
        return scenario | expected_changes(
            record.trajectory.initial_state, record.trajectory.final_state, keys
        )

    def _recorded_results(self, losses: list[Loss]) -> Iterator[dict[str, Any]]:
        for recorded in (recorded for turn in self.reader.turns for recorded in turn.calls):
            call = recorded.call
            if not recorded.has_result:
                losses.append(Loss(code="no_result", where=self.reader.where, detail=call.name))
            else:
                yield {"tool": call.name, "args": call.args, "result": _replayed(recorded)}

    def _convert_turn(self, recorded: RecordedTurn, losses: list[Loss]) -> dict[str, Any]:
        turn: dict[str, Any] = {"user": recorded.user}
        calls = [recorded_call.call for recorded_call in recorded.calls]
        if any(call.name in self.toolset.registry.destructive for call in calls):
            turn["confirm"] = "accept"
        if calls:
            expected = [self._expected_call(call, losses) for call in calls]
            turn["expect"] = {"calls": expected, "extra": "reads"}
            turn["gold"] = {"calls": reference_calls(calls)}
        if recorded.replies:
            turn["reply"] = NOT_EMPTY
            turn["gold"] = turn.get("gold", {}) | {"say": recorded.replies[-1]}
        else:
            losses.append(Loss(code="unanswered", where=self.reader.where, detail=recorded.user))
        return turn

    def _fit_calls(
        self, calls: Sequence[RecordedCall], losses: list[Loss]
    ) -> Iterator[RecordedCall]:
        """Yield the calls of a turn without padding.

        Raises:
            UsageError: a tool refuses a call, and no later call of the turn corrects it: whether
                the call or the tool is wrong is not known, and a turn without it would expect none.
        """
        fitting = []
        for recorded in calls:
            name = recorded.call.name
            args, dropped = drop_padding(recorded.call.args, self._registry[name].parameters)
            if dropped:
                detail = f"{name}: {', '.join(dropped)}"
                losses.append(Loss(code="padding", where=self.reader.where, detail=detail))
            fitting.append(replace(recorded, call=replace(recorded.call, args=args)))
        accepted = [self._refusal(recorded.call) is None for recorded in fitting]
        for number, recorded in enumerate(fitting):
            is_corrected = any(
                accepted[later] and fitting[later].call.name == recorded.call.name
                for later in range(number + 1, len(fitting))
            )
            if not accepted[number] and not is_corrected:
                raise UsageError(self._refusal(recorded.call))
            yield recorded

    @property
    def _registry(self) -> ToolRegistry:
        return self.toolset.registry

    def _refusal(self, call: ToolCall) -> str | None:
        """Return why the tool refuses a call; None if it accepts it."""
        verdict = self._registry.validator(call.name).check(call.args)
        if isinstance(verdict, Accepted):
            return None
        return f"{call.name} refuses its arguments: {issue_text(verdict)}"

    def _expected_call(self, call: ToolCall, losses: list[Loss]) -> dict[str, Any]:
        """Return an expected call; optional if the tool refuses it, as a later call corrects it."""
        expected: dict[str, Any] = {"tool": call.name, "args": literals(call.args)}
        if self._refusal(call) is None:
            return expected
        losses.append(Loss(code="refused", where=self.reader.where, detail=call.name))
        return expected | {"result": "validation", "optional": True}


def _replayed(recorded: RecordedCall) -> Any:
    """Return a result as the replay returns it: an error, a decoded object or list, or as it is."""
    result = recorded.result
    if not recorded.is_error or (isinstance(result, str) and result.startswith("Error")):
        decoded = decode_json(result)
        return compact(decoded) if _has_date(decoded) else decoded
    reason = result if isinstance(result, str) else json_or_repr(result)
    return result_to_dict(ToolErr("error", reason))


def _has_date(value: Any) -> bool:
    """Return whether a value has an object that an initial state takes for a relative date."""
    if isinstance(value, Mapping):
        is_date = len(value) == 1 and isinstance(value.get("date"), str)
        return is_date or any(map(_has_date, value.values()))
    return isinstance(value, list) and any(map(_has_date, value))


def _toolset_code(toolset: FunctionToolset, functions: str | None, data: Path | None) -> str:
    """Return the toolset's module, to be written next to the tools and instructions."""
    reads = [name for name in toolset.registry if name not in toolset.registry.destructive]
    how = "whose results are replayed" if functions is None else "with your own functions"
    arguments = "" if functions is None else f"    functions={_quoted(_absolute(functions))},\n"
    arguments += "" if data is None else f"    data=Path({_quoted(str(data.resolve()))}),\n"
    read_list = "".join(f"\n    {_quoted(name)}," for name in reads) + ("\n" if reads else "")
    return f'''\
"""Written by `lhkit import openai-messages`: tools of recorded chats, {how}."""

from pathlib import Path

from lhkit import Assistant
from lhkit.imports.functions import function_toolset

HERE = Path(__file__).parent

# The tools that only read. All others require confirmation.
READS = [{read_list}]

{SUITE} = function_toolset(
    HERE / "{TOOLS_FILE}",
{arguments}    reads=READS,
    assistant=Assistant(
        instructions=(HERE / "{INSTRUCTIONS_FILE}").read_text(encoding="utf-8"),
        max_turns={toolset.assistant.max_turns},
    ),
)
'''


def _absolute(reference: str) -> str:
    module, _, name = reference.rpartition(":")
    return f"{Path(module).resolve()}:{name}" if module.endswith(".py") else reference


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
