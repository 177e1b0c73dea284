"""What was left out of tools or changed in them, in a line each, for the person.

The code that opens a session logs the notices; a command prints them on standard error, a panel
shows them in the conversation.
"""

import logging
from collections.abc import Iterator

from lhkit.base.locales import Catalog, load_catalog
from lhkit.base.notices import NOTICE, Notice, notice_text
from lhkit.tools.registry import ToolRegistry

_log = logging.getLogger(__name__)


def tool_notices(registry: ToolRegistry, catalog: Catalog) -> Iterator[str]:
    """Yield a line for each tool that is left out, and for each description that is cut."""
    for notice in _notices(registry):
        yield notice_text(notice, catalog)


def log_notices(registry: ToolRegistry) -> None:
    """Log the notices of a registry in English, and attach them to the log records."""
    for notice in _notices(registry):
        key, values = notice
        text = load_catalog("en").text(key, **values)
        _log.warning("%s", text, extra={NOTICE: notice})


def _notices(registry: ToolRegistry) -> Iterator[Notice]:
    for name, reason in registry.left_out.items():
        yield "tools.left_out", {"tool": name, "reason": reason}
    for name, length in registry.cut_descriptions.items():
        limit = len(registry[name].description) if name in registry else 0
        yield "tools.cut", {"tool": name, "chars": f"{length:,}", "limit": f"{limit:,}"}
