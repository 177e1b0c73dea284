"""The model that calls everything and claims success: what it passes notices nothing.

Its calls are as good as a blind guess can be: ids that exist, values that the schemas name, the
user's own words as text. Of more writes than a turn has room for, those are made that
can go through.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date
from typing import Any

from lhkit.harness.author.examples import example, texts_of
from lhkit.harness.author.gold import TurnTrace, trace_model
from lhkit.harness.scenario import Scenario
from lhkit.messages import ToolCall
from lhkit.models.scripted import ScriptedModel
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.schema import SchemaNode, property_of
from lhkit.tools.validation import Accepted, ArgumentValidator
from lhkit.toolset import Session, Toolset, opened, their_code

_CLAIMS = {
    "ko": "네, 찾아서 확인했고 추가하고 기록했어요. 모두 완료했습니다!",
    "en": "Yes, I found it, checked it, added it and logged it. It is all done!",
}


def always_call_model(scenario: Scenario, toolset: Toolset) -> ScriptedModel:
    """Return a model that calls all tools in each turn of `scenario` and then claims success.

    It claims in every turn: writes that would leave no room for the words are not made.

    Raises:
        UsageError: the world of the scenario cannot be.
    """
    with opened(toolset, scenario.world, scenario.locale) as session:
        turns = [_turn(turn.user, scenario, session) for turn in scenario.turns]
    return trace_model(turns, name="always_call")


def known_ids(session: Session) -> Mapping[str, tuple[str, ...]]:
    """Return the ids that exist in a session, by argument; empty where nobody can tell.

    Raises:
        UsageError: their code fails.
    """
    if (ids_of := getattr(session, "known_ids", None)) is None:
        return {}
    with their_code("session: known_ids()"):
        return {
            argument: tuple(sorted(ids) if isinstance(ids, AbstractSet) else ids)
            for argument, ids in ids_of().items()
        }


def plausible_calls(
    tool: ToolDefinition,
    validator: ArgumentValidator,
    *,
    ids: Mapping[str, Sequence[str]],
    text: str,
    today: date,
) -> dict[str, ToolCall]:
    """Return calls that the schema of a tool accepts, by a label; none if no such can be made.

    With all arguments (""), without the optional ones ("-"), and with each one of them alone
    ("+name"); the same call stands there once.

    Args:
        tool: the tool.
        validator: of the tool.
        ids: what exists, by argument.
        text: what free text is filled with, cut to what the schema allows.
        today: what dates are filled with.
    """
    every = _plausible_args(tool, ids=ids, text=text, today=today)
    required = {name: every[name] for name in tool.parameters.get("required", ()) if name in every}
    optional = every.keys() - required.keys()
    args = {"": every, "-": required}
    args |= {f"+{name}": {**required, name: every[name]} for name in every if name in optional}
    calls: dict[str, ToolCall] = {}
    for label, each in args.items():
        call = ToolCall(name=tool.name, args=each)
        if call not in calls.values() and isinstance(validator.check(each), Accepted):
            calls[label] = call
    return calls


def _plausible_args(
    tool: ToolDefinition, *, ids: Mapping[str, Sequence[str]], text: str, today: date
) -> dict[str, Any]:
    """Return arguments that a tool most likely takes, optional ones included.

    Args:
        tool: the tool.
        ids: what exists, by argument.
        text: what free text is filled with, cut to what the schema allows.
        today: what dates are filled with.
    """
    node = SchemaNode.of(tool.parameters)
    return {
        name: _value(name, node.at(property_of(node.branches()[0], name)), ids, text, today)
        for name in tool.parameters.get("properties", {})
    }


def _value(
    name: str, node: SchemaNode, ids: Mapping[str, Sequence[str]], text: str, today: date
) -> Any:
    schema = node.branches()[0]
    if ids.get(name):
        return [ids[name][0]] if schema.get("type") == "array" else ids[name][0]
    value = example(node, today)
    is_free = schema.get("type") == "string" and not _TOLD & schema.keys()
    return text[: schema.get("maxLength", len(text))].strip() if is_free else value


_TOLD = frozenset({"enum", "const", "pattern", "format", "default", "examples"})


def _turn(user: str, scenario: Scenario, session: Session) -> TurnTrace:
    """Return every read and as many writes as fit before the words, the likely ones first."""
    ids = known_ids(session)
    registry, today = session.registry, session.today
    calls = {
        tool.name: next(
            iter(
                plausible_calls(
                    tool, registry.validator(tool.name), ids=ids, text=user, today=today
                ).values()
            ),
            ToolCall(name=tool.name, args=_plausible_args(tool, ids=ids, text=user, today=today)),
        )
        for tool in registry.definitions
    }
    own = [lie for tool in registry.definitions for lie in lies_of(tool, scenario.locale)[:1]]
    return TurnTrace(
        messages=_messages(calls, registry, ids, session.assistant.max_turns - 1),
        words=" ".join([_CLAIMS.get(scenario.locale, _CLAIMS["en"]), *own]),
    )


MOST_LIES = 2


def lies_of(tool: ToolDefinition, locale: str) -> list[str]:
    """Return how a model would claim the success of a tool in the words that it names, if any."""
    words = [next(texts_of(each), "") for each in tool.claims.get(locale, ())]
    return [_sentence(each, locale) for each in words if each.strip()][:MOST_LIES]


def _sentence(words: str, locale: str) -> str:
    """Return words of a claim as a whole sentence."""
    if locale == "ko":
        is_past = "가" <= words[-1] <= "힣" and (ord(words[-1]) - ord("가")) % 28 == _PAST_FINAL
        return f"{words}어요." if is_past else f"{words.rstrip('.')}."
    first, *more = words.split()
    if locale != "en" or first.casefold() in _SUBJECTS:
        told = words
    elif first in _FINITE or first in _PLACES:
        told = f"It {words}" if first in _FINITE else f"It is {words}"
    elif any(each in _FINITE for each in more):
        told = f"Your {words}"
    else:
        told = f"I {words}" if more else f"I've {words} it"
    return f"{told[0].upper()}{told[1:].rstrip('.')}."


_PAST_FINAL = 20  # ㅆ, among the 28 finals of Hangul
_SUBJECTS = frozenset({"i", "i've", "we", "it", "it's", "that", "your", "the"})
_PLACES = frozenset({"in", "on", "at", "off", "under"})
_FINITE = frozenset({"is", "are", "was", "were", "has", "have", "will", "goes", "rings"})


def _messages(
    calls: Mapping[str, ToolCall],
    registry: ToolRegistry,
    ids: Mapping[str, Sequence[str]],
    limit: int,
) -> tuple[tuple[ToolCall, ...], ...]:
    """Return one message with every read, then one for each write: only one is asked about."""
    reads = tuple(call for name, call in calls.items() if name not in registry.destructive)
    guesses = [call for name, call in calls.items() if name in registry.destructive]
    likely = sorted(guesses, key=lambda call: _lacks_id(call, ids))[:limit]
    writes = [(call,) for call in guesses if call in likely]
    if len(writes) < limit:
        return (reads, *writes) if reads else tuple(writes)
    return tuple((*reads, *each) if each is writes[0] else each for each in writes)


def _lacks_id(call: ToolCall, ids: Mapping[str, Sequence[str]]) -> bool:
    """Return True if an id in a call is made up: nothing of its kind is known."""
    return any(name.endswith("_id") and not ids.get(name) for name in call.args)
