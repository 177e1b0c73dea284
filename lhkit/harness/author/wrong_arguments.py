"""Mistakes in the arguments of calls that matter.

What does not count as a mistake: a value that the argument's own matcher accepts (`any`,
`one_of`, a pattern that fits), leaving out an argument that is `optional` or whose value is the
schema's default, and the arguments of a call that no expectation describes. One thing counts
although a pattern may accept it: words that the user dictated in quotes for a write, with more
words added or cut off; only `any` and `one_of` excuse that.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, timedelta
from itertools import combinations, islice
from typing import Any

from lhkit.harness.author.examples import example, texts_like
from lhkit.harness.author.mutants import GoldStep, Mutant, Setting, Untried
from lhkit.harness.author.wrong_calls import replaced
from lhkit.harness.equality import equal, is_number
from lhkit.harness.matchers import AnyValue, ArgumentSet, Matcher, OneOf
from lhkit.json_values import shown
from lhkit.tools.schema import SchemaNode, default_of, nfc
from lhkit.tools.validation import Accepted

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
                if not _is_right_too(setting, part, args):
                    yield _mutant(setting, part, kind, name, f"without {name}", args=args)


def _is_asked_for(setting: Setting, tool: str, slots: ArgumentSet, name: str, value: Any) -> bool:
    node = setting.place_of(tool).node
    is_default = equal(default_of(node.schema, name, node.root), value, SchemaNode.of({}))
    slot = slots.get(name)
    return slot is not None and not slot.optional and not is_default


def altered_arguments(setting: Setting) -> Iterator[Mutant | Untried]:
    """Yield the trace with each argument a little wrong, where its matcher does not accept that.

    What the tool's own schema refuses is no mistake: no write would come of it.
    """
    for part, slots in _described(setting):
        for name, value in part.call.args.items():
            made = [
                (label, other)
                for label, other in _variants(
                    setting, name, value, setting.schema_of(part.call.name, name)
                )
                if _is_fit(setting, part, {**part.call.args, name: other})
            ]
            if not made:
                why = f"no other value of {name} can be guessed that {part.call.name} accepts"
                place = f"{part.place}.{name}"
                yield setting.untried("alter_argument", place, f"{why}: give it `examples`")
            for label, other in made:
                if name in slots and _accepts(setting, part, name, slots[name], other):
                    continue
                args = {**part.call.args, name: other}
                change = f"{name}={shown(other)} in place of {shown(value)}"
                yield _mutant(setting, part, "alter_argument", name + label, change, args=args)


def added_arguments(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with each optional argument that gold leaves out, one at a time."""
    for part, slots in _described(setting):
        tool = setting.registry.get(part.call.name)
        text = setting.scenario.turns[part.turn].user
        for label, guess in setting.guesses(tool, text).items() if tool else ():
            name = label.removeprefix("+")
            if not label.startswith("+") or name in part.call.args:
                continue
            value, schema = guess.args[name], setting.schema_of(part.call.name, name)
            for other in (value, *(each for _, each in _variants(setting, name, value, schema))):
                args = {**part.call.args, name: other}
                if _is_added(setting, part, slots, name, other) and _is_fit(setting, part, args):
                    change = f"with {name}={shown(other)}"
                    yield _mutant(setting, part, "add_argument", name, change, args=args)
                    break


def _is_added(setting: Setting, part: GoldStep, slots: ArgumentSet, name: str, value: Any) -> bool:
    """Return True if a value of an argument that gold leaves out says something else."""
    node = setting.place_of(part.call.name).node
    is_right = name in slots and _accepts(setting, part, name, slots[name], value)
    is_default = equal(default_of(node.schema, name, node.root), value, SchemaNode.of({}))
    return not (is_right or is_default)


def swapped_values(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with the values of two arguments of one kind exchanged: who is who."""
    for part, slots in _described(setting):
        named = [name for name, value in part.call.args.items() if isinstance(value, str)]
        for one, two in combinations(named, 2):
            args = {**part.call.args, one: part.call.args[two], two: part.call.args[one]}
            is_right = all(
                name in slots and _accepts(setting, part, name, slots[name], args[name])
                for name in (one, two)
            )
            if args != part.call.args and not is_right and _is_fit(setting, part, args):
                change = f"{one} and {two} exchanged"
                yield _mutant(setting, part, "alter_argument", f"{one}<>{two}", change, args=args)


def _is_fit(setting: Setting, part: GoldStep, args: Mapping[str, Any]) -> bool:
    """Return True for a mistake that a tool takes, if it takes those of the gold trace."""
    if _is_right_too(setting, part, args):
        return False
    validator = setting.registry.validator(part.call.name)
    is_taken = isinstance(validator.check(args), Accepted)
    return is_taken or not isinstance(validator.check(part.call.args), Accepted)


def _is_right_too(setting: Setting, part: GoldStep, args: Mapping[str, Any]) -> bool:
    """Return True if arguments are another set of which the scenario says that it is right."""
    if part.wish is None or len(part.wish.alternatives) == 1:
        return False
    return any(True for _ in setting.fitting(part.wish, replace(part.call, args=dict(args))))


def altered_quotations(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with words added to, or cut from, what the user dictated for a write."""
    more = MORE_WORDS.get(setting.scenario.locale, MORE_WORDS["en"])
    for part, slots in _described(setting):
        for name, value in part.call.args.items() if part.is_write else ():
            slot = slots.get(name)
            if slot is None or isinstance(slot, AnyValue | OneOf):
                continue
            if not _is_dictated(setting, part, value):
                continue
            limit = setting.schema_of(part.call.name, name).get("maxLength", 10_000)
            longer, shorter = value.rstrip(".") + more, " ".join(value.split()[:-_WORDS_KEPT])
            for kind, other in (("pad_quotation", longer), ("cut_quotation", shorter)):
                if other.strip() and len(other) <= limit:
                    args = {**part.call.args, name: other}
                    yield _mutant(setting, part, kind, name, f"{name}={shown(other)}", args=args)


def _is_dictated(setting: Setting, part: GoldStep, value: Any) -> bool:
    turns = setting.scenario.turns[: part.turn + 1]
    quoted = {_bare(words) for turn in turns for words in _QUOTED.findall(turn.user)}
    return isinstance(value, str) and _bare(value) in quoted


def _bare(text: str) -> str:
    return " ".join(nfc(text).split()).strip(" .!,")


def _described(setting: Setting) -> Iterator[tuple[GoldStep, ArgumentSet]]:
    """Yield the calls that matter and that something is known of, with the matchers they fit.

    Of a call whose result is awaited and that nobody lists, any argument may be wrong.
    """
    for part in setting.all_parts():
        if not part.matters or not isinstance(part.call.args, Mapping):
            continue
        if part.wish is not None:
            yield part, next(setting.fitting(part.wish, part.call), {})
        elif part.is_awaited:
            yield part, {}


def _accepts(setting: Setting, part: GoldStep, name: str, slot: Matcher, value: Any) -> bool:
    place = setting.place_of(part.call.name)
    inner = place.at(setting.schema_of(part.call.name, name))
    return slot.fits(value, inner)


def _mutant(
    setting: Setting, part: GoldStep, kind: str, label: str, change: str, *, args: Mapping[str, Any]
) -> Mutant:
    call = replace(part.call, args=dict(args))
    return Mutant(
        kind=kind,
        place=f"{part.place}.{label}",
        change=f"{part.call.name}: {change}",
        trace=setting.with_calls(part.turn, replaced(setting, part, call)),
        needs_effect=part.needs_effect,
    )


def _variants(
    setting: Setting, name: str, value: Any, schema: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield wrong values near the right one, each with a label that tells them apart."""
    if isinstance(value, bool):
        yield "", not value
    elif is_number(value):
        yield "", value - 1 if value + 1 > schema.get("maximum", value + 1) else value + 1
    elif isinstance(value, list | tuple | Mapping):
        yield from _inner_variants(setting, name, value, schema)
    elif name in setting.ids:
        yield "", _other_id(setting, value, name)
    elif "enum" in schema:
        yield from [("", other) for other in schema["enum"] if other != value][:1]
    elif isinstance(value, str):
        yield from _other_texts(setting, value, schema)


def _inner_variants(
    setting: Setting, name: str, value: Sequence[Any] | Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield an object with each field wrong, a list with its first item wrong, its last gone."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            inner = schema.get("properties", {}).get(key, {})
            for label, other in _variants(setting, key, each, inner):
                yield f".{key}{label}", {**value, key: other}
        return
    items = schema.get("items", {})
    for label, other in _variants(setting, name, value[0], items) if value else ():
        yield f"[0]{label}", [other, *value[1:]]
    if len(value) > schema.get("minItems", 0):
        yield "[-]", list(value[:-1])
    elif not value:
        yield "[+]", [example(SchemaNode.of(items), setting.today)]


def _other_texts(
    setting: Setting, value: str, schema: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield other times and days, what another row has in the same place, other words."""
    time = _TIME.fullmatch(value)
    day = None if time else _day(value)
    if time:
        for hours in (-1, 1, 12):
            hour = (int(time["hour"]) + hours) % 24
            yield f"{hours:+}h", f"{time['before']}{hour:02}{time['after']}"
    if day is not None or (time and _day(time["before"][:10])):
        for days in (-1, 1):
            with suppress(OverflowError):
                other = date.fromisoformat(value[:10]) + timedelta(days=days)
                yield f"{days:+}", f"{other.isoformat()}{value[10:]}"
    yield from (("~row", other) for other in _of_other_rows(setting, value)[:1])
    if not time and day is None:
        words = UNRELATED_WORDS.get(setting.scenario.locale, UNRELATED_WORDS["en"])
        yield "", words
        others = (each for each in texts_like(schema, setting.today) if each != value)
        if schema.keys() & {"examples", "format", "pattern"}:
            yield from (("~like", other) for other in islice(others, 1))


_TIME = re.compile(
    r"(?P<before>(?:\d{4}-\d\d-\d\d[T ])?)(?P<hour>[01]\d|2[0-3])(?P<after>:[0-5]\d(?!\d).*)"
)


def _of_other_rows(setting: Setting, value: str) -> list[str]:
    """Return what other rows of the world have where one has this value."""
    rows = [row for rows in setting.gold.evidence.initial_state.values() for row in rows]
    fields = {name for row in rows for name, each in row.items() if each == value}
    others = (row.get(name) for row in rows for name in sorted(fields))
    return list(dict.fromkeys(each for each in others if isinstance(each, str) and each != value))


def _other_id(setting: Setting, value: Any, name: str) -> str:
    """Return another id that exists, or one that nobody has where there is no other."""
    others = [each for each in setting.ids[name] if each != value]
    return others[0] if others else f"{value}-2"


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
