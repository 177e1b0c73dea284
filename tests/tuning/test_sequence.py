from pathlib import Path

import pytest

from lhkit.errors import TuningError
from lhkit.tuning.data import (
    Exchange,
    TrainingSequence,
    data_sha256,
    decisive_spans,
    opening,
    read_sequences,
    sequences_of,
    write_sequences,
)

CHAINED = [
    Exchange(prompt="<bos>ask<model>", answer="call"),
    Exchange(prompt="<bos>ask<model>call<end_of_turn>result<model>", answer="말"),
]


def answers_of(sequence: TrainingSequence) -> list[str]:
    return [sequence.text[begin:end] for begin, end in sequence.answers]


def test_a_prompt_that_goes_on_becomes_one_text_with_two_answers() -> None:
    (sequence,) = sequences_of("c", "ko", "chain", CHAINED)
    assert sequence.text == "<bos>ask<model>call<end_of_turn>result<model>말<end_of_turn>"
    assert answers_of(sequence) == ["call<end_of_turn>", "말<end_of_turn>"]


def test_a_prompt_that_begins_anew_becomes_a_text_of_its_own() -> None:
    anew = [CHAINED[0], Exchange(prompt="<bos>another<model>", answer="b")]
    sequences = sequences_of("c", "ko", "chain", anew)
    assert [each.id for each in sequences] == ["c.0", "c.1"]
    assert [answers_of(each) for each in sequences] == [["call<end_of_turn>"], ["b<end_of_turn>"]]


def parts_of(*answers: str) -> TrainingSequence:
    """A sequence of a prompt and the answers, each followed by what the user or a tool says."""
    text, spans = "ask ", []
    for answer in answers:
        spans.append((len(text), len(text) + len(answer)))
        text += answer + " then "
    return TrainingSequence(
        id="c", group="ko", kind="k", text=text.removesuffix(" then "), answers=tuple(spans)
    )


def deciding(answer: str) -> list[str]:
    sequence = parts_of(answer)
    return [sequence.text[begin:end] for begin, end in decisive_spans(sequence)]


def test_the_first_letter_decides_and_of_a_call_every_value_but_no_key() -> None:
    call = '{"name": "log", "parameters": {"date":"2026-06-01","limit":3,"all":true,"t":"a \\"b"}}'
    assert deciding(call) == ["{", '"log"', '"2026-06-01"', "3", "true", '"a \\"b"']


def test_of_words_only_the_first_letter_decides() -> None:
    assert deciding('Done: "Walk", 3 days.') == ["D"]


@pytest.mark.parametrize(
    ("answers", "kept"),
    [
        (('{"a"}', '{"b"}', "words", '{"c"}'), ['{"a"}', '{"b"}']),
        (("words", '{"a"}'), ["words"]),
        (('{"a"}',), ['{"a"}']),
    ],
    ids=["calls first", "words first", "a call alone"],
)
def test_an_opening_ends_with_the_calls_before_the_first_words(
    answers: tuple[str, ...], kept: list[str]
) -> None:
    cut = opening(parts_of(*answers))
    assert answers_of(cut) == kept
    assert cut.text.endswith(kept[-1])


def test_sequences_come_back_from_their_file_as_they_were(tmp_path: Path) -> None:
    sequences = sequences_of("c", "ko", "chain", CHAINED)
    write_sequences(tmp_path / "data" / "train.jsonl", sequences)
    assert read_sequences(tmp_path / "data" / "train.jsonl") == sequences
    assert data_sha256(sequences) != data_sha256(sequences[:0])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{}", r":1: id: Field required: make it with `lhkit tune data`"),
        ("not json", r":1: line: Invalid JSON"),
        (
            '{"id":"a","group":"ko","kind":"k","text":"abc","answers":[[2,9]]}',
            r":1: answers: must be ordered spans inside the text",
        ),
        (
            '{"id":"a","group":"ko","kind":"k","text":"abc","answers":[]}',
            r":1: answers: must be ordered spans inside the text",
        ),
    ],
)
def test_a_broken_line_is_named_with_its_field(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "train.jsonl").write_text(line)
    with pytest.raises(TuningError, match=said):
        read_sequences(tmp_path / "train.jsonl")


def test_missing_and_empty_files_say_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="lhkit tune data"):
        read_sequences(tmp_path / "train.jsonl")
    (tmp_path / "train.jsonl").write_text("\n")
    with pytest.raises(TuningError, match="holds no conversation"):
        read_sequences(tmp_path / "train.jsonl")
