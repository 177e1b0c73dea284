"""The benchmarks are scripts that import each other from their own folder."""

import sys
from pathlib import Path

from tests.models.conftest import tiny_gemma

__all__ = ["tiny_gemma"]

sys.path.insert(0, str(Path(__file__).parents[2] / "evals" / "benchmarks"))
