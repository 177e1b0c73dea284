"""Replace what a model reads of tools: their descriptions and those of their parameters.

A key is the name of a tool (`find_item`), or of a tool and one of its parameters
(`find_item.query`). A value is a text for all languages, or one for each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from lhkit.base.errors import UsageError
from lhkit.base.locales import available_locales
from lhkit.harness.scenarios.issues import did_you_mean
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Session, Toolset, WrappedToolset, registry_of

Descriptions: TypeAlias = Mapping[str, str | Mapping[str, str]]


def with_descriptions(toolset: Toolset, descriptions: Descriptions) -> Toolset:
    """Return the toolset with descriptions of tools and parameters replaced.

    A tool without a text in the language of the session keeps its description.
    """
    if not descriptions:
        return toolset
    known: dict[str, tuple[ToolRegistry, ToolRegistry]] = {}

    def registry(session: Session, locale: str) -> ToolRegistry:
        real = session.registry
        if locale not in known or known[locale][0] is not real:
            texts = _texts(descriptions, locale)
            known[locale] = (real, real.mapped(lambda tool: _described(tool, texts)))
        return known[locale][1]

    return WrappedToolset(inner=toolset, registry=registry)


def _texts(descriptions: Descriptions, locale: str) -> Mapping[str, str]:
    """Return the texts of a language, by key."""
    texts: dict[str, str] = {}
    for key, text in descriptions.items():
        written = text if isinstance(text, str) else text.get(locale)
        if written is not None:
            texts[key] = written
    return texts


def _described(tool: ToolDefinition, texts: Mapping[str, str]) -> ToolDefinition:
    parameters = tool.parameters
    for name, schema in parameters.get("properties", {}).items():
        if (text := texts.get(f"{tool.name}.{name}")) is not None:
            # beside a `$ref`, which may be that of other parameters, too
            described = {**(schema if isinstance(schema, Mapping) else {}), "description": text}
            properties = {**parameters["properties"], name: described}
            parameters = {**parameters, "properties": properties}
    return replace(tool, description=texts.get(tool.name, tool.description), parameters=parameters)


def check_descriptions(
    descriptions: Descriptions,
    toolset: Toolset,
    scenarios: Sequence[Scenario],
    *,
    place: str = "tool_descriptions",
) -> None:
    """Check that each key names a tool or a parameter of the scenarios' tools.

    Args:
        descriptions: the texts.
        toolset: the tools.
        scenarios: those of the run; tools may differ between them.
        place: where the descriptions are written, for the message.

    Raises:
        UsageError: a key is unknown, or a language does not exist.
    """
    if not descriptions:
        return
    tools: dict[str, ToolDefinition] = {}
    for scenario in _one_a_language_first(scenarios):
        tools.update(registry_of(toolset, scenario.world, scenario.locale))
        if not any(_key_issue(key, tools) for key in descriptions):
            break
    for key, text in descriptions.items():
        issue = _key_issue(key, tools) or _language_issue(key, text, tools, scenarios)
        if issue:
            raise UsageError(f"{place}: {key}: {issue}")


def _one_a_language_first(scenarios: Iterable[Scenario]) -> list[Scenario]:
    """Return the scenarios, those first that are the first one in their language."""
    first: dict[str, Scenario] = {}
    for scenario in scenarios:
        first.setdefault(scenario.locale, scenario)
    leading = set(map(id, first.values()))
    return sorted(scenarios, key=lambda scenario: id(scenario) not in leading)


def _key_issue(key: str, tools: Mapping[str, ToolDefinition]) -> str:
    """Return why a key names neither a tool nor a parameter; empty if it does."""
    name, dot, parameter = key.partition(".")
    if name not in tools:
        return f"there is no tool {name!r}{_nearest(name, tools)}"
    known = _parameters(tools[name])
    if dot and parameter not in known:
        return f"the tool {name!r} has no parameter {parameter!r}{_nearest(parameter, known)}"
    return ""


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    return did_you_mean(name, names) or f": choose one of {', '.join(names) or 'none'}"


def _parameters(tool: ToolDefinition) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    return properties


def _language_issue(
    key: str,
    text: str | Mapping[str, str],
    tools: Mapping[str, ToolDefinition],
    scenarios: Iterable[Scenario],
) -> str:
    """Return which key of a text is no language, or that there is none; empty if all are."""
    if isinstance(text, str):
        return ""
    if not text:
        return "has no text: write one, or one for each language"
    known = dict.fromkeys([*available_locales(), *(scenario.locale for scenario in scenarios)])
    for locale in text:
        if key in tools and locale in _parameters(tools[key]):
            return f'write the description of a parameter as "{key}.{locale}" = "…"'
        if locale not in known:
            return f"there is no language {locale!r}: choose one of {', '.join(known)}"
    return ""
