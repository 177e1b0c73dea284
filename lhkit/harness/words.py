"""Scores and comparisons in words, the same in the terminal, in Markdown and in HTML."""

from collections.abc import Iterable, Iterator

from lhkit.harness.divergence import Divergence
from lhkit.harness.metrics import Summary
from lhkit.harness.pairs import Comparison, PersonVotes
from lhkit.harness.record import FalseClaim, SampleId, TurnRecord
from lhkit.harness.scoring.claim_model import shipped_model
from lhkit.harness.shares import Interval
from lhkit.harness.timings import Spent
from lhkit.locales import Catalog
from lhkit.settings import DEFAULT_TOOLSET
from lhkit.text import NOTHING, one_line, p_value, part_of, percent, percents, points, seconds

_CLAIM_CHARS = 160


def names_of_new(turn: TurnRecord) -> str:
    """Return the names of the tools that came in a turn, for the requests after it."""
    return ", ".join(str(tool["name"]) for tool in turn.new_tools)


def card_words(summary: Summary, catalog: Catalog) -> str:
    """Return what the card is worth: wrong writes asked for, stopped, done, with intervals."""
    gate = summary.confirm
    return catalog.text(
        "table.card_line",
        wrong=_part_within(gate.wrong, gate.asked, gate.wrong_interval),
        stopped=_part_within(gate.wrong_stopped, gate.wrong, gate.stopped_interval),
        done=_part_within(gate.wrong_done, gate.wrong, gate.done_interval),
    )


def claims_words(summary: Summary, catalog: Catalog) -> str:
    """Return how many replies were flagged, and what the check is worth."""
    model = shipped_model()
    return catalog.text(
        "table.claims_line",
        count=summary.confirm.false_claims,
        precision=percent(model.precision),
        recall=percent(model.recall),
    )


def claim_why(claim: FalseClaim, catalog: Catalog) -> str:
    """Return the probability of a flag, or that the words are a tool's own."""
    own = catalog.text("table.claim_own")
    return own if claim.probability is None else percent(claim.probability)


def _part_within(part: int, whole: int, interval: Interval | None) -> str:
    """Return a count with its share and the interval of that, such as `2/31 6% [2–21]`."""
    ends = "" if interval is None else f" [{percents(interval.low, interval.high)}]"
    return f"{part_of(part, whole)}{ends}"


def criterion_words(names: Iterable[str], toolset: str, catalog: Catalog) -> dict[str, str]:
    """Return a few words for each acceptance criterion; none for those of another toolset."""
    is_ours = toolset == DEFAULT_TOOLSET
    return {name: catalog.texts.get(f"ac.{name}", "") if is_ours else "" for name in names}


def interval_words(interval: Interval | None) -> str:
    """Return an interval of a share, such as `41–78%`; empty where there is none."""
    return "" if interval is None else f"{percents(interval.low, interval.high)}%"


def numbers(compared: Comparison, catalog: Catalog) -> Iterator[tuple[str, str, str, str]]:
    """Yield what the table says: name, a, b, difference."""
    n = len(compared.pairs)
    text = catalog.text
    a, b = (part_of(passed, n) for passed in (compared.passed_a, compared.passed_b))
    yield text("compare.pass_rate"), a, b, difference_words(compared)
    lost, gained = len(compared.lost), len(compared.gained)
    yield text("compare.flips"), f"−{lost}", f"+{gained}", f"{gained - lost:+d}"
    yield text("compare.mcnemar"), "", "", f"p {p_value(compared.p_value)}"
    for each in compared.people:
        label = text("compare.votes", person=each.person, count=each.votes)
        yield label, str(each.preferred_a), str(each.preferred_b), votes_words(each)


def difference_words(comparison: Comparison) -> str:
    """Return the difference of the pass rates in points, with its interval."""
    if comparison.difference is None:
        return NOTHING
    return _with_ends(comparison.difference, comparison.interval)


def divergence_words(found: Divergence, catalog: Catalog) -> str:
    """Return the place where two conversations diverge."""
    place = {"turn": found.turn + 1, "message": found.message + 1}
    if found.token is None:
        return catalog.text("compare.divergence", **place)
    return catalog.text("compare.divergence_token", **place, token=found.token + 1)


def votes_words(votes: PersonVotes) -> str:
    """Return the difference of one person's preferences in points, with interval and test."""
    return f"{_with_ends(votes.difference, votes.interval)}, p {p_value(votes.p_value)}"


def _with_ends(difference: float, interval: Interval | None) -> str:
    ends = "" if interval is None else f" ({points(interval.low)} … {points(interval.high)})"
    return f"{points(difference)}{ends}"


def claim_words(sample: SampleId, claim: FalseClaim, catalog: Catalog) -> str:
    """Return a flagged reply: its sample and turn, the words, and their probability."""
    return catalog.text(
        "table.claim_line",
        sample=sample,
        turn=claim.turn,
        words=one_line(claim.words, max_chars=_CLAIM_CHARS),
        why=claim_why(claim, catalog),
    )


def spent_words(spent: Spent, catalog: Catalog) -> str:
    """Return where the wall time went, and which share of it was not the model's."""
    return catalog.text(
        "table.spent_line",
        wall=seconds(spent.wall_s),
        share=percent(spent.own_share),
        setup=seconds(spent.setup_s),
        server=seconds(spent.server_s),
        harness=seconds(spent.harness_s),
        writing=seconds(spent.writing_s),
    )
