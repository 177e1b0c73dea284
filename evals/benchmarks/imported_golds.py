"""Golds of public benchmarks, imported: do they pass, and is one noticed that is spoilt?

Each folder is one that `lhkit import` made. Every gold is played by `gold_model` through the real
controller, gate and dispatcher on the benchmark's own tools, twice in one process. Then each is
spoilt in two ways, without its last write and with an argument of that write altered, and played
again; beside the verdict stands whether the benchmark's own data end otherwise than the gold's.

    lhkit import tau ~/tau-bench --into tau --jsonl
    pip install --no-deps --target bfcl-eval -r evals/benchmarks/requirements-bfcl.txt mpmath==1.3.0
    lhkit import bfcl bfcl-eval --into bfcl --jsonl
    python evals/benchmarks/imported_golds.py tau bfcl

What came out stands in imported_golds.md.
"""

import argparse
import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lhkit.harness.author.gold import TurnTrace, gold_model, gold_trace, trace_model
from lhkit.harness.record import Verdict
from lhkit.harness.run import replay, tried
from lhkit.harness.scenario import Scenario, load_scenarios
from lhkit.messages import ToolCall
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset, load, registry_of

REPEATS = 2


def suites(folder: Path) -> Iterator[tuple[str, tuple[Scenario, ...], Toolset]]:
    """Yield each suite of a folder: its name, its scenarios and their toolset.

    The toolset has the name of the suite or of its beginning (`retail_dev`), or is the only one.
    """
    place = folder / "toolset.py"
    told = re.findall(r"^(\w+) = ", place.read_text(encoding="utf-8"), re.MULTILINE)
    for file in sorted((*folder.glob("*.jsonl"), *folder.glob("*.yaml"))):
        name = next((each for each in told if f"{file.stem}_".startswith(f"{each}_")), "toolset")
        yield file.stem, load_scenarios([file]), load(f"{place}:{name}")


async def golds(name: str, scenarios: Sequence[Scenario], toolset: Toolset) -> dict[str, Any]:
    """Return how many golds pass, each played `REPEATS` times in this process."""
    run = await replay(scenarios, gold_model, toolset=toolset, repeats=REPEATS)
    verdicts = Counter(str(record.judgement.verdict) for record in run.records)
    for record in run.records:
        if record.judgement.verdict is not Verdict.PASS:
            print(record.sample_id, *record.judgement.reasons[:3], sep="\n  ", file=sys.stderr)
    return {"suite": name, "played": f"golds, {REPEATS} times", "samples": len(run.records)} | dict(
        verdicts
    )


async def spoilt_golds(
    name: str, scenarios: Sequence[Scenario], toolset: Toolset
) -> list[dict[str, Any]]:
    """Return how many spoilt golds fail, of all and of those whose data end otherwise."""
    counts: dict[str, Counter[str]] = {}
    for scenario in tqdm(scenarios, desc=f"{name}, spoilt"):
        registry = registry_of(toolset, scenario.world, scenario.locale)
        trace = gold_trace(scenario, registry)
        wanted = (await tried(scenario, gold_model, toolset)).evidence.final_state
        for kind, other in spoilt(trace, registry).items():
            record = await tried(scenario, partial(_playing, other), toolset)
            counted = counts.setdefault(kind, Counter())
            is_seen = record.judgement.verdict is Verdict.FAIL
            differs = record.evidence.final_state != wanted
            counted.update(samples=1, fail=is_seen, data_differ=differs, seen=is_seen and differs)
            if differs and not is_seen:
                print(f"{scenario.id}: {kind}: not noticed", file=sys.stderr)
    return [
        {"suite": name, "played": kind}
        | {key: counted[key] for key in ("samples", "fail", "data_differ", "seen")}
        for kind, counted in counts.items()
    ]


def _playing(trace: Sequence[TurnTrace], _scenario: Scenario, _registry: ToolRegistry) -> Any:
    return trace_model(trace, name="spoilt")


def spoilt(trace: Sequence[TurnTrace], registry: ToolRegistry) -> dict[str, tuple[TurnTrace, ...]]:
    """Return a gold without its last write, and with an argument of that write altered."""
    places = [
        (t, m)
        for t, turn in enumerate(trace)
        for m, (call,) in enumerate(turn.messages)
        if call.name in registry.destructive
    ]
    if not places:
        return {}
    t, m = places[-1]
    (last,) = trace[t].messages[m]
    found = {"without its last write": _with(trace, t, m, ())}
    for name, value in list(last.args.items())[-1:]:
        call = ToolCall(name=last.name, args={**last.args, name: _other(value)})
        found["an argument of it altered"] = _with(trace, t, m, ((call,),))
    return found


def _with(trace: Sequence[TurnTrace], t: int, m: int, instead: Any) -> tuple[TurnTrace, ...]:
    messages = trace[t].messages
    turn = replace(trace[t], messages=(*messages[:m], *instead, *messages[m + 1 :]))
    return (*trace[:t], turn, *trace[t + 1 :])


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value} x" if isinstance(value, str) else value[:-1] if isinstance(value, list) else {}


async def measured(folders: Sequence[Path], spoil: int) -> None:
    """Print a row for each thing that was played."""
    for folder in folders:
        for name, scenarios, toolset in suites(folder):
            print(json.dumps(await golds(name, scenarios, toolset)), flush=True)
            for row in await spoilt_golds(name, scenarios[:spoil], toolset):
                print(json.dumps(row), flush=True)


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, help="what `lhkit import` made")
    parser.add_argument("--spoil", type=int, help="only so many scenarios of a suite are spoilt")
    options = parser.parse_args()
    asyncio.run(measured(options.folders, options.spoil))


if __name__ == "__main__":
    main()
