"""One live line on standard error while weights and server are made ready."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import replace
from typing import NoReturn

from rich.console import Console
from rich.status import Status
from rich.text import Text
from tqdm import tqdm

from lhkit.app import ModelChoice, open_model
from lhkit.embedded import Reports
from lhkit.models.base import ChatModel
from lhkit.models.server import StartProgress, StartReport, ignore_start_progress
from lhkit.models.weights_folder import WeightsProgress, WeightsStage
from lhkit.settings import Settings
from lhkit.text import printable


@asynccontextmanager
async def opened_model(
    choice: ModelChoice, settings: Settings, heard: StartReport = ignore_start_progress
) -> AsyncIterator[ChatModel]:
    """Yield a connected model, as `app.open_model` does, and show how it is coming along.

    `heard` is also told how the start of a server is coming along.

    Raises:
        LhkitError: the model cannot be had.
    """
    async with AsyncExitStack() as stack:
        with setup_progress() as shown:

            def server(progress: StartProgress) -> None:
                heard(progress)
                shown.server(progress)

            reports = replace(shown, server=server)
            model = await stack.enter_async_context(open_model(choice, settings, reports))
        yield model


@contextmanager
def setup_progress() -> Iterator[Reports]:
    """Yield the receivers of progress; the lines are gone or finished when the block ends."""
    with closing(_WeightsLine()) as weights, closing(_ServerLine()) as server:
        yield Reports(weights=weights, server=server)


class _WeightsLine:
    """Draws the making of the weights: a byte bar in a terminal, one line a step elsewhere."""

    def __init__(self) -> None:
        self._bar: tqdm[NoReturn] = tqdm(
            unit="B", unit_scale=True, leave=False, bar_format="{desc}", disable=None
        )
        self._step = ""

    def __call__(self, progress: WeightsProgress) -> None:
        """Draw where the making is."""
        if progress.stage in {WeightsStage.NOTICE, WeightsStage.WAITING}:
            tqdm.write(progress.text, file=sys.stderr)
        elif self._bar.disable:
            self._step_line(progress)
        else:
            self._draw(progress)

    def close(self) -> None:
        """Leave a clean line."""
        self._bar.close()

    def _step_line(self, progress: WeightsProgress) -> None:
        if progress.text != self._step:
            self._step = progress.text
            tqdm.write(progress.text, file=sys.stderr)

    def _draw(self, progress: WeightsProgress) -> None:
        elapsed = f" {progress.elapsed_s:.0f} s" if progress.elapsed_s else ""
        self._bar.bar_format = None if progress.total_bytes else "{desc}"
        self._bar.total = progress.total_bytes or None
        self._bar.n = progress.done_bytes
        self._bar.set_description_str(progress.text + elapsed)


class _ServerLine:
    """Draws the start of a server: live in a terminal, one line a stage elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._status = Status("", console=self._console)
        self._stage: str | None = None

    def __call__(self, progress: StartProgress) -> None:
        """Draw where the start is."""
        words = Text(printable(_words(progress)))
        if self._console.is_terminal:
            self._status.update(words)
            self._status.start()
        elif progress.stage != self._stage:
            self._stage = progress.stage
            self._console.print(words, soft_wrap=True)

    def close(self) -> None:
        """Leave a clean line."""
        self._status.stop()


def _words(progress: StartProgress) -> str:
    stage = f": {progress.stage}" if progress.stage else ""
    log = f"(log: {progress.log_path})"
    return f"{progress.engine} is starting, {progress.elapsed_s:.0f} s{stage} {log}"
