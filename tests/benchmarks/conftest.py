"""The benchmarks are scripts that import each other from their own folder."""

import sys
from pathlib import Path

EVALS = Path(__file__).parents[2] / "evals"
sys.path[:0] = [str(EVALS / "benchmarks"), str(EVALS / "baselines")]
