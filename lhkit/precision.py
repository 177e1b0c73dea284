"""In which type of number this processor computes a model quickly: the one place that chooses.

Weights lie on the disk in bf16. A processor without bf16 in its instructions still takes them, and
works each product out by way of fp32: twice as slow as fp32 itself. What a graphics card is quick
in, vLLM knows better (`auto`).
"""

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from lhkit.errors import UsageError
from lhkit.locales import Catalog

Dtype: TypeAlias = Literal["bfloat16", "float32"]
ServedDtype: TypeAlias = Dtype | Literal["auto"]
"""What vLLM takes: with `auto` it decides."""

DTYPES: tuple[Dtype, ...] = get_args(Dtype)
"""What `--dtype` takes."""

_NATIVE = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""As Linux calls them: x86 by AVX-512 or AMX, ARM."""

_CPUINFO = Path("/proc/cpuinfo")
_FLAG_LINES = ("flags", "Features")  # x86, ARM


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """What decides: the kind of machine, and the flags that all its cores have; None: untold."""

    machine: str
    flags: frozenset[str] | None

    @property
    def bf16_flags(self) -> tuple[str, ...]:
        """The flags that say that it computes bf16 itself."""
        return tuple(sorted(_NATIVE & (self.flags or frozenset())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """A type of number, and why it is this one.

    `why`: `asked` (by option or setting), `card` (a graphics card computes), `native`, `emulated`
    (bf16 would be), or `unknown` (the processor's flags cannot be read here, so the type that is
    quick on every processor is taken).
    """

    dtype: Dtype
    why: Literal["asked", "card", "native", "emulated", "unknown"]
    processor: Processor

    def words(self, catalog: Catalog) -> str:
        """Return a sentence for people."""
        return catalog.text(
            f"dtype.{self.why}",
            dtype=self.dtype,
            machine=self.processor.machine,
            flags=", ".join(self.processor.bf16_flags),
        )


def this_processor(cpuinfo: Path = _CPUINFO) -> Processor:
    """Look at this machine's processor; only Linux says what all its cores can do."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # macOS, Windows
        lines = []
    return Processor(machine=platform.machine(), flags=_common_flags(lines))


def _common_flags(lines: Iterable[str]) -> frozenset[str] | None:
    told = (line.partition(":") for line in lines)
    cores = [frozenset(words.split()) for name, _, words in told if name.strip() in _FLAG_LINES]
    return frozenset.intersection(*cores) if cores else None


def chosen(
    asked: str | None = None, processor: Processor | None = None, *, on_card: bool = False
) -> Precision:
    """Return the type that was asked for, else the one that the processor is quick in.

    Args:
        asked: a name of `DTYPES`; None leaves the choice to the processor.
        processor: None: this machine's.
        on_card: a graphics card computes, which is quick in bf16.

    Raises:
        UsageError: there is no such type.
    """
    found = processor or this_processor()
    if asked is not None:
        return Precision(dtype=dtype_of(asked), why="asked", processor=found)
    if on_card:
        return Precision(dtype="bfloat16", why="card", processor=found)
    if found.flags is None:
        return Precision(dtype="float32", why="unknown", processor=found)
    if found.bf16_flags:
        return Precision(dtype="bfloat16", why="native", processor=found)
    return Precision(dtype="float32", why="emulated", processor=found)


def dtype_of(word: str) -> Dtype:
    """Return the type of that name.

    Raises:
        UsageError: there is no such type.
    """
    if word in DTYPES:
        return word
    raise UsageError(f"no dtype {word!r}: choose one of {', '.join(DTYPES)}")
