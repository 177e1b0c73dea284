"""The command's entry, and the only `asyncio.run`: a notebook has a loop of its own."""

import asyncio
import gc
import sys

_INTERRUPTED = 130  # as `lhkit.cli` has it, which may not be loaded yet

COLLECTOR = (200_000, 30, 30)
"""When Python looks for cycles. Modules, worlds and records are hundreds of thousands of objects
that stay: with its own thresholds the search among them takes a tenth of a command, a third with a
large world. mypy has these, too."""


def main() -> None:
    """Run the command line. Ctrl-C ends it the same way while it is still loading."""
    gc.set_threshold(*COLLECTOR)
    try:
        from lhkit.cli import build_cli  # noqa: PLC0415 - the part that takes its time

        code = build_cli(asyncio.run)()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
