"""A conversation saved: as a page, as a scenario."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from lhkit.chat.step import MAX_TURNS
from lhkit.confirm.summary import pretty
from lhkit.errors import UsageError
from lhkit.harness.author.written import changes, literals, spoken, yaml_text
from lhkit.harness.record import RowKeys, State
from lhkit.harness.state_diff import NO_KEYS
from lhkit.json_values import JSON, NotJsonError, compact, plain_json, plain_or_repr
from lhkit.locales import Catalog
from lhkit.messages import GateOutcome, ToolCancelled, ToolErr, ToolOk, envelope
from lhkit.notebook.render import acts
from lhkit.notebook.state import (
    AssistantItem,
    CardItem,
    ErrorItem,
    Item,
    NoteItem,
    OptInItem,
    PanelState,
    ToolItem,
    UserItem,
)
from lhkit.text import printable

# A conversation to take along: as Markdown to read, as JSON to work with, as lines. Pure.


def to_markdown(state: PanelState, catalog: Catalog) -> str:
    """Return the conversation as Markdown; data stands in fences that it cannot break out of.

    So does an answer with HTML or an image in it: who knows what opens the file.
    """
    parts = [f"# {catalog.text('notebook.export_title')}"]
    parts += [part for item in state.items if (part := _markdown(item, catalog))]
    return "\n\n".join(parts) + "\n"


def _markdown(item: Item, catalog: Catalog) -> str:  # noqa: PLR0911 - one arm an item
    match item:
        case UserItem(text=text):
            said = _quoted(_fenced(text) if acts(text) else text)
            return f"**{catalog.text('notebook.role_user')}**\n\n{said}"
        case AssistantItem(text=text):
            said = _fenced(text) if acts(text) else text
            return f"**{catalog.text('notebook.role_assistant')}**\n\n{said}"
        case ToolItem():
            result = "" if item.result is None else _fenced(_json_text(envelope(item.result)))
            name = _code(item.name or "?")
            return f"{name}\n\n{_fenced(_json_text(item.args))}\n\n{result}".rstrip()
        case CardItem(request=request, outcome=outcome):
            said = catalog.text(f"notebook.outcome_{outcome}") if outcome else "…"
            return f"**{catalog.text('confirm.title')}** {said}\n\n{_fenced(request.summary)}"
        case NoteItem(text=text):
            return f"*{text}*"
        case ErrorItem(text=text, detail=detail):
            return f"*{text}*\n\n{_fenced(detail)}" if detail else f"*{text}*"
        case OptInItem():
            return ""
        case _:
            assert_never(item)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


def _code(text: str) -> str:
    return f"`{' '.join(printable(text).replace('`', ' ').split())}`"


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _json_text(value: Any) -> str:
    return pretty(value) if isinstance(value, dict) else str(plain_or_repr(value))


def to_lines(state: PanelState, catalog: Catalog) -> list[str]:
    """Return the conversation in short, for where no panel can be shown; safe for a terminal."""
    lines = [line for item in state.items if (line := _line(item, catalog))]
    return [printable(line).replace("\n", "\n    ") for line in lines]


def _line(item: Item, catalog: Catalog) -> str:  # noqa: PLR0911 - one arm an item
    match item:
        case UserItem(text=text):
            return f"{catalog.text('notebook.role_user')}: {text}"
        case AssistantItem(text=text):
            return f"{catalog.text('notebook.role_assistant')}: {text.rstrip()}"
        case ToolItem():
            status = envelope(item.result)["status"] if item.result else "…"
            return f"{item.name or '?'} {compact(plain_or_repr(item.args))} → {status}"
        case CardItem(outcome=outcome):
            said = catalog.text(f"notebook.outcome_{outcome}") if outcome else "…"
            return f"{catalog.text('confirm.title')} {said}"
        case NoteItem(text=text):
            return text
        case ErrorItem(text=text, detail=detail):
            return f"{text}\n{detail}".rstrip()
        case OptInItem():
            return ""
        case _:
            assert_never(item)


def to_json(state: PanelState) -> str:
    """Return the conversation as JSON text: the model, and what stands in the list."""
    identity = state.identity
    document = {
        "model": identity.model if identity else "",
        "dialect": identity.dialect if identity else "",
        "messages": [entry for item in state.items if (entry := _entry(item))],
    }
    return json.dumps(document, ensure_ascii=False, indent=2)


def _entry(item: Item) -> dict[str, Any]:  # noqa: PLR0911 - one arm an item
    match item:
        case UserItem(text=text):
            return {"role": "user", "text": text}
        case AssistantItem(text=text, ending=ending):
            return {"role": "assistant", "text": text, "ending": str(ending)}
        case ToolItem():
            return {
                "role": "tool",
                "tool": item.name,
                "arguments": plain_or_repr(item.args),
                "result": plain_or_repr(envelope(item.result)) if item.result else None,
                "gate": str(item.trace.gate) if item.trace else None,
                "raw": item.raw,
            }
        case CardItem(request=request, outcome=outcome):
            return {
                "role": "confirm",
                "tool": request.tool,
                "summary": request.summary,
                "allowed": outcome is not None and outcome.is_allowed,
                "reason": str(outcome) if outcome else None,
            }
        case NoteItem(text=text):
            return {"role": "system", "text": text}
        case ErrorItem(text=text, detail=detail):
            return {"role": "error", "text": text, "detail": detail}
        case OptInItem():
            return {}
        case _:
            assert_never(item)


# A conversation to a scenario: what was said, answered, called, and what came of it. Pure.
#
# Expected are the calls that did something or were refused by the user or a rule. What the model
# merely got wrong (unknown tools, bad arguments, repetitions) is left out: a scenario does not ask
# for mistakes. Of a reply one of its longest words is expected, and all of it stands under `gold`;
# say under `reply` what matters.


_MISTAKES = frozenset({"unknown_tool", "validation", "handler_error"})
_WORD = re.compile(r"[^\W\d_]{2,}")
_REPLY_WORDS = 3

_MAX_CALLS = MAX_TURNS - 1  # a perfect model makes one call a model turn and then answers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A call worth expecting. `answer` is what the user said to it, None if nobody was asked."""

    tool: str
    args: Any
    result: str
    answer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """One turn: what the user said, the calls worth expecting, and what the model said last."""

    user: str
    calls: tuple[_Call, ...]
    reply: str


def to_scenario(
    state: PanelState,
    *,
    begun: Mapping[str, JSON],
    ended: Mapping[str, JSON],
    destructive: Collection[str],
    locale: str,
    scenario_id: str,
    ac: str | None = None,
    row_keys: RowKeys = NO_KEYS,
) -> str:
    """Return a scenario file of one scenario.

    Args:
        state: the conversation.
        begun: the world at its start: rows by table, and `now`.
        ended: the world at its end.
        destructive: names of the tools that change data.
        locale: the language of the panel; the scenario's is the one that the user spoke.
        scenario_id: its name.
        ac: the acceptance criterion; by default the one that fits what happened best.
        row_keys: the fields that tell the rows of a table apart, where the domain says so.

    Raises:
        UsageError: nothing has been said.
    """
    turns = [_said(turn, destructive) for turn in _turns(state.items)]
    if not turns:
        raise UsageError("nothing has been said yet: there is no scenario to save: talk first")
    scenario: dict[str, Any] = {
        "id": scenario_id,
        "ac": ac or _criterion([turn.calls for turn in turns]),
        "locale": spoken([turn.user for turn in turns], locale),
        "tags": ["saved"],
    }
    if begun:
        scenario["world"] = plain_json(begun)
    scenario["turns"] = [_turn(turn, destructive) for turn in turns]
    scenario |= changes(_tables(begun), _tables(ended), row_keys)
    return yaml_text([scenario])


def _turns(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield the items of each turn, the user's words first."""
    turn: list[Item] = []
    for item in items:
        if isinstance(item, UserItem):
            if turn:
                yield turn
            turn = [item]
        elif turn:
            turn.append(item)
    if turn:
        yield turn


def _said(turn: Sequence[Item], destructive: Collection[str]) -> _Said:
    found = (_call(item, destructive) for item in turn if isinstance(item, ToolItem))
    replies = [item.text for item in turn if isinstance(item, AssistantItem)]
    return _Said(
        user=next(item.text for item in turn if isinstance(item, UserItem)),
        calls=tuple(call for call in found if call is not None),
        reply=replies[-1] if replies else "",
    )


def _call(item: ToolItem, destructive: Collection[str]) -> _Call | None:
    trace = item.trace
    if trace is None or trace.gate is GateOutcome.NOT_ASKED:
        return None
    match item.result:
        case ToolOk():
            result = "ok"
        case ToolCancelled():
            result = "cancelled"
        case ToolErr(code=code) if code not in _MISTAKES:
            result = code
        case _:
            return None
    args = trace.args if trace.args is not None else trace.raw_args
    try:
        compact(args)
    except NotJsonError:
        return None
    answer = _answer(trace.gate) if item.name in destructive else None
    return _Call(tool=item.name, args=plain_json(args), result=result, answer=answer)


def _answer(gate: GateOutcome) -> str:
    match gate:
        case GateOutcome.ACCEPTED:
            return "accept"
        case GateOutcome.ABSENT:
            return "absent"
        case _:  # rejected, failed, or stopped while the question was open
            return "reject"


def _criterion(turns: Sequence[Sequence[_Call]]) -> str:
    calls = [call for turn in turns for call in turn]
    if not calls:
        return "AC-12"
    if any(call.answer == "absent" for call in calls):
        return "AC-8"
    if any(call.answer == "reject" for call in calls):
        return "AC-7"
    return "AC-10" if all(call.result == "ok" for call in calls) else "AC-9"


def _turn(said: _Said, destructive: Collection[str]) -> dict[str, Any]:
    turn: dict[str, Any] = {"user": said.user}
    answers = [call.answer for call in said.calls if call.answer is not None]
    if "absent" in answers:
        turn["confirm"] = "absent"
    elif answers:
        turn["confirm"] = answers[0] if len(answers) == 1 else answers
    if said.calls:
        spare = len(said.calls) - _MAX_CALLS
        turn["expect"] = {"calls": list(_expected(said.calls, destructive, spare))}
    if said.reply:
        turn["reply"] = _expected_reply(said)
        turn["gold"] = {"say": said.reply}
    return turn


def _expected_reply(said: _Said) -> dict[str, Any]:
    """Return the longest words of the reply that the user did not say: one of them must come."""
    spoken = said.user.casefold()
    words = dict.fromkeys(_WORD.findall(said.reply))
    own = [word for word in words if word.casefold() not in spoken]
    longest = sorted(own, key=len, reverse=True)[:_REPLY_WORDS]
    return {"contains_any": longest} if longest else {"matches": r"\S"}


def _expected(
    calls: Sequence[_Call], destructive: Collection[str], spare: int
) -> Iterator[dict[str, Any]]:
    """Yield the calls as expectations; `spare` reads become optional, so that there is an end."""
    for call in calls:
        args = call.args if isinstance(call.args, dict) else {}
        expected: dict[str, Any] = {
            "tool": call.tool,
            "args": literals(args),
            "result": call.result,
        }
        if spare > 0 and call.tool not in destructive:
            expected["optional"] = True
            spare -= 1
        yield expected


def _tables(world: Mapping[str, Any]) -> State:
    """Return a world without its clock."""
    return {
        table: tuple(plain_json(row) for row in rows)
        for table, rows in world.items()
        if isinstance(rows, list | tuple)
    }
