"""A comparison in words: one table, the flips with both conversations, one sentence of verdict.

For the terminal: fits 100 columns and means the same without colour.
"""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lhkit.harness.records.questions import Change
from lhkit.harness.records.record import SampleId, SampleRecord
from lhkit.harness.results.compare import Comparison, Pair, Ratio
from lhkit.locales import Catalog
from lhkit.vocab.json_values import compact
from lhkit.vocab.printable import printable

WIDTH = 100

_SHOWN_FLIPS = 10
_SHOWN_NAMES = 5
_SHOWN_CHARS = 160
_NOTHING = "–"
_SMALLEST_P = 0.001


def render(comparison: Comparison, catalog: Catalog) -> Group:
    """Return the whole comparison, the sentence last."""
    parts: list[RenderableType] = [_table(comparison, catalog)]
    parts += [Text(printable(line)) for line in notes(comparison, catalog)]
    parts += [Text(printable(line)) for line in _flips(comparison, catalog)]
    parts.append(Text(printable(sentence(comparison, catalog)), style="bold"))
    return Group(*parts)


def sentence(comparison: Comparison, catalog: Catalog) -> str:
    """Return what can be said of b against a, in one sentence."""
    key = comparison.outcome
    if key == "no_difference" and comparison.detectable is None:
        key_text = "compare.too_few"
    else:
        key_text = f"compare.{key}"
    return catalog.text(
        key_text,
        a=comparison.name_a,
        b=comparison.name_b,
        pairs=len(comparison.pairs),
        difference=_difference(comparison),
        p=p_text(comparison.p_value),
        detectable=f"{100 * (comparison.detectable or 0):.0f}",
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
            yield catalog.text(f"compare.{key}", name=name, count=len(samples), samples=listed)
    for change in comparison.changes:
        if change.what != "scenario":
            yield change_text(change, catalog)


def change_text(change: Change, catalog: Catalog) -> str:
    """Return what was told differently, such as `dialect: json → gemma4`."""
    what = catalog.text(f"change.{change.what}")
    where = f" ({change.where})" if change.where else ""
    return f"{what}{where}: {change.before} → {change.after}"


def p_text(p_value: float) -> str:
    """Return a p-value with three digits."""
    return f"< {_SMALLEST_P}" if p_value < _SMALLEST_P else f"= {p_value:.3f}"


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
    a, b = (_share(passed, n) for passed in (comparison.passed_a, comparison.passed_b))
    yield catalog.text("compare.pass_rate"), a, b, _difference(comparison)
    gained, lost = len(comparison.gained), len(comparison.lost)
    yield catalog.text("compare.flips"), "", "", f"-{lost} · +{gained}"
    said = f"p {p_text(comparison.p_value)}, mid-p {p_text(comparison.mid_p)}"
    yield catalog.text("compare.mcnemar"), "", "", said
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
            yield from _flip(repeats, comparison)
        more = len(pairs) - sum(map(len, shown))
        if more:
            yield "  " + catalog.text("compare.more", count=more)


def _by_scenario(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Return the pairs of each scenario: repeats resemble each other, so one of them is shown."""
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair.sample_id.scenario, []).append(pair)
    return list(found.values())


def _flip(repeats: Sequence[Pair], comparison: Comparison) -> Iterator[str]:
    """Yield which samples flipped, and both conversations of the first."""
    yield "  " + first_names([str(pair.sample_id) for pair in repeats])
    first = repeats[0]
    for name, record in ((comparison.name_a, first.a), (comparison.name_b, first.b)):
        why = f" · {record.reasons[0]}" if record.reasons else ""
        yield f"    {name} · {record.verdict}{why}"
        yield from (f"      {_cut(line)}" for line in _conversation(record))


def _conversation(record: SampleRecord) -> Iterator[str]:
    for turn in record.turns:
        yield f"> {turn.user}"
        for call in turn.calls:
            yield f"{call.tool} {_args(call.raw_args)} → {call.outcome}"
        if turn.reply:
            yield f"< {turn.reply}"


def _args(raw_args: object) -> str:
    try:
        return compact(raw_args)
    except ValueError:
        return repr(raw_args)


def _cut(line: str) -> str:
    flat = " ".join(line.split())
    return flat if len(flat) <= _SHOWN_CHARS else f"{flat[: _SHOWN_CHARS - 1]}…"


def _difference(comparison: Comparison) -> str:
    if comparison.difference is None or comparison.interval is None:
        return _NOTHING
    low, high = (100 * end for end in (comparison.interval.low, comparison.interval.high))
    return f"{100 * comparison.difference:+.1f} ({low:+.1f} … {high:+.1f})"


def _ratio(ratio: Ratio) -> str:
    low, high = ratio.interval.low, ratio.interval.high
    return f"x{ratio.median:.2f} ({low:.2f} … {high:.2f}), n = {ratio.n}"


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole} {part / whole:.0%}" if whole else _NOTHING


def first_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" … +{more}" if more > 0 else "")
