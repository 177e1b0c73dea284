"""Where a run comes from, in lines: model, versions, commit, machine, the command to repeat it."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from lhkit.harness.metrics import Summary
from lhkit.harness.results import Run
from lhkit.harness.tables import spent_line
from lhkit.locales import Catalog
from lhkit.responses import ModelIdentity
from lhkit.text import percent


def facts(run: Run, summary: Summary, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """Return name and value of each line; what is not known is left out."""
    manifest = run.manifest
    lines = (
        *(("model", _identity(each)) for each in summary.models),
        *(("dialect", each.dialect) for each in summary.models),
        *(("constraint", each.constraint) for each in summary.models),
        ("sampling", " · ".join(_pairs(each) for each in manifest.sampling)),
        ("scenarios", _scenarios(run)),
        ("tokens", _tokens(summary)),
        ("time", spent_line(summary.spent, catalog) if summary.spent else ""),
        ("started", ", ".join(filter(None, (each.started_at for each in manifest.invocations)))),
        ("versions", _pairs(manifest.versions)),
        ("commit", manifest.git_commit or ""),
        ("hardware", _pairs(manifest.hardware)),
        ("command", command(run, summary)),
    )
    return tuple((catalog.text(f"report.facts.{name}"), value) for name, value in lines if value)


_MODEL = re.compile(r"[\w./@][\w./:@+-]*")
_ADDRESS = re.compile(r"https?://[\w.:\[\]-]+(?:/[\w./-]*)?")


def command(run: Run, summary: Summary) -> str:
    """Return the command that plays such a run again; empty where the model is not known.

    It is put together from what is known of the model: the manifest's own `command` may be somebody
    else's, and whoever reads a report copies it. Which toolset and scenario files were played, and
    a limit, are not in it.
    """
    if not summary.models:
        return ""
    model = summary.models[0]
    addresses = model.base_url.split()
    words = (model.model, model.dialect or "-", model.constraint)
    is_plain = _MODEL.fullmatch(words[0]) and all(
        re.fullmatch(r"[\w-]+", each) for each in words[1:]
    )
    if not is_plain or not all(map(_ADDRESS.fullmatch, addresses)):
        return ""
    options = ["--model", model.model]
    options += [word for each in addresses for word in ("--base-url", each)]
    options += ["--dialect", model.dialect] if model.dialect else []
    options += ["--constrain", model.constraint] if model.constraint != "off" else []
    repeats = run.manifest.repeats
    options += ["--repeats", str(repeats)] if repeats != 1 else []
    return shlex.join(["lhkit", "eval", *options])


def _identity(identity: ModelIdentity) -> str:
    parts = (identity.title, identity.server, identity.dtype, identity.base_url)
    return " · ".join(part for part in parts if part)


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def _scenarios(run: Run) -> str:
    ids = {record.sample_id.scenario for record in run.records}
    return f"{len(ids):,} × {run.manifest.repeats}"


def _tokens(summary: Summary) -> str:
    tokens = summary.tokens
    if not tokens.prompt and not tokens.completion:
        return ""
    share = "" if tokens.cached_share is None else f" (cached {percent(tokens.cached_share)})"
    return f"prompt {tokens.prompt:,}{share}, completion {tokens.completion:,}"
