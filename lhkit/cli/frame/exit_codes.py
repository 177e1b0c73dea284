"""Exit codes of the command line."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the exit code of a command means."""

    OK = 0
    FAILED = 1
    """A threshold was missed, a violation occurred, a check found an error, or an import left
    something out."""
    USAGE = 2
    """The command line, a file or a setting is invalid, or an optional package is missing."""
    INFRASTRUCTURE = 3
    """A server or a disk failed, so there is no result."""
    CANNOT_TELL = 4
    """A comparison could not have failed, the samples are too few for `--margin` or for a decision
    of `lhkit approvals`, or a limit of time or tokens was not measured."""
    UNEXPECTED = 70
    """An unforeseen exception (EX_SOFTWARE of sysexits.h)."""
    INTERRUPTED = 130
    """Ctrl-C."""
