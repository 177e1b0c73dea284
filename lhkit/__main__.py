"""The command's entry, and the only `asyncio.run`: a notebook has a loop of its own."""

import asyncio
import sys

from lhkit.cli import build_cli


def main() -> None:
    """Run the command line."""
    sys.exit(build_cli(asyncio.run)())


if __name__ == "__main__":
    main()
