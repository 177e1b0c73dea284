"""The graphics cards of this machine, as `nvidia-smi` reports them; no library is imported."""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

_FIELDS = "name,driver_version,compute_cap"
_TIMEOUT_S = 10.0
"""A driver that loads for the first command takes seconds."""
_NO_CARDS = frozenset({"", "-1", "NoDevFiles", "none"})
"""Values of `CUDA_VISIBLE_DEVICES` that hide every card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One graphics card.

    Attributes:
        name: such as `NVIDIA H200`.
        driver: version of its driver.
        capability: CUDA compute capability, such as 9.0; 0 if unknown.
    """

    name: str
    driver: str = ""
    capability: float = 0.0


def accelerators() -> tuple[Accelerator, ...]:
    """Return the cards that this process may use; empty without `nvidia-smi`."""
    return _query(os.environ.get("CUDA_VISIBLE_DEVICES"))  # noqa: TID251 - a variable of CUDA


@cache
def _query(visible: str | None) -> tuple[Accelerator, ...]:
    program = shutil.which("nvidia-smi")
    if program is None or (visible is not None and visible.strip() in _NO_CARDS):
        return ()
    chosen = () if visible is None else (f"--id={visible}",)
    command = (program, f"--query-gpu={_FIELDS}", "--format=csv,noheader", *chosen)
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ()
    return tuple(parse_cards(result.stdout))


def parse_cards(text: str) -> Iterator[Accelerator]:
    """Yield the cards in the output of `nvidia-smi`, one a line."""
    for line in text.splitlines():
        name, _, rest = line.partition(",")
        driver, _, capability = rest.partition(",")
        if not driver.strip():
            continue  # a message, such as that no device was found
        try:
            number = float(capability)
        except ValueError:
            number = 0.0
        yield Accelerator(name=name.strip(), driver=driver.strip(), capability=number)


def card_names(cards: Iterable[Accelerator]) -> str:
    """Return the names of cards, equal ones counted: `NVIDIA H200`, `8 × NVIDIA L4`."""
    counts: Mapping[str, int] = Counter(card.name for card in cards)
    return ", ".join(name if n == 1 else f"{n} × {name}" for name, n in counts.items())
