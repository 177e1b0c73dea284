"""Manifests and records with a wrong field are refused with an error, or read."""

import copy
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import lhkit
from lhkit.base.errors import LhkitError, RunError, UsageError
from lhkit.base.locales import load_catalog
from lhkit.cli.accept import AcceptOptions, _edit
from lhkit.harness.authoring.accept import observed_arguments
from lhkit.harness.exports.inspect_log import write_inspect
from lhkit.harness.exports.openai_messages import write_openai_messages
from lhkit.harness.exports.otel import trace_lines
from lhkit.harness.records.manifest import Provenance
from lhkit.harness.report.junit import junit_xml
from lhkit.harness.report.markdown import markdown
from lhkit.harness.report.page import html_page
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.harness.running.rescore import rescore
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios, read_sources
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.notebook.boards.review import Review

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

SCENARIO = """- id: add
  ac: AC-10
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns:
    - user: cut caffeine
      confirm: accept
      expect:
        calls: [{tool: add_habit, args: {protocol_id: caffeine-cutoff}}]
      reply: {contains_any: [done]}
"""

ARGS = {"protocol_id": "caffeine-cutoff", "frame_level": "action", "framed_text": "no coffee"}

WRONG: tuple[Any, ...] = (
    None,
    5,
    "x",
    [],
    {},
    -1,
    True,
    10**30,
    1e300,
    float("nan"),
    "9999-12-31T23:59:59Z",
    "0001-01-01",
    ["("],
    {"x": 5},
    "(",
    "\ud800",
    [5],
    {"en": ["("]},
    {"properties": "x"},
)


@pytest.fixture
async def run_folder(tmp_path: Path) -> Path:
    """Return a run with one failed sample: a call with a wrong argument, a write, and states."""
    file = tmp_path / "mine.yaml"
    file.write_text(SCENARIO)
    calls = [
        call("search_catalog", query="caffeine"),
        call("add_habit", protocol_id="morning-light"),
    ]
    model = ScriptedModel([*calls, say("done, I think")])
    folder = tmp_path / "run"
    await replay(
        load_scenarios([file]),
        lambda _scenario, _registry: model,
        run_dir=folder,
        keep_states=True,
        progress=False,
        provenance=Provenance(command=["lhkit", "eval"]),
    )
    return folder


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a document, of lists only the first two."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths_in(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value[:2]):
            yield from paths_in(item, (*path, number))


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of a document with another value at a path."""
    other = copy.deepcopy(document)
    inner = other
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return other


def readers(
    folder: Path, file: Path, *, is_slow: bool
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the functions that read a run folder, by name; slow ones only if `is_slow`."""
    out = folder.parent / "out"
    out.mkdir(exist_ok=True)
    yield "stored", lambda: list(Run.load(folder, keep_records=False).records)
    run = Run.load(folder)
    catalog = load_catalog("en")
    if is_slow:
        yield "html", lambda: html_page(run, catalog, name="x")
    yield "markdown", lambda: markdown(run, catalog, name="x", comparison=compare(run, run))
    yield "junit", lambda: junit_xml(run, catalog, name="x")
    yield "repr", lambda: (repr(run), run._repr_html_(), run.toolset)
    yield (
        "sample",
        lambda: [
            (repr(view), view._repr_html_())
            for view in (run.sample(r.sample_id.scenario, r.sample_id.repeat) for r in run.records)
        ],
    )
    yield "frames", lambda: (run.scenarios, run.turns, run.calls, run.violations, run.latency)
    yield "compare", lambda: compare(run, run)
    yield "rescore", lambda: rescore(run, load_scenarios([file]))
    yield "messages", lambda: write_openai_messages(run, out / "messages.jsonl")
    yield "inspect", lambda: write_inspect(run, out / "log.eval")
    yield "otel", lambda: list(trace_lines(run))
    yield "accept", lambda: accept_all(run, file)
    yield "review", lambda: review_all(folder)


def accept_all(run: Run, file: Path) -> None:
    sources = read_sources([file])
    for record in run.records:
        for argument in observed_arguments(record):
            options = AcceptOptions(
                run=Path(), sample="add", turn=argument.turn, call=argument.call, arg=argument.name
            )
            _edit(options, record, sources, run.manifest)


def review_all(folder: Path) -> None:
    review = Review(folder, locale="en")
    repr(review)
    review.judge("should_be", tool="add_habit", args=ARGS)
    while review.state.done < len(review.state.records):
        review.judge("fine" if review.state.call is None else "right")
    review.corrected_chats()
    shutil.rmtree(folder / "reviews")


def mutants(document: Any, *, every: int) -> Iterator[tuple[str, Any]]:
    """Yield (change, document with one wrong value), for every n-th of all combinations."""
    number = 0
    for path in paths_in(document):
        for value in WRONG:
            number += 1
            if number % every == 0:
                where = ".".join(map(str, path))
                yield f"{where} = {value!r}", with_value(document, path, value)


def issues(folder: Path, file: Path, *, every: int) -> Iterator[tuple[str, str, BaseException]]:
    """Yield (change, reader, exception) where a reader raises another error than lhkit's."""
    for name in ("manifest.json", "records.jsonl"):
        path = folder / name
        original = path.read_text()
        for number, (changed, document) in enumerate(mutants(json.loads(original), every=every)):
            path.write_text(json.dumps(document) + "\n")
            reader = "load"
            try:
                for reader_name, read in readers(folder, file, is_slow=number % 40 == 0):
                    reader = reader_name
                    with suppress(LhkitError):
                        read()
            except LhkitError:
                continue
            except Exception as error:  # noqa: BLE001 - this is what the test looks for
                yield f"{name}: {changed}", reader, error
        path.write_text(original)


TOOL, CALLS = "locales.en.tools.0", "trajectory.turns.0.calls"
NEW_TOOL = {"name": "f", "description": "", "destructive": False}
BROKEN: list[tuple[str, str, Any, str]] = [
    ("manifest", f"{TOOL}.claims", {"en": ["("]}, f"{TOOL}: .*claims"),
    ("manifest", f"{TOOL}.parameters.$ref", "#", f"{TOOL}: .*without end"),
    ("manifest", f"{TOOL}.parameters.required", 5, f"{TOOL}: .*required"),
    ("manifest", f"{TOOL}.parameters.properties", "x", f"{TOOL}: .*properties"),
    (
        "manifest",
        "locales.en.assistant.max_result_bytes",
        "many",
        "en.assistant.max_result_bytes: ",
    ),
    ("manifest", "locales.en.assistant.max_result_bytes", 5, "en.assistant.max_result_bytes: "),
    ("manifest", "invocations.0.started_at", "nonsense", "invocations.0.started_at: .*ISO 8601"),
    (
        "manifest",
        "invocations.0.started_at",
        "9999-12-31T23:59:59Z",
        "invocations.0.started_at: .*from 1000 to 9000",
    ),
    ("manifest", "sampling.0.temperature", float("nan"), "NaN is not a JSON number"),
    (
        "records",
        "state_diff.habits",
        {"added": [{"a": 1}, {"a": 2}], "added_at": [0]},
        "state_diff.habits: rows and their indexes",
    ),
    ("records", f"{CALLS}.0.model_call", 99, f"{CALLS}.0.model_call: there is no such message"),
    (
        "records",
        "score.turn_scores.0.calls.0.actual",
        99,
        "score.turn_scores.0.calls.0.actual: there is no such call",
    ),
    ("records", "wall_s", 1e300, r"wall_s: 1e\+300 seconds"),
    ("records", "attempts", -1, "attempts: -1 is not a valid count"),
    (
        "records",
        "trajectory.turns.0.new_tools",
        [{**NEW_TOOL, "parameters": {"type": "object", "required": 5}}],
        "trajectory.turns.0.new_tools.0: .*required",
    ),
    ("records", "sample_id.scenario", {"x": 5}, "sample_id.scenario: "),
]


@pytest.mark.longer
@pytest.mark.parametrize(("kind", "where", "value", "sentence"), BROKEN)
async def test_run_folder_names_the_file_and_the_field_that_is_broken(
    run_folder: Path, kind: str, where: str, value: Any, sentence: str
) -> None:
    path = run_folder / ("records.jsonl" if kind == "records" else "manifest.json")
    steps = tuple(int(step) if step.isdigit() else step for step in where.split("."))
    path.write_text(json.dumps(with_value(json.loads(path.read_text()), steps, value)) + "\n")
    for keep_records, place in ((True, ":1 "), (False, "(:1| at byte 0) ")):
        named = f"{re.escape(str(path))}{place if kind == 'records' else ''}"
        with pytest.raises(RunError, match=f"{named}.*{sentence}"):
            list(Run.load(run_folder, keep_records=keep_records).records)


@pytest.mark.slow
async def test_run_folder_that_is_valid_is_read_by_every_reader(
    run_folder: Path, tmp_path: Path
) -> None:
    for _, read in readers(run_folder, tmp_path / "mine.yaml", is_slow=True):
        read()


@pytest.mark.parametrize("now", ["Monday", "0001-01-01T00:00:00+09:00", "9999-12-31", ""])
async def test_export_reads_a_record_with_another_started_at(run_folder: Path, now: str) -> None:
    path = run_folder / "records.jsonl"
    path.write_text(json.dumps({**json.loads(path.read_text()), "started_at": now}) + "\n")
    run = Run.load(run_folder)
    write_inspect(run, run_folder.parent / "log.eval")
    assert list(trace_lines(run))


async def test_accept_reports_a_tool_that_the_run_does_not_describe(
    run_folder: Path, tmp_path: Path
) -> None:
    path = run_folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for locales in ({}, {"en": {}}, {"en": {"tools": []}}):
        path.write_text(json.dumps({**manifest, "locales": locales}))
        with pytest.raises(UsageError, match="does not have tool 'add_habit' in 'en'"):
            accept_all(Run.load(run_folder), tmp_path / "mine.yaml")


@pytest.mark.slow
@pytest.mark.parametrize("every", [47, pytest.param(11, marks=pytest.mark.nightly)])
async def test_run_folder_with_a_wrong_field_is_a_sentence_or_is_read(
    run_folder: Path, tmp_path: Path, every: int
) -> None:
    errors = [
        f"{changed}: {reader}: {error!r}"
        for changed, reader, error in issues(run_folder, tmp_path / "mine.yaml", every=every)
    ]
    assert errors == []


async def test_run_load_reads_a_tool_described_with_half_a_surrogate_pair(tmp_path: Path) -> None:
    tools = lhkit.ToolRegistry()

    @tools.tool(description="half \ud800 of a pair")
    def look() -> dict[str, int]:
        return {}

    chat = {"id": "look", "ac": "AC-1", "locale": "en", "turns": [{"user": "look"}]}
    scenario = lhkit.Scenario.from_data(chat)
    await replay([scenario], ScriptedModel([]), toolset=tools, run_dir=tmp_path, progress=False)
    assert Run.load(tmp_path).scenarios.scenario.tolist() == ["look"]
