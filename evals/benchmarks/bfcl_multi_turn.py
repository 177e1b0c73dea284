"""BFCL's multi-turn domains as they are: the public benchmark's golds, played and judged by lhkit.

Each entry of `BFCL_v4_multi_turn_base` (200 conversations over file system, vehicle, trading,
travel, messages, tickets, tweets and arithmetic) becomes a scenario: its turns, its own calls as
what is expected, and, as `final`, the state that BFCL's own classes end in when its calls are run
on them directly. The classes are the package's, untouched: live objects whose attributes are the
state. Every gold is played by `gold_model` through the real controller, gate and dispatcher, all
conversations at once, twice in one process; then spoilt, in each turn: without its last call, and
with an argument of it altered. Beside each verdict stands what BFCL's own objects say of the state.

Needs BFCL's package and nothing else of it, in an environment that has lhkit, too:

    pip install --no-deps -r evals/benchmarks/requirements-bfcl.txt mpmath==1.3.0
    python evals/benchmarks/bfcl_multi_turn.py

What came out stands in bfcl_multi_turn.md.
"""

import argparse
import ast
import asyncio
import importlib
import inspect
import json
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, partial
from importlib.metadata import version
from importlib.resources import files
from types import ModuleType
from typing import Any

from lhkit import Assistant, ToolDefinition, ToolErr, ToolOk, ToolRegistry, ToolResult
from lhkit.errors import ScenarioError
from lhkit.harness.author.baselines import TurnTrace, gold_model, gold_trace, trace_model
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.scenario import Expect, ExpectedCall, Scenario, Turn
from lhkit.harness.stress import ModelSource
from lhkit.messages import ToolCall
from lhkit.models.base import ChatModel

CATEGORY = "BFCL_v4_multi_turn_base"
STATELESS = {"MathAPI"}
TODAY = date(2024, 9, 1)
REPEATS = 2
CONCURRENCY = 16
MOST_CALLS = 12
"""Calls of one turn, and some more: `max_turns` of the assistant."""

_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}


def package() -> ModuleType:
    """Return BFCL's package, or end with a sentence."""
    try:
        return importlib.import_module("bfcl_eval.constants.executable_backend_config")
    except ImportError as error:
        sys.exit(
            f"bfcl_multi_turn.py needs BFCL's own package ({error}): "
            "pip install --no-deps -r evals/benchmarks/requirements-bfcl.txt mpmath==1.3.0"
        )


def lines(*path: str) -> list[dict[str, Any]]:
    """Return the objects of one of the package's files."""
    text = files("bfcl_eval").joinpath("data", *path).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def schema(told: Any) -> Any:
    """Return BFCL's way of writing a schema as JSON Schema."""
    if isinstance(told, list):
        return [schema(each) for each in told]
    if not isinstance(told, dict):
        return told
    kept = {key: schema(value) for key, value in told.items() if key != "default"}
    if isinstance(kept.get("type"), str):
        kept["type"] = _TYPES.get(kept["type"], kept["type"])
    return {key: value for key, value in kept.items() if value is not None}


def snake(name: str) -> str:
    """Return the name of a method as a tool may be called here: `startEngine`, `start_engine`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


@cache
def registry(classes: tuple[str, ...]) -> ToolRegistry:
    """Return the methods of BFCL's classes as tools, as its function documents describe them."""
    told = package()
    described = {
        name: lines("multi_turn_func_doc", told.MULTI_TURN_FUNC_DOC_FILE_MAPPING[name])
        for name in classes
    }
    return ToolRegistry(
        ToolDefinition(
            name=snake(function["name"]),
            description=function["description"].partition("Tool description: ")[2],
            parameters=schema(function["parameters"]),
            handler=partial(_run, name, function["name"]),
            is_destructive=name not in STATELESS,
        )
        for name, functions in described.items()
        for function in functions
    )


def _run(
    owner: str, method: str, args: Mapping[str, Any], objects: Mapping[str, Any]
) -> ToolResult:
    """Call the method of the live object, and give what it returns as it is."""
    try:
        returned = getattr(objects[owner], method)(**args)
    except Exception as error:  # noqa: BLE001 - as BFCL does: what it raises is the model's to read
        return ToolErr("raised", str(error) or type(error).__name__)
    return ToolOk(returned if isinstance(returned, dict) else {"result": str(returned)})


def built(world: Mapping[str, Any]) -> dict[str, Any]:
    """Return BFCL's objects in the state of a world: one row a class, with its configuration."""
    told = package()
    objects = {}
    for row in world["classes"]:
        module = importlib.import_module(told.CLASS_FILE_PATH_MAPPING[row["name"]])
        objects[row["name"]] = getattr(module, row["name"])()
        if row["name"] not in STATELESS:
            objects[row["name"]]._load_scenario(row["config"])  # noqa: SLF001 - as BFCL does
    return objects


def attributes(objects: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the state as rows: one table a class, one row a public attribute, as BFCL compares."""
    return {
        owner: [
            {"name": name, "value": _plain(value)}
            for name, value in vars(thing).items()
            if not name.startswith("_")
        ]
        for owner, thing in objects.items()
        if owner not in STATELESS
    }


def _plain(value: Any) -> Any:
    """Return what an attribute holds as JSON: folders and files by their contents."""
    if hasattr(value, "contents"):
        return {name: _plain(each) for name, each in value.contents.items()}
    if hasattr(value, "content"):
        return value.content
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(each) for each in value]
    return value


@dataclass(frozen=True, kw_only=True)
class Session:
    """One conversation's own objects."""

    objects: Mapping[str, Any]
    registry: ToolRegistry
    today: date = TODAY

    @property
    def assistant(self) -> Assistant:
        """An assistant with room for all calls of a turn."""
        return Assistant(deps=self.objects, max_turns=MOST_CALLS)

    def state(self) -> Mapping[str, Any]:
        """Return the attributes of all objects."""
        return attributes(self.objects)

    def row_keys(self) -> Mapping[str, Sequence[str]]:
        """Return that an attribute is known by its name."""
        return {owner: ["name"] for owner in attributes(self.objects)}

    def close(self) -> None:
        """Nothing to close."""


class Toolset:
    """Opens BFCL's classes; `{classes: [{name, config}]}` is a world."""

    def open(self, world: Mapping[str, Any], locale: str) -> Session:  # noqa: ARG002 - English only
        """Return a session with objects of its own."""
        objects = built(world)
        return Session(objects=objects, registry=registry(tuple(sorted(objects))))


def parsed(call: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Return method and arguments of a call as BFCL writes it: Python."""
    made = ast.parse(call, mode="eval").body
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name):
        raise TypeError(f"{call} is no call")
    named = {each.arg or "": ast.literal_eval(each.value) for each in made.keywords}
    return made.func.id, [ast.literal_eval(each) for each in made.args], named


def gold_calls(entry: Mapping[str, Any], turn: Sequence[str]) -> list[ToolCall]:
    """Return BFCL's calls of one turn, with named arguments."""
    tools = registry(tuple(sorted(entry["involved_classes"])))
    calls = []
    for method, positional, named in map(parsed, turn):
        tool = tools.get(snake(method))
        order = list(tool.parameters["properties"]) if tool else []
        args = {**dict(zip(order, positional, strict=False)), **named}
        calls.append(ToolCall(name=snake(method), args=args))
    return calls


def ended(world: Mapping[str, Any], calls: Iterable[ToolCall]) -> dict[str, list[dict[str, Any]]]:
    """Return the state that BFCL's own objects end in, without lhkit between them and the calls."""
    objects = built(deepcopy(world))
    methods = {
        snake(name): method
        for thing in objects.values()
        for name, method in inspect.getmembers(thing, inspect.ismethod)
    }
    for call in calls:
        try:
            methods[call.name](**deepcopy(call.args))
        except Exception as error:  # noqa: BLE001 - as BFCL does: a fault is a result
            logging.getLogger("bfcl").info("%s: %s", call.name, error)
    return attributes(objects)


def scenario_of(entry: Mapping[str, Any], truth: Sequence[Sequence[str]]) -> Scenario:
    """Return one entry as a scenario whose `final` is what BFCL's own objects end in."""
    config = entry["initial_config"]
    classes = sorted(entry["involved_classes"])
    world = {"classes": [{"name": name, "config": config.get(name, {})} for name in classes]}
    gold = [gold_calls(entry, turn) for turn in truth]
    before, after = ended(world, ()), ended(world, (call for calls in gold for call in calls))
    return Scenario(
        id=entry["id"],
        ac="bfcl",
        locale="en",
        world=world,
        turns=tuple(
            Turn(
                user=" ".join(message["content"] for message in said) or "…",
                confirm="accept",
                expect=Expect(
                    calls=tuple(
                        ExpectedCall(tool=call.name, args=_literal(call.args)) for call in calls
                    ),
                    order="strict",
                ),
            )
            for said, calls in zip(entry["question"], gold, strict=True)
        ),
        final={
            owner: tuple(_literal(row) for row in rows if row not in before[owner])
            for owner, rows in after.items()
        },
    )


def _literal(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"equals": value} for name, value in fields.items()}


def spoilt(trace: Sequence[TurnTrace]) -> dict[str, tuple[TurnTrace, ...]]:
    """Return the trace without the last call of each turn, and with an argument of it altered."""
    found = {}
    for t, turn in enumerate(trace):
        if not turn.messages:
            continue
        *others, (last,) = turn.messages
        found[f"call left out, turn {t + 1}"] = _with(trace, t, tuple(others))
        for name, value in list(last.args.items())[:1]:
            call = ToolCall(name=last.name, args={**last.args, name: _other(value)})
            found[f"argument altered, turn {t + 1}"] = _with(trace, t, (*others, (call,)))
    return found


def _with(trace: Sequence[TurnTrace], t: int, messages: Any) -> tuple[TurnTrace, ...]:
    return (*trace[:t], replace(trace[t], messages=messages), *trace[t + 1 :])


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value} x" if isinstance(value, str) else value[:-1] if isinstance(value, list) else {}


async def play(limit: int | None) -> list[dict[str, Any]]:
    """Return a row for each thing that was played."""
    truths = {
        row["id"]: row["ground_truth"] for row in lines("possible_answer", f"{CATEGORY}.json")
    }
    entries = lines(f"{CATEGORY}.json")[:limit]
    scenarios = [scenario_of(entry, truths[entry["id"]]) for entry in entries]
    written = deepcopy(scenarios)
    golds = dict(_golds(scenarios))
    playable = [each for each in scenarios if each.id in golds]
    run = await _replayed(playable, gold_model, repeats=REPEATS)
    rows = [_row(f"gold, {REPEATS} repeats", run)]
    made: dict[str, list[SampleRecord]] = {"call left out": [], "argument altered": []}
    differing, agreed = 0, 0
    for scenario in playable:
        wanted = ended(scenario.world, _all(golds[scenario.id]))
        for kind, trace in spoilt(golds[scenario.id]).items():
            maker = partial(_playing, trace)
            (record,) = (await _replayed([scenario], maker, repeats=1)).records
            differs = ended(scenario.world, _all(trace)) != wanted
            made[kind.partition(",")[0]].append(record)
            differing += differs
            agreed += differs is not record.judgement.state_equal
    rows += [_row(kind, records) for kind, records in made.items()]
    count = sum(map(len, made.values()))
    rows.append({"state: as BFCL says": agreed, "of": count, "differing by BFCL": differing})
    changed = sum(a != b for a, b in zip(scenarios, written, strict=True))
    rows.append({"refused by BFCL's own schema": len(scenarios) - len(playable)})
    rows.append({"scenarios changed by playing": changed})
    return rows


def _golds(scenarios: Iterable[Scenario]) -> Iterator[tuple[str, tuple[TurnTrace, ...]]]:
    """Yield the gold of each scenario; say which ones break the schema of their own tools."""
    for scenario in scenarios:
        names = tuple(sorted(row["name"] for row in scenario.world["classes"]))
        try:
            yield scenario.id, gold_trace(scenario, registry(names))
        except ScenarioError as error:
            print(error, file=sys.stderr)


async def _replayed(scenarios: Sequence[Scenario], model: ModelSource, *, repeats: int) -> Run:
    return await replay(
        scenarios,
        model,
        toolset=Toolset(),
        repeats=repeats,
        concurrency=CONCURRENCY,
        progress=False,
    )


def _playing(trace: Sequence[TurnTrace], _scenario: Scenario, _registry: ToolRegistry) -> ChatModel:
    return trace_model(trace, name="spoilt")


def _all(trace: Sequence[TurnTrace]) -> Iterator[ToolCall]:
    return (call for turn in trace for call in turn.calls)


def _row(played: str, records: Run | Sequence[SampleRecord]) -> dict[str, Any]:
    found = records.records if isinstance(records, Run) else records
    for record in found:
        is_gold = isinstance(records, Run)
        if (
            is_gold is not (record.judgement.verdict is Verdict.PASS)
            or record.judgement.verdict is Verdict.INVALID
        ):
            print(
                record.sample_id,
                record.judgement.verdict,
                *record.judgement.reasons[:3],
                sep="\n  ",
                file=sys.stderr,
            )
    verdicts = Counter(str(record.judgement.verdict) for record in found)
    differing = sum(record.judgement.state_equal is False for record in found)
    return {"played": played, "samples": len(found), **verdicts, "state differs": differing}


def main() -> None:
    """Play all of it and print the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--limit", type=int, help="only so many of the 200 entries")
    options = parser.parse_args()
    package()
    print(f"bfcl-eval {version('bfcl-eval')}, {CATEGORY}")
    for row in asyncio.run(play(options.limit)):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
