"""Faults of their code, told in one sentence with the line of their file."""

from contextlib import AbstractContextManager
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb
from typing import Any

from lhkit.errors import LhkitError, UsageError


class _TheirCode:
    """A block of their code; a class, which is entered more quickly than a generator."""

    __slots__ = ("_doing",)

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        """Nothing is done before."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Raise what `their_code` says in place of an error of theirs."""
        if isinstance(error, LhkitError):
            place = place_in_their_code(error)
            frames = extract_tb(error.__traceback__)
            if not isinstance(error, UsageError) or not place or _is_theirs(frames[-1].filename):
                return  # they say themselves what to mend
            raise UsageError(f"{place}: {error}") from error
        if isinstance(error, Exception | SystemExit):
            told = str(error).splitlines()[0] if str(error) else ""
            place = place_in_their_code(error)
            at = f" at {place}" if place else ""
            raise UsageError(
                f"{self._doing} failed{at}: {type(error).__name__}: {told}".rstrip(": ")
            ) from error


def their_code(doing: str) -> AbstractContextManager[None]:
    """Turn whatever their code raises into one sentence with the line of their code.

    Raises:
        UsageError: their code failed; or what we refused it, with the line that asked for it.
    """
    return _TheirCode(doing)


def place_in_their_code(error: BaseException) -> str:
    """Return `file:line` of the innermost line that is in no package and not ours; perhaps none."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    inner = [frame for frame in extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    return f"{inner[-1].filename}:{inner[-1].lineno}" if inner else ""


def _is_theirs(file: str) -> bool:
    ours = str(Path(__file__).parents[1])
    is_library = "site-packages" in file or file.startswith((ours, get_path("stdlib"), "<"))
    return not is_library


def an_object(value: Any) -> str:
    """Return what `value` is, such as `an object of type Kitchen`."""
    return f"an object of type {type(value).__name__}"


def a_type(value: Any) -> str:
    """Return the type of `value` with its article, such as `a list`."""
    return with_article(type(value).__name__)


def with_article(name: str) -> str:
    """Return the name with `a` or `an` before it."""
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
