"""A training on disk: adapter weights, optimizer, step and log, replaced in one step.

A folder belongs to one recipe (settings, data, base); another one is refused, not mixed in. The
checkpoint before the last is kept, in case the last cannot be read.
"""

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lhkit.errors import TuningError
from lhkit.tuning.manifest import MANIFEST

STATE = "state.pt"
STATE_BEFORE = "state.previous.pt"
LOG = "log.jsonl"
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
        return self.folder / "adapter"


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
    from peft import get_peft_model_state_dict  # noqa: PLC0415 - heavy

    folder = checkpoint.folder
    state = {
        "adapter": get_peft_model_state_dict(model, save_embedding_layers=False),
        "optimizer": optimizer.state_dict(),
        "step": progress.step,
        "log": list(progress.log),
    }

    def write() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / _RECIPE, as_json(checkpoint.recipe))
        fresh = folder / f"{STATE}.new"
        torch.save(state, fresh)
        if (folder / STATE).exists():
            (folder / STATE).replace(folder / STATE_BEFORE)
        fresh.replace(folder / STATE)
        write_text(folder / LOG, "".join(json.dumps(row) + "\n" for row in progress.log))

    stored(folder, write)


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
    from peft import set_peft_model_state_dict  # noqa: PLC0415 - heavy

    state = torch.load(path, weights_only=True)
    progress = Progress(step=state["step"], log=state["log"])
    set_peft_model_state_dict(model, state["adapter"])
    optimizer.load_state_dict(state["optimizer"])
    return progress


def finished_log(checkpoint: Checkpoint, steps: int) -> Sequence[Mapping[str, Any]]:
    """Return the log of a training that is over, empty if there is something left to do.

    Raises:
        TuningError: the folder holds another training.
    """
    if not (checkpoint.folder / _RECIPE).exists() or not (checkpoint.adapter / MANIFEST).exists():
        return ()
    require_same(checkpoint)
    try:
        lines = (checkpoint.folder / LOG).read_text(encoding="utf-8").splitlines()
        log = [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return ()
    return log if len(log) == steps else ()


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
        other = [
            _told(key, found.get(key), asked.get(key))
            for key in sorted(asked.keys() | found)
            if asked.get(key) != found.get(key)
        ]
    except (OSError, ValueError, TypeError, AttributeError) as error:
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


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step.

    Raises:
        OSError: the disk does not take it.
    """
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
