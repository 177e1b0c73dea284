"""What a training takes is estimated before it starts, on the safe side."""

import json
import platform
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from lhkit.errors import TuningError
from lhkit.tuning.data import IGNORED, Batch
from lhkit.tuning.train import (
    BaseShape,
    Machine,
    base_shape,
    give_back_memory,
    require_memory,
    require_room,
    this_machine,
)

GEMMA_270M = BaseShape(
    layers=18,
    width=640,
    inner_width=2048,
    query_width=4 * 256,
    key_width=256,
    vocabulary=262_144,
    weights_bytes=536_000_000,
)
IN_FLOAT32 = replace(GEMMA_270M, weights_bytes=2 * GEMMA_270M.weights_bytes, dtype="float32")
ROOMY = Machine(memory_bytes=2**40, disk_bytes=2**40)


def batch(prefix: int, rows: int, length: int, learnt: int) -> Batch:
    a_row = learnt // rows
    labels = (7,) * a_row + (IGNORED,) * (length - a_row)
    return Batch(
        prefix=tuple(range(prefix)),
        rows=((7,) * length,) * rows,
        labels=(labels,) * rows,
        decisive=(False,) * a_row * rows,
    )


def test_an_adapter_of_rank_16_on_the_embedded_gemma_has_3_8_million_numbers() -> None:
    assert GEMMA_270M.adapter_parameters(16) == 3_796_992  # as peft counts them


@pytest.mark.parametrize(
    ("shape", "bfloat16_mb", "float32_mb"),
    [
        ((1300, 1, 64, 16), 2320, 4028),
        ((1300, 12, 256, 96), 5493, 9396),
        ((1300, 12, 256, 720), 7359, 11276),
        ((0, 2, 1500, 720), 5899, 9048),
    ],
)
def test_the_estimate_lies_above_what_a_step_was_measured_to_take_and_not_far(
    shape: tuple[int, int, int, int], bfloat16_mb: int, float32_mb: int
) -> None:
    for model, measured_mb in ((GEMMA_270M, bfloat16_mb), (IN_FLOAT32, float32_mb)):
        estimate = model.peak_bytes(batch(*shape), rank=16)
        assert measured_mb * 2**20 < estimate < 1.35 * measured_mb * 2**20


def test_a_step_of_the_default_settings_stays_below_the_promised_12_gib() -> None:
    largest = batch(prefix=907, rows=8, length=375, learnt=1200)  # of life-helper's data
    assert GEMMA_270M.peak_bytes(largest, rank=32) < 12 * 2**30


def test_too_little_memory_says_what_to_lower() -> None:
    small, large = batch(10, 1, 20, 5), batch(1300, 12, 256, 720)
    poor = Machine(memory_bytes=4 * 2**30, disk_bytes=2**40)
    assert require_memory(GEMMA_270M, [small], batch_tokens=20, rank=16, machine=poor) < 2**31
    sentence = (
        r"^too little memory: a step of 3072 tokens takes about 7\.\d GiB and 4\.0 GiB are free: "
        "lower --batch-tokens, or end other programs$"
    )
    with pytest.raises(TuningError, match=sentence):
        require_memory(GEMMA_270M, [small, large], batch_tokens=3072, rank=16, machine=poor)
    with pytest.raises(TuningError, match=r"lower --batch-tokens, give --dtype bfloat16, or end"):
        require_memory(IN_FLOAT32, [large], batch_tokens=3072, rank=16, machine=poor)


def test_too_little_room_on_the_disk_names_the_folder(tmp_path: Path) -> None:
    require_room(GEMMA_270M, rank=16, folder=tmp_path, machine=ROOMY)
    full = Machine(memory_bytes=2**40, disk_bytes=100_000_000)
    with pytest.raises(TuningError, match=r"takes? \d+ MB in .*, which has 100 MB: free some"):
        require_room(GEMMA_270M, rank=16, folder=tmp_path, machine=full)


def test_this_machine_is_looked_at_even_where_the_folder_is_not_there_yet(tmp_path: Path) -> None:
    machine = this_machine(tmp_path / "not" / "there")
    assert machine.memory_bytes > 0
    assert machine.disk_bytes > 0


def test_the_shape_of_a_base_is_read_from_its_configuration(tiny_gemma: Path) -> None:
    shape = base_shape(tiny_gemma)
    assert (shape.layers, shape.query_width, shape.key_width) == (6, 32, 8)
    stored_bytes = (tiny_gemma / "model.safetensors").stat().st_size  # in float32
    assert shape.weights_bytes == stored_bytes // 2
    assert base_shape(tiny_gemma, "float32").weights_bytes == stored_bytes


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "holds no base model to tune: .* --base"),
        ("{", "is no configuration of a Gemma .* --base"),
        ("[]", "is no configuration of a Gemma"),
        (json.dumps({"model_type": "bert"}), "is no configuration of a Gemma"),
    ],
)
def test_a_folder_that_is_no_gemma_is_one_sentence(
    tmp_path: Path, text: str | None, sentence: str
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(TuningError, match=sentence):
        base_shape(tmp_path)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="heaps elsewhere are not ours to trim"
)
def test_memory_between_the_holes_of_a_heap_is_given_back() -> None:
    def held() -> int:
        return psutil.Process().memory_info().rss

    pieces = [bytearray(64_000) for _ in range(3_000)]  # small enough to lie in the heap
    pins = pieces[::100]
    pieces.clear()
    full = held()
    give_back_memory(100 * full)
    assert held() > 0.9 * full
    give_back_memory(0)
    assert held() < full - 50_000_000
    assert len(pins) == 30
