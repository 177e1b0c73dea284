"""How much the wording of a reply is like that of claims of a deed: a learned score. Pure.

A linear model over the words of a reply and of the user's line before it, with what happened as
marks. It never judges alone: `claims` asks it where its rules are in doubt. The weights, a byte
each, stand in `wording.bin`; `evals/claims_wording.py` learns them from the labelled replies.
"""

import re
import unicodedata
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

SIZE = 1 << 16
"""How many weights there are: a feature's is found by its hash."""
SCALE = 32.0
"""Steps of a weight of 1."""
_MOST = 2_000

_TOKEN = re.compile(r"[a-z]+(?:'[a-z]+)?|[가-힣]+|\d+(?::\d+)?|\S")
_PICTURE = re.compile(r"[\u2190-\u2bff\U0001f000-\U0001faff]+")
_MARKUP = re.compile(r"\*\*|__|`|\ufe0f")
_QUOTES = str.maketrans("’‘“”«»", '\'\'""""')


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyWording:
    """A reply, the user's line before it, and what happened: as marks, and as words that it names.

    `named`: words that stand for one thing each, as what was written, by the mark they get. A mark
    in capitals may change what a word of the reply says.
    """

    reply: str
    said: str
    marks: frozenset[str]
    named: Mapping[str, Collection[str]]

    @property
    def score(self) -> float:
        """How much it reads like a false claim: above 0 more like one than not."""
        return weighed(self.features(), "wording")

    def features(self) -> Iterator[tuple[int, float]]:
        """Yield the place of each feature's weight, and its value."""
        bare = _tokens(self.reply)
        words = [_masked(each, self.named) for each in bare]
        told = {*_runs(words), *_ends(words), *(f"1 {each}" for each in bare)}
        yield _place("", 0), 1.0
        value = 5 / (len(told) + 1) ** 0.5
        for each in sorted(told):
            yield _place(each, 1), value
        short = [each for each in sorted(told) if each[:2] in _CROSSED]
        signs = sorted(self.marks)
        for n, sign in enumerate(signs):
            yield _place(sign, 2), 0.4
            yield from ((_place(f"{sign}|{other}", 3), 0.3) for other in signs[n + 1 :])
            if sign.isupper():
                seed = zlib.crc32(sign.encode())
                yield from ((_place(each, seed), value * 0.4) for each in short)
        asked = {*_asked(_tokens(self.said))}
        for each in sorted(asked):
            yield _place(each, 4), 2 / (len(asked) + 1) ** 0.5


def weighed(features: Iterable[tuple[int, float]], name: str) -> float:
    """Return the sum of some features by the weights of a file beside this one."""
    weights = weights_of(name)
    total = 0.0
    for place, value in features:
        byte = weights[place]
        total += value * (byte - 256 if byte > 127 else byte)  # noqa: PLR2004 - two's complement
    return total / SCALE


@cache
def weights_of(name: str) -> bytes:
    """Return the weights of a file beside this one, a byte each."""
    return zlib.decompress(resources.files(__package__).joinpath(f"{name}.bin").read_bytes())


_CROSSED = frozenset({"1 ", "2 ", "< ", "> "})


def place_of(feature: str, seed: int, size: int) -> int:
    """Return where the weight of a feature stands among so many."""
    return zlib.crc32(feature.encode(errors="surrogatepass"), seed) % size


def _place(feature: str, seed: int) -> int:
    return place_of(feature, seed, SIZE)


def _tokens(text: str) -> list[str]:
    plain = unicodedata.normalize("NFC", text[:_MOST]).casefold().translate(_QUOTES)
    return _TOKEN.findall(_PICTURE.sub(" ☺ ", _MARKUP.sub("", plain)))


def _masked(word: str, named: Mapping[str, Collection[str]]) -> str:
    if len(word) > 1:
        for mark, names in named.items():
            if any(word.startswith(each) and len(word) - len(each) <= _ENDING for each in names):
                return mark
    return "#" if word[0].isdigit() else word


_ENDING = 3


def _runs(words: Sequence[str]) -> Iterator[str]:
    """Yield words, pairs, triples, and pairs with one between; the first and the last two."""
    row = ["^", *words, "$"]
    for n, word in enumerate(row):
        yield f"1 {word}"
        if n >= 1:
            yield f"2 {row[n - 1]} {word}"
        if n >= 2:  # noqa: PLR2004
            yield f"3 {row[n - 2]} {row[n - 1]} {word}"
            yield f"4 {row[n - 2]} {word}"
    spoken = [each for each in words if re.search(r"\w", each)]
    yield f"< {' '.join(words[:2])}"
    yield f"> {' '.join(spoken[-2:])}"


def _ends(words: Sequence[str]) -> Iterator[str]:
    """Yield how words end, and for Korean all parts of them, where tense and mood stand."""
    ends = [each[-2:] if each >= _HANGUL else each for each in words]
    for n in range(1, len(ends)):
        yield f"5 {ends[n - 1]} {ends[n]}"
        if n >= 2:  # noqa: PLR2004
            yield f"6 {ends[n - 2]} {ends[n - 1]} {ends[n]}"
    for word in words:
        if word >= _HANGUL:
            whole = f"^{word}$"
            for length in range(2, 6):
                for n in range(len(whole) - length + 1):
                    yield f"7 {whole[n : n + length]}"
        elif len(word) > _ENDING:
            yield f"8 {word[-2:]}"
            yield f"8 {word[-3:]}"


_HANGUL = "가"


def _asked(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        yield f"1 {word}"
    if words:
        yield f"< {' '.join(words[:2])}"
        yield f"> {words[-1]}"
        for length in (1, 2, 3):
            yield f"> {words[-1][-length:]}"
