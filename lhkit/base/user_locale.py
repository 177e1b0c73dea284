"""The language in which lhkit speaks to the person at this machine."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from lhkit.base.locales import Catalog, available_locales, load_catalog, require_locale

FALLBACK = "en"
"""The language where nothing says otherwise, or where there are no texts in it."""

VARIABLE = "LHKIT_LOCALE"
_POSIX = ("LC_ALL", "LC_MESSAGES", "LANG")  # the first that is set decides
_MAC_SETTINGS = Path("Library/Preferences/.GlobalPreferences.plist")


def _system_language() -> str:
    """Return the language of a system that sets no variable, such as `ko-KR`; empty if unknown."""
    if sys.platform == "win32":
        import ctypes
        import locale

        number = ctypes.windll.kernel32.GetUserDefaultUILanguage()
        return locale.windows_locale.get(number, "")
    if sys.platform == "darwin":
        return mac_language(Path.home())
    return ""


def mac_language(home: Path) -> str:
    """Return the first language in the macOS settings of a user; empty if unknown."""
    import plistlib  # half of the time of this module, and for one system only

    try:
        settings = plistlib.loads((home / _MAC_SETTINGS).read_bytes())
        return str(settings["AppleLanguages"][0])
    except (OSError, ValueError, LookupError, TypeError, plistlib.InvalidFileException):
        return ""


def user_locale(
    given: str | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    system_language: Callable[[], str] = _system_language,
) -> str:
    """Return the locale of texts for the user.

    The first of these that is set and not empty: `given`, `LHKIT_LOCALE`, `LC_ALL`, `LC_MESSAGES`,
    `LANG`, the language of macOS or Windows. Of the last four, an unknown language, `C` and `POSIX`
    mean English, and so does nothing at all.

    Args:
        given: an explicit choice of the caller or the project.
        variables: the environment; by default that of this process.
        system_language: returns the language of a system without these variables.

    Raises:
        UsageError: lhkit has no texts in the language of `given` or `LHKIT_LOCALE`.
    """
    variables = os.environ if variables is None else variables
    own = next((variables[name] for name in variables if name.upper() == VARIABLE), "")
    if chosen := given or own:
        return require_locale(language_of(chosen))
    posix = next(filter(None, (variables.get(name, "") for name in _POSIX)), "")
    language = language_of(posix or system_language())
    return language if language in available_locales() else FALLBACK


def user_catalog(given: str | None = None) -> Catalog:
    """Return the texts of `user_locale`."""
    return load_catalog(user_locale(given))


def language_of(name: str) -> str:
    """Return the language of `ko_KR.UTF-8`, `ko-KR` or `ko`: `ko`."""
    return re.split("[-_.@]", name.strip(), maxsplit=1)[0].lower()
