"""Sequences to batches of token ids that share their beginning. Pure: no torch in here.

All sequences of a group begin with the same instructions and tools. That prefix is computed once a
step (see `lora`), so a batch is the common prefix and what each row has after it.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from lhkit.errors import TuningError
from lhkit.tuning.sequence import TrainingSequence, decisive_spans

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
