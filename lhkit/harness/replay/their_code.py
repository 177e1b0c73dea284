"""Where an error comes from in the code of those who wrote the tools: the line to look at."""

from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb


def place_in_their_code(error: BaseException) -> str:
    """Return `file:line` of the innermost line that is in no package and not ours; perhaps none."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    inner = [frame for frame in extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    return f"{inner[-1].filename}:{inner[-1].lineno}" if inner else ""


def _is_theirs(file: str) -> bool:
    ours = str(Path(__file__).parents[2])
    is_library = "site-packages" in file or file.startswith((ours, get_path("stdlib"), "<"))
    return not is_library
