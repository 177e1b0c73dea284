"""Run the scripted sample on pydantic_evals with pydantic-ai's agent, in its own venv.

Started by `harness_cost.py` and `growth.py`. Prints one JSON object per mode: CPU milliseconds per
sample with the report in memory (pydantic_evals' default) and with the report written to a file.
Nothing is traced, no network is used.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_evals import Case, Dataset, set_eval_attribute
from pydantic_evals.evaluators import Contains, Evaluator, EvaluatorContext
from pydantic_evals.reporting import EvaluationReport, EvaluationReportAdapter

EXPECTED = [("add", {"x": 1, "y": 1})]


def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Return the next model output: first the call, then the answer."""
    if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        return ModelResponse(parts=[TextPart("the sum is 2")])
    return ModelResponse(parts=[ToolCallPart("add", {"x": 1, "y": 1})])


agent = Agent(FunctionModel(answer), instructions="Add numbers.")


@agent.tool_plain
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


async def talk(question: str) -> str:
    """Run one sample, and pass its calls to the evaluator."""
    result = await agent.run(question)
    parts = [part for message in result.all_messages() for part in message.parts]
    calls = [(p.tool_name, p.args_as_dict()) for p in parts if isinstance(p, ToolCallPart)]
    set_eval_attribute("calls", calls)
    set_eval_attribute("returned", sum(isinstance(part, ToolReturnPart) for part in parts))
    return result.output


@dataclass
class RightCalls(Evaluator[str, str, None]):
    """Checks that the calls are the expected ones."""

    def evaluate(self, ctx: EvaluatorContext[str, str, None]) -> bool:
        """Compare them."""
        return bool(ctx.attributes["calls"] == EXPECTED and ctx.attributes["returned"] == 1)


def check(report: EvaluationReport[str, str, None], samples: int) -> None:
    """Exit unless both evaluators passed for every sample."""
    results = [result.value for case in report.cases for result in case.assertions.values()]
    if report.failures or results != [True] * 2 * samples:
        sys.exit(f"pydantic_evals: {sum(results)} of {2 * samples} passed, {report.failures[:1]}")


def cpu_ms(samples: int, *, is_written: bool) -> float:
    """Return CPU milliseconds per sample, user and system, of this process."""
    dataset: Dataset[str, str, None] = Dataset(
        name="sums",
        cases=[Case(inputs=f"what is {n} + 1?") for n in range(samples)],
        evaluators=[Contains(value="the sum"), RightCalls()],
    )
    with tempfile.TemporaryDirectory() as folder:
        started_s = time.process_time()
        report: Any = asyncio.run(dataset.evaluate(talk, max_concurrency=8, progress=False))
        if is_written:
            content = EvaluationReportAdapter.dump_json(report)
            (Path(folder) / "report.json").write_bytes(content)
        cpu_s = time.process_time() - started_s
    check(report, samples)
    return 1000 * cpu_s / samples


def peak_mib() -> float:
    """Return the peak resident memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in status if line.startswith("VmHWM:")).split()[1]) / 1024


def main() -> None:
    """Measure the modes and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--mode", choices=("kept", "written"), help="only this one")
    options = parser.parse_args()
    cpu_ms(10, is_written=True)  # imports, caches
    for mode in [options.mode] if options.mode else ["kept", "written"]:
        result = {
            "mode": mode,
            "cpu_ms_per_sample": cpu_ms(options.samples, is_written=mode == "written"),
            "peak_mib": peak_mib(),
            "version": version("pydantic-evals"),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
