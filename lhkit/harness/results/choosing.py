"""Choose one of several runs on one half of the scenarios, and compare it on the other half."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from lhkit.base.errors import UsageError
from lhkit.base.files import write_atomically
from lhkit.harness.figures.halves import Choice, choose_on_halves, halves_data
from lhkit.harness.results.results import Run

HALVES = "halves.json"
"""The file of a suite's results that has the halves and what was chosen."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _NotebookChoice(Choice):
    """A choice with an HTML form for notebooks."""

    def _repr_html_(self) -> str:
        """Return the counts in both halves and the outcome."""
        from lhkit.base.user_locale import user_catalog
        from lhkit.harness.views.halves import choice_table
        from lhkit.harness.views.html import table_html

        catalog = user_catalog()
        return table_html(choice_table([self], catalog), catalog)


def choose_on_half(runs: Mapping[str, Run], *, seed: int = 0) -> Choice:
    """Return the run that passed most on one half of the scenarios, compared on the other half.

    Nothing is called better on the half that chose it. All wordings, repeats and languages of a
    scenario are in the same half. Fix the seed before the first result: trying several until one
    run is better is choosing again.

    Args:
        runs: the runs by name; the first one stays if no other passed more.
        seed: of the random halves.

    Raises:
        UsageError: there are fewer than two runs, or one stopped when it was decided.
    """
    (choice,) = choose_runs([list(runs.items())], seed=seed)
    return _NotebookChoice(**{field.name: getattr(choice, field.name) for field in fields(Choice)})


def choose_runs(
    settings: Sequence[Sequence[tuple[str, Run]]], *, seed: int = 0
) -> tuple[Choice, ...]:
    """Return one choice for each setting, corrected (Holm) for their number.

    Args:
        settings: for each setting its runs by name, the first one first.
        seed: of the random halves, which all settings share.

    Raises:
        UsageError: as `choose_on_half`.
    """
    if any(len(runs) < 2 for runs in settings):
        raise UsageError("choose_on_half: give at least two runs, the first one is the baseline")
    if stopped := [name for runs in settings for name, run in runs if _has_stopped(run)]:
        raise UsageError(
            f"{', '.join(stopped)} stops when decided: choosing on one half needs whole runs. "
            "Finish it without --stop-when-decided."
        )
    return choose_on_halves(
        [[(name, run.records) for name, run in runs] for runs in settings], seed
    )


def write_halves(file: Path, choices: Sequence[Choice]) -> None:
    """Write seed, scenarios of both halves, counts and outcomes as JSON."""
    text = json.dumps(halves_data(choices), ensure_ascii=False, indent=1)
    write_atomically(file, f"{text}\n".encode())


def _has_stopped(run: Run) -> bool:
    selection = run.manifest.selection
    return selection is not None and selection.stopped is not None
