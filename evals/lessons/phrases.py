"""The authored words of `datasets/lessons`, and how people type them.

Lines of users, replies of the expert, what people say of a protocol: read once. Which of them is
said when is the business of the talk modules.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from lhkit.errors import TuningError
from lhkit.tuning.noise import careless, is_literal, surrounded
from lhkit.tuning.phrases.file import Word

# -------------------------------------------------------------------------------- what was authored

_FOLDER = Path(__file__).parents[2] / "datasets" / "lessons"
_FILES = (
    *("lines", "lookups", "small_talk", "wishes", "tracking", "changed_minds"),
    *("unread_talk", "unread_finding"),  # by authors who had read no scenario
)


def chance(rng: random.Random, share: float) -> bool:
    """Return True in `share` (0..1) of all draws."""
    return rng.random() < share


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A need in a user's words, and what to search for."""

    text: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """What people say about one protocol.

    `refused` is a sentence that R7 does not allow; `asked` are questions that its steps answer.
    """

    names: tuple[str, ...]
    done: tuple[str, ...]
    wishes: tuple[Wish, ...]
    sentences: tuple[str, ...]
    refused: str
    asked: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases:
    """Everything authored in one language. `spoken` is keyed by protocol id."""

    locale: str
    lines: Mapping[str, Any]
    replies: Mapping[str, Sequence[str]]
    spoken: Mapping[str, Spoken]

    def reply(self, key: str, rng: random.Random, **slots: object) -> str:
        """Return one of the expert's replies with its slots filled."""
        return _filled(rng.choice(self.replies[key]), slots).strip()

    def line(self, key: str, rng: random.Random, **slots: object) -> str:
        """Return one of the users' lines with its slots filled; `a.b` names a nested list."""
        options: Any = self.lines
        for part in key.split("."):
            options = options[part]
        ask = rng.choice(self.lines["ask"])
        return " ".join(_filled(rng.choice(options), {"ask": ask, **slots}).split())


def parts(line: str) -> tuple[str, ...]:
    """Return what stands between the bars of an authored line: words, and what goes with them."""
    return tuple(part.strip() for part in line.split("|"))


def _filled(template: str, slots: Mapping[str, object]) -> str:
    return template.format(**{name: Word(str(value)) for name, value in slots.items()})


@cache
def phrases(locale: str) -> Phrases:
    """Return the phrases of a language.

    Raises:
        TuningError: there are none in that language.
    """
    if not (_FOLDER / f"lines_{locale}.yaml").is_file():
        raise TuningError(f"no training phrases in {locale!r}: choose ko or en")
    return Phrases(
        locale=locale,
        lines=_lines(locale),
        replies=_read(f"replies_{locale}"),
        spoken={key: _spoken(each) for key, each in _read(f"protocols_{locale}").items()},
    )


@cache
def withheld() -> tuple[str, ...]:
    """Return lines that are never said: they came too near to a scenario of the evaluation."""
    lines = (_FOLDER / "withheld.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def _lines(locale: str) -> Mapping[str, Any]:
    """Return the users' lines of all files; what several files say to one key is put together."""
    together: dict[str, Any] = {}
    for name in _FILES:
        for key, said in _read(f"{name}_{locale}").items():
            together[key] = [*together[key], *said] if key in together else said
    return together


def _read(name: str) -> Any:
    return YAML(typ="safe", pure=True).load(_FOLDER / f"{name}.yaml")


def _spoken(entry: Mapping[str, Any]) -> Spoken:
    pairs = (parts(text) for text in entry["wish"])
    return Spoken(
        names=tuple(entry["name"]),
        done=tuple(entry["did"]),
        wishes=tuple(Wish(text=text, query=query) for text, query in pairs),
        sentences=tuple(entry["say"]),
        refused=entry["not"],
        asked=tuple(entry["ask"]),
    )


# ---------------------------------------------------------------------------------- how people type


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
