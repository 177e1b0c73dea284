"""The phrase file that `lhkit tune init` writes: everything that the tools say, and TODOs."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lhkit.locales import Catalog, load_catalog
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning.own_tools.phrase_file import TODO
from lhkit.tuning.own_tools.values import (
    SAY,
    Value,
    expected_of,
    given_values,
    is_day,
    schema_fault,
    value_of,
)

_PLAIN_KEY = re.compile(
    r"(?!(?:true|false|null|yes|no|on|off)$)[a-z_]\w*", re.ASCII | re.IGNORECASE
)
_ID = re.compile(r"(?:(\w+?)_)?(?:id|uuid)|([a-z]\w*?)Id", re.ASCII)
_DAYS = {"today": "today", "tomorrow": "today+1d", "yesterday": "today-1d"}


def skeleton(
    registries: Mapping[str, ToolRegistry],
    *,
    world: Mapping[str, Any],
    reference: str,
    reader: str,
) -> str:
    """Return a commented YAML text to fill in.

    Args:
        registries: the tools by language; a part of the file for each.
        world: a state that the environment opens.
        reference: how the environment is called on the command line.
        reader: language of the comments.
    """
    told = load_catalog(reader)
    lines = [*_comment(told.text("tune_own.head", reference=reference)), ""]
    lines += [*_comment(told.text("tune_own.worlds")), "worlds:", f"  - {_flow(world)}", ""]
    lines += [*_comment(told.text("tune_own.typos")), "typos: true", "", "locales:"]
    for number, (locale, registry) in enumerate(registries.items()):
        lines += _indented(_locale(locale, registry, told, is_first=number == 0), 1)
    return "\n".join(lines) + "\n"


def _locale(locale: str, registry: ToolRegistry, told: Catalog, *, is_first: bool) -> Iterator[str]:
    words = load_catalog(locale)
    yield f"{locale}:"
    yield "  tools:"
    for number, tool in enumerate(registry.definitions):
        hints = told if is_first and number == 0 else None
        yield from _indented(_tool(tool, registry, words, told, hints), 2)
        yield ""
    yield from _hint("two_wishes", told, 1)
    yield "  two_wishes:"
    yield from _items(words.text("tune_own.joints").splitlines(), 2)
    yield from _hint("around", told, 1)
    yield f"  before: {_flow(words.text('tune_own.before').splitlines())}"
    yield f"  after: {_flow(words.text('tune_own.after').splitlines())}"
    yield from _hint("small_talk", told, 1)
    yield "  small_talk:"
    for kind in ("greeting", "thanks"):
        yield from _indented(_talk(words, kind), 2)
    yield from _hint("out_of_scope", told, 1)
    yield "  out_of_scope:"
    yield f"    - say: [{TODO}]"
    yield f"      answer: {_flow([words.text('tune_own.outside_answer')])}"


def _hint(key: str, told: Catalog | None, depth: int) -> Iterator[str]:
    """Yield the explanation of a field as comments; nothing without a catalog."""
    if told is not None:
        yield from _indented(_comment(told.text(f"tune_own.{key}")), depth)


def _talk(words: Catalog, kind: str) -> Iterator[str]:
    yield f"- say: {_flow(words.text(f'tune_own.{kind}').splitlines())}"
    yield f"  answer: {_flow(words.text(f'tune_own.{kind}_answer').splitlines())}"


def _tool(
    tool: ToolDefinition,
    registry: ToolRegistry,
    words: Catalog,
    told: Catalog,
    hints: Catalog | None,
) -> Iterator[str]:
    yield from _comment(f"{tool.name}: {tool.description}")
    if tool.is_destructive:
        yield from _hint("writes", told, 0)
    yield f"{tool.name}:"
    yield from _hint("say", hints, 1)
    yield "  say:"
    yield from _items(_sentences(tool), 2)
    arguments = tuple(tool.parameters.get("properties", {}))
    if arguments:
        yield from _hint("values", hints, 1)
        yield "  values:"
    for name in arguments:
        yield from _indented(_argument(tool, name, registry, words, told), 2)
    yield from _hint("failing", hints, 1)
    yield from _hint("replies", hints, 1)
    yield "  replies:"
    outcomes = ("cancelled",) if tool.is_destructive else ()
    yield f"    ok: [{TODO}]"
    for outcome in (*outcomes, "refused", "not_found"):
        yield f"    {outcome}: {_flow([words.text(f'tune_own.reply_{outcome}')])}"


def _sentences(tool: ToolDefinition) -> tuple[str, ...]:
    """Return a sentence with the required arguments, and one with each optional one besides."""
    required = [name for name in tool.parameters.get("required", ()) if not _is_fixed(tool, name)]
    optional = [
        name
        for name in tool.parameters.get("properties", {})
        if name not in tool.parameters.get("required", ())
    ]
    slots = [required, *([*required, name] for name in optional)]
    return tuple(" ".join([TODO, *(f"{{{name}}}" for name in each)]) for each in slots)


def _is_fixed(tool: ToolDefinition, name: str) -> bool:
    return len(given_values(tool.parameters, name)) == 1


def _argument(
    tool: ToolDefinition, name: str, registry: ToolRegistry, words: Catalog, told: Catalog
) -> Iterator[str]:
    is_required = name in tool.parameters.get("required", ())
    about = told.text("tune_own.required" if is_required else "tune_own.optional")
    described = tool.parameters["properties"][name].get("description", "")
    accepts = expected_of(tool.parameters, name)
    yield from _comment(f"{name} ({about}): {accepts}. {described}".rstrip(". "))
    source = _source(tool, name, registry)
    if source is not None:
        yield from _hint("look_up", told, 0)
    yield f"{_key(name)}:"
    entries = _entries(tool, name, words) if source is None else _look_up(source)
    yield from _indented(entries, 1)


def _source(tool: ToolDefinition, name: str, registry: ToolRegistry) -> ToolDefinition | None:
    """Return the tool whose result may hold an argument that looks like an id; None without one.

    It is one that the argument's description names, else one whose name speaks of the same thing,
    else the first that only reads.
    """
    looks = _ID.fullmatch(name)
    if looks is None or given_values(tool.parameters, name):
        return None
    thing = looks[1] or looks[2] or name
    described = str(tool.parameters["properties"][name].get("description", ""))
    readers = [each for each in registry.definitions if not each.is_destructive and each != tool]
    takes_it = [each for each in readers if name in each.parameters.get("required", ())]
    readers = [each for each in readers if each not in takes_it]
    ranked = sorted(
        readers,
        key=lambda each: (each.name not in described, thing not in each.name),
    )
    return next(iter(ranked), None)


def _look_up(source: ToolDefinition) -> Iterator[str]:
    """Yield an entry that looks an id up: by what is said if the tool takes a text, else by row."""
    properties = source.parameters.get("properties", {})
    required = source.parameters.get("required", ())
    texts = [name for name in properties if _is_text(source, name)]
    asked = next((name for name in texts if name in required), next(iter(texts), None))
    args = dict.fromkeys(required, TODO) | ({} if asked is None else {asked: f"{{{SAY}}}"})
    yield f"- say: [{TODO}]"
    yield f"  tool: {_flow(source.name)}"
    if args:
        yield f"  args: {_flow(args)}"
    yield f"  take: {TODO}.id"
    if asked is None:
        yield f"  where: {_flow({TODO: f'{{{SAY}}}'})}"


def _is_text(tool: ToolDefinition, name: str) -> bool:
    """Return True for an argument that takes any words."""
    if is_day(tool.parameters, name) or given_values(tool.parameters, name):
        return False
    is_pattern = "pattern" in tool.parameters["properties"][name]
    return not is_pattern and expected_of(tool.parameters, name).startswith("string")


def _entries(tool: ToolDefinition, name: str, words: Catalog) -> Iterator[str]:
    given = given_values(tool.parameters, name)
    for value in given:
        yield f"- {_entry(value)}"
    days = _days(tool, name, words) if not given else ()
    for entry in days:
        yield f"- {_flow(entry)}"
    if not given and not days:
        yield f"- {TODO}"


def _entry(value: Value) -> str:
    """Return a plain value, or with a place for its words where it is none that can be said."""
    is_plain = value.words or isinstance(value.value, bool)
    return _flow(value.value if is_plain else {"say": TODO, "value": value.value})


def _days(tool: ToolDefinition, name: str, words: Catalog) -> tuple[dict[str, str], ...]:
    if not is_day(tool.parameters, name):
        return ()
    entries = ({"say": words.text(f"tune_own.{key}"), "date": day} for key, day in _DAYS.items())
    return tuple(
        each for each in entries if not schema_fault(tool.parameters, name, value_of(each))
    )


def _items(texts: list[str] | tuple[str, ...], depth: int) -> Iterator[str]:
    yield from _indented((f"- {_flow(text)}" for text in texts), depth)


def _indented(lines: Any, depth: int) -> Iterator[str]:
    for line in lines:
        yield f"{'  ' * depth}{line}" if line else line


def _comment(text: str) -> list[str]:
    return [f"# {_escaped(line)}".rstrip() for line in text.splitlines()]


def _key(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) else _flow(name)


def _flow(value: Any) -> str:
    """Return a value on one line; JSON is YAML, but for some characters."""
    return _escaped(json.dumps(value, ensure_ascii=False))


def _escaped(text: str) -> str:
    """Return one line with everything that YAML forbids or nobody sees as YAML's escapes."""
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)
