"""What a dispatch takes beside bare validation: look up, validate, ask, run, envelope.

Tools and arguments are life-helper's own; handler and gate answer at once, so that what is left is
the dispatcher. Beside it, on the same arguments: `jsonschema.validate`, which compiles the schema
each time; a validator compiled once; and that validator with the handler in a task with a time-out,
the least that a dispatch could be. All take turns within one run. Run it with `make bench`.
"""

import asyncio
import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import figures
import jsonschema
from figures import Figure, Machine, Measurement

from lhkit.confirm.gate import ConfirmRequest
from lhkit.lifehelper import toolset as life_helper
from lhkit.tool_results import ToolOk
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry

ROUNDS = 7
TIMES = 1_000
GOAL_P99_MS = 1.0
GOAL_TIMES = 10.0
"""How many times the CPU of a validator compiled once a dispatch may take."""

ARGS: Mapping[str, Mapping[str, Any]] = {
    "search_catalog": {"query": "카페인 줄이기", "category": "sleep", "limit": 3},
    "add_habit": {
        "protocol_id": "caffeine-cutoff",
        "frame_level": "identity",
        "framed_text": "나는 오후에 커피를 마시지 않는 사람이다",
        "anchor_after_what": "점심 식사",
    },
}
DONE = ToolOk({"done": True})
WAYS = {
    "dispatch": "lhkit dispatch",
    "floor": "compiled validator + handler in a task",
    "compiled": "compiled validator",
    "validate": "`jsonschema.validate`",
}


class Yes:
    """Says yes at once."""

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return True."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One round: mean CPU microseconds a call, and each call's wall microseconds, sorted."""

    cpu_us: float
    wall_us: Sequence[float]


def tools() -> ToolRegistry:
    """Return life-helper's tools with a handler that does nothing."""
    registry = life_helper.registry_of("ko")
    return ToolRegistry(
        [replace(registry[name], handler=lambda _args, _deps: DONE) for name in ARGS]
    )


def ways(registry: ToolRegistry, tool: str) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return what is timed, by its name in `WAYS`."""
    definition, args = registry[tool], ARGS[tool]
    dispatcher, gate = ToolDispatcher(registry), Yes()
    compiled = jsonschema.Draft202012Validator(definition.parameters)

    async def dispatch() -> None:
        result = await dispatcher.dispatch(tool, args, confirm=gate)
        if result != DONE:
            raise AssertionError(f"{tool} was not run")

    async def handled() -> Any:
        return definition.handler(args, None)

    async def floor() -> None:
        compiled.validate(args)
        task = asyncio.create_task(handled())
        await asyncio.wait({task}, timeout=definition.timeout_s)

    async def validate() -> None:
        jsonschema.validate(args, definition.parameters, cls=jsonschema.Draft202012Validator)

    async def reuse() -> None:
        compiled.validate(args)

    return {"dispatch": dispatch, "floor": floor, "compiled": reuse, "validate": validate}


async def timed(call: Callable[[], Awaitable[Any]], times: int) -> Timed:
    """Return what so many calls take, one after the other."""
    wall_us = []
    started_s = time.process_time()
    for _ in range(times):
        begun_s = time.perf_counter()
        await call()
        wall_us.append((time.perf_counter() - begun_s) * 1e6)
    cpu_us = (time.process_time() - started_s) / times * 1e6
    return Timed(cpu_us=cpu_us, wall_us=sorted(wall_us))


async def measure(rounds: int, times: int) -> dict[str, list[dict[str, Timed]]]:
    """Return the rounds of every tool, each with all ways."""
    registry = tools()
    found: dict[str, list[dict[str, Timed]]] = {tool: [] for tool in ARGS}
    for tool, told in found.items():
        calls = ways(registry, tool)
        for call in calls.values():
            await timed(call, 10)  # caches
        for _ in range(rounds):
            told.append({way: await timed(call, times) for way, call in calls.items()})
    return found


def quantile_us(rounds: Sequence[Mapping[str, Timed]], way: str, share: float) -> float:
    """Return the wall microseconds that `share` of a round's calls keep, in the median round."""
    return statistics.median(
        told[way].wall_us[min(int(share * len(told[way].wall_us)), len(told[way].wall_us) - 1)]
        for told in rounds
    )


def cpu_us(rounds: Sequence[Mapping[str, Timed]], way: str) -> float:
    """Return the median of the rounds' CPU microseconds a call."""
    return statistics.median(told[way].cpu_us for told in rounds)


def ratio(rounds: Sequence[Mapping[str, Timed]], way: str, other: str) -> float:
    """Return how many times the CPU of `other` the calls of `way` take, the rounds' median."""
    return statistics.median(told[way].cpu_us / told[other].cpu_us for told in rounds)


def found(measured: Mapping[str, Sequence[Mapping[str, Timed]]], machine: Machine) -> Measurement:
    """Return the figures."""
    rows = [row for tool, rounds in measured.items() for row in _figures(tool, rounds)]
    return Measurement(
        title="Dispatch latency: lhkit's dispatcher beside bare jsonschema",
        command="python evals/benchmarks/dispatch_latency.py",
        versions={"Python": platform.python_version(), "jsonschema": version("jsonschema")},
        figures=tuple(rows),
        machine=machine,
        notes=(
            "life-helper's own schemas and arguments; the handler and the confirm gate answer "
            "at once. `add_habit` writes: its gate is asked, with the summary that a person "
            "would read.",
        ),
    )


def _figures(tool: str, rounds: Sequence[Mapping[str, Timed]]) -> list[Figure]:
    what = f"dispatch of `{tool}`"
    p99_ms = quantile_us(rounds, "dispatch", 0.99) / 1000
    return [
        Figure(what=f"{what}, p99", value=p99_ms, unit="ms", at_most=GOAL_P99_MS),
        Figure(
            what=f"{what}, CPU: times a {WAYS['compiled']}",
            value=ratio(rounds, "dispatch", "compiled"),
            unit="×",
            at_most=GOAL_TIMES,
        ),
        Figure(
            what=f"{what}, CPU: times {WAYS['floor']}",
            value=ratio(rounds, "dispatch", "floor"),
            unit="×",
        ),
        Figure(
            what=f"{WAYS['validate']} for `{tool}`, CPU: times a dispatch",
            value=ratio(rounds, "validate", "dispatch"),
            unit="×",
            at_least=1.0,
        ),
    ]


def main() -> None:
    """Measure, and write the figures."""
    machine = figures.this_machine()
    measured = asyncio.run(measure(ROUNDS, TIMES))
    measurement = found(measured, machine)
    figures.write("dispatch_latency", measurement)


if __name__ == "__main__":
    main()
