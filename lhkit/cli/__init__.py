"""The command line: a module for each command, listed in `parser`; shared options in `options`."""

from lhkit.cli.frame.exit_codes import ExitCode

__all__ = ["ExitCode"]
