"""Several runs of one model as one run: parts of a suite that several drivers have played."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from lhkit.errors import UsageError
from lhkit.harness.log import MERGED_FROM, Change, answers, asked_of, changes
from lhkit.harness.results import Run

_SHOWN = 3
_BY_SCENARIO = ("scenarios", "contexts", "tools", "questions")


def merged(runs: Sequence[Run]) -> Run:
    """Return one run of all samples; where several have one, the last valid answer counts.

    Nothing is written.

    Raises:
        UsageError: there are fewer than two, or two were told something else: model, sampling,
            prompts, tools, toolset, repeats, version, or a scenario of one name.
    """
    if len(runs) < 2:
        raise UsageError("one run is merged already: give at least two")
    first, *others = runs
    for other in others:
        if told := list(_differences(first, other)):
            more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
            raise UsageError(
                f"{first.name} and {other.name} differ in {'; '.join(told[:_SHOWN])}{more}: only "
                "runs of one model, asked the same way, are one run"
            )
    manifest = _manifest(runs)
    found = chain.from_iterable(each.records for each in runs)
    records = answers(found, asked_of(manifest))
    name = "+".join(each.name for each in runs)
    return Run(records=records, manifest=manifest, kept=len(records), name=name)


def _differences(first: Run, other: Run) -> Iterator[str]:
    for key in ("toolset", "repeats"):
        before, after = first.manifest.get(key), other.manifest.get(key)
        if before != after:
            yield f"{key} ({before}, {after})"
    yield from map(_words, changes(first.manifest, other.manifest))


def _words(change: Change) -> str:
    where = f" {change.where}" if change.where else ""
    return f"{change.what}{where} ({change.before}, {change.after})"


def _manifest(runs: Sequence[Run]) -> dict[str, Any]:
    """Return what all say: of scenarios together, of invocations one after the other."""
    told = [each.manifest for each in runs]
    together: dict[str, Any] = {
        key: {name: value for each in told for name, value in (each.get(key) or {}).items()}
        for key in _BY_SCENARIO
    }
    locales = {name: said for each in told for name, said in each.get("locales", {}).items()}
    models = [model for each in told for model in each.get("models", [])]
    invocations = [invocation for each in told for invocation in each.get("invocations", [])]
    return {
        **told[0],
        **{key: value for key, value in together.items() if value},
        "locales": locales,
        "models": [model for number, model in enumerate(models) if model not in models[:number]],
        "invocations": sorted(invocations, key=lambda each: str(each.get("started_at"))),
        MERGED_FROM: [each.name for each in runs],
    }
