"""Choose the number type in which this processor computes a model fastest.

Weights are stored in bf16. A processor without bf16 instructions emulates them in fp32, which is
twice as slow as fp32 itself. A graphics card computes in bf16; for one without it, vLLM chooses
(`auto`).
"""

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from lhkit.base.accelerators import Accelerator
from lhkit.base.errors import UsageError
from lhkit.base.locales import Catalog

Dtype: TypeAlias = Literal["bfloat16", "float32"]
ServedDtype: TypeAlias = Dtype | Literal["auto"]
"""The values of vLLM's `--dtype`; with `auto` it chooses."""

DTYPES: tuple[Dtype, ...] = get_args(Dtype)
"""The values of `--dtype`."""

_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Linux's names: AVX-512 and AMX of x86, ARM."""

_BF16_CAPABILITY = 8.0
"""Compute capability from which CUDA cards have bf16 instructions (Ampere)."""

_CPUINFO = Path("/proc/cpuinfo")
_FLAG_LINES = ("flags", "Features")  # x86, ARM


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """Architecture of a processor and the flags common to all cores; None if unknown."""

    machine: str
    flags: frozenset[str] | None

    @property
    def bf16_flags(self) -> tuple[str, ...]:
        """The flags of bf16 instructions."""
        return tuple(sorted(_BF16_FLAGS & (self.flags or frozenset())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """A number type and the reason for it.

    `why` is `asked` (an option or setting), `native` (bf16 instructions),
    `emulated` (bf16 would be), or `unknown` (the processor's flags cannot be read, so the type that
    is fast on every processor is taken). On a graphics card it is `card`, `card_asked`, or, with
    `auto`, `card_auto` (a card without bf16, or weights of another type) and `no_card` (no card is
    found, but vLLM is built for one).
    """

    dtype: ServedDtype
    why: Literal[
        "asked", "native", "emulated", "unknown", "card", "card_asked", "card_auto", "no_card"
    ]
    processor: Processor | None = None
    card: str = ""

    def describe(self, catalog: Catalog) -> str:
        """Return the type and the reason in a sentence."""
        processor = self.processor or Processor(machine="", flags=None)
        return catalog.text(
            f"dtype.{self.why}",
            dtype=self.dtype,
            machine=processor.machine,
            flags=", ".join(processor.bf16_flags),
            card=self.card,
        )


def this_processor(cpuinfo: Path = _CPUINFO) -> Processor:
    """Read this machine's processor; its flags are available on Linux only."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # macOS, Windows
        lines = []
    return Processor(machine=platform.machine(), flags=_common_flags(lines))


def _common_flags(lines: Iterable[str]) -> frozenset[str] | None:
    entries = (line.partition(":") for line in lines)
    cores = [frozenset(flags.split()) for name, _, flags in entries if name.strip() in _FLAG_LINES]
    return frozenset.intersection(*cores) if cores else None


def choose_precision(dtype: str | None = None, processor: Processor | None = None) -> Precision:
    """Return the given number type, or the fastest one of the processor.

    Args:
        dtype: a name of `DTYPES`; None chooses by processor.
        processor: by default this machine's.

    Raises:
        UsageError: the number type is invalid.
    """
    processor = processor or this_processor()
    if dtype is not None:
        return Precision(dtype=parse_dtype(dtype), why="asked", processor=processor)
    if processor.flags is None:
        return Precision(dtype="float32", why="unknown", processor=processor)
    if processor.bf16_flags:
        return Precision(dtype="bfloat16", why="native", processor=processor)
    return Precision(dtype="float32", why="emulated", processor=processor)


def choose_card_precision(
    dtype: str | None, cards: Sequence[Accelerator], weights_dtype: str
) -> Precision:
    """Return the number type to compute in on a graphics card.

    Args:
        dtype: a name of `DTYPES`; None chooses by card and weights.
        cards: those of this machine; a server uses the first one.
        weights_dtype: number type of the weights; empty if unknown.

    Raises:
        UsageError: the number type is invalid.
    """
    card = cards[0].name if cards else ""
    if dtype is not None:
        return Precision(dtype=parse_dtype(dtype), why="card_asked" if card else "asked", card=card)
    if not cards:
        return Precision(dtype="auto", why="no_card")
    if weights_dtype == "bfloat16" and cards[0].capability >= _BF16_CAPABILITY:
        return Precision(dtype="bfloat16", why="card", card=card)
    return Precision(dtype="auto", why="card_auto", card=card)


def parse_dtype(name: str) -> Dtype:
    """Return a number type by its name.

    Raises:
        UsageError: the name is invalid.
    """
    if name in DTYPES:
        return name
    raise UsageError(f"Invalid dtype {name!r}: choose one of {', '.join(DTYPES)}.")
