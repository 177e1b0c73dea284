"""BFCL's own AST checker on the cases of `matching_cases.py`. Runs in its own venv.

Started by `call_matching.py`, which gives it the cases as a JSON file. Prints one JSON object per
case: whether BFCL accepts it, and CPU microseconds a judgement.

The checker is the package's, untouched. It imports a table of 100 models and with it the clients of
all their vendors, only to see which of them write `_` for `.` in a tool's name; no tool here has a
dot, so the table is left empty.
"""

import argparse
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

_MODELS: Any = ModuleType("bfcl_eval.constants.model_config")
_MODELS.MODEL_CONFIG_MAPPING = {}
sys.modules[_MODELS.__name__] = _MODELS

from bfcl_eval.constants.enums import Language  # noqa: E402 - after the table
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker  # noqa: E402


def judge(case: dict[str, Any]) -> bool:
    """Return whether BFCL accepts the calls."""
    return bool(ast_checker(**case, language=Language.PYTHON, model_name="none")["valid"])


def cpu_us(case: dict[str, Any], times: int) -> float:
    """Return CPU microseconds a judgement."""
    started_s = time.process_time()
    for _ in range(times):
        judge(case)
    return (time.process_time() - started_s) / times * 1e6


def main() -> None:
    """Judge and time every case of the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--times", type=int, default=1)
    options = parser.parse_args()
    for case in json.loads(options.cases.read_text(encoding="utf-8")):
        found = {
            "accepts": judge(case),
            "cpu_us": cpu_us(case, options.times),
            "version": version("bfcl-eval"),
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main()
