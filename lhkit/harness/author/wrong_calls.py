"""Mistakes in the calls that are due: left out, of another tool, in another order.

Only calls that matter are touched: those that the scenario demands, and writes that went
through. A call that is optional, or a read that `extra` tolerates, may be left out by right.
"""

from collections.abc import Iterator
from itertools import pairwise

from lhkit.harness.author.mutants import GoldStep, Mutant, Setting
from lhkit.harness.turn import Before
from lhkit.messages import ToolCall


def dropped_calls(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace without each call that matters."""
    for part in setting.all_parts():
        if part.matters:
            calls = [other.call for other in setting.parts[part.turn] if other is not part]
            yield Mutant(
                kind="drop_call",
                place=part.place,
                change=f"{part.call.name} is not called",
                trace=setting.with_calls(part.turn, calls),
                needs_effect=part.needs_effect,
            )


def swapped_tools(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with another tool of the same sort in place of each call that matters."""
    for part in setting.all_parts():
        other = _sibling(setting, part) if part.matters else None
        if other is not None:
            yield Mutant(
                kind="swap_tool",
                place=part.place,
                change=f"{other.name} in place of {part.call.name}",
                trace=setting.with_calls(part.turn, replaced(setting, part, other)),
                needs_effect=part.needs_effect,
            )


def replaced(setting: Setting, part: GoldStep, call: ToolCall) -> list[ToolCall]:
    """Return the calls of a turn with another one in the place of `part`."""
    return [call if other is part else other.call for other in setting.parts[part.turn]]


def _sibling(setting: Setting, part: GoldStep) -> ToolCall | None:
    text = setting.scenario.turns[part.turn].user
    for tool in setting.registry.definitions:
        if tool.name == part.call.name or tool.is_destructive is not part.is_write:
            continue
        for call in setting.guesses(tool, text).values():
            if not setting.is_accepted(part.turn, call):
                return call
    return None


def reordered_calls(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with two neighbours swapped, where the scenario sets their order."""
    for parts in setting.parts:
        for first, second in pairwise(parts):
            if _is_ordered(setting, first, second):
                calls = [part.call for part in parts]
                here = first.index
                calls[here], calls[here + 1] = calls[here + 1], calls[here]
                yield Mutant(
                    kind="reorder",
                    place=first.place,
                    change=f"{second.call.name} before {first.call.name}",
                    trace=setting.with_calls(first.turn, calls),
                )


def _is_ordered(setting: Setting, first: GoldStep, second: GoldStep) -> bool:
    if first.wish is None or second.wish is None or first.call == second.call:
        return False
    order = setting.scenario.turns[first.turn].expect.order
    if isinstance(order, Before):
        return (first.wish_index, second.wish_index) in order.before
    return order == "strict"
