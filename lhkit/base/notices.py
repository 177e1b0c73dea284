"""Log records that carry a text for the person in the person's language."""

from typing import Any, TypeAlias

Notice: TypeAlias = tuple[str, dict[str, Any]]
"""A key of the catalog, and its values."""

NOTICE = "notice"
"""The attribute of a log record that has its notice."""
