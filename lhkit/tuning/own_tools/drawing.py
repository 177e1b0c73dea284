"""Training conversations from phrases: which sentences, values and answers, drawn with a seed.

What the tools answer is not here: `tuning.simulation` plays them for real.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from lhkit.chat.step import MAX_TURNS
from lhkit.models.scripted import say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning.expert import Conversation, Line
from lhkit.tuning.noise import careless, is_literal, surrounded
from lhkit.tuning.own_tools.acting import Said, Wish, acting, ignore
from lhkit.tuning.own_tools.checks import unsaid, values_of
from lhkit.tuning.own_tools.phrase_file import LocalePhrases, PhraseFile, Sentence, Talk
from lhkit.tuning.own_tools.templates import filled, slots_of
from lhkit.tuning.own_tools.values import LookUp, Value, value_of
from lhkit.vocab.json_values import compact

_WEIGHTS: Mapping[str, float] = {
    "call": 55,
    "rejected": 12,
    "failing": 11,
    "two-wishes": 10,
    "small-talk": 6,
    "out-of-scope": 6,
}
_JOINED_SHARE = 0.25
_MOST_LINES = 4

_TRIES = 8
"""Draws of one conversation in search of a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The tools of one language, and the day of each world of the phrase file.

    `most_calls` is how many calls the assistant makes in a turn, before it answers. `notify` is
    told of each wish when it is played.
    """

    registry: ToolRegistry
    days: Sequence[date]
    most_calls: int = MAX_TURNS - 1
    notify: Callable[[Said], None] = ignore


@dataclass(frozen=True, slots=True)
class _Drawn:
    """One line and its calls, which are not to be made twice in a row."""

    line: Line
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()


def conversations(
    book: PhraseFile,
    stages: Mapping[str, Stage],
    *,
    count: int,
    seed: int,
    korean_share: float,
) -> Iterator[Conversation]:
    """Yield `count` conversations; the same arguments give the same ones.

    One that was drawn before is drawn anew some times. It is then taken all the same: where few
    phrases are written for a kind, it keeps its share.

    Args:
        book: phrases that fit the tools (`checks.check_fit`).
        stages: by locale of the file.
        count: how many.
        seed: decides everything.
        korean_share: share of Korean ones where the file has both languages.
    """
    seen: set[tuple[object, ...]] = set()
    for number in range(count):
        rng = random.Random(f"own-tools/{seed}/{number}")  # noqa: S311 - training data, no secret
        locale = _locale(tuple(stages), korean_share, rng)
        drawing = _Drawing(book, locale, stages[locale], rng)
        kind = drawing.kind()
        for _ in range(_TRIES):
            told = drawing.conversation(f"own-tools.{seed}.{number}", kind)
            if identity(told) not in seen:
                break
        seen.add(identity(told))
        yield told


def identity(told: Conversation) -> tuple[object, ...]:
    """Return what makes a conversation another one: what is said, answered and there at first."""
    lines = ((line.user, line.confirm) for line in told.lines)
    return (told.locale, compact(told.world), *lines)


def _locale(locales: Sequence[str], korean_share: float, rng: random.Random) -> str:
    shares = [korean_share if locale == "ko" else 1 - korean_share for locale in locales]
    return rng.choices(locales, shares if any(shares) else None)[0]


class _Drawing:
    """Draws one conversation."""

    def __init__(self, book: PhraseFile, locale: str, stage: Stage, rng: random.Random) -> None:
        self._book = book
        self._phrases: LocalePhrases = book.phrases.locales[locale]
        self._locale = locale
        self._registry = stage.registry
        self._tools = stage.registry.definitions
        self._most_calls = stage.most_calls
        self._notify = stage.notify
        self._rng = rng
        self._world = rng.randrange(len(book.phrases.worlds))
        self._today = stage.days[self._world]
        self._makers = self._possible()

    def kind(self) -> str:
        """Return what the first line is about."""
        weights = [_WEIGHTS[kind] for kind in self._makers]
        return self._rng.choices(tuple(self._makers), weights)[0]

    def conversation(self, name: str, kind: str) -> Conversation:
        """Return a conversation whose first line is of that kind; others may follow."""
        drawn = [self._makers[kind]()]
        while len(drawn) < _MOST_LINES and self._rng.random() < _JOINED_SHARE:
            following = self._makers[self.kind()]()
            if not following.calls or following.calls[0] not in drawn[-1].calls:
                drawn.append(following)
        return Conversation(
            name=name,
            kind=kind,
            locale=self._locale,
            world=dict(self._book.phrases.worlds[self._world]),
            lines=tuple(each.line for each in drawn),
        )

    def _possible(self) -> dict[str, Callable[[], _Drawn]]:
        """Return the kinds of lines that these phrases and tools allow."""
        writes = [tool for tool in self._tools if tool.is_destructive]
        failing = [tool for tool in self._tools if self._failing(tool)]
        makers: dict[str, Callable[[], _Drawn]] = {
            "call": lambda: self._called(self._wish(self._any(self._tools)))
        }
        if writes:
            makers["rejected"] = lambda: self._rejected(self._wish(self._any(writes)))
        if failing:
            makers["failing"] = lambda: self._called(self._failing_wish(self._any(failing)))
        if self._phrases.two_wishes and len(self._tools) > 1:
            makers["two-wishes"] = self._two_wishes
        if self._phrases.small_talk:
            makers["small-talk"] = lambda: self._talk(self._phrases.small_talk)
        if self._phrases.out_of_scope:
            makers["out-of-scope"] = lambda: self._talk(self._phrases.out_of_scope)
        return makers

    def _any(self, tools: Sequence[ToolDefinition]) -> ToolDefinition:
        return self._rng.choice(tools)

    def _called(self, *wished: tuple[str, Wish], user: str = "") -> _Drawn:
        wishes = [wish for _, wish in wished]
        act = acting(
            wishes,
            seed=self._rng.getrandbits(32),
            most_calls=self._most_calls,
            notify=self._notify,
        )
        line = Line(user=self._surrounded(user or wished[0][0]), act=act)
        return _Drawn(line, tuple((wish.tool, wish.args) for wish in wishes))

    def _rejected(self, wished: tuple[str, Wish]) -> _Drawn:
        drawn = self._called(wished)
        return replace(drawn, line=replace(drawn.line, confirm="reject"))

    def _two_wishes(self) -> _Drawn:
        for _ in range(_TRIES):
            first, second = (self._wish(tool) for tool in self._rng.sample(self._tools, 2))
            if first[1].calls() + second[1].calls() <= self._most_calls:
                break
        else:
            return self._called(first)
        words = {"first": first[0].rstrip(".!?~ "), "second": second[0]}
        joint = self._rng.choice(self._phrases.two_wishes)
        user = filled(joint, lambda slot: words[slot.name]) or ""
        return self._called(first, second, user=user)

    def _talk(self, talks: Sequence[Talk]) -> _Drawn:
        talk = self._rng.choice(talks)
        answer = self._rng.choice(talk.answer)
        user = self._typed(self._rng.choice(talk.say))
        return _Drawn(Line(user=user, act=lambda _settled: say(answer)))

    def _wish(self, tool: ToolDefinition) -> tuple[str, Wish]:
        """Return what a user says who wants a tool, and the call that is meant."""
        sentence = self._rng.choice(self._phrases.tools[tool.name].sentences())
        return self._worded(tool, sentence, failing=None)

    def _failing(self, tool: ToolDefinition) -> list[tuple[Sentence, str]]:
        """Return the sentences that say an argument for which there are failing values."""
        phrases = self._phrases.tools[tool.name]
        return [
            (sentence, slot.name)
            for sentence in phrases.sentences()
            for slot in slots_of(sentence.text)
            if phrases.failing.get(slot.name)
        ]

    def _failing_wish(self, tool: ToolDefinition) -> tuple[str, Wish]:
        sentence, argument = self._rng.choice(self._failing(tool))
        return self._worded(tool, sentence, failing=argument)

    def _worded(
        self, tool: ToolDefinition, sentence: Sentence, *, failing: str | None
    ) -> tuple[str, Wish]:
        phrases = self._phrases.tools[tool.name]
        names = dict.fromkeys(slot.name for slot in slots_of(sentence.text))
        values: dict[str, Value] = {
            name: value_of(self._rng.choice(phrases.failing[name]))
            if name == failing
            else self._rng.choice(values_of(phrases, tool, name))
            for name in names
        }
        words = {name: self._rng.choice(value.words) for name, value in values.items()}
        said = {name: value.on(self._today, words[name]) for name, value in values.items()}
        meant = unsaid(sentence, phrases, tool)
        args = {**{name: value.on(self._today) for name, value in meant.items()}, **said}
        path = ("locales", self._locale, "tools", tool.name)
        wish = Wish(
            tool=tool.name,
            locale=self._locale,
            args=self._in_order(tool, args),
            words=words,
            replies=phrases.replies,
            place=lambda key: self._book.place((*path, key)),
            is_to_fail=failing is not None,
        )
        return filled(sentence.text, lambda slot: words[slot.name], self._typed) or "", wish

    def _typed(self, text: str) -> str:
        """Return a sentence as somebody may have typed it."""
        if not self._book.phrases.typos or is_literal(text):
            return text
        return careless(text, self._locale, self._rng)

    def _surrounded(self, text: str) -> str:
        """Return a line with a word of the file before or after it, unless it is in there."""
        before = [f"{word.strip()} " for word in self._phrases.before]
        after = [word.strip() for word in self._phrases.after if word.strip() not in text]
        after = [f" {word}" if word[0].isalnum() else word for word in after]
        return surrounded(text, before=before, after=after, rng=self._rng, keep_end=True)

    def _in_order(self, tool: ToolDefinition, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments in the order of the schema: one way to write a call."""
        names = [name for name in tool.parameters.get("properties", {}) if name in args]
        return {name: self._also_in_order(args[name]) for name in names}

    def _also_in_order(self, value: Any) -> Any:
        if not isinstance(value, LookUp):
            return value
        return replace(value, args=self._in_order(self._registry[value.tool], value.args))
