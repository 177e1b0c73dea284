"""The tokenizer of a weights folder."""

from collections.abc import Callable, Sequence
from pathlib import Path

from lhkit.base.errors import WeightsError


def load_encoder(folder: Path) -> Callable[[str], Sequence[int]]:
    """Return the tokenizer of a folder as a function from text to token ids.

    It adds no special tokens.

    Raises:
        WeightsError: its `tokenizer.json` is invalid.
    """
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more specific
        raise WeightsError(
            f"{path} cannot be read ({error}): replace it by the model's own."
        ) from error

    def encode(text: str) -> Sequence[int]:
        ids: Sequence[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return encode
