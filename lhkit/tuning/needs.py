"""What a training needs of the machine, estimated before it starts: memory and room on the disk.

Estimates, on the safe side; what is really taken is seen when it runs.
"""

import ctypes
import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from lhkit.errors import TuningError
from lhkit.tuning.batches import Batch

_GIB: Final = 2**30
_PROCESS_BYTES: Final = 600_000_000
"""Python, torch and transformers before any model."""

_BYTES_A_PARAMETER: Final = 16
"""An adapter parameter in fp32, its gradient and AdamW's two moments."""

_BYTES_AN_ACTIVATION: Final = 10
_BYTES_A_LOGIT: Final = 12
"""bf16 and fp32 of the value and of its gradient. Measured on Gemma 3 270M, one step in a fresh
process on 2 cores: 0.9-1.0 MB a token (the formula says 1.1) and 3.0 MB a learnt token (3.1)."""

_HELD_SHARE: Final = 0.75
"""Of a step's memory, what may be held between steps: giving back costs a second or two."""

_SAVED_COPIES: Final = 3
"""The checkpoint, the one before it, and the one that is being written."""

_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What there is: memory that can be taken, and room on the disk of the training's folder."""

    memory_bytes: int
    disk_bytes: int


def this_machine(folder: Path) -> Machine:
    """Look at this machine; `folder` need not be there yet."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    memory_bytes = psutil.virtual_memory().available
    with suppress(OSError, ValueError):  # no container, or one without a limit
        memory_bytes = min(memory_bytes, int(_CGROUP_LIMIT.read_text()))
    return Machine(memory_bytes=memory_bytes, disk_bytes=shutil.disk_usage(there).free)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseShape:
    """The sizes of a Gemma that decide what it takes; `width`s are in numbers, not bytes."""

    layers: int
    width: int
    inner_width: int
    query_width: int
    key_width: int
    vocabulary: int
    weights_bytes: int

    def adapter_parameters(self, rank: int) -> int:
        """Return how many numbers an adapter on every linear layer learns."""
        attention = 2 * (self.width + self.query_width) + 2 * (self.width + self.key_width)
        gates = 3 * (self.width + self.inner_width)
        return self.layers * rank * (attention + gates)

    def peak_bytes(self, batch: Batch, rank: int) -> int:
        """Return the memory of a step on `batch`, all that the process takes."""
        tokens = len(batch.prefix) + sum(map(len, batch.rows))
        learnt = sum(label >= 0 for labels in batch.labels for label in labels)
        numbers = self.width + 2 * self.inner_width + self.query_width + 2 * self.key_width
        return (
            _PROCESS_BYTES
            + self.weights_bytes
            + _BYTES_A_PARAMETER * self.adapter_parameters(rank)
            + _BYTES_AN_ACTIVATION * tokens * numbers * self.layers
            + _BYTES_A_LOGIT * learnt * self.vocabulary
        )


def base_shape(base: Path) -> BaseShape:
    """Return the sizes of a base model.

    Raises:
        TuningError: its `config.json` cannot be read, or is not a Gemma's.
    """
    path = base / "config.json"
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        told = told.get("text_config", told)
        return BaseShape(
            layers=int(told["num_hidden_layers"]),
            width=int(told["hidden_size"]),
            inner_width=int(told["intermediate_size"]),
            query_width=int(told["num_attention_heads"]) * int(told["head_dim"]),
            key_width=int(told["num_key_value_heads"]) * int(told["head_dim"]),
            vocabulary=int(told["vocab_size"]),
            weights_bytes=sum(each.stat().st_size for each in base.glob("*.safetensors")),
        )
    except OSError as error:
        raise TuningError(
            f"{base} holds no base model to tune: give the folder of a Gemma with --base ({error})"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TuningError(
            f"{path} is no configuration of a Gemma ({error!r}): give the folder of one with --base"
        ) from error


def require_memory(
    shape: BaseShape, batches: Sequence[Batch], *, batch_tokens: int, rank: int, machine: Machine
) -> int:
    """Return the bytes that the largest batch will take.

    Raises:
        TuningError: there is less; the sentence says what to lower.
    """
    needed_bytes = max(shape.peak_bytes(batch, rank) for batch in batches)
    if needed_bytes > machine.memory_bytes:
        raise TuningError(
            f"too little memory: a step of {batch_tokens} tokens takes about "
            f"{needed_bytes / _GIB:.1f} GiB and {machine.memory_bytes / _GIB:.1f} GiB are free: "
            "lower --batch-tokens, or end other programs"
        )
    return needed_bytes


def require_room(shape: BaseShape, *, rank: int, folder: Path, machine: Machine) -> None:
    """Refuse a disk that would be full before the end.

    Raises:
        TuningError: too little room for checkpoints and adapter.
    """
    adapter_bytes = 4 * shape.adapter_parameters(rank)
    needed_bytes = (3 * _SAVED_COPIES + 2) * adapter_bytes
    if needed_bytes > machine.disk_bytes:
        raise TuningError(
            f"too little room on the disk: checkpoints and adapter take {needed_bytes / 1e6:.0f} "
            f"MB in {folder}, which has {machine.disk_bytes / 1e6:.0f} MB: free some, or choose "
            "another folder"
        )


def peak_memory_bytes() -> int | None:
    """Return the most memory that this process held so far; None where the system does not tell."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def give_back_memory(step_bytes: int) -> None:
    """Give free memory back to the system where much of it is held between two steps.

    Batches differ in shape, so that glibc's heap fills with holes: without this a training came to
    hold 17 GiB whose steps take 8. Elsewhere than on glibc nothing is done.

    Args:
        step_bytes: what the largest step takes.
    """
    if psutil.Process().memory_info().rss > _HELD_SHARE * step_bytes:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
