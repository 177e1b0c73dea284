"""Korean particles that fit the word before them, as format specifications. Pure.

`"{word:을}".format(word=Word("물"))` is 물을; a leading `q` puts the word in quotes.
"""

import re

_AFTER_VOWEL = {
    "을": "를",
    "이": "가",
    "은": "는",
    "과": "와",
    "이랑": "랑",
    "으로": "로",
    "이에요": "예요",
    "이요": "요",
    "이라": "라",
    "이라는": "라는",
    "이고": "고",
    "이었어요": "였어요",
    "이었어": "였어",
    "이야": "야",
    "이거든": "거든",
}
_DIGITS_WITH_FINAL = frozenset("013678")
_DIGITS_WITH_L = frozenset("178")
_FINAL_L = 8
_BRACKETED = re.compile(r"\([^()]*\)\W*$")


class Word(str):
    """A text that a template can put a particle after."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        """Return the text with quotes (`q`) and the particle that `spec` names."""
        quoted, particle = spec.startswith("q"), spec.removeprefix("q")
        plain = "".join(self)  # not str(self): formatting that would come back here
        return (f"'{plain}'" if quoted else plain) + particle_after(plain, particle)


def particle_after(word: str, particle: str) -> str:
    """Return the form of `particle` (written as after a consonant) that fits `word`."""
    vowel_form = _AFTER_VOWEL.get(particle)
    if vowel_form is None:
        return particle
    spoken = re.sub(r"\W+$", "", _BRACKETED.sub("", word)) or word
    final = _final(spoken[-1:].casefold())
    is_vowel = final == 0 or (particle == "으로" and final == _FINAL_L)
    return vowel_form if is_vowel else particle


def _final(letter: str) -> int:
    """Return 0 for a letter that is spoken with an open end; 8 is ㄹ."""
    if "가" <= letter <= "힣":
        return (ord(letter) - ord("가")) % 28
    if letter.isdigit():
        return _FINAL_L if letter in _DIGITS_WITH_L else int(letter in _DIGITS_WITH_FINAL)
    return {"l": _FINAL_L, "r": 0, "m": 1, "n": 1}.get(letter, 0)
