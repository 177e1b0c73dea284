"""Measure the latency of a dispatch (lookup, validation, confirmation, handler, result).

Tools and arguments are life-helper's; handler and gate return at once, so only the dispatcher is
measured. Baselines on the same arguments: `jsonschema.validate`, which compiles the schema each
time; a validator that is compiled once; and that validator with the handler in a task with a
timeout (the lower bound). All alternate within one run. Run it with `make bench`.
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
from lhkit.conversation.tool_results import ToolOk
from lhkit.lifehelper import toolset as life_helper
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry

ROUNDS = 7
TIMES = 1_000
GOAL_P99_MS = 1.0
GOAL_TIMES = 10.0
"""Maximum CPU of a dispatch, relative to a compiled validator."""

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
VARIANTS = {
    "dispatch": "lhkit dispatch",
    "floor": "compiled validator + handler in a task",
    "compiled": "compiled validator",
    "validate": "`jsonschema.validate`",
}


class ApprovingGate:
    """Approves at once."""

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return True."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One round: mean CPU microseconds per call, and the sorted wall microseconds of all calls."""

    cpu_us: float
    wall_us: Sequence[float]


def build_tools() -> ToolRegistry:
    """Return life-helper's tools with a handler that does nothing."""
    registry = life_helper.registry_of("ko")
    return ToolRegistry(
        [replace(registry[name], handler=lambda _args, _deps: DONE) for name in ARGS]
    )


def build_variants(registry: ToolRegistry, tool: str) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return the calls to measure, by their names in `VARIANTS`."""
    definition, args = registry[tool], ARGS[tool]
    dispatcher, gate = ToolDispatcher(registry), ApprovingGate()
    compiled = jsonschema.Draft202012Validator(definition.parameters)

    async def dispatch() -> None:
        result = await dispatcher.dispatch(tool, args, confirm=gate)
        if result != DONE:
            raise AssertionError(f"{tool} was not run")

    async def run_handler() -> Any:
        return definition.handler(args, None)

    async def floor() -> None:
        compiled.validate(args)
        task = asyncio.create_task(run_handler())
        await asyncio.wait({task}, timeout=definition.timeout_s)

    async def validate() -> None:
        jsonschema.validate(args, definition.parameters, cls=jsonschema.Draft202012Validator)

    async def reuse() -> None:
        compiled.validate(args)

    return {"dispatch": dispatch, "floor": floor, "compiled": reuse, "validate": validate}


async def measure_calls(call: Callable[[], Awaitable[Any]], times: int) -> Timing:
    """Measure a number of sequential calls."""
    wall_us = []
    started_s = time.process_time()
    for _ in range(times):
        call_started_s = time.perf_counter()
        await call()
        wall_us.append((time.perf_counter() - call_started_s) * 1e6)
    cpu_us = (time.process_time() - started_s) / times * 1e6
    return Timing(cpu_us=cpu_us, wall_us=sorted(wall_us))


async def measure(rounds: int, times: int) -> dict[str, list[dict[str, Timing]]]:
    """Return the rounds of every tool, with the timings of all variants."""
    registry = build_tools()
    timings: dict[str, list[dict[str, Timing]]] = {tool: [] for tool in ARGS}
    for tool, tool_rounds in timings.items():
        calls = build_variants(registry, tool)
        for call in calls.values():
            await measure_calls(call, 10)  # caches
        for _ in range(rounds):
            tool_rounds.append({name: await measure_calls(c, times) for name, c in calls.items()})
    return timings


def quantile_us(rounds: Sequence[Mapping[str, Timing]], variant: str, share: float) -> float:
    """Return a quantile of a round's wall microseconds, in the median round."""

    def quantile(wall_us: Sequence[float]) -> float:
        return wall_us[min(int(share * len(wall_us)), len(wall_us) - 1)]

    return statistics.median(quantile(timings[variant].wall_us) for timings in rounds)


def cpu_ratio(rounds: Sequence[Mapping[str, Timing]], variant: str, other: str) -> float:
    """Return the CPU of a variant relative to another one, as the median of the rounds."""
    return statistics.median(timings[variant].cpu_us / timings[other].cpu_us for timings in rounds)


def build_measurement(
    measured: Mapping[str, Sequence[Mapping[str, Timing]]], machine: Machine
) -> Measurement:
    """Return the figures."""
    rows = [row for tool, rounds in measured.items() for row in _figures(tool, rounds)]
    return Measurement(
        title="Dispatch latency: lhkit's dispatcher compared with plain jsonschema",
        command="python evals/benchmarks/dispatch_latency.py",
        versions={"Python": platform.python_version(), "jsonschema": version("jsonschema")},
        figures=tuple(rows),
        machine=machine,
        notes=(
            "life-helper's schemas and arguments; the handler and the confirm gate return "
            "at once. `add_habit` writes, so it is confirmed, with the summary that a user "
            "would read.",
        ),
    )


def _figures(tool: str, rounds: Sequence[Mapping[str, Timing]]) -> list[Figure]:
    what = f"dispatch of `{tool}`"
    p99_ms = quantile_us(rounds, "dispatch", 0.99) / 1000
    return [
        Figure(what=f"{what}, p99", value=p99_ms, unit="ms", at_most=GOAL_P99_MS),
        Figure(
            what=f"{what}, CPU: times a {VARIANTS['compiled']}",
            value=cpu_ratio(rounds, "dispatch", "compiled"),
            unit="×",
            at_most=GOAL_TIMES,
        ),
        Figure(
            what=f"{what}, CPU: times {VARIANTS['floor']}",
            value=cpu_ratio(rounds, "dispatch", "floor"),
            unit="×",
        ),
        Figure(
            what=f"{VARIANTS['validate']} for `{tool}`, CPU: times a dispatch",
            value=cpu_ratio(rounds, "validate", "dispatch"),
            unit="×",
            at_least=1.0,
        ),
    ]


def main() -> None:
    """Measure, and write the figures."""
    machine = figures.describe_machine()
    measured = asyncio.run(measure(ROUNDS, TIMES))
    measurement = build_measurement(measured, machine)
    figures.write("dispatch_latency", measurement)


if __name__ == "__main__":
    main()
