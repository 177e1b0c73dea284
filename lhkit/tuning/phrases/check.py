"""What a phrase file promises, checked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from lhkit.errors import TuningError
from lhkit.harness.matchers import Fault, Path
from lhkit.json_values import compact
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning.phrases.file import (
    Gap,
    LocalePhrases,
    PhraseFile,
    PhraseReply,
    Sentence,
    TalkLine,
    ToolPhrases,
    WishedCall,
    refuse_faults,
    reply_of,
    slots_of,
)
from lhkit.tuning.phrases.values import (
    CHECK_DAY,
    SAY,
    Filling,
    Fillings,
    JoinedArguments,
    LookUp,
    Value,
    expected_of,
    given_values,
    is_look_up,
    meant,
    part_of,
    schema_fault,
    slot_value_of,
    slots_in,
    value_of,
)

OUTCOMES_OF_RESULT = frozenset({"ok", "not_found", "several"})
"""Replies that may tell what a result holds; the others have no result."""

REFUSAL_SLOTS = frozenset({"code", "reason"})


def check_fit(book: PhraseFile, registries: Mapping[str, ToolRegistry]) -> None:
    """Do nothing if the phrases of each locale fit its tools.

    Args:
        book: the phrases.
        registries: the tools, by locale of the file.

    Raises:
        TuningError: they do not; one line for each fault.
    """
    faults = [
        fault
        for locale, registry in registries.items()
        for fault in _locale_faults(book, locale, registry)
    ]
    with suppress(TuningError):  # slots that cannot be read are among the faults
        faults += _share_faults(book, registries)
    refuse_faults(book.file, book.document, tuple(faults))


def values_of(phrases: ToolPhrases, tool: ToolDefinition, argument: str) -> tuple[Value, ...]:
    """Return what an argument may be: as the file says, else as the schema itself says."""
    if phrases.values.get(argument):
        return tuple(value_of(raw) for raw in phrases.values[argument])
    return given_values(tool.parameters, argument)


def single(sentence: Sentence, phrases: ToolPhrases, tool: ToolDefinition) -> dict[str, Value]:
    """Return the required arguments that a sentence does not fill and that have one value only."""
    filled = filled_by(sentence, phrases)
    found = {
        name: values_of(phrases, tool, name)
        for name in tool.parameters.get("required", ())
        if name not in filled
    }
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def filled_by(sentence: Sentence, phrases: ToolPhrases) -> set[str]:
    """Return the arguments that a sentence says or means, also by rows."""
    filled = set(sentence.args)
    for slot in slots_of(sentence.text):
        if slot.name not in phrases.slots:
            filled.add(slot.name)
        elif slot.key:
            filled.add(slot.key)
        else:
            rows = map(slot_value_of, phrases.slots[slot.name])
            filled |= set.intersection(*(set(row.parts) for row in rows))
    return filled


def slot_values(
    entries: Sequence[Any] | str, spoken: LocalePhrases, registry: ToolRegistry
) -> tuple[Value, ...]:
    """Return what a slot of a talk may be: as written, or as an argument or slot of a tool.

    Raises:
        TuningError: an entry is none, or there is no such argument with values.
    """
    if not isinstance(entries, str):
        return tuple(map(slot_value_of, entries))
    name, _, argument = entries.partition(".")
    tool = registry.get(name)
    if tool is None:
        known = ", ".join(registry)
        raise TuningError(f"{entries!r}: there is no tool {name!r}: write tool.argument ({known})")
    phrases = spoken.tools.get(name, ToolPhrases())
    if argument in phrases.slots:
        return tuple(map(slot_value_of, phrases.slots[argument]))
    if argument not in tool.parameters.get("properties", {}):
        raise TuningError(f"{entries!r}: {_no_argument(tool, argument)}")
    values = values_of(phrases, tool, argument)
    if not values:
        raise TuningError(f"{entries!r} has no values: list some here, or under `values` there")
    return values


def _locale_faults(book: PhraseFile, locale: str, registry: ToolRegistry) -> Iterator[Fault]:
    spoken = book.phrases.locales[locale]
    at: Path = ("locales", locale)
    for name in spoken.tools.keys() - registry.keys():
        known = ", ".join(registry)
        yield Fault((*at, "tools", name), f"there is no tool {name!r}: choose one of {known}")
    called = _called_in(spoken)
    for tool in registry.definitions:
        phrases = spoken.tools.get(tool.name, ToolPhrases())
        path = (*at, "tools", tool.name)
        yield from _ToolCheck(registry, tool, phrases, path).faults()
        if phrases.say is None and tool.name not in called:
            yield Fault(
                path,
                f"the tool {tool.name} has no `say`: write what people say when they want it, or "
                "`say: []` if nobody asks for it alone",
            )
    for number, joint in enumerate(spoken.two_wishes):
        path = (*at, "two_wishes", number)
        yield from _only_slots(joint, path, {"first", "second"}, "slots are {first} and {second}")
    yield from _talk_faults(spoken, registry, at)


def kinds_of(spoken: LocalePhrases, registry: ToolRegistry) -> frozenset[str]:
    """Return what conversations of a language can begin with: `call`, or a kind of `shares`."""
    asked = [
        (tool, spoken.tools[tool.name])
        for tool in registry.definitions
        if tool.name in spoken.tools and spoken.tools[tool.name].say
    ]
    is_possible = {
        "call": asked,
        "cancelled": any(tool.is_destructive for tool, _ in asked),
        "failing": any(failing_sentences(phrases) for _, phrases in asked),
        "two_wishes": spoken.two_wishes and len(asked) > 1,
        "follow_ups": spoken.follow_ups,
        "near_misses": spoken.near_misses,
        "small_talk": spoken.small_talk,
        "out_of_scope": spoken.out_of_scope,
    }
    return frozenset(kind for kind, possible in is_possible.items() if possible)


def failing_sentences(phrases: ToolPhrases) -> list[tuple[Sentence, str]]:
    """Return the sentences that say an argument for which there are failing values, with it."""
    return [
        (sentence, slot.name)
        for sentence in phrases.sentences()
        for slot in slots_of(sentence.text)
        if phrases.failing.get(slot.name)
    ]


def _share_faults(book: PhraseFile, registries: Mapping[str, ToolRegistry]) -> Iterator[Fault]:
    """Yield shares of what no language has, and languages that have nothing else."""
    shares = book.phrases.shares
    locales = {name: book.phrases.locales[name] for name in registries}
    kinds = {name: kinds_of(spoken, registries[name]) for name, spoken in locales.items()}
    around = {kind for each in locales.values() for kind in _AROUND if getattr(each, kind)}
    for kind, share in shares.items():
        if share and kind not in around.union(*kinds.values()):
            told = _LACKING.get(kind, f"no language has `{kind}`")
            yield Fault(("shares", kind), f"{told}: write some, or leave this share out")
    never = {str(kind) for kind, share in shares.items() if not share}
    for name, possible in kinds.items():
        if possible and possible <= never:
            yield Fault(("shares",), f"nothing is left that a conversation in {name!r} begins with")


_AROUND = ("before", "after")
_LACKING = {
    "cancelled": "no tool that somebody asks for writes",
    "failing": "no sentence says an argument that has `failing`",
    "two_wishes": "no language has `two_wishes` and two tools that somebody asks for",
}


def _talk_faults(spoken: LocalePhrases, registry: ToolRegistry, at: Path) -> Iterator[Fault]:
    for key, talks in (
        ("small_talk", spoken.small_talk),
        ("out_of_scope", spoken.out_of_scope),
        ("near_misses", spoken.near_misses),
    ):
        for number, talk in enumerate(talks):
            check = _TalkCheck(registry, spoken, talk.slots, (*at, key, number))
            yield from check.slot_faults()
            yield from check.texts("say", talk.say)
            yield from check.texts("answer", talk.answer)
    for number, follow_up in enumerate(spoken.follow_ups):
        path = (*at, "follow_ups", number)
        check = _TalkCheck(registry, spoken, follow_up.slots, path)
        yield from check.slot_faults()
        for index, line in enumerate(follow_up.lines):
            yield from replace(check, path=(*path, "lines", index)).line(line)


def _called_in(spoken: LocalePhrases) -> set[str]:
    """Return the tools that something else in the phrases calls."""
    raws = [
        raw
        for phrases in spoken.tools.values()
        for raw in (
            *(each for table in (phrases.values, phrases.failing) for each in table.values()),
            *(sentence.args for sentence in phrases.sentences()),
        )
    ]
    calls = [call for each in spoken.follow_ups for line in each.lines for call in line.calls]
    return {call.tool for call in calls} | set(_tools_in([*raws, *(call.args for call in calls)]))


def _tools_in(raw: Any) -> Iterator[str]:
    if is_look_up(raw):
        yield str(raw["tool"])
    inside = raw.values() if isinstance(raw, Mapping) else raw
    if isinstance(inside, Iterable) and not isinstance(inside, str):
        for each in inside:
            yield from _tools_in(each)


@dataclass(frozen=True, slots=True)
class _TalkCheck:
    """What is wrong with a talk that has slots of its own."""

    registry: ToolRegistry
    spoken: LocalePhrases
    slots: Mapping[str, Any]
    path: Path

    def slot_faults(self) -> Iterator[Fault]:
        for name, entries in self.slots.items():
            path = (*self.path, "slots", name)
            try:
                values = slot_values(entries, self.spoken, self.registry)
            except TuningError as error:
                yield Fault(path, str(error))
                continue
            if not values:
                yield Fault(path, "has no values: list some, or write tool.argument")
            for value in values:
                yield from _looked_up_faults(self.registry, value, path)

    def texts(self, key: str, texts: Sequence[str]) -> Iterator[Fault]:
        """Check that the slots of texts are there and can be said."""
        for number, text in enumerate(texts):
            path = (*self.path, key, number)
            try:
                slots = slots_of(text)
            except TuningError as error:
                yield Fault(path, str(error))
                continue
            for slot in slots:
                yield from self._said(slot, path)

    def _said(self, slot: Gap, path: Path) -> Iterator[Fault]:
        if slot.name not in self.slots:
            known = ", ".join(self.slots) or "none"
            yield Fault(path, f"{{{slot}}} is no slot here: slots are {known}")
            return
        yield from _unsayable(slot, self._values(slot.name), path)

    def line(self, line: TalkLine) -> Iterator[Fault]:
        yield from self.texts("say", line.say)
        yield from self.texts("answer", line.answer)
        if bool(line.calls) == bool(line.answer):
            yield Fault(self.path, "needs `calls` or an `answer`: one of the two")
        for number, call in enumerate(line.calls):
            yield from self._call(call, (*self.path, "calls", number))
        tools = [self.registry.get(call.tool) for call in line.calls]
        if line.has_no and not any(each is None or each.is_destructive for each in tools):
            yield Fault(
                (*self.path, "confirm"),
                "nobody is asked here, so that nobody can say no: none of its calls changes data",
            )
        called = [tool for tool in tools if tool]
        yield from self._replies(line.replies, called, self.path)

    def _replies(
        self,
        table: Mapping[str, Sequence[str | PhraseReply]],
        called: Sequence[ToolDefinition],
        path: Path,
    ) -> Iterator[Fault]:
        for outcome, replies in table.items():
            for number, reply in enumerate(map(reply_of, replies)):
                at = (*path, "replies", outcome, number)
                yield from _only_slots(reply.text, at, None, "")
                yield from _without_faults(reply, called, at)

    def _call(self, call: WishedCall, path: Path) -> Iterator[Fault]:
        tool = self.registry.get(call.tool)
        if tool is None:
            known = ", ".join(self.registry)
            yield Fault((*path, "tool"), f"there is no tool {call.tool!r}: choose one of {known}")
            return
        for name in tool.parameters.get("required", ()):
            if name not in call.args:
                yield Fault(path, f"{tool.name} needs {name!r}: write it under `args`")
        for name, raw in call.args.items():
            at = (*path, "args", name)
            if name not in tool.parameters.get("properties", {}):
                yield Fault(at, _no_argument(tool, name))
                continue
            part = _Part(name, raw, {slot: self._values(slot) for slot in self.slots})
            yield from _part_faults(self.registry, tool, part, at)
        yield from self._replies(call.replies, [tool], path)

    def _values(self, name: str) -> tuple[Value, ...]:
        try:
            return slot_values(self.slots[name], self.spoken, self.registry)
        except TuningError:
            return ()  # told where the slot stands


@dataclass(frozen=True, slots=True)
class _ToolCheck:
    """What is wrong with the phrases of one tool."""

    registry: ToolRegistry
    tool: ToolDefinition
    phrases: ToolPhrases
    path: Path

    def faults(self) -> Iterator[Fault]:
        yield from self._table("values", self.phrases.values)
        yield from self._table("failing", self.phrases.failing)
        yield from self._own_slots()
        for number, sentence in enumerate(self.phrases.sentences()):
            yield from self._sentence(sentence, (*self.path, "say", number))
        yield from self._replies()

    @property
    def _arguments(self) -> tuple[str, ...]:
        return tuple(self.tool.parameters.get("properties", {}))

    def _table(self, key: str, table: Mapping[str, Iterable[Any]]) -> Iterator[Fault]:
        for name, entries in table.items():
            path = (*self.path, key, name)
            if name not in self._arguments:
                yield Fault(path, _no_argument(self.tool, name))
                continue
            for number, raw in enumerate(entries):
                yield from self._value(name, raw, (*path, number))

    def _value(self, name: str, raw: Any, path: Path) -> Iterator[Fault]:
        try:
            value = value_of(raw)
        except TuningError as error:
            yield Fault(path, str(error))
            return
        yield from self._fitting(name, value, path)

    def _fitting(self, name: str, value: Value, path: Path) -> Iterator[Fault]:
        if value.look_up is not None:
            yield from _looked_up_faults(self.registry, value, path)
        elif fault := schema_fault(self.tool.parameters, name, value):
            yield Fault(path, fault)

    def _own_slots(self) -> Iterator[Fault]:
        for name, entries in self.phrases.slots.items():
            path: Path = (*self.path, "slots", name)
            if name in self._arguments:
                yield Fault(path, f"{name!r} is an argument: list its values under `values`")
            if not entries:
                yield Fault(path, "has no values: list some")
            for number, raw in enumerate(entries):
                yield from self._own_slot(raw, (*path, number))

    def _own_slot(self, raw: Any, path: Path) -> Iterator[Fault]:
        try:
            value = slot_value_of(raw)
        except TuningError as error:
            yield Fault(path, str(error))
            return
        yield from _looked_up_faults(self.registry, value, path)
        for name, part in value.parts.items():
            at = (*path, "args", name)
            if name in self._arguments:
                yield from self._fitting(name, part, at)
            else:
                yield Fault(at, _no_argument(self.tool, name))

    def _sentence(self, sentence: Sentence, path: Path) -> Iterator[Fault]:
        try:
            said = slots_of(sentence.text)
        except TuningError as error:
            yield Fault(path, str(error))
            return
        for slot in dict.fromkeys(said):
            if slot.name in self.phrases.slots:
                yield from _unsayable(slot, self._slot_values(slot.name), path)
            elif slot.name in self._arguments:
                yield from self._spoken(slot.name, path)
            else:
                yield Fault(path, f"{{{slot.name}}}: {_no_argument(self.tool, slot.name)}")
        names = {slot.name for slot in said}
        for name, fixed in sentence.args.items():
            yield from self._fixed(name, fixed, names, (*path, "args", name))
        filled = self._filled(sentence)
        for name in self.tool.parameters.get("required", ()):
            if filled is not None and name not in filled:
                yield from self._silent(name, path)

    def _filled(self, sentence: Sentence) -> set[str] | None:
        """Return the arguments that a sentence fills; None where a fault of a slot is told."""
        try:
            return filled_by(sentence, self.phrases)
        except TuningError:
            return None

    def _fixed(self, name: str, value: Any, said: set[str], path: Path) -> Iterator[Fault]:
        if name not in self._arguments:
            yield Fault(path, _no_argument(self.tool, name))
        elif name in said:
            yield Fault(path, f"{{{name}}} is said in the sentence, too: keep one of both")
        else:
            slots = {**{each: self._readable(each) or () for each in self._arguments}}
            slots |= {each: self._slot_values(each) for each in self.phrases.slots}
            yield from _part_faults(self.registry, self.tool, _Part(name, value, slots), path)

    def _slot_values(self, name: str) -> tuple[Value, ...]:
        try:
            return tuple(map(slot_value_of, self.phrases.slots[name]))
        except TuningError:
            return ()  # told where it stands

    def _readable(self, name: str) -> tuple[Value, ...] | None:
        """Return the values of an argument; None where a fault of them is told elsewhere."""
        try:
            return values_of(self.phrases, self.tool, name)
        except TuningError:
            return None

    def _failing(self, name: str) -> tuple[Value, ...]:
        try:
            return tuple(value_of(raw) for raw in self.phrases.failing.get(name, ()))
        except TuningError:
            return ()

    def _spoken(self, name: str, path: Path) -> Iterator[Fault]:
        """Check that a slot of a sentence can be filled with words."""
        values = self._readable(name)
        if values is None:
            return
        if not values:
            yield Fault(path, self._unfillable(name))
        for value in (*values, *self._failing(name)):
            if not value.words:
                yield Fault(
                    path,
                    f"{{{name}}}: {compact(value.value)} is no word: write `values: {{{name}: "
                    "[{say: words, value: …}]}`",
                )

    def _silent(self, name: str, path: Path) -> Iterator[Fault]:
        """Check that a required argument without a slot can have one value only."""
        values = self._readable(name)
        if values is None:
            return
        if not values:
            yield Fault(
                path,
                f"neither a slot nor values fill the required argument {name!r} of "
                f"{self.tool.name}: say {{{name}}} in the sentence and list `values:` for it",
            )
        elif len(values) == 1 and (values[0].day or (values[0].look_up and values[0].words)):
            yield Fault(
                path,
                f"the required argument {name!r} of {self.tool.name} is not said, and its one "
                f"value is a day or looked up: say {{{name}}}, or write "
                f"{{text: …, args: {{{name}: …}}}}",
            )
        elif len(values) > 1:
            yield Fault(
                path,
                f"the required argument {name!r} of {self.tool.name} is not said and has several "
                f"values: say {{{name}}}, or write {{text: …, args: {{{name}: …}}}}",
            )

    def _unfillable(self, name: str) -> str:
        expected = expected_of(self.tool.parameters, name)
        return (
            f"the schema of {self.tool.name} gives no values for {name!r} ({expected}): "
            f"list some under `values: {{{name}: […]}}`"
        )

    def _looks_up(self) -> bool:
        """Return True if an argument is looked up: then it may not be found."""
        tables = (self.phrases.values, self.phrases.failing)
        listed = (raw for table in tables for entries in table.values() for raw in entries)
        meant = (raw for each in self.phrases.sentences() for raw in each.args.values())
        return any(map(is_look_up, (*listed, *meant)))

    def _replies(self) -> Iterator[Fault]:
        needed = {"ok"} | ({"cancelled"} if self.tool.is_destructive else set())
        needed |= {"not_found"} if self._looks_up() else set()
        for outcome in sorted(needed) if self.phrases.say else ():
            if not self.phrases.replies.get(outcome):
                yield Fault(
                    (*self.path, "replies", outcome),
                    f"{self.tool.name} has no reply for `{outcome}`: write what is said then",
                )
        for outcome, replies in self.phrases.replies.items():
            for number, reply in enumerate(replies):
                path = (*self.path, "replies", outcome, number)
                yield from self._reply(outcome, reply_of(reply), path)

    def _reply(self, outcome: str, reply: PhraseReply, path: Path) -> Iterator[Fault]:
        yield from _without_faults(reply, [self.tool], path)
        for name in reply.each:
            if name not in map(str, _readable_slots(reply.text)):
                yield Fault((*path, "each", name), f"{{{name}}} does not stand in its `text`")
            for way in reply.ways(name):
                yield from _only_slots(way, (*path, "each", name), None, "")
        if outcome in OUTCOMES_OF_RESULT:  # fields of a result are known when it is there
            yield from _only_slots(reply.text, path, None, "")
            return
        extra = frozenset() if outcome == "cancelled" else REFUSAL_SLOTS
        known = [*self._arguments, *self.phrases.slots, *sorted(extra)]
        yield from _only_slots(reply.text, path, set(known), f"slots are {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class _Part:
    """An argument as it is written in a call, and what the slots in it may be."""

    name: str
    raw: Any
    slots: Mapping[str, Sequence[Value]]

    def fillings(self, used: Sequence[str]) -> Iterator[Fillings]:
        """Yield ways to fill the slots: each value of each once, the others as they come first."""
        each = {slot: tuple(self._filled(slot)) for slot in used}
        if not all(each.values()):
            return
        firsts = {slot: filled[0] for slot, filled in each.items()}
        yield firsts
        for slot, filled in each.items():
            yield from ({**firsts, slot: other} for other in filled[1:])

    def fieldless(self, slot: str) -> str | None:
        """Return which value of a slot lacks the field that is asked for: `{row.field}`."""
        name, _, key = slot.partition(".")
        for value in self.slots.get(name, ()):
            if key and key not in value.parts:
                said = value.words[0] if value.words else compact(value.value)
                fields = " or ".join(f"{{{name}.{each}}}" for each in value.parts)
                return (
                    f"{{{slot}}}: {said!r} has no field of that name: use {fields or f'{{{name}}}'}"
                )
        return None

    def _filled(self, slot: str) -> Iterator[Filling]:
        name, _, key = slot.partition(".")
        for value in self.slots.get(name, ()):
            part = value.parts.get(key) if key else value
            if part is not None:
                yield part.filling(CHECK_DAY, part.words[0] if part.words else "-")


def _part_faults(
    registry: ToolRegistry, tool: ToolDefinition, part: _Part, path: Path
) -> Iterator[Fault]:
    """Yield what is wrong with an argument of a call that a sentence or a line means."""
    try:
        read = part_of(part.raw)
    except TuningError as error:
        yield Fault(path, str(error))
        return
    used = slots_in(read)
    for slot in used:
        if slot.partition(".")[0] not in part.slots:
            known = ", ".join(part.slots) or "none"
            told = f"{{{slot}}} is no slot here: slots are {known}"
            silent = "{say}: nothing is said for it: use it under `values`, or write the words"
            yield Fault(path, silent if slot == SAY else told)
            return
        if lacking := part.fieldless(slot):
            yield Fault(path, lacking)
            return
    found = [meant(read, CHECK_DAY, fillings) for fillings in part.fillings(used)]
    asked = [each for each in found if isinstance(each, LookUp)]
    if asked:
        yield from _look_up_faults(registry, asked, path)
    elif any(isinstance(each, JoinedArguments) for each in found):
        yield Fault(path, "a row of values is no argument: write one of them, like {row.argument}")
    else:
        faults = (schema_fault(tool.parameters, part.name, _plain(each)) for each in found)
        yield from (Fault(path, fault) for fault in dict.fromkeys(faults) if fault)


def _plain(value: Any) -> Value:
    return Value(words=(), value=value)


def _unsayable(slot: Gap, values: Sequence[Value], path: Path) -> Iterator[Fault]:
    """Yield why a slot of one's own cannot be filled with words."""
    for value in values:
        if not slot.key and not value.words:
            told = "has no `say`" if value.parts else f"{compact(value.value)} is no word"
            yield Fault(
                path, f"{{{slot}}}: {told}: write {{say: words, …}}, or {{{slot}.argument}}"
            )
            return
        if slot.key and (slot.key not in value.parts or not value.parts[slot.key].words):
            known = ", ".join(value.parts) or "none"
            yield Fault(path, f"{{{slot}}}: a row without words for it (there are: {known})")
            return


def _looked_up_faults(registry: ToolRegistry, value: Value, path: Path) -> Iterator[Fault]:
    """Yield what is wrong with the look-up of a value, if it is one."""
    if value.look_up is None:
        return
    if not value.words and SAY in slots_in(value.look_up):
        yield Fault(
            path, "{say}: nothing is said for it: use it under `values`, or write the words"
        )
        return
    asked = [value.on(CHECK_DAY, word) for word in value.words or ("",)]
    yield from _look_up_faults(registry, asked, path)


def _look_up_faults(registry: ToolRegistry, asked: Sequence[LookUp], path: Path) -> Iterator[Fault]:
    """Yield what is wrong with a call that has to come first, in any wording."""
    look_up = asked[0]
    tool = registry.get(look_up.tool)
    if tool is None:
        known = ", ".join(registry)
        yield Fault((*path, "tool"), f"there is no tool {look_up.tool!r}: choose one of {known}")
        return
    for name in tool.parameters.get("required", ()):
        if name not in look_up.args:
            yield Fault((*path, "args"), f"{tool.name} needs {name!r}: write what to look for")
    for name, value in look_up.args.items():
        at = (*path, "args", name)
        if name not in tool.parameters.get("properties", {}):
            yield Fault(at, _no_argument(tool, name))
        elif isinstance(value, LookUp):
            yield from _look_up_faults(registry, [each.args[name] for each in asked], at)
        else:
            yield from _asked_faults(tool, name, asked, at)


def _asked_faults(
    tool: ToolDefinition, name: str, asked: Sequence[LookUp], path: Path
) -> Iterator[Fault]:
    values = (Value(words=(), value=each.args[name]) for each in asked)
    faults = (schema_fault(tool.parameters, name, value) for value in values)
    yield from (Fault(path, fault) for fault in dict.fromkeys(faults) if fault)


def _without_faults(
    reply: PhraseReply, tools: Sequence[ToolDefinition], path: Path
) -> Iterator[Fault]:
    """Yield what a reply is to be without and none of the tools takes."""
    known = dict.fromkeys(name for tool in tools for name in tool.parameters.get("properties", {}))
    for name in reply.without:
        if tools and name not in known:
            yield Fault((*path, "without"), _no_argument_of(tools, name, known))


def _no_argument(tool: ToolDefinition, name: str) -> str:
    return _no_argument_of([tool], name, tool.parameters.get("properties", {}))


def _no_argument_of(tools: Sequence[ToolDefinition], name: str, known: Iterable[str]) -> str:
    names = ", ".join(dict.fromkeys(tool.name for tool in tools))
    return f"{name!r} is no argument of {names} (arguments: {', '.join(known) or 'none'})"


def _readable_slots(text: str) -> tuple[Gap, ...]:
    try:
        return slots_of(text)
    except TuningError:
        return ()  # told where the text stands


def _only_slots(text: str, path: Path, known: set[str] | None, told: str) -> Iterator[Fault]:
    try:
        slots = slots_of(text)
    except TuningError as error:
        yield Fault(path, str(error))
        return
    for slot in slots:
        if known is not None and slot.name not in known:
            yield Fault(path, f"{{{slot}}} is no slot here: {told}")
