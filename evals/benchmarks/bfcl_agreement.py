"""BFCL's own multi-turn checker beside lhkit's judge, on the same conversations.

Each gold of an imported suite is played as it is and in other ways: its calls the other way round
in each turn, its reads already in the turn before, a call more, one left out, an argument altered.
BFCL's checker, untouched, judges the same calls; what it accepts has to pass, and nothing else.

    pip install --no-deps --target bfcl-eval -r evals/benchmarks/requirements-bfcl.txt mpmath==1.3.0
    python evals/benchmarks/bfcl_agreement.py bfcl-eval --category multi_turn_base --limit 200

What came out stands in imported_golds.md.
"""

import argparse
import asyncio
import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lhkit.harness.author.gold import TurnTrace, gold_trace, trace_model
from lhkit.harness.record import Verdict
from lhkit.harness.run import tried
from lhkit.harness.scenario import Scenario
from lhkit.imports.bfcl import CATEGORIES, BfclToolset, import_bfcl, read_package
from lhkit.imports.imported import scenario_of
from lhkit.messages import ToolCall
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import registry_of

Turns = list[list[ToolCall]]


def variants(gold: Turns, registry: ToolRegistry) -> Iterator[tuple[str, Turns]]:
    """Yield a gold and what may become of it, by name."""
    yield "gold", gold
    yield "each turn backwards", [turn[::-1] for turn in gold]
    yield "reads a turn earlier", _earlier(gold, registry)
    yield "the first call once more at the end", [*gold[:-1], [*gold[-1], *gold[0][:1]]]
    places = [(t, c) for t, turn in enumerate(gold) for c in range(len(turn))]
    for name, (t, c) in {
        "without its first call": places[0],
        "without its last": places[-1],
    }.items():
        yield name, _with(gold, t, c, ())
    t, c = places[-1]
    call = gold[t][c]
    for argument, value in list(call.args.items())[-1:]:
        other = ToolCall(name=call.name, args={**call.args, argument: _other(value)})
        yield "an argument of its last altered", _with(gold, t, c, (other,))


def _earlier(gold: Turns, registry: ToolRegistry) -> Turns:
    """Return the calls with the reads that a turn begins with at the end of the one before."""
    moved: Turns = [list(gold[0])]
    for turn in gold[1:]:
        first = next(
            (c for c, call in enumerate(turn) if call.name in registry.destructive), len(turn)
        )
        moved[-1] += turn[:first]
        moved.append(turn[first:])
    return moved


def _with(gold: Turns, t: int, c: int, instead: Sequence[ToolCall]) -> Turns:
    return [*gold[:t], [*gold[t][:c], *instead, *gold[t][c + 1 :]], *gold[t + 1 :]]


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value} x" if isinstance(value, str) else value[:-1] if isinstance(value, list) else {}


def accepted_by_bfcl(entry: Mapping[str, Any], truth: Any, turns: Turns, name: str) -> bool:
    """Return BFCL's verdict. `name` is what it keeps the objects of a model under, in code."""
    checker = importlib.import_module(
        "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"
    ).multi_turn_checker
    steps = [[[_python(call)] for call in turn] for turn in turns]
    return bool(
        checker(steps, truth, dict(entry), entry["id"].rsplit("_", 1)[0], _identifier(name))[
            "valid"
        ]
    )


def _identifier(name: str) -> str:
    return name.replace(" ", "_")


def _python(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.args.items())})"


async def passes(scenario: Scenario, gold: Sequence[TurnTrace], turns: Turns, toolset: Any) -> bool:
    """Return lhkit's verdict."""
    trace = tuple(
        replace(said, messages=tuple((call,) for call in turn))
        for said, turn in zip(gold, turns, strict=True)
    )
    record = await tried(scenario, partial(_playing, trace), toolset)
    return record.judgement.verdict is Verdict.PASS


def _playing(trace: Sequence[TurnTrace], _scenario: Scenario, _registry: ToolRegistry) -> Any:
    return trace_model(trace, name="variant")


async def measured(path: str, category: str, limit: int) -> None:
    """Print a row for each variant: how many both accept, both refuse, only one accepts."""
    package, toolset = read_package(path), BfclToolset(path)
    entries = {each["id"]: each for each in package.lines(f"BFCL_v4_{category}.json")}
    truths = {
        each["id"]: each["ground_truth"]
        for each in package.lines("possible_answer", f"BFCL_v4_{category}.json")
    }
    suites = {suite.file: suite.scenarios for suite in import_bfcl(Path(path)).suites}
    counts: dict[str, Counter[str]] = {}
    for told in tqdm(suites[category][:limit], desc=category):
        scenario = scenario_of(told)
        registry = registry_of(toolset, scenario.world, scenario.locale)
        gold = gold_trace(scenario, registry)
        calls = [list(turn.calls) for turn in gold]
        for name, turns in variants(calls, registry):
            theirs = accepted_by_bfcl(entries[scenario.id], truths[scenario.id], turns, name)
            ours = await passes(scenario, gold, turns, toolset)
            row = f"BFCL {'yes' if theirs else 'no'}, lhkit {'yes' if ours else 'no'}"
            counts.setdefault(name, Counter())[row] += 1
            if theirs is not ours:
                print(f"{scenario.id}: {name}: {row}", file=sys.stderr)
    for name, counted in counts.items():
        print(json.dumps({"category": category, "played": name} | counted), flush=True)


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("path", help="the folder that bfcl_eval lies in")
    parser.add_argument("--category", default=CATEGORIES[0], choices=CATEGORIES)
    parser.add_argument("--limit", type=int, default=200, help="only so many conversations")
    options = parser.parse_args()
    asyncio.run(measured(options.path, options.category, options.limit))


if __name__ == "__main__":
    main()
