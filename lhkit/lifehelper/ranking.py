"""Score protocols against a search query, without database access.

Korean inflects words and attaches particles, so words are compared by prefix. Text is folded
(NFKC, case, then canonical decomposition into jamo) and a query word scores by the longest prefix
that starts a word of the field: `카페인을` matches `카페인`, `줄여` matches `줄이기` (common prefix
ㅈㅜㄹㅇ). The field `joined` matches words that the query writes without spaces.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from math import ceil, log

from lhkit.lifehelper.catalog import Protocol

INDEX_VERSION = 1
"""Increment it when the folding or the fields change: stores then rebuild their index."""

CATEGORY_LABELS: Mapping[str, str] = {
    "sleep": "수면 잠 불면 숙면",
    "light": "빛 햇빛 조명",
    "movement": "운동 움직임 신체활동 exercise fitness",
    "nutrition": "식사 음식 영양 식습관 food eating diet",
    "focus": "집중 몰입 업무 공부 work study",
    "stress": "스트레스 마음 불안 긴장 mood mind",
    "hydration": "수분 물 water",
    "digital": "디지털 스마트폰 휴대폰 핸드폰 화면 phone screen",
}
"""Synonyms of a category; one without a row is found by its name only."""

CUTOFF = 0.25
"""A hit below this share of the best score is dropped."""

MIN_PREFIX = 3  # folded characters: one closed syllable (잠), or three letters
MIN_INSIDE = 4  # a match inside a word needs more evidence than one at its start
MIN_SHARE = 0.4  # of a word, for a prefix to count
MIN_SHARE_OPEN = 0.65  # within a syllable: 마셔 matches 마시기, 주식 does not match 주스

_WORD = re.compile(r"[^\W_]+")
_PARTICLES = tuple("이가을를은는에도만의로와과")
_KEYWORD_EXACT = 2.0
_PREFIX_OF_SYLLABLE = 0.4


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ENDINGS = _word_set(
    "이 가 을 를 은 는 에 도 만 의 로 와 과 고 기 어 아 자 지 면 던 음 며 서 다 네 니 게 요 는데 "
    "어요 아요 어서 아서 으면 으로 에서 려고 으려고 고요 기도 지만 하고 하기 하는 해요 습니다"
)
"""Particles and endings: 걷고 matches 걷기 by 걷, but 영화 does not match 영양 by 영."""

_FILLERS = _word_set(
    "나 내 제 저 난 전 것 거 게 수 때 좀 안 못 더 잘 꼭 또 뭐 뭐가 하고 하는 하기 해 해요 와 와요 "
    "있어 있는 있나 있을까 되는 돼 좋은 좋을까 너무 자꾸 요즘 위해 위한 대한 어떤 어떻게 "
    "a am an and any are can do for get good have help how i in is it me more my need of on or "
    "not no please s some t that the to want what with"
)
_FILLER_STARTS = tuple(
    _word_set("싶 추천 알려 찾아 보여 관련 습관 프로토콜 방법 도와 도움 habit protocol")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """The folded text of one protocol in all languages: a row of the search index."""

    keywords: str
    titles: str
    labels: str
    summaries: str
    steps: str
    joined: str

    def values(self) -> tuple[str, ...]:
        """Return the fields in the order of the table's columns."""
        return astuple(self)


_WEIGHTS: Mapping[str, float] = {
    "keywords": 4.0,
    "titles": 3.0,
    "labels": 4.0,
    "summaries": 1.5,
    "steps": 0.7,
}
_JOINED_WEIGHT = 1.5


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A folded query word and, if it is short, its form without the particle."""

    forms: tuple[str, ...]


def index_row(protocol: Protocol) -> IndexRow:
    """Return the index row of `protocol`."""
    texts = tuple(protocol.texts.values())
    titles = [text.title for text in texts]
    labels = f"{protocol.category} {CATEGORY_LABELS.get(protocol.category, '')}"
    return IndexRow(
        keywords="|" + "|".join(map(_spaced, protocol.keywords)) + "|",
        titles=_spaced(" ".join(titles)),
        labels=_spaced(labels),
        summaries=_spaced(" ".join(text.summary for text in texts)),
        steps=_spaced(" ".join(step for text in texts for step in text.steps)),
        joined="|".join(_folded("".join(_words(name))) for name in (*titles, *protocol.keywords)),
    )


def query_words(query: str) -> tuple[QueryWord, ...]:
    """Return the words of `query` without fillers."""
    words = [
        word
        for word in _words(query)
        if word not in _FILLERS and not word.startswith(_FILLER_STARTS)
    ]
    return tuple(QueryWord(_forms(word)) for word in words)


def has_words(query: str) -> bool:
    """Return whether `query` contains any letter or digit."""
    return bool(_words(query))


def required_texts(word: QueryWord) -> tuple[str, ...]:
    """Return texts such that every row that `word` matches contains at least one of them."""
    return tuple(
        f" {form}" if _is_short(form) else form[: _shortest_prefix(form)] for form in word.forms
    )


def rank_rows(
    words: Sequence[QueryWord], rows: Mapping[str, IndexRow], total: int
) -> tuple[tuple[str, float], ...]:
    """Return (id, score) of the matching rows, best first; equal scores in order of id.

    Args:
        words: from `query_words`.
        rows: candidates by protocol id; must include every matching row.
        total: size of the catalog, for the weight of a word: ln(1 + total / matching rows).
    """
    scores = dict.fromkeys(rows, 0.0)
    for word in words:
        matches = {
            key: max(_form_score(form, row) for form in word.forms) for key, row in rows.items()
        }
        matching = sum(score > 0 for score in matches.values())
        rarity = log(1 + total / matching) if matching else 0.0
        for key, score in matches.items():
            scores[key] += score * rarity
    best = max(scores.values(), default=0.0)
    hits = [(key, round(score, 6)) for key, score in scores.items() if score > best * CUTOFF]
    return tuple(sorted(hits, key=lambda hit: (-hit[1], hit[0])))


def _form_score(form: str, row: IndexRow) -> float:
    starts = _start_patterns(form)
    score = sum(
        weight * _best_quality(starts, getattr(row, field)) for field, weight in _WEIGHTS.items()
    )
    if f"| {form} |" in row.keywords:
        score += _KEYWORD_EXACT
    return score + _JOINED_WEIGHT * _best_quality(_inside_patterns(form), row.joined)


def _best_quality(patterns: tuple[tuple[str, float], ...], field: str) -> float:
    """Return the quality (0 to 1) of the first pattern that `field` contains."""
    return next((quality for text, quality in patterns if text in field), 0.0)


@lru_cache(maxsize=1_024)  # every query word is compared with every field of every protocol
def _start_patterns(form: str) -> tuple[tuple[str, float], ...]:
    """Return (text to find at the start of a word, quality) for the prefixes, best first."""
    if not _is_short(form):
        return tuple((f" {prefix}", quality) for prefix, quality in _prefixes(form))
    endings = ("", *_PARTICLES) if _is_hangul(form) else ("",)
    whole = tuple((f" {form}{_folded(ending)} ", 1.0) for ending in endings)
    return (*whole, (f" {form}", _PREFIX_OF_SYLLABLE)) if len(form) >= MIN_PREFIX else whole


@lru_cache(maxsize=1_024)
def _inside_patterns(form: str) -> tuple[tuple[str, float], ...]:
    """Return (text to find anywhere, quality): Korean words inside others or without spaces."""
    if _is_short(form) or not _is_hangul(form):
        return ()
    return tuple(pair for pair in _prefixes(form) if len(pair[0]) >= MIN_INSIDE)


def _prefixes(form: str) -> Iterator[tuple[str, float]]:
    """Yield (prefix of `form`, quality), longest first.

    Dropping an ending or a particle costs nothing; other prefixes score the cube of their share.
    A single syllable counts only before an ending.
    """
    for length in range(len(form), _shortest_prefix(form) - 1, -1):
        prefix, rest = form[:length], form[length:]
        share = length / len(form)
        if "\u1160" <= rest[:1] <= "\u11ff":  # a vowel or a final: the cut splits a syllable
            if share >= MIN_SHARE_OPEN:
                yield prefix, share**3
        elif not rest or _composed(rest) in _ENDINGS:
            yield prefix, 1.0
        elif not (_is_hangul(prefix) and _is_short(prefix)):
            yield prefix, share**3


def _shortest_prefix(form: str) -> int:
    return max(MIN_PREFIX, ceil(len(form) * MIN_SHARE))


def _is_short(form: str) -> bool:
    return len(form) < MIN_PREFIX or len(_composed(form)) == 1


def _composed(folded: str) -> str:
    return unicodedata.normalize("NFC", folded)


def _is_hangul(form: str) -> bool:
    return "\u1100" <= form[0] <= "\u11ff"


def _forms(word: str) -> tuple[str, ...]:
    stem = word[:-1]
    has_particle = len(stem) == 1 and word.endswith(_PARTICLES) and _is_hangul(_folded(stem))
    return (_folded(word), _folded(stem)) if has_particle else (_folded(word),)


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _folded(word: str) -> str:
    return unicodedata.normalize("NFD", word)


def _spaced(text: str) -> str:
    return f" {_folded(' '.join(_words(text)))} "
