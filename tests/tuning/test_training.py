import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from lhkit.errors import TuningError
from lhkit.tuning import lora
from lhkit.tuning.batches import IGNORED, Batch
from lhkit.tuning.merge import merge
from lhkit.tuning.sequence import Exchange, TrainingSequence, sequences_of
from lhkit.tuning.training import Material, TuneSettings, train

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


def test_the_shared_prefix_gives_the_loss_of_whole_rows_beyond_the_sliding_window(
    tiny_gemma: Path,
) -> None:
    import torch

    rng = random.Random(3)  # noqa: S311 - a test's numbers
    model = lora.with_adapter(lora.load_model(tiny_gemma).float(), lora.AdapterShape(), seed=1)
    model.eval()
    prefix = tuple(rng.randrange(4, 19) for _ in range(40))
    rows = tuple(tuple(rng.randrange(4, 19) for _ in range(n)) for n in (7, 30, 19))
    labels = tuple((IGNORED, *row[1:]) for row in rows)
    with torch.no_grad():
        together, count = lora.loss_of(model, Batch(prefix=prefix, rows=rows, labels=labels))
        alone = sum(
            float(
                lora.loss_of(
                    model,
                    Batch(
                        prefix=(),
                        rows=(prefix + row,),
                        labels=((IGNORED,) * len(prefix) + label,),
                    ),
                )[0]
            )
            for row, label in zip(rows, labels, strict=True)
        )
    assert count == sum(len(row) - 1 for row in rows)
    assert float(together) == pytest.approx(alone, rel=2e-3)


def test_training_lowers_the_loss_and_leaves_an_adapter(tiny_gemma: Path, tmp_path: Path) -> None:
    log = train(
        material(tiny_gemma),
        settings(steps=40, learning_rate=0.1),
        tmp_path,
        clock=ticking(),
        progress=False,
    )
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
    whole = train(material(tiny_gemma), settings(), tmp_path / "a", clock=ticking(), progress=False)
    stops = iter([False] * 6 + [True])
    part = train(
        material(tiny_gemma),
        settings(),
        tmp_path / "b",
        clock=ticking(),
        progress=False,
        stop=lambda: next(stops, False),
    )
    assert len(part) == 7
    resumed = train(
        material(tiny_gemma), settings(), tmp_path / "b", clock=ticking(), progress=False
    )
    assert [point.loss for point in resumed] == pytest.approx([point.loss for point in whole])
    logged = (tmp_path / "b" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in logged] == list(range(1, 13))


def test_a_folder_of_another_training_is_refused_by_name(tiny_gemma: Path, tmp_path: Path) -> None:
    train(material(tiny_gemma), settings(), tmp_path, clock=ticking(), progress=False)
    with pytest.raises(TuningError, match="another settings"):
        train(material(tiny_gemma), settings(seed=9), tmp_path, clock=ticking(), progress=False)
    with pytest.raises(TuningError, match="another data_sha256"):
        train(material(tiny_gemma, 31), settings(), tmp_path, clock=ticking(), progress=False)


def test_a_broken_checkpoint_is_one_sentence(tiny_gemma: Path, tmp_path: Path) -> None:
    train(material(tiny_gemma), settings(), tmp_path, clock=ticking(), progress=False)
    (tmp_path / "state.pt").write_bytes(b"half a file")
    with pytest.raises(TuningError, match=r"state\.pt is broken"):
        train(material(tiny_gemma), settings(), tmp_path, clock=ticking(), progress=False)


def test_a_merged_model_says_what_base_and_adapter_say(tiny_gemma: Path, tmp_path: Path) -> None:
    import torch
    from peft import PeftModel  # noqa: PLC0415 - heavy

    train(material(tiny_gemma), settings(steps=40), tmp_path, clock=ticking(), progress=False)
    merge(tiny_gemma, tmp_path / "adapter", tmp_path / "merged")
    adapted = PeftModel.from_pretrained(lora.load_model(tiny_gemma), tmp_path / "adapter")
    prompt = torch.tensor([lora.encoder(tiny_gemma)(learn(0)[0].text)[0][:-2]])
    with torch.no_grad():
        one, other = (
            model(prompt).logits[0, -1].float()
            for model in (adapted, lora.load_model(tmp_path / "merged"))
        )
    assert int(one.argmax()) == int(other.argmax())
    assert (tmp_path / "merged" / "tokenizer.json").is_file()


def test_an_adapter_for_another_base_is_one_sentence(tiny_gemma: Path, tmp_path: Path) -> None:
    import torch
    from transformers import Gemma3ForCausalLM

    train(material(tiny_gemma), settings(steps=2), tmp_path, clock=ticking(), progress=False)

    other = lora.load_model(tiny_gemma).config
    other.hidden_size = 64
    torch.manual_seed(0)
    Gemma3ForCausalLM(other).save_pretrained(tmp_path / "wider")
    with pytest.raises(TuningError, match="does not fit"):
        merge(tmp_path / "wider", tmp_path / "adapter", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_folder_without_an_adapter_is_one_sentence(tiny_gemma: Path, tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="holds no adapter"):
        merge(tiny_gemma, tmp_path, tmp_path / "merged")
