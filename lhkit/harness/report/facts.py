"""Where a run comes from, in lines: model, versions, commit, machine, and how to play it again."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from lhkit.harness.figures.metrics import Summary
from lhkit.harness.report.table import spent_words
from lhkit.harness.results.run import Run
from lhkit.locales import Catalog
from lhkit.vocab.generation import ModelIdentity


def facts(run: Run, summary: Summary, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """Return name and value of each line; what is not known is left out."""
    manifest = run.manifest
    lines = (
        *(("model", _identity(each)) for each in summary.models),
        *(("dialect", each.dialect) for each in summary.models),
        *(("constraint", each.constraint) for each in summary.models),
        ("sampling", " · ".join(_pairs(each) for each in manifest.get("sampling", ()))),
        ("scenarios", _scenarios(run)),
        ("tokens", _tokens(summary)),
        ("time", spent_words(summary.spent, catalog) if summary.spent else ""),
        ("started", ", ".join(_starts(manifest))),
        ("versions", _pairs(manifest.get("versions", {}))),
        ("commit", str(manifest.get("git_commit") or "")),
        ("hardware", _pairs(manifest.get("hardware", {}))),
        ("command", command(run, summary)),
    )
    return tuple((catalog.text(f"report.facts.{name}"), value) for name, value in lines if value)


def command(run: Run, summary: Summary) -> str:
    """Return the command that plays such a run again; empty where the model is not known.

    The manifest's own `command` if it has one. Otherwise it is put together from what is known of
    the model; which files the scenarios came from, and a limit, are not.
    """
    written = run.manifest.get("command")
    if isinstance(written, list | tuple) and written:
        return shlex.join(map(str, written))
    if not summary.models:
        return ""
    model = summary.models[0]
    options = ["--model", model.model]
    options += ["--base-url", model.base_url] if model.base_url else []
    options += ["--dialect", model.dialect] if model.dialect else []
    options += ["--constrain", model.constraint] if model.constraint != "off" else []
    repeats = run.manifest.get("repeats", 1)
    options += ["--repeats", str(repeats)] if repeats != 1 else []
    return shlex.join(["lhkit", "eval", *options])


def _identity(identity: ModelIdentity) -> str:
    parts = (identity.title, identity.server, identity.base_url)
    return " · ".join(part for part in parts if part)


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def _scenarios(run: Run) -> str:
    ids = {record.sample_id.scenario for record in run.records}
    return f"{len(ids):,} × {run.manifest.get('repeats', 1)}"


def _tokens(summary: Summary) -> str:
    tokens = summary.tokens
    if not tokens.prompt and not tokens.completion:
        return ""
    share = "" if tokens.cached_share is None else f" (cached {tokens.cached_share:.0%})"
    return f"prompt {tokens.prompt:,}{share}, completion {tokens.completion:,}"


def _starts(manifest: Mapping[str, Any]) -> Iterator[str]:
    for sitting in manifest.get("sittings", ()):
        if sitting.get("started_at"):
            yield str(sitting["started_at"])
