import asyncio
from pathlib import Path

import pytest

from lhkit.commands.tune import TrainOptions, train_adapter
from lhkit.settings import Settings
from lhkit.tuning.recipe import TuneSettings
from tests.tuning.test_train_command import data_file


@pytest.mark.anyio
async def test_who_interrupts_the_last_step_is_told_where_the_adapter_is(
    tiny_gemma: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = TrainOptions(
        data=data_file(tmp_path),
        into=tmp_path / "tuned",
        base=tiny_gemma,
        tuning=TuneSettings(steps=1, batch_tokens=60),
    )
    training = asyncio.create_task(
        train_adapter(options, Settings(locale="en"), progress=False),
    )
    await asyncio.sleep(0)  # up to where it waits for the thread that trains
    training.cancel()
    with pytest.raises(asyncio.CancelledError):
        await training
    shown = capsys.readouterr()
    assert "goes on" not in shown.err
    assert "1 steps done" in shown.out
    assert (options.into / "adapter" / "manifest.json").is_file()
