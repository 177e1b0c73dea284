"""The benchmarks are scripts that import each other from their own folder."""

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[2] / "evals" / "benchmarks"
sys.path[:0] = [str(BENCHMARKS)]


def lazy(name: str) -> ModuleType:
    """Return a benchmark that is imported when a test uses it: it imports scipy.stats."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = LazyLoader(spec.loader)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
