"""Classifier of false success claims: reports of writes that did not run. Pure.

A small linear model over n-grams and structure, without word rules. Its features are the reply and
the calls before it: which writes ran, were refused or cancelled, and whether the words and numbers
of the reply occur in their arguments. One set of weights applies where no write ran, another where
one ran. The result is a flag, not a verdict. `evals/learn_claims.py` trains the weights and
evaluates them on held-out authors.
"""

import json
import math
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from itertools import chain, combinations, pairwise
from pathlib import Path
from typing import Any

from lhkit.chat import claims
from lhkit.chat.claims import SENTENCE, plain_text, read_part

SIZE = 1 << 20
"""Number of weights of each of the two sets, by which features are hashed."""

SCALES = (1.0, 1.0, 0.5, 2.0)
"""Factors of the groups of features."""

COMMON_BITS = 1 << 15
MOST_READ = claims.MOST_READ
_MOST_OF_CALL = 1000
_FEW = 3
_TOKEN = re.compile(r"\d+(?:[.:,]\d+)*|[a-z]+(?:'[a-z]+)*|[가-힣]+|[^\s\w]|\w")
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_CLOCK = re.compile(r"(?<![\d:])(\d\d?):(\d\d)(?!\d)")
_DAYS = tuple(zip(["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "월화수목금토일", strict=True))
_FULL_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_COUNTS = (
    *(("one", "한"), ("two", "두"), ("three", "세"), ("four", "네"), ("five", "다섯")),
    *(("six", "여섯"), ("seven", "일곱"), ("eight", "여덟"), ("nine", "아홉"), ("ten", "열")),
    *(("eleven", "열한"), ("twelve", "열두")),
)


@dataclass(slots=True)
class History:
    """The messages and calls before a reply, added turn by turn.

    Attributes:
        user: the user's last message.
        ran: words and numbers of the writes that ran, and prefixes that match other forms of them.
        stopped: likewise, of the writes that were cancelled, refused or failed.
        asked: likewise, of the user's last message.
        outcomes: numbers of calls, by kind.
        verbs: the latest outcome of each writing tool, by the first word of its name.
        last: the kind of the latest call; empty without one.
        turns: by writing tool, the turns of the calls that ran and of those that did not.
    """

    user: str = ""
    ran: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    asked: frozenset[str] = frozenset()
    outcomes: Counter[str] = field(default_factory=Counter)
    verbs: dict[str, str] = field(default_factory=dict)
    last: str = ""
    turns: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)

    @property
    def has_written(self) -> bool:
        """Whether a write ran."""
        return self.outcomes["write ok"] > 0

    def add_message(self, message: str) -> None:
        """Add a message of the user."""
        self.user = plain_text(message[:_MOST_OF_CALL])
        self.asked = frozenset(_forms(_TOKEN.findall(self.user)))

    def add_call(
        self,
        tool: str,
        outcome: str,
        args: Any,
        *,
        writes: bool,
        turn: int = 0,
        names: Sequence[str] = (),
    ) -> None:
        """Add a call.

        Args:
            tool: name of the tool.
            outcome: `ok`, `cancelled` or an error code.
            args: its arguments, as plain data.
            writes: whether the tool changes data.
            turn: its turn in the conversation, from 0.
            names: titles of the rows that its ids refer to.
        """
        sort = {"ok": "ok", "cancelled": "no"}.get(outcome, "error")
        self.last = f"{'write' if writes else 'read'} {sort}"
        self.outcomes[self.last] += 1
        if writes:
            verb, *things = re.split(r"[_\W]+", tool.lower())
            self.verbs[verb] = sort
            self.turns.setdefault(tool, ([], []))[sort != "ok"].append(turn)
            words = self.ran if sort == "ok" else self.stopped
            words.update(_forms(chain(filter(None, things), _spoken_words([args, *names]))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The trained parameters, and precision and recall on held-out authors."""

    biases: Sequence[float]
    thresholds: Sequence[float]
    weights: Sequence[Sequence[int]]
    scale: float
    common: bytes
    precision: float
    recall: float

    @classmethod
    def from_bytes(cls, data: bytes) -> "Model":
        """Parse the model file: a line of JSON and compressed weights."""
        head, _, body = data.partition(b"\n")
        plain = zlib.decompress(body)
        halves = (plain[:SIZE], plain[SIZE : 2 * SIZE])
        weights = tuple(array("b", half) for half in halves)
        return cls(**json.loads(head), weights=weights, common=plain[2 * SIZE :])

    def score(self, reply: str, history: History) -> float:
        """Return the log odds that a reply is a false success claim."""
        state = int(history.has_written)
        weight = self.weights[state].__getitem__
        groups = features(reply, history, self.common)
        sums = (
            factor * sum(map(weight, places)) / math.sqrt(len(places) or 1)
            for factor, places in zip(SCALES, groups, strict=True)
        )
        return self.biases[state] + sum(sums) / self.scale

    def flag(self, reply: str, history: History) -> tuple[str, float] | None:
        """Return the most suspicious sentence and the probability, or None."""
        text = read_part(reply)
        if not text.strip():
            return None
        score = self.score(text, history)
        if score < self.thresholds[history.has_written]:
            return None
        sentences = [sentence for sentence in SENTENCE.split(text) if sentence.strip()]
        worst = max(sentences, key=lambda sentence: self.score(sentence, history), default=text)
        return worst.strip(), round(1 / (1 + math.exp(-score)), 3)


@lru_cache(maxsize=1)
def shipped_model() -> Model:
    """Load the model of the package."""
    return Model.from_bytes(Path(__file__).with_suffix(".bin").read_bytes())


def features(reply: str, history: History, common: bytes) -> tuple[Collection[int], ...]:
    """Return hashed features: characters, words, the user's message, facts."""
    text = plain_text(reply)
    words = _TOKEN.findall(text)
    marks = [_mark(word, history) for word in words]
    masked = [m if m[0] == "<" else w for w, m in zip(words, marks, strict=True)]
    characters: set[int] = set()
    encoded = [char.encode("utf-8", "surrogatepass") for char in f" {' '.join(masked)} "]
    codes = [zlib.crc32(char, 7) for char in encoded]
    for n in range(1, 5):
        codes = [zlib.crc32(char, code) for char, code in zip(encoded[n:], codes, strict=False)]
        characters.update(code % SIZE for code in codes)
    runs = ["^", *masked, "$"]
    grams = {_place(f"w {' '.join(runs[i : i + n])}") for i in range(len(runs)) for n in (1, 2, 3)}
    verbs = [*(f"{verb} {sort}" for verb, sort in history.verbs.items())][-_FEW:]
    states = [history.last, *verbs]
    grams.update(_place(f"{state} {word}") for word in set(masked) for state in states)
    message = ["^", *_TOKEN.findall(history.user), "$"]
    asked = {_place(f"u {word}") for word in message}
    asked.update(_place(f"u {a} {b}") for a, b in pairwise(message))
    facts = [*_facts(text, dict(zip(words, marks, strict=True)), history, common)]
    pairs = combinations(facts, 2)
    return characters, grams, asked, {*map(_place, facts), *(_place(f"{a} {b}") for a, b in pairs)}


def _facts(text: str, marks: Mapping[str, str], history: History, common: bytes) -> Iterator[str]:
    """Yield features of the structure of the reply and of its relation to the history."""
    yield f"last {history.last}"
    yield from (f"{sort}={min(n, _FEW)}" for sort, n in sorted(history.outcomes.items()))
    counts = Counter(
        mark if mark[0] == "<" or not is_common(word, common) else "usual"
        for word, mark in marks.items()
    )
    yield from (f"{mark}={min(counts[mark], _FEW)}" for mark in _MARKS)
    yield f"ends with ? {text.rstrip().endswith('?')}, has ? {'?' in text}"
    yield f"message ends with ? {history.user.rstrip().endswith('?')}"
    yield f"length {min(len(marks) // 8, 5)}"
    named = sum(_is_in(word, history.ran) for word in set(_TOKEN.findall(history.user)))
    yield f"message names {min(named, _FEW)} of what ran"


_MARKS = ("<ran>", "<ran 0>", "<stopped>", "<stopped 0>", "asked", "<asked 0>", "new", "<new 0>")


def _mark(word: str, history: History) -> str:
    """Return where a word occurs, in `<>` if the mark replaces the word in n-grams."""
    if not word[0].isalnum():
        return "sign"
    is_number = word[0].isdigit()
    for name, forms in (("ran", history.ran), ("stopped", history.stopped)):
        if forms and _is_in(word, forms):
            return f"<{name} 0>" if is_number else f"<{name}>"
    name = "asked" if _is_in(word, history.asked) else "new"
    return f"<{name} 0>" if is_number else name


def is_common(word: str, common: bytes) -> bool:
    """Return whether a word is used by many authors."""
    bit = common_bit(word)
    return bool(common[bit >> 3] >> (bit & 7) & 1)


def common_bit(word: str) -> int:
    """Return the index of the bit of `common` for a word."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass"), 5) % COMMON_BITS


def _place(feature: str) -> int:
    return zlib.crc32(feature.encode("utf-8", "surrogatepass")) % SIZE


def words_in(text: str) -> list[str]:
    """Return the words, numbers and signs of a text."""
    return _TOKEN.findall(plain_text(text))


def _spoken_words(value: Any) -> Iterator[str]:
    """Yield words and numbers in plain data, also spoken forms of dates and times."""
    budget, stack = _MOST_OF_CALL, [value]
    while stack and budget > 0:
        item = stack.pop()
        if isinstance(item, Mapping):
            stack += item.values()
        elif isinstance(item, list | tuple):
            stack += item
        elif item is not None:
            text = plain_text(str(item)[:budget]).replace("_", " ")
            budget -= len(text) + 1
            words = _TOKEN.findall(text)
            yield from words
            yield from chain.from_iterable(map(_spoken, words))
            yield from _spoken_times(text)


def _spoken(word: str) -> Iterator[str]:
    """Yield other forms of a number or a weekday."""
    for number, day in enumerate(_DAYS):
        if word in (*day, _FULL_DAYS[number], f"{day[1]}요일"):
            yield from (*day, _FULL_DAYS[number], f"{day[1]}요일")
    if word.isascii() and word.isdigit():
        number = int(word)
        if 0 < number <= len(_COUNTS):
            yield from _COUNTS[number - 1]
        for unit in (10_000, 1000):
            if number and number % unit == 0:
                yield str(number // unit)


def _spoken_times(text: str) -> Iterator[str]:
    for year, month, day in _DATE.findall(text):
        yield from (month, day)
        try:
            yield from _spoken(_DAYS[date(int(year), int(month), int(day)).weekday()][0])
        except ValueError:  # not in the calendar
            continue
    for hour, minute in _CLOCK.findall(text):
        short = str(int(hour) % 12 or 12)
        yield from (hour, minute, short, f"{short}:{minute}", *_spoken(short))
        if minute == "30":
            yield from ("반", "half")


def _forms(words: Iterable[str]) -> Iterator[str]:
    """Yield words and their prefixes, by which other forms of them match."""
    for word in words:
        if word[0].isdigit():
            yield _number(word)
        elif word[0].isalpha():
            yield word
            yield from (f"{word[:n]}*" for n in range(_stem(word), len(word) + 1))


def _is_in(word: str, forms: Collection[str]) -> bool:
    if word[0].isdigit():
        return _number(word) in forms
    least = _stem(word)
    prefixes = (word[:n] for n in range(least, len(word)))
    cut = word[: max(least, len(word) - 3)] if len(word) > least + 1 else word
    return word in forms or f"{cut}*" in forms or any(prefix in forms for prefix in prefixes)


def _stem(word: str) -> int:
    return 4 if word.isascii() else 2


def _number(word: str) -> str:
    return word.replace(",", "").lstrip("0") or "0"
