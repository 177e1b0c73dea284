"""Toolsets that nobody has, drawn from a seed. Their tools really run, on rows in memory."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from itertools import count
from typing import Any, Literal, TypeAlias
from zlib import crc32

from evals.head_start.domains import LOCALES, Domain, Texts, domains, words_of
from evals.head_start.wording import camel, nouns_of, slug, worded
from lhkit import Assistant, ToolDefinition, ToolErr, ToolOk, ToolRegistry, ToolResult, said_dates

Row: TypeAlias = dict[str, Any]

IdStyle: TypeAlias = Literal["code", "short", "slug", "hex", "number", "name"]
"""How rows are told apart; by `name` there are no ids, and tools take the name itself."""

SHAPES: Mapping[str, Any] = words_of("shapes.yaml")
SIDES: Mapping[str, Any] = words_of("sides.yaml")
TALK: Mapping[str, Any] = words_of("talk.yaml")

MAX_TURNS = 6
_WEEKDAYS = {
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "ko": ("월요일", "화요일", "수요일", "목요일", "금요일", "토요일", "일요일"),
}


# ------------------------------------------------------------------------------------ what it is
@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument, and what it stands for."""

    role: str
    name: str
    is_required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool of some shape; nobody asks for one that `is_asked` is False for.

    One of `SIDES` has nothing to do with the rows.
    """

    shape: str
    name: str
    about: Texts
    arguments: tuple[Argument, ...]
    is_writing: bool
    is_asked: bool = True

    @property
    def is_side(self) -> bool:
        """True if it is one of `SIDES`."""
        return self.shape in SIDES

    @property
    def names(self) -> Mapping[str, str]:
        """The arguments' names by what they stand for."""
        return {each.role: each.name for each in self.arguments}

    @property
    def required(self) -> frozenset[str]:
        """What has to be given."""
        return frozenset(each.role for each in self.arguments if each.is_required)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a toolset does what all of them do.

    Attributes:
        id_style: how rows are told apart.
        table: under which key results hold rows.
        one: under which key results hold a row; empty: its fields stand by themselves.
        has_count: results with rows say how many.
        is_error: nothing found is an error, not an empty list.
        has_nulls: optional arguments may be null, as pydantic writes them.
        is_described: arguments have descriptions.
        is_native: values of choices are words of the language.
        is_open: values of choices are any text for the schema.
        reads_days: the context says which days the words of a message mean.
        about: the language of descriptions and instructions, by that of the users.
    """

    id_style: IdStyle
    table: str
    one: str
    has_count: bool
    is_error: bool
    has_nulls: bool
    is_described: bool
    is_native: bool
    is_open: bool
    reads_days: bool
    about: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedToolset:
    """A toolset: `present` are the names that its worlds hold, `absent` those that they do not.

    `fields` are those of a row, by what they stand for; `brief` those that lists show.
    """

    name: str
    domain: Domain
    manner: Manner
    fields: Mapping[str, str]
    brief: tuple[str, ...]
    tools: tuple[Tool, ...]
    present: tuple[Texts, ...]
    absent: tuple[Texts, ...]
    ids: tuple[str | int, ...]
    instructions: Texts
    context: Texts
    locales: tuple[str, ...] = LOCALES

    def tool(self, shape: str) -> Tool | None:
        """Return the tool of a shape that is asked for, if there is one."""
        return next((each for each in self.tools if each.shape == shape and each.is_asked), None)

    def values(self, role: str, locale: str) -> tuple[str, ...]:
        """Return the values of a choice, as rows and calls hold them."""
        aspect = self.domain.aspects[role]
        is_native = self.manner.is_native or role == "place"
        return tuple(
            each.said[locale] if is_native and (role == "place" or locale == "ko") else each.value
            for each in aspect.choices
        )

    def open(self, world: Mapping[str, Any], locale: str) -> "GeneratedSession":
        """Return a session over the rows of a world."""
        now = datetime.fromisoformat(world["now"])
        rows = [dict(row) for row in world[self.manner.table]]
        desk = _Desk(toolset=self, rows=rows, today=now.date(), locale=locale)
        return GeneratedSession(
            registry=ToolRegistry(_definition(self, tool, locale) for tool in self.tools),
            assistant=Assistant(
                instructions=self.instructions[locale],
                context=partial(_context, self, now, locale),
                deps=desk,
                max_turns=MAX_TURNS,
            ),
            today=now.date(),
            desk=desk,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedSession:
    """One conversation's own rows."""

    registry: ToolRegistry
    assistant: Assistant
    today: date
    desk: "_Desk"

    def state(self) -> Mapping[str, Any]:
        """Return the rows."""
        return {self.desk.toolset.manner.table: self.desk.rows}

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _context(toolset: GeneratedToolset, now: datetime, locale: str, message: str) -> str:
    about = toolset.manner.about[locale]
    line = toolset.context[locale].format(
        now=f"{now:%Y-%m-%d %H:%M} {_WEEKDAYS[about][now.weekday()]}",
        date=now.date(),
        weekday=_WEEKDAYS[about][now.weekday()],
        clock=f"{now:%H:%M}",
    )
    if not toolset.manner.reads_days:
        return line
    return "\n".join([line, *map(str, said_dates(message, now.date(), locale))])


# --------------------------------------------------------------------------------- what tools do
@dataclass(slots=True, kw_only=True)
class _Desk:
    """The rows of a conversation, and how its toolset speaks of them."""

    toolset: GeneratedToolset
    rows: list[Row]
    today: date
    locale: str

    def at(self, role: str) -> str:
        return self.toolset.fields[role]

    def find(self, item: Any) -> Row | None:
        key = self.at("label" if self.toolset.manner.id_style == "name" else "id")
        return next((row for row in self.rows if _same(row[key], item)), None)

    def one(self, row: Row) -> ToolOk:
        key = self.toolset.manner.one
        return ToolOk({key: dict(row)} if key else dict(row))

    def many(self, rows: Sequence[Row]) -> ToolResult:
        manner = self.toolset.manner
        if not rows and manner.is_error:
            return ToolErr("not_found", f"No {self.toolset.domain.thing['en']} fits that.")
        shown = [{key: row[key] for key in self.toolset.brief} for row in rows]
        return ToolOk({manner.table: shown, **({"count": len(rows)} if manner.has_count else {})})


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one.casefold() == other.casefold()
    return bool(one == other)


def _find(desk: _Desk, meant: Row) -> ToolResult:
    word = meant["item"].casefold()
    return desk.many([row for row in desk.rows if word in row[desk.at("label")].casefold()])


def _list(desk: _Desk, meant: Row) -> ToolResult:
    return desk.many(list(_fitting(desk, meant)))


def _fitting(desk: _Desk, meant: Row) -> Iterator[Row]:
    for row in desk.rows:
        if all(_same(row[desk.at(role)], value) for role, value in meant.items()):
            yield row


def _count(desk: _Desk, meant: Row) -> ToolResult:
    return ToolOk({"count": len(list(_fitting(desk, meant)))})


def _between(desk: _Desk, meant: Row) -> ToolResult:
    day = desk.at("day")
    dated = [row for row in desk.rows if row[day] is not None]
    return desk.many([row for row in dated if meant["from"] <= row[day] <= meant["to"]])


def _get(desk: _Desk, meant: Row) -> ToolResult:
    row = desk.find(meant["item"])
    return _missing(desk, meant) if row is None else desk.one(row)


def _missing(desk: _Desk, meant: Row) -> ToolErr:
    finder = desk.toolset.tool("find") or desk.toolset.tool("list")
    how = f" Use one that {finder.name} returned." if finder else ""
    thing = desk.toolset.domain.thing["en"]
    return ToolErr("not_found", f"There is no {thing} {meant['item']!r}.{how}")


def _add(desk: _Desk, meant: Row) -> ToolResult:
    label = desk.at("label")
    if any(_same(row[label], meant["label"]) for row in desk.rows):
        return ToolErr("exists", f"{meant['label']} is there already.")
    row: Row = {name: None for role, name in desk.toolset.fields.items() if role != "text"}
    row |= {desk.at(role): value for role, value in meant.items()}
    if "id" in desk.toolset.fields:
        row[desk.at("id")] = _fresh_id(desk)
    if "state" in desk.toolset.fields and "state" not in meant:
        row[desk.at("state")] = desk.toolset.values("state", desk.locale)[0]
    desk.rows.append(row)
    return desk.one({key: value for key, value in row.items() if value is not None})


def _fresh_id(desk: _Desk) -> str | int:
    """Return an id that no row has; those that a world begins with are of lower numbers."""
    style, used = desk.toolset.manner.id_style, {row[desk.at("id")] for row in desk.rows}
    fresh = (new_id(style, number, {"en": f"new {number}"}) for number in count(1_001))
    return next(each for each in fresh if each not in used)


def _remove(desk: _Desk, meant: Row) -> ToolResult:
    row = desk.find(meant["item"])
    if row is None:
        return _missing(desk, meant)
    if "state" in desk.toolset.fields:
        kept = desk.toolset.values("state", desk.locale)[1]
        if row[desk.at("state")] == kept:
            return ToolErr("in_use", f"It is {kept}: change that before it is deleted.")
    desk.rows.remove(row)
    return ToolOk({"deleted": row[desk.at("label")], "left": len(desk.rows)})


def _changed(role: str, desk: _Desk, meant: Row) -> ToolResult:
    row = desk.find(meant["item"])
    if row is None:
        return _missing(desk, meant)
    fault = _fault(role, desk, row, meant)
    if fault is not None:
        return fault
    row[desk.at(role)] = meant[role]
    return desk.one(row)


def _fault(role: str, desk: _Desk, row: Row, meant: Row) -> ToolErr | None:
    aspect = desk.toolset.domain.aspects.get(role)
    value = meant[role]
    if role in {"state", "person", "place"} and _same(row[desk.at(role)], value):
        return ToolErr("already", f"It is {value} already.")
    if role == "number" and aspect is not None and value > aspect.most:
        return ToolErr("too_much", f"{aspect.most} is the most that is allowed.")
    if role == "day" and value < desk.today.isoformat():
        return ToolErr("in_past", f"{value} is over.")
    if role == "label" and any(_same(each[desk.at(role)], value) for each in desk.rows):
        return ToolErr("exists", f"{value} is there already.")
    return None


def _moved(sign: int, desk: _Desk, meant: Row) -> ToolResult:
    row = desk.find(meant["item"])
    if row is None:
        return _missing(desk, meant)
    held = row[desk.at("number")] or 0
    if sign < 0 and meant["number"] > held:
        return ToolErr("not_enough", f"There are only {held}.")
    row[desk.at("number")] = held + sign * meant["number"]
    return desk.one(row)


def _noted(desk: _Desk, meant: Row) -> ToolResult:
    row = desk.find(meant["item"])
    if row is None:
        return _missing(desk, meant)
    row[desk.at("text")] = meant["text"]
    return desk.one(row)


_RUNS: Mapping[str, Callable[[_Desk, Row], ToolResult]] = {
    "find": _find,
    "list": _list,
    "get": _get,
    "count": _count,
    "between": _between,
    "add": _add,
    "remove": _remove,
    "set_state": partial(_changed, "state"),
    "set_number": partial(_changed, "number"),
    "assign": partial(_changed, "person"),
    "move": partial(_changed, "place"),
    "set_day": partial(_changed, "day"),
    "rename": partial(_changed, "label"),
    "take": partial(_moved, -1),
    "put": partial(_moved, 1),
    "note": _noted,
}


def _side(shape: str, _desk: _Desk, meant: Row) -> ToolResult:
    """Return a result of a side tool: the arguments, and values that follow from them."""
    drawn = {
        name: values[crc32(f"{name}{sorted(meant.items())}".encode()) % len(values)]
        for name, values in SIDES[shape]["returns"].items()
    }
    return ToolOk({**meant, **drawn})


def _definition(toolset: GeneratedToolset, tool: Tool, locale: str) -> ToolDefinition:
    roles = {each.name: each.role for each in tool.arguments}
    run = partial(_side, tool.shape) if tool.is_side else _RUNS[tool.shape]

    def handle(args: Mapping[str, Any], deps: _Desk) -> ToolResult:
        meant = {roles[name]: value for name, value in args.items() if value is not None}
        return run(deps, meant)

    properties = {each.name: _schema(toolset, tool, each, locale) for each in tool.arguments}
    required = [each.name for each in tool.arguments if each.is_required]
    return ToolDefinition(
        name=tool.name,
        description=tool.about[toolset.manner.about[locale]],
        parameters={
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
        },
        handler=handle,
        is_destructive=tool.is_writing,
    )


def _schema(toolset: GeneratedToolset, tool: Tool, argument: Argument, locale: str) -> Row:
    told = (
        dict(SIDES[tool.shape]["arguments"][argument.role]["schema"])
        if tool.is_side
        else _schema_of(toolset, tool, argument.role, locale)
    )
    about = _described(toolset, tool, argument.role, locale)
    described = {"description": about} if about else {}
    if argument.is_required:
        return told | described
    if toolset.manner.has_nulls:
        return {"anyOf": [told, {"type": "null"}], "default": None, **described}
    return told | described


def _schema_of(toolset: GeneratedToolset, tool: Tool, role: str, locale: str) -> Row:
    match role:
        case "item" if tool.shape != "find" and toolset.manner.id_style == "number":
            return {"type": "integer"}
        case "number":
            least = 1 if tool.shape in {"take", "put"} else 0
            return {"type": "integer", "minimum": least}
        case "day" | "from" | "to":
            return {"type": "string", "format": "date"}
        case "kind" | "state" | "place" if not toolset.manner.is_open:
            return {"type": "string", "enum": list(toolset.values(role, locale))}
        case _:
            return {"type": "string"}


_ABOUT = {
    "en": {
        "item": "id of the <thing>",
        "from": "first day",
        "to": "last day",
        "text": "the user's words",
        "number": "<number> (<unit>)",
    },
    "ko": {
        "item": "<thing> id",
        "from": "첫날",
        "to": "마지막 날",
        "text": "사용자의 말 그대로",
        "number": "<number>(<unit>)",
    },
}


def _described(toolset: GeneratedToolset, tool: Tool, role: str, locale: str) -> str:
    """Return what the schema says of an argument, if it says anything."""
    manner = toolset.manner
    about = manner.about[locale]
    nouns = nouns_of(toolset.domain, about)
    is_choice = role in {"kind", "state", "place"} and not tool.is_side
    if is_choice and manner.is_open:
        return f"{nouns[role]}: {', '.join(toolset.values(role, locale))}"
    if not manner.is_described or tool.is_side:
        return ""
    if role == "item" and (manner.id_style == "name" or tool.shape == "find"):
        role = "label"
    text = _ABOUT[about].get(role, f"<{role}>")
    finder = toolset.tool("find") or toolset.tool("list")
    source = f" ({finder.name})" if role == "item" and finder is not None else ""
    return (worded(text, nouns) or "") + source


# ------------------------------------------------------------------------------------- drawing one
_ID_STYLES: tuple[IdStyle, ...] = ("code", "short", "slug", "hex", "number", "name", "name")
_WRITES: Mapping[str, tuple[str, ...]] = {
    "set_state": ("item", "state"),
    "set_number": ("item", "number"),
    "take": ("item", "number"),
    "put": ("item", "number"),
    "assign": ("item", "person"),
    "move": ("item", "place"),
    "set_day": ("item", "day"),
    "rename": ("item", "label"),
    "note": ("item", "text"),
    "remove": ("item",),
}
_NEEDS = {
    "set_state": "state",
    "set_number": "number",
    "take": "number",
    "put": "number",
    "assign": "person",
    "move": "place",
    "set_day": "day",
    "between": "day",
}
_FILTERS = ("kind", "state", "place", "person")
_ADDED = ("kind", "place", "person", "number", "day")
_PRESENT = 6
_MOST_TOOLS = 8
_SPANS = (("from", "to"), ("start", "end"), ("from_date", "to_date"), ("first_day", "last_day"))
_ITEM_NAMES = ("{thing}_id", "id", "{thing}", "ref", "target", "{thing}_ref")
_NAMED_ITEMS = ("{thing}", "which", "target", "{thing}_name", "which_{thing}")
_QUERIES = ("query", "text", "word", "q", "search", "term", "keyword")
_TEXTS = ("text", "note", "remark", "content", "comment")
_TABLES = ("items", "results", "rows", "matches", "found", "{things}", "{things}", "{things}")


def toolsets(count: int, *, seed: int) -> Iterator[GeneratedToolset]:
    """Yield toolsets, in turn of all domains; the same arguments give the same ones."""
    everything = domains()
    for number in range(count):
        yield draw(everything[number % len(everything)], seed=seed, number=number)


def draw(domain: Domain, *, seed: int, number: int) -> GeneratedToolset:
    """Return a toolset about a domain."""
    rng = random.Random(f"head-start/{seed}/{number}")
    return _Drawing(domain, f"{domain.key}-{number}", rng).toolset()


class _Drawing:
    """Draws one toolset."""

    def __init__(self, domain: Domain, name: str, rng: random.Random) -> None:
        self._domain = domain
        self._name = name
        self._rng = rng
        self._words = {"thing": slug(domain.thing["en"]), "things": slug(domain.things["en"])}
        self._cased: Callable[[str], str] = rng.choices((str, camel), (78, 22))[0]
        self._manner = self._drawn_manner()
        self._fields = self._drawn_fields()
        self._names = self._drawn_names()
        self._taken: set[str] = set()

    def toolset(self) -> GeneratedToolset:
        """Return what is drawn."""
        names = self._rng.sample(self._domain.names, len(self._domain.names))
        tools = self._drawn_tools()
        return GeneratedToolset(
            name=self._name,
            domain=self._domain,
            manner=self._manner,
            fields=self._fields,
            brief=self._brief(tools),
            tools=tools,
            present=tuple(names[:_PRESENT]),
            absent=tuple(names[_PRESENT:]),
            ids=self._ids(names[:_PRESENT]),
            instructions=self._about(TALK["instructions"]),
            context={
                locale: self._rng.choice(TALK["contexts"][about])
                for locale, about in self._manner.about.items()
            },
        )

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _any(self, names: Sequence[str]) -> str:
        return self._cased(self._rng.choice(names).format(**self._words))

    def _about(self, texts: Mapping[str, Sequence[str]]) -> Texts:
        """Return one of the texts in each language that descriptions are in."""
        told = {}
        for about in LOCALES:
            nouns = nouns_of(self._domain, about)
            fitting = [text for each in texts[about] if (text := worded(each, nouns))]
            told[about] = self._rng.choice(fitting)
        return told

    def _drawn_manner(self) -> Manner:
        return Manner(
            id_style=self._rng.choice(_ID_STYLES),
            table=self._any(_TABLES),
            one=self._rng.choice((self._words["thing"], "item", "", "")),
            has_count=self._chance(0.3),
            is_error=self._chance(0.4),
            has_nulls=self._chance(0.5),
            is_described=self._chance(0.6),
            is_native=self._chance(0.3),
            is_open=self._chance(0.12),
            reads_days=self._chance(0.4),
            about={"en": "en", "ko": "ko" if self._chance(0.55) else "en"},
        )

    def _drawn_fields(self) -> Mapping[str, str]:
        aspects = self._domain.aspects
        some = self._rng.sample(tuple(aspects), min(len(aspects), self._rng.randint(2, 4)))
        fields = {} if self._manner.id_style == "name" else {"id": self._any(("id", "id", "ref"))}
        fields["label"] = self._any(self._domain.label.names)
        for role in aspects:
            if role in some:
                fields[role] = self._any(aspects[role].names)
        return fields | {"text": self._any(_TEXTS)}

    def _drawn_names(self) -> Mapping[str, str]:
        names = _NAMED_ITEMS if self._manner.id_style == "name" else _ITEM_NAMES
        own = [each for each in names if each.format(**self._words) != self._manner.one]
        first, last = self._rng.choice(_SPANS)
        aspects = {
            role: name if self._chance(0.7) else self._any(self._domain.aspects[role].names)
            for role, name in self._fields.items()
            if role in self._domain.aspects
        }
        return {
            "item": self._any(own),
            "query": self._any(_QUERIES),
            "label": self._fields["label"],
            "text": self._fields["text"],
            "from": self._cased(first),
            "to": self._cased(last),
            **aspects,
        }

    def _drawn_tools(self) -> tuple[Tool, ...]:
        tools = [self._tool(shape) for shape in self._shapes()]
        writes = [each for each in tools if each.is_writing]
        if len(writes) > 2 and self._chance(0.4):
            silent = self._rng.choice(writes)
            tools[tools.index(silent)] = replace(silent, is_asked=False)
        room = _MOST_TOOLS - len(tools)
        sides = self._rng.sample(tuple(SIDES), min(room, self._rng.choice((0, 0, 1, 1, 2))))
        tools += [self._side(each) for each in sides]
        self._rng.shuffle(tools)
        return tuple(tools)

    def _shapes(self) -> list[str]:
        has_ids = self._manner.id_style != "name"
        shapes = [each for each in ("find", "list") if self._chance(0.6)]
        if not shapes and has_ids:
            shapes = ["find"]
        fits = [each for each, need in _NEEDS.items() if need in self._fields]
        shapes += [each for each in ("get", "count") if self._chance(0.35)]
        shapes += ["between"] if "between" in fits and self._chance(0.5) else []
        writes = ["add", "remove", "rename", "note", *(each for each in fits if each in _WRITES)]
        likely = {"rename": 0.5, "note": 0.6}
        ranked = sorted(writes, key=lambda each: self._rng.random() * likely.get(each, 1.0))
        return (shapes + ranked[::-1][: self._rng.randint(1, 5)])[: _MOST_TOOLS - 1]

    def _tool(self, shape: str) -> Tool:
        told = SHAPES[shape]
        return Tool(
            shape=shape,
            name=self._fresh(told["names"]),
            about=self._about(told["about"]),
            arguments=tuple(self._arguments(shape)),
            is_writing=shape == "add" or shape in _WRITES,
        )

    def _fresh(self, names: Sequence[str]) -> str:
        """Return a name that no other tool has."""
        nouns = {**nouns_of(self._domain, "en"), **self._fields, **self._words}
        fitting = [slug(text) for each in names if (text := worded(each, nouns))]
        free = [each for each in fitting if each not in self._taken]
        name = self._rng.choice(free or [f"{fitting[0]}_{len(self._taken)}"])
        self._taken.add(name)
        return self._cased(name)

    def _arguments(self, shape: str) -> Iterator[Argument]:
        required: Sequence[str] = _WRITES.get(shape, ())
        optional: Sequence[str] = ()
        match shape:
            case "find":
                yield Argument(role="item", name=self._names["query"], is_required=True)
            case "get":
                required = ("item",)
            case "between":
                required = ("from", "to")
            case "list" | "count":
                filters = [each for each in _FILTERS if each in self._fields]
                optional = self._rng.sample(filters, self._rng.randint(0, min(3, len(filters))))
            case "add":
                some = [each for each in _ADDED if each in self._fields]
                some = self._rng.sample(some, self._rng.randint(0, min(3, len(some))))
                is_kind_required = "kind" in some and self._chance(0.5)
                required = ("label", "kind") if is_kind_required else ("label",)
                optional = [each for each in some if each not in required]
            case _:
                pass
        for role in (*required, *optional):
            is_required = role in required
            yield Argument(role=role, name=self._names[role], is_required=is_required)

    def _side(self, shape: str) -> Tool:
        told = SIDES[shape]
        return Tool(
            shape=shape,
            name=self._fresh(told["names"]),
            about=self._about(told["about"]),
            arguments=tuple(
                Argument(
                    role=role, name=self._cased(role), is_required=not each.get("optional", False)
                )
                for role, each in told["arguments"].items()
            ),
            is_writing=told.get("writes", False),
            is_asked=self._chance(0.5),
        )

    def _brief(self, tools: Sequence[Tool]) -> tuple[str, ...]:
        """Return the fields that lists show: not all of them where one thing can be read alone."""
        others = [role for role in self._fields if role in self._domain.aspects]
        if any(each.shape == "get" for each in tools):
            others = self._rng.sample(others, min(len(others), self._rng.randint(0, 2)))
        shown = ("id", "label", *others)
        return tuple(name for role, name in self._fields.items() if role in shown)

    def _ids(self, names: Sequence[Texts]) -> tuple[str | int, ...]:
        first = self._rng.randrange(3, 900)
        return tuple(
            new_id(self._manner.id_style, first + 7 * number, name)
            for number, name in enumerate(names)
        )


def new_id(style: IdStyle, number: int, name: Texts) -> str | int:
    """Return an id of a style, for the `number`th row."""
    letter = slug(name["en"])[0]
    match style:
        case "code":
            return f"{letter.upper()}{crc32(name['en'].encode()) % 10}-{number:04}"
        case "short":
            return f"{letter}{number}"
        case "slug":
            return slug(name["en"], "-")
        case "hex":
            return f"{crc32(f'{number}{name}'.encode()):08x}"
        case _:
            return number
