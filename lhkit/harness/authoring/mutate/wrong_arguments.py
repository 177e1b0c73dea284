"""Mistakes in the arguments of calls that matter.

What does not count as a mistake: a value that the argument's own matcher accepts (`any`, `one_of`,
a pattern that fits), leaving out an argument that is `optional` or whose value is the schema's
default, and the arguments of a call that no expectation describes. One thing counts although a
pattern may accept it: words that the user dictated in quotes for a write, with more words added or
cut off; only `any` and `one_of` excuse that.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from lhkit.harness.authoring.mutate.mutant import Mutant, Part, Setting
from lhkit.harness.authoring.mutate.wrong_calls import replaced
from lhkit.harness.expectations.comparison import mismatch, shown
from lhkit.harness.expectations.equality import equal, is_number
from lhkit.harness.expectations.matchers import AnyValue, OneOf, Slot, parse_slot
from lhkit.tools.schema import SchemaNode, default_of, nfc
from lhkit.vocab.messages import ToolCall

UNRELATED_WORDS = {"ko": "된장찌개 끓이기", "en": "soybean stew"}
MORE_WORDS = {"ko": " 그리고 웃는다", "en": " and I smile"}

_QUOTED = re.compile(r"[\"“‘'「『]([^\"“”‘’'「」『』]{4,})[\"”’'」』]")
_WORDS_KEPT = 2


def dropped_arguments(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace without each argument that the scenario asks for."""
    for part, slots in _described(setting):
        schema = setting.place_of(part.call.name).node.schema
        for name, value in part.call.args.items():
            is_required = name in schema.get("required", ())
            if is_required or _is_asked_for(setting, part.call.name, slots, name, value):
                kind = "drop_required_argument" if is_required else "drop_optional_argument"
                args = {key: each for key, each in part.call.args.items() if key != name}
                yield _mutant(setting, part, kind, name, f"without {name}", args=args)


def _is_asked_for(
    setting: Setting, tool: str, slots: Mapping[str, Slot], name: str, value: Any
) -> bool:
    node = setting.place_of(tool).node
    is_default = equal(default_of(node.schema, name, node.root), value, SchemaNode.of({}))
    slot = slots.get(name)
    return slot is not None and not slot.optional and not is_default


def altered_arguments(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with each argument a little wrong, where its matcher does not accept that."""
    for part, slots in _described(setting):
        for name, value in part.call.args.items():
            for label, other in _variants(setting, part, name, value):
                if name in slots and _accepts(setting, part, name, slots[name], other):
                    continue
                args = {**part.call.args, name: other}
                change = f"{name}={shown(other)} in place of {shown(value)}"
                yield _mutant(setting, part, "alter_argument", name + label, change, args=args)


def altered_quotations(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with words added to, or cut from, what the user dictated for a write."""
    more = MORE_WORDS.get(setting.scenario.locale, MORE_WORDS["en"])
    for part, slots in _described(setting):
        for name, value in part.call.args.items() if part.is_write else ():
            slot = slots.get(name)
            if slot is None or isinstance(slot.matcher, AnyValue | OneOf):
                continue
            if not _is_dictated(setting, part, value):
                continue
            limit = setting.schema_of(part.call.name, name).get("maxLength", 10_000)
            longer, shorter = value.rstrip(".") + more, " ".join(value.split()[:-_WORDS_KEPT])
            for kind, other in (("pad_quotation", longer), ("cut_quotation", shorter)):
                if other.strip() and len(other) <= limit:
                    args = {**part.call.args, name: other}
                    yield _mutant(setting, part, kind, name, f"{name}={shown(other)}", args=args)


def _is_dictated(setting: Setting, part: Part, value: Any) -> bool:
    turns = setting.scenario.turns[: part.turn + 1]
    quoted = {_bare(words) for turn in turns for words in _QUOTED.findall(turn.user)}
    return isinstance(value, str) and _bare(value) in quoted


def _bare(text: str) -> str:
    return " ".join(nfc(text).split()).strip(" .!,")


def _described(setting: Setting) -> Iterator[tuple[Part, dict[str, Slot]]]:
    """Yield the calls that matter and have an expectation, with its matchers."""
    for part in setting.all_parts():
        if part.matters and part.wish is not None and isinstance(part.call.args, Mapping):
            yield part, {name: parse_slot(raw) for name, raw in part.wish.args.items()}


def _accepts(setting: Setting, part: Part, name: str, slot: Slot, value: Any) -> bool:
    place = setting.place_of(part.call.name)
    inner = place.at(setting.schema_of(part.call.name, name))
    return mismatch(slot.matcher, value, inner) is None


def _mutant(
    setting: Setting, part: Part, kind: str, label: str, change: str, *, args: Mapping[str, Any]
) -> Mutant:
    call = replace(part.call, args=dict(args))
    return Mutant(
        kind=kind,
        place=f"{part.place}.{label}",
        change=f"{part.call.name}: {change}",
        trace=setting.with_calls(part.turn, replaced(setting, part, call)),
    )


def _variants(setting: Setting, part: Part, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield wrong values near the right one, each with a label that tells them apart."""
    schema = setting.schema_of(part.call.name, name)
    if isinstance(value, bool):
        yield "", not value
    elif is_number(value):
        yield "", value - 1 if value + 1 > schema.get("maximum", value + 1) else value + 1
    elif name in setting.ids:
        yield "", _other_id(setting, part.call, name)
    elif "enum" in schema:
        yield from [("", other) for other in schema["enum"] if other != value][:1]
    elif isinstance(value, str) and _day(value) is not None:
        for days in (-1, 1) if _day(value) not in {date.min, date.max} else ():
            yield f"{days:+}", (date.fromisoformat(value) + timedelta(days=days)).isoformat()
    elif isinstance(value, str):
        words = UNRELATED_WORDS.get(setting.scenario.locale, UNRELATED_WORDS["en"])
        yield "", words


def _other_id(setting: Setting, call: ToolCall, name: str) -> str:
    """Return another id that exists, or one that nobody has where there is no other."""
    value = call.args[name]
    others = [each for each in setting.ids[name] if each != value]
    return others[0] if others else f"{value}-2"


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
