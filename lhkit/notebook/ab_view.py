"""What an A/B panel says beside its two conversations: folded from events, and as HTML; pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from html import escape
from typing import Any, Literal, TypeAlias, assert_never

from lhkit.events import CallReady, CallSettled, ChatEvent, ModelFinished, TurnEnded
from lhkit.harness.record import Preference, SampleRecord
from lhkit.json_values import json_or_repr
from lhkit.locales import Catalog
from lhkit.notebook.fields import escaped
from lhkit.notebook.render import MAX_VALUE_CHARS
from lhkit.notebook.state import OptedIn, OptInAsked
from lhkit.responses import ModelIdentity
from lhkit.text import seconds, visible

Side: TypeAlias = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")


class VoteChoice(StrEnum):
    """A vote, by where the conversations are shown. The keys 1 to 4, in this order."""

    LEFT = "left"
    RIGHT = "right"
    TIE = "tie"
    BOTH_BAD = "both_bad"

    def of(self, side: Side) -> Preference:
        """Return what the vote says of the conversation on one side."""
        match self:
            case VoteChoice.TIE:
                return Preference.TIE
            case VoteChoice.BOTH_BAD:
                return Preference.BOTH_BAD
            case _:
                return Preference.BETTER if self.value == side else Preference.WORSE


class Stage(StrEnum):
    """What can be done next."""

    OPT_IN = "opt_in"
    READY = "ready"
    ANSWERING = "answering"
    VOTING = "voting"
    FAILED = "failed"  # a model could not answer: nobody can vote on that
    VOTED = "voted"
    UNBLINDED = "unblinded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed:
    """One side without its blindfold."""

    identity: ModelIdentity
    record: SampleRecord


# What happens in an A/B panel beside the two conversations.


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Another conversation: two fresh worlds, and a new order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message went to both models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Both are done; `has_failed` if one of them could not answer."""

    has_failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteKept:
    """A vote is on the disk."""

    choice: VoteChoice
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unblinded:
    """The names are known; the vote stays as it is."""

    left: Revealed
    right: Revealed


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelNotice:
    """The panel says something of its own; `is_fault` if something went wrong."""

    text: str
    is_fault: bool = False


ABEvent: TypeAlias = (
    Begun | Sent | Answered | VoteKept | Unblinded | PanelNotice | OptInAsked | OptedIn
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ABState:
    """Everything that stands below the two conversations. `votes` were given in this panel."""

    stage: Stage = Stage.READY
    turns: int = 0
    choice: VoteChoice | None = None
    reason: str = ""
    votes: int = 0
    conversation: int = 0
    told: tuple[PanelNotice, ...] = ()
    opt_ins: tuple[OptInAsked, ...] = ()
    revealed: tuple[Revealed, Revealed] | None = None

    @property
    def may_vote(self) -> bool:
        """True while a vote is taken; one may be changed until the names are known."""
        return self.stage in {Stage.VOTING, Stage.VOTED}

    @property
    def may_send(self) -> bool:
        """True while a message is taken; after a vote it begins another conversation."""
        return self.stage not in {Stage.OPT_IN, Stage.ANSWERING, Stage.FAILED}


def fold_ab(state: ABState, event: ABEvent) -> ABState:
    """Return the state after `event`."""
    match event:
        case OptInAsked():
            return replace(state, stage=Stage.OPT_IN, opt_ins=(*state.opt_ins, event))
        case OptedIn():
            return replace(state, stage=Stage.READY, opt_ins=())
        case Begun():
            return ABState(votes=state.votes, conversation=state.conversation + 1)
        case Sent():
            return replace(state, stage=Stage.ANSWERING, told=(), turns=state.turns + 1)
        case Answered(has_failed=has_failed):
            return replace(state, stage=Stage.FAILED if has_failed else Stage.VOTING)
        case VoteKept(choice=choice, reason=reason):
            votes = state.votes + (state.choice is None)
            return replace(
                state, stage=Stage.VOTED, choice=choice, reason=reason, votes=votes, told=()
            )
        case Unblinded(left=left, right=right):
            return replace(state, stage=Stage.UNBLINDED, revealed=(left, right))
        case PanelNotice():
            return replace(state, told=(*state.told, event))
        case _:
            assert_never(event)


def blinded(event: ChatEvent) -> ChatEvent:
    """Return the event without what would tell which model it is of: name, raw text, address."""
    match event:
        case ModelFinished(response=response):
            return replace(event, response=replace(response, identity=None, raw_text=""))
        case CallReady(call=call):
            return replace(event, call=replace(call, raw=""))
        case CallSettled(message=message):
            return replace(event, message=replace(message, raw=""))
        case TurnEnded():
            return replace(event, detail=None)
        case _:
            return event


# State to HTML. Everything foreign is escaped; `data-press` names what a click or a key does.


def ab_parts(state: ABState, catalog: Catalog) -> tuple[str, ...]:
    """Return the parts of the board, top to bottom; a part that did not change is the same text."""
    if state.stage is Stage.OPT_IN:
        return (_opt_in(state, catalog),)
    return (
        _told(state),
        _message_row(state, catalog),
        _vote_row(state, catalog),
        _reason_row(state, catalog),
        _unblinded(state, catalog),
    )


_KEY_CAPS = {"ArrowUp": "↑", "ArrowDown": "↓", "Escape": "Esc"}


def press_button(
    press: str,
    label: str,
    *,
    value: str = "",
    key: str = "",
    css: str = "",
    enabled: bool = True,
    pressed: bool | None = None,
) -> str:
    """Return a button that sends `press` and `value`; `key` is the key that does the same."""
    told = f' data-key="{escape(key)}" aria-keyshortcuts="{escape(key)}"' if key else ""
    state = "" if pressed is None else f' aria-pressed="{"true" if pressed else "false"}"'
    shown = f"<kbd>{escape(_KEY_CAPS.get(key, key))}</kbd> " if key else ""
    return (
        f'<button type="button" class="lhkit-button {css}" data-press="{escape(press)}"'
        f' data-value="{escape(value)}"{told}{state}{"" if enabled else " disabled"}>'
        f"{shown}{escape(label)}</button>"
    )


def _told(state: ABState) -> str:
    lines = "".join(
        f'<div class="lhkit-told"{" data-fault" if each.is_fault else ""}>'
        f"{escaped(each.text)}</div>"
        for each in state.told
    )
    return f'<div role="status">{lines}</div>'


def _message_row(state: ABState, catalog: Catalog) -> str:
    words = escape(catalog.text("notebook.placeholder"))
    is_busy = state.stage is Stage.ANSWERING
    input_ = (
        f'<textarea class="lhkit-input" name="message" rows="2" data-enter="send"'
        f' placeholder="{words}" aria-label="{words}"></textarea>'
    )
    send = press_button(
        "send",
        catalog.text("notebook.send"),
        css="lhkit-primary lhkit-send",
        enabled=state.may_send,
    )
    stop = press_button("stop", catalog.text("notebook.stop"), css="lhkit-stop", enabled=is_busy)
    can_retry = state.stage is Stage.FAILED
    retry = press_button(
        "retry", catalog.text("notebook.retry"), css="lhkit-quiet", enabled=can_retry
    )
    anew = press_button(
        "begin",
        catalog.text("ab.begin"),
        css="lhkit-quiet",
        enabled=bool(state.turns) and not is_busy,
    )
    return (
        f'<div class="lhkit-write">{input_}<div class="lhkit-buttons">{send}{stop}</div></div>'
        f'<div class="lhkit-actions">{retry}{anew}</div>'
    )


def _vote_row(state: ABState, catalog: Catalog) -> str:
    buttons = "".join(
        press_button(
            "vote",
            catalog.text(f"ab.{choice}"),
            value=choice,
            key=str(number),
            css="lhkit-vote",
            enabled=state.may_vote,
            pressed=state.choice is choice,
        )
        for number, choice in enumerate(VoteChoice, start=1)
    )
    focus = f"{state.conversation}.{state.turns}" if state.stage is Stage.VOTING else ""
    return (
        f'<div class="lhkit-votes" role="group" tabindex="-1" data-focus="{focus}"'
        f' aria-label="{escape(catalog.text("ab.question"))}">'
        f'<span class="lhkit-question">{escape(catalog.text("ab.question"))}</span>{buttons}</div>'
    )


def _reason_row(state: ABState, catalog: Catalog) -> str:
    if state.choice is None:
        return ""
    kept = catalog.text("ab.kept", choice=catalog.text(f"ab.{state.choice}"), count=state.votes)
    said = f'<div class="lhkit-told" role="status">{escape(kept)}</div>'
    if state.stage is Stage.UNBLINDED:
        return said
    words = escape(catalog.text("ab.reason"))
    reason = (
        f'<input class="lhkit-field" name="reason-{state.conversation}" data-enter="reason"'
        f' data-focus="reason-{state.conversation}"'
        f' value="{escaped(state.reason, keep_emoji=True)}"'
        f' placeholder="{words}" aria-label="{words}">'
    )
    keep = press_button("reason", catalog.text("ab.keep_reason"))
    unblind = press_button("unblind", catalog.text("ab.unblind"), css="lhkit-unblind")
    return f'{said}<div class="lhkit-fields">{reason}{keep}{unblind}</div>'


def _opt_in(state: ABState, catalog: Catalog) -> str:
    sentences = [
        catalog.text(
            "notebook.opt_in_who",
            model=visible(each.model),
            address=visible(each.address or catalog.text("notebook.opt_in_nowhere")),
        )
        for each in state.opt_ins
    ]
    sentences.append(catalog.text("notebook.opt_in_tools"))
    sentences += dict.fromkeys(each.licence for each in state.opt_ins)
    listed = "".join(f"<li>{escape(each)}</li>" for each in sentences)
    button = press_button("opt_in", catalog.text("notebook.opt_in_button"), css="lhkit-primary")
    return (
        f'<div class="lhkit-opt-in"><div class="lhkit-title">'
        f"{escape(catalog.text('notebook.opt_in_title'))}</div><ul>{listed}</ul>"
        f'<div class="lhkit-row"><span></span>{button}</div></div>'
    )


def _unblinded(state: ABState, catalog: Catalog) -> str:
    if state.revealed is None:
        return ""
    sides = dict(zip(SIDES, state.revealed, strict=True))
    heads = "".join(f'<th scope="col">{escape(catalog.text(f"ab.{side}"))}</th>' for side in sides)
    rows = "".join(_row(key, cells, catalog) for key, cells in _facts(state.revealed, catalog))
    return (
        f'<table class="lhkit-facts"><caption>{escape(catalog.text("ab.unblinded"))}</caption>'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _row(key: str, cells: Sequence[str], catalog: Catalog) -> str:
    told = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(catalog.text(f"ab.fact_{key}"))}</th>{told}</tr>'


def _facts(
    sides: tuple[Revealed, Revealed], catalog: Catalog
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the rows of the table: a key, and the HTML of each side's cell."""
    yield "model", tuple(escaped(each.identity.title) for each in sides)
    yield "dialect", tuple(escaped(each.identity.dialect) for each in sides)
    yield "first_token", tuple(escaped(seconds(_first_token_s(each.record))) for each in sides)
    turns = [sum(turn.active_s for turn in each.record.evidence.turns) for each in sides]
    yield "turns", tuple(escaped(seconds(each)) for each in turns)
    yield "tokens", tuple(escaped(_tokens(each.record, catalog)) for each in sides)
    yield "calls", tuple(_calls(each.record) for each in sides)
    yield "raw", tuple(_raw(each.record) for each in sides)


def _first_token_s(record: SampleRecord) -> float | None:
    requests = (each for turn in record.evidence.turns for each in turn.model_calls)
    return next(
        (s for each in requests if (s := each.response.timing.first_token_s) is not None), None
    )


def _tokens(record: SampleRecord, catalog: Catalog) -> str:
    usages = [each.response.usage for turn in record.evidence.turns for each in turn.model_calls]
    return catalog.text(
        "notebook.tokens",
        prompt=f"{sum(each.prompt_tokens for each in usages):,}",
        completion=f"{sum(each.completion_tokens for each in usages):,}",
    )


def _calls(record: SampleRecord) -> str:
    calls = [call for turn in record.evidence.turns for call in turn.calls]
    lines = (f"{call.tool} {_json(call.raw_args)} → {call.outcome} {call.answer}" for call in calls)
    return _pre([line.rstrip() for line in lines])


def _raw(record: SampleRecord) -> str:
    requests = [each.response for turn in record.evidence.turns for each in turn.model_calls]
    return _pre([each.raw_text or each.text for each in requests])


def _pre(lines: Sequence[str]) -> str:
    text = "\n".join(lines)
    cut = text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} … [{len(text):,}]"
    return f'<pre tabindex="0">{escaped(cut)}</pre>' if cut else ""


def _json(value: Any) -> str:
    return json_or_repr(dict(value) if isinstance(value, Mapping) else value)


def ab_lines(state: ABState, catalog: Catalog) -> list[str]:
    """Return the board in short, for where no widget can be shown."""
    lines = [each.text for each in state.told]
    if state.choice is not None:
        choice = catalog.text(f"ab.{state.choice}")
        lines.append(catalog.text("ab.kept", choice=choice, count=state.votes))
        lines += [state.reason] if state.reason else []
    for side, each in zip(SIDES, state.revealed or (), strict=False):
        lines.append(f"{catalog.text(f'ab.{side}')}: {each.identity.title}")
    return [visible(line) for line in lines]
