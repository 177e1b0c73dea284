"""The model side of tuning: a LoRA adapter on a Gemma, and the loss of a batch on a CPU.

The common prefix of a batch runs once, with gradient, and its keys and values are expanded over
the rows. The result is the same as running each row whole (a test shows it, also where the prefix
is longer than Gemma's sliding window); the cost is a fraction. LoRA: Hu et al. 2021.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lhkit.errors import MissingPackageError, TuningError
from lhkit.tuning.batches import IGNORED, Batch, Encode
from lhkit.tuning.recipe import AdapterShape

LINEAR_LAYERS = (
    *("q_proj", "k_proj", "v_proj", "o_proj"),
    *("gate_proj", "up_proj", "down_proj"),
)


def require_packages() -> None:
    """Refuse to start without what training needs.

    Raises:
        MissingPackageError: torch, transformers or peft is not installed.
    """
    try:
        import peft  # noqa: F401, PLC0415 - heavy, and only looked for
        import torch  # noqa: F401 - heavy, and only looked for
        import transformers  # noqa: F401 - heavy, and only looked for
    except ImportError as error:
        raise MissingPackageError(
            f"Tuning needs the package {error.name}: run `make venv`, or `pip install lhkit[tune]`."
        ) from error


def load_model(folder: Path) -> Any:
    """Return the base model of a folder, in bf16, on the CPU.

    Raises:
        TuningError: the folder holds no model that transformers can read.
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with _no_bars():
            return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    except (OSError, ValueError, KeyError) as error:
        raise TuningError(f"{folder} holds no base model to tune ({error})") from error


@contextmanager
def _no_bars() -> Iterator[None]:
    """Loading takes a second: its progress bar would stand in the output of a notebook."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


def base_sha256(folder: Path) -> str:
    """Return the hash of a base model: its configuration and all its weights (a second or two)."""
    digest = hashlib.sha256()
    for path in (folder / "config.json", *sorted(folder.glob("*.safetensors"))):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def encoder(folder: Path) -> Encode:
    """Return the tokenizer of a folder as a function; no token is added to the text.

    Raises:
        TuningError: the folder has no `tokenizer.json`.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - heavy

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise TuningError(f"{path} is missing: the base model's folder needs its tokenizer")
    tokenizer = Tokenizer.from_file(str(path))

    def encode(text: str) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    return encode


def with_adapter(model: Any, shape: AdapterShape, *, seed: int) -> Any:
    """Return `model` with a fresh LoRA adapter in fp32 on every linear layer."""
    import torch
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - heavy

    torch.manual_seed(seed)
    tuned = get_peft_model(
        model,
        LoraConfig(
            r=shape.rank,
            lora_alpha=shape.alpha,
            target_modules=list(LINEAR_LAYERS),
            task_type="CAUSAL_LM",
        ),
    )
    for parameter in trainable(tuned):
        parameter.data = parameter.data.float()
    return tuned


def save_adapter(model: Any, folder: Path, *, base_name: str) -> None:
    """Write the adapter alone, in bf16; it names its base by name, not by a path of this machine.

    The model in memory is rounded, too: nothing is learnt after this.

    Raises:
        OSError: the disk does not take it.
    """
    for parameter in trainable(model):
        parameter.data = parameter.data.bfloat16()
    model.peft_config["default"].base_model_name_or_path = base_name
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # a form to fill in: the card is ours
    for path in folder.iterdir():
        path.chmod(0o644)


def trainable(model: Any) -> list[Any]:
    """Return the parameters that are learnt."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def loss_of(model: Any, batch: Batch) -> tuple[Any, int]:
    """Return the summed cross-entropy (nats) of the learnt tokens, and how many they are."""
    import torch

    rows, labels, attention = _padded(batch)
    base = model.base_model.model
    with torch.autocast("cpu", torch.bfloat16):
        hidden = _hidden(base.model, batch.prefix, rows, attention)
        learnt = labels[:, 1:] != IGNORED
        logits = base.lm_head(hidden[:, :-1][learnt])  # the wide head only where it counts
    targets = labels[:, 1:][learnt]
    loss = torch.nn.functional.cross_entropy(logits.float(), targets, reduction="sum")
    return loss, int(targets.numel())


def _hidden(decoder: Any, prefix: Sequence[int], rows: Any, attention: Any) -> Any:
    """Return the last hidden states of the rows, (rows, tokens, width)."""
    import torch
    from transformers import DynamicCache

    count, length = rows.shape
    if not prefix:
        return decoder(rows, attention_mask=attention).last_hidden_state
    once = decoder(torch.tensor([prefix]), past_key_values=DynamicCache(), use_cache=True)
    shared = DynamicCache()
    for number, layer in enumerate(once.past_key_values.layers):
        keys = layer.keys.expand(count, -1, -1, -1)
        shared.update(keys, layer.values.expand(count, -1, -1, -1), number)
    places = torch.arange(len(prefix), len(prefix) + length)[None].expand(count, -1)
    return decoder(
        rows,
        past_key_values=shared,
        attention_mask=attention,
        position_ids=places,
        use_cache=True,
    ).last_hidden_state


def _padded(batch: Batch) -> tuple[Any, Any, Any]:
    """Return rows and labels, (rows, longest), and the attention mask, (rows, prefix + longest)."""
    import torch

    longest = max(map(len, batch.rows))
    shape = (len(batch.rows), longest)
    rows = torch.zeros(shape, dtype=torch.long)
    labels = torch.full(shape, IGNORED, dtype=torch.long)
    attention = torch.zeros((shape[0], len(batch.prefix) + longest), dtype=torch.long)
    for number, (tokens, wanted) in enumerate(zip(batch.rows, batch.labels, strict=True)):
        rows[number, : len(tokens)] = torch.tensor(tokens)
        labels[number, : len(tokens)] = torch.tensor(wanted)
        attention[number, : len(batch.prefix) + len(tokens)] = 1
    return rows, labels, attention
