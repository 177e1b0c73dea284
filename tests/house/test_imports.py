"""Imports point one way, and the door is light."""

import subprocess
import sys

import pytest

LIGHT = """
import sys, time
started = time.perf_counter()
import lhkit
took = time.perf_counter() - started
heavy = {"torch", "vllm", "pandas", "transformers", "aiohttp", "scipy"} & set(sys.modules)
print(took, sorted(heavy))
"""


def test_the_import_contracts_hold() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.promise("start.light_import")
def test_importing_lhkit_is_quick_and_loads_nothing_heavy() -> None:
    runs = [
        subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    seconds, heavy = min(run.stdout.strip().split(" ", 1) for run in runs)
    assert heavy == "[]"
    assert float(seconds) < 0.3
