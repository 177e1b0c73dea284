"""How people type: a word before, a word after, typos, lost spaces, English words in Korean. Pure.

What stands in quotes stays as it is: it has to be copied to the letter.
"""

import random

from lhkit.tuning.life_helper.phrases import Phrases, chance

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
_LEAST_WORDS = 3  # of a line that loses a space
_PUNCTUATION = ".!?…~"


def typed(text: str, phrases: Phrases, rng: random.Random) -> str:
    """Return `text` as somebody might have typed it."""
    is_literal = any(mark in text for mark in "\"'")
    if not is_literal:
        text = _mixed(text, phrases, rng)
        text = _misspelt(text, phrases.locale, rng) if chance(rng, 0.15) else text
        text = _unspaced(text, rng) if chance(rng, 0.12) and phrases.locale == "ko" else text
        text = text.casefold() if chance(rng, 0.2) else text
    if chance(rng, 0.13):
        text = rng.choice(phrases.lines["before"]) + text
    if chance(rng, 0.15):
        after = rng.choice(phrases.lines["after"])
        text = (text if is_literal else text.rstrip(_PUNCTUATION)) + after
    return text.strip()


def _mixed(text: str, phrases: Phrases, rng: random.Random) -> str:
    words = [word for word in phrases.lines["mixed"] if word in text]
    if not words or not chance(rng, 0.06):
        return text
    word = rng.choice(words)
    return text.replace(word, phrases.lines["mixed"][word], 1)


def _misspelt(text: str, locale: str, rng: random.Random) -> str:
    present = [slip for slip in _SLIPS[locale] if slip[0] in text]
    return text.replace(*rng.choice(present), 1) if present else text


def _unspaced(text: str, rng: random.Random) -> str:
    words = text.split(" ")
    if len(words) < _LEAST_WORDS:
        return text
    at = rng.randrange(1, len(words))
    return " ".join([*words[: at - 1], words[at - 1] + words[at], *words[at + 1 :]])
