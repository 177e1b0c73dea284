"""Counts of operations, for tests of how work grows with its input whatever the machine's speed."""

import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import regex


def count_operations(work: Callable[[], object]) -> int:
    """Return how many calls of functions some work needs, Python's and C's.

    It is counted twice, for the smaller number: imports, caches and the collector's callbacks are
    no part of the work. The caches of patterns start empty: what other tests left would overflow
    them.
    """
    re.purge()
    regex.purge()
    return min(_count(work), _count(work))


def _count(work: Callable[[], object]) -> int:
    count = 0

    def add(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    earlier = sys.getprofile()
    sys.setprofile(add)
    try:
        work()
    finally:
        sys.setprofile(earlier)
    return count


def growth(work: Callable[[int], Callable[[], object]], size: int) -> float:
    """Return by which factor the operations grow when the size of the input doubles.

    `work(size)` prepares the input and returns what is counted.
    """
    return count_operations(work(2 * size)) / count_operations(work(size))
