"""A training on disk: adapter weights, optimizer, step and log, replaced in one step.

A folder belongs to one recipe (settings, data, base); another one is refused, not mixed in.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lhkit.errors import TuningError

_STATE = "state.pt"
_RECIPE = "recipe.json"
LOG = "log.jsonl"


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
    """How far a training has come: steps done, and a log row for each."""

    step: int = 0
    log: Sequence[Mapping[str, Any]] = field(default=())


def save_checkpoint(checkpoint: Checkpoint, model: Any, optimizer: Any, progress: Progress) -> None:
    """Write everything beside the old checkpoint, then put it in its place.

    Raises:
        TuningError: the disk does not take it.
    """
    import torch
    from peft import get_peft_model_state_dict  # noqa: PLC0415 - heavy

    state = {
        "adapter": get_peft_model_state_dict(model),
        "optimizer": optimizer.state_dict(),
        "step": progress.step,
        "log": list(progress.log),
    }
    try:
        checkpoint.folder.mkdir(parents=True, exist_ok=True)
        _write(checkpoint.folder / _RECIPE, _json(checkpoint.recipe))
        fresh = checkpoint.folder / f"{_STATE}.new"
        torch.save(state, fresh)
        fresh.replace(checkpoint.folder / _STATE)
        rows = "".join(json.dumps(row) + "\n" for row in progress.log)
        _write(checkpoint.folder / LOG, rows)
    except OSError as error:
        raise TuningError(
            f"{checkpoint.folder} cannot be written ({error}): free some space, or choose another"
        ) from error


def load_checkpoint(checkpoint: Checkpoint, model: Any, optimizer: Any) -> Progress:
    """Put the saved state into `model` and `optimizer`, if there is one, and say how far it was.

    Raises:
        TuningError: the folder holds another training, or its state cannot be read.
    """
    import torch
    from peft import set_peft_model_state_dict  # noqa: PLC0415 - heavy

    state_file = checkpoint.folder / _STATE
    if not state_file.exists():
        return Progress()
    _require_same(checkpoint)
    try:
        state = torch.load(state_file, weights_only=True)
        set_peft_model_state_dict(model, state["adapter"])
        optimizer.load_state_dict(state["optimizer"])
        return Progress(step=state["step"], log=state["log"])
    except (OSError, RuntimeError, ValueError, KeyError, EOFError, TypeError) as error:
        raise TuningError(
            f"{state_file} is broken ({error}): remove {checkpoint.folder} to begin again"
        ) from error


def _require_same(checkpoint: Checkpoint) -> None:
    path = checkpoint.folder / _RECIPE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TuningError(
            f"{path} cannot be read ({error}): remove {checkpoint.folder} to begin again"
        ) from error
    asked = json.loads(_json(checkpoint.recipe))
    other = sorted(key for key in asked.keys() | found.keys() if asked.get(key) != found.get(key))
    if other:
        raise TuningError(
            f"{checkpoint.folder} holds a training with another {', '.join(other)}: "
            "give another folder, or remove it"
        )


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
