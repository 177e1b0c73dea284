"""A comparison for the terminal: a table, the flips with both conversations, a sentence.

Fits 100 columns and means the same without colour.
"""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lhkit.harness.divergence import first_divergence
from lhkit.harness.manifest_changes import Change
from lhkit.harness.pairs import Comparison, Pair, Ratio
from lhkit.harness.record import SampleId, SampleRecord
from lhkit.harness.report.terminal import WIDTH
from lhkit.harness.words import difference_words, divergence_words, votes_words
from lhkit.json_values import json_or_repr
from lhkit.locales import Catalog
from lhkit.text import one_line, p_value, part_of, printable

_SHOWN_FLIPS = 10
_SHOWN_NAMES = 5
_SHOWN_CHARS = 160


def comparison_table(comparison: Comparison, catalog: Catalog) -> Group:
    """Return the whole comparison, the sentence last."""
    parts: list[RenderableType] = [_table(comparison, catalog)]
    parts += [Text(printable(line)) for line in notes(comparison, catalog)]
    parts += [Text(printable(line)) for line in _flips(comparison, catalog)]
    parts.append(Text(printable(sentence(comparison, catalog)), style="bold"))
    return Group(*parts)


def sentence(comparison: Comparison, catalog: Catalog) -> str:
    """Return what can be said of b against a, in one sentence."""
    return catalog.text(
        f"compare.{comparison.outcome}",
        a=comparison.name_a,
        b=comparison.name_b,
        pairs=len(comparison.pairs),
        difference=difference_words(comparison),
        p=p_value(comparison.p_value),
    )


def notes(comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield what one has to know beside the table: other questions, samples left out, changes."""
    if comparison.other_questions:
        scenarios = first_names(comparison.other_questions)
        count = len(comparison.other_questions)
        yield catalog.text("compare.other_questions", count=count, scenarios=scenarios)
    for key in ("invalid", "only_a", "only_b"):
        samples: tuple[SampleId, ...] = getattr(comparison, key)
        if samples:
            name = comparison.name_b if key == "only_b" else comparison.name_a
            listed = first_names([str(sample) for sample in samples])
            told = "unvoted" if key == "invalid" and comparison.people else key
            yield catalog.text(f"compare.{told}", name=name, count=len(samples), samples=listed)
    for change in comparison.changes:
        if change.what != "scenario":
            yield change_text(change, catalog)


def change_text(change: Change, catalog: Catalog) -> str:
    """Return what was told differently, such as `dialect: json → gemma4`."""
    what = catalog.text(f"change.{change.what}")
    where = f" ({change.where})" if change.where else ""
    return f"{what}{where}: {change.before} → {change.after}"


def _table(comparison: Comparison, catalog: Catalog) -> Table:
    table = Table(width=WIDTH)
    table.add_column("", ratio=1, overflow="fold")
    for name in (comparison.name_a, comparison.name_b):
        table.add_column(escape(printable(name)), justify="right", overflow="fold")
    table.add_column(catalog.text("compare.difference"), justify="right", overflow="fold")
    for row in _rows(comparison, catalog):
        table.add_row(*(escape(printable(cell)) for cell in row))
    return table


def _rows(comparison: Comparison, catalog: Catalog) -> Iterator[tuple[str, str, str, str]]:
    n = len(comparison.pairs)
    a, b = (part_of(passed, n) for passed in (comparison.passed_a, comparison.passed_b))
    yield catalog.text("compare.pass_rate"), a, b, difference_words(comparison)
    gained, lost = len(comparison.gained), len(comparison.lost)
    yield catalog.text("compare.flips"), "", "", f"-{lost} · +{gained}"
    said = f"p {p_value(comparison.p_value)}, mid-p {p_value(comparison.mid_p)}"
    yield catalog.text("compare.mcnemar"), "", "", said
    for votes in comparison.people:
        label = catalog.text("compare.votes", person=votes.person, count=votes.votes)
        yield label, str(votes.preferred_a), str(votes.preferred_b), votes_words(votes)
    for key in ("turn", "first_token", "call_ready"):
        ratio: Ratio | None = getattr(comparison, key)
        if ratio is not None:
            yield catalog.text(f"compare.{key}"), "", "", _ratio(ratio)
    for each in comparison.violations:
        label = f"{catalog.text(f'compare.{each.severity}')}: {each.code}"
        yield label, str(each.a), str(each.b), f"{each.b - each.a:+d}"


def _flips(comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield the pairs whose verdicts differ, lost ones first, by scenario."""
    for key, pairs in (("lost", comparison.lost), ("gained", comparison.gained)):
        if pairs:
            yield catalog.text(f"compare.{key}", count=len(pairs))
        shown = _by_scenario(pairs)[:_SHOWN_FLIPS]
        for repeats in shown:
            yield from _flip(repeats, comparison, catalog)
        more = len(pairs) - sum(map(len, shown))
        if more:
            yield "  " + catalog.text("compare.more", count=more)


def _by_scenario(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Return the pairs of each scenario: repeats resemble each other, so one of them is shown."""
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair.sample_id.scenario, []).append(pair)
    return list(found.values())


def _flip(repeats: Sequence[Pair], comparison: Comparison, catalog: Catalog) -> Iterator[str]:
    """Yield which samples flipped, and of the first both conversations and where they diverge."""
    yield "  " + first_names([str(pair.sample_id) for pair in repeats])
    first = repeats[0]
    if found := first_divergence(first.a, first.b):
        yield f"    {divergence_words(found, catalog)}"
        yield f"      {comparison.name_a} · {found.a}"
        yield f"      {comparison.name_b} · {found.b}"
    for name, record in ((comparison.name_a, first.a), (comparison.name_b, first.b)):
        why = f" · {record.judgement.reasons[0]}" if record.judgement.reasons else ""
        yield f"    {name} · {record.judgement.verdict}{why}"
        yield from (
            f"      {one_line(line, max_chars=_SHOWN_CHARS)}" for line in _conversation(record)
        )


def _conversation(record: SampleRecord) -> Iterator[str]:
    for turn in record.evidence.turns:
        yield f"> {turn.user}"
        for call in turn.calls:
            yield f"{call.tool} {json_or_repr(call.raw_args)} → {call.outcome}"
        if turn.reply:
            yield f"< {turn.reply}"


def _ratio(ratio: Ratio) -> str:
    low, high = ratio.interval.low, ratio.interval.high
    return f"x{ratio.median:.2f} ({low:.2f} … {high:.2f}), n = {ratio.n}"


def first_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" … +{more}" if more > 0 else "")
