"""`lhkit rescore`: an old run before today's scorers and scenarios; the run itself stays."""

from collections.abc import Mapping
from pathlib import Path

from rich.text import Text

from lhkit import app
from lhkit.commands.environments import load_environment, require_paths
from lhkit.commands.evaluate import ac_words, wide_console
from lhkit.errors import RunError
from lhkit.harness.records.journal import write_rescored
from lhkit.harness.replay.rescore import rescore
from lhkit.harness.report.table import render
from lhkit.harness.results.run import Run
from lhkit.harness.scenarios.scenario import load_scenarios
from lhkit.locales import Catalog, load_catalog
from lhkit.settings import Settings
from lhkit.vocab.printable import printable


async def rescore_run(
    folder: Path,
    paths: tuple[Path, ...],
    into: Path | None,
    settings: Settings,
    environment: str | None = None,
) -> int:
    """Score a run folder again, into a folder of its own; return the exit code.

    Args:
        folder: the run; nothing in it is changed.
        paths: today's scenarios; the shipped ones by default.
        into: where the result goes; beside the run by default, with `-rescored` in its name.
        settings: as the user set them.
        environment: what the run was played in (see `load_environment`); life-helper by default.

    Raises:
        UsageError: the environment is none, or is given without paths.
        RunError: there is no run, nothing of it can be scored, or the result has no place.
        ScenarioError: the scenarios are not well-formed.
    """
    require_paths(environment, paths)
    loaded = load_environment(environment)
    old = Run.load(folder)
    scenarios = load_scenarios(paths or app.scenario_paths("all"))
    new = rescore(old, scenarios, loaded)
    if old.records and not new.records:
        reason = next(iter(new.skipped.values()))
        raise RunError(f"no record of {folder} can be scored again ({reason}): give its scenarios")
    target = into or _beside(folder)
    write_rescored(target, new.records, new.manifest)
    catalog = load_catalog(settings.locale)
    words = {} if environment else ac_words((record.ac for record in new.records), catalog)
    _show(old, new, target, words, catalog)
    return 0


def _beside(folder: Path) -> Path:
    whole = folder.resolve() if folder.name in {"", ".."} else folder
    return whole.with_name(f"{whole.name}-rescored")


def _show(old: Run, new: Run, target: Path, words: Mapping[str, str], catalog: Catalog) -> None:
    console = wide_console()
    console.print(render(new.summary(), catalog, words))
    lines = (*_changed(old, new, catalog), *_skipped(new, catalog))
    for line in lines:
        console.print(Text(printable(line)), soft_wrap=True)
    written = catalog.text("rescore.written", path=target, count=len(new.records), source=old.name)
    console.print(Text(printable(written)), soft_wrap=True)


def _changed(old: Run, new: Run, catalog: Catalog) -> list[str]:
    before = {record.sample_id: record.verdict for record in old.records}
    lines = [
        f"  {record.sample_id}: {before[record.sample_id]} → {record.verdict}"
        + (f" · {record.reasons[0]}" if record.reasons else "")
        for record in new.records
        if record.verdict is not before[record.sample_id]
    ]
    if not lines:
        return [catalog.text("rescore.unchanged")]
    return [catalog.text("rescore.changed", count=len(lines)), *lines]


def _skipped(new: Run, catalog: Catalog) -> list[str]:
    lines = [f"  {sample}: {reason}" for sample, reason in new.skipped.items()]
    return [catalog.text("rescore.skipped", count=len(lines)), *lines] if lines else []
