"""Metadata of a run: model, versions, commit, hardware, the command to repeat it."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from lhkit.base.locales import Catalog
from lhkit.base.options import DEFAULT_TOOLSET
from lhkit.base.text import percent
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.figures.metrics import Summary
from lhkit.harness.results.results import Run
from lhkit.harness.views.tables import constraint_text, dtype_text, time_line


def run_metadata(run: Run, summary: Summary, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """Return (name, value) pairs, without those that are not known."""
    manifest = run.manifest
    lines = (
        *(("model", _model(model, catalog)) for model in summary.models),
        *(("dialect", model.dialect) for model in summary.models),
        *(("template", model.template_sha256) for model in summary.models),
        *(("constraint", constraint_text(model.constraint, catalog)) for model in summary.models),
        ("sampling", " · ".join(map(_pairs, manifest.sampling))),
        ("scenarios", _scenarios(run)),
        ("tokens", _tokens(summary, catalog)),
        ("time", time_line(summary.time_breakdown, catalog) if summary.time_breakdown else ""),
        ("started", ", ".join(filter(None, (call.started_at for call in manifest.invocations)))),
        ("versions", _pairs(manifest.versions)),
        ("commit", manifest.git_commit or ""),
        ("hardware", _hardware(manifest.hardware, catalog)),
        ("command", eval_command(run, summary)),
    )
    return tuple((catalog.text(f"report.metadata.{name}"), value) for name, value in lines if value)


_MODEL = re.compile(r"[\w./@][\w./:@+-]*")
_URL = re.compile(r"https?://[\w.:\[\]-]+(?:/[\w./-]*)?")


_MCP_FILE = re.compile(r"mcp:(https?://[\w.:/\[\]-]+|[\w./-]+(\.toml|\.json#[\w.-]+))")
_TOOLSET = re.compile(r"\w[\w.-]*")
_FILES = ("--html", "--markdown", "--junit")
_MAX_COMMAND_CHARS = 4_000


def eval_command(run: Run, summary: Summary) -> str:
    """Return the `lhkit eval` command that repeats a run, to be pasted; empty if it is not known.

    It is the command that was typed. Readers copy it, and a manifest may come from others: so it
    must be one of `lhkit eval` with printable words, names no program of an MCP server, and files
    that it would write are left out. Otherwise it is built from the model's validated identity and
    the name of the toolset, without the scenario files.
    """
    typed = _typed_words(run.manifest.command)
    if typed and _may_be_pasted(typed):
        return shlex.join(["lhkit", "eval", *typed])
    if not summary.models or not _TOOLSET.fullmatch(run.toolset):
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
    options += ["--base-url", urls[0]] if urls else []
    options += ["--dialect", model.dialect] if model.dialect else []
    options += ["--constrain", model.constraint] if model.constraint != "off" else []
    # only the name is known, not where it is: the command then ends with that, and runs no others
    options += ["--toolset", run.toolset] if run.toolset != DEFAULT_TOOLSET else []
    repeats = run.manifest.repeats
    options += ["--repeats", str(repeats)] if repeats != 1 else []
    options += ["--variants"] if any(r.sample_id.wording for r in run.records) else []
    return shlex.join(["lhkit", "eval", *options])


def _typed_words(command: Sequence[str]) -> list[str]:
    """Return the words after `lhkit eval` without report files; empty for another command."""
    if [*command[:2]] != ["lhkit", "eval"]:
        return []
    words, rest = [], iter(command[2:])
    for word in rest:
        if word in _FILES:
            next(rest, None)
        elif not word.startswith(tuple(f"{option}=" for option in _FILES)):
            words.append(word)
    return words


def _may_be_pasted(words: Sequence[str]) -> bool:
    """Return whether quoted words only name files, models, addresses and numbers."""
    values = [word.partition("=")[2] if word.startswith("--") else word for word in words]
    return (
        sum(map(len, words)) <= _MAX_COMMAND_CHARS
        and all(word.isprintable() for word in words)
        and all(_MCP_FILE.fullmatch(v) for v in values if v.startswith("mcp:"))
        and all(_URL.fullmatch(v) for v in values if "://" in v and not v.startswith("mcp:"))
    )


def _model(model: ModelIdentity, catalog: Catalog) -> str:
    server = catalog.translate(model.server)
    parts = (model.title, server, dtype_text(model, catalog), model.device, model.base_url)
    return " · ".join(filter(None, parts))


def _hardware(values: Mapping[str, Any], catalog: Catalog) -> str:
    names = {name: catalog.texts.get(f"report.hardware.{name}", name) for name in values}
    return _pairs({names[name]: value for name, value in values.items()})


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def _scenarios(run: Run) -> str:
    ids = {record.sample_id.scenario for record in run.records}
    selection = run.manifest.selection
    part = f" / {selection.total:,} ({shlex.join(selection.words)})" if selection else ""
    return f"{len(ids):,}{part} × {run.manifest.repeats}"


def _tokens(summary: Summary, catalog: Catalog) -> str:
    tokens = summary.tokens
    if not tokens.prompt and not tokens.completion:
        return ""
    return catalog.text(
        "report.tokens" if tokens.cached_share is None else "report.tokens_cached",
        prompt=f"{tokens.prompt:,}",
        cached=percent(tokens.cached_share),
        completion=f"{tokens.completion:,}",
    )
