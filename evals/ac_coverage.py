"""Draws what the scenarios of `datasets/ac` cover, and keeps the figures of their card in step.

Writes `coverage.svg` and the lines between the marks of `card.md`: the matrix of criteria by tool,
by outcome of a call, by language and by trait, and the checksum of the data. `--check` writes
nothing and says whether they are in step. Counts scenarios, from what stands in the files.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from lhkit.harness.loader import load_scenarios
from lhkit.harness.scenario import DIFFICULTIES, Scenario

FOLDER = Path(__file__).parents[1] / "datasets" / "ac"
SVG, CARD = "coverage.svg", "card.md"
BEGIN, END = "<!-- figures: python evals/ac_coverage.py -->", "<!-- /figures -->"
GROUPS = ("split", "tool", "outcome", "language", "trait")
TRAITS_SHOWN = 26


def facts(scenario: Scenario, split: str) -> Iterator[tuple[str, str]]:
    """Yield (group, value) of everything that one scenario covers, each once."""
    wishes = [call for turn in scenario.turns for call in turn.expect.calls]
    given = [call for turn in scenario.turns for call in turn.gold.calls or ()]
    tools = {call.tool for call in (*wishes, *given)}
    outcomes = {call.result for call in wishes if call.result}
    outcomes |= {fault.error for fault in scenario.faults}
    yield "split", split
    yield from (("tool", tool) for tool in tools or {"(no call)"})
    yield from (("outcome", outcome) for outcome in outcomes)
    yield "language", scenario.locale
    yield from (("trait", tag) for tag in set(scenario.tags))


def counted(splits: dict[str, Sequence[Scenario]]) -> Counter[tuple[str, str, str]]:
    """Return how many scenarios cover (criterion, group, value)."""
    return Counter(
        (scenario.ac, group, value)
        for split, scenarios in splits.items()
        for scenario in scenarios
        for group, value in facts(scenario, split)
    )


def rows(counts: Counter[tuple[str, str, str]]) -> list[dict[str, object]]:
    """Return one row a cell; of the traits, the most frequent ones."""
    traits: Counter[str] = Counter()
    for (_, group, value), count in counts.items():
        if group == "trait":
            traits[value] += count
    shown = {trait for trait, _ in traits.most_common(TRAITS_SHOWN)}
    return [
        {"ac": ac, "group": group, "value": value, "scenarios": count}
        for (ac, group, value), count in sorted(counts.items())
        if group != "trait" or value in shown
    ]


def drawn(cells: list[dict[str, object]]) -> str:
    """Return the matrix as SVG."""
    import altair as alt
    import vl_convert

    order = [f"AC-{number}" for number in range(1, 13)]
    panels = []
    for group in GROUPS:
        data = alt.Data(values=[cell for cell in cells if cell["group"] == group])
        base = alt.Chart(data, title=group).encode(
            x=alt.X("value:N", title=None, axis=alt.Axis(labelAngle=-60, orient="bottom")),
            y=alt.Y(
                "ac:N",
                title=None,
                sort=order,
                scale=alt.Scale(domain=order),
                axis=alt.Axis() if group == GROUPS[0] else None,
            ),
        )
        color = alt.Color("scenarios:Q", scale=alt.Scale(scheme="blues"), legend=None)
        is_dark = "datum.scenarios > 12"
        ink = alt.condition(is_dark, alt.value("white"), alt.value("#222"))
        cell = base.mark_rect().encode(color=color)
        figure = base.mark_text(fontSize=9).encode(text="scenarios:Q", color=ink)
        panels.append(alt.layer(cell, figure).properties(width=alt.Step(20), height=alt.Step(18)))
    chart = alt.hconcat(*panels, spacing=14).resolve_scale(color="shared", y="shared")
    return str(vl_convert.vegalite_to_svg(chart.to_json()))


def figures(splits: dict[str, Sequence[Scenario]]) -> str:
    """Return the card's lines: counts by criterion and split, and the checksum."""
    counts = Counter((each.ac, split) for split, scenarios in splits.items() for each in scenarios)
    names = list(splits)
    lines = [f"| criterion | {' | '.join(names)} | all |", "|---" * (len(names) + 2) + "|"]
    for ac in sorted({ac for ac, _ in counts}, key=lambda name: int(name.split("-")[1])):
        numbers = [counts[ac, split] for split in names]
        lines.append(f"| {ac} | {' | '.join(map(str, numbers))} | {sum(numbers)} |")
    totals = [len(splits[split]) for split in names]
    everything = [each for some in splits.values() for each in some]
    languages = Counter(each.locale for each in everything)
    spoken = ", ".join(f"{name} {number}" for name, number in sorted(languages.items()))
    turns = sum(len(each.turns) for each in everything)
    difficulty = (
        f"{name} {sum(name in each.tags for each in everything)} ("
        + ", ".join(f"{s} {sum(name in each.tags for each in splits[s])}" for s in names)
        + ")"
        for name in DIFFICULTIES
    )
    return "\n".join(
        [
            *lines,
            f"| all | {' | '.join(map(str, totals))} | {sum(totals)} |",
            "",
            f"Languages: {spoken}. User turns: {turns}. Difficulty: {', '.join(difficulty)}.",
            "",
            "![Scenarios by criterion and tool, outcome, language and trait](coverage.svg)",
            "",
            f"SHA-256 of the data: `{checksum(FOLDER)}`",
        ]
    )


def with_figures(card: str, lines: str) -> str:
    """Return the card with its figures anew; they go to the end where there is no mark."""
    if BEGIN not in card:
        card = f"{card.rstrip()}\n\n## Figures\n{BEGIN}\n{END}\n"
    head, rest = card.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    return f"{head}{BEGIN}\n{lines}\n{END}{tail}"


def checksum(folder: Path) -> str:
    """Return the SHA-256 (hex) of all scenario files in a folder: their names and their bytes.

    Files count in order of their path; line endings count, too.
    """
    digest = hashlib.sha256()
    for file in _data_files(folder):
        name, content = file.relative_to(folder).as_posix(), file.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _data_files(folder: Path) -> Iterator[Path]:
    yield from sorted(each for each in folder.rglob("*") if each.suffix in {".yaml", ".toml"})


def main() -> int:
    """Write, or only check; return the exit code."""
    folders = sorted(each for each in FOLDER.iterdir() if any(each.glob("*.yaml")))
    splits = {folder.name: load_scenarios([folder]) for folder in folders}
    card = (FOLDER / CARD).read_text(encoding="utf-8")
    wanted = with_figures(card, figures(splits))
    mark = f"<!-- data {checksum(FOLDER)} -->"
    if "--check" in sys.argv[1:]:
        is_drawn = (FOLDER / SVG).read_text(encoding="utf-8").endswith(f"{mark}\n")
        in_step = card == wanted and is_drawn
        advice = "out of date: run python evals/ac_coverage.py"
        print(f"{CARD} and {SVG} are {'in step' if in_step else advice}")
        return int(not in_step)
    (FOLDER / CARD).write_text(wanted, encoding="utf-8")
    (FOLDER / SVG).write_text(f"{drawn(rows(counted(splits)))}{mark}\n", encoding="utf-8")
    print(f"{FOLDER / SVG}: {sum(map(len, splits.values()))} scenarios")
    return 0


if __name__ == "__main__":
    sys.exit(main())
