"""One live line on standard error while weights and server are made ready."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text

from lhkit.app import ModelChoice, Reports, open_model
from lhkit.models.base import ChatModel
from lhkit.models.vllm_server import StartProgress
from lhkit.models.weights import progress_bar
from lhkit.settings import Settings


@asynccontextmanager
async def opened_model(choice: ModelChoice, settings: Settings) -> AsyncIterator[ChatModel]:
    """Yield a connected model, as `app.open_model` does, and show how it is coming along.

    Raises:
        LhkitError: the model cannot be had.
    """
    async with AsyncExitStack() as stack:
        with setup_progress() as reports:
            model = await stack.enter_async_context(open_model(choice, settings, reports))
        yield model


@contextmanager
def setup_progress() -> Iterator[Reports]:
    """Yield the receivers of progress; the lines are gone or finished when the block ends."""
    with progress_bar() as weights, _server_line() as server:
        yield Reports(weights=weights, server=server)


class _ServerLine:
    """Draws the start of a server: live in a terminal, one line a stage elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = Status("", console=console)
        self._stage: str | None = None

    def __call__(self, progress: StartProgress) -> None:
        """Draw where the start is."""
        words = Text(_words(progress))
        if self._console.is_terminal:
            self._status.update(words)
            self._status.start()
        elif progress.stage != self._stage:
            self._stage = progress.stage
            self._console.print(words, soft_wrap=True)

    def close(self) -> None:
        """Leave a clean line."""
        self._status.stop()


@contextmanager
def _server_line() -> Iterator[_ServerLine]:
    line = _ServerLine(Console(stderr=True))
    try:
        yield line
    finally:
        line.close()


def _words(progress: StartProgress) -> str:
    stage = f": {progress.stage}" if progress.stage else ""
    return f"vLLM is starting, {progress.elapsed_s:.0f} s{stage} (log: {progress.log_path})"
