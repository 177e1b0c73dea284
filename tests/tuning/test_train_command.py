import asyncio
from pathlib import Path

import pytest

from lhkit.commands import tune
from lhkit.commands.options import ServeOptions
from lhkit.commands.serve import serve_model
from lhkit.commands.tune import dev_path, merge_adapter, train_adapter
from lhkit.commands.tune_options import TrainOptions
from lhkit.errors import TuningError, UsageError
from lhkit.settings import Settings
from lhkit.tuning.data import Exchange, read_sequences, sequences_of, write_sequences
from lhkit.tuning.recipe import TuneSettings


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


def of_steps(steps: int, base: Path, folder: Path) -> TrainOptions:
    """Return a training of so many small steps."""
    return TrainOptions(
        data=data_file(folder),
        into=folder / "tuned",
        base=base,
        tuning=TuneSettings(steps=steps, batch_tokens=60),
    )


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
async def test_what_a_training_computes_in_is_told_while_it_computes(
    tiny_gemma: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = of_steps(1, tiny_gemma, tmp_path)
    for is_told in (True, False):
        await train_adapter(options, Settings(locale="en"), progress=False)
        said = capsys.readouterr()
        assert ("Computes in" in said.err) == is_told
        assert "1 step" in said.out


@pytest.mark.anyio
async def test_missing_data_says_how_to_make_it(tiny_gemma: Path, tmp_path: Path) -> None:
    options = TrainOptions(data=tmp_path / "no.jsonl", into=tmp_path / "x", base=tiny_gemma)
    with pytest.raises(TuningError, match="lhkit tune data"):
        await train_adapter(options, Settings(), progress=False)


@pytest.mark.anyio
async def test_missing_data_are_told_before_any_weights_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unasked(*_: object, **__: object) -> Path:
        raise AssertionError("the weights were asked for")

    monkeypatch.setattr(tune, "ensure_weights", unasked)
    options = TrainOptions(data=tmp_path / "no.jsonl", into=tmp_path / "x")
    with pytest.raises(TuningError, match="lhkit tune data"):
        await train_adapter(options, Settings(), progress=False)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "sentence"),
    [("mine", "holds no model"), ("gemma", "has the name of an embedded model: rename the folder")],
)
async def test_serving_a_folder_that_cannot_be_served_is_one_sentence(
    tmp_path: Path, name: str, sentence: str
) -> None:
    (tmp_path / name).mkdir()
    options = ServeOptions(weights=tmp_path / name)
    with pytest.raises(UsageError, match=sentence):
        await serve_model(options, Settings(cache_dir=tmp_path / "cache"))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("locale", "sentences"),
    [
        ("ko", ("16토큰보다 긴 대화 1개는 빼고", "깨져서 그 앞의 저장 지점(1단계)부터")),
        ("en", ("Left out as longer than 16 tokens: 1", "is broken: going on from")),
    ],
)
async def test_what_a_user_should_know_is_told_in_their_language(
    tiny_gemma: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    locale: str,
    sentences: tuple[str, str],
) -> None:
    data = data_file(tmp_path)
    prompt = f"<bos> <start_of_turn> user {'tools ' * 20}<end_of_turn> <start_of_turn> model "
    longer = sequences_of("long", "ko", "demo", [Exchange(prompt=prompt, answer="add ")])
    write_sequences(data, (*read_sequences(data), *longer))
    options = TrainOptions(
        data=data,
        into=tmp_path / "tuned",
        base=tiny_gemma,
        tuning=TuneSettings(
            steps=2, batch_tokens=60, checkpoint_every_steps=1, max_sequence_tokens=16
        ),
    )
    settings = Settings(locale=locale)
    await train_adapter(options, settings, progress=False)
    assert sentences[0] in capsys.readouterr().err
    (options.into / "state.pt").write_bytes(b"")
    (options.into / "adapter" / "manifest.json").unlink()
    await train_adapter(options, settings, progress=False)
    assert sentences[1] in capsys.readouterr().err


@pytest.mark.anyio
async def test_who_interrupts_is_told_at_once_and_then_at_which_step_it_was_saved(
    tiny_gemma: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = of_steps(3, tiny_gemma, tmp_path)
    settings = Settings(locale="en")
    training = asyncio.create_task(train_adapter(options, settings, progress=False))
    await asyncio.sleep(0)  # up to where it waits for the thread that trains
    training.cancel()
    await asyncio.sleep(0)
    at_once = capsys.readouterr().err
    assert "\nStopping after this step, saving …\n" in at_once
    with pytest.raises(asyncio.CancelledError):
        await training
    told = at_once + capsys.readouterr().err
    assert told.endswith("\nSaved at step 1; the same command goes on.\n")
    assert "6 texts of " in told
    assert "at most 3 steps, by a first estimate in 0.0 minutes." in told
    assert await train_adapter(options, settings, progress=False) == 0
    assert "3 steps done" in capsys.readouterr().out


@pytest.mark.anyio
async def test_who_interrupts_the_last_step_is_told_where_the_adapter_is(
    tiny_gemma: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = of_steps(1, tiny_gemma, tmp_path)
    training = asyncio.create_task(train_adapter(options, Settings(locale="en"), progress=False))
    await asyncio.sleep(0)  # up to where it waits for the thread that trains
    training.cancel()
    with pytest.raises(asyncio.CancelledError):
        await training
    shown = capsys.readouterr()
    assert "goes on" not in shown.err
    assert "1 steps done" in shown.out
    assert (options.into / "adapter" / "manifest.json").is_file()
