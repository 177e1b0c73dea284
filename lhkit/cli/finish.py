"""Runs a command to its end: settings, log file, one sentence for a fault, the exit code."""

import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from typing import Any, TypeAlias

import typer
from rich.console import Console
from rich.text import Text

from lhkit.errors import LhkitError, UsageError
from lhkit.settings import Settings, load_settings
from lhkit.vocab.printable import printable

Run: TypeAlias = Callable[[Coroutine[Any, Any, int]], int]
"""Runs a coroutine to its end; `asyncio.run`, given by `__main__`."""

EXIT_MISUSE = 2
EXIT_WORLD = 3
EXIT_INTERRUPTED = 130

LOG_BYTES = 1_000_000

_log = logging.getLogger(__name__)


class _LogFile(RotatingFileHandler):
    """A log that a full disk may cut short: it must not fill the user's terminal instead."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Say nothing."""


def finish(run: Run, command: Callable[[Settings], Coroutine[Any, Any, int]]) -> None:
    """Run a command and leave with its exit code; faults become one sentence."""
    try:
        settings = load_settings()
        _log_to_file(settings)
        code = run(command(settings))
    except UsageError as error:
        code = _complain(error, EXIT_MISUSE)
    except LhkitError as error:
        code = _complain(error, EXIT_WORLD)
    except OSError as error:  # a full disk, a file in place of a folder, a closed terminal
        _log.exception("the system refused something")
        what = str(error) or type(error).__name__
        code = _complain(
            f"the system refused this ({what}): free some space, set the permissions, or name "
            "another place",
            EXIT_WORLD,
        )
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)


def _log_to_file(settings: Settings) -> None:
    """Keep what handlers, gates and subscribers log, with tracebacks, out of the user's way."""
    folder = settings.cache_dir / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handler = _LogFile(
            folder / "lhkit.log", maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8"
        )
    except OSError:  # what cannot be done without this folder says so itself
        return
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("lhkit")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _complain(error: LhkitError | str, code: int) -> int:
    told = Text(f"lhkit: {printable(str(error))}", style="red")
    with suppress(OSError):  # a full disk there too: the exit code still says it
        Console(stderr=True).print(told, soft_wrap=True)
    return code
