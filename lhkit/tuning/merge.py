"""An adapter and its base model to a folder of plain weights that any server can load.

Nothing is left half made.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from lhkit.errors import TuningError
from lhkit.tuning import lora

CARD = "adapter_config.json"
_BESIDE_WEIGHTS = ("*.json", "*.jinja", "*.md", "*.html")


def merge(base: Path, adapter: Path, target: Path) -> None:
    """Write `base` with `adapter` merged into it to `target`, in one step at the end.

    The sum is made in fp32 and rounded once to bf16.

    Raises:
        TuningError: the adapter was made for another base or cannot be read, or `target` exists.
        MissingPackageError: torch, transformers or peft is not installed.
    """
    lora.require_packages()
    _require_adapter(adapter)
    if target.exists():
        raise TuningError(f"{target} is there already: give another folder, or remove it")
    merged = _merged(base, adapter)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for pattern in _BESIDE_WEIGHTS:
            for path in base.glob(pattern):
                shutil.copyfile(path, partial / path.name)
        merged.save_pretrained(partial)
        shutil.copyfile(base / "generation_config.json", partial / "generation_config.json")
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _require_adapter(adapter: Path) -> None:
    weights = adapter / "adapter_model.safetensors"
    if not weights.is_file() or not (adapter / CARD).is_file():
        raise TuningError(f"{adapter} holds no adapter: it needs {CARD} and {weights.name}")


def _merged(base: Path, adapter: Path) -> Any:
    import torch
    from peft import PeftModel  # noqa: PLC0415 - heavy

    model = lora.load_model(base)
    told = json.loads((adapter / CARD).read_text(encoding="utf-8"))
    try:
        tuned = PeftModel.from_pretrained(model.float(), adapter)
    except (RuntimeError, ValueError, KeyError) as error:
        named = told.get("base_model_name_or_path") or "another model"
        raise TuningError(
            f"{adapter} does not fit {base}: it was made for {named} ({type(error).__name__})"
        ) from error
    return tuned.merge_and_unload().to(torch.bfloat16)
