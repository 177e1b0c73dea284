"""How people type: a word before, a word after, typos, lost spaces, no capitals. Pure.

What stands in quotes stays as it is: it has to be copied to the letter.
"""

import random
from collections.abc import Sequence

_SLIPS = {
    "ko": (
        ("했", "햇"),
        ("있", "잇"),
        ("없", "업"),
        ("뭐", "머"),
        ("돼", "되"),
        ("줘", "죠"),
        ("많", "만"),
        ("싶", "십"),
        ("어떻게", "어떻케"),
        ("어제", "어재"),
        ("그저께", "그저깨"),
        ("기록", "기로"),
        ("습관", "습과"),
        ("께", "깨"),
        ("너무", "넘"),
        ("보여", "보여"),
        ("좋", "조"),
        ("찾아", "차자"),
    ),
    "en": (
        ("you", "u"),
        ("are", "r"),
        ("please", "plz"),
        ("habit", "habbit"),
        ("yesterday", "yesterdy"),
        ("the", "teh"),
        ("what", "wat"),
        ("want", "wnat"),
        ("log", "lgo"),
        ("my", "mt"),
        ("I'm", "im"),
        ("don't", "dont"),
        ("can't", "cant"),
        ("record", "recrod"),
    ),
}
_MISSPELT, _UNSPACED, _LOWERED = 0.15, 0.12, 0.2  # shares of lines
BEFORE_SHARE, AFTER_SHARE = 0.13, 0.15
"""Shares of lines with a word before or after them."""
_LEAST_WORDS = 3  # of a line that loses a space
_PUNCTUATION = ".!?…~"
_QUOTES = "\"'"


def is_literal(text: str) -> bool:
    """Return True if something in `text` is quoted."""
    return any(mark in text for mark in _QUOTES)


def careless(text: str, locale: str, rng: random.Random) -> str:
    """Return `text` as somebody in a hurry might have typed it; often it is as it was."""
    text = _misspelt(text, locale, rng) if rng.random() < _MISSPELT else text
    text = _unspaced(text, rng) if rng.random() < _UNSPACED and locale == "ko" else text
    return text.casefold() if rng.random() < _LOWERED else text


def surrounded(
    text: str,
    *,
    before: Sequence[str],
    after: Sequence[str],
    rng: random.Random,
    keep_end: bool,
    before_share: float = BEFORE_SHARE,
    after_share: float = AFTER_SHARE,
) -> str:
    """Return `text` with a word before it, after it, or both; as it was where neither is drawn.

    What comes after it takes the place of a full stop and the like, if it need not `keep_end`.
    """
    if rng.random() < before_share and before:
        text = rng.choice(before) + text
    if rng.random() < after_share and after:
        text = (text if keep_end else text.rstrip(_PUNCTUATION)) + rng.choice(after)
    return text.strip()


def _misspelt(text: str, locale: str, rng: random.Random) -> str:
    present = [slip for slip in _SLIPS.get(locale, ()) if slip[0] in text]
    return text.replace(*rng.choice(present), 1) if present else text


def _unspaced(text: str, rng: random.Random) -> str:
    words = text.split(" ")
    if len(words) < _LEAST_WORDS:
        return text
    at = rng.randrange(1, len(words))
    return " ".join([*words[: at - 1], words[at - 1] + words[at], *words[at + 1 :]])
