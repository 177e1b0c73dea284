"""An adapter and its base model to a folder of plain weights that any server can load.

Nothing is left half made. Also a script, `python -m lhkit.tuning.merge BASE ADAPTER TARGET`, for
whoever wants torch's memory back afterwards.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lhkit.errors import LhkitError, TuningError
from lhkit.models.made_folder import MANIFEST
from lhkit.tuning import lora
from lhkit.tuning.manifest import MANIFEST as TRAINING

CARD = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
REFUSED = 3
"""Exit code of the script when its last line on standard error is a sentence for the user."""

_BESIDE_WEIGHTS = ("*.json", "*.jinja", "*.md", "*.html")


def merge(base: Path, adapter: Path, target: Path) -> None:
    """Write `base` with `adapter` merged into it to `target`, in one step at the end.

    The sum is made in fp32 and rounded once to bf16.

    Raises:
        TuningError: the adapter was made for another base or is broken, or `target` exists.
        MissingPackageError: torch, transformers or peft is not installed.
    """
    lora.require_packages()
    require_mergeable(adapter, target)
    require_same_base(base, adapter)
    merged = _merged(base, adapter)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    made = partial / target.name
    try:
        made.mkdir()
        for pattern in _BESIDE_WEIGHTS:
            for path in base.glob(pattern):
                shutil.copyfile(path, made / path.name)
        (made / MANIFEST).unlink(missing_ok=True)  # it tells of the base's files
        merged.save_pretrained(made)
        shutil.copyfile(base / "generation_config.json", made / "generation_config.json")
        made.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def require_mergeable(adapter: Path, target: Path) -> None:
    """Refuse what no base model could mend: before one is fetched.

    Raises:
        TuningError: there is no adapter, or `target` exists.
    """
    require_adapter(adapter)
    if target.exists():
        raise TuningError(f"{target} is there already: give another --into, or remove it")


def require_base(base: Path) -> None:
    """Refuse a folder that holds no model.

    Raises:
        TuningError: its `config.json` is missing.
    """
    if not (base / "config.json").is_file():
        raise TuningError(f"{base} holds no model: give a folder with its config.json as --base")


def require_adapter(adapter: Path) -> None:
    """Refuse a folder that holds no adapter.

    Raises:
        TuningError: a file of it is missing.
    """
    if all((adapter / name).is_file() for name in (CARD, WEIGHTS)):
        return
    inner = adapter / "adapter"
    hint = f"; did you mean {inner}?" if (inner / CARD).is_file() else ""
    raise TuningError(f"{adapter} holds no adapter: it needs {CARD} and {WEIGHTS}{hint}")


def require_same_base(base: Path, adapter: Path) -> None:
    """Refuse an adapter whose training says that it had another base.

    An adapter without `manifest.json` is not lhkit's and passes: only its shapes can tell. A base
    that lhkit made itself is known by its folder's name, which has the hash of its recipe: made
    with another version of transformers, its files may differ in a byte.

    Raises:
        TuningError: it had another base, or its manifest is broken.
    """
    path = adapter / TRAINING
    if not path.is_file() or not (base / "config.json").is_file():
        return
    try:
        told = json.loads(path.read_text(encoding="utf-8"))["base"]
        name, sha256 = str(told["name"]), str(told["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TuningError(f"{path} is broken ({error!r}): get it again") from error
    if base.name == name and (base / MANIFEST).is_file():
        return
    found = lora.base_sha256(base)
    if found != sha256:
        raise TuningError(
            f"{adapter} was trained on another base than {base}: give its own with --base, "
            f"{name} (sha256 {sha256[:12]}, not {found[:12]})"
        )


def _merged(base: Path, adapter: Path) -> Any:
    import torch
    from peft import PeftModel  # noqa: PLC0415 - heavy
    from safetensors import SafetensorError  # noqa: PLC0415 - with peft

    model = lora.load_model(base)
    told = _card(adapter)
    try:
        tuned = PeftModel.from_pretrained(model.float(), adapter)
    except SafetensorError as error:
        raise TuningError(f"{adapter / WEIGHTS} is broken ({error}): get it again") from error
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        named = told.get("base_model_name_or_path") or "another model"
        raise TuningError(
            f"{adapter} does not fit {base}: it was made for {named}, so give that with --base "
            f"({type(error).__name__})"
        ) from error
    return tuned.merge_and_unload().to(torch.bfloat16)


def _card(adapter: Path) -> dict[str, Any]:
    path = adapter / CARD
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TuningError(f"{path} is broken ({error}): get it again") from error
    if not isinstance(told, dict):
        raise TuningError(f"{path} is broken (no table): get it again")
    return told


def main(arguments: Sequence[str]) -> int:
    """Merge as the command line says; return the exit code."""
    base, adapter, target = map(Path, arguments)
    try:
        merge(base, adapter, target)
    except LhkitError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
