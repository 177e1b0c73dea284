"""What a model learns from: a whole conversation as text, and which parts of it the model wrote.

Pure values and their file. Where conversations come from is `simulation`'s business, tokens are
`batches`'.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lhkit.errors import TuningError

END_OF_ANSWER = "<end_of_turn>"

_CALL = "{"
_ATOM = re.compile(r'"(?:[^"\\]|\\.)*"(?P<colon>\s*:)?|-?\d[\d.]*|true|false|null')
"""A string, number or constant in JSON; a string before a colon is a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request to the model and what it answers, without the end-of-turn mark.

    What is not to be learnt stands in the text all the same, as history.
    """

    prompt: str
    answer: str
    is_learnt: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSequence:
    """One text to learn. `answers` are half-open character spans that the model should write.

    Sequences of one `group` begin alike (same language, same tools); `kind` says what is taught.
    """

    id: str
    group: str
    kind: str
    text: str
    answers: tuple[tuple[int, int], ...]


def sequences_of(
    name: str, group: str, kind: str, exchanges: Sequence[Exchange]
) -> tuple[TrainingSequence, ...]:
    """Return a conversation's exchanges as few sequences as possible.

    Where a prompt continues the one before it (prompt, answer, end mark, more), both become one
    text with several answers; where it does not, a new sequence begins.
    """
    texts: list[tuple[str, list[tuple[int, int]]]] = []
    for exchange in exchanges:
        if not texts or not exchange.prompt.startswith(texts[-1][0]):
            texts.append(("", []))
        _, answers = texts.pop()
        begin = len(exchange.prompt)
        text = exchange.prompt + exchange.answer + END_OF_ANSWER
        learnt = [(begin, len(text))] if exchange.is_learnt else []
        texts.append((text, [*answers, *learnt]))
    return tuple(
        TrainingSequence(
            id=f"{name}.{number}", group=group, kind=kind, text=text, answers=tuple(answers)
        )
        for number, (text, answers) in enumerate(texts)
        if answers
    )


def decisive_spans(sequence: TrainingSequence) -> Iterator[tuple[int, int]]:
    """Yield the half-open character spans that decide what an answer does.

    That is its first character (a call begins with a brace, words do not), and of a call every
    value: the tool, ids, dates, texts. The rest of a call follows from the tool, and most of a
    reply is wording.
    """
    for begin, end in sequence.answers:
        yield begin, begin + 1
        answer = sequence.text[begin:end]
        if answer.startswith(_CALL):
            values = (atom for atom in _ATOM.finditer(answer) if not atom["colon"])
            yield from ((begin + value.start(), begin + value.end()) for value in values)


def opening(sequence: TrainingSequence) -> TrainingSequence:
    """Return the sequence up to its last call before the model speaks, or its first words.

    What costs most to learn from, the results that are then put into words, is left out.
    """
    calls = 0
    while calls < len(sequence.answers) and _is_call(sequence, calls):
        calls += 1
    answers = sequence.answers[: max(calls, 1)]
    return replace(sequence, text=sequence.text[: answers[-1][1]], answers=answers)


def _is_call(sequence: TrainingSequence, number: int) -> bool:
    return sequence.text.startswith(_CALL, sequence.answers[number][0])


_ADAPTER = TypeAdapter(TrainingSequence)
_ANEW = "make it with `lhkit tune data`"


def write_sequences(path: Path, sequences: Iterable[TrainingSequence]) -> None:
    """Write one JSON object a line, UTF-8; the file is there when it is whole.

    Raises:
        TuningError: the disk does not take it.
    """
    fresh = path.with_name(f"{path.name}.new")
    try:
        _write_lines(fresh, sequences)
        fresh.replace(path)
    except OSError as error:
        raise TuningError(
            f"{path} cannot be written ({error}): free some space, or give another --out"
        ) from error


def _write_lines(path: Path, sequences: Iterable[TrainingSequence]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for sequence in sequences:
            line: Any = _ADAPTER.dump_python(sequence, mode="json")
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def read_sequences(path: Path) -> tuple[TrainingSequence, ...]:
    """Return the sequences of a file.

    Raises:
        TuningError: the file cannot be read, is empty, or a line is no sequence; names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise TuningError(f"{path} cannot be read ({error}): {_ANEW}") from error
    sequences = tuple(
        _parsed(line, f"{path}:{number}") for number, line in enumerate(lines, start=1) if line
    )
    if not sequences:
        raise TuningError(f"{path} holds no conversation: {_ANEW}")
    return sequences


def _parsed(line: str, where: str) -> TrainingSequence:
    try:
        sequence = _ADAPTER.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "line"
        raise TuningError(f"{where}: {field}: {first['msg']}: {_ANEW}") from error
    ends = [edge for span in sequence.answers for edge in span]
    if not ends or ends != sorted(ends) or ends[-1] > len(sequence.text) or ends[0] < 0:
        raise TuningError(f"{where}: answers: must be ordered spans inside the text: {_ANEW}")
    return sequence


def data_sha256(sequences: Iterable[TrainingSequence]) -> str:
    """Return the hash of the data, which a checkpoint and a model card name."""
    digest = hashlib.sha256()
    for sequence in sequences:
        digest.update(_ADAPTER.dump_json(sequence) + b"\n")
    return digest.hexdigest()
