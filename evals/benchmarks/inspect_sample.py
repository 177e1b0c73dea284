"""Run the scripted sample on inspect-ai (one user turn, one tool call), in its own venv.

Started by `harness_cost.py` and `growth.py`. Prints one JSON object per mode: CPU milliseconds per
sample, with its default settings and with its quickest ones. Every model output has a usage,
so that no tokens are counted and no network is needed.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

# inspect's terminal display would cost CPU.
os.environ.setdefault("INSPECT_DISPLAY", "none")

from inspect_ai import Task, eval  # noqa: A004 - inspect's name
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessage, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool

USAGE = ModelUsage(input_tokens=100, output_tokens=20, total_tokens=120)


@tool
def add() -> Tool:
    """Return the tool."""

    async def execute(x: int, y: int) -> str:
        """Add two numbers.

        Args:
            x: the first number
            y: the second number

        """
        return str(x + y)

    return execute


def answer(messages: list[ChatMessage], *_: Any) -> ModelOutput:
    """Return the next model output: first the call, then the answer."""
    if messages[-1].role == "tool":
        output = ModelOutput.from_content("mockllm", "the sum is 2")
    else:
        output = ModelOutput.for_tool_call("mockllm", "add", {"x": 1, "y": 1})
    output.usage = USAGE
    return output


def cpu_ms(samples: int, options: dict[str, Any]) -> float:
    """Return CPU milliseconds per sample, user and system, of this process."""
    model = get_model("mockllm/model", custom_outputs=answer, memoize=False)
    task = Task(
        dataset=[Sample(input="what is 1 + 1?", target="2") for _ in range(samples)],
        solver=[use_tools(add()), generate()],
        scorer=includes(),
    )
    with tempfile.TemporaryDirectory() as folder:
        started_s = time.process_time()
        (log,) = eval(task, model=model, log_dir=folder, display="none", **options)
        cpu_s = time.process_time() - started_s
        scored = log.samples or []
        if log.status != "success" or len(scored) != samples:
            sys.exit(f"inspect: {log.status}, {len(scored)} of {samples} samples: {log.error}")
        if any(score.value != "C" for sample in scored for score in (sample.scores or {}).values()):
            sys.exit("inspect: a sample was not scored correct")
        if any(len(sample.messages) != 4 for sample in scored):  # user, call, result, answer
            sys.exit("inspect: a sample did not take two model calls and one tool call")
    return 1000 * cpu_s / samples


def peak_mib() -> float:
    """Return the peak resident memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in status if line.startswith("VmHWM:")).split()[1]) / 1024


def main() -> None:
    """Measure both modes and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    modes: dict[str, dict[str, Any]] = {"default": {}, "quickest": {"log_realtime": False}}
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--mode", choices=tuple(modes), help="only this one")
    parser.add_argument("--single", action="store_true", help="run one sample, print nothing")
    options = parser.parse_args()
    if options.single:
        cpu_ms(1, {})
        return
    cpu_ms(10, {})  # imports, caches
    for name in [options.mode] if options.mode else modes:
        result = {
            "mode": name,
            "cpu_ms_per_sample": cpu_ms(options.samples, modes[name]),
            "peak_mib": peak_mib(),
            "version": version("inspect-ai"),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
