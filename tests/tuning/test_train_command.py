from pathlib import Path

import pytest

from lhkit.commands.serve import serve_embedded
from lhkit.commands.tune import TrainOptions, dev_path, merge_adapter, train_adapter
from lhkit.errors import TuningError, UsageError
from lhkit.settings import Settings
from lhkit.tuning.sequence import Exchange, sequences_of, write_sequences
from lhkit.tuning.training import TuneSettings


def data_file(folder: Path) -> Path:
    prompt = "<bos> <start_of_turn> user tools a <end_of_turn> <start_of_turn> model "
    sequences = [
        each
        for n in range(8)
        for each in sequences_of(f"c{n}", "ko", "demo", [Exchange(prompt=prompt, answer="add ")])
    ]
    write_sequences(folder / "train.jsonl", sequences[2:])
    write_sequences(dev_path(folder / "train.jsonl"), sequences[:2])
    return folder / "train.jsonl"


@pytest.mark.anyio
async def test_data_becomes_an_adapter_and_a_model_that_can_be_served(
    tiny_gemma: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = TrainOptions(
        data=data_file(tmp_path),
        into=tmp_path / "tuned",
        base=tiny_gemma,
        tuning=TuneSettings(steps=3, batch_tokens=60, dev_every_steps=3),
    )
    settings = Settings(locale="en")
    assert await train_adapter(options, settings, progress=False) == 0
    assert "3 steps done" in capsys.readouterr().out
    merged = tmp_path / "merged"
    assert await merge_adapter(tmp_path / "tuned" / "adapter", merged, tiny_gemma, settings) == 0
    assert f"lhkit serve --weights {merged}" in capsys.readouterr().out.replace("\n", "")
    assert (merged / "model.safetensors").is_file()
    with pytest.raises(TuningError, match="is there already"):
        await merge_adapter(tmp_path / "tuned" / "adapter", merged, tiny_gemma, settings)


@pytest.mark.anyio
async def test_missing_data_says_how_to_make_it(tiny_gemma: Path, tmp_path: Path) -> None:
    options = TrainOptions(data=tmp_path / "no.jsonl", into=tmp_path / "x", base=tiny_gemma)
    with pytest.raises(TuningError, match="lhkit tune data"):
        await train_adapter(options, Settings(), progress=False)


@pytest.mark.anyio
async def test_serving_a_folder_without_a_model_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no model"):
        await serve_embedded(
            "gemma",
            None,
            Settings(cache_dir=tmp_path / "cache"),
            server_parser=False,
            weights=tmp_path,
        )
