"""What is said to a generated toolset: a phrase file, as anybody writes one for tools of their own.

Drawn from `shapes.yaml`, `sides.yaml` and `talk.yaml` in the words of its domain, so that each
toolset has sentences, values and worlds of its own.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from typing import Any, TypeAlias

from evals.head_start.domains import Texts
from evals.head_start.toolsets import SHAPES, SIDES, TALK, GeneratedToolset, Row, Tool
from evals.head_start.wording import nouns_of, renamed, roles_in, worded
from lhkit import said_dates
from lhkit.harness.matchers import DateIs
from lhkit.tuning.phrases.file import particle_after

_Raw: TypeAlias = dict[str, Any]

_WORLDS = 4
_SENTENCES = 10
_OPENED, _CLOSED = 0.28, 0.1  # shares of sentences
_PARTLY_SAID = 0.6
_FOLLOW_UPS = 7
_NEAR_MISSES = 5
_ZONE = timezone(timedelta(hours=9))
_A_DAY = date(2026, 6, 17)
_ORDINALS = {"first": 0, "second": 1, "third": 2}
_READ = "read"
_WORDS = {
    "en": "zero,one,two,three,four,five,six,seven,eight,nine,ten,eleven,twelve",
    "ko": "영,한,두,세,네,다섯,여섯,일곱,여덟,아홉,열,열한,열두",
}
_COUNTED = frozenset({
    *("개", "권", "대", "건", "장", "그루", "마리", "명", "벌", "칸", "병"),
    *("상자", "곳", "자리", "자루", "켤레", "통", "줄"),
})  # fmt: skip
"""Korean counters that take words of their own, not Chinese numbers."""

_LEANING = ("과", "와", "의", "에", "에게", "에서", "된", "긴", "걸음")
"""Endings of Korean words that nobody says alone."""

_PARTICLE = re.compile(r"~(?:(으로|이랑|을|이|은|과)(?=[\s,]|$))?")


def phrases_of(toolset: GeneratedToolset, *, seed: int) -> str:
    """Return a phrase file for a toolset, in all its languages; the same seed gives the same."""
    rng = random.Random(f"phrases/{seed}/{toolset.name}")
    raw = {
        "locales": {
            locale: _Speech(toolset, locale, rng).everything() for locale in toolset.locales
        }
    }
    return json.dumps(raw, ensure_ascii=False, indent=1)  # JSON is YAML


class _Speech:
    """What is said in one language."""

    def __init__(self, toolset: GeneratedToolset, locale: str, rng: random.Random) -> None:
        self._toolset = toolset
        self._locale = locale
        self._rng = rng
        self._nouns = nouns_of(toolset.domain, locale)
        self._people = rng.sample(TALK["people"][locale], 6)
        self._asked = [each for each in toolset.tools if each.is_asked]

    def everything(self) -> _Raw:
        """Return the part of a phrase file for a language."""
        words = {key: TALK[key][self._locale] for key in ("two_wishes", "before", "after")}
        return {
            "worlds": [self._world() for _ in range(_WORLDS)],
            "tools": {each.name: self._tool(each) for each in self._toolset.tools},
            **words,
            "told": self._told(),
            "small_talk": [
                {"say": self._all(each["say"]), "answer": self._all(each["answer"])}
                for each in self._some(TALK["small_talk"], 4)
            ],
            "out_of_scope": self._out_of_scope(),
            "near_misses": self._near_misses(),
            "follow_ups": self._some(list(self._follow_ups()), _FOLLOW_UPS),
        }

    # ------------------------------------------------------------------------------ worlds
    def _world(self) -> _Raw:
        rng, toolset = self._rng, self._toolset
        day = date(2026, 2, 2) + timedelta(days=rng.randrange(230))
        clock = time(rng.randrange(7, 21), rng.randrange(60), tzinfo=_ZONE)
        numbers = rng.sample(range(len(toolset.present)), len(toolset.present))
        return {
            "now": datetime.combine(day, clock).isoformat(),
            toolset.manner.table: [self._row(number, day) for number in numbers],
        }

    def _row(self, number: int, today: date) -> Row:
        toolset = self._toolset
        row: Row = {}
        for role, name in toolset.fields.items():
            match role:
                case "id":
                    row[name] = toolset.ids[number]
                case "label":
                    row[name] = toolset.present[number][self._locale]
                case "kind" | "state" | "place":
                    row[name] = self._rng.choice(toolset.values(role, self._locale))
                case "person":
                    row[name] = self._rng.choice(self._people)
                case "number":
                    row[name] = self._rng.randint(0, toolset.domain.aspects[role].most)
                case "text":
                    pass  # what is noted comes later
                case _:
                    row[name] = str(today + timedelta(days=self._rng.randint(-6, 30)))
        return row

    # ------------------------------------------------------------------------------ words
    def _some(self, many: Sequence[Any], most: int) -> list[Any]:
        return self._rng.sample(many, min(most, len(many)))

    def _all(self, texts: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the texts of the language, as far as the domain has the words."""
        found = [worded(each, self._nouns) for each in texts[self._locale]]
        return [each for each in found if each is not None]

    def _spoken(self, text: str, *, is_alone: bool = True) -> str:
        """Return a sentence as one of many would say it."""
        told = self._in_english(text) if self._locale == "en" else self._in_korean(text)
        if is_alone and self._rng.random() < _OPENED:
            told = self._opened(told)
        if is_alone and self._rng.random() < _CLOSED:
            told = f"{told}{'' if told[-1] in '.?!…' else ','} {self._around('closings')}"
        return told

    def _in_english(self, text: str) -> str:
        if text.startswith("!"):
            text = self._rng.choice(TALK["wrappers"]["en"]).replace("{order}", text[1:])
        is_raised = self._rng.random() < 0.6
        return text[:1].upper() + text[1:] if is_raised else text

    def _in_korean(self, text: str) -> str:
        for ending, others in _ENDINGS.items():
            if text.endswith(ending):
                choices = TALK["wrappers"]["ko"] if ending == "줘" else others
                return f"{text.removesuffix(ending)}{self._rng.choice(choices)}"
        return text

    def _opened(self, text: str) -> str:
        opening = self._around("openings")
        goes_on = opening[-1] not in ".?!…" and not text.startswith(("I ", "I'"))
        return f"{opening} {text[:1].lower() + text[1:] if goes_on else text}"

    def _around(self, key: str) -> str:
        """Return words that have nothing to do with the wish, some with other things in them."""
        words = {
            "who": self._rng.choice(self._people),
            "other": self._rng.choice(self._toolset.absent)[self._locale],
        }
        text: str = self._rng.choice(TALK[key][self._locale])
        return re.sub(
            r"\{(\w+)(?::(\w+))?\}",
            lambda found: words[found[1]] + particle_after(words[found[1]], found[2] or ""),
            text,
        )

    def _told(self) -> _Raw:
        """Return how values of results are said."""
        told = {
            value: choice.said[self._locale]
            for role in ("kind", "state")
            if role in self._toolset.fields
            for value, choice in zip(
                self._toolset.values(role, self._locale),
                self._toolset.domain.aspects[role].choices,
                strict=True,
            )
        }
        for each in self._asked:
            told |= SIDES.get(each.shape, {}).get("told", {}).get(self._locale, {})
        return {value: word for value, word in told.items() if value != word}

    # ------------------------------------------------------------------------------ values
    def _values(self, tool: Tool, role: str) -> list[Any]:
        """Return what an argument may be, in words of the language."""
        if role in {"kind", "state", "place"}:
            return self._choices(role)
        if role == "item" and tool.shape == "find":
            words = [word for each in self._toolset.present for word in self._words_of(each)]
            return [{"say": word, "value": word} for word in words]
        makers: Mapping[str, Callable[[], list[Any]]] = {
            "item": lambda: [*map(self._item, self._toolset.present), *self._said_ids()],
            "label": lambda: [each[self._locale] for each in self._new_names()],
            "person": lambda: list(self._people),
            "number": lambda: self._numbers(tool),
            "day": self._days,
            "text": lambda: self._some(TALK["texts"][self._locale], 6),
        }
        return makers[role]()

    def _choices(self, role: str) -> list[Any]:
        choices = self._toolset.domain.aspects[role].choices
        values = self._toolset.values(role, self._locale)
        return [
            {"say": choice.said[self._locale], "value": value}
            for choice, value in zip(choices, values, strict=True)
        ]

    def _days(self) -> list[Any]:
        days = [
            {"say": say, "date": day}
            for say, day in TALK["days"][self._locale]
            if self._is_read_so(say, [day])
        ]
        return self._some(days, 7) + self._dates()

    def _new_names(self) -> Sequence[Texts]:
        return self._toolset.absent[::2]

    def _missing_names(self) -> Sequence[Texts]:
        return self._toolset.absent[1::2]

    def _words_of(self, name: Texts) -> list[str]:
        """Return a name, and perhaps a part of it."""
        whole = name[self._locale]
        least = {"en": 4, "ko": 2}[self._locale]
        parts = [each for each in whole.split() if len(each) >= least and each.isalnum()]
        parts = [each for each in parts if not each.endswith(_LEANING)]
        part = self._rng.choice(parts) if parts and self._rng.random() < _PARTLY_SAID else whole
        return list(dict.fromkeys([whole, part]))

    def _item(self, name: Texts) -> Any:
        """Return a thing: by its name, or to be looked up by it."""
        if self._toolset.manner.id_style == "name":
            return name[self._locale]
        words = self._words_of(name) if self._toolset.tool("find") else [name[self._locale]]
        return {"say": words, **self._look_up("{say}")}

    def _look_up(self, word: str) -> _Raw:
        toolset = self._toolset
        table, fields = toolset.manner.table, toolset.fields
        take = f"{table}.{fields['id']}"
        finder = toolset.tool("find")
        if finder is not None:
            return {"tool": finder.name, "args": {finder.names["item"]: word}, "take": take}
        lister = toolset.tool("list")
        assert lister is not None  # noqa: S101 - with ids there is one of both
        return {"tool": lister.name, "take": take, "where": {fields["label"]: word}}

    def _said_ids(self) -> list[Any]:
        """Return things by their ids, where people would say these."""
        if self._toolset.manner.id_style in {"name", "hex"}:
            return []
        thing = self._toolset.domain.thing[self._locale]
        return [
            {
                "say": f"{thing} {each}"
                if self._locale == "en"
                else f"{each}번 {thing}"
                if isinstance(each, int)
                else [str(each), f"{thing} {each}"],
                "value": each,
            }
            for each in self._some(self._toolset.ids, 2)
        ]

    def _numbers(self, tool: Tool) -> list[Any]:
        most = self._toolset.domain.aspects["number"].most
        is_some = tool.shape in {"take", "put"}
        highest = max(1, most // 8) if is_some else most
        numbers = range(1, highest + 1)
        return [self._number(each) for each in self._some(numbers, 6)]

    def _number(self, number: int) -> Any:
        words = _WORDS[self._locale].split(",")
        if self._locale == "en":
            return {"say": [str(number), *words[number : number + 1]], "value": number}
        unit = self._nouns["unit"]
        say = [f"{number}{unit}"]
        if unit in _COUNTED and 0 < number < len(words):
            say.append(f"{words[number]} {unit}")
        return {"say": say, "value": number}

    def _is_read_so(self, said: str, days: Sequence[str]) -> bool:
        """Return False where the context tells that the words mean other days."""
        if not self._toolset.manner.reads_days:
            return True
        meant = [DateIs(day).resolved(_A_DAY) for day in days]
        read = said_dates(said, _A_DAY, self._locale)
        return all((str(each.first), str(each.last)) == (meant[0], meant[-1]) for each in read)

    def _dates(self) -> list[Any]:
        """Return days that are told by their date; all worlds are before them."""
        days = [date(2026, 10, 1) + timedelta(days=self._rng.randrange(90)) for _ in range(3)]
        if self._locale == "ko":
            return [{"say": f"{day.month}월 {day.day}일", "value": str(day)} for day in days]
        return [{"say": [f"{day:%B} {day.day}", f"{day.day} {day:%B}"], "value": str(day)}
                for day in days]  # fmt: skip

    def _failing(self, tool: Tool) -> _Raw:
        """Return values that a tool refuses or does not find."""
        toolset, locale = self._toolset, self._locale
        missing = [each[locale] for each in self._missing_names()]
        failing: _Raw = {}
        names = tool.names
        if "item" in names:
            by_name = tool.shape == "find" or toolset.manner.id_style == "name"
            failing[names["item"]] = [
                each if by_name else {"say": each, **self._look_up("{say}")} for each in missing
            ]
        if "label" in names:
            failing[names["label"]] = [each[locale] for each in toolset.present[:3]]
        if tool.shape in {"set_number", "take"}:
            most = toolset.domain.aspects["number"].most
            failing[names["number"]] = [self._number(most + 5), self._number(2 * most + 1)]
        if tool.shape == "set_day":
            past = TALK["past_days"][locale]
            failing[names["day"]] = [{"say": say, "date": day} for say, day in past]
        return failing

    # ------------------------------------------------------------------------------ one tool
    def _tool(self, tool: Tool) -> _Raw:
        if not tool.is_asked:
            return {"say": []}
        if tool.is_side:
            return self._side(tool)
        slots = {}
        if tool.shape == "between":
            slots["span"] = [
                {"say": say, "args": {tool.names["from"]: {"date": first},
                                      tool.names["to"]: {"date": last}}}
                for say, first, last in TALK["spans"][self._locale]
                if self._is_read_so(say, [first, last])
            ]  # fmt: skip
        return {
            "say": self._some(list(self._sentences(tool)), _SENTENCES),
            "values": {
                each.name: self._values(tool, each.role)
                for each in tool.arguments
                if each.role not in {"from", "to"}
            },
            "failing": self._failing(tool),
            "slots": slots,
            "replies": self._replies(tool, SHAPES[tool.shape]["replies"][self._locale]),
        }

    def _sentences(self, tool: Tool) -> Iterator[Any]:
        told = SHAPES[tool.shape]["say"][self._locale]
        for raw in self._rng.sample(told, len(told)):
            text = self._fitting(tool, raw)
            if text is not None:
                yield self._spoken(text)
        if tool.shape == "set_state":
            yield from self._orders(tool)

    def _fitting(self, tool: Tool, raw: str) -> str | None:
        """Return a sentence with a tool's arguments; None if it says too much or too little."""
        text = worded(raw, self._nouns)
        said = roles_in(raw) - {"span"}
        if text is None or not said <= tool.names.keys():
            return None
        is_whole = tool.required <= said or tool.shape == "between"
        return renamed(text, lambda role, _: tool.names.get(role, role)) if is_whole else None

    def _orders(self, tool: Tool) -> Iterator[Any]:
        """Yield sentences of the domain, which mean a state without its name."""
        choices = self._toolset.domain.aspects["state"].choices
        values = self._toolset.values("state", self._locale)
        for choice, value in zip(choices, values, strict=True):
            for order in choice.orders[self._locale]:
                is_order = order.split()[0] not in _TELLING
                text = f"!{order}" if self._locale == "en" and is_order else order
                if self._locale == "en":
                    text = text.replace("~", f"{self._nouns['the']}{{item}}")
                else:
                    text = _PARTICLE.sub(
                        lambda found: f"{{item:{found[1]}}}" if found[1] else "{item}", text
                    )
                named = renamed(text, lambda role, _: tool.names[role])
                yield {"text": self._spoken(named or ""), "args": {tool.names["state"]: value}}

    def _side(self, tool: Tool) -> _Raw:
        told = SIDES[tool.shape]
        names = tool.names
        slot_of = lambda role, _: names.get(role, role)  # noqa: E731 - one line of two uses
        values = {
            names[role]: [
                {"say": each[0], "value": each[1]} if isinstance(each, list) else each
                for each in argument[self._locale]
            ]
            for role, argument in told["arguments"].items()
        }
        return {
            "say": [
                self._spoken(renamed(each, slot_of) or "") for each in told["say"][self._locale]
            ],
            "values": values,
            "replies": {
                outcome: [renamed(each, slot_of) for each in replies]
                for outcome, replies in told["replies"][self._locale].items()
            },
        }

    # ------------------------------------------------------------------------------ replies
    def _replies(
        self, tool: Tool, told: Mapping[str, Sequence[str]], slots: Mapping[str, str] | None = None
    ) -> _Raw:
        """Return the replies of a tool by what a call came to.

        Args:
            tool: the tool.
            told: replies by outcome, as in `shapes.yaml`.
            slots: what is said, by what it stands for; by default the tool's arguments.
        """
        said = tool.names if slots is None else slots
        found = {
            outcome: [each for raw in replies for each in self._reply(tool, raw, said)]
            for outcome, replies in told.items()
        }
        return {outcome: replies for outcome, replies in found.items() if replies}

    def _reply(self, tool: Tool, raw: str, said: Mapping[str, str]) -> Iterator[Any]:
        text = worded(raw, self._nouns)
        if text is None:
            return
        named = renamed(text, lambda role, key: self._slot(role, key, said))
        if named is None:
            return
        if "{rows}" in text:
            ways = [self._telling("{}", self._brief_roles()), f"{{{self._field('label')}}}"]
            each = {self._toolset.manner.table: ways}
            yield {"text": named, "each": each, "join": self._rng.choice((", ", "; "))}
        else:
            for row in self._tellings(tool) if "{row}" in text else ("",):
                yield named.replace("{row}", row)

    def _slot(self, role: str, key: str, said: Mapping[str, str]) -> str | None:
        """Return the slot for what a reply speaks of; None if there is no such thing."""
        match role:
            case "rows":
                return self._rows_slot(key)
            case "row":
                return self._row_slot(key, said)
            case "it":
                has_get = self._toolset.tool("get") is not None
                return self._row_slot(key, said) if has_get else self._rows_slot(key)
            case "count" | "reason" | "span" | "deleted":
                return role
            case _:
                return said.get(role)

    def _rows_slot(self, key: str) -> str | None:
        table = self._toolset.manner.table
        if not key:
            return table
        return f"{table}.{self._field(key)}" if self._is_shown(key) else None

    def _row_slot(self, key: str, said: Mapping[str, str]) -> str | None:
        if not key:
            return "row"  # is told by `_tellings`
        name, one = self._field(key), self._toolset.manner.one
        if name is None or one:
            return name and f"{one}.{name}"
        return f"{name}.value" if key == "day" and name == said.get(key) else name

    def _field(self, role: str) -> str | None:
        return self._toolset.fields.get(role)

    def _is_shown(self, role: str) -> bool:
        return self._field(role) in self._toolset.brief

    def _brief_roles(self) -> list[str]:
        roles = [each for each in self._aspects() if self._is_shown(each)]
        return self._some(roles, self._rng.choice((0, 1, 1, 2)))

    def _aspects(self) -> list[str]:
        return [each for each in self._toolset.fields if each in self._toolset.domain.aspects]

    def _tellings(self, tool: Tool) -> list[str]:
        """Return ways to tell a row that is shown whole; a new one may lack some fields."""
        one = self._toolset.manner.one
        path = f"{one}.{{}}" if one else "{}"
        if tool.shape == "get":
            return [self._telling(path, self._aspects())]
        added = [each for each in self._aspects() if each in tool.required]
        return [self._telling(path, roles) for roles in ([added, []] if added else [[]])]

    def _telling(self, path: str, roles: Sequence[str]) -> str:
        """Return slots that tell a row: its name, and some of what is known of it."""
        parts = [f"{{{path.format(self._field('label'))}}}"]
        for role in roles:
            slot = f"{{{path.format(self._field(role))}}}"
            noun, is_english = self._nouns[role], self._locale == "en"
            match role:
                case "number":
                    unit = self._nouns["unit"]
                    parts.append(f"{slot} {unit}" if is_english else f"{slot}{unit}")
                case "person" | "day":
                    parts.append(f"{noun} {slot}")
                case "place" if is_english:
                    parts.append(f"at {slot}")
                case _:
                    parts.append(slot)
        return ", ".join(parts)

    # ------------------------------------------------------------------------------ talks
    def _out_of_scope(self) -> list[_Raw]:
        there = {each.shape for each in self._toolset.tools}
        answers = self._all(TALK["out_answers"])
        return [
            {"say": self._all(each["say"]), "answer": answers}
            for each in TALK["out_of_scope"]
            if each["topic"] not in there
        ]

    def _near_misses(self) -> list[_Raw]:
        found = []
        for each in TALK["near_misses"]:
            if not all(self._toolset.tool(shape) for shape in each["needs"]):
                continue
            say, answer = self._all(each["say"]), self._all(each["answer"])
            used = set().union(*map(roles_in, (*say, *answer)))
            slots = {
                "item": [name[self._locale] for name in self._toolset.present],
                "other": [name[self._locale] for name in self._toolset.absent],
                "who": self._people,
            }
            found.append({
                "say": say, "answer": answer,
                "slots": {role: values for role, values in slots.items() if role in used},
            })  # fmt: skip
        return self._some(found, _NEAR_MISSES)

    def _follow_ups(self) -> Iterator[_Raw]:
        for each in TALK["follow_ups"]:
            lines = [self._line(line) for line in each["lines"]]
            if None in lines:
                continue
            told = json.dumps(lines, ensure_ascii=False)
            used = sorted(slot for slot in roles_in(told) if slot.startswith(_SLOT))
            yield {
                "slots": {slot: self._slot_values(_role_of(slot)) for slot in used},
                "lines": lines,
            }

    def _slot_values(self, role: str) -> list[Any]:
        """Return values of a follow-up's slot: things are said by name, and looked up in calls."""
        if role == "item":
            return [name[self._locale] for name in self._toolset.present]
        shape = {"number": "set_number", "label": "add"}.get(role, "set_state")
        tool = self._toolset.tool(shape) or self._toolset.tools[0]
        return self._values(tool, role)

    def _line(self, raw: Mapping[str, Any]) -> _Raw | None:
        """Return a line of a follow-up; None if the toolset has not what it takes."""
        say = [_in_slots(self._spoken(each, is_alone=False)) for each in self._all(raw["say"])]
        line: _Raw = {"say": say}
        if "answer" in raw:
            line["answer"] = list(map(_in_slots, self._all(raw["answer"])))
        calls = [self._call(*next(iter(each.items()))) for each in raw.get("calls", ())]
        if not say or None in calls or line.get("answer") == []:
            return None
        about = raw.get("about")
        if about is not None and not self._tells(about):
            return None
        if calls:
            line["calls"] = calls
            line["replies"] = self._line_replies(raw)
        if "confirm" in raw:
            line["confirm"] = raw["confirm"]
        return line

    def _tells(self, role: str) -> bool:
        return role in self._toolset.fields and (
            self._toolset.tool("get") is not None or self._is_shown(role)
        )

    def _call(self, shape: str, roles: Sequence[str]) -> _Raw | None:
        tool = self._reader() if shape == _READ else self._toolset.tool(shape)
        if tool is None:
            return None
        args: _Raw = {}
        for each in roles:
            role = "item" if each in _ORDINALS else each.rstrip("2")
            if role not in tool.names:
                return None
            value = self._meant(tool, each)
            if value is None:
                return None
            args[tool.names[role]] = value
        is_whole = {tool.names[role] for role in tool.required} <= args.keys()
        return {"tool": tool.name, "args": args} if is_whole else None

    def _reader(self) -> Tool | None:
        return self._toolset.tool("get") or self._toolset.tool("find")

    def _meant(self, tool: Tool, role: str) -> Any:
        """Return what a call of a follow-up is given for a slot, or for a row of the list."""
        toolset = self._toolset
        by_name = toolset.manner.id_style == "name"
        if role in _ORDINALS:
            lister = toolset.tool("list")
            key = toolset.fields["label" if by_name else "id"]
            take = f"{toolset.manner.table}[{_ORDINALS[role]}].{key}"
            return lister and {"tool": lister.name, "take": take}
        slot = f"{{{_SLOT}{role}}}"
        is_looked_up = role.startswith("item") and tool.shape != "find" and not by_name
        return self._look_up(slot) if is_looked_up else slot

    def _line_replies(self, raw: Mapping[str, Any]) -> _Raw:
        """Return the replies of a line's call in the words of its slots."""
        ((shape, roles),) = raw["calls"][-1].items()
        tool = self._reader() if shape == _READ else self._toolset.tool(shape)
        assert tool is not None  # noqa: S101 - the call was made of it
        said = {role.rstrip("2"): f"{_SLOT}{role}" for role in roles if role not in _ORDINALS}
        if len(raw["calls"]) > 1:
            said = {}  # both calls are told with these
        told = dict(SHAPES[tool.shape]["replies"][self._locale])
        if "about" in raw:
            told["ok"] = TALK["about"][raw["about"]][self._locale]
        return self._replies(tool, told, said)


_SLOT = "said_"
"""What the names of a follow-up's slots begin with, so that they are no field of a result."""


def _in_slots(text: str) -> str:
    return renamed(text, lambda role, _: f"{_SLOT}{role}") or ""


def _role_of(slot: str) -> str:
    return slot.removeprefix(_SLOT).rstrip("2")


_TELLING = frozenset({
    *("~", "we", "we're", "a", "an", "the", "nobody", "somebody"),
    *("guests", "hail", "people", "there's"),
})  # fmt: skip
"""With these a sentence begins that tells something and orders nothing."""

_ENDINGS: Mapping[str, Sequence[str]] = {
    "줘": (),
    "있어?": ("있어?", "있어요?", "있나요?", "있나?", "있습니까?", "있을까?"),
    "이야?": ("이야?", "이에요?", "인가요?", "입니까?", "이지?"),
    "야?": ("야?", "예요?", "인가요?", "죠?", "지?"),
    "됐어?": ("됐어?", "됐어요?", "됐나요?"),
    "어": ("어", "어요"),
}
"""How a Korean sentence may end instead; an order in 줘 ends as in `talk.yaml`."""
