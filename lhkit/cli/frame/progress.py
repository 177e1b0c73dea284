"""Progress on standard error while weights are prepared and a server starts."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import replace
from typing import NoReturn

from rich.console import Console
from rich.status import Status
from rich.text import Text
from tqdm import tqdm

from lhkit import app
from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.text import printable
from lhkit.embedded import Reports
from lhkit.models.base import ChatModel
from lhkit.models.serving.server import StartProgress, StartReport, ignore_start_progress
from lhkit.models.weights.weights_folder import WeightsProgress, WeightsStage
from lhkit.settings import Settings


@asynccontextmanager
async def open_model(
    choice: app.ModelChoice, settings: Settings, on_start: StartReport = ignore_start_progress
) -> AsyncIterator[ChatModel]:
    """Yield a connected model, as `app.open_model` does, and show the progress of its start.

    `on_start` is also called with the progress of a server's start.

    Raises:
        LhkitError: the model cannot be opened.
    """
    async with AsyncExitStack() as stack:
        with setup_progress(settings.locale) as progress:

            def report_server(server: StartProgress) -> None:
                on_start(server)
                progress.server(server)

            reports = replace(progress, server=report_server)
            model = await stack.enter_async_context(app.open_model(choice, settings, reports))
        yield model


@contextmanager
def setup_progress(locale: str) -> Iterator[Reports]:
    """Yield progress callbacks that draw live lines until the block ends."""
    catalog = load_catalog(locale)
    with closing(_WeightsLine(catalog)) as weights, closing(_ServerLine(catalog)) as server:
        yield Reports(weights=weights, server=server)


class _WeightsLine:
    """Show the preparation of weights: a bar in a terminal, one line a step elsewhere."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._bar: tqdm[NoReturn] = tqdm(
            unit="B", unit_scale=True, leave=False, bar_format="{desc}", disable=None
        )
        self._step = ""

    def __call__(self, progress: WeightsProgress) -> None:
        """Show a step."""
        if progress.stage in {WeightsStage.NOTICE, WeightsStage.WAITING}:
            tqdm.write(self._catalog.translate(progress.text), file=sys.stderr)
        elif not self._bar.disable:
            self._draw(progress)
        elif progress.text != self._step:
            self._step = progress.text
            tqdm.write(self._catalog.translate(progress.text), file=sys.stderr)

    def close(self) -> None:
        """Remove the line."""
        self._bar.close()

    def _draw(self, progress: WeightsProgress) -> None:
        elapsed = f" {progress.elapsed_s:.0f} s" if progress.elapsed_s else ""
        self._bar.bar_format = None if progress.total_bytes else "{desc}"
        self._bar.total = progress.total_bytes or None
        self._bar.n = progress.done_bytes
        self._bar.set_description_str(progress.text + elapsed)


class _ServerLine:
    """Show the start of a server: a live line in a terminal, one line a stage elsewhere."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._console = Console(stderr=True)
        self._status = Status("", console=self._console)
        self._stage: str | None = None

    def __call__(self, progress: StartProgress) -> None:
        """Show a stage."""
        stage = f": {self._catalog.translate(progress.stage)}" if progress.stage else ""
        line = self._catalog.text(
            "serve.starting",
            engine=progress.engine,
            seconds=f"{progress.elapsed_s:.0f}",
            stage=stage,
        )
        text = Text(
            printable(f"{line} ({self._catalog.text('serve.log', path=progress.log_path)})")
        )
        if self._console.is_terminal:
            self._status.update(text)
            self._status.start()
        elif progress.stage != self._stage:
            self._stage = progress.stage
            self._console.print(text, soft_wrap=True)

    def close(self) -> None:
        """Remove the line."""
        self._status.stop()
