"""Whether a base's tokenizer can take the data: it has to know the marks of the data's dialect.

A mark that the tokenizer cuts into pieces would be learnt as plain text, and nothing would stop
the model's answers.
"""

import re
from collections.abc import Iterable, Iterator

from lhkit.errors import TuningError
from lhkit.tuning.batches import Encode
from lhkit.tuning.sequence import TrainingSequence

_FIRST = re.compile(r"(?:<[^<>\s]+>)+")
_MARK = re.compile(r"<[^<>\s]+>")
_LAST = re.compile(r"<[^<>\s]+>$")
_NO_MARK = "<no☃mark>"


def require_marks(sequences: Iterable[TrainingSequence], encode: Encode, where: object) -> None:
    """Refuse data whose marks are no tokens.

    Marks are what stands in angle brackets where a text begins and where an answer begins or ends.

    Raises:
        TuningError: names the mark and the first sequence that has it.
    """
    unknown = tuple(encode(_NO_MARK)[0])
    known: set[str] = set()
    for sequence in sequences:
        for mark in _marks(sequence):
            if mark in known:
                continue
            token_ids = tuple(encode(mark)[0])
            if len(token_ids) != 1 or token_ids == unknown:
                raise TuningError(
                    f"{sequence.id}: {mark} is no token of {where}: the data was made for another "
                    "dialect or model, so make it anew or give the --base that it was made for"
                )
            known.add(mark)


def _marks(sequence: TrainingSequence) -> Iterator[str]:
    yield from _at_the_beginning(sequence.text)
    for begin, end in sequence.answers:
        answer = sequence.text[begin:end]
        yield from _at_the_beginning(answer)
        if last := _LAST.search(answer):
            yield last[0]


def _at_the_beginning(text: str) -> list[str]:
    first = _FIRST.match(text)
    return _MARK.findall(first[0]) if first else []
