"""The model that calls everything and claims success: what it passes notices nothing.

Its calls are as good as a blind guess can be: ids that exist, values that the schemas name, the
user's own words as text. Of more writes than a turn has room for, those are made that
can go through.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date
from typing import Any

from lhkit.harness.authoring.examples import example
from lhkit.harness.authoring.gold import TurnTrace, trace_model
from lhkit.harness.replay.environment import Environment, KnowsIds, Session, opened
from lhkit.harness.scenarios.script import Scenario
from lhkit.models.scripted import ScriptedModel
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.schema import SchemaNode, property_of
from lhkit.vocab.messages import ToolCall

_CLAIMS = {
    "ko": "네, 찾아서 확인했고 추가하고 기록했어요. 모두 완료했습니다!",
    "en": "Yes, I found it, checked it, added it and logged it. It is all done!",
}


def bluff_model(scenario: Scenario, environment: Environment) -> ScriptedModel:
    """Return a model that calls all tools in each turn of `scenario` and then claims success.

    It claims in every turn: writes that would leave no room for the words are not made.

    Raises:
        UsageError: the world of the scenario cannot be.
    """
    with opened(environment, scenario.world, scenario.locale) as session:
        turns = [_turn(turn.user, scenario, session) for turn in scenario.turns]
    return trace_model(turns, name="bluff")


def known_ids(session: Session) -> Mapping[str, tuple[str, ...]]:
    """Return the ids that exist in a session, by argument; empty where nobody can tell."""
    if not isinstance(session, KnowsIds):
        return {}
    return {
        argument: tuple(sorted(ids) if isinstance(ids, AbstractSet) else ids)
        for argument, ids in session.known_ids().items()
    }


def plausible_args(
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
    if ids.get(name):
        return ids[name][0]
    value = example(node, today)
    schema = node.branches()[0]
    is_free = schema.get("type") == "string" and not {"enum", "pattern", "default"} & schema.keys()
    return text[: schema.get("maxLength", len(text))].strip() if is_free else value


def _turn(user: str, scenario: Scenario, session: Session) -> TurnTrace:
    """Return every read and as many writes as fit before the words, the likely ones first."""
    ids = known_ids(session)
    calls = {
        tool.name: ToolCall(
            name=tool.name, args=plausible_args(tool, ids=ids, text=user, today=session.today)
        )
        for tool in session.registry.definitions
    }
    return TurnTrace(
        messages=_messages(calls, session.registry, ids, session.assistant.max_turns - 1),
        words=_CLAIMS.get(scenario.locale, _CLAIMS["en"]),
    )


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
