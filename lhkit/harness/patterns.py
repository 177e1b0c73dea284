"""Regular expressions of scenario files: Python's own grammar, searched with a time limit.

A pattern that backtracks without end would hang a run, and `re` cannot be interrupted; the
`regex` package can. Not for patterns of our own code, nor for those of a tool's schema.
"""

import re
from functools import lru_cache

import regex

from lhkit.errors import ScenarioError
from lhkit.tools.schema import nfc

MAX_CHARS = 1_000
SEARCH_CPU_S = 2.0
"""Longest search, in seconds of this process's CPU time: a busy machine does not change a verdict.
An honest pattern needs less than a millisecond."""

_PROBE_CPU_S = 0.2
_PROBE_CHARS = 100
_PROBES = 40


def is_found(pattern: str, text: str) -> bool:
    """Return whether a pattern that `pattern_fault` has nothing against is found in a text.

    Both compare in NFC.

    Raises:
        ScenarioError: it takes longer than `SEARCH_CPU_S`.
    """
    return _is_found(pattern, text, SEARCH_CPU_S)


@lru_cache(maxsize=1_024)  # a scenario's expectations are read again for every sample
def pattern_fault(pattern: str) -> str | None:
    """Return why `pattern` is no regular expression that can be searched for, or None.

    It is tried on texts that make bombs go off.
    """
    if len(pattern) > MAX_CHARS:
        return f"is a regular expression of more than {MAX_CHARS} characters: write a shorter one"
    try:
        re.compile(nfc(pattern))
        for probe in _probes(pattern):
            _is_found(pattern, probe, _PROBE_CPU_S)
    except (re.error, regex.error, RecursionError, OverflowError) as error:
        return f"is no regular expression: {error}"
    except ScenarioError:
        return f"/{pattern}/ backtracks without end: write it without repeats inside of repeats"
    return None


def _is_found(pattern: str, text: str, cpu_s: float) -> bool:
    try:
        return regex.search(nfc(pattern), nfc(text), timeout=cpu_s) is not None
    except TimeoutError as error:
        raise ScenarioError(
            f"/{pattern}/ takes longer than {cpu_s:g} s in a text of {len(text)} characters: "
            "write it without repeats inside of repeats"
        ) from error


def _probes(pattern: str) -> list[str]:
    """Return texts that make the usual bombs go off: what the pattern repeats, and a wrong end."""
    letters = [*dict.fromkeys(char for char in pattern if char.isalnum() or char.isspace())]
    samples = ["", "a", "0", " ", "가", *letters][:_PROBES]
    return [sample * _PROBE_CHARS + "\x00" for sample in samples]
