"""Import recorded chats in OpenAI's format as scenarios, with tools that replay the results."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from lhkit.base.errors import UsageError
from lhkit.base.json_values import canonical, compact, json_or_repr
from lhkit.base.text import NOTHING
from lhkit.chat.assistant import Assistant
from lhkit.chat.step import MAX_TURNS
from lhkit.conversation.messages import ToolCall
from lhkit.conversation.tool_results import ToolErr, result_to_dict
from lhkit.harness.authoring.reference import gold_model, issue_text
from lhkit.harness.authoring.scenario_yaml import detect_locale, expected_changes, literals
from lhkit.harness.exports.sft_formats import RECORDED as RECORDED_TAG
from lhkit.harness.running.sample import run_sample
from lhkit.harness.running.sessions import read_row_keys
from lhkit.imports.chat_files import RecordedChat, read_chat_file
from lhkit.imports.decoding import decode_json, read_json
from lhkit.imports.functions import (
    INSTRUCTIONS,
    RECORDED,
    TOOLS,
    FunctionToolset,
    function_toolset,
)
from lhkit.imports.importers import (
    MAX_LISTED,
    NOT_EMPTY,
    Imported,
    ImportedFile,
    Loss,
    Remark,
    cut_list,
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
    return await convert_chats(
        [Source(name=slug_of(file), chats=dict(enumerate(source.chats, start=1)))],
        command="openai-messages",
        tools=given,
        handlers=handlers,
        data=data,
        losses=[Loss(code="comment", where=place) for place in source.comments],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The conversations of a file by their number in it; `name` begins the ids of scenarios."""

    name: str
    chats: Mapping[int, RecordedChat]


async def convert_chats(
    sources: Sequence[Source],
    *,
    command: str,
    tools: ToolList | None = None,
    handlers: str | None = None,
    data: Path | None = None,
    is_data_set: bool = False,
    losses: Iterable[Loss] = (),
    remarks: Iterable[Remark] = (),
) -> Imported:
    """Return conversations as scenarios, with a toolset for them.

    Args:
        sources: the conversations.
        command: the name of the command, for the toolset's file.
        tools: the tools of all conversations; by default each has those that it lists.
        handlers: reference to functions that implement the tools.
        data: JSON file with the initial data of the functions.
        is_data_set: a conversation has no tools but those that it lists, and lacks of recorded
            results are counted instead of listed.
        losses: what was lost before.
        remarks: what the user is told besides.

    Raises:
        UsageError: as `function_toolset`.
    """
    lost = list(losses)
    chats = {
        f"{source.name}-{number:0{len(str(max(source.chats)))}}": chat
        for source in sources
        for number, chat in source.chats.items()
    }
    readers = _read_turns(chats, tools, lost, is_data_set=is_data_set)
    own = {} if tools is not None else {name: chats[name].tools for name in readers}
    lists_tools = is_data_set and any(listed.functions for listed in own.values())
    described = _describe_tools(
        readers, own, tools, lost, has_functions=handlers is not None, infers=not lists_tools
    )
    all_instructions = Counter(reader.instructions for reader in readers.values())
    common, count = next(iter(all_instructions.most_common(1)), ("", 0))
    instructions = common if count > 1 or len(readers) == 1 else ""
    most_calls = max((len(t.calls) for r in readers.values() for t in r.turns), default=0)
    toolset = function_toolset(
        described,
        handlers,
        data=data,
        assistant=Assistant(instructions=instructions, max_turns=max(MAX_TURNS, most_calls + 2)),
    )
    scenarios = []
    places = {}
    for name, reader in readers.items():
        converter = _Converter(
            reader=reader,
            toolset=toolset,
            replays=handlers is None,
            tools=_listed(reader, own.get(name), described, infers=not lists_tools),
            tags=tags_of(chats[name]),
            is_data_set=is_data_set,
        )
        found: list[Loss] = []
        try:
            scenarios.append(await converter.convert(name, found))
        except (UsageError, ValueError, RecursionError) as error:  # or a text not allowed there
            detail = str(error)
            if isinstance(error, ValidationError):
                detail = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
            lost.append(Loss(code="invalid", where=reader.where, detail=detail))
        else:
            lost += [*reader.losses, *found]
            places[name] = reader.where
    reads = toolset.registry.keys() - toolset.registry.destructive
    if is_data_set:
        short = {loss.where for loss in lost if loss.code == "no_result"}
        lost = [loss for loss in lost if loss.code != "no_result"]
        count = sum(place in short for place in places.values())
        remarks = [*remarks, Remark(code="one_response", values={"count": count})]
    return Imported(
        toolset=_toolset_code(toolset, command, handlers, data),
        suites=(
            ImportedFile(
                name=SUITE,
                scenarios=tuple(scenarios),
                places=places,
                # where one tool takes no arguments, always calling is right; and the ids of a data
                # set come from nowhere
                accepted_findings=frozenset({"always_call", "violation"} if is_data_set else ()),
            ),
        ),
        losses=tuple(lost),
        files={
            TOOLS_FILE: json.dumps({"tools": described}, ensure_ascii=False, indent=1) + "\n",
            INSTRUCTIONS_FILE: instructions,
        },
        remarks=(*remarks, *_tool_remarks(toolset.registry, reads)),
    )


def tags_of(chat: RecordedChat) -> list[str]:
    """Return the tags of a conversation: its shape, split and metadata."""
    values = (f"{key}:{value}" for key, value in chat.metadata.items())
    return list(dict.fromkeys(filter(None, (RECORDED_TAG, chat.shape, chat.split, *values))))


def _tool_remarks(registry: ToolRegistry, reads: Collection[str]) -> Iterator[Remark]:
    """Yield the guess which tools write; a wrong one is corrected in the toolset's file."""
    if registry:
        kinds = {
            "writes": [name for name in registry if name not in reads],
            "reads": [name for name in registry if name in reads],
        }
        values = {kind: ", ".join(cut_list(names, MAX_LISTED)) for kind, names in kinds.items()}
        yield Remark(code="tool_kinds", values={kind: t or NOTHING for kind, t in values.items()})


def _listed(
    reader: TurnReader,
    tools: ToolList | None,
    described: Sequence[Mapping[str, Any]],
    *,
    infers: bool,
) -> list[Mapping[str, Any]] | None:
    """Return the tools of a conversation as `world.tools`; None if it has all.

    A tool is named, or described in full if the toolset has another description of it.

    Args:
        reader: the conversation.
        tools: the tools that it lists.
        described: the tools of the toolset.
        infers: it has the tools that it calls as well, or all if it lists none.
    """
    if tools is None or (infers and not tools.functions):
        return None
    listed: list[Mapping[str, Any]] = list(tools.functions)
    if infers:
        called = {recorded.call.name for turn in reader.turns for recorded in turn.calls}
        names = {tool["name"] for tool in listed}
        listed += [t for t in described if t["name"] in called and t["name"] not in names]
    if listed == list(described):
        return None
    return [{"name": tool["name"]} if tool in described else tool for tool in listed]


def _read_turns(
    chats: Mapping[str, RecordedChat],
    tools: ToolList | None,
    losses: list[Loss],
    *,
    is_data_set: bool,
) -> dict[str, TurnReader]:
    """Return the conversations with a turn that can be scored, by name; the others are losses."""
    readers: dict[str, TurnReader] = {}
    left_out: list[Loss] = []
    for name, chat in chats.items():
        listed = chat.tools if tools is None else tools
        names = {tool["name"] for known in (chat.tools, listed) for tool in known.functions}
        renamed = {**chat.tools.renamed, **listed.renamed}
        reader = TurnReader(where=chat.where, tools=names, renamed=renamed, is_data_set=is_data_set)
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
            readers[name] = reader
            losses += [
                Loss(code="builtin_tool", where=chat.where, detail=kind)
                for kind in chat.tools.builtin
            ]
    losses += left_out
    return readers


def _describe_tools(
    readers: Mapping[str, TurnReader],
    own: Mapping[str, ToolList],
    given: ToolList | None,
    losses: list[Loss],
    *,
    has_functions: bool,
    infers: bool,
) -> list[dict[str, Any]]:
    """Return all tools, each with its most frequent description.

    With `infers`, called tools without a description get one that is inferred from the calls.
    """
    places = [*((readers[name].where, tools) for name, tools in own.items())]
    if given is not None:
        places.append(("--tools", given))
    repairs: dict[str, list[str]] = defaultdict(list)
    versions: dict[str, dict[str, tuple[Mapping[str, Any], list[str]]]] = defaultdict(dict)
    for where, tools in places:
        for name, codes in tools.repairs.items():
            repairs[f"{name}: {', '.join(codes)}"].append(where)
        for tool in tools.functions:
            versions[tool["name"]].setdefault(canonical(tool), (tool, []))[1].append(where)
    losses += [
        Loss(code="tool_repaired", where=found[0], detail=f"{text}{_times(found)}")
        for text, found in repairs.items()
    ]
    described = {}
    for name, found in versions.items():
        most = max(found.values(), key=lambda version: len(version[1]))
        described[name] = dict(most[0])
        if len(found) > 1 and has_functions:
            losses.append(Loss(code="tool_changed", where=most[1][0], detail=name))
    calls: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for reader in readers.values() if infers else ():
        for recorded in (recorded for turn in reader.turns for recorded in turn.calls):
            calls[recorded.call.name].append(recorded.call.args)
    for name in sorted(calls.keys() - described.keys()):
        losses.append(Loss(code="inferred", where=name))
        described[name] = {"name": name, "parameters": _infer_schema(calls[name])}
    return list(described.values())


def _times(places: Sequence[str]) -> str:
    return f" (× {len(places):,})" if len(places) > 1 else ""


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


def slug_of(file: Path) -> str:
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
    tools: Sequence[Mapping[str, Any]] | None
    tags: Sequence[str]
    is_data_set: bool

    async def convert(self, name: str, losses: list[Loss]) -> dict[str, Any]:
        locale = detect_locale([turn.user for turn in self.reader.turns], "en")
        world: dict[str, Any] = {}
        if self.tools is not None:
            world[TOOLS] = list(self.tools)
        if self.reader.instructions != self.toolset.assistant.instructions:
            world[INSTRUCTIONS] = [{"text": self.reader.instructions}]
        with opened(self.toolset, world, locale) as session:
            registry = session.registry
        for turn in self.reader.turns:
            turn.calls[:] = self._fit_calls(turn.calls, registry, losses)
        calls = [recorded for turn in self.reader.turns for recorded in turn.calls]
        has_results = [recorded.has_result for recorded in calls]
        is_one_response = self.replays and not (calls and all(has_results))
        if not is_one_response:
            self._omit_unplayed(registry.destructive, losses)
        for recorded in calls if self.replays else ():
            if not recorded.has_result:
                losses.append(self._loss("no_result", recorded.call.name))
        if self.replays and any(has_results):
            world[RECORDED] = [_recorded_row(t) for turn in self.reader.turns for t in turn.calls]
        scenario: dict[str, Any] = {
            "id": name,
            "tags": list(self.tags),
            "locale": locale,
            "world": world,
            "turns": [
                self._convert_turn(
                    turn, registry, losses, is_one_response=is_one_response and bool(calls)
                )
                for turn in self.reader.turns
            ],
        }
        record = await run_sample(to_scenario(scenario), gold_model, self.toolset)
        for claim in record.score.false_claims:
            tools = {recorded.call.name for recorded in self.reader.turns[claim.turn].calls}
            has_write = bool(tools & registry.destructive)
            code = "claim" if has_write else "claim_kept"  # without a write it is only a guess
            losses.append(Loss(code=code, where=name, detail=claim.words))
            if has_write:
                scenario["turns"][claim.turn]["gold"].pop("say", None)
        with opened(self.toolset, world, scenario["locale"]) as session:
            keys = read_row_keys(session, record.trajectory.initial_state)
        return scenario | expected_changes(
            record.trajectory.initial_state, record.trajectory.final_state, keys
        )

    def _omit_unplayed(self, destructive: Collection[str], losses: list[Loss]) -> None:
        """Omit a repetition of the previous call, and split messages with several writes.

        Only one write of a message is confirmed: such calls are played one after another.
        """
        for turn in self.reader.turns:
            messages: list[list[RecordedCall]] = []
            begins, last = True, None
            for recorded in turn.calls:
                call = recorded.call
                begins = begins or not recorded.is_parallel
                if last == (call.name, canonical(call.args)):
                    losses.append(self._loss("repeated", call.name))
                    continue
                last = call.name, canonical(call.args)
                if begins:
                    messages.append([])
                messages[-1].append(replace(recorded, is_parallel=not begins))
                begins = False
            turn.calls[:] = []
            for calls in messages:
                is_split = sum(each.call.name in destructive for each in calls) > 1
                if is_split:
                    names = ", ".join(each.call.name for each in calls)
                    losses.append(self._loss("parallel", names))
                turn.calls += [
                    replace(each, is_parallel=each.is_parallel and not is_split) for each in calls
                ]

    def _loss(self, code: str, detail: str) -> Loss:
        return Loss(code=code, where=self.reader.where, detail=detail)

    def _convert_turn(
        self,
        recorded: RecordedTurn,
        registry: ToolRegistry,
        losses: list[Loss],
        *,
        is_one_response: bool,
    ) -> dict[str, Any]:
        turn: dict[str, Any] = {"user": recorded.user}
        calls = [recorded_call.call for recorded_call in recorded.calls]
        if any(call.name in registry.destructive for call in calls):
            turn["confirm"] = "accept"
        if calls:
            expected = [self._expected_call(call, registry, losses) for call in calls]
            turn["expect"] = {"calls": expected}
            if not is_one_response:
                turn["expect"]["extra"] = "reads"
            elif len(calls) > 1:
                turn["expect"]["order"] = "strict"
            turn["gold"] = {"calls": reference_calls(calls)}
            for row, call in zip(turn["gold"]["calls"], recorded.calls, strict=True):
                if call.is_parallel:
                    row["parallel"] = True
        if is_one_response and not all(call.has_result for call in recorded.calls):
            if recorded.replies:  # the turn ends before it
                losses.append(self._loss("reply_unscored", recorded.replies[-1]))
        elif recorded.replies:
            turn["reply"] = NOT_EMPTY
            turn["gold"] = turn.get("gold", {}) | {"say": recorded.replies[-1]}
        elif recorded.has_no_call:
            turn["reply"] = NOT_EMPTY
        else:
            losses.append(self._loss("unanswered", recorded.user))
        if self.is_data_set:
            turn["gold"] = {**turn.get("gold", {}), "recorded": True}
        return turn

    def _fit_calls(
        self, calls: Sequence[RecordedCall], registry: ToolRegistry, losses: list[Loss]
    ) -> Iterator[RecordedCall]:
        """Yield the calls of a turn without padding.

        Raises:
            UsageError: a tool refuses a call, and no later call of the turn corrects it: whether
                the call or the tool is wrong is not known, and a turn without it would expect none.
        """
        fitting = []
        for recorded in calls:
            name = recorded.call.name
            if name not in registry:
                raise UsageError(f"a call of {name}, which is not among the listed tools")
            args, dropped = drop_padding(recorded.call.args, registry[name].parameters)
            if dropped:
                losses.append(self._loss("padding", f"{name}: {', '.join(dropped)}"))
            fitting.append(replace(recorded, call=replace(recorded.call, args=args)))
        accepted = [_refusal(recorded.call, registry) is None for recorded in fitting]
        for number, recorded in enumerate(fitting):
            is_corrected = any(
                accepted[later] and fitting[later].call.name == recorded.call.name
                for later in range(number + 1, len(fitting))
            )
            if not accepted[number] and not is_corrected:
                raise UsageError(_refusal(recorded.call, registry))
            yield recorded

    def _expected_call(
        self, call: ToolCall, registry: ToolRegistry, losses: list[Loss]
    ) -> dict[str, Any]:
        """Return an expected call; optional if the tool refuses it, as a later call corrects it."""
        expected: dict[str, Any] = {"tool": call.name, "args": literals(call.args)}
        if _refusal(call, registry) is None:
            return expected
        losses.append(self._loss("refused", call.name))
        return expected | {"result": "validation", "optional": True}


def _refusal(call: ToolCall, registry: ToolRegistry) -> str | None:
    """Return why the tool refuses a call; None if it accepts it."""
    verdict = registry.validator(call.name).check(call.args)
    if isinstance(verdict, Accepted):
        return None
    return f"{call.name} refuses its arguments: {issue_text(verdict)}"


def _recorded_row(recorded: RecordedCall) -> dict[str, Any]:
    """Return a call with its result, if it is known."""
    row: dict[str, Any] = {"tool": recorded.call.name, "args": recorded.call.args}
    return {**row, "result": _replayed(recorded)} if recorded.has_result else row


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


def _toolset_code(
    toolset: FunctionToolset, command: str, functions: str | None, data: Path | None
) -> str:
    """Return the toolset's module, to be written next to the tools and instructions."""
    reads = [name for name in toolset.registry if name not in toolset.registry.destructive]
    how = "whose results are replayed" if functions is None else "with your own functions"
    arguments = "" if functions is None else f"    functions={_quoted(_absolute(functions))},\n"
    arguments += "" if data is None else f"    data=Path({_quoted(str(data.resolve()))}),\n"
    read_list = "".join(f"\n    {_quoted(name)}," for name in reads) + ("\n" if reads else "")
    return f'''\
"""Written by `lhkit import {command}`: tools of recorded chats, {how}."""

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
