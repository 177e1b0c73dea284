"""The command's entry, and the only `asyncio.run`: a notebook has a loop of its own."""

import asyncio
import gc
import sys
import traceback
from contextlib import suppress

from lhkit.streams import flush_streams, prepare_streams

# As `lhkit.cli.finish` has them, which may not be loaded yet.
_WORLD = 3
_UNFORESEEN = 70
_INTERRUPTED = 130

COLLECTOR = (200_000, 30, 30)
"""When Python looks for cycles. Modules, worlds and records are hundreds of thousands of objects
that stay: with its own thresholds the search among them takes a tenth of a command, a third with a
large world. mypy has these, too."""


def main() -> None:
    """Run the command line. Ctrl-C and faults end it the same way while it is still loading."""
    gc.set_threshold(*COLLECTOR)
    prepare_streams()
    try:
        from lhkit.cli.parser import build_cli

        code = build_cli(asyncio.run)()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except OSError as error:  # a full disk under the help, say
        _complain(f"the system refused this: {error}. Free some space or set the permissions.")
        code = _WORLD
    except Exception as error:  # noqa: BLE001 - 1 would read as a worse model
        with suppress(OSError):
            traceback.print_exc()
        what = traceback.format_exception_only(error)[-1].strip()
        _complain(f"unforeseen error: {what}. Report it with the traceback in the lines above.")
        code = _UNFORESEEN
    if (why := flush_streams()) and code == 0:
        _complain(f"output is lost: {why}. Free some space.")
        code = _WORLD
    sys.exit(code)


def _complain(sentence: str) -> None:
    """Print a sentence without rich: the console's own packages may be what failed."""
    with suppress(OSError):
        sys.stderr.write(f"lhkit: {sentence}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    main()
