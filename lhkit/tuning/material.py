"""What a training learns from and begins with, and the hashes by which it is known again."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lhkit.models.weights_source import file_sha256
from lhkit.tuning import lora
from lhkit.tuning.merge import WEIGHTS, require_adapter, require_same_base
from lhkit.tuning.recipe import TuneSettings
from lhkit.tuning.sequence import TrainingSequence, data_sha256


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
    start = {"start_sha256": file_sha256(material.start / WEIGHTS)} if material.start else {}
    return {
        "settings": asdict(settings),
        "data_sha256": data_sha256(material.train),
        "dev_sha256": data_sha256(material.dev),
        "base_sha256": lora.base_sha256(material.base),
        **start,
    }
