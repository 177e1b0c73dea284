"""Run a command to its end: settings, log file, error messages and the exit code."""

import logging
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING, Any, TypeAlias

import typer
from rich.console import Console
from rich.text import Text

from lhkit.base.errors import LhkitError, MissingPackageError, UsageError
from lhkit.base.locales import available_locales
from lhkit.base.locales.messages import translate
from lhkit.base.redaction import hide, masked
from lhkit.base.text import one_line, printable
from lhkit.cli.frame.exit_codes import ExitCode

if TYPE_CHECKING:
    from lhkit.settings import Settings

Runner: TypeAlias = Callable[[Coroutine[Any, Any, int]], int]
"""Runs a coroutine to its end; `asyncio.run`, passed by `__main__`."""

LOG_BYTES = 1_000_000
_MAX_ERROR_CHARS = 300

_log = logging.getLogger(__name__)


class _MaskingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text, traceback included, with API keys masked."""
        return masked(super().format(record))


class _LogFile(RotatingFileHandler):
    """A log file that does not print to the terminal when the disk is full."""

    is_complete = True

    def handleError(self, _record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Remember that a record is missing."""
        self.is_complete = False


def finish(
    run: Runner,
    start: Callable[["Settings"], tuple["Settings", Coroutine[Any, Any, int]]],
    locale: str = "en",
) -> None:
    """Run a command and exit with its code; an error becomes one line on standard error.

    Args:
        run: runs a coroutine to its end.
        start: returns the settings of the project and the command, from those of the environment.
        locale: language of the errors until the settings are known.

    Raises:
        typer.Exit: always, with the exit code.
    """
    from lhkit.settings import load_settings  # pydantic is slow to import, and help needs none

    log: _LogFile | None = None
    try:
        settings = load_settings()
        hide(settings.api_key)
        log = log_to_file(settings)
        settings, command = start(settings)
        locale = settings.locale if settings.locale in available_locales() else locale
        with _printed_notices(settings.locale):
            code = run(command)
    except (UsageError, MissingPackageError) as error:  # another try would end the same
        code = _print_error(error, ExitCode.USAGE, locale)
    except LhkitError as error:
        code = _print_error(error, ExitCode.INFRASTRUCTURE, locale)
    except OSError as error:  # a full disk, a file in place of a folder, a closed terminal
        _log.exception("operating system error")
        code = _print_error(
            f"operating system error: {str(error) or type(error).__name__}. Free some space, "
            "change the permissions, or choose another path.",
            ExitCode.INFRASTRUCTURE,
            locale,
        )
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except BaseException as error:  # noqa: BLE001 - also SystemExit of a user's module, a stray cancel
        code = _report_unexpected(error, log, locale)
    raise typer.Exit(code)


class _NoticePrinter(logging.Handler):
    """Prints each notice about tools once, on standard error, in the user's language."""

    def __init__(self, locale: str) -> None:
        super().__init__(logging.WARNING)
        self._locale = locale
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print the notice of a record, if it has one."""
        from lhkit.base.locales import load_catalog
        from lhkit.base.notices import NOTICE, notice_text

        notice = getattr(record, NOTICE, None)
        text = notice_text(notice, load_catalog(self._locale)) if notice else ""
        if text and text not in self._printed:
            self._printed.add(text)
            line = Text(printable(masked(text)), style="yellow")
            with suppress(OSError):
                Console(stderr=True).print(line, soft_wrap=True)


@contextmanager
def _printed_notices(locale: str) -> Iterator[None]:
    printer, logger = _NoticePrinter(locale), logging.getLogger("lhkit")
    logger.addHandler(printer)
    try:
        yield
    finally:
        logger.removeHandler(printer)


def log_to_file(settings: "Settings") -> _LogFile | None:
    """Write lhkit's log records, with tracebacks, to the cache folder; None if that fails."""
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
    except OSError:  # a command that needs this folder reports the error itself
        return None
    handler.setFormatter(_MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("lhkit")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return handler


def _report_unexpected(error: BaseException, log: _LogFile | None, locale: str) -> int:
    """Log the traceback, or print it without a log, and print the error in one line."""
    _log.critical("unforeseen exception", exc_info=error)
    if log is not None and log.is_complete:
        place = f"end of {log.baseFilename}"
    else:
        place = "lines above"
        with suppress(OSError):
            sys.stderr.write(masked("".join(traceback.format_exception(error))))
    summary = masked(traceback.format_exception_only(error)[-1])
    return _print_error(
        f"unforeseen exception: {one_line(summary, max_chars=_MAX_ERROR_CHARS)}. Report it with "
        f"the traceback in the {place}.",
        ExitCode.UNEXPECTED,
        locale,
    )


def _print_error(error: LhkitError | str, code: int, locale: str) -> int:
    message = translate(masked(str(error)), locale)
    text = Text(f"lhkit: {printable(message)}", style="red")
    with suppress(OSError):  # a full disk: the exit code still reports the failure
        Console(stderr=True).print(text, soft_wrap=True)
    return code
