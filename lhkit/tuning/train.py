"""Training: steps, checkpoints, what the machine needs."""

import ctypes
import json
import pickle
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import psutil
from tqdm.auto import tqdm

from lhkit.errors import TuningError
from lhkit.files import write_whole
from lhkit.locales import DEFAULT_LOCALE
from lhkit.models.weights import ADAPTER_WEIGHTS, file_sha256, require_adapter
from lhkit.precision import Dtype, chosen
from lhkit.tuning import adapter, curves
from lhkit.tuning.adapter import (
    MANIFEST,
    TrainingOrigin,
    data_facts,
    manifest_of,
    require_same_base,
)
from lhkit.tuning.data import (
    Batch,
    TokenSequence,
    TrainingSequence,
    data_sha256,
    fitting,
    make_batches,
    require_marks,
    tokenised,
)
from lhkit.tuning.recipe import TrainingDevice, TuneSettings
from lhkit.tuning.scores import shown_scores

# What a training needs of the machine, estimated before it starts: memory and room on the disk.
#
# Estimates, on the safe side; what is really taken is seen when it runs.


_GIB: Final = 2**30
_PROCESS_BYTES: Final = 600_000_000
"""Python, torch and transformers before any model."""

_BYTES_A_PARAMETER: Final = 16
"""An adapter parameter in fp32, its gradient and AdamW's two moments."""

_NUMBER_BYTES: Final[Mapping[str, int]] = {"bfloat16": 2, "float32": 4}

_BYTES_AN_ACTIVATION: Final[Mapping[Dtype, int]] = {"bfloat16": 10, "float32": 17}
_BYTES_A_LOGIT: Final = 12
"""The value and its gradient, in bf16 and fp32 or in fp32 alone. Measured on Gemma 3 270M, one step
in a fresh process on 2 cores: in bf16 0.9-1.0 MB a token (the formula says 1.1), in fp32 1.8 (1.9);
in both 3.0 MB a learnt token (3.1)."""

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


def this_machine(folder: Path, device: TrainingDevice = "cpu") -> Machine:
    """Look at this machine; `folder` need not be there yet. Of a graphics card its own memory."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    memory_bytes = psutil.virtual_memory().available
    with suppress(OSError, ValueError):  # no container, or one without a limit
        memory_bytes = min(memory_bytes, int(_CGROUP_LIMIT.read_text()))
    memory_bytes = adapter.free_memory_bytes(device) or memory_bytes
    return Machine(memory_bytes=memory_bytes, disk_bytes=shutil.disk_usage(there).free)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseShape:
    """The sizes of a Gemma that decide what it takes; `width`s are in numbers, not bytes.

    `weights_bytes` is what they take in memory, where they are of type `dtype`.
    """

    layers: int
    width: int
    inner_width: int
    query_width: int
    key_width: int
    vocabulary: int
    weights_bytes: int
    dtype: Dtype = "bfloat16"

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
            + _BYTES_AN_ACTIVATION[self.dtype] * tokens * numbers * self.layers
            + _BYTES_A_LOGIT * learnt * self.vocabulary
        )

    def work(self, batch: Batch) -> float:
        """Return the floating-point operations of a step on `batch`, those of its matrices.

        Forwards, and backwards through them: the base's own weights get no gradient.
        """
        tokens = len(batch.prefix) + sum(map(len, batch.rows))
        learnt = sum(label >= 0 for labels in batch.labels for label in labels)
        attention = 2 * self.width * (self.query_width + self.key_width)
        layer = attention + 3 * self.width * self.inner_width
        return 4.0 * (tokens * self.layers * layer + learnt * self.vocabulary * self.width)


def base_shape(base: Path, dtype: Dtype = "bfloat16") -> BaseShape:
    """Return the sizes of a base model that computes in `dtype`.

    Raises:
        TuningError: its `config.json` cannot be read, or is not a Gemma's.
    """
    path = base / "config.json"
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        told = told.get("text_config", told)
        stored = told.get("dtype", told.get("torch_dtype"))
        stored_bytes = sum(each.stat().st_size for each in base.glob("*.safetensors"))
        return BaseShape(
            layers=int(told["num_hidden_layers"]),
            width=int(told["hidden_size"]),
            inner_width=int(told["intermediate_size"]),
            query_width=int(told["num_attention_heads"]) * int(told["head_dim"]),
            key_width=int(told["num_key_value_heads"]) * int(told["head_dim"]),
            vocabulary=int(told["vocab_size"]),
            weights_bytes=_in_memory(stored_bytes, stored, dtype),
            dtype=dtype,
        )
    except OSError as error:
        raise TuningError(
            f"{base} holds no base model to tune: give the folder of a Gemma with --base ({error})"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TuningError(
            f"{path} is no configuration of a Gemma ({error!r}): give the folder of one with --base"
        ) from error


def _in_memory(stored_bytes: int, stored: str | None, dtype: Dtype) -> int:
    """Return what weights take that are `stored` in that type on the disk; None: in bf16."""
    return stored_bytes * _NUMBER_BYTES[dtype] // _NUMBER_BYTES.get(stored or "bfloat16", 2)


def require_memory(
    shape: BaseShape, batches: Sequence[Batch], *, batch_tokens: int, rank: int, machine: Machine
) -> int:
    """Return the bytes that the largest batch will take.

    Raises:
        TuningError: there is less; the sentence says what to lower.
    """
    needed_bytes = max(shape.peak_bytes(batch, rank) for batch in batches)
    if needed_bytes > machine.memory_bytes:
        smaller = "give --dtype bfloat16, " if shape.dtype == "float32" else ""
        raise TuningError(
            f"too little memory: a step of {batch_tokens} tokens takes about "
            f"{needed_bytes / _GIB:.1f} GiB and {machine.memory_bytes / _GIB:.1f} GiB are free: "
            f"lower --batch-tokens, {smaller}or end other programs"
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
        import resource
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


# What a training runs in, and what it tells while it goes on. Values only.


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """So many conversations are longer than the settings allow, and are not learnt from."""

    count: int
    most_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenCheckpoint:
    """The last checkpoint could not be read: the one before it, at `step`, is gone on from."""

    path: Path
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """What a training reads, told before it: tokens of all texts and of an average step.

    `steps` is how many there are at most, `batches` how many go once through all texts. `minutes`
    is a first estimate, by how quickly this machine multiplies; 10 steps tell it better.
    """

    texts: int
    tokens: int
    step_tokens: int
    batches: int
    steps: int
    minutes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is left, by the pace of the steps so far: steps, and minutes with measuring."""

    done: int
    left: int
    minutes: float


Notice: TypeAlias = LeftOut | BrokenCheckpoint | TrainingPlan | Forecast
"""What a user should know, though the training goes on."""


def ignore(_notice: Notice) -> None:
    """Tell nobody."""


def go_on() -> None:
    """Wait for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSurroundings:
    """What a training runs in. By default this machine is looked at, and nobody is told.

    `facts` of the machine go into the manifest; `locale` is that of the curves' labels.
    `keep_every_minutes` of work the adapter is kept as it is then, in `kept` of the folder.
    `pause` is called before the first step and whenever an adapter was kept, in the thread that
    trains: it goes on when that returns, and the time does not count.
    """

    machine: Machine | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    locale: str = DEFAULT_LOCALE
    notify: Callable[[Notice], None] = ignore
    keep_every_minutes: float | None = None
    pause: Callable[[], None] = go_on


# What a training learns from and begins with, and the hashes by which it is known again.


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What to train on. `dev` measures only; `base` is a folder with model and tokenizer.

    `start` is the folder of an adapter to go on from; None: a fresh one.
    """

    train: Sequence[TrainingSequence]
    dev: Sequence[TrainingSequence]
    base: Path
    start: Path | None = None


def require_start(material: Material) -> None:
    """Refuse to go on from what is no adapter of the base.

    Raises:
        TuningError: a file of the adapter is missing, or it was trained on another base.
    """
    if material.start is None:
        return
    require_adapter(material.start)
    require_same_base(material.base, material.start)


def recipe_of(material: Material, settings: TuneSettings) -> dict[str, Any]:
    """Return settings and hashes: the same for the same training, whatever the folder is called."""
    start = (
        {"start_sha256": file_sha256(material.start / ADAPTER_WEIGHTS)} if material.start else {}
    )
    return {
        "settings": asdict(settings),
        "data_sha256": data_sha256(material.train),
        "dev_sha256": data_sha256(material.dev),
        "base_sha256": adapter.base_sha256(material.base),
        **start,
    }


# A training on disk: adapter weights, optimizer, step and log, replaced in one step.
#
# A folder belongs to one recipe (settings, data, base); another one is refused, not mixed in. The
# checkpoint before the last is kept, in case the last cannot be read.


STATE = "state.pt"
STATE_BEFORE = "state.previous.pt"
LOG = "log.jsonl"
ADAPTER = "adapter"
_RECIPE = "recipe.json"

_UNREADABLE = (
    *(OSError, RuntimeError, ValueError, KeyError, EOFError, TypeError, AttributeError),
    pickle.UnpicklingError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where a training lies, and what it is."""

    folder: Path
    recipe: Mapping[str, Any]

    @property
    def adapter(self) -> Path:
        """The folder of the finished adapter."""
        return self.folder / ADAPTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a training has come: steps done, and a log row for each.

    `broken` is the checkpoint that could not be read, if an older one was taken in its place.
    """

    step: int = 0
    log: Sequence[Mapping[str, Any]] = field(default=())
    broken: Path | None = None


def save_checkpoint(checkpoint: Checkpoint, model: Any, optimizer: Any, progress: Progress) -> None:
    """Write everything beside the old checkpoint, then put it in its place.

    Raises:
        TuningError: the disk does not take it.
    """
    import torch
    from peft import get_peft_model_state_dict

    folder = checkpoint.folder
    state = {
        "adapter": get_peft_model_state_dict(model, save_embedding_layers=False),
        "optimizer": optimizer.state_dict(),
        "step": progress.step,
        "log": list(progress.log),
    }

    def write() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / _RECIPE, as_json(checkpoint.recipe).encode())
        fresh = folder / f"{STATE}.new"
        torch.save(state, fresh)
        if (folder / STATE).exists():
            (folder / STATE).replace(folder / STATE_BEFORE)
        fresh.replace(folder / STATE)
        lines = (json.dumps(row).encode() + b"\n" for row in progress.log)
        write_whole(folder / LOG, lines)

    stored(folder, write)


BEST = "best.pt"
KEPT = "kept"
"""Adapters as they were on the way, by step: each a folder to merge."""


def save_weights(checkpoint: Checkpoint, model: Any, step: int) -> None:
    """Keep the adapter as it is after that step, in place of the one kept before.

    Raises:
        TuningError: the disk does not take it.
    """
    import torch
    from peft import get_peft_model_state_dict

    folder = checkpoint.folder
    weights = get_peft_model_state_dict(model, save_embedding_layers=False)

    def write() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f"{BEST}.new"
        torch.save({"step": step, "adapter": weights}, fresh)
        fresh.replace(folder / BEST)

    stored(folder, write)


def load_weights(checkpoint: Checkpoint, model: Any, step: int) -> None:
    """Put the adapter that was kept after that step into `model`.

    Raises:
        TuningError: it cannot be read, or is that of another step.
    """
    import torch
    from peft import set_peft_model_state_dict

    path = checkpoint.folder / BEST
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
        found = state["step"]
    except _UNREADABLE as error:
        raise TuningError(
            f"{path} is broken ({_line(error)}): remove {checkpoint.folder} to begin again"
        ) from error
    if found != step:
        raise TuningError(
            f"{path} is of step {found}, not {step}: remove {checkpoint.folder} to begin again"
        )
    set_peft_model_state_dict(model, state["adapter"])


def stored(folder: Path, write: Callable[[], None]) -> None:
    """Call `write`, which writes into `folder`.

    Raises:
        TuningError: the disk does not take it.
    """
    try:
        write()
    except (OSError, RuntimeError) as error:  # torch.save tells a full disk as RuntimeError
        raise TuningError(
            f"{folder} cannot be written ({error}): free some space, or give another --into"
        ) from error


def load_checkpoint(checkpoint: Checkpoint, model: Any, optimizer: Any) -> Progress:
    """Put the saved state into `model` and `optimizer`, if there is one, and say how far it was.

    If the last checkpoint cannot be read, the one before it is taken.

    Raises:
        TuningError: the folder holds another training, or no state of it can be read.
    """
    folder = checkpoint.folder
    there = [path for path in (folder / STATE, folder / STATE_BEFORE) if path.exists()]
    if not there:
        return Progress()
    require_same(checkpoint)
    faults: dict[Path, Exception] = {}
    for path in there:
        try:
            progress = _loaded(path, model, optimizer)
        except _UNREADABLE as error:
            faults[path] = error
        else:
            return Progress(step=progress.step, log=progress.log, broken=next(iter(faults), None))
    told = " and ".join(f"{path} is broken ({_line(error)})" for path, error in faults.items())
    raise TuningError(f"{told}: remove {folder} to begin again") from faults[there[-1]]


def _line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _loaded(path: Path, model: Any, optimizer: Any) -> Progress:
    import torch
    from peft import set_peft_model_state_dict

    state = torch.load(path, weights_only=True, map_location="cpu")
    progress = Progress(step=state["step"], log=state["log"])
    set_peft_model_state_dict(model, state["adapter"])
    optimizer.load_state_dict(state["optimizer"])
    return progress


def is_finished(folder: Path) -> bool:
    """Return True where a training is over, whichever it is: nothing of it needs a device."""
    try:
        told = json.loads((folder / ADAPTER / MANIFEST).read_text(encoding="utf-8"))
        return (folder / _RECIPE).exists() and len(read_log(folder)) == int(told["steps_done"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def finished_log(checkpoint: Checkpoint) -> Sequence[Mapping[str, Any]]:
    """Return the log of a training that is over, empty if there is something left to do.

    Raises:
        TuningError: the folder holds another training.
    """
    if not (checkpoint.folder / _RECIPE).exists() or not (checkpoint.adapter / MANIFEST).exists():
        return ()
    require_same(checkpoint)
    return read_log(checkpoint.folder) if is_finished(checkpoint.folder) else ()


def read_log(folder: Path) -> list[Mapping[str, Any]]:
    """Return the rows of a training's log as its last checkpoint left them; none before the first.

    Raises:
        OSError: it cannot be read.
        ValueError: it is broken.
    """
    path = folder / LOG
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


_BEFORE: Final[Mapping[str, Any]] = {
    "dtype": "bfloat16",
    "minutes": None,
    "patience": 0,
    "device": "cpu",
}
"""Settings that older recipes do not name, as they were then."""


def require_same(checkpoint: Checkpoint) -> None:
    """Refuse a folder of another training.

    Raises:
        TuningError: names what is different (settings with both values) and what to do, or the
            file that cannot be read.
    """
    path = checkpoint.folder / _RECIPE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        asked = json.loads(as_json(checkpoint.recipe))
        for recipe in (found, asked):  # before there was a choice it was this
            for key, value in _BEFORE.items():
                recipe["settings"].setdefault(key, value)
        other = [
            _told(key, found.get(key), asked.get(key))
            for key in sorted(asked.keys() | found)
            if asked.get(key) != found.get(key)
        ]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise TuningError(
            f"{path} cannot be read ({error}): remove {checkpoint.folder} to begin again"
        ) from error
    if other:
        raise TuningError(
            f"{checkpoint.folder} holds a training with another {', '.join(other)}: give another "
            "--into, or the same as there to go on with it; or remove that folder"
        )


def _told(name: str, found: Any, asked: Any) -> str:
    """Return a part of a recipe that differs, with what differs in it."""
    if not isinstance(found, Mapping) or not isinstance(asked, Mapping):
        return name  # a hash tells a person nothing
    there, here = dict(_leaves(found)), dict(_leaves(asked))
    differing = (
        f"{key} {there.get(key, 'none')}, not {here.get(key, 'none')}"
        for key in sorted(there.keys() | here)
        if there.get(key) != here.get(key)
    )
    return f"{name} ({'; '.join(differing)})"


def _leaves(table: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting under its name, such as `adapter.rank`."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{within}{key}.")
        else:
            yield f"{within}{key}", value


def as_json(value: Mapping[str, Any]) -> str:
    """Return a file's text, the same for the same value."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


# The training loop: seeded, resumable after a kill, honest about what it did.
#
# Blocking on purpose: run it in a thread or a process of its own. The model side is `adapter`, the
# order of the data `batches`, what is on disk `checkpoint`, what it takes `needs`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One row of the training log. Losses are nats per learnt token; None where not measured.

    Each token counts alike in them, whatever it weighed in the step. `seconds` are those of the
    step, `measured_s` those of measuring after it.
    """

    step: int
    loss: float
    learning_rate: float
    learnt_tokens: int
    seconds: float
    dev_loss: float | None = None
    measured_s: float = 0.0


def spent_s(log: Sequence[Point]) -> float:
    """Return how long a training has worked, in all its parts."""
    return sum(point.seconds + point.measured_s for point in log)


def best_step(log: Sequence[Point]) -> int | None:
    """Return the step that measured best on the conversations kept apart; None if none did."""
    measured = [point for point in log if point.dev_loss is not None]
    return min(measured, key=lambda point: point.dev_loss or 0.0).step if measured else None


def is_over(settings: TuneSettings, log: Sequence[Point]) -> bool:
    """Return True if a training with that log has nothing left to do."""
    measured = [point.step for point in log if point.dev_loss is not None]
    since = measured[measured.index(best_step(log) or 0) + 1 :] if measured else []
    is_waiting = settings.patience == 0 or len(since) < settings.patience
    is_in_time = not log or spent_s(log) < settings.budget_s
    return len(log) >= settings.steps or not is_in_time or not is_waiting


def train(
    material: Material,
    settings: TuneSettings,
    folder: Path,
    *,
    clock: Callable[[], float],
    progress: bool = True,
    stop: Callable[[], bool] = lambda: False,
    surroundings: TrainingSurroundings | None = None,
) -> tuple[Point, ...]:
    """Train an adapter into `folder`, or go on where an earlier call was stopped.

    Returns the whole log. With each checkpoint come `manifest.json`, `curves.svg` and
    `curves.png`; the adapter lies in `folder/adapter` when all steps are done. A training that is
    over is not done again, nor does it need the device that it was done on.

    Args:
        material: data and base model.
        settings: how to train.
        folder: checkpoints, log and adapter; made if it is not there.
        clock: monotonic seconds.
        progress: show a bar.
        stop: asked after each step; True saves a checkpoint and returns.
        surroundings: machine, language and who is told.

    Raises:
        TuningError: data or base cannot be used, memory or disk are too small, or the folder holds
            another training.
        MissingPackageError: a package of the extra `tune` is not installed.
        SetupError: torch has no such device here.
    """
    adapter.require_packages()
    curves.require_packages()
    around = surroundings or TrainingSurroundings()
    dtype = settings.dtype or chosen(on_card=settings.device == "cuda").dtype
    settings = replace(settings, dtype=dtype)
    shape = base_shape(material.base, dtype)
    require_start(material)
    checkpoint = Checkpoint(folder=folder, recipe=recipe_of(material, settings))
    if done := finished_log(checkpoint):
        return tuple(Point(**row) for row in done)
    adapter.require_device(settings.device)
    machine = around.machine or this_machine(folder, settings.device)
    require_room(shape, rank=settings.adapter.rank, folder=folder, machine=machine)
    rows, dev, origin = _read(material, settings, shape, checkpoint, around)
    first = make_batches(rows, batch_tokens=settings.batch_tokens, rng=_order(f"{settings.seed}/0"))
    memory_bytes = require_memory(
        shape,
        first,
        batch_tokens=settings.batch_tokens,
        rank=settings.adapter.rank,
        machine=machine,
    )
    with _full_card_told(folder):
        pace = adapter.operations_a_second(dtype, settings.device)
        plan = _plan(rows, first, settings, sum(map(shape.work, first)) / len(first) / pace)
        around.notify(plan)
        model = adapter.with_adapter(
            adapter.load_model(material.base, dtype, settings.device),
            settings.adapter,
            seed=settings.seed,
            start=material.start,
        )
        if settings.device == "cpu" and plan.minutes >= _MINUTES_WORTH_COMPILING:
            shortest = min(rows, key=lambda row: len(row.token_ids))
            (one,) = make_batches([shortest], batch_tokens=settings.batch_tokens, rng=_order("one"))
            is_fused = adapter.fuse_norms(model, one)
            origin = replace(origin, machine={**origin.machine, "fused_norms": is_fused})
        work = _Work(
            model=model,
            settings=settings,
            clock=clock,
            dev=make_batches(dev, batch_tokens=settings.batch_tokens, rng=_order("dev")),
            checkpoint=checkpoint,
            origin=origin,
            around=around,
            memory_bytes=memory_bytes,
        )
        return work.run(rows, progress=progress, stop=stop)


@contextmanager
def _full_card_told(folder: Path) -> Iterator[None]:
    """Say what to do where a graphics card's memory is full: it may be shared, and fill later."""
    try:
        yield
    except RuntimeError as error:  # torch has more than one class for it
        said = _line(error).partition(". ")[0]
        if "out of memory" not in said:
            raise
        raise TuningError(
            f"the graphics card's memory is full ({said}): end what else uses the card and give "
            f"the same command again, which goes on in {folder}; or begin anew with a lower "
            "--batch-tokens and another --into"
        ) from error


def _plan(
    rows: Sequence[TokenSequence],
    first: Sequence[Batch],
    settings: TuneSettings,
    products_s: float,
) -> TrainingPlan:
    """Return what is ahead; `products_s` is what a step's matrix products alone would take."""
    minutes = settings.steps * _STEP_SHARE[settings.dtype or "bfloat16"] * products_s / 60
    held = [len(batch.prefix) + sum(map(len, batch.rows)) for batch in first]
    return TrainingPlan(
        texts=len(rows),
        tokens=sum(len(row.token_ids) for row in rows),
        step_tokens=round(sum(held) / len(held)),
        batches=len(first),
        steps=settings.steps,
        minutes=minutes if settings.minutes is None else min(minutes, settings.minutes),
    )


def _read(
    material: Material,
    settings: TuneSettings,
    shape: BaseShape,
    checkpoint: Checkpoint,
    around: TrainingSurroundings,
) -> tuple[list[TokenSequence], list[TokenSequence], TrainingOrigin]:
    """Return the rows to learn, the rows to measure with, and where they come from."""
    encode = adapter.encoder(material.base)
    require_marks((*material.train, *material.dev), encode, material.base / "tokenizer.json")
    most = settings.max_sequence_tokens
    rows, too_long = fitting((tokenised(each, encode) for each in material.train), most)
    dev, dev_too_long = fitting((tokenised(each, encode) for each in material.dev), most)
    if not rows:
        raise TuningError(
            f"all {len(too_long)} conversations are longer than {most} tokens: describe the tools "
            "in fewer words, or cut the conversations with `lhkit tune data --openings 1`"
        )
    highest = max(max(each.token_ids) for each in (*rows, *dev))
    if highest >= shape.vocabulary:
        raise TuningError(
            f"{material.base}: its tokenizer gives token {highest} and its model knows "
            f"{shape.vocabulary}: put the model's own tokenizer.json there"
        )
    if too_long or dev_too_long:
        around.notify(LeftOut(count=len(too_long) + len(dev_too_long), most_tokens=most))
    origin = TrainingOrigin(
        recipe=checkpoint.recipe,
        base_name=material.base.name,
        data=data_facts(material.train, left_out=len(too_long)),
        dev=data_facts(material.dev, left_out=len(dev_too_long)),
        machine={**around.facts, "device": adapter.device_name(settings.device)},
    )
    return rows, dev, origin


def _epochs(rows: Sequence[TokenSequence], settings: TuneSettings) -> Iterator[Batch]:
    """Yield batches for ever; each epoch has its own order, the same in every run."""
    epoch = 0
    while True:
        rng = _order(f"{settings.seed}/{epoch}")
        yield from make_batches(rows, batch_tokens=settings.batch_tokens, rng=rng)
        epoch += 1


def _order(seed: str) -> random.Random:
    return random.Random(seed)


@dataclass(slots=True, kw_only=True)
class _Work:
    model: Any
    settings: TuneSettings
    clock: Callable[[], float]
    dev: Sequence[Batch]
    checkpoint: Checkpoint
    origin: TrainingOrigin
    around: TrainingSurroundings
    memory_bytes: int
    log: list[Point] = field(default_factory=list)

    def run(
        self, rows: Sequence[TokenSequence], *, progress: bool, stop: Callable[[], bool]
    ) -> tuple[Point, ...]:
        optimizer = self._optimizer()
        begun = load_checkpoint(self.checkpoint, self.model, optimizer)
        self.log = [Point(**point) for point in begun.log]
        if begun.broken:
            self.around.notify(BrokenCheckpoint(path=begun.broken, step=begun.step))
        batches = _epochs(rows, self.settings)
        for _ in range(begun.step):
            next(batches)
        self.around.pause()
        steps = None if self.settings.minutes is not None else self.settings.steps
        with tqdm(total=steps, initial=begun.step, unit="step", disable=not progress) as bar:
            while not is_over(self.settings, self.log):
                before_s = spent_s(self.log)
                self._step(next(batches), optimizer)
                give_back_memory(self.memory_bytes)
                self._keep_if_due(before_s, optimizer)
                bar.set_postfix(loss=f"{self.log[-1].loss:.3f}", dev=_shown(self.log))
                bar.update()
                is_stopped = stop()
                is_last = is_over(self.settings, self.log)
                if is_stopped or is_last or self._is_due(self.settings.checkpoint_every_steps):
                    self._save(optimizer, is_last=is_last)
                if len(self.log) == begun.step + _PACE_STEPS and not is_last:
                    self.around.notify(self._forecast(_PACE_STEPS))
                if is_stopped and not is_last:
                    return tuple(self.log)
        self._keep_best()
        self._show()
        self._finish()
        return tuple(self.log)

    def _is_due(self, every_steps: int) -> bool:
        return len(self.log) % every_steps == 0

    def _forecast(self, count: int) -> Forecast:
        """Return what is left at the pace of the last steps, without the first: it takes longer."""
        paced = self.log[-count:][1:]
        step_s = sum(point.seconds for point in paced) / len(paced)
        left = self.settings.steps - len(self.log)
        measuring_s = [point.measured_s for point in self.log if point.dev_loss is not None]
        each_s = max(measuring_s, default=step_s * len(self.dev) / _MEASURING_SHARE)
        left_s = left * (step_s + each_s / self.settings.dev_every_steps)
        budget_s = self.settings.budget_s - spent_s(self.log)
        if budget_s < left_s:
            left, left_s = round(left * budget_s / left_s), budget_s
        return Forecast(done=len(self.log), left=left, minutes=left_s / 60)

    def _optimizer(self) -> Any:
        import torch

        return torch.optim.AdamW(
            adapter.trainable(self.model),
            lr=self.settings.learning_rate,
            weight_decay=self.settings.weight_decay,
        )

    def _step(self, batch: Batch, optimizer: Any) -> None:
        """Learn from a batch, measure if it is time, and log both."""
        import torch

        step = len(self.log)
        begun_s = self.clock()
        rate = self.settings.rate(step, spent_s(self.log))
        for group in optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        losses = adapter.token_losses(self.model, batch)
        weight = self.settings.decisive_weight
        adapter.weighted_mean(losses, batch, decisive_weight=weight).backward()
        torch.nn.utils.clip_grad_norm_(adapter.trainable(self.model), self.settings.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        point = Point(
            step=step + 1,
            loss=float(losses.detach().mean()),
            learning_rate=rate,
            learnt_tokens=len(losses),
            seconds=self.clock() - begun_s,
        )
        self.log.append(point)
        if self.dev and (self._is_due(self.settings.dev_every_steps) or self._is_last_step()):
            begun_s = self.clock()
            dev_loss = self._dev_loss()
            self.log[-1] = replace(point, dev_loss=dev_loss)
            if self.settings.patience and best_step(self.log) == step + 1:
                save_weights(self.checkpoint, self.model, step + 1)
            self.log[-1] = replace(self.log[-1], measured_s=self.clock() - begun_s)

    def _is_last_step(self) -> bool:
        return is_over(self.settings, self.log)

    def _dev_loss(self) -> float:
        import torch

        self.model.eval()
        with torch.no_grad():
            measured = [adapter.loss_of(self.model, batch) for batch in self.dev]
        return sum(float(total) for total, _ in measured) / sum(count for _, count in measured)

    def _keep_if_due(self, before_s: float, optimizer: Any) -> None:
        """Keep the adapter where this step passed another so many minutes of work, and pause."""
        if self.around.keep_every_minutes is None:
            return
        every_s = 60 * self.around.keep_every_minutes
        if spent_s(self.log) // every_s > before_s // every_s:
            self._put_adapter(self.checkpoint.folder / KEPT / f"step-{len(self.log):06}")
            self._save(optimizer, is_last=False)  # a pause may be long, and be the end
            self.around.pause()

    def _save(self, optimizer: Any, *, is_last: bool) -> None:
        progress = Progress(step=len(self.log), log=[asdict(point) for point in self.log])
        save_checkpoint(self.checkpoint, self.model, optimizer, progress)
        if not is_last:
            self._show()

    def _keep_best(self) -> None:
        """Put the weights that measured best into the model, where patience asks for them."""
        best = best_step(self.log)
        if self.settings.patience and best is not None and best < len(self.log):
            load_weights(self.checkpoint, self.model, best)

    def _show(self) -> None:
        """Write what people look at: the manifest and the curves."""
        folder = self.checkpoint.folder
        stored(folder, lambda: self._show_in(folder))

    def _show_in(self, folder: Path) -> None:
        rows = [asdict(point) for point in self.log]
        manifest = manifest_of(self.origin, rows, peak_memory_bytes=peak_memory_bytes())
        if self.settings.patience:
            manifest["kept_step"] = best_step(self.log)
        write_whole(folder / MANIFEST, as_json(manifest).encode())
        scores = shown_scores(self.checkpoint.folder)
        curves.save_curves(folder, rows, scores=scores, locale=self.around.locale)

    def _finish(self) -> None:
        """Put the adapter in its place."""
        self._put_adapter(self.checkpoint.adapter)

    def _put_adapter(self, target: Path) -> None:
        """Write the adapter with manifest and curves: a folder that stands alone."""
        partial = target.with_name(f".{target.name}.new")

        def write() -> None:
            for leftover in (partial, target):
                shutil.rmtree(leftover, ignore_errors=True)
            adapter.save_adapter(self.model, partial, base_name=self.origin.base_name)
            self._show_in(partial)
            (partial / f"{curves.CURVES}.png").unlink()
            partial.rename(target)

        stored(self.checkpoint.folder, write)


_STEP_SHARE: Final[Mapping[Dtype, float]] = {"bfloat16": 2.8, "float32": 1.7}
"""A step takes about so many times what its matrix products alone take. Measured on Gemma 3 270M
in CPU time on one core: steps of 995 tokens, three in bf16 (2.7-2.9), one in fp32 (1.7)."""

_PACE_STEPS: Final = 10
"""After so many steps it is told how long a training will take."""

_MINUTES_WORTH_COMPILING: Final = 10
"""Of a whole training: in less compiling the norms hardly saves what it takes."""

_MEASURING_SHARE: Final = 3
"""A step takes about so many times what measuring its batch takes: nothing goes backwards."""


def _shown(log: Sequence[Point]) -> str:
    measured = [point.dev_loss for point in log if point.dev_loss is not None]
    return f"{measured[-1]:.3f}" if measured else "–"
