"""Metadata of a run: model, versions, commit, hardware, the command to repeat it."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from lhkit.harness.metrics import Summary
from lhkit.harness.results import Run
from lhkit.harness.tables import time_line
from lhkit.locales import Catalog
from lhkit.responses import ModelIdentity
from lhkit.text import percent


def run_metadata(run: Run, summary: Summary, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """Return (name, value) pairs, without those that are not known."""
    manifest = run.manifest
    lines = (
        *(("model", _model(model)) for model in summary.models),
        *(("dialect", model.dialect) for model in summary.models),
        *(("constraint", model.constraint) for model in summary.models),
        ("sampling", " · ".join(map(_pairs, manifest.sampling))),
        ("scenarios", _scenarios(run)),
        ("tokens", _tokens(summary)),
        ("time", time_line(summary.time_breakdown, catalog) if summary.time_breakdown else ""),
        ("started", ", ".join(filter(None, (call.started_at for call in manifest.invocations)))),
        ("versions", _pairs(manifest.versions)),
        ("commit", manifest.git_commit or ""),
        ("hardware", _pairs(manifest.hardware)),
        ("command", eval_command(run, summary)),
    )
    return tuple((catalog.text(f"report.metadata.{name}"), value) for name, value in lines if value)


_MODEL = re.compile(r"[\w./@][\w./:@+-]*")
_URL = re.compile(r"https?://[\w.:\[\]-]+(?:/[\w./-]*)?")


def eval_command(run: Run, summary: Summary) -> str:
    """Return the `lhkit eval` command that repeats a run; empty if the model is not known.

    It is built from the validated identity of the model, because readers copy it and the manifest's
    own `command` is not trusted. Toolset, scenario files and limit are not part of it.
    """
    if not summary.models:
        return ""
    model = summary.models[0]
    urls = model.base_url.split()
    names = (model.dialect or "-", model.constraint)
    if not (
        _MODEL.fullmatch(model.model)
        and all(re.fullmatch(r"[\w-]+", name) for name in names)
        and all(map(_URL.fullmatch, urls))
    ):
        return ""
    options = ["--model", model.model]
    options += [word for url in urls for word in ("--base-url", url)]
    options += ["--dialect", model.dialect] if model.dialect else []
    options += ["--constrain", model.constraint] if model.constraint != "off" else []
    repeats = run.manifest.repeats
    options += ["--repeats", str(repeats)] if repeats != 1 else []
    options += ["--variants"] if any(r.sample_id.wording for r in run.records) else []
    return shlex.join(["lhkit", "eval", *options])


def _model(model: ModelIdentity) -> str:
    return " · ".join(filter(None, (model.title, model.server, model.dtype, model.base_url)))


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def _scenarios(run: Run) -> str:
    ids = {record.sample_id.scenario for record in run.records}
    selection = run.manifest.selection
    part = f" / {selection.total:,} ({shlex.join(selection.filter.words)})" if selection else ""
    return f"{len(ids):,}{part} × {run.manifest.repeats}"


def _tokens(summary: Summary) -> str:
    tokens = summary.tokens
    if not tokens.prompt and not tokens.completion:
        return ""
    share = "" if tokens.cached_share is None else f" (cached {percent(tokens.cached_share)})"
    return f"prompt {tokens.prompt:,}{share}, completion {tokens.completion:,}"
