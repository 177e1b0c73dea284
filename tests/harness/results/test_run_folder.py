"""Run.load(), and the samples of a run folder that a resumed run reuses."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.base.errors import MissingRunError, RunError
from lhkit.conversation.responses import Sampling
from lhkit.harness.authoring.reference import silent_model
from lhkit.harness.records.manifest import Change, Manifest, manifest_changes
from lhkit.harness.records.record import SampleRecord, Verdict, encode_record
from lhkit.harness.records.resume import Resumption, check_resumption, record_status, select_records
from lhkit.harness.records.store import MANIFEST, RECORDS
from lhkit.harness.results.results import Run
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.recorded.scripted import Reply, ScriptedModel, say
from lhkit.tools.registry import ToolRegistry
from tests.harness.build import Load, Play
from tests.harness.results.runs import record, run_of
from tests.rows import check_rows

pytestmark = pytest.mark.anyio


CHAT = "- id: chat-{n}\n  ac: AC-12\n  turns: [{{user: hello {n}, reply: {{matches: '\\S'}}}}]\n"


def chats(load: Load, *numbers: int) -> tuple[Scenario, ...]:
    return load("".join(CHAT.format(n=number) for number in numbers))


@pytest.fixture
def play(play: Play, tmp_path: Path) -> Play:
    return partial(play, run_dir=tmp_path / "mine")


@pytest.mark.parametrize("options", [{}, {"repeats": 3, "concurrency": 4}])
async def test_load_returns_run_of_replay(
    play: Play, load: Load, tmp_path: Path, toolset: Any, options: dict[str, Any]
) -> None:
    toolset.sampling = Sampling(temperature=1.0, seed=7)
    run = await play(chats(load, 3, 1, 2), **options)
    read = Run.load(tmp_path / "mine")
    assert (read.records, read.manifest, read.name) == (run.records, run.manifest, "mine")
    assert read == run


async def test_load_returns_samples_of_newest_invocation(
    play: Play, load: Load, tmp_path: Path
) -> None:
    await play(chats(load, 0, 1, 2))
    await play(chats(load, 0, 1, 2), silent_model())
    again = await play(chats(load, 0, 2))
    read = Run.load(tmp_path / "mine")
    assert again.kept == 2
    assert read.records == again.records
    assert {each.score.verdict for each in read.records} == {Verdict.PASS}


async def test_load_reads_run_stopped_before_first_sample(
    play: Play, load: Load, tmp_path: Path
) -> None:
    class Stopped(Exception):  # noqa: N818 - no error
        pass

    def stop(_: object) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        await play(chats(load, 0), on_resume=stop)
    assert Run.load(tmp_path / "mine").records == ()


async def test_load_reads_run_in_progress(play: Play, load: Load, tmp_path: Path) -> None:
    run = await play(chats(load, 1, 2, 3))
    lines = [f"{encode_record(each)}\n" for each in run.records]
    file = tmp_path / "mine" / RECORDS
    for written, count in (("".join(lines[:2]) + lines[2][:40], 2), ("".join(lines), 3)):
        file.write_text(written, encoding="utf-8")
        assert len(Run.load(tmp_path / "mine").records) == count


def test_load_suggests_folder_of_bare_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "runs" / "mine"
    folder.parent.mkdir()
    run_of(folder, record("a"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        MissingRunError, match=r"^mine is not a run folder. Did you mean runs.mine\?$"
    ):
        Run.load("mine")


@check_rows(
    ("files", "sentence"),
    [
        ({}, "is not a run folder. Give a folder with a records.jsonl"),
        ({RECORDS: "{}\n"}, "records.jsonl:1 is not a valid record"),
        ({RECORDS: "nonsense\n"}, "records.jsonl:1 is not a valid record"),
        ({RECORDS: "", MANIFEST: "["}, "manifest.json is not valid JSON"),
        ({RECORDS: "", MANIFEST: "[]"}, "manifest.json is not a JSON object"),
    ],
)
def test_load_refuses_invalid_folder(files: dict[str, str], sentence: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=sentence):
        Run.load(tmp_path)


def test_load_without_manifest_selects_newest_hash(tmp_path: Path) -> None:
    """In any order of finishing; and a valid answer is not replaced by a later invalid one."""
    run_of(
        tmp_path,
        record("b", "old", "pass"),
        record("b", "new", "fail"),
        record("b", "new", "invalid"),
        record("a", "q", "invalid", ac="first"),
        record("a", "q", "invalid", ac="second"),
    )
    read = Run.load(tmp_path).records
    assert [(r.sample_id.scenario, r.content_hash, str(r.score.verdict), r.ac) for r in read] == [
        ("a", "q", "invalid", "second"),
        ("b", "new", "fail", "AC-1"),
    ]


def test_run_repr() -> None:
    records = (record("a"), record("b", verdict="fail"), record("c", verdict="invalid"))
    assert repr(Run(records=records, name="x")) == (
        "<Run x: 3 samples: 1 passed, 1 failed, 1 invalid>"
    )
    assert repr(Run(records=())) == "<Run: 0 samples: 0 passed, 0 failed, 0 invalid>"


hashes = st.dictionaries(
    st.builds(SampleId, scenario=st.sampled_from("abcdef")), st.sampled_from(["1", "2"])
)
stored_records = st.lists(
    st.builds(
        record,
        st.sampled_from("abcdef"),
        st.sampled_from(["1", "2"]),
        st.sampled_from(["pass", "fail", "invalid"]),
    )
)


@given(hashes, stored_records)
def test_resumption_counts_add_up(asked: dict[SampleId, str], records: list[SampleRecord]) -> None:
    resumed = check_resumption(asked, map(record_status, records), Manifest(), Manifest())
    assert resumed.kept + resumed.retried + resumed.changed + resumed.new == len(asked)
    if asked:
        valid = [
            each
            for each in select_records(records, asked)
            if each.score.verdict is not Verdict.INVALID
        ]
        assert resumed.kept == len(valid)
    seen = {each.sample_id for each in records}
    assert resumed.new == len(asked.keys() - seen)


@pytest.mark.parametrize(
    ("change", "where", "reused"), [("scenario", "chat-1", 2), ("model", "", 0), ("tools", "en", 0)]
)
async def test_resumption_reports_changes(
    play: Play, load: Load, toolset: Any, change: str, where: str, reused: int
) -> None:
    resumptions: list[Resumption] = []
    scenarios, model = chats(load, 0, 1, 2), ScriptedModel(lambda _: say("hi"))
    await play(scenarios, model, on_resume=resumptions.append)
    match change:
        case "scenario":
            (other,) = load(CHAT.format(n=1).replace("hello", "good morning"))
            scenarios = (scenarios[0], other, scenarios[2])
        case "model":
            model = ScriptedModel(lambda _: say("hi"), name="other")
        case _:
            toolset.registry = ToolRegistry(toolset.registry.definitions[:1])
    run = await play(scenarios, model, on_resume=resumptions.append)
    first, second = resumptions
    assert first == Resumption(total=3, new=3)
    assert replace(second, changes=()) == Resumption(total=3, kept=reused, changed=3 - reused)
    assert [(each.what, each.where) for each in second.changes] == [(change, where)]
    assert [each["what"] for each in run.manifest.invocations[-1].changes] == [change]


async def test_resumption_retries_invalid_sample(play: Play, load: Load) -> None:
    resumptions: list[Resumption] = []
    await play(chats(load, 0), ScriptedModel([Reply(error=RuntimeError("a bug"))]))
    await play(chats(load, 0), ScriptedModel([say("hi")]), on_resume=resumptions.append)
    assert resumptions == [Resumption(total=1, retried=1)]


def test_resumption_omits_unrelated_changes() -> None:
    """A scenario that was changed back to an answered question did not make one; nor did lhkit."""
    before = Manifest(scenarios={"a": "1", "b": "1"}, versions={"lhkit": "0.1"})
    after = Manifest(scenarios={"a": "2", "b": "2"}, versions={"lhkit": "0.2"})
    asked = {SampleId(scenario="a"): "new", SampleId(scenario="b"): "answered"}
    statuses = map(record_status, [record("a", "old"), record("b", "answered")])
    assert check_resumption(asked, statuses, before, after) == Resumption(
        total=2,
        kept=1,
        changed=1,
        changes=(Change(what="scenario", where="a", before="1", after="2"),),
    )


def test_manifest_changes_compare_common_fields() -> None:
    before = Manifest.model_validate(
        {
            "models": [{"model": "m", "dialect": "json", "constraint": "off"}],
            "locales": {
                "ko": {"instructions_sha256": "1" * 64},
                "en": {"instructions_sha256": "2"},
            },
            "scenarios": {"a": "1" * 64, "b": "2"},
            "versions": {"lhkit": "0.1"},
        }
    )
    after = Manifest.model_validate(
        {
            "models": [
                {"model": "m", "dialect": "gemma4", "constraint": "off", "stress": "shuffle"}
            ],
            "locales": {"ko": {"instructions_sha256": "3" * 64}},
            "scenarios": {"c": "4", "a": "5" * 64},
            "versions": {"lhkit": "0.2"},
        }
    )
    assert manifest_changes(before, after) == (
        Change(what="dialect", before="json", after="gemma4"),
        Change(what="stress", before="-", after="shuffle"),
        Change(what="prompt", where="ko", before="1" * 12, after="3" * 12),
        Change(what="lhkit", before="0.1", after="0.2"),
        Change(what="scenario", where="a", before="1" * 12, after="5" * 12),
    )
    assert manifest_changes(before, before) == manifest_changes(Manifest(), after) == ()
