"""One conversation while it is being written: world, words, and what the model has seen so far.

The talk modules write lines with it. Their acts run later, during the play, and answer from what
the tools really return.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from typing import Any, TypeAlias

from lhkit.harness.expectations.similarity import similarity
from lhkit.harness.scenarios.script import ScriptedFault
from lhkit.lifehelper.catalog import ProtocolCatalog, load_protocols
from lhkit.lifehelper.search import search_protocols
from lhkit.lifehelper.store import Store, StoreImage
from lhkit.models.scripted import Reply, say
from lhkit.tuning.expert import Act, Answers, Line
from lhkit.tuning.life_helper.noise import typed
from lhkit.tuning.life_helper.phrases import Phrases, Spoken, chance, parts, withheld
from lhkit.tuning.life_helper.spoken_dates import plain_day
from lhkit.tuning.life_helper.worlds import Habit, World
from lhkit.tuning.noise import careless, is_literal
from lhkit.vocab.messages import ToolCallMessage
from lhkit.vocab.results import ToolErr, ToolOk

Settled: TypeAlias = Sequence[ToolCallMessage]
Words: TypeAlias = Callable[..., str]
"""(key, **slots) to one of the expert's replies; the same arguments give the same words."""

Last: TypeAlias = Callable[[Settled, Words], str]
"""What the expert says when its calls are settled."""

REFUSALS: tuple[Answers, ...] = ("reject", "reject", "absent")
"""What a user who does not confirm does, to draw from."""

_TOO_NEAR = 0.6
"""A line that resembles a withheld one this much is not said."""

_REDRAWS = 30
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(slots=True, kw_only=True)
class Scene:
    """What is known while a conversation is written. `is_listed`: the model has seen habit ids."""

    phrases: Phrases
    world: World
    rng: random.Random
    is_listed: bool = False
    lines: list[Line] = field(default_factory=list)
    faults: list[ScriptedFault] = field(default_factory=list)

    @property
    def locale(self) -> str:
        """The language of the conversation."""
        return self.phrases.locale

    def spoken(self, protocol_id: str) -> Spoken:
        """Return what people say about a protocol."""
        return self.phrases.spoken[protocol_id]

    def title(self, protocol_id: str) -> str:
        """Return a protocol's title."""
        return catalog()[protocol_id].texts[self.locale].title

    def name(self, protocol_id: str) -> str:
        """Return a name by which a user calls a habit or protocol."""
        return self.rng.choice(self.spoken(protocol_id).names)

    def did(self, protocol_id: str) -> str:
        """Return how a user says that a habit was kept."""
        return self.rng.choice(self.spoken(protocol_id).done)

    def habit(self, status: str = "active") -> Habit:
        """Return a habit of the world."""
        return self.rng.choice(self.world.of_status(status))

    def two_habits(self) -> tuple[Habit, Habit]:
        """Return two active habits; `has_choice` says whether there are."""
        first, second = self.rng.sample(self.world.of_status("active"), 2)
        return first, second

    def chance(self, share: float) -> bool:
        """Return True in `share` (0..1) of all draws."""
        return chance(self.rng, share)

    @property
    def has_choice(self) -> bool:
        """True if several habits are active, so that one has to be named."""
        return len(self.world.of_status("active")) > 1

    def words(self) -> Words:
        """Return the source of the words of one turn's reply."""
        seed = self.rng.getrandbits(32)

        def reply(key: str, **slots: object) -> str:
            rng = random.Random(seed)  # noqa: S311 - a choice of words, no secret
            return self.phrases.reply(key, rng, **slots)

        return reply

    def user(self, key: str, **slots: object) -> str:
        """Return a user's line, as typed."""
        return _allowed(
            lambda: typed(self.phrases.line(key, self.rng, **slots), self.phrases, self.rng)
        )

    def paired(self, key: str, **slots: object) -> tuple[str, str]:
        """Return a user's line, as typed, and the answer that stands beside it."""
        text, answer = parts(self.phrases.line(key, self.rng, **slots))
        return self._remarked(text), answer

    def written(self, key: str) -> tuple[str, ...]:
        """Return a whole turn, as typed by hand, and what stands beside it."""
        text, *beside = parts(self.phrases.line(key, self.rng))
        return text if is_literal(text) else careless(text, self.locale, self.rng), *beside

    def remark(self, key: str, **slots: object) -> str:
        """Return a user's line that asks for nothing, as typed."""
        return _allowed(lambda: self._remarked(self.phrases.line(key, self.rng, **slots)))

    def add(
        self, user: str, act: Act, *, confirm: Answers = "accept", slips: Sequence[int] = ()
    ) -> None:
        """Add a line to the conversation."""
        self.lines.append(Line(user=user, act=act, confirm=confirm, slips=frozenset(slips)))

    def breaks(self, tool: str, *, times: int = 1) -> None:
        """Let the first calls of a tool fail."""
        self.faults.append(ScriptedFault(tool=tool, times=times))

    def says(self, key: str, **slots: object) -> Act:
        """Return an act of words only."""
        text = self.words()(key, **slots)
        return lambda _settled: say(text)

    def acts(self, calls: Sequence[Reply], last: Last) -> Act:
        """Return an act that makes `calls` in turn and then speaks; a breakdown ends it early."""
        words = self.words()

        def act(settled: Settled) -> Reply:
            if settled and failure(settled) == "handler_error":
                return say(words("broken"))
            if len(settled) < len(calls):
                return calls[len(settled)]
            return say(last(settled, words))

        return act

    def day_words(self, day: date) -> str:
        """Return how the expert names a day: today and yesterday by name, others by date."""
        names = {0: {"ko": "오늘", "en": "today"}, 1: {"ko": "어제", "en": "yesterday"}}
        back = (self.world.today - day).days
        if back in names:
            return names[back][self.locale]
        return plain_day(day, self.locale)

    def value_words(self, value: str) -> str:
        """Return how the expert names the value of an entry."""
        return {"done": "완료", "blank": "공란"}[value] if self.locale == "ko" else value

    def listing(self, texts: Sequence[str]) -> str:
        """Return texts in quotes as one enumeration."""
        quoted = [f"'{text}'" for text in texts]
        *before, last = quoted
        if self.locale == "ko" or not before:
            return ", ".join(quoted)
        return f"{', '.join(before)} and {last}"

    def anchor_words(self, anchor: str) -> str:
        """Return an anchor as an adverb, such as 양치한 뒤에."""
        if self.locale != "ko" or anchor.endswith(("나서", "면", "에", "마다")):
            return anchor
        return anchor if anchor.endswith("때") else f"{anchor}에"

    def _remarked(self, text: str) -> str:
        return typed(text, self.phrases, self.rng, around="_remark")


def _allowed(draw: Callable[[], str]) -> str:
    """Return what is drawn; draws anew while that is too near to a withheld line."""
    text = ""
    for _ in range(_REDRAWS):
        text = draw()
        if not any(similarity(text, line) >= _TOO_NEAR for line in withheld()):
            break
    return text


@cache
def catalog() -> ProtocolCatalog:
    """Return the shipped protocols."""
    return load_protocols()


@cache
def _store() -> Store:
    return StoreImage.prepare(catalog()).fresh()


@cache
def hits(query: str, locale: str) -> tuple[str, ...]:
    """Return the ids that the real search gives, so that nobody is taught to expect another."""
    return tuple(hit.id for hit in search_protocols(_store(), query=query, locale=locale))


def data_of(settled: Settled, index: int = -1) -> Mapping[str, Any]:
    """Return the data of a call that went well, else nothing."""
    result = settled[index].result
    return result.data if isinstance(result, ToolOk) else {}


def rows_of(settled: Settled, name: str, index: int = -1) -> Sequence[Mapping[str, Any]]:
    """Return the `habits` or `protocols` that a call gave; none if it did not go well."""
    return list(data_of(settled, index).get(name, []))


def titles_of(settled: Settled, name: str, index: int = -1) -> Sequence[str]:
    """Return the titles of the `habits` or `protocols` that a call gave."""
    return [row["title"] for row in rows_of(settled, name, index)]


def anchor_in(habit: Mapping[str, Any]) -> str:
    """Return the anchor of a habit as the tools write it."""
    return str(habit.get("anchor_when") or habit.get("anchor_after_what") or "-")


def failure(settled: Settled) -> str:
    """Return the code of the last call's error, else nothing."""
    result = settled[-1].result
    return result.code if isinstance(result, ToolErr) else ""


def dates_in_reason(settled: Settled) -> tuple[date, ...]:
    """Return the dates that the last call's reason names."""
    result = settled[-1].result
    reason = result.reason if isinstance(result, ToolErr) else ""
    return tuple(date.fromisoformat(text) for text in _DATE.findall(reason))
