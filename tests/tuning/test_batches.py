import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.errors import TuningError
from lhkit.tuning.data import (
    IGNORED,
    TokenSequence,
    TrainingSequence,
    common_prefix,
    fitting,
    make_batches,
    tokenised,
)


def letters(text: str) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
    return [ord(letter) for letter in text], [(i, i + 1) for i in range(len(text))]


def pairs(text: str) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
    spans = [(i, min(i + 2, len(text))) for i in range(0, len(text), 2)]
    return [ord(text[begin]) for begin, _ in spans], spans


def row(text: str, learnt: str, group: str = "ko") -> TokenSequence:
    return TokenSequence(
        id=text,
        group=group,
        token_ids=tuple(map(ord, text)),
        learnt=tuple(mark in "xX" for mark in learnt),
        decisive=tuple(mark == "X" for mark in learnt),
    )


def sequence(text: str, *answers: tuple[int, int]) -> TrainingSequence:
    return TrainingSequence(id="s", group="ko", kind="k", text=text, answers=answers)


def test_only_what_the_model_should_write_is_learnt() -> None:
    tokens = tokenised(sequence("askANSmoreYES", (3, 6), (10, 13)), letters)
    assert "".join("x" if each else "." for each in tokens.learnt) == "...xxx....xxx"


def test_a_token_decides_if_it_touches_what_decides() -> None:
    text = 'ask{"name": "f"}.'
    tokens = tokenised(sequence(text, (3, 17)), letters)
    marks = "".join("#" if each else "." for each in tokens.decisive)
    assert marks == "...#........###.."
    assert len(marks) == len(text)


def test_a_batch_says_which_of_its_learnt_tokens_decide() -> None:
    rows = [row("aabcd", "..XxX"), row("aaef", "..xX")]
    order = random.Random(1)
    (batch,) = make_batches(rows, batch_tokens=99, rng=order)
    by_row = {"bcd": (True, False, True), "ef": (False, True)}
    names = ["".join(map(chr, tokens)).removeprefix("a") for tokens in batch.rows]
    assert batch.decisive == tuple(flag for name in names for flag in by_row[name])


def test_a_token_over_the_edge_of_an_answer_is_refused_by_name() -> None:
    with pytest.raises(
        TuningError, match=r"s: a token reaches over the edge .*\(characters .*--base"
    ):
        tokenised(sequence("askANS", (3, 6)), pairs)


def test_the_common_prefix_ends_where_rows_differ_or_before_the_token_that_predicts() -> None:
    assert common_prefix([row("aaab", "...x"), row("aaac", "...x")]) == 2
    assert common_prefix([row("aabb", "...x"), row("aacc", "...x")]) == 2
    assert common_prefix([row("abbb", "...x"), row("bbbb", "...x")]) == 0


def test_too_long_rows_are_left_out_and_named() -> None:
    kept, left_out = fitting([row("ab", ".x"), row("abcdef", ".....x")], 4)
    assert [each.id for each in kept] == ["ab"]
    assert left_out == ["abcdef"]


@given(
    lengths=st.lists(st.tuples(st.integers(3, 40), st.sampled_from(["ko", "en"])), max_size=30),
    batch_tokens=st.integers(1, 120),
    seed=st.integers(0, 5),
)
def test_an_epoch_holds_every_row_once_and_keeps_groups_apart(
    lengths: list[tuple[int, str]], batch_tokens: int, seed: int
) -> None:
    rows = [
        TokenSequence(
            id=str(i),
            group=group,
            token_ids=(1, 2, *([3 if group == "ko" else 4] * n), 100 + i),
            learnt=(*([False] * (n + 2)), True),
            decisive=(False,) * (n + 3),
        )
        for i, (n, group) in enumerate(lengths)
    ]
    order = random.Random(seed)
    batches = make_batches(rows, batch_tokens=batch_tokens, rng=order)
    whole = [batch.prefix + each for batch in batches for each in batch.rows]
    assert sorted(whole) == sorted(each.token_ids for each in rows)
    for batch in batches:
        assert len({each[0] for each in batch.rows}) == 1
        assert len(batch.rows) == 1 or sum(map(len, batch.rows)) <= batch_tokens
        for tokens, labels in zip(batch.rows, batch.labels, strict=True):
            assert labels == (*([IGNORED] * (len(tokens) - 1)), tokens[-1])


def test_long_and_short_rows_lie_mixed_so_that_no_kind_has_batches_of_its_own() -> None:
    small_talk = [row("a" + "s" * 10, ".........xx") for _ in range(50)]
    tasks = [row("a" + "t" * 90, "." * 89 + "xx") for _ in range(50)]
    rng = random.Random(4)
    batches = make_batches([*small_talk, *tasks], batch_tokens=1_000, rng=rng)
    of_both = [batch for batch in batches if len(set(map(len, batch.rows))) == 2]
    assert len(of_both) >= len(batches) - 1 > 3


def test_the_same_seed_gives_the_same_order_and_another_seed_another() -> None:
    rows = [row(f"a{letter}z", "..x") for letter in "bcdefghijk"]
    one, again, other = (
        make_batches(rows, batch_tokens=4, rng=random.Random(seed)) for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other
