"""The ids that a call names, and where they occur in texts. Pure."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from lhkit.harness.record import CallRecord
from lhkit.tools.schema import nfc

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
"""Thai, Lao, Burmese, Khmer, kana, Han: words follow each other without spaces."""

_KOREAN = "\u3131-\u318e\uac00-\ud7a3"
_PARTICLES = (
    "(?:으로|에서|에게|한테|께서|부터|까지|처럼|보다|마다|조차|밖에|이라도|라도|이라는|라는|이라고|라고|"
    "이랑|랑|하고|이나|나|이란|란|입니다|이에요|예요|이야|야|이고|고|이며|며|인데|인|요|님|"
    "을|를|이|가|은|는|의|에|도|만|와|과|로){1,4}(?![가-힣A-Za-z0-9_-])"
)
"""What may follow a Korean noun without a space, up to four in a row (에서는, 까지만은요)."""

_ID_NAME = re.compile(r"(?i:(?:^|_)ids?)$|[a-z0-9]I[dD]s?$")


@lru_cache(maxsize=4096)
def whole_id(value: str) -> re.Pattern[str]:
    """Return a pattern that finds an id in NFC as a whole word.

    A letter, digit, `_` or `-` beside it makes it part of a longer word, in any script, except:
    Korean beside another script (a space is rarely written in 내note-3을), a Korean particle
    behind an id that ends in Korean (물마시기를, but not 물마시기운동), and scripts without spaces.
    A number is no part of a longer one or of a time (3 is not in 3.5, 30 not in 09:30).
    """
    apart = _UNSPACED if re.match(f"[{_KOREAN}]", value) else _UNSPACED + _KOREAN
    before = rf"(?<![^\W{apart}])(?<!-)" + (r"(?<!\d[.:])" if value[0].isdigit() else "")
    after = rf"(?![^\W{_UNSPACED}{_KOREAN}])(?!-)" + (r"(?![.:]\d)" if value[-1].isdigit() else "")
    if re.match(f"[{_KOREAN}]", value[-1]):
        after += f"(?:(?![{_KOREAN}])|(?={_PARTICLES}))"
    return re.compile(before + re.escape(value) + after)


def ids_of(call: CallRecord) -> Iterator[tuple[str, str]]:
    """Yield the arguments that name things: `id`, `note_id`, `noteId`; of lists (`ids`) each one.

    An id is a text or an integer.
    """
    args = call.raw_args if isinstance(call.raw_args, Mapping) else {}
    for name, value in args.items():
        if isinstance(name, str) and _ID_NAME.search(name):
            for item in value if isinstance(value, list | tuple) else (value,):
                if text := _id_text(item):
                    yield name, text


def _id_text(value: Any) -> str:
    """Return an id as it is written in texts; nothing for what is no id."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return ""
    try:
        return nfc(str(value))
    except ValueError:  # an integer of more than 4,300 digits
        return ""


def words_of(value: Any) -> str:
    """Return all texts and ids in plain data, each on its own line, in NFC.

    Not as JSON text: there a line end is a backslash and an n, which joins the word behind it.
    """
    words: list[str] = []
    _add_words(value, words)
    return nfc("\n".join(words))


def _add_words(value: Any, words: list[str]) -> None:
    if isinstance(value, str):
        words.append(value)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            _add_words(name, words)
            _add_words(inner, words)
    elif isinstance(value, list | tuple):
        for inner in value:
            _add_words(inner, words)
    elif text := _id_text(value):
        words.append(text)
