"""Conversations become sequences and batches of tokens."""

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from lhkit.errors import TuningError
from lhkit.files import write_whole

# What a model learns from: a whole conversation as text, and which parts of it the model wrote.
#
# Pure values and their file. Where conversations come from is `simulation`'s business, tokens are
# `batches`'.


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, map(_line, sequences))
    except OSError as error:
        raise TuningError(
            f"{path} cannot be written ({error}): free some space, or give another --out"
        ) from error


def _line(sequence: TrainingSequence) -> bytes:
    told: Any = _ADAPTER.dump_python(sequence, mode="json")
    return json.dumps(told, ensure_ascii=False).encode() + b"\n"


def read_sequences(path: Path) -> tuple[TrainingSequence, ...]:
    """Return the sequences of a file.

    Raises:
        TuningError: the file cannot be read, is empty, or a line is no sequence; names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
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


# Sequences to batches of token ids that share their beginning. Pure: no torch in here.
#
# All sequences of a group begin with the same instructions and tools. That prefix is computed once
# a step (see `adapter`), so a batch is the common prefix and what each row has after it.


Encode: TypeAlias = Callable[[str], tuple[Sequence[int], Sequence[tuple[int, int]]]]
"""Text to token ids and each token's half-open character span."""

IGNORED = -100
"""The label of a token that is not learnt (PyTorch's `ignore_index`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSequence:
    """A sequence as token ids. `learnt[i]` says whether the model should write token i.

    `decisive[i]` says whether it decides what the answer does (`sequence.decisive_spans`).
    """

    id: str
    group: str
    token_ids: tuple[int, ...]
    learnt: tuple[bool, ...]
    decisive: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows with one common prefix; `rows` hold the tokens after it, unpadded.

    `labels` are the rows' tokens where they are learnt and `IGNORED` elsewhere; `decisive` has
    one flag for each learnt token, row by row.
    """

    prefix: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]
    labels: tuple[tuple[int, ...], ...]
    decisive: tuple[bool, ...]


def tokenised(sequence: TrainingSequence, encode: Encode) -> TokenSequence:
    """Return a sequence's tokens.

    Raises:
        TuningError: a token reaches over the edge of an answer, so that what is learnt would not
            be what the server samples.
    """
    token_ids, spans = encode(sequence.text)
    learnt = [_inside(span, sequence) for span in spans]
    deciding = list(decisive_spans(sequence))
    return TokenSequence(
        id=sequence.id,
        group=sequence.group,
        token_ids=tuple(token_ids),
        learnt=tuple(learnt),
        decisive=tuple(
            is_learnt and any(begin < last and end > first for first, last in deciding)
            for is_learnt, (begin, end) in zip(learnt, spans, strict=True)
        ),
    )


def _inside(span: tuple[int, int], sequence: TrainingSequence) -> bool:
    begin, end = span
    for first, last in sequence.answers:
        if begin >= first and end <= last:
            return end > begin
        if begin < last and end > first:
            raise TuningError(
                f"{sequence.id}: a token reaches over the edge of an answer (characters {begin} to "
                f"{end}): the data was made for another dialect or model, so make it anew or give "
                "the --base that it was made for"
            )
    return False


def common_prefix(sequences: Sequence[TokenSequence]) -> int:
    """Return how many tokens all sequences begin with alike, none of them learnt.

    At least one token is left to each row, since the first token learnt is predicted from it.
    """
    first = sequences[0].token_ids
    length = min(_before_learnt(each) for each in sequences)
    for each in sequences[1:]:
        while each.token_ids[:length] != first[:length]:
            length = _alike(each.token_ids, first, length)
    return length


def _before_learnt(sequence: TokenSequence) -> int:
    return max(0, sequence.learnt.index(True) - 1)


def _alike(one: Sequence[int], other: Sequence[int], most: int) -> int:
    return next((i for i in range(most) if one[i] != other[i]), most)


def fitting(
    sequences: Iterable[TokenSequence], most_tokens: int
) -> tuple[list[TokenSequence], list[str]]:
    """Return the sequences of at most `most_tokens`, and the ids of those that are longer."""
    everything = list(sequences)
    kept = [each for each in everything if len(each.token_ids) <= most_tokens]
    return kept, [each.id for each in everything if len(each.token_ids) > most_tokens]


def make_batches(
    sequences: Sequence[TokenSequence], *, batch_tokens: int, rng: random.Random
) -> list[Batch]:
    """Return one epoch in random order. Long and short rows, and so all kinds, lie mixed.

    Args:
        sequences: of any groups; a batch holds one group only.
        batch_tokens: at most so many tokens after the prefix in a batch; a longer row is a batch
            of its own.
        rng: decides the order.
    """
    by_group = groupby(sorted(sequences, key=lambda each: each.group), key=lambda each: each.group)
    batches: list[Batch] = []
    for _, members in by_group:
        group = list(members)
        prefix = common_prefix(group)
        shuffled = rng.sample(group, len(group))
        batches += [_batch(rows, prefix) for rows in _chunks(shuffled, prefix, batch_tokens)]
    rng.shuffle(batches)
    return batches


def _chunks(
    ordered: Sequence[TokenSequence], prefix: int, batch_tokens: int
) -> Iterable[list[TokenSequence]]:
    rows: list[TokenSequence] = []
    held = 0
    for each in ordered:
        tokens = len(each.token_ids) - prefix
        if rows and held + tokens > batch_tokens:
            yield rows
            rows, held = [], 0
        rows.append(each)
        held += tokens
    if rows:
        yield rows


def _batch(rows: Sequence[TokenSequence], prefix: int) -> Batch:
    return Batch(
        prefix=rows[0].token_ids[:prefix],
        rows=tuple(row.token_ids[prefix:] for row in rows),
        labels=tuple(
            tuple(
                token if is_learnt else IGNORED
                for token, is_learnt in zip(
                    row.token_ids[prefix:], row.learnt[prefix:], strict=True
                )
            )
            for row in rows
        ),
        decisive=tuple(
            flag
            for row in rows
            for flag, is_learnt in zip(row.decisive[prefix:], row.learnt[prefix:], strict=True)
            if is_learnt
        ),
    )


# Whether a base's tokenizer can take the data: it has to know the marks of the data's dialect.
#
# A mark that the tokenizer cuts into pieces would be learnt as plain text, and nothing would stop
# the model's answers.


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
