"""Import BFCL's multi-turn conversations as scenarios.

BFCL's calls, run on its own objects directly, say what each turn must end in and what results must
have come. As there, it does not matter which calls led to either, and a result may have come in an
earlier turn; but a turn with a gold needs a call. A turn without a gold is one in which BFCL judges
nothing.
"""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lhkit.errors import UsageError
from lhkit.harness.author.written import changes, literals
from lhkit.imports.bfcl import (
    Attributes,
    Package,
    attributes,
    call_result,
    read_package,
    registry_of,
)
from lhkit.imports.imported import Imported, ImportedFile, Loss, gold_calls
from lhkit.json_values import compact
from lhkit.messages import ToolCall
from lhkit.tool_results import ToolErr, ToolOk
from lhkit.tools.registry import ToolRegistry

CATEGORIES = (
    "multi_turn_base",
    "multi_turn_miss_param",
    "multi_turn_miss_func",
    "multi_turn_long_context",
)


def import_bfcl(path: Path) -> Imported:
    """Return BFCL's multi-turn conversations as scenarios.

    Raises:
        UsageError: the package is not there, or its code fails.
    """
    folder = str(path.resolve())
    package = read_package(folder)
    losses = [Loss(code="categories")]
    return Imported(
        toolset="\n".join(
            (
                '"""Written by `lhkit import bfcl`: the classes of BFCL, run where they lie."""',
                "",
                "from lhkit.imports.bfcl import BfclToolset",
                "",
                f"toolset = BfclToolset({compact(folder)})",
                "",
            )
        ),
        suites=tuple(
            ImportedFile(
                name="toolset", file=category, scenarios=tuple(_scenarios(folder, category))
            )
            for category in CATEGORIES
            if package.lines(f"BFCL_v4_{category}.json")
        ),
        losses=tuple(losses),
    )


def _scenarios(folder: str, category: str) -> Iterator[dict[str, Any]]:
    package = read_package(folder)
    truths = {
        row["id"]: row["ground_truth"]
        for row in package.lines("possible_answer", f"BFCL_v4_{category}.json")
    }
    for entry in package.lines(f"BFCL_v4_{category}.json"):
        yield _scenario(folder, category, entry, truths[entry["id"]])


def _scenario(
    folder: str, category: str, entry: Mapping[str, Any], truth: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Return one entry as a scenario whose turns end in what BFCL's own objects end in."""
    names = tuple(sorted(entry["involved_classes"]))
    rows = [{"name": name, "config": entry["initial_config"].get(name, {})} for name in names]
    if category.endswith("long_context"):
        rows = [{**row, "long_context": True} for row in rows]
    late = [
        {"turn": int(turn), "tool": name}
        for turn, tools in entry.get("missed_function", {}).items()
        for name in tools
    ]
    world = {"classes": rows} | ({"arriving": late} if late else {})
    package, registry = read_package(folder), registry_of(folder, names)
    gold = [[_call(told, registry) for told in turn] for turn in truth]
    reached = list(stages(package, world, gold))
    states = [each.state for each in reached]
    said = [
        " ".join(each["content"] for each in messages) or package.more_tools()
        for messages in entry["question"]
    ]
    return {
        "id": entry["id"],
        "ac": category,
        "locale": "en",
        "tags": ["bfcl"],
        "world": world,
        "turns": [
            _turn(words, calls, stage.results, registry) | change
            for words, calls, stage, change in zip(
                said, gold, reached[1:], _changes(gold, states), strict=True
            )
        ],
    } | _changed(states[0], states[-1])


def _turn(
    user: str,
    calls: Sequence[ToolCall],
    results: Sequence[ToolOk | ToolErr],
    registry: ToolRegistry,
) -> dict[str, Any]:
    """Return a turn that asks for the results of the gold, from whichever calls.

    The gold's writes are named, so that a user who reads the card knows them; none of them has to
    be made. What the gold raised is no result of a call that went well: that call has to be.
    """
    turn: dict[str, Any] = {"user": user, "confirm": "accept", "expect": {"extra": "any"}}
    if not calls:
        return turn
    came = list(zip(calls, results, strict=True))
    named = [
        {"tool": call.name, "args": literals(call.args)}
        | ({"result": result.code} if isinstance(result, ToolErr) else {"optional": True})
        for call, result in came
        if call.name in registry.destructive or isinstance(result, ToolErr)
    ]
    awaited = [{"equals": dict(each.data)} for each in results if isinstance(each, ToolOk)]
    asked = {"calls": named, "results": awaited, "least": 1}
    turn["expect"] |= {name: each for name, each in asked.items() if each}
    return turn | {"gold": {"calls": gold_calls(calls)}}


def _changes(
    gold: Sequence[Sequence[ToolCall]], states: Sequence[Attributes]
) -> Iterator[dict[str, Any]]:
    """Yield what each turn does to the state.

    BFCL judges none of a turn without a gold, so that what stands before the next is not known:
    of that, the whole state is told.
    """
    for i, calls in enumerate(gold):
        if not calls:
            yield {}
        elif i > 0 and not gold[i - 1]:
            every = {
                table: [literals(row) for row in rows] for table, rows in states[i + 1].items()
            }
            yield {"final": every}
        else:
            yield {"final": {}} | _changed(states[i], states[i + 1])


def _changed(before: Attributes, after: Attributes) -> dict[str, Any]:
    return changes(_tuples(before), _tuples(after), dict.fromkeys(before, ("name",)))


def _tuples(state: Attributes) -> dict[str, tuple[dict[str, Any], ...]]:
    return {table: tuple(rows) for table, rows in state.items()}


def _call(told: str, registry: ToolRegistry) -> ToolCall:
    """Return a call as BFCL writes it, in Python, with named arguments."""
    made = ast.parse(told, mode="eval").body
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name):
        raise UsageError(f"BFCL: {told} is no call: the package has another form than v4")
    name = made.func.id
    tool = registry.get(name)
    order = list(tool.parameters["properties"]) if tool else []
    args = dict(zip(order, map(ast.literal_eval, made.args), strict=False))
    args |= {each.arg or "": ast.literal_eval(each.value) for each in made.keywords}
    return ToolCall(name=name, args=args)


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterTurn:
    """How BFCL's own objects stand after a turn, and what its calls came to; or at the start."""

    state: Attributes
    results: tuple[ToolOk | ToolErr, ...] = ()


def _no_method(**_args: Any) -> None:
    raise KeyError("BFCL's classes have no such method")


def stages(
    package: Package, world: Mapping[str, Any], turns: Iterable[Iterable[ToolCall]]
) -> Iterator[AfterTurn]:
    """Yield how BFCL's own objects stand at the start and after the calls of each turn.

    Nothing of lhkit is between them and the calls.
    """
    objects = package.built(world)
    methods: dict[str, Callable[..., Any]] = {
        name: method
        for thing in objects.values()
        for name, method in inspect.getmembers(thing, inspect.ismethod)
    }
    yield AfterTurn(state=attributes(objects))
    for calls in turns:
        results = tuple(
            call_result(methods.get(call.name, _no_method), call.args) for call in calls
        )
        yield AfterTurn(state=attributes(objects), results=results)
