"""A script: convert a GGUF file or merge an adapter into a folder of weights.

Each command runs in a process of its own, which frees torch's memory at its end:

    python -m lhkit.models.weights.conversion model GGUF FOLDER
    python -m lhkit.models.weights.conversion tokenizer GGUF FOLDER
    python -m lhkit.models.weights.conversion merge BASE ADAPTER FOLDER

Reading the 262,144 tokens in a GGUF file takes `gguf` seconds, and `transformers` does it for the
config, the tokenizer and the model. Therefore model and tokenizer are converted at once, by two
processes, and the config is given.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import lhkit.tools.json_schema  # noqa: F401 - before `gguf` imports jsonschema, in seconds
from lhkit.base.errors import AdapterError, LhkitError, WeightsError
from lhkit.models.weights.adapter import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    require_adapter,
    require_same_base,
)
from lhkit.models.weights.tokenizer import load_encoder
from lhkit.models.weights.weights_folder import FOLDER_MANIFEST

INVALID_INPUT: Final = 3
"""Exit code if the last line on standard error is a message for the user."""

_COPIED_FILES = ("*.json", "*.jinja", "*.md", "*.html")

TOKENIZED: Final = (
    "<start_of_turn>user\n습관, search_catalog  {<end_of_turn>",
    (105, 2364, 107, 237979, 238334, 236764, 3927, 236779, 44095, 138, 236782, 106),
)
"""A text and its tokens in Gemma 3."""

_CONFIG: Final = {
    "_model_name_or_path": "Gemma 3 270m",
    "head_dim": 256,
    "hidden_size": 640,
    "intermediate_size": 2048,
    "max_position_embeddings": 32768,
    "num_attention_heads": 4,
    "num_hidden_layers": 18,
    "num_key_value_heads": 1,
    "rms_norm_eps": 9.999999974752427e-07,
    "sliding_window": 512,
    "unk_token_id": 3,
    "vocab_size": 262144,
}
"""What the header of Gemma's GGUF file says where it differs from the defaults of Gemma 3."""


def _read_files_as_arrays() -> None:
    """Have `gguf` slice an array, a million times, which takes a third of slicing a `memmap`."""
    import numpy as np

    memmap = np.memmap
    np.memmap = lambda *given, **named: np.asarray(memmap(*given, **named))  # type: ignore[misc,assignment]


def convert_model(gguf: Path, folder: Path) -> None:
    """Write the model of Gemma's GGUF file, and its config, to a folder, in bfloat16."""
    from transformers import AutoModelForCausalLM, Gemma3TextConfig, GgufConfig

    _read_files_as_arrays()
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        config=Gemma3TextConfig(**_CONFIG),
        dtype="bfloat16",
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)


def convert_tokenizer(gguf: Path, folder: Path) -> None:
    """Write the tokenizer of Gemma's GGUF file to a folder.

    Raises:
        WeightsError: the installed transformers converts it wrongly.
    """
    import transformers

    _read_files_as_arrays()
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.save_pretrained(folder)
    require_tokenizer(folder, f"transformers {transformers.__version__}")


def require_tokenizer(folder: Path, converter: str) -> None:
    """Raise `WeightsError` if the tokenizer in `folder` cuts text otherwise than Gemma does.

    transformers before 5.18 forms other merges from a GGUF file. A model with such a tokenizer
    answers, but badly.
    """
    text, expected = TOKENIZED
    if tuple(load_encoder(folder)(text)) != expected:
        raise WeightsError(
            f"{converter} converts Gemma's tokenizer wrongly. Install a newer one "
            '(`pip install -U "transformers>=5.18"`) and run the same command again.'
        )


def merge(base: Path, adapter: Path, target: Path) -> None:
    """Write `base` with `adapter` merged into it to `target`, atomically.

    The sum is computed in fp32 and rounded once to bf16.

    Raises:
        AdapterError: the adapter was trained on another base, or is invalid.
    """
    require_adapter(adapter)
    require_same_base(base, adapter)
    model = _merge_model(base, adapter)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    folder = partial / target.name
    try:
        folder.mkdir()
        for pattern in _COPIED_FILES:
            for path in base.glob(pattern):
                shutil.copyfile(path, folder / path.name)
        (folder / FOLDER_MANIFEST).unlink(missing_ok=True)  # it lists the base's files
        model.save_pretrained(folder)
        shutil.copyfile(base / "generation_config.json", folder / "generation_config.json")
        folder.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _merge_model(base: Path, adapter: Path) -> Any:
    import torch
    from peft import PeftModel
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    except (OSError, ValueError, KeyError) as error:
        raise AdapterError(
            f"Invalid base model {base}: give the folder of a Gemma ({error})."
        ) from error
    path = adapter / ADAPTER_CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise AdapterError(f"{path} is invalid: {error}. Download it again.") from error
    if not isinstance(config, dict):
        raise AdapterError(f"{path} is invalid: not a JSON object. Download it again.")
    try:
        tuned = PeftModel.from_pretrained(model, adapter)
    except SafetensorError as error:
        raise AdapterError(
            f"{adapter / ADAPTER_WEIGHTS} is invalid: {error}. Download it again."
        ) from error
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        trained_on = config.get("base_model_name_or_path") or "another model"
        raise AdapterError(
            f"{adapter} does not fit {base}: it was made for {trained_on} ({type(error).__name__})"
        ) from error
    return tuned.merge_and_unload().to(torch.bfloat16)


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    command, *paths = arguments
    commands: dict[str, Callable[..., None]] = {
        "model": convert_model,
        "tokenizer": convert_tokenizer,
        "merge": merge,
    }
    try:
        commands[command](*map(Path, paths))
    except LhkitError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return INVALID_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
