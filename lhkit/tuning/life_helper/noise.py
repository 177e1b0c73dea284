"""How people type to life-helper: as everywhere, and with English words in Korean. Pure."""

import random

from lhkit.tuning.life_helper.phrases import Phrases, chance
from lhkit.tuning.noise import careless, is_literal, surrounded


def typed(text: str, phrases: Phrases, rng: random.Random, *, around: str = "") -> str:
    """Return `text` as somebody might have typed it.

    `around` chooses other words to stand before and after it: a remark does not end in "please".
    """
    is_kept = is_literal(text)
    if not is_kept:
        text = careless(_mixed(text, phrases, rng), phrases.locale, rng)
    before, after = (phrases.lines[f"{side}{around}"] for side in ("before", "after"))
    return surrounded(text, before=before, after=after, rng=rng, keep_end=is_kept)


def _mixed(text: str, phrases: Phrases, rng: random.Random) -> str:
    words = [word for word in phrases.lines["mixed"] if word in text]
    if not words or not chance(rng, 0.06):
        return text
    word = rng.choice(words)
    return text.replace(word, phrases.lines["mixed"][word], 1)
