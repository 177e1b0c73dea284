"""Values that fill a phrase's slots."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, TypeAlias

from lhkit.errors import TuningError
from lhkit.harness.matchers import DateIs, dates_resolved, slot_faults
from lhkit.harness.scenario import did_you_mean
from lhkit.json_values import compact
from lhkit.tools.schema import SchemaNode, property_of
from lhkit.tools.validation import Accepted, ArgumentValidator, Invalid, describe
from lhkit.tuning.phrases.file import filled, parts_of, plain_word, slots_of, steps_of

_SPREAD = 5
"""Numbers taken from a range."""

_OPEN_RANGE = 9
"""How far a range without an upper end is followed."""

_LIMITS = frozenset({"const", "enum", "format", "pattern"})

_COMBINING = frozenset({"anyOf", "oneOf", "allOf"})

_ENDS = frozenset({"minimum", "maximum"})

CHECK_DAY = date(2026, 1, 1)
"""A relative day is checked as if it were said on this one."""

SAY = "say"
"""`{say}` in a look-up is what the user said."""

TOLD = "told"
DATE = "date"
_LOOK_UP = ("tool", "take", "args", "where")
_WORDS = frozenset({SAY, TOLD})
_FORMS = (
    "{say: words, value: …}, {say: words, date: …}, or "
    "{say: words, tool: …, args: {…}, take: …, where: {…}} to look it up"
)
_ROW = "{say: words, args: {argument: …}} for values that belong together"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """What a slot was filled with: how it is said, how a reply tells it, and what it means.

    `entry` is which of the slot's values it is.
    """

    said: str
    told: str
    value: Any
    entry: int = 0


Fillings: TypeAlias = Mapping[str, Filling]
"""By slot as it is written, such as `day` or `person.name`."""


class JoinedArguments(dict[str, Any]):
    """Arguments that a slot means together; told apart from a value that is an object."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """A call that has to come first, and where in its result the value stands.

    Attributes:
        tool: which tool to call.
        take: place in its result, such as `notes.id`.
        args: its arguments, as `meant` reads them; a `LookUp` is looked up before.
        where: what fields of the right row hold, written like `args`.
    """

    tool: str
    take: str
    args: Mapping[str, Any] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)

    def on(self, today: date, fillings: Fillings) -> "LookUp":
        """Return it for that day and for what is said."""
        args = {name: meant(value, today, fillings) for name, value in self.args.items()}
        where = {name: meant(value, today, fillings) for name, value in self.where.items()}
        return replace(self, args=args, where=where)

    def calls(self) -> int:
        """Return how many calls it takes."""
        return calls_for(self.args)


def calls_for(args: Mapping[str, Any]) -> int:
    """Return how many calls it takes to call a tool: itself, and what is looked up before."""
    return 1 + sum(value.calls() for value in args.values() if isinstance(value, LookUp))


def meant(part: Any, today: date, fillings: Fillings) -> Any:
    """Return what a part of a call stands for on that day.

    A text that is one slot is what the slot means, one with slots among words is said so; each
    `{date: …}` is a day.
    """
    match part:
        case str():
            alone = lone_slot(part)
            if alone is not None:
                return fillings[alone].value
            return filled(part, lambda slot: fillings[str(slot)].said) or ""
        case LookUp():
            return part.on(today, fillings)
        case {"date": str(day)} if len(part) == 1:
            return DateIs(day).resolved(today)
        case _:
            return dates_resolved(part, today)


def lone_slot(text: str) -> str | None:
    """Return the slot that a text is, without any other words; None if it is anything else."""
    match parts_of(text):
        case (("", slot),) if slot is not None:
            return str(slot)
        case _:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value. `words` are ways to say it; none if it cannot be said.

    `told` is how replies say it, where that differs. `day` is a relative day; what `look_up` finds
    is known only when it is played; `parts` are values that belong together, by argument.
    """

    words: tuple[str, ...]
    told: str | None = None
    value: Any = None
    day: DateIs | None = None
    look_up: LookUp | None = None
    parts: "Mapping[str, Value]" = field(default_factory=dict)

    def on(self, today: date, word: str = "") -> Any:
        """Return the argument as the model has to write it on that day, or how to look it up."""
        if self.look_up is not None:
            said = Filling(said=word, told=word, value=word)
            return self.look_up.on(today, {SAY: said})
        if self.parts:
            return JoinedArguments(
                (name, part.on(today, part.words[0] if part.words else word))
                for name, part in self.parts.items()
            )
        return self.value if self.day is None else self.day.resolved(today)

    def filling(self, today: date, word: str) -> Filling:
        """Return it as it is said with one of its words."""
        return Filling(said=word, told=self.told or word, value=self.on(today, word))


def value_of(raw: Any) -> Value:
    """Return what an entry under `values:` means.

    It is a plain value, `{date: friday}`, or one of these with words: `{say: words, value: …}`,
    `{say: words, date: today+1d}`, `{say: words, tool: …, args: …, take: …, where: …}`. Beside
    `say` may stand `told`: how replies say it.

    Raises:
        TuningError: it is a structure and none of these, or no date, or no look-up.
    """
    if not isinstance(raw, Mapping):
        word = plain_word(raw)
        return Value(words=() if word is None else (word,), value=raw)
    words, told = _words(raw) if SAY in raw else (), _told(raw)
    asked = {key: value for key, value in raw.items() if key not in _WORDS}
    if is_look_up(raw):
        look_up = look_up_of(asked)
        _refuse_other_slots(look_up)
        return Value(words=words, told=told, look_up=look_up)
    if set(asked) == {DATE}:
        return Value(words=words, told=told, day=_day(asked[DATE]))
    if set(asked) == {"value"} and words:
        return Value(words=words, told=told, value=asked["value"])
    raise TuningError(f"{compact(raw)} must be {_FORMS}")


def slot_value_of(raw: Any) -> Value:
    """Return what an entry under `slots:` means: like one of `values:`, or a row of them.

    A row is `{args: {argument: value, …}}`, with `say` if all of it is said at once.

    Raises:
        TuningError: as `value_of`.
    """
    if not isinstance(raw, Mapping) or not {"args"} <= raw.keys() <= {"args", *_WORDS}:
        try:
            return value_of(raw)
        except TuningError as error:
            hint = f", or {_ROW}" if str(error).endswith(_FORMS) else ""
            raise TuningError(f"{error}{hint}") from error
    parts = {name: value_of(each) for name, each in _table(raw, "args").items()}
    return Value(words=_words(raw) if SAY in raw else (), told=_told(raw), parts=parts)


def _refuse_other_slots(look_up: LookUp) -> None:
    for key, table in (("args", look_up.args), ("where", look_up.where)):
        for name, part in table.items():
            if any(slot != SAY for slot in slots_in(part)):
                shown = repr(part) if isinstance(part, str) else part.tool
                raise TuningError(
                    f"{key}.{name}: {shown}: the only slot here is {{say}}, what was said"
                )


def _words(raw: Mapping[str, Any]) -> tuple[str, ...]:
    said = raw.get(SAY)
    words = said if isinstance(said, list) else [said]
    if not words or not all(isinstance(word, str) and word.strip() for word in words):
        raise TuningError(f"say: {compact(said)} must be a text or a list of texts")
    return tuple(words)


def _told(raw: Mapping[str, Any]) -> str | None:
    told = raw.get(TOLD)
    if told is not None and not (isinstance(told, str) and told.strip()):
        raise TuningError(f"told: {compact(told)} must be a text: how replies say it")
    return told


def _day(expression: Any) -> DateIs:
    faults = slot_faults({"date": expression})
    if faults:
        raise TuningError(f"date: {faults[0].message}")
    return DateIs(expression)


def is_look_up(raw: Any) -> bool:
    """Return True for what is meant to be looked up, right or wrong."""
    return isinstance(raw, Mapping) and {"tool", "take"} <= raw.keys()


def look_up_of(raw: Mapping[str, Any]) -> LookUp:
    """Return the look-up that `{tool: …, args: {…}, take: rows.id, where: {…}}` means.

    Raises:
        TuningError: a part of it is none; begins with the part.
    """
    unknown = sorted(raw.keys() - set(_LOOK_UP))
    if unknown:
        near = did_you_mean(unknown[0], _LOOK_UP)
        raise TuningError(f"{unknown[0]}: unknown field of a look-up{near}: write {_FORMS}")
    if not isinstance(raw["tool"], str):
        raise TuningError(f"tool: {compact(raw['tool'])} must be the name of a tool")
    try:
        steps_of(str(raw["take"]))
    except TuningError as error:
        raise TuningError(f"take: {error}") from error
    args, where = (
        {name: _part(each, f"{key}.{name}") for name, each in _table(raw, key).items()}
        for key in ("args", "where")
    )
    if any(isinstance(value, LookUp) for value in where.values()):
        raise TuningError("where: must be words, numbers or {date: …}; look things up in `args`")
    return LookUp(tool=raw["tool"], take=str(raw["take"]), args=args, where=where)


def _table(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = raw.get(key, {})
    if not isinstance(table, Mapping):
        raise TuningError(f"{key}: {compact(table)} must be a mapping of names to values")
    return table


def part_of(raw: Any) -> Any:
    """Return a part of a call, as `meant` takes it.

    Raises:
        TuningError: it is no look-up, no day, or a text whose slots are none.
    """
    if is_look_up(raw):
        return look_up_of(raw)
    if isinstance(raw, Mapping) and set(raw) == {DATE}:
        _day(raw[DATE])
    if isinstance(raw, str):
        slots_of(raw)
    return raw


def _part(raw: Any, at: str) -> Any:
    try:
        return part_of(raw)
    except TuningError as error:
        raise TuningError(f"{at}: {error}") from error


def slots_in(part: Any) -> tuple[str, ...]:
    """Return the slots of a part of a call, each as it is written."""
    match part:
        case str():
            return tuple(str(slot) for slot in slots_of(part))
        case LookUp():
            inside = (*part.args.values(), *part.where.values())
            return tuple(slot for each in inside for slot in slots_in(each))
        case _:
            return ()


def schema_fault(parameters: Mapping[str, Any], argument: str, value: Value) -> str | None:
    """Return what the schema of one argument has against a value, in words; None if nothing."""
    verdict = _validator(parameters, argument).check({argument: value.on(CHECK_DAY)})
    match verdict:
        case Accepted():
            return None
        case Invalid(expected=expected, actual=actual):
            return f"{actual} breaks the schema: expected {expected}"
        case _:
            return "breaks the schema"


def _validator(parameters: Mapping[str, Any], argument: str) -> ArgumentValidator:
    schema = {key: parameters[key] for key in ("$defs", "definitions") if key in parameters}
    properties = {argument: property_of(parameters, argument)}
    return ArgumentValidator({**schema, "type": "object", "properties": properties})


def expected_of(parameters: Mapping[str, Any], argument: str) -> str:
    """Return in a few words what an argument accepts, and what each item of a list may be."""
    node = SchemaNode.of(parameters).at(property_of(parameters, argument))
    return " or ".join(dict.fromkeys(_with_items(each, node) for each in node.branches()))


def _with_items(branch: Mapping[str, Any], node: SchemaNode) -> str:
    if "items" not in branch:
        return _accepted(branch)
    each = dict.fromkeys(map(_accepted, node.at(branch["items"]).branches()))
    return f"{_accepted(branch)}, each {' or '.join(each)}"


def _accepted(branch: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in branch.items() if key not in _COMBINING}
    low, high = plain.get("minimum"), plain.get("maximum")
    if (low is None) == (high is None):
        return describe(plain)
    end = f"up to {high}" if low is None else f"from {low}"
    return f"{describe({k: v for k, v in plain.items() if k not in _ENDS})} {end}"


def given_values(parameters: Mapping[str, Any], argument: str) -> tuple[Value, ...]:
    """Return values that the schema of an argument names itself; empty if it names none.

    These are constants, choices, examples and defaults, yes and no, and numbers of a range.
    """
    node = SchemaNode.of(parameters).at(property_of(parameters, argument))
    named = [each for branch in node.branches() for each in _named(branch)]
    distinct = {compact(each): each for each in named}
    values = (value_of({"say": "-", "value": each}) for each in distinct.values())
    fitting = [each.value for each in values if not schema_fault(parameters, argument, each)]
    return tuple(
        Value(words=() if word is None else (word,), value=each)
        for each, word in ((each, plain_word(each)) for each in fitting)
    )


def item_choices(parameters: Mapping[str, Any], argument: str) -> tuple[Value, ...]:
    """Return lists of one item for a list argument whose items are choices; empty for any other."""
    node = SchemaNode.of(parameters).at(property_of(parameters, argument))
    items = [each["items"] for each in node.branches() if "items" in each]
    chosen = [
        choice
        for each in items
        for branch in node.at(each).branches()
        if {"enum", "const"} & branch.keys()
        for choice in _named(branch)
    ]
    words = ((choice, plain_word(choice)) for choice in chosen)
    lists = (Value(words=() if word is None else (word,), value=[each]) for each, word in words)
    return tuple(each for each in lists if not schema_fault(parameters, argument, each))


def is_day(parameters: Mapping[str, Any], argument: str) -> bool:
    """Return True if the schema says that an argument is a date."""
    node = SchemaNode.of(parameters).at(property_of(parameters, argument))
    return any(branch.get("format") == "date" for branch in node.branches())


def is_any_text(parameters: Mapping[str, Any], argument: str) -> bool:
    """Return True if the schema lets an argument be any text: no choice, no form, no date."""
    node = SchemaNode.of(parameters).at(property_of(parameters, argument))
    texts = [branch for branch in node.branches() if _may_be_text(branch)]
    return bool(texts) and not any(_LIMITS & branch.keys() for branch in texts)


def _may_be_text(branch: Mapping[str, Any]) -> bool:
    kind = branch.get("type", "string")
    named = branch.get("enum", [branch["const"]] if "const" in branch else [""])
    is_text = kind == "string" if isinstance(kind, str) else "string" in kind
    return is_text and any(isinstance(each, str) for each in named)


def _named(schema: Mapping[str, Any]) -> Iterator[Any]:
    kind = schema.get("type")
    if "const" in schema:
        yield from (schema["const"],) if schema["const"] is not None else ()
    elif "enum" in schema:
        yield from (each for each in schema["enum"] if each is not None)
    elif kind == "boolean":
        yield from (True, False)
    else:
        yield from (schema["default"],) if schema.get("default") is not None else ()
        yield from schema.get("examples", ())
        kinds = {kind} if isinstance(kind, str) else set(kind or ())
        yield from _numbers(schema) if kinds & {"integer", "number"} else ()


def _numbers(schema: Mapping[str, Any]) -> Iterator[int]:
    """Yield whole numbers from a range, its ends among them."""
    step = schema.get("multipleOf", 1)
    step = step if isinstance(step, int) and step > 0 else 1
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf) + 1)
    high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf) - 1)
    if math.isinf(low):
        return
    first = math.ceil(low / step)
    last = first + _OPEN_RANGE if math.isinf(high) else math.floor(high / step)
    count = min(_SPREAD, last - first + 1)
    for number in range(count):
        yield (first + round(number * (last - first) / max(1, count - 1))) * step
