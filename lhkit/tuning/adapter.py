"""The adapter: LoRA on Gemma, packed attention, merging into full weights."""

import hashlib
import json
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Final

from lhkit import __version__
from lhkit.errors import LhkitError, MissingPackageError, SetupError, TuningError
from lhkit.files import version_of
from lhkit.models.weights import (
    ADAPTER_CARD,
    ADAPTER_WEIGHTS,
    FOLDER_MANIFEST,
    MERGE_REFUSED,
    require_adapter,
)
from lhkit.precision import Dtype
from lhkit.tuning.data import IGNORED, Batch, Encode, TrainingSequence
from lhkit.tuning.recipe import AdapterShape, TrainingDevice

# What a training's `manifest.json` says: what was learnt from, how, with what, and how far. Pure.
#
# Enough to write a model card from, and to do the training again.


_log = logging.getLogger(__name__)

MANIFEST: Final = "manifest.json"

_SCHEMA: Final = 1
_VERSIONS_OF: Final = ("torch", "transformers", "peft", "safetensors", "tokenizers")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOrigin:
    """What does not change while it trains: recipe, base, data and machine.

    `recipe` is the checkpoint's: settings and hashes. `left_out` counts conversations that are too
    long to learn from.
    """

    recipe: Mapping[str, Any]
    base_name: str
    data: Mapping[str, Any]
    dev: Mapping[str, Any]
    machine: Mapping[str, Any]


def data_facts(sequences: Sequence[TrainingSequence], *, left_out: int) -> dict[str, Any]:
    """Return how many texts there are, of which groups and kinds."""
    return {
        "texts": len(sequences),
        "left_out": left_out,
        "groups": dict(sorted(Counter(each.group for each in sequences).items())),
        "kinds": dict(sorted(Counter(each.kind for each in sequences).items())),
    }


def manifest_of(
    origin: TrainingOrigin, log: Sequence[Mapping[str, Any]], *, peak_memory_bytes: int | None
) -> dict[str, Any]:
    """Return the manifest as plain JSON.

    Args:
        origin: what is the same from the first step to the last.
        log: a row for each step that is done; seconds are those of the steps, not of set-up or of
            measuring.
        peak_memory_bytes: of the process that wrote this; an earlier one may have had more.
    """
    measured = [row["dev_loss"] for row in log if row["dev_loss"] is not None]
    return {
        "schema": _SCHEMA,
        "base": {"name": origin.base_name, "sha256": origin.recipe["base_sha256"]},
        "start": _start(origin.recipe),
        "data": {"sha256": origin.recipe["data_sha256"], **origin.data},
        "dev": {"sha256": origin.recipe["dev_sha256"], **origin.dev},
        "settings": origin.recipe["settings"],
        "steps_done": len(log),
        "seconds": round(sum(row["seconds"] for row in log), 1),
        "learnt_tokens": sum(row["learnt_tokens"] for row in log),
        "peak_memory_bytes": peak_memory_bytes,
        "loss": log[-1]["loss"] if log else None,
        "dev_loss": measured[-1] if measured else None,
        "versions": versions(),
        "machine": dict(origin.machine),
    }


def _start(recipe: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the adapter that the training went on from; None: a fresh one."""
    return {"sha256": recipe["start_sha256"]} if "start_sha256" in recipe else None


def versions() -> dict[str, str]:
    """Return the versions that a training depends on; of lhkit, the running one."""
    return {
        "lhkit": __version__,
        **{name: version_of(name) or "not installed" for name in _VERSIONS_OF},
    }


# Attention over conversations that lie end to end behind one prefix, without padding.
#
# A packed text is prefix, row, row, …: each row sees the prefix and itself, as if it stood alone.
# Rows of any length cost what they hold, and the prefix is computed once; what that saves beside
# whole padded rows is in `evals/benchmarks/training_step.md`. Blocks of plain matrix products,
# since the fused CPU kernel also computes what a mask then hides. Grouped-query attention: Ainslie
# et al. 2023; the sliding window of Gemma 3: a token sees itself and the `window - 1` before it.
# A graphics card gets the same in two large kernels (`_side_by_side`): it waits for their start.


NAME = "lhkit_packed"
"""The name in transformers' `AttentionInterface`."""

_BLOCK = 256
"""Queries a block: the smaller, the less is computed that a window or causality hides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How a packed text is cut: tokens of the prefix (may be 0) and of each row, in order."""

    prefix: int
    rows: tuple[int, ...]

    @property
    def positions(self) -> list[int]:
        """The place of each token in its own conversation, from 0."""
        behind = [place for row in self.rows for place in range(self.prefix, self.prefix + row)]
        return [*range(self.prefix), *behind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Some queries of a row, as a half-open span, and the first of the keys that they may see.

    Places are in the conversation, from 0; the keys end with the last query.
    """

    queries: tuple[int, int]
    first_key: int


def blocks(begin: int, end: int, window: int | None) -> Iterator[Block]:
    """Yield blocks that cover the queries from `begin` to before `end` once, in order.

    Args:
        begin: the place of the row's first token.
        end: the place after its last.
        window: of the layer; None: a token sees everything before it.
    """
    for first in range(begin, end, _BLOCK):
        first_key = 0 if window is None else max(0, first - window + 1)
        yield Block(queries=(first, min(first + _BLOCK, end)), first_key=first_key)


def packed_attention(
    _module: Any,
    query: Any,
    key: Any,
    value: Any,
    _attention_mask: Any,
    *,
    scaling: float,
    packing: Packing | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Any, None]:
    """Return the attention's output, (1, tokens, heads, width), in transformers' interface.

    Args:
        query: (1, heads, tokens, width).
        key: like `query`, of fewer heads; each is shared by as many query heads.
        value: like `key`.
        scaling: of the scores.
        packing: handed through the decoder's keyword arguments; None: one conversation.
        sliding_window: of the layer; None: full attention.
    """
    import torch

    cut = packing or Packing(prefix=query.shape[2], rows=())
    if query.is_cuda:
        output = _side_by_side(query, key, value, cut, scaling=scaling, window=sliding_window)
        return output, None
    segments = zip(
        *(each[0].split([cut.prefix, *cut.rows], dim=1) for each in (query, key, value)),
        strict=True,
    )
    (first_query, *prefix), *rows = segments
    parts = [_of_row(first_query, *prefix, begin=0, scaling=scaling, window=sliding_window)]
    for row_query, *own in rows:
        keys, values = (torch.cat(pair, dim=1) for pair in zip(prefix, own, strict=True))
        parts.append(
            _of_row(
                row_query, keys, values, begin=cut.prefix, scaling=scaling, window=sliding_window
            )
        )
    return torch.cat(parts, dim=1).transpose(0, 1)[None], None


def _of_row(
    query: Any, key: Any, value: Any, *, begin: int, scaling: float, window: int | None
) -> Any:
    """Return (heads, queries, width) of one row, whose first token has the place `begin`."""
    import torch

    if not query.shape[1]:
        return query
    parts = []
    for block in blocks(begin, begin + query.shape[1], window):
        first, last = block.queries
        seen = slice(block.first_key, last)
        parts.append(
            _attended(
                query[:, first - begin : last - begin] * scaling,
                key[:, seen],
                value[:, seen],
                window=window,
            )
        )
    return torch.cat(parts, dim=1)


def _side_by_side(
    query: Any, key: Any, value: Any, cut: Packing, *, scaling: float, window: int | None
) -> Any:
    """Return what `packed_attention` does, in two large kernels: for a graphics card.

    One is for the prefix, one for the rows, padded to the longest: a card waits for each kernel's
    start more than for what is computed in vain. Not cuDNN's, which plans anew for each shape, and
    nearly every batch has its own: 11 ms a layer, forwards alone, on an H100.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    groups = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))

    def attended(queries: Any, keys: Any, values: Any) -> Any:
        seen = _seen(queries.shape[2], keys.shape[2], window, queries.device)
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            return torch.nn.functional.scaled_dot_product_attention(
                queries, keys, values, attn_mask=seen, scale=scaling
            )

    parts = []
    if cut.prefix:
        parts.append(attended(*(each[:, :, : cut.prefix] for each in (query, key, value)))[0])
    if cut.rows:
        taken, kept = _padded_places(cut, query.device)
        near = cut.prefix if window is None else min(cut.prefix, window - 1)
        rows, *own = (each[0][:, taken].transpose(0, 1) for each in (query, key, value))
        before = (
            each[:, :, cut.prefix - near : cut.prefix].expand(len(taken), -1, -1, -1)
            for each in (key, value)
        )
        keys, values = (torch.cat(pair, dim=2) for pair in zip(before, own, strict=True))
        padded = attended(rows, keys, values)
        parts.append(padded.transpose(0, 1).flatten(1, 2)[:, kept])
    return torch.cat(parts, dim=1).transpose(0, 1)[None]


@lru_cache(maxsize=4)
def _padded_places(cut: Packing, device: Any) -> tuple[Any, Any]:
    """Return which token each place of the padded rows takes, (rows, longest), and which to keep.

    Behind its end a row repeats its last token: no token of its own sees what is behind it. All
    layers ask for the same.
    """
    import torch

    longest = max(cut.rows)
    begins = accumulate(cut.rows[:-1], initial=cut.prefix)
    taken = [
        [begin + min(place, length - 1) for place in range(longest)]
        for begin, length in zip(begins, cut.rows, strict=True)
    ]
    kept = [row * longest + place for row, length in enumerate(cut.rows) for place in range(length)]
    return torch.tensor(taken, device=device), torch.tensor(kept, device=device)


@lru_cache(maxsize=64)
def _hidden(queries: int, keys: int, window: int | None, device: Any) -> Any:
    """Return what the last `queries` of so many places may not see, (queries, keys), True: hidden.

    All layers of a kind ask for the same.
    """
    import torch

    at = torch.arange(keys - queries, keys, device=device)[:, None]
    places = torch.arange(keys, device=device)[None]
    later = places > at
    return later if window is None else later | (places <= at - window)


@lru_cache(maxsize=4)
def _seen(queries: int, keys: int, window: int | None, device: Any) -> Any:
    """Return the opposite of `_hidden`, of a batch's two kinds of layers, prefix and rows each."""
    return ~_hidden.__wrapped__(queries, keys, window, device)


def _attended(query: Any, key: Any, value: Any, *, window: int | None) -> Any:
    """Return (heads, queries, width): the query heads that share a key head are one matrix."""
    import torch

    heads, count, width = query.shape
    hidden = _hidden(count, key.shape[1], window, query.device)
    scores = query.reshape(key.shape[0], -1, width) @ key.transpose(1, 2)
    scores = scores.view(heads, count, -1).masked_fill_(hidden, float("-inf"))
    weights = torch.softmax(scores, dim=-1)  # sums in fp32, whatever the type
    return (weights.view(key.shape[0], -1, key.shape[1]) @ value).view(heads, count, width)


# The model side of tuning: a LoRA adapter on a Gemma, and the loss of a batch where the model is.
#
# The common prefix of a batch runs once, with gradient, and all rows lie behind it without padding
# (`packed_attention`). The result is the same as running each row whole (a test shows it, also
# where the prefix is longer than Gemma's sliding window); the cost is a fraction. LoRA: Hu et al.
# 2021.


_PRODUCTS = 5

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
        import peft  # noqa: F401 - heavy, and only looked for
        import torch  # noqa: F401 - heavy, and only looked for
        import transformers  # noqa: F401 - heavy, and only looked for
    except ImportError as error:
        raise MissingPackageError(
            f"Tuning needs the package {error.name}: run `make venv`, or in the clone "
            "`pip install -e '.[tune]'`."
        ) from error


def require_device(device: TrainingDevice) -> None:
    """Refuse a device that torch cannot use here.

    Raises:
        SetupError: there is none, or torch was built without it.
    """
    if device == "cpu":
        return
    require_packages()
    import torch

    if not torch.cuda.is_available():
        raise SetupError(
            f"torch {torch.__version__} finds no graphics card here: leave --device out, or "
            "install a torch with CUDA on a machine that has one"
        )


def device_name(device: TrainingDevice) -> str:
    """Return what a manifest calls a device: of a graphics card its model."""
    import torch

    return device if device == "cpu" else torch.cuda.get_device_name()


def free_memory_bytes(device: TrainingDevice) -> int | None:
    """Return how much memory of its own a device has free; None: it takes the machine's."""
    import torch

    return None if device == "cpu" else torch.cuda.mem_get_info()[0]


def load_model(folder: Path, dtype: Dtype = "bfloat16", device: TrainingDevice = "cpu") -> Any:
    """Return the base model of a folder on a device; what it computes is in that type, too.

    Raises:
        TuningError: the folder holds no model that transformers can read.
    """
    import torch
    from transformers import AttentionInterface, AutoModelForCausalLM

    AttentionInterface.register(NAME, packed_attention)
    try:
        with _no_bars():
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=getattr(torch, dtype), attn_implementation=NAME
            ).to(device)
    except (OSError, ValueError, KeyError) as error:
        raise TuningError(
            f"{folder} holds no base model to tune: give the folder of a Gemma with --base "
            f"({error})"
        ) from error
    if device == "cuda":
        use_norm_kernel(model)
    return model


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
    from tokenizers import Tokenizer

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
    from peft import LoraConfig, get_peft_model

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
    import peft
    from safetensors import SafetensorError

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


def use_norm_kernel(model: Any) -> None:
    """Let torch's own kernel compute the model's norms: for a graphics card, where it is one."""
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm

    for module in model.modules():
        if isinstance(module, Gemma3RMSNorm):
            weight = 1.0 + module.weight.detach().float()
            module.forward = partial(_normed, weight=weight, eps=module.eps)


def _normed(hidden: Any, *, weight: Any, eps: float) -> Any:
    """Return what Gemma's norm does; `weight` is one more than stored."""
    import torch

    wide = hidden.float()
    return torch.nn.functional.rms_norm(wide, weight.shape, weight, eps).type_as(hidden)


def fuse_norms(model: Any, batch: Batch) -> bool:
    """Have torch compile the model's norms, and return whether they are compiled now.

    Forwards and backwards each becomes one loop; what that saves of a step is in
    `evals/benchmarks/training_step.md`. Compiling takes up to half a minute, and a C++ compiler.
    Where it fails, or nothing can be compiled, the model stays as it is, and what torch said is
    logged. On a graphics card there is nothing to compile (`use_norm_kernel`).

    Args:
        model: with its adapter.
        batch: what it is tried on, forwards and backwards; nothing is learnt from it.
    """
    import torch
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm

    norms = [module for module in model.modules() if isinstance(module, Gemma3RMSNorm)]
    torch.compiler.reset()  # an earlier training's may have used up how often it compiles anew
    fused = torch.compile(Gemma3RMSNorm.forward, dynamic=True)
    for norm in norms:
        norm.forward = partial(fused, norm)
    try:
        token_losses(model, batch).sum().backward()
        with torch.no_grad():
            token_losses(model, batch)
    except (RuntimeError, OSError, ImportError) as error:  # what torch says of a compiler
        _log.info("norms are not compiled: %s", error)
        for norm in norms:
            del norm.forward
        return False
    finally:
        model.zero_grad(set_to_none=True)
    return bool(norms)


def operations_a_second(dtype: Dtype, device: TrainingDevice = "cpu") -> float:
    """Return how many floating-point operations a device does in products of matrices.

    Measured in a blink, on matrices as large as those of a step: the best of a few.
    """
    import torch

    size = 1_024
    numbers = (torch.rand(size, size) for _ in range(2))
    left, right = (each.to(device, getattr(torch, dtype)) for each in numbers)
    times = [_seconds_of(left, right) for _ in range(_PRODUCTS)]
    return 2.0 * size**3 / max(min(times), 1e-9)


def _seconds_of(left: Any, right: Any) -> float:
    begun_s = time.perf_counter()
    (left @ right)[0, 0].item()  # a graphics card is done when it is asked
    return time.perf_counter() - begun_s


def save_adapter(model: Any, folder: Path, *, base_name: str) -> None:
    """Write the adapter alone, in bf16; it names its base by name, not by a path of this machine.

    The model in memory stays as it is, so that it can go on learning.

    Raises:
        OSError: the disk does not take it.
    """
    model.peft_config["default"].base_model_name_or_path = base_name
    learnt = [(parameter, parameter.data) for parameter in trainable(model)]
    try:
        for parameter, numbers in learnt:
            parameter.data = numbers.bfloat16()
        model.save_pretrained(folder, save_embedding_layers=False)
    finally:
        for parameter, numbers in learnt:
            parameter.data = numbers
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

    decisive = torch.tensor(batch.decisive, device=losses.device)
    weights = torch.where(decisive, decisive_weight, 1.0)
    return (losses * weights).sum() / weights.sum()


def token_losses(model: Any, batch: Batch) -> Any:
    """Return the cross-entropy (nats) of each learnt token, row by row, shape (tokens,)."""
    import torch
    from peft.helpers import disable_input_dtype_casting

    tokens = [*batch.prefix, *chain.from_iterable(batch.rows)]
    labels = torch.tensor([*[IGNORED] * len(batch.prefix), *chain.from_iterable(batch.labels)])
    learnt = (labels != IGNORED).nonzero()[:, 0]
    packing = Packing(prefix=len(batch.prefix), rows=tuple(map(len, batch.rows)))
    base = model.base_model.model
    device = base.device
    in_bf16 = torch.autocast(device.type, torch.bfloat16) if base.dtype == torch.bfloat16 else None
    with in_bf16 or nullcontext(), disable_input_dtype_casting(model):
        hidden = base.model(
            torch.tensor([tokens], device=device),
            position_ids=torch.tensor([packing.positions], device=device),
            attention_mask=dict.fromkeys(base.config.layer_types),  # the packing says it all
            packing=packing,
            use_cache=False,
        ).last_hidden_state[0]
        before = (learnt - 1).to(device)
        logits = base.lm_head(hidden[before])  # the wide head only where it counts
    wanted = labels[learnt].to(device)
    return torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="none")


# An adapter and its base model to a folder of plain weights that any server can load.
#
# Nothing is left half made. Also a script, `python -m lhkit.tuning.adapter BASE ADAPTER TARGET`,
# for whoever wants torch's memory back afterwards.


_BESIDE_WEIGHTS = ("*.json", "*.jinja", "*.md", "*.html")


def merge(base: Path, adapter: Path, target: Path) -> None:
    """Write `base` with `adapter` merged into it to `target`, in one step at the end.

    The sum is made in fp32 and rounded once to bf16.

    Raises:
        TuningError: the adapter was made for another base or is broken, or `target` exists.
        MissingPackageError: torch, transformers or peft is not installed.
    """
    require_packages()
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
        (made / FOLDER_MANIFEST).unlink(missing_ok=True)  # it tells of the base's files
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


def require_same_base(base: Path, adapter: Path) -> None:
    """Refuse an adapter whose training says that it had another base.

    An adapter without `manifest.json` is not lhkit's and passes: only its shapes can tell. A base
    that lhkit made itself is known by its folder's name, which has the hash of its recipe: made
    with another version of transformers, its files may differ in a byte.

    Raises:
        TuningError: it had another base, or its manifest is broken.
    """
    path = adapter / MANIFEST
    if not path.is_file() or not (base / "config.json").is_file():
        return
    try:
        told = json.loads(path.read_text(encoding="utf-8"))["base"]
        name, sha256 = str(told["name"]), str(told["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TuningError(f"{path} is broken ({error!r}): get it again") from error
    if base.name == name and (base / FOLDER_MANIFEST).is_file():
        return
    found = base_sha256(base)
    if found != sha256:
        raise TuningError(
            f"{adapter} was trained on another base than {base}: give its own with --base, "
            f"{name} (sha256 {sha256[:12]}, not {found[:12]})"
        )


def _merged(base: Path, adapter: Path) -> Any:
    import torch
    from peft import PeftModel
    from safetensors import SafetensorError

    model = load_model(base, "float32")
    told = _card(adapter)
    try:
        tuned = PeftModel.from_pretrained(model, adapter)
    except SafetensorError as error:
        raise TuningError(
            f"{adapter / ADAPTER_WEIGHTS} is broken ({error}): get it again"
        ) from error
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        named = told.get("base_model_name_or_path") or "another model"
        raise TuningError(
            f"{adapter} does not fit {base}: it was made for {named}, so give that with --base "
            f"({type(error).__name__})"
        ) from error
    return tuned.merge_and_unload().to(torch.bfloat16)


def _card(adapter: Path) -> dict[str, Any]:
    path = adapter / ADAPTER_CARD
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
        return MERGE_REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
