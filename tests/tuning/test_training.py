import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lhkit.errors import TuningError
from lhkit.precision import DTYPES, Dtype, chosen
from lhkit.tuning import adapter
from lhkit.tuning.adapter import merge
from lhkit.tuning.data import IGNORED, Batch, Exchange, TrainingSequence, sequences_of
from lhkit.tuning.recipe import AdapterShape, TuneSettings
from lhkit.tuning.train import (
    BrokenCheckpoint,
    LeftOut,
    Machine,
    Material,
    Notice,
    Point,
    TrainingSurroundings,
    train,
)

PREAMBLE = " ".join(["<bos>", "<start_of_turn>", "user", *["tools"] * 20])


def learn(number: int) -> tuple[TrainingSequence, ...]:
    """One conversation: `a` and `b` are answered by `add`, the rest by `list`."""
    letter = "abcde"[number % 5]
    answer = "add" if letter in "ab" else "list"
    prompt = f"{PREAMBLE} {letter} {'c ' * (number % 3)}<end_of_turn> <start_of_turn> model "
    return sequences_of(f"c{number}", "en", "demo", [Exchange(prompt=prompt, answer=f"{answer} ")])


def material(base: Path, count: int = 30) -> Material:
    everything = [each for number in range(count) for each in learn(number)]
    return Material(train=everything[5:], dev=everything[:5], base=base)


def settings(**changes: object) -> TuneSettings:
    defaults: dict[str, object] = {
        "steps": 12,
        "batch_tokens": 60,
        "learning_rate": 0.01,
        "checkpoint_every_steps": 4,
        "dev_every_steps": 6,
    }
    return TuneSettings(**{**defaults, **changes})  # type: ignore[arg-type] - a test's table


def ticking() -> Callable[[], float]:
    return iter(range(1_000_000)).__next__


def trained(
    base: Path,
    folder: Path,
    *,
    given: Material | None = None,
    stop_after: int | None = None,
    around: TrainingSurroundings | None = None,
    **changes: object,
) -> tuple[Point, ...]:
    """Train `given`, else the usual material, into `folder`; stop after so many steps."""
    stops = iter([] if stop_after is None else [False] * (stop_after - 1) + [True])
    return train(
        given or material(base),
        settings(**changes),
        folder,
        clock=ticking(),
        progress=False,
        stop=lambda: next(stops, False),
        surroundings=around,
    )


def test_the_loss_of_packed_rows_is_the_loss_of_whole_rows(tiny_gemma: Path) -> None:
    import torch

    rng = random.Random(3)
    model = adapter.with_adapter(adapter.load_model(tiny_gemma).float(), AdapterShape(), seed=1)
    model.eval()
    prefix, *rows = (tuple(rng.randrange(4, 19) for _ in range(n)) for n in (40, 7, 30, 19))
    labels = tuple((IGNORED, *row[1:]) for row in rows)
    alone = [
        Batch(
            prefix=(),
            rows=(prefix + row,),
            labels=((IGNORED,) * len(prefix) + label,),
            decisive=(False,) * (len(row) - 1),
        )
        for row, label in zip(rows, labels, strict=True)
    ]
    flags = (False,) * sum(len(row) - 1 for row in rows)
    packed = Batch(prefix=prefix, rows=tuple(rows), labels=labels, decisive=flags)
    with torch.no_grad():
        together, count = adapter.loss_of(model, packed)
        whole = sum(float(adapter.loss_of(model, each)[0]) for each in alone)
    assert count == sum(len(row) - 1 for row in rows)
    assert float(together) == pytest.approx(whole, rel=2e-3)


def test_a_deciding_token_counts_as_often_as_it_weighs() -> None:
    import torch

    batch = Batch(
        prefix=(1,), rows=((2, 3, 4),), labels=((2, 3, 4),), decisive=(False, True, False)
    )
    losses = torch.tensor([1.0, 4.0, 1.0])
    mean = [float(adapter.weighted_mean(losses, batch, decisive_weight=each)) for each in (1, 4)]
    assert mean == pytest.approx([(1 + 4 + 1) / 3, (1 + 4 * 4 + 1) / 6])


def test_a_weight_changes_what_is_learnt_and_the_log_counts_all_tokens_alike(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    plain, weighed = (
        trained(tiny_gemma, tmp_path / str(each), steps=6, decisive_weight=each) for each in (1, 50)
    )
    assert plain[0].loss == weighed[0].loss
    assert plain[-1].loss != weighed[-1].loss


def test_training_lowers_the_loss_and_leaves_an_adapter(tiny_gemma: Path, tmp_path: Path) -> None:
    log = trained(tiny_gemma, tmp_path, steps=40, learning_rate=0.1)
    assert log[-1].loss < 0.6 * log[0].loss
    assert [point.step for point in log if point.dev_loss is not None] == [
        6,
        12,
        18,
        24,
        30,
        36,
        40,
    ]
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()


def test_a_stopped_training_goes_on_and_ends_as_if_it_had_not_been_stopped(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    whole = trained(tiny_gemma, tmp_path / "a")
    part = trained(tiny_gemma, tmp_path / "b", stop_after=7)
    assert len(part) == 7
    resumed = trained(tiny_gemma, tmp_path / "b")
    assert [point.loss for point in resumed] == pytest.approx([point.loss for point in whole])
    logged = (tmp_path / "b" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in logged] == list(range(1, 13))


def test_a_folder_of_another_training_is_refused_by_name(tiny_gemma: Path, tmp_path: Path) -> None:
    trained(tiny_gemma, tmp_path)
    with pytest.raises(TuningError, match="another settings"):
        trained(tiny_gemma, tmp_path, seed=9)
    with pytest.raises(TuningError, match="another data_sha256"):
        trained(tiny_gemma, tmp_path, given=material(tiny_gemma, 31))


@pytest.mark.parametrize(("dtype", "other"), [DTYPES, DTYPES[::-1]])
def test_a_training_computes_in_one_type_says_so_and_is_not_gone_on_with_in_another(
    tiny_gemma: Path, tmp_path: Path, dtype: Dtype, other: Dtype
) -> None:
    log = trained(tiny_gemma, tmp_path, steps=40, learning_rate=0.1, dtype=dtype)
    assert log[-1].loss < 0.6 * log[0].loss
    told = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert told["settings"]["dtype"] == dtype
    with pytest.raises(TuningError, match=rf"another settings \(dtype {dtype}, not {other}\)"):
        trained(tiny_gemma, tmp_path, steps=40, learning_rate=0.1, dtype=other)


def test_where_nobody_says_a_training_computes_in_what_this_processor_is_quick_in(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    trained(tiny_gemma, tmp_path, steps=1)
    told = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert told["settings"]["dtype"] == chosen().dtype


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has 79 GiB."),
        ("AcceleratorError", "CUDA error: out of memory\nCUDA kernel errors might be late."),
    ],
)
def test_a_full_graphics_card_is_one_sentence_and_the_same_command_goes_on(
    tiny_gemma: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, told: str
) -> None:
    """Others use a card, too: what was free in the beginning may be taken in the middle."""
    import torch

    def full(*_: object) -> None:
        error: type[Exception] = getattr(torch, named)
        raise error(told)

    whole = trained(tiny_gemma, tmp_path / "whole", steps=4)
    trained(tiny_gemma, tmp_path / "shared", steps=4, stop_after=2)
    with monkeypatch.context() as patched:
        patched.setattr(adapter, "token_losses", full)
        with pytest.raises(TuningError) as caught:
            trained(tiny_gemma, tmp_path / "shared", steps=4)
    assert "out of memory): end what else uses the card" in str(caught.value)
    assert "lower --batch-tokens" in str(caught.value)
    gone_on = trained(tiny_gemma, tmp_path / "shared", steps=4)
    assert [point.loss for point in gone_on] == [point.loss for point in whole]


@pytest.mark.parametrize("kept_bytes", [0, 100, -1])
def test_of_a_broken_checkpoint_the_one_before_is_taken_and_the_end_is_the_same(
    tiny_gemma: Path, tmp_path: Path, kept_bytes: int
) -> None:
    whole = trained(tiny_gemma, tmp_path / "a")
    trained(tiny_gemma, tmp_path / "b", stop_after=9)
    state = tmp_path / "b" / "state.pt"
    state.write_bytes(state.read_bytes()[:kept_bytes])
    told: list[Notice] = []
    mended = trained(tiny_gemma, tmp_path / "b", around=TrainingSurroundings(notify=told.append))
    assert BrokenCheckpoint(path=state, step=8) in told
    assert [point.loss for point in mended] == pytest.approx([point.loss for point in whole])


def test_a_kill_between_two_checkpoints_loses_neither(tiny_gemma: Path, tmp_path: Path) -> None:
    trained(tiny_gemma, tmp_path, stop_after=5)
    (tmp_path / "state.pt").rename(tmp_path / "state.previous.pt")
    log = trained(tiny_gemma, tmp_path)
    assert [point.step for point in log] == list(range(1, 13))


def test_where_no_checkpoint_can_be_read_the_sentence_names_both_and_the_way_out(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    trained(tiny_gemma, tmp_path, stop_after=5)
    (tmp_path / "state.pt").write_bytes(b"half a file")
    (tmp_path / "state.previous.pt").write_bytes(b"")
    sentence = (
        r"state\.pt is broken \(.*\) and .*state\.previous\.pt is broken .*: remove .* to begin"
    )
    with pytest.raises(TuningError, match=sentence):
        trained(tiny_gemma, tmp_path)


def test_with_each_checkpoint_come_a_manifest_and_the_curves(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    around = TrainingSurroundings(facts={"cores": 2}, locale="en")
    for stop_after, steps_done in ((4, 4), (None, 12)):
        trained(tiny_gemma, tmp_path, stop_after=stop_after, around=around)
        told = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
        log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
        assert told["steps_done"] == steps_done == len(log)
        assert told["learnt_tokens"] == sum(row["learnt_tokens"] for row in log)
        assert (tmp_path / "curves.svg").is_file()
        assert (tmp_path / "curves.png").is_file()
    at = {"cores": 2, "device": "cpu"}
    assert (told["base"]["name"], told["machine"]) == (tiny_gemma.name, at)
    assert (told["data"]["texts"], told["dev"]["texts"]) == (25, 5)
    assert (told["data"]["groups"], told["data"]["kinds"]) == ({"en": 25}, {"demo": 25})
    assert told["settings"]["steps"] == 12
    assert told["dev_loss"] == log[-1]["dev_loss"]
    assert told["peak_memory_bytes"] > 10**8
    assert {"torch", "transformers", "peft", "lhkit"} <= told["versions"].keys()


def test_the_finished_adapter_stands_alone_and_names_no_path_of_this_machine(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    trained(tiny_gemma, tmp_path, steps=2)
    files = {path.name: path for path in (tmp_path / "adapter").iterdir()}
    assert sorted(files) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "curves.svg",
        "manifest.json",
    ]
    assert str(tiny_gemma.parent) not in files["adapter_config.json"].read_text()
    assert str(tiny_gemma.parent) not in files["manifest.json"].read_text()
    assert tiny_gemma.name in files["adapter_config.json"].read_text()


def test_a_training_that_is_over_is_not_done_again(
    tiny_gemma: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = trained(tiny_gemma, tmp_path)
    monkeypatch.delattr(adapter, "load_model")
    again = trained(tiny_gemma, tmp_path)
    assert again == done


def test_an_adapter_without_its_manifest_is_written_again_without_training(
    tiny_gemma: Path, tmp_path: Path
) -> None:
    done = trained(tiny_gemma, tmp_path)
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    before = weights.read_bytes()
    (tmp_path / "adapter" / "manifest.json").unlink()
    again = trained(tiny_gemma, tmp_path)
    assert again == done
    assert (tmp_path / "adapter" / "manifest.json").is_file()
    assert weights.read_bytes() == before


def test_what_is_too_long_to_learn_is_told(tiny_gemma: Path, tmp_path: Path) -> None:
    told: list[Notice] = []
    trained(
        tiny_gemma,
        tmp_path,
        around=TrainingSurroundings(notify=told.append),
        steps=1,
        max_sequence_tokens=29,
    )
    (notice,) = (each for each in told if isinstance(each, LeftOut))
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    left_out = manifest["data"]["left_out"] + manifest["dev"]["left_out"]
    assert notice == LeftOut(count=left_out, most_tokens=29)
    with pytest.raises(TuningError, match=r"are longer than 5 tokens: .*--openings 1"):
        trained(tiny_gemma, tmp_path / "none", max_sequence_tokens=5)


@pytest.mark.parametrize(
    ("machine", "sentence"),
    [
        (Machine(memory_bytes=10**8, disk_bytes=10**12), "too little memory.*--batch-tokens"),
        (Machine(memory_bytes=10**12, disk_bytes=10**4), "too little room on the disk"),
    ],
)
def test_a_machine_that_is_too_small_is_told_before_the_model_is_loaded(
    tiny_gemma: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    machine: Machine,
    sentence: str,
) -> None:
    monkeypatch.delattr(adapter, "load_model")
    with pytest.raises(TuningError, match=sentence):
        trained(tiny_gemma, tmp_path / "new", around=TrainingSurroundings(machine=machine))


def test_data_of_another_dialect_is_one_sentence(tiny_gemma: Path, tmp_path: Path) -> None:
    other = sequences_of("c", "en", "x", [Exchange(prompt="<bos><|turn>user ", answer="add ")])
    with pytest.raises(TuningError, match=r"c\.0: <\|turn> is no token of .*tokenizer\.json"):
        trained(tiny_gemma, tmp_path, given=Material(train=other, dev=(), base=tiny_gemma))


def test_a_broken_tokenizer_is_one_sentence(tiny_gemma: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny_gemma, broken)
    (broken / "tokenizer.json").write_text('{"version":')
    with pytest.raises(TuningError, match=r"tokenizer\.json cannot be read .*: put the base model"):
        trained(tiny_gemma, tmp_path, given=Material(train=learn(3), dev=(), base=broken))


def test_a_merged_model_says_what_base_and_adapter_say(tiny_gemma: Path, tmp_path: Path) -> None:
    import torch
    from peft import PeftModel

    trained(tiny_gemma, tmp_path, steps=40)
    merge(tiny_gemma, tmp_path / "adapter", tmp_path / "merged")
    adapted = PeftModel.from_pretrained(adapter.load_model(tiny_gemma), tmp_path / "adapter")
    prompt = torch.tensor([adapter.encoder(tiny_gemma)(learn(0)[0].text)[0][:-2]])
    with torch.no_grad():
        one, other = (
            model(prompt).logits[0, -1].float()
            for model in (adapted, adapter.load_model(tmp_path / "merged"))
        )
    assert int(one.argmax()) == int(other.argmax())
    assert (tmp_path / "merged" / "tokenizer.json").is_file()


def test_an_adapter_for_another_base_is_one_sentence(tiny_gemma: Path, tmp_path: Path) -> None:
    import torch
    from transformers import Gemma3ForCausalLM

    trained(tiny_gemma, tmp_path, steps=2)

    other = adapter.load_model(tiny_gemma).config
    other.hidden_size = 64
    torch.manual_seed(0)
    Gemma3ForCausalLM(other).save_pretrained(tmp_path / "wider")
    with pytest.raises(TuningError, match=r"was trained on another base than .*wider"):
        merge(tmp_path / "wider", tmp_path / "adapter", tmp_path / "merged")
    (tmp_path / "adapter" / "manifest.json").unlink()  # then the shapes tell
    with pytest.raises(TuningError, match="does not fit"):
        merge(tmp_path / "wider", tmp_path / "adapter", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_folder_without_an_adapter_is_one_sentence(tiny_gemma: Path, tmp_path: Path) -> None:
    with pytest.raises(TuningError, match=r"holds no adapter: it needs adapter_config\S+ and \S+$"):
        merge(tiny_gemma, tmp_path, tmp_path / "merged")
    trained(tiny_gemma, tmp_path, steps=1)
    with pytest.raises(TuningError, match=r"did you mean .*/adapter\?"):
        merge(tiny_gemma, tmp_path, tmp_path / "merged")
