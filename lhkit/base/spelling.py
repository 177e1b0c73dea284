"""How a message names a setting of the model: where it is typed.

Messages are written once, with the options of the command line. `lhkit.connect`, pytest and
`lhkit matrix` pass them on with the names that their caller can give.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from lhkit.base.errors import LhkitError

Spelling: TypeAlias = Callable[[str], str]
"""Returns a message with its settings named otherwise."""

_SETTING = re.compile(
    r"(?<![\w-])--(?P<name>model|base-url|dialect|chat-template|constrain)(?![A-Za-z0-9_-])"
    r"(?: (?P<value>openai|json|pythonic|functiongemma|gemma4|off|auto|required)(?![A-Za-z0-9_]))?"
)
_KEYWORDS = {"constrain": "constraint"}


def in_python(text: str) -> str:
    """Return a message with the keywords of `lhkit.connect`: `dialect="openai"` or `model=`."""

    def keyword(match: re.Match[str]) -> str:
        name = _KEYWORDS.get(match["name"], match["name"].replace("-", "_"))
        return f'{name}="{match["value"]}"' if match["value"] else f"{name}="

    return _SETTING.sub(keyword, text).replace("LHKIT_API_KEY", "api_key=")


def in_suite(text: str) -> str:
    """Return a message with the keys of a suite's file: `dialect = "openai"` or `model`."""

    def key(match: re.Match[str]) -> str:
        name = _KEYWORDS.get(match["name"], match["name"].replace("-", "_"))
        return f'`{name} = "{match["value"]}"`' if match["value"] else f"`{name}`"

    return _SETTING.sub(key, text)


def in_pytest(text: str) -> str:
    """Return a message with the options of pytest: `--lhkit-dialect openai`."""
    return _SETTING.sub(lambda match: match[0].replace("--", "--lhkit-", 1), text)


@contextmanager
def spelled(spelling: Spelling | None) -> Iterator[None]:
    """Pass on errors of lhkit with their settings named as in `spelling`; None keeps them."""
    try:
        yield
    except LhkitError as error:
        if spelling is not None and error.args:
            error.args = (spelling(str(error)), *error.args[1:])
        raise
