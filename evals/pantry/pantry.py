"""A kitchen pantry: a toolset of five tools over a few rows.

A second toolset that no adapter was trained on, and a template for your own tools
(docs/own-tools.md). From top to bottom: data, handlers, texts for the model, texts for the user,
registry, toolset.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from difflib import get_close_matches
from functools import cache, partial
from itertools import count
from typing import Any, Literal, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from lhkit import (
    Assistant,
    ToolDefinition,
    ToolErr,
    ToolOk,
    ToolRegistry,
    ToolResult,
    UsageError,
    find_dates,
)
from lhkit.base.locales import Catalog

Place = Literal["fridge", "freezer", "shelf"]
DEFAULT_DAYS = 3


class Item(BaseModel):
    """An item in the kitchen. A used-up item stays, with an amount of 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    name: str
    amount: int = Field(1, ge=0)
    place: Place = "fridge"
    expires_on: date | None = None


@dataclass(slots=True, kw_only=True)
class Pantry:
    """The dependencies of the tools in one conversation: items, current date and language."""

    items: dict[str, Item]
    today: date
    locale: str

    def put(self, item: Item) -> ToolResult:
        """Store an item and return it."""
        self.items[item.id] = item
        return ToolOk({"item": item.model_dump(mode="json")})

    def refused(self, code: str, key: str, **values: object) -> ToolErr:
        """Return an error with a message that names what is accepted."""
        return ToolErr(code, _REASONS[key][self.locale].format(**values))

    def unknown(self, item_id: str) -> ToolErr:
        """Return the error of an unknown id."""
        near = get_close_matches(item_id, self.items, cutoff=0.0)
        return self.refused("not_found", "unknown", id=item_id, nearest=", ".join(near) or "-")


# Handlers take validated arguments and the pantry. They return errors that the model can fix as
# ToolErr instead of raising. Scenarios expect the codes: not_found, r1_stock, …
def find_item(args: Mapping[str, Any], pantry: Pantry) -> ToolResult:
    """Return the items whose name matches a word of the query; all without a query."""
    place = args.get("place")
    items = [item for item in pantry.items.values() if place in {None, item.place}]
    hits = [item.model_dump(mode="json") for item in items if _is_asked(args, item.name)]
    return ToolOk({"items": hits, "count": len(hits)})


def list_expiring(args: Mapping[str, Any], pantry: Pantry) -> ToolResult:
    """Return the items that expire within some days or have expired, soonest first."""
    last = pantry.today + timedelta(days=args.get("days", DEFAULT_DAYS))
    dated = [(item.expires_on, item) for item in pantry.items.values() if item.amount]
    soon = sorted((day, item.id) for day, item in dated if day and day <= last)
    items = [pantry.items[item_id].model_dump(mode="json") for _, item_id in soon]
    return ToolOk({"until": last.isoformat(), "items": items, "count": len(items)})


def add_item(args: Mapping[str, Any], pantry: Pantry) -> ToolResult:
    """Store a new item."""
    new_id = next(name for n in count(1) if (name := f"item-{n}") not in pantry.items)
    try:
        return pantry.put(Item(id=new_id, **args))
    except ValidationError:  # the schema accepts impossible dates such as 2026-02-30
        return pantry.refused("invalid_date", "no_date", date=args.get("expires_on"))


def use_item(args: Mapping[str, Any], pantry: Pantry) -> ToolResult:
    """Use up some of an item. Rule R1: not more than there is."""
    item = pantry.items.get(args["item_id"])
    if item is None:
        return pantry.unknown(args["item_id"])
    if args["amount"] > item.amount:
        return pantry.refused("r1_stock", "stock", name=item.name, left=item.amount)
    return pantry.put(item.model_copy(update={"amount": item.amount - args["amount"]}))


def move_item(args: Mapping[str, Any], pantry: Pantry) -> ToolResult:
    """Move an item to another place."""
    item = pantry.items.get(args["item_id"])
    if item is None:
        return pantry.unknown(args["item_id"])
    return pantry.put(item.model_copy(update={"place": args["place"]}))


def _is_asked(args: Mapping[str, Any], name: str) -> bool:
    folded, query = name.casefold(), args.get("query", "").casefold()
    parts = folded.split()
    return not query or any(w in folded or any(p in w for p in parts) for w in query.split())


INSTRUCTIONS = {
    "ko": """\
너는 부엌 살림을 돕는 도우미 pantry야. 사용자가 쓴 언어로 짧고 다정하게 답해.
- 부엌에 있는 재료에 관한 부탁이면 도구를 불러. 인사나 다른 이야기에는 도구 없이 답해.
- 재료는 find_item으로 찾고, 기한이 가까운 것은 list_expiring으로 확인해.
- id는 도구 결과에 나온 것만 그대로 쓰고, 결과에 없는 것은 말하지 마.
- 필요한 정보가 빠졌거나 뜻이 모호하면 지어내지 말고 되물어.
- 날짜는 [오늘] 줄을 기준으로 YYYY-MM-DD로 계산해.
- 결과가 cancelled나 error면 저장됐다고 말하지 마. 이유를 알려 주고 다른 길을 제안해.
- 사용자가 취소한 호출은 다시 하지 마.""",
    "en": """\
You are pantry, an assistant for the kitchen. Answer briefly, in the user's language.
- Call a tool for requests about what is in the kitchen. Small talk needs no tool.
- Find items with find_item; what expires soon with list_expiring.
- Use only ids that a tool returned, exactly; name nothing that was not returned.
- If something is missing or unclear, ask back instead of inventing it.
- Work out dates from the [Now] line, as YYYY-MM-DD.
- After cancelled or error, never say it was saved. Give the reason and offer a way on.
- Do not repeat a call that the user cancelled.""",
}

_NOW = {
    "ko": "[오늘: {date} {weekday} {time:%H:%M}]",
    "en": "[Now: {date} {weekday} {time:%H:%M}]",
}
_WEEKDAYS = {
    "ko": ("월요일", "화요일", "수요일", "목요일", "금요일", "토요일", "일요일"),
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
}
_REASONS = {
    "unknown": {
        "ko": "'{id}'은(는) 없습니다. 가까운 id: {nearest}. find_item 결과에 나온 id를 쓰세요.",
        "en": "There is no item '{id}'. Nearest ids: {nearest}. Use an id that find_item returned.",
    },
    "stock": {
        "ko": "{name}은(는) {left}개뿐입니다. {left}개까지만 쓸 수 있습니다.",
        "en": "There are only {left} of {name}. Use at most {left}.",
    },
    "no_date": {
        "ko": "'{date}'은(는) 없는 날짜입니다. 달력에 있는 날짜를 YYYY-MM-DD로 쓰세요.",
        "en": "'{date}' is no date. Write a real date as YYYY-MM-DD.",
    },
}
_TOOLS: Mapping[str, Mapping[str, str]] = {
    "find_item": {"ko": "부엌에 있는 재료를 찾는다", "en": "Find what is in the kitchen"},
    "list_expiring": {"ko": "기한이 곧 끝나는 재료를 본다", "en": "List what expires soon"},
    "add_item": {"ko": "새 재료를 넣는다", "en": "Put in a new item"},
    "use_item": {"ko": "재료를 쓴 만큼 뺀다", "en": "Take out what was used"},
    "move_item": {"ko": "재료를 다른 곳으로 옮긴다", "en": "Move an item to another place"},
}
_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "query": {"ko": "재료 이름, 없으면 전부", "en": "name of the item, default all"},
    "place": {"ko": "fridge=냉장실, freezer=냉동실, shelf=찬장", "en": "shelf = cupboard"},
    "days": {"ko": "며칠 안", "en": "within how many days"},
    "name": {"ko": "재료 이름", "en": "name of the item"},
    "amount": {"ko": "개수", "en": "how many"},
    "expires_on": {"ko": "기한 YYYY-MM-DD", "en": "best before, YYYY-MM-DD"},
    "item_id": {"ko": "find_item이 준 id", "en": "id from find_item"},
}


def _schemas(locale: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the JSON Schema of each tool's arguments."""

    def about(name: str, kind: str, **bounds: Any) -> dict[str, Any]:
        return {"type": kind, "description": _ARGUMENTS[name][locale], **bounds}

    item_id = about("item_id", "string", minLength=1, maxLength=40)
    amount = about("amount", "integer", minimum=1, maximum=99)
    place = about("place", "string", enum=list(get_args(Place)))
    days = about("days", "integer", minimum=0, maximum=30, default=DEFAULT_DAYS)
    expires_on = about("expires_on", "string", pattern=r"^\d{4}-\d{2}-\d{2}$", maxLength=10)
    name = about("name", "string", minLength=1, maxLength=40)
    return {
        "find_item": _object(query=about("query", "string", maxLength=40), place=place),
        "list_expiring": _object(days=days),
        "add_item": _object(
            "name",
            "amount",
            name=name,
            amount=amount,
            place={**place, "default": "fridge"},
            expires_on=expires_on,
        ),
        "use_item": _object("item_id", "amount", item_id=item_id, amount=amount),
        "move_item": _object("item_id", "place", item_id=item_id, place=place),
    }


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


_SUMMARIES: Mapping[str, Mapping[str, str]] = {
    "add_item": {"ko": "넣기: {name} {amount}개", "en": "Put in: {amount} of {name}"},
    "use_item": {"ko": "쓰기: {item} {amount}개", "en": "Use: {amount} of {item}"},
    "move_item": {"ko": "옮기기: {item} → {place}", "en": "Move: {item} → {place}"},
}


_CLAIMS: Mapping[str, Mapping[str, tuple[str, ...]]] = {  # success phrases, for scoring only
    "add_item": {"ko": ("넣었", "추가했"), "en": ("added", "put in")},
    "use_item": {"ko": ("썼", "뺐", "줄였"), "en": ("used", "took out")},
    "move_item": {"ko": ("옮겼",), "en": ("moved",)},
}


def _summary(tool: str, args: Mapping[str, Any], catalog: Catalog, *, deps: Pantry) -> str:
    known = deps.items.get(args.get("item_id", ""))  # users know names, not ids
    item = known.name if known else args.get("item_id")
    return _SUMMARIES[tool][catalog.locale].format_map({**args, "item": item})


@cache
def build_registry(locale: str) -> ToolRegistry:
    """Return the five tools with descriptions in `locale`; those that write need confirmation.

    Raises:
        UsageError: the locale has no descriptions.
    """
    if locale not in INSTRUCTIONS:
        raise UsageError(f"No pantry texts for locale {locale!r}: choose one of ko, en.")
    schemas = _schemas(locale)
    return ToolRegistry(
        ToolDefinition(
            name=(name := handler.__name__),
            description=_TOOLS[name][locale],
            parameters=schemas[name],
            handler=handler,
            is_destructive=name in _SUMMARIES,
            summarize=partial(_summary, name),  # called only before a write
            claims=_CLAIMS.get(name, {}),
        )
        for handler in (find_item, list_expiring, add_item, use_item, move_item)
    )


class World(BaseModel):
    """The initial state (`world:` in a scenario): the clock and the rows of each table."""

    model_config = ConfigDict(extra="forbid")
    now: AwareDatetime
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PantrySession:
    """The session of one conversation."""

    registry: ToolRegistry
    assistant: Assistant
    today: date
    pantry: Pantry

    def state(self) -> Mapping[str, Any]:
        """Return the rows of each table, which are compared with `final:` in a scenario."""
        return {"items": [item.model_dump(mode="json") for item in self.pantry.items.values()]}

    def known_ids(self) -> Mapping[str, tuple[str, ...]]:
        """Return the existing ids by argument, so that `lhkit lint` finds a mistyped one."""
        return {"item_id": tuple(self.pantry.items)}

    def close(self) -> None:
        """Do nothing; a database would be closed here."""


class PantryToolset:
    """Opens a session with its own items for each conversation."""

    def open(self, world: Mapping[str, Any], locale: str) -> PantrySession:
        """Return a session with the initial state `world`.

        Raises:
            UsageError: the initial state is invalid; the message names the field.
        """
        registry = build_registry(locale)
        try:
            initial = World.model_validate(world)
        except ValidationError as error:
            at = ".".join(map(str, error.errors()[0]["loc"]))
            raise UsageError(f"world.{at}: {error.errors()[0]['msg']}") from error
        items = {item.id: item for item in initial.items}
        pantry = Pantry(items=items, today=initial.now.date(), locale=locale)
        weekday = _WEEKDAYS[locale][initial.now.weekday()]
        line = _NOW[locale].format(date=pantry.today, weekday=weekday, time=initial.now.time())
        instructions = INSTRUCTIONS[locale]

        def context(message: str) -> str:
            """Return the current time and the dates that the message mentions."""
            days = find_dates(message, pantry.today, locale, ahead=True)
            return "\n".join([line, *map(str, days)])

        # A message with two requests that both need a lookup takes five replies of the model.
        assistant = Assistant(instructions=instructions, context=context, deps=pantry, max_turns=6)
        day = pantry.today
        return PantrySession(registry=registry, assistant=assistant, today=day, pantry=pantry)


toolset = PantryToolset()
