"""Data frames of a run: rows, fixed types, units in names."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd  # noqa: TID253 - what is written is read by it
import pytest

from lhkit.harness.authoring.reference import silent_model
from lhkit.harness.figures import frames
from lhkit.harness.results.results import Run
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from tests.harness.build import Load, Play
from tests.rows import check_rows

pytestmark = pytest.mark.anyio


NOTES = """
- id: add
  ac: AC-4
  tags: [write, chain]
  world: {now: "2026-06-15T09:00:00+09:00", notes: [{id: note-0, text: old}]}
  turns:
    - user: add milk
      confirm: accept
      expect: {calls: [{tool: add_note, args: {text: milk}, result: ok}]}
    - user: and bread
      confirm: reject
      expect: {calls: [{tool: add_note, args: {text: bread}, result: cancelled}]}
  final: {notes: [{text: milk}]}
- id: chat
  ac: AC-12
  turns: [{user: hello, reply: {matches: '\\S'}}]
"""

TABLES = {
    "scenarios": frames.SCENARIOS,
    "turns": frames.TURNS,
    "calls": frames.CALLS,
    "violations": frames.VIOLATIONS,
    "latency": frames.LATENCY,
}


async def test_frames_have_one_row_per_item(play: Play, load: Load) -> None:
    run = await play(load(NOTES), repeats=2)
    sizes = {name: len(getattr(run, name)) for name in TABLES}
    requests = sum(
        len(turn.model_calls) for record in run.records for turn in record.trajectory.turns
    )
    assert sizes == {"scenarios": 4, "turns": 6, "calls": 4, "violations": 0, "latency": requests}
    keys = list(zip(run.scenarios["scenario"], run.scenarios["repeat"], strict=True))
    assert keys == [("add", 0), ("add", 1), ("chat", 0), ("chat", 1)]


@pytest.mark.parametrize("name", TABLES)
async def test_frame_types_do_not_depend_on_the_data(play: Play, load: Load, name: str) -> None:
    def broken(_: object) -> Any:
        raise RuntimeError("a bug")

    runs = [
        await play(load(NOTES)),
        await play(load(NOTES), ScriptedModel(broken)),
        await play(load(NOTES), ScriptedModel(lambda _: call("nothing", x=[1]))),
        Run(records=()),
    ]
    types = [dict(getattr(run, name).dtypes) for run in runs]
    assert types[0] == types[1] == types[2] == types[3]
    assert list(types[0]) == [column.name for column in (*frames.SAMPLE, *TABLES[name])]


async def test_frames_replace_lone_surrogates(play: Play, load: Load) -> None:
    run = await play(load(NOTES))
    records = [replace(record, ac="우유 \ud800\U0001f95b") for record in run.records]
    assert set(frames.scenarios_frame(records)["ac"]) == {"우유 \ufffd\U0001f95b"}


@pytest.mark.longer
@pytest.mark.parametrize("reply", ["우유 \U0001f95b", "half \udfff", "", None])
@pytest.mark.parametrize("name", TABLES)
async def test_frames_are_written_as_parquet_and_read_back(
    play: Play, load: Load, name: str, reply: str | None, tmp_path: Path
) -> None:
    run = (
        Run(records=())
        if reply is None
        else await play(load(NOTES), ScriptedModel(lambda _: say(reply)))
    )
    frame = getattr(run, name)
    frame.to_parquet(tmp_path / "table.parquet")
    back = pd.read_parquet(tmp_path / "table.parquet")
    assert [*back.columns] == [*frame.columns]
    for column in frame.columns:
        read, meant = (
            [*table[column].astype("object").where(table[column].notna(), None)]
            for table in (back, frame)
        )
        assert read == meant, column


@check_rows("name", TABLES)
def test_frame_columns_are_documented_and_have_units(name: str) -> None:
    columns = (*frames.SAMPLE, *TABLES[name])
    assert len({column.name for column in columns}) == len(columns)
    assert all(column.doc for column in columns)
    of_floats = ("_s", "_probability", "_logprob")
    assert all((c.dtype == "float64") == c.name.endswith(of_floats) for c in columns)


@pytest.mark.longer
async def test_frames_contain_the_values_of_records(play: Play, load: Load) -> None:
    run = await play(load(NOTES))
    sample = run.scenarios.set_index("scenario").loc["add"]
    assert (sample["verdict"], sample["passed"], sample["strict_verdict"]) == ("pass", True, "pass")
    assert (sample["due_calls"], sample["right_calls"], sample["tags"]) == (2, 2, "write chain")
    assert 0 < sample["harness_s"] < sample["wall_s"]
    turns = run.turns[run.turns["scenario"] == "add"]
    assert list(turns["user"]) == ["add milk", "and bread"]
    assert (turns["turn_s"] + turns["waiting_s"]).tolist() == turns["duration_s"].tolist()
    calls = run.calls
    assert list(calls["outcome"]) == ["ok", "cancelled"]
    assert list(calls["gate"]) == ["accepted", "rejected"]
    assert list(calls["right"]) == [True, True]
    assert list(calls["raw_args"]) == ['{"text":"milk"}', '{"text":"bread"}']
    assert run.turns["passed"].mean() == 1.0
    assert set(run.latency["model"]) == {"gold"}


async def test_frames_have_missing_values_for_missing_measurements(play: Play, load: Load) -> None:
    run = await play(load(NOTES), silent_model())
    assert run.latency["call_ready_s"].isna().all()
    assert run.latency["cached_tokens"].isna().all()
    assert run.scenarios["started_at"].isna().all()
    assert (run.latency["duration_s"] > 0).all()


async def test_calls_frame_distinguishes_wrong_and_allowed_calls(play: Play, load: Load) -> None:
    model = ScriptedModel(lambda _: call("add_note", text="wine"))
    wrong = await play(load(NOTES), model)
    assert not wrong.calls["right"].any()
    assert set(wrong.calls["args"].dropna()) == {'{"text":"wine"}'}
    (scenario,) = load("- id: r\n  ac: x\n  turns: [{user: x, expect: {extra: reads}}]\n")
    reading = await play([scenario], ScriptedModel([call("find_notes"), say("x")]))
    assert list(reading.calls["tolerated"]) == [True]
    assert list(reading.calls["right"]) == [False]


async def test_violations_frame_joins_with_scenarios(play: Play, load: Load) -> None:
    model = ScriptedModel(lambda _: call("finish_note", note_id="note-9", done=True))
    run = await play(load(NOTES), model)
    joined = run.violations.merge(run.scenarios, on=["scenario", "repeat"])
    assert len(joined) == len(run.violations) > 0
    assert "invented_id" in set(run.violations["code"])
    assert run.scenarios["attempted"].sum() == (run.violations["severity"] == "attempted").sum()
