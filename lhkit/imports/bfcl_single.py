"""Import BFCL's single-turn categories: one response to a question is scored, and no tool runs.

As in BFCL, parallel calls may come in any order, an argument has several possible values, and one
whose values include an empty text may be left out. Case and white space of a text do not count; in
BFCL punctuation does not either.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.harness.authoring.reference import issue_text
from lhkit.harness.authoring.scenario_yaml import literal
from lhkit.imports.functions import (
    HISTORY,
    INSTRUCTIONS,
    TOOLS,
    build_registry,
    replay_handler,
)
from lhkit.imports.importers import NOT_EMPTY, ImportedFile, Loss
from lhkit.imports.recorded import TurnReader, history_rows
from lhkit.imports.tool_shapes import read_tools
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import Accepted, value_issue

CATEGORIES = (
    *("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance"),
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
    "live_irrelevance",
)
SUITE = "single_turn"

_LEFT_OUT = ""  # among possible values: the argument may be left out


def convert_single_turn(
    read_lines: Callable[..., Sequence[Mapping[str, Any]]], losses: list[Loss]
) -> Iterator[ImportedFile]:
    """Yield the scenarios of each category that exists.

    Args:
        read_lines: returns the rows of a data file, none if it does not exist.
        losses: receives what is left out.
    """
    for category in CATEGORIES:
        answers = {
            row["id"]: row["ground_truth"]
            for row in read_lines("possible_answer", f"BFCL_v4_{category}.json")
        }
        scenarios = []
        for row in read_lines(f"BFCL_v4_{category}.json"):
            try:
                scenarios.append(_convert(category, row, answers.get(row["id"], ())))
            except UsageError as error:
                losses.append(Loss(code="invalid", where=row["id"], detail=str(error)))
        if scenarios:
            yield ImportedFile(
                name=SUITE,
                file=category,
                scenarios=tuple(scenarios),
                # one tool without arguments, ids from nowhere, questions in other languages
                accepted_findings=frozenset({"always_call", "violation", "locale"}),
            )


def _convert(
    category: str, row: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a row as a scenario.

    Raises:
        UsageError: its tools are invalid, or refuse the reference call.
    """
    tools = read_tools(row["function"])
    reader = TurnReader(where=row["id"], renamed=tools.renamed)
    for message in row["question"][0]:
        reader.read([message])
    *earlier, last = reader.turns
    world: dict[str, Any] = {TOOLS: list(tools.functions)}
    if reader.instructions:
        world[INSTRUCTIONS] = [{"text": reader.instructions}]
    if history := [entry for turn in earlier for entry in history_rows(turn)]:
        world[HISTORY] = history
    registry = build_registry(tools.functions, replay_handler)
    expected = [_expected_call(answer, tools.renamed, registry) for answer in answers]
    reference = [_reference_call(answer, tools.renamed) for answer in answers]
    for number, call in enumerate(reference):
        verdict = registry.validator(call["tool"]).check(call["args"])
        if not isinstance(verdict, Accepted):
            reason = issue_text(verdict)
            raise UsageError(f"{call['tool']} refuses its reference arguments: {reason}")
        call["parallel"] = number > 0
    turn: dict[str, Any] = {"user": last.user}
    if expected:
        turn["expect"] = {"calls": expected}
        turn["gold"] = {"calls": reference, "recorded": True}
    else:
        turn |= {"reply": NOT_EMPTY, "gold": {"recorded": True}}
    return {
        "id": row["id"].lower(),
        "ac": category,
        "locale": "en",
        "tags": ["bfcl"],
        "world": world,
        "turns": [turn],
    }


def _expected_call(
    answer: Mapping[str, Any], renamed: Mapping[str, str], registry: ToolRegistry
) -> dict[str, Any]:
    """Return the expected call, without possible values that the tool refuses."""
    ((name, values),) = answer.items()
    tool = renamed.get(name, name)
    if tool not in registry:
        raise UsageError(f"the reference calls {tool}, which is not listed")
    schema = registry[tool].parameters
    args = {}
    for key, possible in values.items():
        fitting = [
            value
            for value in _options(possible)
            if key in schema["properties"] and value_issue(schema, key, _first(value)) is None
        ]
        if fitting:
            left_out = [_LEFT_OUT] if _may_be_left_out(possible) else []
            args[key] = _matcher([*fitting, *left_out])
    return {"tool": tool, "args": args}


def _reference_call(answer: Mapping[str, Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    ((name, values),) = answer.items()
    return {"tool": renamed.get(name, name), "args": _first_values(values)}


def _options(possible: Any) -> list[Any]:
    """Return the possible values; none if the argument must be left out.

    Deep within objects a value stands for itself.
    """
    values = possible if isinstance(possible, list) else [possible]
    return [value for value in values if value != _LEFT_OUT]


def _may_be_left_out(possible: Any) -> bool:
    return isinstance(possible, list) and _LEFT_OUT in possible


def _matcher(possible: Any) -> Any:
    """Return a matcher of possible values, of which there is one."""
    options = [_value_matcher(value) for value in _options(possible)]
    if _may_be_left_out(possible):
        return {"one_of": options, "optional": True}
    return options[0] if len(options) == 1 else {"one_of": options}


def _value_matcher(value: Any) -> Any:
    if isinstance(value, str) and value.strip():
        return {"text": value, "ignore": "spaces"}
    if isinstance(value, Mapping):  # possible values of each field
        return {"fields": {key: _matcher(inner) for key, inner in value.items() if _options(inner)}}
    if isinstance(value, list):
        return {"items": [_value_matcher(inner) for inner in value]}
    return literal(value)


def _first_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _first(_options(possible)[0])
        for key, possible in values.items()
        if _options(possible) and not _may_be_left_out(possible)
    }


def _first(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _first_values(value)
    return [_first(inner) for inner in value] if isinstance(value, list) else value
