"""The ids that a call names, and where they stand in texts. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lhkit.harness.record import CallRecord
from lhkit.tools.schema import nfc


def id_places(value: str, text: str) -> Iterator[int]:
    """Yield where an id stands in a text as a whole word; both in NFC.

    A letter, digit, `_` or `-` beside it makes it part of a longer word, in any script, except:
    Korean beside another script (nobody writes a space in 내habit-3을), a Korean particle behind an
    id that ends in Korean (물마시기를, but not 물마시기운동), and scripts without spaces. A number
    is no part of a longer one or of a time (3 is not in 3.5, 30 not in 09:30).
    """
    at = text.find(value)
    while at >= 0:
        before = text[max(0, at - 2) : at]
        if not (_joins_before(value[0], before) or _joins_after(value, text, at + len(value))):
            yield at
        at = text.find(value, at + 1)


def _joins_before(first: str, before: str) -> bool:
    if first.isdigit() and before[-1:] in _IN_NUMBERS and before[:-1].isdigit():
        return True
    return _is_word(before[-1:]) and (not _is_korean(before[-1:]) or _is_korean(first))


def _joins_after(value: str, text: str, end: int) -> bool:
    following = text[end : end + 1]
    if value[-1].isdigit() and following in _IN_NUMBERS and text[end + 1 : end + 2].isdigit():
        return True
    if not _is_word(following) or not _is_korean(following):
        return _is_word(following)
    return _is_korean(value[-1]) and _PARTICLES.match(text, end) is None


_IN_NUMBERS = (".", ":")


def _is_word(char: str) -> bool:
    """Return True for a letter, digit, `_` or `-` of a script that writes spaces."""
    return bool(char) and (char.isalnum() or char in "_-") and _UNSPACED.match(char) is None


def _is_korean(char: str) -> bool:
    return "\uac00" <= char <= "\ud7a3" or "\u3131" <= char <= "\u318e"


_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""Thai, Lao, Burmese, Khmer, kana, Han: words follow each other without spaces."""

_PARTICLES = re.compile(
    "(?:으로|에서|에게|한테|께서|부터|까지|처럼|보다|마다|조차|밖에|이라도|라도|이라는|라는|이라고|라고|"
    "이랑|랑|하고|이나|나|이란|란|입니다|이에요|예요|이야|야|이고|고|이며|며|인데|인|요|님|"
    "을|를|이|가|은|는|의|에|도|만|와|과|로){1,4}(?![가-힣A-Za-z0-9_-])"
)
"""What may follow a Korean noun without a space, up to four in a row (에서는, 까지만은요)."""

_ID_NAME = re.compile(r"(?i:(?:^|_)ids?)$|[a-z0-9]I[dD]s?$")


def ids_of(call: CallRecord) -> Iterator[tuple[str, str]]:
    """Yield the arguments that name things: `id`, `note_id`, `noteId`; of lists (`ids`) each one.

    An id is a text or an integer.
    """
    args = call.raw_args if isinstance(call.raw_args, Mapping) else {}
    for name, value in args.items():
        if isinstance(name, str) and _ID_NAME.search(name):
            for each in value if isinstance(value, list | tuple) else (value,):
                if told := _id_text(each):
                    yield name, told


def _id_text(value: Any) -> str:
    """Return an id as it stands in texts; nothing for what is no id."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return ""
    try:
        return nfc(str(value))
    except ValueError:  # an integer of more than 4,300 digits
        return ""


def without_id(value: str, text: str) -> str:
    """Return a text without the places where an id stands."""
    kept, end = [], 0
    for at in id_places(value, text):
        kept.append(text[end:at])
        end = max(end, at + len(value))
    return "".join([*kept, text[end:]])


def words_of(value: Any) -> str:
    """Return all that stands in plain data, each on its own line, in NFC.

    Not as JSON text: there a line end is a backslash and an n, which joins the word behind it.
    """
    words: list[str] = []
    _note_words(value, words)
    return nfc("\n".join(words))


def _note_words(value: Any, words: list[str]) -> None:
    if isinstance(value, str):
        words.append(value)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            _note_words(name, words)
            _note_words(each, words)
    elif isinstance(value, list | tuple):
        for each in value:
            _note_words(each, words)
    elif told := _id_text(value):
        words.append(told)
