"""Mistakes of doing too much: a write nobody asked for, one done twice, one tried again after a no.

What does not count: a call that an optional expectation of the turn accepts, and one that changes
nothing where the turn tolerates `any` call.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from lhkit.harness.authoring.bluff import plausible_args
from lhkit.harness.authoring.mutate.mutant import Mutant, Part, Setting
from lhkit.tools.definition import ToolDefinition
from lhkit.vocab.messages import ToolCall

PLAUSIBLE_TEXT = {"ko": "나는 저녁마다 산책하는 사람이다", "en": "I walk every evening"}


def extra_writes(setting: Setting) -> Iterator[Mutant]:
    """Yield each turn with one more write at its end, once for every tool that writes."""
    for turn in range(len(setting.parts)):
        for tool in setting.registry.definitions:
            if tool.is_destructive:
                call = _guess(setting, turn, tool)
                yield from _appended(setting, turn, "extra_write", [call], label=tool.name)


def extra_reads(setting: Setting) -> Iterator[Mutant]:
    """Yield each turn that tolerates no other call with one more read at its end."""
    for turn, script in enumerate(setting.scenario.turns[: len(setting.parts)]):
        if script.expect.extra == "none":
            calls = [
                _guess(setting, turn, tool)
                for tool in setting.registry.definitions
                if not tool.is_destructive
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


def _pause(setting: Setting, part: Part) -> Sequence[ToolCall]:
    if setting.scenario.turns[part.turn].expect.extra == "none":
        return ()
    reads = [tool for tool in setting.registry.definitions if not tool.is_destructive]
    return [_guess(setting, part.turn, tool) for tool in reads[-1:]]


def _again(setting: Setting, part: Part, kind: str, pause: Sequence[ToolCall]) -> Iterator[Mutant]:
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


def _guess(setting: Setting, turn: int, tool: ToolDefinition) -> ToolCall:
    """Return a call that most likely goes through and is not among those of the turn."""
    text = PLAUSIBLE_TEXT.get(setting.scenario.locale, PLAUSIBLE_TEXT["en"])
    ids = {name: [*_unused(setting, some), *some] for name, some in setting.ids.items()}
    args = plausible_args(tool, ids=ids, text=text, today=setting.today)
    call = ToolCall(name=tool.name, args=args)
    is_taken = any(_same(part.call, call) for part in setting.parts[turn])
    return replace(call, args=_a_day_earlier(setting, args)) if is_taken else call


def _unused(setting: Setting, ids: Sequence[str]) -> list[str]:
    """Return the ids that neither the world nor the gold trace mentions, last first."""
    mentioned = f"{setting.gold.initial_state} {setting.trace}"
    return [each for each in reversed(ids) if repr(each) not in mentioned][:1]


def _same(first: ToolCall, second: ToolCall) -> bool:
    """Return True if two calls of one tool differ at most in what the first leaves out."""
    return first.name == second.name and dict(first.args).items() <= dict(second.args).items()


def _a_day_earlier(setting: Setting, args: dict[str, object]) -> dict[str, object]:
    today = setting.today.isoformat()
    earlier = (setting.today - timedelta(days=1)).isoformat()
    return {name: earlier if value == today else value for name, value in args.items()}
