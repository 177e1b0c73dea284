"""The six tools of life-helper put together: schema, handler, summary. This package's door."""

from collections.abc import Mapping

from lhkit.confirm.summary import Summarizer
from lhkit.lifehelper import handlers
from lhkit.lifehelper.catalog import ProtocolCatalog
from lhkit.lifehelper.handlers import LifeHelper
from lhkit.lifehelper.schemas import tool_texts
from lhkit.lifehelper.summaries import Summaries
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.registry import ToolRegistry

__all__ = ["LifeHelper", "build_registry"]

_HANDLERS: Mapping[str, Handler] = {
    "search_catalog": handlers.search_catalog,
    "query_protocol": handlers.query_protocol,
    "query_tracker": handlers.query_tracker,
    "log_tracker_entry": handlers.log_tracker_entry,
    "list_habits": handlers.list_all_habits,
    "add_habit": handlers.add_habit,
}


def build_registry(catalog: ProtocolCatalog, locale: str) -> ToolRegistry:
    """Return the registry of the six tools; their handlers take a `LifeHelper` as `deps`.

    Args:
        catalog: gives the categories of the schema and the titles of the summaries.
        locale: the language of the descriptions that the model reads (`ko`, `en`).
    """
    summaries = Summaries(catalog)
    writing: Mapping[str, Summarizer] = {
        "log_tracker_entry": summaries.log_tracker_entry,
        "add_habit": summaries.add_habit,
    }
    return ToolRegistry(
        ToolDefinition(
            name=name,
            description=text.description,
            parameters=text.parameters,
            handler=_HANDLERS[name],
            is_destructive=name in writing,
            summarize=writing.get(name),
            implied=text.implied,
        )
        for name, text in tool_texts(catalog.categories, locale).items()
    )
