"""The language of the user."""

import os


def user_locale() -> str:
    """Return the locale of the user."""
    names = ("LHKIT_LOCALE", "LC_ALL", "LC_MESSAGES", "LANG")
    value = next(filter(None, map(os.environ.get, names)), "en")
    return "ko" if value.startswith("ko") else "en"
