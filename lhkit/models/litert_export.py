"""A script: write one `.litertlm` file, which phones load, from a folder that transformers loads.

Run in a process of its own, by a Python that has the converter: litert-torch, litert-lm-builder and
tensorflow, which come to gigabytes and want a torch of their own. It uses no other part of lhkit.
Without arguments it only tells what is missing.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

RECIPES = {
    "none": "none",
    "int8": "dynamic_wi8_afp32",
    "dynamic_wi8_afp32": "dynamic_wi8_afp32",
    "weight_only_wi8_afp32": "weight_only_wi8_afp32",
}
"""The converter's recipe by the name that `--to` takes: its own, and `int8` for the usual one."""
MISSING = 3
"""The exit code where packages are missing."""
_NEEDED = ("litert_torch", "litert_lm_builder", "tensorflow")
_PREFILL_LENGTHS = [128, 1024]
_CACHE_LENGTH = 4096
_PACKAGES = ("litert-torch", "litert-lm-builder", "ai-edge-quantizer", "torch", "transformers")


def export(folder: Path, file: Path, recipe: str, told: Path) -> None:
    """Write `file`, and to `told` an object: versions of packages, options of the converter."""
    from litert_torch.generative.export_hf import export as converter

    options = {
        "prefill_lengths": _PREFILL_LENGTHS,
        "cache_length": _CACHE_LENGTH,
        "quantization_recipe": RECIPES[recipe],
    }
    with tempfile.TemporaryDirectory(dir=file.parent) as place:
        converter.export(model=str(folder), output_dir=place, **options)
        made = list(Path(place).glob("*.litertlm"))
        if len(made) != 1:
            raise SystemExit(f"the converter wrote {len(made)} files instead of one")
        shutil.move(made[0], file)
    versions = {each: version(each) for each in _PACKAGES}
    told.write_text(json.dumps({"versions": versions, "options": options}), encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """Write what the arguments say: from where, the file, its recipe, where to tell of it."""
    if missing := [each for each in _NEEDED if find_spec(each) is None]:
        sys.stderr.write(", ".join(missing) + "\n")
        raise SystemExit(MISSING)
    if arguments:
        folder, file, recipe, told = arguments
        export(Path(folder), Path(file), recipe, Path(told))


if __name__ == "__main__":
    main(sys.argv[1:])
