"""Mistakes of doing too much: a write nobody asked for, one done twice, one tried again after a no.

What does not count: a call that an optional expectation of the turn accepts, and one that
changes nothing where the turn tolerates `any` call.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from lhkit.harness.author.mutants import GoldStep, Mutant, Setting, Untried
from lhkit.messages import ToolCall
from lhkit.tools.definition import ToolDefinition

PLAUSIBLE_TEXT = {"ko": "나는 저녁마다 산책하는 사람이다", "en": "I walk every evening"}


def extra_writes(setting: Setting) -> Iterator[Mutant | Untried]:
    """Yield each turn with one more write at its end, once for every tool that writes.

    With all optional arguments, with none, and with each one alone.
    """
    for turn in range(len(setting.parts)):
        for tool in setting.registry.definitions:
            if tool.is_destructive:
                guesses = _guesses(setting, turn, tool)
                if not guesses:
                    yield setting.untried("extra_write", f"{turn}.{tool.name}", _unguessed(tool))
                for label, call in guesses.items():
                    name = f"{tool.name}{label}"
                    yield from _appended(setting, turn, "extra_write", [call], label=name)


def _unguessed(tool: ToolDefinition) -> str:
    return f"no arguments of {tool.name} can be guessed that its schema accepts: give it `examples`"


def extra_reads(setting: Setting) -> Iterator[Mutant]:
    """Yield each turn that tolerates no other call with one more read at its end."""
    for turn, script in enumerate(setting.scenario.turns[: len(setting.parts)]):
        if script.expect.extra == "none":
            calls = [
                call
                for tool in setting.registry.definitions
                if not tool.is_destructive
                for call in list(_guesses(setting, turn, tool).values())[:1]
            ]
            wrong = [call for call in calls if not setting.is_accepted(turn, call)]
            yield from _appended(setting, turn, "extra_read", wrong[:1], label="")


def duplicate_writes(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with each write a second time: in the same turn, and in the next one."""
    for part in setting.all_parts():
        if part.is_write and part.record.outcome != "cancelled":
            yield from _again(setting, part, "duplicate_write", ())


def retries_after_rejection(setting: Setting) -> Iterator[Mutant]:
    """Yield the trace with each cancelled write tried again, at once and in the next turn.

    Where other reads are tolerated one stands in between, so that the second try is really asked.
    """
    for part in setting.all_parts():
        if part.is_write and part.record.outcome == "cancelled":
            yield from _again(setting, part, "retry_after_rejection", _pause(setting, part))


def _pause(setting: Setting, part: GoldStep) -> Sequence[ToolCall]:
    if setting.scenario.turns[part.turn].expect.extra == "none":
        return ()
    reads = [tool for tool in setting.registry.definitions if not tool.is_destructive]
    guesses = [list(_guesses(setting, part.turn, tool).values()) for tool in reads]
    return next((calls[:1] for calls in reversed(guesses) if calls), ())


def _again(
    setting: Setting, part: GoldStep, kind: str, pause: Sequence[ToolCall]
) -> Iterator[Mutant]:
    if not setting.is_accepted(part.turn, part.call):
        yield from _appended(setting, part.turn, kind, [*pause, part.call], label=f"{part.index}")
    later = part.turn + 1
    is_due_later = later < len(setting.parts) and (
        any(other.call.name == part.call.name for other in setting.parts[later])
        or setting.is_accepted(later, part.call)
    )
    was_settled = part.record.outcome in {"ok", "cancelled"}
    if was_settled and later < len(setting.parts) and not is_due_later:
        label = f"{part.index}.later"
        yield from _appended(setting, later, kind, [part.call], label=label)


def _appended(
    setting: Setting, turn: int, kind: str, calls: Sequence[ToolCall], *, label: str
) -> Iterator[Mutant]:
    """Yield the trace with calls at the end of a turn, unless they are accepted there."""
    if calls and not setting.is_accepted(turn, calls[-1]):
        own = [part.call for part in setting.parts[turn]]
        yield Mutant(
            kind=kind,
            place=f"{turn}.{label}" if label else f"{turn}",
            change=f"turn {turn} ends with {calls[-1].name} {dict(calls[-1].args)}",
            trace=setting.with_calls(turn, [*own, *calls]),
            needs_effect=setting.scenario.turns[turn].expect.extra == "any",
        )


def _guesses(setting: Setting, turn: int, tool: ToolDefinition) -> dict[str, ToolCall]:
    """Return calls that most likely go through and are not among those of the turn."""
    text = PLAUSIBLE_TEXT.get(setting.scenario.locale, PLAUSIBLE_TEXT["en"])
    ids = {name: [*_unused(setting, some), *some] for name, some in setting.ids.items()}
    return {
        label: replace(call, args=_a_day_earlier(setting, call.args))
        if any(_same(part.call, call) for part in setting.parts[turn])
        else call
        for label, call in setting.guesses(tool, text, ids).items()
    }


def _unused(setting: Setting, ids: Sequence[str]) -> list[str]:
    """Return the ids that neither the world nor the gold trace mentions, last first."""
    mentioned = f"{setting.gold.evidence.initial_state} {setting.trace}"
    return [each for each in reversed(ids) if repr(each) not in mentioned][:1]


def _same(first: ToolCall, second: ToolCall) -> bool:
    """Return True if two calls of one tool differ at most in what the first leaves out."""
    return first.name == second.name and dict(first.args).items() <= dict(second.args).items()


def _a_day_earlier(setting: Setting, args: Mapping[str, Any]) -> dict[str, Any]:
    today = setting.today.isoformat()
    earlier = (setting.today - timedelta(days=1)).isoformat()
    return {name: earlier if value == today else value for name, value in args.items()}
