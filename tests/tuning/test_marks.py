"""Data of another dialect is refused before it is learnt as plain text."""

import re
from collections.abc import Sequence

import pytest

from lhkit.errors import TuningError
from lhkit.tuning.data import Encode, Exchange, TrainingSequence, require_marks, sequences_of

KNOWN = {"<bos>": 1, "<start_of_turn>": 2, "<end_of_turn>": 3}


def encode(text: str) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
    pieces = [text] if text in KNOWN else re.findall(r".", text)
    return [KNOWN.get(piece, 9) for piece in pieces], [(0, 0)] * len(pieces)


def whole_words(text: str) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
    return [KNOWN.get(text, 0)], [(0, len(text))]


def spoken(prompt: str, answer: str) -> tuple[TrainingSequence, ...]:
    return sequences_of("talk", "en", "demo", [Exchange(prompt=prompt, answer=answer)])


def test_marks_that_are_tokens_pass_whatever_users_wrote_in_between() -> None:
    prompt = "<bos><start_of_turn>user\n<|turn> <b>\n<start_of_turn>model\n"
    require_marks(spoken(prompt, '{"name": "<b>"}'), encode, "tokenizer.json")


@pytest.mark.parametrize("tokens", [encode, whole_words])
@pytest.mark.parametrize(
    ("prompt", "answer", "mark"),
    [
        ("<bos><|turn>user\nhello", "yes", "<|turn>"),
        ("<bos><start_of_turn>user\n", "<start_function_call>call:f{}", "<start_function_call>"),
    ],
)
def test_a_mark_that_the_tokenizer_does_not_have_is_named(
    prompt: str, answer: str, mark: str, tokens: Encode
) -> None:
    ending = re.escape(f"talk.0: {mark} is no token of tokenizer.json: the data was made for")
    with pytest.raises(TuningError, match=ending):
        require_marks(spoken(prompt, answer), tokens, "tokenizer.json")


def test_an_end_mark_that_the_tokenizer_cuts_into_pieces_is_named() -> None:
    def other_family(text: str) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
        return encode(text.replace("end_of", "end of"))

    with pytest.raises(TuningError, match=r"talk\.0: <end_of_turn> is no token"):
        require_marks(spoken("<bos><start_of_turn>user\n", "yes"), other_family, "tokenizer.json")
