"""Import FunctionChat-Bench: Korean questions whose calls, or whose lack of calls, are checked.

The benchmark judges one response to a given conversation. So the messages before the last one of
the user are the assistant's history, and a turn ends after the first message with calls. No tool
does anything.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from lhkit.base.errors import UsageError
from lhkit.conversation.messages import ToolCall
from lhkit.harness.authoring.scenario_yaml import literal
from lhkit.imports.decoding import decode_json
from lhkit.imports.functions import (
    EVERY_NAME,
    HISTORY,
    INSTRUCTIONS,
    RECORDED,
    TOOLS,
    FunctionToolset,
    build_registry,
    function_toolset,
    replay_handler,
)
from lhkit.imports.importers import NOT_EMPTY, Imported, ImportedFile, Loss
from lhkit.imports.recorded import RecordedTurn, TurnReader, history_rows, recorded_row
from lhkit.imports.tool_shapes import parse_tools
from lhkit.tools.validation import Accepted

PARTS = {
    "singlecall": "FunctionChat-Singlecall.jsonl",
    "calldecision": "FunctionChat-CallDecision.jsonl",
    "dialog": "FunctionChat-Dialog.jsonl",
}
"""File of each part; a part whose file is missing is left out."""

COMPLETIONS = "completions"
"""The file of the scenarios that only a judge of prose can score."""

_PROMPT = "system_prompt.txt"
_TOOLSET_CODE = '''\
"""Written by `lhkit import functionchat`: each scenario lists its tools."""

from lhkit.imports.functionchat import functionchat_toolset

toolset = functionchat_toolset()
'''


def functionchat_toolset() -> FunctionToolset:
    """Return the toolset of the imported scenarios: each lists its tools, which only read."""
    toolset = function_toolset([], reads=EVERY_NAME)
    return replace(toolset, name="functionchat", locales=("ko", "en"))


def import_functionchat(
    path: Annotated[
        Path,
        typer.Argument(file_okay=False, help="Your clone of kakao/FunctionChat-Bench."),
    ],
) -> Imported:
    """Import FunctionChat-Bench's Korean questions; their tools do nothing.

    Raises:
        UsageError: a file is missing or invalid.
    """
    losses: list[Loss] = [Loss(code="first_response")]
    scenarios: dict[str, list[dict[str, Any]]] = {}
    for item in read_items(path):
        file = COMPLETIONS if item.kind == "completion" else item.part
        try:
            scenario = item.scenario(losses)
        except UsageError as error:  # a call that cannot be taken
            losses.append(Loss(code="invalid", where=item.id, detail=str(error)))
        else:
            scenarios.setdefault(file, []).append(scenario)
    return Imported(
        toolset=_TOOLSET_CODE,
        suites=tuple(
            ImportedFile(
                name="toolset",
                file=file,
                scenarios=tuple(entries),
                needs_judge=file == COMPLETIONS,
                # with one tool that takes no arguments, always calling is right; and some
                # messages are a name or a number
                accepted_findings=frozenset({"always_call", "locale"}),
            )
            for file, entries in scenarios.items()
        ),
        losses=tuple(losses),
    )


def _read_lines(file: Path) -> Iterator[dict[str, Any]]:
    if not file.is_file():
        return
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
        try:
            if line.strip():
                yield json.loads(line)
        except ValueError as error:
            raise UsageError(f"{file}:{number} is not valid JSON: {error}.") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One response that the benchmark judges.

    `kind` is call, slot, relevance or completion, `group` the row of the table, `answer` the
    reference.
    """

    id: str
    part: str
    kind: str
    group: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    answer: ToolCall | str
    acceptable: Any = None

    def scenario(self, losses: list[Loss]) -> dict[str, Any]:
        """Return the item as a scenario."""
        reader = TurnReader(where=self.id)
        reader.read(self.messages)
        *earlier, last = reader.turns
        world: dict[str, Any] = {
            TOOLS: [self._fitting_tool(tool, last, losses) for tool in parse_tools(self.tools)],
            INSTRUCTIONS: [{"text": reader.instructions}],
        }
        if history := [row for turn in earlier for row in history_rows(turn)]:
            world[HISTORY] = history
        if self.kind == "completion":
            world[RECORDED] = [recorded_row(item) for item in last.calls]
        return {
            "id": self.id,
            "ac": self.group,
            "locale": "ko",
            "tags": ["functionchat", self.part, self.kind],
            "world": world,
            "turns": [{"user": last.user} | self._expected(last, losses)],
        }

    def _fitting_tool(
        self, tool: Mapping[str, Any], turn: RecordedTurn, losses: list[Loss]
    ) -> dict[str, Any]:
        """Return a tool, without the formats of its arguments if the reference breaks them."""
        calls = [item.call for item in turn.calls]
        if isinstance(self.answer, ToolCall):
            calls.append(self.answer)
        validator = build_registry([tool], replay_handler).validator(tool["name"])
        checked = [validator.check(call.args) for call in calls if call.name == tool["name"]]
        if all(isinstance(verdict, Accepted) for verdict in checked):
            return dict(tool)
        losses.append(Loss(code="format", where=self.id, detail=tool["name"]))
        properties = {
            name: {key: value for key, value in schema.items() if key != "format"}
            for name, schema in tool["parameters"]["properties"].items()
        }
        return {**tool, "parameters": {**tool["parameters"], "properties": properties}}

    def _expected(self, turn: RecordedTurn, losses: list[Loss]) -> dict[str, Any]:
        if isinstance(self.answer, ToolCall):
            acceptable = decode_json(self.acceptable)
            if not isinstance(acceptable, Mapping):  # "Only ground truth is allowed." and the like
                acceptable = {}
            args = _matchers(self.answer.args, acceptable)
            return {"expect": {"calls": [{"tool": self.answer.name, "args": args}]}}
        code = "prose" if self.kind == "completion" else "decision_only"
        losses.append(Loss(code=code, where=self.id, detail=self.answer))
        calls = [
            {"tool": item.call.name, "args": _matchers(item.call.args, {})} for item in turn.calls
        ]
        expect = {"expect": {"calls": calls}} if calls else {}
        return expect | {"reply": NOT_EMPTY, "gold": {"say": self.answer}}


def _matchers(args: Mapping[str, Any], acceptable: Mapping[str, Any]) -> dict[str, Any]:
    """Return a matcher for each argument.

    As in the benchmark, white space and case of a text do not count. An argument that only
    `acceptable` names may be left out.
    """
    result = {}
    for name in (*args, *(name for name in acceptable if name not in args)):
        also = acceptable.get(name, [])
        values = [args[name]] if name in args else []
        values += also if isinstance(also, list) else [also]
        options = [_value_matcher(value) for value in values]
        matcher = options[0] if len(options) == 1 else {"one_of": options}
        result[name] = matcher if name in args else {"one_of": options, "optional": True}
    return result


def _value_matcher(value: Any) -> Any:
    is_text = isinstance(value, str) and value.strip()
    return {"text": value, "ignore": "spaces"} if is_text else literal(value)


def read_items(path: Path) -> tuple[Item, ...]:
    """Return what the benchmark judges, in the order of its files.

    Raises:
        UsageError: a file is missing or invalid.
    """
    folder = path / "data" if (path / "data").is_dir() else path
    rows = {part: list(_read_lines(folder / name)) for part, name in PARTS.items()}
    if not any(rows.values()):
        raise UsageError(
            f"{path} does not contain FunctionChat-Bench: give a folder with {PARTS['singlecall']}."
        )
    prompt_file = folder / _PROMPT
    prompt = prompt_file.read_text(encoding="utf-8").strip() if prompt_file.is_file() else ""
    return (
        *_singlecall_items(rows["singlecall"], prompt),
        *_calldecision_items(rows["calldecision"]),
        *_dialog_items(rows["dialog"], prompt),
    )


def _singlecall_items(rows: Iterable[Mapping[str, Any]], prompt: str) -> Iterator[Item]:
    for row in rows:
        answers, acceptable = (
            {entry["serial_num"]: entry["content"] for entry in row[key]}
            for key in ("ground_truth", "acceptable_arguments")
        )
        for query in row["query"]:
            number = query["serial_num"]
            for tools in row["tools"]:
                yield Item(
                    id=f"singlecall-{number:03}-{tools['type']}",
                    part="singlecall",
                    kind="call",
                    group=tools["type"],
                    messages=[
                        {"role": "system", "content": prompt},
                        {"role": "user", "content": query["content"]},
                    ],
                    tools=tools["content"],
                    answer=_call(json.loads(answers[number])),
                    acceptable=acceptable.get(number),
                )


def _calldecision_items(rows: Iterable[Mapping[str, Any]]) -> Iterator[Item]:
    for row in rows:
        yield Item(
            id=f"calldecision-{row['serial_num']:03}",
            part="calldecision",
            kind=row["type_of_output"],
            group=row["category"],
            messages=row["input_messages"],
            tools=row["input_tools"],
            answer=_answer(row["ground_truth"]),
            acceptable=row["acceptable_arguments"],
        )


def _dialog_items(rows: Iterable[Mapping[str, Any]], prompt: str) -> Iterator[Item]:
    for row in rows:
        for turn in row["turns"]:
            yield Item(
                id=f"dialog-{row['dialog_num']:02}-{turn['serial_num']:03}",
                part="dialog",
                kind=turn["type_of_output"],
                group=turn["type_of_output"],
                messages=[{"role": "system", "content": prompt}, *turn["query"]],
                tools=row["tools"],
                answer=_answer(turn["ground_truth"]),
                acceptable=turn["acceptable_arguments"],
            )


def _answer(message: Mapping[str, Any]) -> ToolCall | str:
    calls = message.get("tool_calls")
    return _call(calls[0]["function"]) if calls else str(message["content"])


def _call(function: Mapping[str, str]) -> ToolCall:
    return ToolCall(name=function["name"], args=json.loads(function["arguments"]))
