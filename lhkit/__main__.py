"""Entry point of the command line."""

import asyncio
import atexit
import gc
import sys
import traceback
from contextlib import suppress

from lhkit.base.streams import flush_streams, prepare_streams
from lhkit.cli.frame.exit_codes import ExitCode

_GC_THRESHOLDS = (200_000, 30, 30)
"""Rarer garbage collection, as in mypy: hundreds of thousands of modules and records stay alive."""


def main() -> None:
    """Run the command line and exit; errors while it is loading are reported the same way."""
    gc.set_threshold(*_GC_THRESHOLDS)
    atexit.register(gc.freeze)  # at its end the interpreter would collect all that lhkit imported
    prepare_streams()
    code: int
    try:
        from lhkit.cli.frame.parser import build_cli

        code = build_cli(asyncio.run)()
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except OSError as error:  # such as a full disk while the help is written
        _print_error(f"operating system error: {error}. Free some space or set the permissions.")
        code = ExitCode.INFRASTRUCTURE
    except Exception as error:  # noqa: BLE001 - exit code 1 would mean a failed threshold
        with suppress(OSError):
            traceback.print_exc()
        summary = traceback.format_exception_only(error)[-1].strip()
        _print_error(f"unforeseen exception: {summary}. Report it with the traceback above.")
        code = ExitCode.UNEXPECTED
    if (reason := flush_streams()) and code == ExitCode.OK:
        _print_error(f"the output is incomplete: {reason}. Free some space.")
        code = ExitCode.INFRASTRUCTURE
    sys.exit(code)


def _print_error(text: str) -> None:
    """Print without rich, whose import may be what failed."""
    with suppress(OSError):
        sys.stderr.write(f"lhkit: {text}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    main()
