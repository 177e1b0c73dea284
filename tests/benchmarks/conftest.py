"""The benchmarks are scripts that import each other from their own folder.

What imports `scipy.stats` (margins, approvals, stopping) is imported in the tests that use it: that
takes a second.
"""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "evals" / "benchmarks"
sys.path[:0] = [str(BENCHMARKS)]
