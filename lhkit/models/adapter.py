"""An adapter and its base model become a folder of plain weights that any server can load.

Nothing is left half made. Also a script, `python -m lhkit.models.adapter BASE ADAPTER TARGET`, for
whoever wants torch's memory back afterwards.
"""

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from lhkit.errors import AdapterError, LhkitError, WeightsError
from lhkit.models.made_folder import FOLDER_MANIFEST

ADAPTER_CARD: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
MANIFEST: Final = "manifest.json"
"""What an adapter was trained on, and with which base."""

MERGE_REFUSED: Final = 3
"""Exit code of a merge whose last line on standard error is a sentence for the user."""

_BESIDE_WEIGHTS = ("*.json", "*.jinja", "*.md", "*.html")


def require_adapter(adapter: Path) -> None:
    """Refuse a folder that holds no adapter.

    Raises:
        AdapterError: a file of it is missing.
    """
    if all((adapter / name).is_file() for name in (ADAPTER_CARD, ADAPTER_WEIGHTS)):
        return
    inner = adapter / "adapter"
    hint = f"; did you mean {inner}?" if (inner / ADAPTER_CARD).is_file() else ""
    raise AdapterError(
        f"{adapter} holds no adapter: it needs {ADAPTER_CARD} and {ADAPTER_WEIGHTS}{hint}"
    )


def merge(base: Path, adapter: Path, target: Path) -> None:
    """Write `base` with `adapter` merged into it to `target`, in one step at the end.

    The sum is made in fp32 and rounded once to bf16.

    Raises:
        AdapterError: the adapter was made for another base or is broken.
    """
    require_adapter(adapter)
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
        (made / FOLDER_MANIFEST).unlink(missing_ok=True)  # it tells of the base's files
        merged.save_pretrained(made)
        shutil.copyfile(base / "generation_config.json", made / "generation_config.json")
        made.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def require_same_base(base: Path, adapter: Path) -> None:
    """Refuse an adapter whose training says that it had another base.

    An adapter without `manifest.json` is not lhkit's and passes: only its shapes can tell. A base
    that lhkit made itself is known by its folder's name, which has the hash of its recipe: made
    with another version of transformers, its files may differ in a byte.

    Raises:
        AdapterError: it had another base, or its manifest is broken.
    """
    path = adapter / MANIFEST
    if not path.is_file() or not (base / "config.json").is_file():
        return
    try:
        told = json.loads(path.read_text(encoding="utf-8"))["base"]
        name, sha256 = str(told["name"]), str(told["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AdapterError(f"{path} is broken ({error!r}): get it again") from error
    if base.name == name and (base / FOLDER_MANIFEST).is_file():
        return
    found = base_sha256(base)
    if found != sha256:
        raise AdapterError(
            f"{adapter} was trained on another base than {base}: it is for "
            f"{name} (sha256 {sha256[:12]}, not {found[:12]})"
        )


def base_sha256(folder: Path) -> str:
    """Return the hash of a base model: its configuration and all its weights (a second or two)."""
    digest = hashlib.sha256()
    for path in (folder / "config.json", *sorted(folder.glob("*.safetensors"))):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _merged(base: Path, adapter: Path) -> Any:
    import torch
    from peft import PeftModel
    from safetensors import SafetensorError

    model = _loaded(base)
    told = _card(adapter)
    try:
        tuned = PeftModel.from_pretrained(model, adapter)
    except SafetensorError as error:
        raise AdapterError(
            f"{adapter / ADAPTER_WEIGHTS} is broken ({error}): get it again"
        ) from error
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        named = told.get("base_model_name_or_path") or "another model"
        raise AdapterError(
            f"{adapter} does not fit {base}: it was made for {named} ({type(error).__name__})"
        ) from error
    return tuned.merge_and_unload().to(torch.bfloat16)


def _loaded(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    except (OSError, ValueError, KeyError) as error:
        raise AdapterError(
            f"{folder} holds no base model: give the folder of a Gemma ({error})"
        ) from error


def _card(adapter: Path) -> dict[str, Any]:
    path = adapter / ADAPTER_CARD
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise AdapterError(f"{path} is broken ({error}): get it again") from error
    if not isinstance(told, dict):
        raise AdapterError(f"{path} is broken (no table): get it again")
    return told


def encoder(folder: Path) -> Callable[[str], Sequence[int]]:
    """Return the tokenizer of a folder as a function; no token is added to the text.

    Raises:
        WeightsError: its `tokenizer.json` is broken.
    """
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more special
        raise WeightsError(f"{path} cannot be read ({error}): put the model's own there") from error

    def encode(text: str) -> Sequence[int]:
        ids: Sequence[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return encode


def main(arguments: Sequence[str]) -> int:
    """Merge as the command line says; return the exit code."""
    base, adapter, target = map(Path, arguments)
    try:
        merge(base, adapter, target)
    except LhkitError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return MERGE_REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
