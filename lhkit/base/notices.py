"""Log records that carry a text for the person in the person's language."""

from typing import Any, TypeAlias

from lhkit.base.locales import Catalog

Notice: TypeAlias = tuple[str, dict[str, Any]]
"""A key of the catalog, and its values."""

NOTICE = "notice"
"""The attribute of a log record that has its notice."""


def notice_text(notice: Notice, catalog: Catalog) -> str:
    """Return a notice in a language, with the reason in it."""
    key, values = notice
    if "reason" in values:
        values = {**values, "reason": catalog.translate(values["reason"])}
    return catalog.text(key, **values)
