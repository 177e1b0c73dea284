"""What a phrase file promises, checked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lhkit.errors import TuningError
from lhkit.harness.matchers import Fault, Path
from lhkit.json_values import compact
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning.phrases.file import PhraseFile, Sentence, ToolPhrases, refuse_faults, slots_of
from lhkit.tuning.phrases.values import (
    CHECK_DAY,
    LookUp,
    Value,
    expected_of,
    given_values,
    is_look_up,
    schema_fault,
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
    faults = (
        fault
        for locale, registry in registries.items()
        for fault in _locale_faults(book, locale, registry)
    )
    refuse_faults(book.file, book.document, tuple(faults))


def values_of(phrases: ToolPhrases, tool: ToolDefinition, argument: str) -> tuple[Value, ...]:
    """Return what an argument may be: as the file says, else as the schema itself says."""
    if phrases.values.get(argument):
        return tuple(value_of(raw) for raw in phrases.values[argument])
    return given_values(tool.parameters, argument)


def unsaid(sentence: Sentence, phrases: ToolPhrases, tool: ToolDefinition) -> dict[str, Value]:
    """Return the arguments that a sentence means without saying them.

    These are its own `args`, and required arguments that can have one value only.
    """
    said = {slot.name for slot in slots_of(sentence.text)}
    single = {
        name: values_of(phrases, tool, name)
        for name in tool.parameters.get("required", ())
        if name not in said and name not in sentence.args
    }
    fixed = {name: found[0] for name, found in single.items() if len(found) == 1}
    meant = {
        name: value_of(raw) if is_look_up(raw) else Value(words=(), value=raw)
        for name, raw in sentence.args.items()
    }
    return {**fixed, **meant}


def _locale_faults(book: PhraseFile, locale: str, registry: ToolRegistry) -> Iterator[Fault]:
    spoken = book.phrases.locales[locale]
    at: Path = ("locales", locale)
    for name in spoken.tools.keys() - registry.keys():
        known = ", ".join(registry)
        yield Fault((*at, "tools", name), f"there is no tool {name!r}: choose one of {known}")
    for tool in registry.definitions:
        phrases = spoken.tools.get(tool.name, ToolPhrases())
        if phrases.say:
            yield from _ToolCheck(registry, tool, phrases, (*at, "tools", tool.name)).faults()
        else:
            yield Fault(
                (*at, "tools", tool.name),
                f"the tool {tool.name} has no `say`: write what people say when they want it",
            )
    for number, joint in enumerate(spoken.two_wishes):
        path = (*at, "two_wishes", number)
        yield from _only_slots(joint, path, {"first", "second"}, "slots are {first} and {second}")


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
        if value.look_up is not None:
            yield from _look_up_faults(self.registry, value.look_up, value.words, path)
        elif fault := schema_fault(self.tool.parameters, name, value):
            yield Fault(path, fault)

    def _sentence(self, sentence: Sentence, path: Path) -> Iterator[Fault]:
        try:
            said = {slot.name for slot in slots_of(sentence.text)}
        except TuningError as error:
            yield Fault(path, str(error))
            return
        for name in sorted(said - set(self._arguments)):
            yield Fault(path, f"{{{name}}}: {_no_argument(self.tool, name)}")
        for name in sorted(said & set(self._arguments)):
            yield from self._spoken(name, path)
        for name, fixed in sentence.args.items():
            yield from self._fixed(name, fixed, said, (*path, "args", name))
        for name in self.tool.parameters.get("required", ()):
            if name not in said and name not in sentence.args:
                yield from self._silent(name, path)

    def _fixed(self, name: str, value: Any, said: set[str], path: Path) -> Iterator[Fault]:
        if name not in self._arguments:
            yield Fault(path, _no_argument(self.tool, name))
        elif name in said:
            yield Fault(path, f"{{{name}}} is said in the sentence, too: keep one of both")
        else:
            raw = value if is_look_up(value) else {"say": "-", "value": value}
            yield from self._value(name, raw, path)

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
        elif len(values) > 1 or values[0].day or (values[0].look_up and values[0].words):
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
        for outcome in sorted(needed):
            if not self.phrases.replies.get(outcome):
                yield Fault(
                    (*self.path, "replies", outcome),
                    f"{self.tool.name} has no reply for `{outcome}`: write what is said then",
                )
        for outcome, replies in self.phrases.replies.items():
            for number, reply in enumerate(replies):
                yield from self._reply(outcome, reply, (*self.path, "replies", outcome, number))

    def _reply(self, outcome: str, reply: str, path: Path) -> Iterator[Fault]:
        if outcome in OUTCOMES_OF_RESULT:  # fields of a result are known when it is there
            yield from _only_slots(reply, path, None, "")
            return
        extra = frozenset() if outcome == "cancelled" else REFUSAL_SLOTS
        known = ", ".join([*self._arguments, *sorted(extra)])
        yield from _only_slots(reply, path, {*self._arguments, *extra}, f"slots are {known}")


def _look_up_faults(
    registry: ToolRegistry, look_up: LookUp, words: Sequence[str], path: Path
) -> Iterator[Fault]:
    """Yield what is wrong with a call that has to come first; `words` are what may be said."""
    tool = registry.get(look_up.tool)
    if tool is None:
        known = ", ".join(registry)
        yield Fault((*path, "tool"), f"there is no tool {look_up.tool!r}: choose one of {known}")
        return
    if not words and look_up.on(CHECK_DAY, "") != look_up.on(CHECK_DAY, "-"):
        yield Fault(
            path, "{say}: nothing is said for it: use it under `values`, or write the words"
        )
        return
    for name in tool.parameters.get("required", ()):
        if name not in look_up.args:
            yield Fault((*path, "args"), f"{tool.name} needs {name!r}: write what to look for")
    for name, value in look_up.args.items():
        at = (*path, "args", name)
        if name not in tool.parameters.get("properties", {}):
            yield Fault(at, _no_argument(tool, name))
        elif isinstance(value, LookUp):
            yield from _look_up_faults(registry, value, words, at)
        else:
            yield from _asked_faults(
                tool, name, [look_up.on(CHECK_DAY, w) for w in words or ("",)], at
            )


def _asked_faults(
    tool: ToolDefinition, name: str, asked: Sequence[LookUp], path: Path
) -> Iterator[Fault]:
    values = (Value(words=(), value=each.args[name]) for each in asked)
    faults = (schema_fault(tool.parameters, name, value) for value in values)
    yield from (Fault(path, fault) for fault in dict.fromkeys(faults) if fault)


def _no_argument(tool: ToolDefinition, name: str) -> str:
    known = ", ".join(tool.parameters.get("properties", {})) or "none"
    return f"{name!r} is no argument of {tool.name} (arguments: {known})"


def _only_slots(text: str, path: Path, known: set[str] | None, told: str) -> Iterator[Fault]:
    try:
        slots = slots_of(text)
    except TuningError as error:
        yield Fault(path, str(error))
        return
    for slot in slots:
        if known is not None and slot.name not in known:
            yield Fault(path, f"{{{slot}}} is no slot here: {told}")
