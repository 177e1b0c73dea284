"""The model side of tuning: a LoRA adapter on a Gemma, and the loss of a batch on a CPU.

The common prefix of a batch runs once, with gradient, and all rows lie behind it without padding
(`packed_attention`). The result is the same as running each row whole (a test shows it, also where
the prefix is longer than Gemma's sliding window); the cost is a fraction. LoRA: Hu et al. 2021.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from lhkit.errors import MissingPackageError, TuningError
from lhkit.tuning import packed_attention
from lhkit.tuning.batches import IGNORED, Batch, Encode
from lhkit.tuning.packed_attention import Packing
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
            f"Tuning needs the package {error.name}: run `make venv`, or in the clone "
            "`pip install -e '.[tune]'`."
        ) from error


def load_model(folder: Path) -> Any:
    """Return the base model of a folder, in bf16, on the CPU.

    Raises:
        TuningError: the folder holds no model that transformers can read.
    """
    import torch
    from transformers import AttentionInterface, AutoModelForCausalLM

    AttentionInterface.register(packed_attention.NAME, packed_attention.packed_attention)
    try:
        with _no_bars():
            return AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.bfloat16, attn_implementation=packed_attention.NAME
            )
    except (OSError, ValueError, KeyError) as error:
        raise TuningError(
            f"{folder} holds no base model to tune: give the folder of a Gemma with --base "
            f"({error})"
        ) from error


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
        TuningError: the folder has no `tokenizer.json`, or one that is broken.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - heavy

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise TuningError(
            f"{path} is missing: put the base model's own there, or give another folder with --base"
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more special
        raise TuningError(
            f"{path} cannot be read ({error}): put the base model's own there"
        ) from error

    def encode(text: str) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    return encode


def with_adapter(model: Any, shape: AdapterShape, *, seed: int, start: Path | None = None) -> Any:
    """Return `model` with a LoRA adapter in fp32 on every linear layer: fresh, or as in `start`.

    Raises:
        TuningError: the adapter in `start` cannot be read, or has another shape.
    """
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
    if start:
        _take_over(tuned, start, shape)
    for parameter in trainable(tuned):
        parameter.data = parameter.data.float()
    return tuned


def _take_over(model: Any, start: Path, shape: AdapterShape) -> None:
    import peft  # noqa: PLC0415 - heavy
    from safetensors import SafetensorError  # noqa: PLC0415 - with peft

    try:
        card: Any = peft.LoraConfig.from_pretrained(str(start))
        found = AdapterShape(rank=card.r, alpha=card.lora_alpha)
        weights = peft.load_peft_weights(str(start), device="cpu")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise TuningError(
            f"{start} holds no adapter that can be read ({error}): give another one with --from, "
            "or begin without"
        ) from error
    if found != shape:
        raise TuningError(
            f"{start} has rank {found.rank} and alpha {found.alpha}, not {shape.rank} and "
            f"{shape.alpha}: give --rank {found.rank}, or another adapter to go on from"
        )
    told = peft.set_peft_model_state_dict(model, weights)
    if told.unexpected_keys:
        raise TuningError(
            f"{start} was made for other layers ({told.unexpected_keys[0]}): go on from an adapter "
            "of `lhkit tune train`, or begin without --from"
        )


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
    losses = token_losses(model, batch)
    return losses.sum(), len(losses)


def weighted_mean(losses: Any, batch: Batch, *, decisive_weight: float) -> Any:
    """Return the mean of a batch's losses, in which a decisive token counts `decisive_weight`."""
    import torch

    weights = torch.where(torch.tensor(batch.decisive), decisive_weight, 1.0)
    return (losses * weights).sum() / weights.sum()


def token_losses(model: Any, batch: Batch) -> Any:
    """Return the cross-entropy (nats) of each learnt token, row by row, shape (tokens,)."""
    import torch
    from peft.helpers import disable_input_dtype_casting  # noqa: PLC0415 - heavy

    tokens = [*batch.prefix, *chain.from_iterable(batch.rows)]
    labels = torch.tensor([*[IGNORED] * len(batch.prefix), *chain.from_iterable(batch.labels)])
    packing = Packing(prefix=len(batch.prefix), rows=tuple(map(len, batch.rows)))
    base = model.base_model.model
    with torch.autocast("cpu", torch.bfloat16), disable_input_dtype_casting(model):
        hidden = base.model(
            torch.tensor([tokens]),
            position_ids=torch.tensor([packing.positions]),
            attention_mask=dict.fromkeys(base.config.layer_types),  # the packing says it all
            packing=packing,
            use_cache=False,
        ).last_hidden_state[0]
        learnt = (labels != IGNORED).nonzero()[:, 0]
        logits = base.lm_head(hidden[learnt - 1])  # the wide head only where it counts
    return torch.nn.functional.cross_entropy(logits.float(), labels[learnt], reduction="none")
