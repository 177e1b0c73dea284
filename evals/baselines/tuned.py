"""What tuning is worth, as a page and a picture: `tuned.md`, `tuned.svg` and `tuned.png`.

Reads the run folders of `lhkit matrix evals/tuned.toml` and `lhkit matrix evals/tuned-test.toml`.
Counts nothing itself: rates, intervals and p-values are those of `lhkit compare`.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lhkit.errors import LhkitError
from lhkit.harness.compare import compare
from lhkit.harness.metrics import Summary, Tally
from lhkit.harness.pairs import Comparison, Pair
from lhkit.harness.results import Run
from lhkit.locales import load_catalog

FOLDER = Path(__file__).parent
SPLITS = {"dev": "tuned", "test": "tuned-test"}
ARMS = ("gemma-base-off", "gemma-base-auto", "gemma-off", "gemma-auto")
PAIRS = (
    ("gemma-base-off", "gemma-off"),
    ("gemma-base-auto", "gemma-auto"),
    ("gemma-base-off", "gemma-base-auto"),
    ("gemma-off", "gemma-auto"),
)
NOTHING = "–"
LEAST_P = 0.001
COLOURS = ("#d5dae0", "#aab2bd", "#a9c9f1", "#5b97e5")
PIXELS_PER_UNIT = 2
LOCALE = load_catalog("en")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The arms of one split: their runs, and the same in numbers."""

    name: str
    runs: Mapping[str, Run]
    summaries: Mapping[str, Summary]

    @classmethod
    def load(cls, name: str, folder: Path) -> "Split":
        """Return the split whose arms lie in a folder; RunError if one is not there."""
        runs = {arm: Run.load(folder / arm) for arm in ARMS}
        return cls(
            name=name,
            runs=runs,
            summaries={arm: run.summary() for arm, run in runs.items()},
        )


def percent(share: float | None) -> str:
    """Return a share (0..1) as a percentage."""
    return NOTHING if share is None else f"{100 * share:.0f} %"


def rate(tally: Tally) -> str:
    """Return how many passed, with the 95 % interval."""
    ends = tally.interval
    shown = f" [{100 * ends.low:.0f}–{100 * ends.high:.0f}]" if ends else ""
    return f"{tally.passed}/{tally.valid}, {percent(tally.pass_rate)}{shown}"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(map(str, row))} |"
    yield ""


def arms_table(split: Split) -> Iterator[str]:
    """Yield each arm's totals."""
    head = (
        *("arm", "passed [95 %]", "right calls", "right tool (F1)", "no call where none is due"),
        *("violations blocked / happened", "turn p50 / p95", "answers that differ among repeats"),
    )
    yield from table(head, [_arm(arm, split.summaries[arm]) for arm in ARMS])


def _arm(name: str, summary: Summary) -> tuple[object, ...]:
    total = summary.total
    turn = (total.turn.p50_s, total.turn.p95_s)
    times = " / ".join(NOTHING if each is None else f"{each:.1f}" for each in turn)
    return (
        f"`{name}`",
        rate(total),
        f"{total.right_calls}/{total.counted_calls}, {percent(total.tool_accuracy)}",
        percent(total.selection.f1),
        f"{total.restraint.part}/{total.restraint.whole}",
        f"{sum(total.attempted.values())} / {sum(total.escaped.values())}",
        f"{times} s",
        f"{summary.flips.texts} of {summary.flips.scenarios}; verdicts {summary.flips.verdicts}",
    )


def pairs_table(split: Split) -> Iterator[str]:
    """Yield how the arms differ, pair by pair."""
    head = ("from → to", "points [95 %]", "lost / gained", "McNemar, exact", "time of turns")
    rows = [_pair(compare(split.runs[a], split.runs[b])) for a, b in PAIRS]
    yield from table(head, rows)


def _pair(found: Comparison) -> tuple[object, ...]:
    ends = found.interval
    shown = f" [{100 * ends.low:+.0f} … {100 * ends.high:+.0f}]" if ends else ""
    turn = found.turn
    return (
        f"`{found.name_a}` → `{found.name_b}`",
        f"{100 * (found.difference or 0):+.1f}{shown}",
        f"{_scenarios(found.lost)} / {_scenarios(found.gained)}",
        f"p = {found.p_value:.3f}" if found.p_value >= LEAST_P else f"p < {LEAST_P}",
        f"x{turn.median:.2f} ({turn.interval.low:.2f} … {turn.interval.high:.2f})"
        if turn
        else NOTHING,
    )


def _scenarios(pairs: Sequence[Pair]) -> str:
    names = {pair.sample_id.scenario for pair in pairs}
    return f"{len(names)} ({len(pairs)})"


def criteria_table(split: Split) -> Iterator[str]:
    """Yield what passed by criterion, in each arm."""
    passed = {
        arm: {tally.name: f"{tally.passed}/{tally.valid}" for tally in summary.by_ac}
        for arm, summary in split.summaries.items()
    }
    names = [tally.name for tally in split.summaries[ARMS[0]].by_ac]
    rows = [(_criterion(name), *(passed[arm].get(name, NOTHING) for arm in ARMS)) for name in names]
    yield from table(("criterion", *(f"`{arm}`" for arm in ARMS)), rows)


def _criterion(name: str) -> str:
    return f"{name} {LOCALE.text(f'ac.{name}')}"


def violations_table(split: Split) -> Iterator[str]:
    """Yield the violations of each arm, by code."""
    counts = {
        arm: {
            (kind, code): count
            for kind, codes in (
                ("blocked", summary.total.attempted),
                ("happened", summary.total.escaped),
            )
            for code, count in codes.items()
        }
        for arm, summary in split.summaries.items()
    }
    keys = sorted({key for found in counts.values() for key in found})
    rows = [
        (f"{kind}: {code}", *(counts[a].get((kind, code), 0) for a in ARMS)) for kind, code in keys
    ]
    yield from table(("violation", *(f"`{arm}`" for arm in ARMS)), rows)


def page(splits: Sequence[Split]) -> str:
    """Return the page in Markdown."""
    lines = ["# What tuning is worth", "", f"{_intro(splits)}", ""]
    lines += ["![Pass rates by criterion, arm and split, with 95 % intervals](tuned.png)", ""]
    for split in splits:
        count = len({record.sample_id.scenario for record in split.runs[ARMS[0]].records})
        lines += [f"## `{split.name}`: {count} scenarios", "", *arms_table(split)]
        lines += ["In pairs; lost and gained are scenarios, and repeats in parentheses:", ""]
        lines += [*pairs_table(split), *criteria_table(split), *violations_table(split)]
    return "\n".join(lines).rstrip() + "\n"


def _intro(splits: Sequence[Split]) -> str:
    (model,) = splits[0].summaries["gemma-off"].models
    return (
        "The bare embedded Gemma (`gemma-base`) and the one with lhkit's adapter (`gemma`), "
        "decoded freely (`off`)\nand with calls held to a grammar (`auto`). Greedy, "
        f"{splits[0].summaries['gemma-off'].total.repeats.k} repeats, {model.server}, weights\n"
        f"`{model.weights}`. What follows from it stands in [gemma.md](gemma.md). The arms were\n"
        "played one after the other, so that times hold what else the machine did meanwhile.\n\n"
        "```console\nlhkit matrix evals/tuned.toml\nlhkit matrix evals/tuned-test.toml\n"
        "python evals/baselines/tuned.py\n```"
    )


def bars(splits: Sequence[Split]) -> list[dict[str, Any]]:
    """Return one row a bar: split, criterion, arm, rate and interval in percent."""
    return [
        {
            "split": split.name,
            "criterion": name,
            "arm": arm,
            "passed": 100 * tally.pass_rate,
            "low": 100 * tally.interval.low,
            "high": 100 * tally.interval.high,
        }
        for split in splits
        for arm, summary in split.summaries.items()
        for name, tally in [
            ("all", summary.total),
            *((_criterion(each.name), each) for each in summary.by_ac),
        ]
        if tally.pass_rate is not None and tally.interval is not None
    ]


def chart(splits: Sequence[Split]) -> Any:
    """Return the picture: criteria below each other, splits side by side."""
    import altair as alt

    rows = bars(splits)
    order = list(dict.fromkeys(row["criterion"] for row in rows))
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("criterion:N", sort=order, title=None, axis=alt.Axis(labelLimit=220)),
        yOffset=alt.YOffset("arm:N", sort=list(ARMS)),
    )
    scale = alt.Scale(domain=list(ARMS), range=list(COLOURS))
    bar = base.mark_bar().encode(
        x=alt.X("passed:Q", title="passed, % (line: 95 %)", scale=alt.Scale(domain=[0, 100])),
        color=alt.Color("arm:N", scale=scale, sort=list(ARMS), legend=alt.Legend(orient="top")),
    )
    line = base.mark_rule(color="#1c2128").encode(x="low:Q", x2="high:Q")
    panel = alt.layer(bar, line).properties(width=300, height=alt.Step(7))
    return panel.facet(
        column=alt.Column("split:N", sort=[split.name for split in splits], title=None)
    )


def draw(splits: Sequence[Split], folder: Path) -> None:
    """Write the picture as SVG and PNG, dark on white."""
    import vl_convert  # noqa: PLC0415 - heavy

    specification = chart(splits).properties(background="white").to_json()
    svg = str(vl_convert.vegalite_to_svg(specification))
    (folder / "tuned.svg").write_text(svg + "\n", encoding="utf-8")
    (folder / "tuned.png").write_bytes(
        vl_convert.vegalite_to_png(specification, scale=PIXELS_PER_UNIT)
    )


def main(arguments: Sequence[str]) -> int:
    """Write page and picture; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="where the arms are")
    parser.add_argument("--into", type=Path, default=FOLDER, help="where page and picture go")
    asked = parser.parse_args(arguments)
    try:
        splits = [Split.load(name, asked.runs_dir / folder) for name, folder in SPLITS.items()]
    except LhkitError as error:
        commands = " and ".join(f"lhkit matrix evals/{each}.toml" for each in SPLITS.values())
        print(f"{error}. Play the arms first: {commands}", file=sys.stderr)
        return 1
    draw(splits, asked.into)
    (asked.into / "tuned.md").write_text(page(splits), encoding="utf-8")
    print(f"wrote {asked.into / 'tuned.md'}, tuned.svg, tuned.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
