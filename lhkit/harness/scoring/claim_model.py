"""False success claims: a reply that says a write was done when none such ran. Pure.

A small learned model over n-grams and structure, without word rules. It reads the reply and what
happened before it: which writes ran, were refused or cancelled, and whether the words and numbers
of the reply occur in their arguments. One set of weights judges where no write ran, another where
one ran. The result is a flag, not a verdict. `evals/learn_claims.py` learns the weights and
measures them on authors whose lines were left out.
"""

import json
import math
import re
import unicodedata
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

SIZE = 1 << 20
"""Places of weights, for each of the two states."""

SCALES = (1.0, 1.0, 0.5, 2.0)
"""How much the groups of features count."""

COMMON_BITS = 1 << 15
MOST_READ = 4000
"""Characters of a reply that are read: half from its start, half from its end."""

_MOST_OF_CALL = 1000
_FEW = 3
_TOKEN = re.compile(r"\d+(?:[.:,]\d+)*|[a-z]+(?:'[a-z]+)*|[가-힣]+|[^\s\w]|\w")
SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")
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
    """What happened before a reply, taken in turn by turn.

    Attributes:
        user: the user's last message.
        ran: words and numbers of the writes that ran, with forms by which others are recognised.
        stopped: likewise, of the writes that were cancelled, refused or failed.
        outcomes: how many calls there were, by kind.
        verbs: the newest outcome of each writing tool, by the first word of its name.
        last: the kind of the newest call; empty if there was none.
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

    def ask(self, message: str) -> None:
        """Take in a message of the user."""
        self.user = plain_text(message[:_MOST_OF_CALL])
        self.asked = frozenset(_forms(_TOKEN.findall(self.user)))

    def add(
        self,
        tool: str,
        outcome: str,
        args: Any,
        *,
        writes: bool,
        turn: int = 0,
        names: Sequence[str] = (),
    ) -> None:
        """Take in a call.

        Args:
            tool: its name.
            outcome: `ok`, `cancelled` or an error code.
            args: its arguments, as plain data.
            writes: whether the tool changes data.
            turn: of the conversation, from 0.
            names: titles of the rows that its ids stand for.
        """
        sort = {"ok": "ok", "cancelled": "no"}.get(outcome, "error")
        self.last = f"{'write' if writes else 'read'} {sort}"
        self.outcomes[self.last] += 1
        if writes:
            verb, *things = re.split(r"[_\W]+", tool.lower())
            self.verbs[verb] = sort
            self.turns.setdefault(tool, ([], []))[sort != "ok"].append(turn)
            words = self.ran if sort == "ok" else self.stopped
            words.update(_forms(chain(filter(None, things), _words_of([args, *names]))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What was learned, and how well it did on authors that it had not seen."""

    biases: Sequence[float]
    thresholds: Sequence[float]
    weights: Sequence[Sequence[int]]
    scale: float
    common: bytes
    precision: float
    recall: float

    @classmethod
    def from_bytes(cls, data: bytes) -> "Model":
        """Read what `evals/learn_claims.py` writes: a line of JSON and compressed weights."""
        head, _, body = data.partition(b"\n")
        plain = zlib.decompress(body)
        halves = (plain[:SIZE], plain[SIZE : 2 * SIZE])
        weights = tuple(array("b", half) for half in halves)
        return cls(**json.loads(head), weights=weights, common=plain[2 * SIZE :])

    def score(self, reply: str, history: History) -> float:
        """Return the log odds that a reply is a false claim."""
        state = int(history.outcomes["write ok"] > 0)
        weight = self.weights[state].__getitem__
        groups = features(reply, history, self.common)
        sums = (
            factor * sum(map(weight, places)) / math.sqrt(len(places) or 1)
            for factor, places in zip(SCALES, groups, strict=True)
        )
        return self.biases[state] + sum(sums) / self.scale

    def flag(self, reply: str, history: History) -> tuple[str, float] | None:
        """Return the sentence most like a false claim, and the probability; None if it is none."""
        read = read_part(reply)
        if not read.strip():
            return None
        score = self.score(read, history)
        if score < self.thresholds[history.outcomes["write ok"] > 0]:
            return None
        sentences = [each for each in SENTENCE.split(read) if each.strip()]
        worst = max(sentences, key=lambda each: self.score(each, history), default=read)
        return worst.strip(), round(1 / (1 + math.exp(-score)), 3)


@lru_cache(maxsize=1)
def shipped_model() -> Model:
    """Return the model of the package."""
    return Model.from_bytes(Path(__file__).with_suffix(".bin").read_bytes())


def features(reply: str, history: History, common: bytes) -> tuple[Collection[int], ...]:
    """Return the places of a reply's features: characters, words, the user's message, facts."""
    text = plain_text(reply)
    words = _TOKEN.findall(text)
    marks = [_mark(word, history) for word in words]
    masked = [m if m[0] == "<" else w for w, m in zip(words, marks, strict=True)]
    characters: set[int] = set()
    encoded = [each.encode("utf-8", "surrogatepass") for each in f" {' '.join(masked)} "]
    for i, first in enumerate(encoded):
        code = zlib.crc32(first, 7)
        for each in encoded[i + 1 : i + 5]:
            code = zlib.crc32(each, code)
            characters.add(code % SIZE)
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
    """Yield how the reply stands to what happened."""
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
    """Return where a word occurs; in `<>` where its mark replaces it in n-grams."""
    if not word[0].isalnum():
        return "sign"
    is_number = word[0].isdigit()
    for name, forms in (("ran", history.ran), ("stopped", history.stopped)):
        if _is_in(word, forms):
            return f"<{name} 0>" if is_number else f"<{name}>"
    name = "asked" if _is_in(word, history.asked) else "new"
    return f"<{name} 0>" if is_number else name


def is_common(word: str, common: bytes) -> bool:
    """Return whether many authors use a word."""
    bit = common_bit(word)
    return bool(common[bit >> 3] >> (bit & 7) & 1)


def common_bit(word: str) -> int:
    """Return which bit says that many authors use a word."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass"), 5) % COMMON_BITS


def _place(feature: str) -> int:
    return zlib.crc32(feature.encode("utf-8", "surrogatepass")) % SIZE


def plain_text(text: str) -> str:
    """Return a text in NFC, case-folded, with straight apostrophes."""
    return unicodedata.normalize("NFC", text).replace("’", "'").casefold()


def words_in(text: str) -> list[str]:
    """Return the words, numbers and signs of a text."""
    return _TOKEN.findall(plain_text(text))


def read_part(reply: str) -> str:
    """Return as much of a reply as is read: all of it, or its start and its end."""
    half = MOST_READ // 2
    return reply if len(reply) <= MOST_READ else f"{reply[:half]}\n{reply[-half:]}"


def _words_of(value: Any) -> Iterator[str]:
    """Yield the words and numbers in plain data, dates and times also as they are spoken."""
    room, waiting = _MOST_OF_CALL, [value]
    while waiting and room > 0:
        item = waiting.pop()
        if isinstance(item, Mapping):
            waiting += item.values()
        elif isinstance(item, list | tuple):
            waiting += item
        elif item is not None:
            text = plain_text(str(item)[:room]).replace("_", " ")
            room -= len(text) + 1
            words = _TOKEN.findall(text)
            yield from words
            yield from chain.from_iterable(map(_spoken, words))
            yield from _spoken_times(text)


def _spoken(word: str) -> Iterator[str]:
    """Yield other ways to write a number or a weekday."""
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
        except ValueError:  # no date of the calendar
            continue
    for hour, minute in _CLOCK.findall(text):
        short = str(int(hour) % 12 or 12)
        yield from (hour, minute, short, f"{short}:{minute}", *_spoken(short))
        if minute == "30":
            yield from ("반", "half")


def _forms(words: Iterable[str]) -> Iterator[str]:
    """Yield words, and beginnings by which other forms of them are recognised."""
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
    begins = (word[:n] for n in range(least, len(word)))
    cut = word[: max(least, len(word) - 3)] if len(word) > least + 1 else word
    return word in forms or f"{cut}*" in forms or any(each in forms for each in begins)


def _stem(word: str) -> int:
    return 4 if word.isascii() else 2


def _number(word: str) -> str:
    return word.replace(",", "").lstrip("0") or "0"
