"""Runs a command to its end: settings, log file, one sentence for a fault, the exit code."""

import logging
import sys
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from typing import Any, TypeAlias

import typer
from rich.console import Console
from rich.text import Text

from lhkit.errors import LhkitError, UsageError
from lhkit.redaction import hide, masked
from lhkit.settings import Settings, load_settings
from lhkit.text import one_line, printable

Run: TypeAlias = Callable[[Coroutine[Any, Any, int]], int]
"""Runs a coroutine to its end; `asyncio.run`, given by `__main__`."""

EXIT_MISUSE = 2
EXIT_WORLD = 3
EXIT_UNFORESEEN = 70  # EX_SOFTWARE of sysexits.h; 1 would read as a worse model
EXIT_INTERRUPTED = 130

LOG_BYTES = 1_000_000
_SHOWN_CHARS = 300

_log = logging.getLogger(__name__)


class _MaskingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return the line and its traceback without the keys that were sent to servers."""
        return masked(super().format(record))


class _LogFile(RotatingFileHandler):
    """A log that a full disk may cut short: it must not fill the user's terminal instead."""

    is_whole = True

    def handleError(self, _record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Note that a record is missing."""
        self.is_whole = False


def finish(run: Run, command: Callable[[Settings], Coroutine[Any, Any, int]]) -> None:
    """Run a command and leave with its exit code; faults become one sentence."""
    log: _LogFile | None = None
    try:
        settings = load_settings()
        hide(settings.api_key)
        log = log_to_file(settings)
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
    except BaseException as error:  # noqa: BLE001 - also SystemExit of a user's module, a stray cancel
        code = _report_unforeseen(error, log)
    raise typer.Exit(code)


def log_to_file(settings: Settings) -> _LogFile | None:
    """Keep what handlers, gates and subscribers log, with tracebacks, out of the user's way."""
    folder = settings.cache_dir / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handler = _LogFile(
            folder / "lhkit.log",
            maxBytes=LOG_BYTES,
            backupCount=1,
            encoding="utf-8",
            errors="backslashreplace",
        )
    except OSError:  # what cannot be done without this folder says so itself
        return None
    handler.setFormatter(_MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("lhkit")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return handler


def _report_unforeseen(error: BaseException, log: _LogFile | None) -> int:
    """Log the traceback, or print it where there is no log, and report the error in a sentence."""
    _log.critical("unforeseen error", exc_info=error)
    if log is not None and log.is_whole:
        place = f"end of {log.baseFilename}"
    else:
        place = "lines above"
        with suppress(OSError):
            sys.stderr.write(masked("".join(traceback.format_exception(error))))
    what = one_line(masked(traceback.format_exception_only(error)[-1]), max_chars=_SHOWN_CHARS)
    return _complain(
        f"unforeseen error: {what}. Report it with the traceback in the {place}.", EXIT_UNFORESEEN
    )


def _complain(error: LhkitError | str, code: int) -> int:
    told = Text(f"lhkit: {printable(masked(str(error)))}", style="red")
    with suppress(OSError):  # a full disk there too: the exit code still says it
        Console(stderr=True).print(told, soft_wrap=True)
    return code
