"""Tables of a choice on one half of the scenarios, shared by all renderers. Pure."""

from collections.abc import Iterator, Sequence

from lhkit.base.locales import Catalog
from lhkit.base.text import NOTHING, p_value, part_of
from lhkit.harness.figures.halves import Choice
from lhkit.harness.figures.metrics import Summary
from lhkit.harness.views.tables import (
    ARM_FIGURES,
    Cell,
    Table,
    arm_figures,
    difference_text,
    selection_line,
)


def arms_table(arms: Sequence[tuple[str, Summary]], catalog: Catalog, *, title: str) -> Table:
    """Return several runs side by side, without a comparison."""
    lines = dict.fromkeys(selection_line(summary.selection, catalog) for _, summary in arms)
    return Table(
        title=title,
        columns=tuple(Cell(catalog.text(f"matrix.{name}")) for name in ARM_FIGURES),
        rows=tuple(arm_figures(name, summary, catalog) for name, summary in arms),
        notes=(*filter(None, lines), catalog.text("halves.figures")),
    )


def choice_table(choices: Sequence[Choice], catalog: Catalog) -> Table:
    """Return the counts of both halves, the chosen arms, and what the other half says of them."""
    halves = choices[0].halves
    columns = ("arm", "choosing", "reporting", "difference")
    left_out = sum(choice.left_out for choice in choices)
    return Table(
        title=catalog.text("halves.title"),
        columns=tuple(Cell(catalog.text(f"halves.{name}")) for name in columns),
        rows=tuple(row for choice in choices for row in _rows(choice, catalog)),
        notes=(
            catalog.text(
                "halves.caption",
                choosing=len(halves.choosing),
                reporting=len(halves.reporting),
                seed=halves.seed,
            ),
            *([catalog.text("halves.left_out", count=left_out)] if left_out else []),
            *(outcome_line(choice, catalog) for choice in choices),
            *_correction(choices, catalog),
        ),
    )


def _rows(choice: Choice, catalog: Catalog) -> Iterator[tuple[Cell, ...]]:
    for arm in choice.arms:
        is_chosen = arm.name == choice.chosen and choice.choosing > 0
        chosen = f"\n{catalog.text('halves.chosen')}" if is_chosen else ""
        difference = NOTHING
        if is_chosen and choice.difference is not None:
            points = difference_text(choice.difference, choice.interval, digits=0)
            difference = f"{points}\np {p_value(choice.p_value or 0.0).removeprefix('= ')}"
        yield (
            Cell(arm.name, "code"),
            Cell(part_of(arm.choosing, choice.choosing) + chosen),
            Cell(part_of(arm.reporting, choice.reporting)),
            Cell(difference),
        )


def outcome_line(choice: Choice, catalog: Catalog) -> str:
    """Return what the half that did not choose says of the chosen arm."""
    difference = ""
    if choice.difference is not None:
        difference = difference_text(choice.difference, choice.interval)
    return catalog.text(
        f"halves.{choice.outcome}",
        chosen=choice.chosen,
        first=choice.first,
        difference=difference,
        p=p_value(choice.p_value or 0.0),
        count=choice.reporting,
    )


def _correction(choices: Sequence[Choice], catalog: Catalog) -> Iterator[str]:
    tested = sum(choice.p_value is not None for choice in choices)
    if tested > 1:
        yield catalog.text("halves.holm", count=tested)
