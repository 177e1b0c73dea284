"""The command line: a module or a package for each command; what they share is in `frame`.

`suite_run` runs the samples of the pytest plugin.
"""

from lhkit.cli.frame.exit_codes import ExitCode

__all__ = ["ExitCode"]
