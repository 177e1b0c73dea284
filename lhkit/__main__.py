"""The command's entry, and the only `asyncio.run`: a notebook has a loop of its own."""

import asyncio
import gc
import sys

_INTERRUPTED = 130  # as `lhkit.cli` has it, which may not be loaded yet


def main() -> None:
    """Run the command line. Ctrl-C ends it the same way while it is still loading."""
    # Modules, worlds and records are hundreds of thousands of objects that stay: with the usual
    # thresholds the search for cycles among them takes a tenth of a command, a third with a large
    # world. mypy has these, too.
    gc.set_threshold(200_000, 30, 30)
    try:
        from lhkit.cli import build_cli  # noqa: PLC0415 - the part that takes its time

        code = build_cli(asyncio.run)()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
