"""Two runs of one model by two runtimes: where their replies part, and what records prove of why.

Pure: values in, values out. Showing it is for `report.parity`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, TypeAlias

from lhkit.harness.compare import compare
from lhkit.harness.log import footprint_of
from lhkit.harness.pairs import Comparison, Pair
from lhkit.harness.record import ModelCallRecord, SampleId, SampleRecord
from lhkit.harness.results import Run
from lhkit.harness.timings import Latency, latency
from lhkit.json_values import json_or_repr
from lhkit.messages import Finished, Footprint, ModelIdentity

if TYPE_CHECKING:
    import pandas as pd

Side: TypeAlias = Literal["a", "b"]

_END_MARKS = (
    "<end_of_turn>",
    "<start_of_turn>",
    "<turn|>",
    "<|turn>",
    "<eos>",
    "</s>",
    "<|im_end|>",
)
"""Marks of chat templates that end a turn, as they stand in a text in which they leaked."""
_SHOWN_BEFORE = 60
_SHOWN_AFTER = 160


class CallKind(StrEnum):
    """How the calls of two replies differ; the first that applies.

    `cut`: a call was cut off on one side only. `none`: only one side called anything. `tool`: other
    tools, or another number of calls. `argument`: the same tools with other arguments.
    """

    CUT = "cut"
    NONE = "none"
    TOOL = "tool"
    ARGUMENT = "argument"
    SAME = "same"


class Cause(StrEnum):
    """What records can prove about a difference.

    Of the prompts: `start_twice` (its first token, `<bos>`, stands twice), `no_start` (the other
    side's first token lacks), `prompt_tokens` (the same text as other tokens), `prompt_text`.
    Of the replies' ends: `ran_on` (it wrote on past the mark or token at which the other ended),
    `limit` (cut by the limit of tokens or of the context), `chose_end` (its next token was one
    that ends a reply, the other's was not), `ended` (it ended where the other went on; by the model
    or by the runtime cannot be known).
    """

    START_TWICE = "start_twice"
    NO_START = "no_start"
    PROMPT_TOKENS = "prompt_tokens"
    PROMPT_TEXT = "prompt_text"
    RAN_ON = "ran_on"
    LIMIT = "limit"
    CHOSE_END = "chose_end"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCause:
    """A cause, and the side that it is told of; None where it is told of both alike."""

    cause: Cause
    side: Side | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first reply of a sample that differs.

    `turn`, `request` and `token` count from 0, `chars` is how many characters both began with;
    `token` is None where a side tells no token ids, and so are `ids` of a side that had ended.
    `before` is the end of what both wrote, `said` how each went on. `reasons` are the servers'
    words for the ends; a side that was not asked any more has `NOT_ASKED` there. `prompt_text` is
    what both were asked, empty unless both records keep the same, and `shared_ids` the tokens that
    both began with. `odds` are the log-probabilities of both next tokens, as a server told them
    that was asked afterwards; None for a token that is not among its likeliest.
    """

    sample_id: SampleId
    turn: int
    request: int
    chars: int
    token: int | None
    ids: tuple[int | None, int | None]
    before: str
    said: tuple[str, str]
    reasons: tuple[str, str]
    calls: CallKind
    findings: tuple[FoundCause, ...] = ()
    prompt_text: str = ""
    shared_ids: tuple[int, ...] = ()
    odds: tuple[float | None, float | None] | None = None

    @property
    def is_tie(self) -> bool | None:
        """Whether rounding may have decided between the two tokens; None if nobody was asked."""
        if self.odds is None:
            return None
        a, b = self.odds
        return a is not None and b is not None and abs(a - b) < TIE


TIE = 0.2
"""Log-probabilities that differ by less are called a tie: some steps of bfloat16 at such sizes."""

NOT_ASKED = "–"
"""In place of a reason: one side had no such request any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How quick a side was: first tokens of requests, whole turns, and tokens after the first.

    `tokens_per_s` is None where nobody counted tokens or told their times.
    """

    first_token: Latency
    turn: Latency
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """How far a server agrees with what the first run said, read token by token.

    Each token is seen behind those before it, whatever the server would have written there: so an
    early difference does not hide the rest. Of `tokens` in `replies` it holds `agreed` for
    likeliest, too; of the others `ties` are nearly as likely (`TIE`). `is_own`: it is the server
    that said them, and was asked for the likeliest.
    """

    server: str
    replies: int
    tokens: int
    agreed: int
    ties: int
    is_own: bool = False

    @property
    def other_sampler(self) -> int:
        """How many tokens a server wrote that it holds for clearly less likely than another."""
        return self.tokens - self.agreed - self.ties if self.is_own else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """What two runs of the same samples say about two runtimes.

    `comparison` has verdicts and pairs. `replies` of both sides were set against each other, up to
    and with the first of a sample that differs: behind it the two conversations are others.
    `prompts` counts what is known of the first prompts of the paired samples, `more_tokens` by how
    many tokens b's were longer though their text was the same. `unknown` names what the records
    do not say. `asked` is the server that told the odds, if one did, and `forced` is what
    servers said of the first run's replies. `footprints` are what the manifests say of start,
    memory and weights of both servers.
    """

    comparison: Comparison
    replies: int
    divergences: tuple[Divergence, ...]
    prompts: Mapping[FoundCause, int]
    more_tokens: Mapping[int, int]
    speeds: tuple[Speed, Speed]
    unknown: tuple[str, ...] = ()
    ends: Mapping[FoundCause, int] = field(default_factory=dict)
    asked: str = ""
    forced: tuple[Forced, ...] = ()
    footprints: tuple[Footprint, Footprint] = (Footprint(), Footprint())

    @property
    def flips(self) -> int:
        """The pairs whose verdicts differ, either way."""
        return len(self.comparison.gained) + len(self.comparison.lost)

    @property
    def lost_points(self) -> float:
        """By how many points b's pass rate is below a's; negative if it is above."""
        return -100 * (self.comparison.difference or 0.0)

    @property
    def is_whole(self) -> bool:
        """Whether every sample of a could be set against a valid one of b."""
        told = self.comparison
        return bool(told.pairs) and not told.invalid and not told.only_a

    @property
    def sides(self) -> "pd.DataFrame":
        """One row a run: verdicts, times, and what its server took; see `docs/parity.md`."""
        import pandas as pd

        names = (self.comparison.name_a, self.comparison.name_b)
        passed = (self.comparison.passed_a, self.comparison.passed_b)
        rows = [
            {
                "run": names[n],
                "samples": len(self.comparison.pairs),
                "passed": passed[n],
                "first_token_p50_s": self.speeds[n].first_token.p50_s,
                "first_token_p95_s": self.speeds[n].first_token.p95_s,
                "turn_p50_s": self.speeds[n].turn.p50_s,
                "turn_p95_s": self.speeds[n].turn.p95_s,
                "tokens_per_s": self.speeds[n].tokens_per_s,
                **asdict(self.footprints[n]),
            }
            for n in range(2)
        ]
        return pd.DataFrame(rows).astype(
            {name: "float64" for name in rows[0] if name.endswith("_s")}
            | dict.fromkeys(("memory_bytes", "weights_bytes", "cores"), "Int64")
        )

    @property
    def differing(self) -> "pd.DataFrame":
        """One row a sample whose replies part, with the first that does; see `docs/parity.md`."""
        import pandas as pd

        verdicts = {
            pair.sample_id: (str(pair.a.judgement.verdict), str(pair.b.judgement.verdict))
            for pair in self.comparison.pairs
        }
        columns: dict[str, tuple[str, Callable[[Divergence], object]]] = {
            "scenario": ("str", lambda each: each.sample_id.scenario),
            "repeat": ("int64", lambda each: each.sample_id.repeat),
            "verdict_a": ("str", lambda each: verdicts[each.sample_id][0]),
            "verdict_b": ("str", lambda each: verdicts[each.sample_id][1]),
            "turn": ("int64", lambda each: each.turn),
            "request": ("int64", lambda each: each.request),
            "chars": ("int64", lambda each: each.chars),
            "token": ("Int64", lambda each: each.token),
            "id_a": ("Int64", lambda each: each.ids[0]),
            "id_b": ("Int64", lambda each: each.ids[1]),
            "said_a": ("str", lambda each: each.said[0]),
            "said_b": ("str", lambda each: each.said[1]),
            "end_a": ("str", lambda each: each.reasons[0]),
            "end_b": ("str", lambda each: each.reasons[1]),
            "calls": ("str", lambda each: str(each.calls)),
            "causes": ("str", lambda each: " ".join(str(f.cause) for f in each.findings)),
            "odds_a": ("float64", lambda each: (each.odds or (None, None))[0]),
            "odds_b": ("float64", lambda each: (each.odds or (None, None))[1]),
            "tie": ("boolean", lambda each: each.is_tie),
        }
        return pd.DataFrame(
            {
                name: pd.Series([of(each) for each in self.divergences], dtype=dtype)
                for name, (dtype, of) in columns.items()
            }
        )

    @property
    def calls(self) -> Mapping[CallKind, int]:
        """How the calls of the first differing replies differ, the gravest kind first."""
        counts = Counter(each.calls for each in self.divergences)
        return {kind: counts[kind] for kind in CallKind if counts[kind]}


def parity(run_a: Run, run_b: Run) -> Parity:
    """Return how far run b came out as run a did, sample by sample and reply by reply."""
    comparison = compare(run_a, run_b)
    pairs = comparison.pairs
    found = [_parted(pair) for pair in pairs]
    divergences = tuple(each for _, each in found if each is not None)
    firsts = [
        (a.response, b.response)
        for pair in pairs
        if (a := next(_requests(pair.a), (0, 0, None))[2])
        and (b := next(_requests(pair.b), (0, 0, None))[2])
    ]
    ends = Counter(
        finding
        for each in divergences
        for finding in each.findings
        if finding.cause in {Cause.RAN_ON, Cause.LIMIT, Cause.CHOSE_END, Cause.ENDED}
    )
    ended = {finding.cause for finding in ends}
    footprints = footprint_of(run_a.manifest), footprint_of(run_b.manifest)
    return Parity(
        comparison=comparison,
        replies=sum(count for count, _ in found),
        divergences=divergences,
        prompts=Counter(finding for a, b in firsts for finding in _of_prompts(a, b)),
        more_tokens=Counter(
            more
            for a, b in firsts
            if _other_tokens(a, b) and (more := b.usage.prompt_tokens - a.usage.prompt_tokens)
        ),
        speeds=(_speed([pair.a for pair in pairs]), _speed([pair.b for pair in pairs])),
        unknown=(
            *_unknown(pairs, firsts),
            *(_untold(footprints) if pairs else ()),
            *(["ending"] if Cause.ENDED in ended else []),
        ),
        ends=ends,
        footprints=footprints,
    )


def with_odds(
    told: Parity,
    odds: Mapping[SampleId, tuple[float | None, float | None]],
    *,
    server: str,
) -> Parity:
    """Return it with how likely `server` holds both tokens where the replies of a sample part."""
    return replace(
        told,
        divergences=tuple(
            replace(each, odds=odds.get(each.sample_id)) for each in told.divergences
        ),
        unknown=tuple(each for each in told.unknown if each != "probabilities"),
        asked=server,
    )


def said_first(told: Parity) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the first run's replies as prompt and token ids, of those that keep both."""
    return tuple(
        (response.prompt_text, response.token_ids)
        for pair in told.comparison.pairs
        for turn in pair.a.evidence.turns
        for response in (call.response for call in turn.model_calls)
        if response.prompt_text and response.token_ids
    )


def is_greedy_by(run: Run, server: ModelIdentity) -> bool:
    """Return whether all of a run was asked of such a server, and always for the likeliest token.

    The same model, software, weights and type of number; the address does not count. Not where
    decoding was constrained: a token may then be the likeliest of those allowed.
    """
    asked = [each.get("temperature") for each in run.manifest.get("sampling", ())]
    own = [
        call.response.identity
        for record in run.records
        for turn in record.evidence.turns
        for call in turn.model_calls
    ]
    return (
        bool(own and asked)
        and not any(asked)
        and bool(server.weights_sha256)
        and all(each is not None and each.constraint == "off" for each in own)
        and {_build(each) for each in own} == {_build(server)}
    )


def _build(identity: ModelIdentity | None) -> tuple[str, ...]:
    if identity is None:
        return ()
    return identity.model, identity.server, identity.weights_sha256, identity.dtype


def forced(
    server: str,
    replies: Iterable[tuple[Sequence[int], Sequence[Mapping[int, float]]]],
    *,
    is_own: bool = False,
) -> Forced:
    """Return how far a server agrees: for each reply its ids, and what was likely at each place."""
    read = list(replies)
    gaps = [
        max(odds.values()) - odds[token] if token in odds else math.inf
        for ids, likely in read
        for token, odds in zip(ids, likely, strict=True)
    ]
    apart = [gap for gap in gaps if gap > 0]
    return Forced(
        server=server,
        replies=len(read),
        tokens=len(gaps),
        agreed=len(gaps) - len(apart),
        ties=sum(gap < TIE for gap in apart),
        is_own=is_own,
    )


_Place: TypeAlias = tuple[int, int, ModelCallRecord | None]


def _requests(record: SampleRecord) -> Iterator[_Place]:
    for t, turn in enumerate(record.evidence.turns):
        for r, request in enumerate(turn.model_calls):
            yield t, r, request


def _parted(pair: Pair) -> tuple[int, Divergence | None]:
    """Return how many replies were set against each other, and the first that differs."""
    count = 0
    for place_a, place_b in zip_longest(_requests(pair.a), _requests(pair.b)):
        count += 1
        if place_a is None or place_b is None or place_a[:2] != place_b[:2]:
            earlier = min((each for each in (place_a, place_b) if each), key=lambda each: each[:2])
            is_a = earlier is place_a
            sides = (earlier, None) if is_a else (None, earlier)
            return count, _divergence(pair.sample_id, *sides)
        if not _is_same(place_a[2], place_b[2]):
            return count, _divergence(pair.sample_id, place_a, place_b)
    return count, None


def _is_same(a: ModelCallRecord | None, b: ModelCallRecord | None) -> bool:
    """Return whether two replies say the same.

    Token ids do not count where the words are the same: some servers list the token that ended a
    reply, some do not.
    """
    told = [
        (_words(each.response), _calls(each.response), each.response.truncated)
        for each in (a, b)
        if each
    ]
    return told[0] == told[1]


def _words(response: Finished | None) -> str:
    return "" if response is None else response.raw_text or response.text


def _calls(response: Finished) -> list[tuple[str, str]]:
    return [(call.name, json_or_repr(call.args)) for call in response.calls]


def _divergence(sample_id: SampleId, a: _Place | None, b: _Place | None) -> Divergence:
    turn, request, _ = a or b or (0, 0, None)
    responses = [place[2].response if place and place[2] else None for place in (a, b)]
    words = [_words(each) for each in responses]
    chars = _common(words[0], words[1])
    first, second = responses
    token: int | None = None
    ids: tuple[int | None, int | None] = (None, None)
    if first and second and first.token_ids and second.token_ids:
        token = _common(first.token_ids, second.token_ids)
        ids = (_at(first.token_ids, token), _at(second.token_ids, token))
    return Divergence(
        sample_id=sample_id,
        turn=turn,
        request=request,
        chars=chars,
        token=token,
        ids=ids,
        before=words[0][max(0, chars - _SHOWN_BEFORE) : chars],
        said=(words[0][chars : chars + _SHOWN_AFTER], words[1][chars : chars + _SHOWN_AFTER]),
        reasons=(_reason(first), _reason(second)),
        calls=_call_kind(first, second),
        findings=(*_of_prompts(first, second), *_of_ends(first, second))
        if first and second
        else (),
        prompt_text=first.prompt_text
        if first and second and first.prompt_text == second.prompt_text
        else "",
        shared_ids=first.token_ids[:token] if first and token is not None else (),
    )


def _common(a: Sequence[object], b: Sequence[object]) -> int:
    """Return how many elements both begin with."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((place for place, (x, y) in pairs if x != y), min(len(a), len(b)))


def _at(ids: Sequence[int], place: int) -> int | None:
    return ids[place] if place < len(ids) else None


def _reason(response: Finished | None) -> str:
    return NOT_ASKED if response is None else response.reason


def _call_kind(a: Finished | None, b: Finished | None) -> CallKind:
    calls = [[] if each is None else _calls(each) for each in (a, b)]
    fragments = [bool(each and each.fragment) for each in (a, b)]
    names = [[name for name, _ in each] for each in calls]
    if fragments[0] != fragments[1]:
        return CallKind.CUT
    if bool(calls[0]) != bool(calls[1]):
        return CallKind.NONE
    if names[0] != names[1]:
        return CallKind.TOOL
    return CallKind.SAME if calls[0] == calls[1] else CallKind.ARGUMENT


def _of_prompts(a: Finished, b: Finished) -> Iterator[FoundCause]:
    """Yield in what the prompts of two requests differ, as far as both sides tell."""
    yield from _of_start("a", a.prompt_token_ids, b.prompt_token_ids)
    yield from _of_start("b", b.prompt_token_ids, a.prompt_token_ids)
    if a.prompt_sha256 and b.prompt_sha256 and a.prompt_sha256 != b.prompt_sha256:
        yield FoundCause(cause=Cause.PROMPT_TEXT)
    elif _other_tokens(a, b):
        yield FoundCause(cause=Cause.PROMPT_TOKENS)


def _of_start(side: Side, ids: Sequence[int], others: Sequence[int]) -> Iterator[FoundCause]:
    """Yield that the first token of the other side's prompt stands there twice or not at all."""
    if min(len(ids), len(others)) < 2 or ids[:2] == others[:2]:  # noqa: PLR2004 - the two kept ones
        return
    if ids[0] == ids[1] == others[0]:
        yield FoundCause(cause=Cause.START_TWICE, side=side)
    elif ids[0] == others[1] != others[0]:
        yield FoundCause(cause=Cause.NO_START, side=side)


def _other_tokens(a: Finished, b: Finished) -> bool:
    """Return whether one text became other tokens: by their hashes, or else by their numbers."""
    if not a.prompt_sha256 or a.prompt_sha256 != b.prompt_sha256:
        return False
    hashes = a.prompt_ids_sha256, b.prompt_ids_sha256
    told = hashes if all(hashes) else (a.usage.prompt_tokens, b.usage.prompt_tokens)
    return all(told) and told[0] != told[1]


def _of_ends(a: Finished, b: Finished) -> Iterator[FoundCause]:
    """Yield what it means that one reply is the beginning of the other."""
    sides: tuple[tuple[Side, Finished, Side, Finished], ...] = (("a", a, "b", b), ("b", b, "a", a))
    for side, short, other, long in sides:
        words, more = _words(short), _words(long)
        if len(words) > len(more) or not more.startswith(words):
            continue
        if short.truncated and not long.truncated:
            yield FoundCause(cause=Cause.LIMIT, side=side)
        elif len(words) < len(more) and _is_past_end(short, long):
            yield FoundCause(cause=Cause.RAN_ON, side=other)
        elif len(words) < len(more):
            is_chosen = 0 < len(short.token_ids) == _common(short.token_ids, long.token_ids) + 1
            cause = Cause.CHOSE_END if is_chosen and long.token_ids else Cause.ENDED
            yield FoundCause(cause=cause, side=side)


def _is_past_end(short: Finished, long: Finished) -> bool:
    """Return whether the longer reply holds the mark or token at which the shorter one ended."""
    rest = _words(long)[len(_words(short)) :].lstrip()
    n = len(short.token_ids)
    is_beginning = 0 < n < len(long.token_ids) and long.token_ids[:n] == short.token_ids
    return rest.startswith(_END_MARKS) or (is_beginning and short.reason == "stop")


def _speed(records: Sequence[SampleRecord]) -> Speed:
    turns = [turn for record in records for turn in record.evidence.turns]
    responses = [call.response for turn in turns for call in turn.model_calls]
    written, spent_s = 0, 0.0
    for each in responses:
        first_s, last_s = each.timing.first_token_s, each.timing.last_token_s
        if first_s is not None and last_s is not None and each.usage.completion_tokens > 1:
            written += each.usage.completion_tokens - 1
            spent_s += last_s - first_s
    return Speed(
        first_token=latency(each.timing.first_token_s for each in responses),
        turn=latency(turn.active_s for turn in turns),
        tokens_per_s=written / spent_s if spent_s else None,
    )


def _unknown(pairs: Sequence[Pair], firsts: Sequence[tuple[Finished, Finished]]) -> Iterator[str]:
    """Yield what at least one side leaves open; the odds of tokens always."""
    if not pairs:
        return
    told = [each for pair in firsts for each in pair]
    who = [each.identity for each in told]
    if not all(each.prompt_sha256 for each in told):
        yield "prompt_text"
    if not all(each.prompt_token_ids for each in told):
        yield "prompt_ids"
    if not all(each.token_ids for each in told):
        yield "token_ids"
    if not all(each and each.weights_sha256 for each in who):
        yield "weights"
    if not all(each and each.dtype for each in who):
        yield "dtype"
    yield "probabilities"


def _untold(footprints: tuple[Footprint, Footprint]) -> Iterator[str]:
    """Yield what at least one manifest does not say of its server."""
    for what, name in (("start", "start_s"), ("memory", "memory_bytes"), ("size", "weights_bytes")):
        if any(getattr(each, name) is None for each in footprints):
            yield what
