"""Parity in words: for the terminal, a page and a pull request."""

from collections.abc import Callable, Iterator
from html import escape as html_escape
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lhkit.harness.html import (
    Html,
    join,
    label,
    numbers,
    numbers_table,
    pair_row,
    tag,
    tile_list,
)
from lhkit.harness.html import table as html_table
from lhkit.harness.parity import CallKind, Divergence, FoundCause, Parity, Speed
from lhkit.harness.record import SampleId, Verdict
from lhkit.harness.report.page import Section, rendered
from lhkit.harness.report.terminal import WIDTH, notes, sentence
from lhkit.harness.report.text import cell, code, row_of
from lhkit.harness.timings import Latency
from lhkit.locales import Catalog
from lhkit.text import NOTHING, megabytes, one_line, part_of, printable, seconds

_SHOWN = 10
_SHOWN_IN_MARKDOWN = 20
_SHOWN_CHARS = 160
_FOOTPRINT: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("start", "start_s", seconds),
    ("memory", "memory_bytes", megabytes),
    ("size", "weights_bytes", megabytes),
)
"""What a server took: its text, the field, and its words."""


def parity_table(told: Parity, catalog: Catalog) -> Group:
    """Return all of it for a terminal: numbers, causes, the first differing replies, a sentence."""
    compared = told.comparison
    table = Table(width=WIDTH)
    table.add_column("", ratio=1, overflow="fold")
    for name in (compared.name_a, compared.name_b):
        table.add_column(escape(printable(name)), justify="right", overflow="fold")
    table.add_column(catalog.text("compare.difference"), justify="right", overflow="fold")
    for row in (*numbers(compared, catalog), *_speeds(told, catalog)):
        table.add_row(*(escape(printable(each)) for each in row))
    parts: list[RenderableType] = [table]
    lines = [*facts_of(told, catalog), *_replies(told, catalog)]
    parts += [Text(printable(line)) for line in lines]
    parts.append(Text(printable(sentence(compared, catalog)), style="bold"))
    return Group(*parts)


def facts_of(told: Parity, catalog: Catalog) -> Iterator[str]:
    """Yield what is the same, what differs in kind, what is proven of why, and what is not known.

    One sentence each.
    """
    compared, text = told.comparison, catalog.text
    pairs, apart = len(compared.pairs), len(told.divergences)
    yield text("parity.same", same=part_of(pairs - apart, pairs), replies=told.replies)
    if told.calls:
        kinds = (f"{text(f'parity.call.{kind}')} {count}" for kind, count in told.calls.items())
        yield text("parity.calls", kinds=", ".join(kinds))
    yield from notes(compared, catalog)
    for counts in (told.prompts, told.ends):
        for finding, count in counts.items():
            yield text("parity.found", cause=_cause(finding, told, catalog), count=count)
    for more, count in sorted(told.more_tokens.items()):
        name = compared.name_b
        yield text("parity.more_tokens", more=f"{more:+d}", count=count, name=name)
    ties = [each.is_tie for each in told.divergences if each.is_tie is not None]
    if ties:
        yield text("parity.ties", ties=part_of(sum(ties), len(ties)), server=told.asked)
    yield from _of_forced(told, catalog)
    if told.unknown:
        yield not_known(told, catalog)


def _of_forced(told: Parity, catalog: Catalog) -> Iterator[str]:
    """Yield what servers say of the first run's replies."""
    text, name = catalog.text, told.comparison.name_a
    for read in told.forced:
        yield text(
            "parity.forced",
            server=read.server,
            name=name,
            replies=read.replies,
            agreed=part_of(read.agreed, read.tokens),
            others=read.tokens - read.agreed,
            ties=read.ties,
        )
        if read.other_sampler:
            yield text("parity.other_sampler", name=name, count=read.other_sampler)


def not_known(told: Parity, catalog: Catalog) -> str:
    """Return what the records do not say, in words that are all ours."""
    what = ", ".join(catalog.text(f"parity.unknown.{each}") for each in told.unknown)
    return catalog.text("parity.not_known", what=what)


def _cause(finding: FoundCause, told: Parity, catalog: Catalog) -> str:
    names = {"a": told.comparison.name_a, "b": told.comparison.name_b}
    name = names[finding.side] if finding.side else ""
    return catalog.text(f"parity.cause.{finding.cause}", name=name)


def _speeds(told: Parity, catalog: Catalog) -> Iterator[tuple[str, str, str, str]]:
    """Yield times and footprints of both sides beside each other, and b's by a's."""
    a, b = told.speeds
    ratios = {"first_token": told.comparison.first_token, "turn": told.comparison.turn}
    for name, one, other in (
        ("first_token", a.first_token, b.first_token),
        ("turn", a.turn, b.turn),
    ):
        if one.n or other.n:
            ratio = ratios[name]
            told_as = f"x{ratio.median:.2f}" if ratio else ""
            yield catalog.text(f"parity.{name}"), _halves(one), _halves(other), told_as
    if a.tokens_per_s or b.tokens_per_s:
        yield catalog.text("parity.tokens_per_s"), _rate(a), _rate(b), _times_as_many(a, b)

    for key, name, words in _FOOTPRINT:
        one, other = (getattr(each, name) for each in told.footprints)
        if one is not None or other is not None:
            times_as = f"x{other / one:.2f}" if one and other is not None else ""
            yield catalog.text(f"parity.{key}"), words(one), words(other), times_as


def _halves(each: Latency) -> str:
    return f"{seconds(each.p50_s)} / {seconds(each.p95_s)}"


def _rate(speed: Speed) -> str:
    return f"{speed.tokens_per_s:.1f}" if speed.tokens_per_s else NOTHING


def _times_as_many(a: Speed, b: Speed) -> str:
    return f"x{b.tokens_per_s / a.tokens_per_s:.2f}" if a.tokens_per_s and b.tokens_per_s else ""


def _replies(told: Parity, catalog: Catalog) -> Iterator[str]:
    """Yield the first differing reply of some samples, those with another verdict first."""
    if told.divergences:
        yield catalog.text("parity.apart", count=len(told.divergences))
    shown = _flips_first(told)[:_SHOWN]
    for each in shown:
        yield f"  {_where(each, told, catalog)}"
        if each.before:
            yield f"    {one_line(each.before, max_chars=_SHOWN_CHARS)} …"
        yield from (f"    {line}" for line in _sides(each, told, catalog))
    if more := len(told.divergences) - len(shown):
        yield "  " + catalog.text("compare.more", count=more)


def _flips_first(told: Parity) -> list[Divergence]:
    return sorted(told.divergences, key=lambda each: _verdicts(told)[each.sample_id][2])


def _verdicts(told: Parity) -> dict[SampleId, tuple[Verdict, Verdict, bool]]:
    """Return both verdicts of each sample, and whether they are the same."""
    return {
        pair.sample_id: (
            pair.a.judgement.verdict,
            pair.b.judgement.verdict,
            not pair.gain,
        )
        for pair in told.comparison.pairs
    }


def _where(each: Divergence, told: Parity, catalog: Catalog) -> str:
    """Return sample, verdicts, place, kind and causes of a difference on one line."""
    text = catalog.text
    a, b, is_same = _verdicts(told)[each.sample_id]
    key = "parity.at_char" if each.token is None else "parity.at_token"
    ids = " / ".join("–" if token is None else str(token) for token in each.ids)
    return " · ".join(
        [
            str(each.sample_id),
            f"{a}" if is_same else f"{a} → {b}",
            text(key, turn=each.turn + 1, reply=each.request + 1, token=each.token, ids=ids,
                 chars=each.chars),
            text(f"parity.call.{each.calls}"),
            *(_cause(finding, told, catalog) for finding in each.findings),
            *([_odds(each, catalog)] if each.odds else []),
        ]
    )  # fmt: skip


def _odds(each: Divergence, catalog: Catalog) -> str:
    shown = (NOTHING if odds is None else f"{odds:.2f}" for odds in each.odds or ())
    return catalog.text("parity.tie" if each.is_tie else "parity.odds", odds=" / ".join(shown))


def _sides(each: Divergence, told: Parity, catalog: Catalog) -> Iterator[str]:
    names = (told.comparison.name_a, told.comparison.name_b)
    for name, said, reason in zip(names, each.said, each.reasons, strict=True):
        shown = one_line(said, max_chars=_SHOWN_CHARS) or catalog.text("parity.nothing")
        yield f"{name}: {shown} [{reason}]"


# The same as Markdown. What we did not write stands in code spans.


def parity_markdown(told: Parity, catalog: Catalog) -> str:
    """Return it for a pull request."""
    compared, text = told.comparison, catalog.text
    unknown = not_known(told, catalog)
    proven = [line for line in facts_of(told, catalog) if line != unknown]
    lines = [
        f"## {text('parity.title', a=code(compared.name_a), b=code(compared.name_b))}",
        "",
        row_of(["", cell(compared.name_a), cell(compared.name_b), text("compare.difference")]),
        row_of(["---", "---:", "---:", "---:"]),
        *(row_of(each) for each in (*numbers(compared, catalog), *_speeds(told, catalog))),
        "",
        *(f"- {code(line)}" for line in (sentence(compared, catalog), *proven)),
        *([f"- {html_escape(unknown)}"] if told.unknown else []),
    ]
    shown = _flips_first(told)[:_SHOWN_IN_MARKDOWN]
    if shown:
        lines += ["", f"### {text('parity.apart', count=len(told.divergences))}", ""]
    for each in shown:
        lines.append(f"- {code(_where(each, told, catalog))}")
        lines += [f"  - {code(line)}" for line in _sides(each, told, catalog)]
    if more := len(told.divergences) - len(shown):
        lines.append(f"- {text('compare.more', count=more)}")
    return "\n".join([*lines, ""])


# The same as a page: the samples that came out otherwise open into both transcripts.


def parity_page(told: Parity, catalog: Catalog) -> str:
    """Return one HTML file that needs no network.

    Raises:
        MissingPackageError: jinja2 is not installed.
    """
    compared, text = told.comparison, catalog.text
    parted = {each.sample_id: each for each in told.divergences}
    title = text("parity.title", a=compared.name_a, b=compared.name_b)
    pairs = {pair.sample_id: pair for pair in compared.pairs}
    return rendered(
        catalog,
        title=title,
        tiles=_tiles(told, catalog),
        sections=[
            Section(id=name, title=text(f"parity.{name}"), body=body)
            for name, body in (
                ("verdicts", _verdict_part(told, catalog)),
                ("why", tag("ul", *(tag("li", line) for line in facts_of(told, catalog)))),
                ("speed", _speed_table(told, catalog)),
            )
        ],
        samples_title=text("parity.apart", count=len(told.divergences)),
        samples=[
            pair_row(
                pairs[each.sample_id],
                compared,
                catalog,
                is_inert=True,
                lead=_lead(parted[each.sample_id], told, catalog),
            )
            for each in _flips_first(told)
        ],
    )


def _tiles(told: Parity, catalog: Catalog) -> Html:
    compared = told.comparison
    pairs, apart = len(compared.pairs), len(told.divergences)
    shown = (
        ("parity.tile.flips", str(told.flips), f"−{len(compared.lost)} · +{len(compared.gained)}"),
        ("parity.tile.same", part_of(pairs - apart, pairs), ""),
        ("parity.tile.calls", str(sum(told.calls.values()) - told.calls.get(CallKind.SAME, 0)), ""),
    )
    return tile_list(shown, {"parity.tile.flips"} if told.flips else set(), catalog)


def _verdict_part(told: Parity, catalog: Catalog) -> Html:
    words = tag("p", sentence(told.comparison, catalog))
    return join([words, numbers_table(told.comparison, catalog)])


def _speed_table(told: Parity, catalog: Catalog) -> Html:
    compared = told.comparison
    rows = [
        tag("tr", tag("th", name, scope="row"), *(tag("td", each) for each in cells))
        for name, *cells in _speeds(told, catalog)
    ]
    if not rows:
        return tag("p", catalog.text("parity.no_times"))
    columns = ("", compared.name_a, compared.name_b, catalog.text("parity.ratio"))
    return html_table(columns, rows, caption=catalog.text("parity.speed"))


def _lead(each: Divergence, told: Parity, catalog: Catalog) -> Html:
    """Return where both transcripts part, and how each went on."""
    names = (told.comparison.name_a, told.comparison.name_b)
    nothing = catalog.text("parity.nothing")
    rows = [
        tag(
            "tr",
            tag("th", name, scope="row"),
            tag("td", tag("code", said) if said.strip() else nothing),
            tag("td", reason),
        )
        for name, said, reason in zip(names, each.said, each.reasons, strict=True)
    ]
    columns = ("", catalog.text("parity.went_on"), catalog.text("parity.reason"))
    where = _where(each, told, catalog)
    both = tag("p", label(catalog.text("parity.before")), " ", tag("code", f"… {each.before}"))
    return tag(
        "div",
        tag("p", where),
        *([both] if each.before else []),
        html_table(columns, rows, caption=where),
        class_="lhr-trace",
    )
