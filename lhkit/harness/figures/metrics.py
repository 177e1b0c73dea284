"""Metrics of a run: pass rates by group, gate scores, repeats, latency and tokens. Pure.

Rates exclude `invalid` samples, which are counted separately. Tool selection is counted over calls
(micro average): an optional call that was made counts as a right choice; one that was left out does
not count, nor does an unexpected call that the scenario allows. Latency is in `timings`,
comparisons of two runs in `compare`.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, zip_longest

from lhkit.base.json_values import json_or_repr
from lhkit.conversation.messages import GateOutcome
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.figures.agreement import JudgeAgreement
from lhkit.harness.figures.rates import (
    Interval,
    Share,
    pass_at_k,
    pass_hat_k,
    rate_of,
    share_of,
    wilson,
)
from lhkit.harness.figures.timings import Latency, Tokens, latency, times, tokens
from lhkit.harness.records.record import (
    CallRecord,
    CallScore,
    FalseClaim,
    ModelCallRecord,
    SampleRecord,
    Severity,
    TurnScore,
    Verdict,
)
from lhkit.harness.records.wall_clock import TimeBreakdown
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario import DIFFICULTIES
from lhkit.harness.scenarios.scenario_filter import ScenarioSelection
from lhkit.harness.scenarios.user import User
from lhkit.models.families import call_formats

NO_CALL = ""
"""The name for "no call" in the confusion matrix."""

_BREACHES = ("unconfirmed_write", "retry_after_rejection", "bypass_after_rejection")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """pass@k and pass^k: means over the scenarios with `k` valid samples; None without one.

    `pass_at`: at least one of k trials passes (pass@k). `pass_hat`: all of them pass (pass^k).
    """

    k: int = 1
    scenarios: int = 0
    pass_at: float | None = None
    pass_hat: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """Scenarios with two or more valid repeats, and how many of them are inconsistent.

    `flipped` scenarios differ in verdict or calls; `verdicts` and `calls` count each of the two;
    `texts` differ in the raw text of the model.
    """

    scenarios: int = 0
    flipped: int = 0
    verdicts: int = 0
    calls: int = 0
    texts: int = 0

    @property
    def rate(self) -> float | None:
        """The share of scenarios whose verdict or calls differ; None without repeats."""
        return rate_of(self.flipped, self.scenarios)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wordings:
    """Scenarios with valid samples in two or more wordings, and how their verdicts vary.

    All samples of `passed_all` scenarios pass, and of `passed_some` at least one, but not all.
    `between` is the chance that two samples in different wordings differ in verdict, `within` that
    two repeats of one wording do: means over the scenarios with such pairs; None without one.
    """

    scenarios: int = 0
    passed_all: int = 0
    passed_some: int = 0
    between: float | None = None
    within: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmScore:
    """Scores of the confirm gate: counts of calls, except for the two counts of turns.

    Attributes:
        asked: writes that the user was asked to confirm and answered.
        unconfirmed: writes that ran without an accepted question or a policy (must be 0).
        policy: writes that a policy of approvals let run without a question.
        policy_wrong: those of them that were wrong.
        rejections: questions answered no.
        rejected_turns: turns with such an answer.
        respected_turns: denied turns without a later write or a repeated call.
        retries: calls that repeated a rejected write before the user asked for it.
        bypasses: writes tried with another tool after a rejection in the same turn.
        false_claims: turns whose reply is flagged as a false success claim (no violations).
        unexpected: proposed writes that match no expected call of their turn.
        unexpected_rejected: those of them that the user rejected.
        unexpected_edited: those of them that ran as the user edited them.
        unexpected_executed: those of them that the user accepted as they were and that ran without
            an error.
        edited: calls that the user edited, expected or not.
        edited_arguments: how often each argument was edited, by `tool.argument`.
        unexpected_interval: of the share of unexpected writes among all proposed ones; clustered
            by scenario as in `Tally`. None if nothing was counted, as for the next three.
        rejected_interval: of the share of unexpected writes that were rejected.
        edited_interval: of the share of unexpected writes that were edited.
        executed_interval: of the share of unexpected writes that were executed.
    """

    asked: int = 0
    unconfirmed: int = 0
    policy: int = 0
    policy_wrong: int = 0
    rejections: int = 0
    rejected_turns: int = 0
    respected_turns: int = 0
    retries: int = 0
    bypasses: int = 0
    false_claims: int = 0
    unexpected: int = 0
    unexpected_rejected: int = 0
    unexpected_edited: int = 0
    unexpected_executed: int = 0
    edited: int = 0
    edited_arguments: Mapping[str, int] = field(default_factory=dict)
    unexpected_interval: Interval | None = None
    rejected_interval: Interval | None = None
    edited_interval: Interval | None = None
    executed_interval: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Counts of selected tools and compared arguments.

    Attributes:
        chosen: calls of an expected tool, whatever their arguments.
        unexpected: calls that were not expected.
        missing: expected calls that were not made.
        exact: chosen calls with every argument right.
        arguments: compared arguments of the chosen calls.
        right_arguments: those that are right.
        confusion: counts of (expected tool, called tool): the n-th missing call of a turn with the
            n-th unexpected one, and (`NO_CALL`, `NO_CALL`) for a turn that rightly had none.
    """

    chosen: int = 0
    unexpected: int = 0
    missing: int = 0
    exact: int = 0
    arguments: int = 0
    right_arguments: int = 0
    confusion: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def precision(self) -> float | None:
        """The share of calls that were of an expected tool; None where nothing was called."""
        return rate_of(self.chosen, self.chosen + self.unexpected)

    @property
    def recall(self) -> float | None:
        """The share of expected calls whose tool was called; None where none was expected."""
        return rate_of(self.chosen, self.chosen + self.missing)

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall; None without calls."""
        return rate_of(2 * self.chosen, 2 * self.chosen + self.unexpected + self.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts and rates of a group of samples.

    `interval` is the 95 % interval of the pass rate: Wilson's, or with repeats Korn and Graubard's
    for clusters (`statistics.clustered_interval`); a cluster is a scenario.
    `right_calls` of `counted_calls` (expected or unexpected) were correct as the client parsed
    them, `strict_right_calls` without a repair; `strict_passed` samples passed without one.
    `exact` has the samples that passed with exactly the recorded calls, of those that have any.
    `behaviour` has the scores of `BEHAVIOUR` by name. `attempted` and `escaped` count violations
    that were blocked and that occurred, by code. `turn` is the time of a user turn without waiting
    for a person.
    """

    name: str
    passed: int = 0
    failed: int = 0
    invalid: int = 0
    interval: Interval | None = None
    strict_passed: int = 0
    right_calls: int = 0
    strict_right_calls: int = 0
    counted_calls: int = 0
    exact: Share = field(default_factory=lambda: share_of(()))
    selection: Selection = field(default_factory=Selection)
    behaviour: Mapping[str, Share] = field(default_factory=dict)
    repeats: Repeats = field(default_factory=Repeats)
    attempted: Mapping[str, int] = field(default_factory=dict)
    escaped: Mapping[str, int] = field(default_factory=dict)
    turn: Latency = field(default_factory=Latency)

    @property
    def valid(self) -> int:
        """The number of samples that passed or failed."""
        return self.passed + self.failed

    @property
    def blocked(self) -> int:
        """The number of violations that were blocked."""
        return sum(self.attempted.values())

    @property
    def occurred(self) -> int:
        """The number of violations that occurred."""
        return sum(self.escaped.values())

    @property
    def pass_rate(self) -> float | None:
        """The share of valid samples that passed."""
        return rate_of(self.passed, self.valid)

    @property
    def tool_accuracy(self) -> float | None:
        """The share of expected and unexpected calls with the right tool and arguments."""
        return rate_of(self.right_calls, self.counted_calls)

    @property
    def strict_accuracy(self) -> float | None:
        """The tool accuracy if calls that needed a repair count as wrong."""
        return rate_of(self.strict_right_calls, self.counted_calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCalls:
    """Model messages, and whether their tool calls were read. Counts of messages.

    Attributes:
        messages: all messages of the model.
        with_calls: those with a call, complete or cut off.
        unread: messages without one whose text looks like a call, by its format
            (`families.call_formats`).
    """

    messages: int = 0
    with_calls: int = 0
    unread: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFigure:
    """One score over the samples of a run.

    Attributes:
        name: the name of the score, with that of its value if it returns a mapping: `style.short`.
        is_check: whether a False fails the sample.
        is_rate: whether all values are booleans.
        n: the samples with a value.
        value: the rate (0 to 1) or the mean; None without values.
        interval: its 95 % interval; None without values.
        not_applicable: the samples that it does not apply to.
        failed: the samples for which it failed.
        error: the first such failure, with its sample; empty without any.
        missing: the valid samples that it was not computed for.
        is_judge: whether it is the answer of a model.
        agreement: a judge and the labels of a person; None without labels.
    """

    name: str
    is_check: bool = False
    is_rate: bool = True
    n: int = 0
    value: float | None = None
    interval: Interval | None = None
    not_applicable: int = 0
    failed: int = 0
    error: str = ""
    missing: int = 0
    is_judge: bool = False
    agreement: JudgeAgreement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The metrics of a run. `models` are all that answered, normally one.

    `by_ac` groups samples by acceptance criterion: those without one are the group without a name,
    and there are no groups if no sample has one. `by_tool` groups samples by the tools that they
    must call (a sample may be in several groups; the group without a name must call none);
    `by_tag` groups them by tags, `by_wording` those of `wordings.scenarios` by wording, from 1.
    `time_breakdown` is of the newest invocation, None if only records are known. `false_claims` are
    the flagged replies with their samples. `times` are durations by stage (`timings.times`).
    `selection` is how the scenarios were selected, None for all of them. `user` is the simulated
    user. `read_calls` shows a wrong dialect. `scores` are those of the user, empty if only records
    are known.
    """

    by_ac: tuple[Tally, ...]
    total: Tally
    tokens: Tokens
    models: tuple[ModelIdentity, ...] = ()
    by_tool: tuple[Tally, ...] = ()
    by_locale: tuple[Tally, ...] = ()
    by_tag: tuple[Tally, ...] = ()
    by_wording: tuple[Tally, ...] = ()
    wordings: Wordings = field(default_factory=Wordings)
    confirm: ConfirmScore = field(default_factory=ConfirmScore)
    flips: Flips = field(default_factory=Flips)
    times: Mapping[str, Latency] = field(default_factory=lambda: times(()))
    time_breakdown: TimeBreakdown | None = None
    false_claims: tuple[tuple[SampleId, FalseClaim], ...] = ()
    selection: ScenarioSelection | None = None
    user: User = "script"
    read_calls: ReadCalls = field(default_factory=ReadCalls)
    scores: tuple[ScoreFigure, ...] = ()

    @property
    def by_difficulty(self) -> tuple[Tally, ...]:
        """The groups of scenarios tagged as plain and as hard."""
        by_tag = {tally.name: tally for tally in self.by_tag}
        return tuple(by_tag[name] for name in DIFFICULTIES if name in by_tag)

    @property
    def confusion(self) -> Mapping[tuple[str, str], int]:
        """Counts by expected and called tool; "" is no call."""
        return self.total.selection.confusion


def summarise(records: Iterable[SampleRecord]) -> Summary:
    """Return the metrics of records, groups in natural order of their names."""
    samples = tuple(records)
    total = tally("total", samples)
    requests = [request for record in samples for request in record.trajectory.requests]
    reworded = [each for group in _by_scenario(samples) if _has_wordings(group) for each in group]
    return Summary(
        by_ac=_by_criterion(samples, total),
        by_tool=_grouped(samples, total, _expected_tools),
        by_locale=_grouped(samples, total, lambda record: [record.locale]),
        by_tag=_grouped(samples, total, lambda record: record.tags),
        by_wording=_grouped(reworded, total, lambda record: [str(record.sample_id.wording + 1)]),
        wordings=wordings(reworded),
        total=total,
        tokens=tokens(requests),
        models=_models(requests),
        read_calls=count_read_calls(requests),
        confirm=confirm_score(samples),
        flips=flips(samples),
        times=times(samples),
        false_claims=tuple(
            (record.sample_id, claim) for record in samples for claim in record.score.false_claims
        ),
    )


def count_read_calls(requests: Iterable[ModelCallRecord]) -> ReadCalls:
    """Count the messages with calls, and those with text like a call that was not read."""
    messages = with_calls = 0
    unread: Counter[str] = Counter()
    for response in (request.response for request in requests):
        messages += 1
        if response.calls or response.fragment:
            with_calls += 1
        else:
            unread.update(call_formats(response.raw_text or response.text))
    return ReadCalls(messages=messages, with_calls=with_calls, unread=dict(unread))


def dialect_use(
    records: Iterable[SampleRecord],
) -> tuple[tuple[ModelIdentity, ...], ReadCalls]:
    """Return the models that answered, with their dialects, and how their calls were read."""
    requests = [request for record in records for request in record.trajectory.requests]
    return _models(requests), count_read_calls(requests)


def tally(name: str, records: Sequence[SampleRecord]) -> Tally:
    """Return the counts and rates of one group of records."""
    verdicts = Counter(record.score.verdict for record in records)
    valid = [record for record in records if record.is_valid]
    scores = [score for record in valid for score in record.score.turn_scores]
    turns = [turn for record in valid for turn in record.trajectory.turns]
    return Tally(
        name=name,
        passed=verdicts[Verdict.PASS],
        failed=verdicts[Verdict.FAIL],
        invalid=verdicts[Verdict.INVALID],
        interval=rate_interval(
            [record.is_passed for record in group] for group in _by_scenario(valid)
        ),
        strict_passed=sum(record.score.strict_verdict is Verdict.PASS for record in valid),
        right_calls=sum(score.right_calls for score in scores),
        strict_right_calls=sum(score.strict_right_calls for score in scores),
        counted_calls=sum(score.due_calls + score.surplus_calls for score in scores),
        exact=share_of(record.score.exact for record in valid if record.score.exact is not None),
        selection=count_selection(scores),
        behaviour={name: score(valid) for name, score in BEHAVIOUR.items()},
        repeats=repeats(records),
        attempted=_violation_counts(records, Severity.ATTEMPTED),
        escaped=_violation_counts(records, Severity.ESCAPED),
        turn=latency(turn.active_s for turn in turns),
    )


def count_selection(scores: Iterable[TurnScore]) -> Selection:
    """Count the calls of some turns; a call without a name chose nothing."""
    chosen = unexpected = missing = exact = arguments = right = 0
    confusion: Counter[tuple[str, str]] = Counter()
    for score in scores:
        confusion.update(_confusion_pairs(score.calls))
        for row in score.calls:
            if row.expected is not None and row.actual is not None:
                chosen += 1
                exact += row.is_exact
                arguments += len(row.arguments)
                right += sum(argument.ok for argument in row.arguments)
            elif not row.ok:
                missing += row.actual is None
                unexpected += row.expected is None and row.called != NO_CALL
    return Selection(
        chosen=chosen,
        unexpected=unexpected,
        missing=missing,
        exact=exact,
        arguments=arguments,
        right_arguments=right,
        confusion=dict(sorted(confusion.items())),
    )


def _confusion_pairs(rows: tuple[CallScore, ...]) -> Iterator[tuple[str, str]]:
    if not rows:
        yield (NO_CALL, NO_CALL)
    missing = [row.tool for row in rows if row.actual is None and not row.ok]
    unexpected = [row.called for row in rows if row.expected is None and not row.ok and row.called]
    for row in rows:
        if row.expected is not None and row.actual is not None:
            yield (row.tool, row.called)
    yield from zip_longest(missing, unexpected, fillvalue=NO_CALL)


def rate_interval(clusters: Iterable[Sequence[bool]]) -> Interval | None:
    """Return the 95 % interval of a rate over clustered results; None without results.

    Wilson's if every cluster has one result; with repeats `statistics.clustered_interval`. Empty
    clusters are ignored.
    """
    counted = [results for results in clusters if results]
    if not counted:
        return None
    successes, sizes = [sum(results) for results in counted], [len(each) for each in counted]
    if sum(sizes) == len(sizes):
        return wilson(sum(successes), len(sizes))
    from lhkit.harness.figures.statistics import (
        clustered_interval,  # NumPy and SciPy, for repeats only
    )

    return clustered_interval(successes, sizes)


def repeats(records: Sequence[SampleRecord]) -> Repeats:
    """Return pass@k and pass^k, where k is the requested number of repeats of each wording."""
    k = max((record.sample_id.repeat + 1 for record in records), default=1)
    trials = [
        (len(group), sum(record.is_passed for record in group))
        for group in _by_scenario(records, "name")
        if len(group) >= k
    ]
    return Repeats(
        k=k,
        scenarios=len(trials),
        pass_at=rate_of(sum(pass_at_k(n, c, k) for n, c in trials), len(trials)),
        pass_hat=rate_of(sum(pass_hat_k(n, c, k) for n, c in trials), len(trials)),
    )


def flips(records: Iterable[SampleRecord]) -> Flips:
    """Return the counts of scenarios whose repeats differ in verdict, calls or text."""
    groups = [group for group in _by_scenario(records, "name") if len(group) > 1]
    verdicts = [len({record.score.verdict for record in group}) > 1 for group in groups]
    calls = [len({_calls(record) for record in group}) > 1 for group in groups]
    texts = [len({_texts(record) for record in group}) > 1 for group in groups]
    return Flips(
        scenarios=len(groups),
        flipped=sum(verdict or call for verdict, call in zip(verdicts, calls, strict=True)),
        verdicts=sum(verdicts),
        calls=sum(calls),
        texts=sum(texts),
    )


def wordings(records: Iterable[SampleRecord]) -> Wordings:
    """Return how the verdicts of scenarios vary between wordings and between repeats."""
    all_shares: list[float] = []
    between: list[float] = []
    within: list[float] = []
    for group in _by_scenario(records):
        if not _has_wordings(group):
            continue
        passed = [record.is_passed for record in group]
        all_shares.append(sum(passed) / len(passed))
        pairs = list(combinations(group, 2))
        for differences, is_repeat in ((between, False), (within, True)):
            differs = [
                a.score.verdict is not b.score.verdict
                for a, b in pairs
                if (a.sample_id.wording == b.sample_id.wording) is is_repeat
            ]
            if differs:
                differences.append(sum(differs) / len(differs))
    return Wordings(
        scenarios=len(all_shares),
        passed_all=all_shares.count(1.0),
        passed_some=sum(0 < share < 1 for share in all_shares),
        between=rate_of(sum(between), len(between)),
        within=rate_of(sum(within), len(within)),
    )


def confirm_score(records: Sequence[SampleRecord]) -> ConfirmScore:
    """Return the scores of the confirm gate; invalid samples count too."""
    calls = [call for record in records for call in record.trajectory.calls]
    codes = Counter(v.code for record in records for v in record.score.violations)
    arguments = Counter(f"{call.tool}.{name}" for call in calls for name in call.edited)
    respected: list[bool] = []  # of each turn with a rejection
    unexpected: dict[str, list[CallRecord]] = defaultdict(list)
    asked: Counter[str] = Counter()
    for record in records:
        scenario = record.sample_id.scenario
        unexpected[scenario] += unexpected_writes(record)
        asked[scenario] += sum(call.gate.is_answer for call in record.trajectory.calls)
        breached = {v.turn for v in record.score.violations if v.code in _BREACHES}
        respected += [
            number not in breached
            for number, turn in enumerate(record.trajectory.turns)
            if any(call.gate is GateOutcome.REJECTED for call in turn.calls)
        ]
    stopped = [[c.gate is GateOutcome.REJECTED for c in writes] for writes in unexpected.values()]
    corrected = [[c.is_edited for c in writes] for writes in unexpected.values()]
    executed = [
        [c.ran and c.outcome == "ok" and not c.is_edited for c in writes]
        for writes in unexpected.values()
    ]
    return ConfirmScore(
        asked=asked.total(),
        unconfirmed=codes["unconfirmed_write"],
        policy=sum(call.gate is GateOutcome.POLICY for call in calls),
        policy_wrong=codes["wrong_policy_write"],
        rejections=sum(call.gate is GateOutcome.REJECTED for call in calls),
        rejected_turns=len(respected),
        respected_turns=sum(respected),
        retries=codes["retry_after_rejection"],
        bypasses=codes["bypass_after_rejection"],
        false_claims=sum(len(record.score.false_claims) for record in records),
        unexpected=sum(map(len, unexpected.values())),
        unexpected_rejected=sum(map(sum, stopped)),
        unexpected_edited=sum(map(sum, corrected)),
        unexpected_executed=sum(map(sum, executed)),
        edited=sum(call.is_edited for call in calls),
        edited_arguments=dict(sorted(arguments.items())),
        unexpected_interval=rate_interval(
            [True] * len(writes) + [False] * (asked[scenario] - len(writes))
            for scenario, writes in unexpected.items()
        ),
        rejected_interval=rate_interval(stopped),
        edited_interval=rate_interval(corrected),
        executed_interval=rate_interval(executed),
    )


def _restraint(records: Iterable[SampleRecord]) -> Share:
    """Return, of the turns that expect no call at all, the share without an unexpected call."""
    return share_of(
        score.surplus_calls == 0
        for record in records
        for score in record.score.turn_scores
        if score.due_calls == 0 and all(row.expected is None for row in score.calls)
    )


def _recovery(records: Iterable[SampleRecord]) -> Share:
    """Return, of the turns in which a tool returned an error, the share that passed."""
    return share_of(
        score.passed
        for record in records
        for turn, score in zip(record.trajectory.turns, record.score.turn_scores, strict=False)
        if any(call.result.get("status") == "error" for call in turn.calls)
    )


def _state(records: Iterable[SampleRecord]) -> Share:
    """Return the share of correct final states among the checked samples."""
    return share_of(
        record.score.state_equal for record in records if record.score.state_equal is not None
    )


BEHAVIOUR: Mapping[str, Callable[[Sequence[SampleRecord]], Share]] = {
    "restraint": _restraint,
    "recovery": _recovery,
    "state": _state,
}
"""Further scores of valid samples by name; the locales name them in `report.score`."""


def _models(requests: Iterable[ModelCallRecord]) -> tuple[ModelIdentity, ...]:
    """Return the models that answered; one model at several addresses is one identity."""
    identities = dict.fromkeys(request.response.identity for request in requests)
    addresses: dict[ModelIdentity, list[str]] = {}
    for identity in identities:
        if identity is not None:
            addresses.setdefault(replace(identity, base_url=""), []).append(identity.base_url)
    return tuple(replace(model, base_url=" ".join(urls)) for model, urls in addresses.items())


def _grouped(
    records: Sequence[SampleRecord],
    total: Tally,
    names: Callable[[SampleRecord], Iterable[str]],
) -> tuple[Tally, ...]:
    groups: defaultdict[str, list[SampleRecord]] = defaultdict(list)
    for record in records:
        for name in names(record):
            groups[name].append(record)
    return tuple(
        replace(total, name=name) if len(group) == len(records) else tally(name, group)
        for name, group in sorted(groups.items(), key=lambda item: _natural(item[0]))
    )


def _by_criterion(records: Sequence[SampleRecord], total: Tally) -> tuple[Tally, ...]:
    """Return the groups by acceptance criterion; none if no record has one."""
    if not any(record.ac for record in records):
        return ()
    return _grouped(records, total, lambda record: [record.ac or ""])


def _natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Return a sort key that puts AC-2 before AC-10."""
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in parts)


def _expected_tools(record: SampleRecord) -> Iterable[str]:
    """Return the tools that a sample must call; none for an unscored one."""
    if not record.score.turn_scores:
        return ()
    rows = (row for score in record.score.turn_scores for row in score.calls)
    return {row.tool for row in rows if row.tool and not row.optional} or {NO_CALL}


def _by_scenario(
    records: Iterable[SampleRecord], key: str = "scenario"
) -> Iterable[Sequence[SampleRecord]]:
    """Return the valid samples of each scenario, or of each of its wordings by the key `name`."""
    groups: defaultdict[str, list[SampleRecord]] = defaultdict(list)
    for record in records:
        if record.is_valid:
            groups[getattr(record.sample_id, key)].append(record)
    return groups.values()


def _has_wordings(group: Sequence[SampleRecord]) -> bool:
    return len({record.sample_id.wording for record in group}) > 1


def _calls(record: SampleRecord) -> tuple[tuple[tuple[str, str], ...], ...]:
    return tuple(
        tuple((call.tool, json_or_repr(call.raw_args, sort_keys=True)) for call in turn.calls)
        for turn in record.trajectory.turns
    )


def _texts(record: SampleRecord) -> tuple[str, ...]:
    return tuple(request.response.raw_text for request in record.trajectory.requests)


def _violation_counts(records: Sequence[SampleRecord], severity: Severity) -> Mapping[str, int]:
    counts = Counter(
        v.code for record in records for v in record.score.violations if v.severity is severity
    )
    return dict(sorted(counts.items()))


def unexpected_writes(record: SampleRecord) -> Iterator[CallRecord]:
    """Yield the confirmed or rejected writes that match no expected call of their turn."""
    for turn, score in zip(record.trajectory.turns, record.score.turn_scores, strict=False):
        matched = {
            row.actual
            for row in score.calls
            if row.expected is not None and all(argument.ok for argument in row.arguments)
        }
        for number, call in enumerate(turn.calls):
            if call.gate.is_answer and number not in matched:
                yield call
