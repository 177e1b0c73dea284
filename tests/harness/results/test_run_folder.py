"""A run read back from its folder: newest answers, half a line ignored, faults in a sentence."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.errors import MissingRunError, RunError
from lhkit.harness.author.reference import gold_model, silent_model
from lhkit.harness.manifest import Change, changes
from lhkit.harness.record import Judgement, SampleId, SampleRecord, Verdict, encode_record
from lhkit.harness.results import Run
from lhkit.harness.resume import Resumption, answered, answers, resumption
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario
from lhkit.harness.store import MANIFEST, RECORDS
from lhkit.models.scripted import ScriptedModel, say
from lhkit.responses import Sampling
from lhkit.tools.registry import ToolRegistry

Load = Callable[[str], tuple[Scenario, ...]]
Play = Callable[..., Any]

CHAT = "- id: chat-{n}\n  ac: AC-12\n  turns: [{{user: hello {n}, reply: {{matches: '\\S'}}}}]\n"


def chats(load: Load, *numbers: int) -> tuple[Scenario, ...]:
    return load("".join(CHAT.format(n=number) for number in numbers))


@pytest.fixture
def play(toolset: Any, clock: Any, tmp_path: Path) -> Play:
    async def run(scenarios: Any, model: Any = gold_model, **options: Any) -> Run:
        defaults = {"toolset": toolset, "progress": False, "clock": clock}
        return await replay(scenarios, model, run_dir=tmp_path / "mine", **(defaults | options))

    return run


def record(
    name: str = "a", question: str = "q", verdict: str = "pass", ac: str = ""
) -> SampleRecord:
    return SampleRecord(
        sample_id=SampleId(scenario=name),
        content_hash=question,
        ac=ac,
        locale="ko",
        judgement=Judgement(verdict=Verdict(verdict)),
    )


def folder_of(path: Path, *records: SampleRecord, tail: str = "") -> Path:
    text = "".join(f"{encode_record(each)}\n" for each in records)
    (path / RECORDS).write_text(text + tail, encoding="utf-8")
    return path


@pytest.mark.anyio
@pytest.mark.parametrize("options", [{}, {"repeats": 3, "concurrency": 4}])
async def test_what_is_read_is_what_was_returned(
    play: Play, load: Load, tmp_path: Path, toolset: Any, options: dict[str, Any]
) -> None:
    toolset.sampling = Sampling(temperature=1.0, seed=7)
    run = await play(chats(load, 3, 1, 2), **options)
    read = Run.load(tmp_path / "mine")
    assert (read.records, read.manifest, read.name) == (run.records, run.manifest, "mine")
    assert read == run


@pytest.mark.anyio
async def test_only_what_was_asked_last_is_read(play: Play, load: Load, tmp_path: Path) -> None:
    await play(chats(load, 0, 1, 2))
    await play(chats(load, 0, 1, 2), silent_model())
    again = await play(chats(load, 0, 2))
    read = Run.load(tmp_path / "mine")
    assert again.kept == 2
    assert read.records == again.records
    assert {each.judgement.verdict for each in read.records} == {Verdict.PASS}


@pytest.mark.anyio
async def test_a_run_that_was_stopped_is_read_as_far_as_it_came(
    play: Play, load: Load, tmp_path: Path
) -> None:
    class Stopped(Exception):  # noqa: N818 - no error
        pass

    def stop(_: object) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        await play(chats(load, 0), report=stop)
    assert Run.load(tmp_path / "mine").records == ()


@pytest.mark.anyio
async def test_a_run_that_is_still_written_is_read_as_far_as_it_has_come(
    play: Play, load: Load, tmp_path: Path
) -> None:
    run = await play(chats(load, 1, 2, 3))
    lines = [f"{encode_record(each)}\n" for each in run.records]
    file = tmp_path / "mine" / RECORDS
    for written, count in (("".join(lines[:2]) + lines[2][:40], 2), ("".join(lines), 3)):
        file.write_text(written, encoding="utf-8")
        assert len(Run.load(tmp_path / "mine").records) == count


def test_the_bare_name_of_a_run_that_is_there_is_told_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs" / "mine"
    folder.mkdir(parents=True)
    folder_of(folder, record("a"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingRunError, match=r"^mine holds no run: did you mean runs.mine\?$"):
        Run.load("mine")


def test_a_half_written_last_line_is_no_record(tmp_path: Path) -> None:
    line = encode_record(record("b"))
    for cut in (1, len(line) // 2, len(line)):
        run = Run.load(folder_of(tmp_path, record("a"), tail=line[:cut]))
        assert [each.sample_id.scenario for each in run.records] == ["a"]


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "holds no run: give a folder with a records.jsonl"),
        ({RECORDS: "{}\n"}, "records.jsonl:1 is no record"),
        ({RECORDS: "nonsense\n"}, "records.jsonl:1 is no record"),
        ({RECORDS: "", MANIFEST: "["}, "manifest.json is not JSON"),
        ({RECORDS: "", MANIFEST: "[]"}, "manifest.json is no JSON object"),
    ],
)
def test_a_folder_that_is_no_run_is_refused(
    files: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=sentence):
        Run.load(tmp_path)


def test_without_a_manifest_the_newest_question_of_each_sample_counts(tmp_path: Path) -> None:
    """In any order of finishing; and a valid answer is not replaced by a later invalid one."""
    folder_of(
        tmp_path,
        record("b", "old", "pass"),
        record("b", "new", "fail"),
        record("b", "new", "invalid"),
        record("a", "q", "invalid", ac="first"),
        record("a", "q", "invalid", ac="second"),
    )
    read = Run.load(tmp_path).records
    assert [
        (r.sample_id.scenario, r.content_hash, str(r.judgement.verdict), r.ac) for r in read
    ] == [
        ("a", "q", "invalid", "second"),
        ("b", "new", "fail", ""),
    ]


def test_a_run_says_in_one_line_what_it_is() -> None:
    records = (record("a"), record("b", verdict="fail"), record("c", verdict="invalid"))
    assert repr(Run(records=records, manifest={}, name="x")) == (
        "<Run x: 3 samples: 1 passed, 1 failed, 1 invalid>"
    )
    assert repr(Run(records=(), manifest={})) == "<Run: 0 samples: 0 passed, 0 failed, 0 invalid>"


questions = st.dictionaries(
    st.builds(SampleId, scenario=st.sampled_from("abcdef")), st.sampled_from(["1", "2"])
)
found = st.lists(
    st.builds(
        record,
        st.sampled_from("abcdef"),
        st.sampled_from(["1", "2"]),
        st.sampled_from(["pass", "fail", "invalid"]),
    )
)


@given(questions, found)
def test_every_sample_is_kept_retried_changed_or_new(
    asked: dict[SampleId, str], records: list[SampleRecord]
) -> None:
    resumed = resumption(asked, answered(records), {}, {})
    assert resumed.kept + resumed.retried + resumed.changed + resumed.new == len(asked)
    if asked:
        valid = [
            each
            for each in answers(records, asked)
            if each.judgement.verdict is not Verdict.INVALID
        ]
        assert resumed.kept == len(valid)
    seen = {each.sample_id for each in records}
    assert resumed.new == len(asked.keys() - seen)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("nothing", Resumption(asked=3, kept=3)),
        ("more", Resumption(asked=3, kept=3)),
        ("scenario", Resumption(asked=3, kept=2, changed=1)),
        ("model", Resumption(asked=3, changed=3)),
        ("sampling", Resumption(asked=3, changed=3)),
        ("tools", Resumption(asked=3, changed=3)),
    ],
)
async def test_a_run_says_what_is_asked_anew_and_why(
    play: Play,
    load: Load,
    toolset: Any,
    registry: ToolRegistry,
    change: str,
    expected: Resumption,
) -> None:
    told: list[Resumption] = []
    scenarios, model = chats(load, 0, 1, 2), ScriptedModel(lambda _: say("hi"))
    await play(scenarios, model, report=told.append)
    match change:
        case "scenario":
            (other,) = load(CHAT.format(n=1).replace("hello", "good morning"))
            scenarios = (scenarios[0], other, scenarios[2])
        case "model":
            model = ScriptedModel(lambda _: say("hi"), name="other")
        case "sampling":
            toolset.sampling = Sampling(max_tokens=9)
        case "tools":
            toolset.registry = ToolRegistry(registry.definitions[:1])
        case _:
            pass
    run = await play(scenarios, model, report=told.append)
    assert told[0] == Resumption(asked=3, new=3)
    why = told[1].changes
    assert replace(told[1], changes=()) == expected
    assert [each.what for each in why] == ([change] if expected.changed else [])
    assert [each["what"] for each in run.manifest["invocations"][-1]["changes"]] == [
        each.what for each in why
    ]
    if change == "scenario":
        assert why[0].where == "chat-1"
    if change == "sampling":
        assert why[0] == Change(what="sampling", where="max_tokens", before="256", after="9")


def test_only_what_makes_a_question_new_is_named() -> None:
    """A scenario that was changed back to an answered question did not make one; nor did lhkit."""
    before = {"scenarios": {"a": "1", "b": "1"}, "versions": {"lhkit": "0.1"}}
    after = {"scenarios": {"a": "2", "b": "2"}, "versions": {"lhkit": "0.2"}}
    asked = {SampleId(scenario="a"): "new", SampleId(scenario="b"): "answered"}
    told = resumption(asked, answered([record("a", "old"), record("b", "answered")]), before, after)
    assert told == Resumption(
        asked=2,
        kept=1,
        changed=1,
        changes=(Change(what="scenario", where="a", before="1", after="2"),),
    )


@pytest.mark.anyio
async def test_an_invalid_sample_is_retried_not_new(play: Play, load: Load) -> None:
    told: list[Resumption] = []

    def broken(_: object) -> Any:
        raise RuntimeError("a bug")

    await play(chats(load, 0), ScriptedModel(broken))
    await play(chats(load, 0), ScriptedModel(lambda _: say("hi")), report=told.append)
    assert told == [Resumption(asked=1, retried=1)]


def test_changes_name_what_differs_and_only_what_both_runs_say() -> None:
    before = {
        "models": [{"model": "m", "dialect": "json", "constraint": "off"}],
        "locales": {"ko": {"instructions_sha256": "1" * 64}, "en": {"instructions_sha256": "2"}},
        "scenarios": {"a": "1" * 64, "b": "2"},
        "versions": {"lhkit": "0.1"},
    }
    after = {
        "models": [{"model": "m", "dialect": "gemma4", "constraint": "off", "stress": "shuffle"}],
        "locales": {"ko": {"instructions_sha256": "3" * 64}},
        "scenarios": {"c": "4", "a": "5" * 64},
        "versions": {"lhkit": "0.2"},
    }
    assert changes(before, after) == (
        Change(what="dialect", before="json", after="gemma4"),
        Change(what="stress", before="-", after="shuffle"),
        Change(what="prompt", where="ko", before="1" * 12, after="3" * 12),
        Change(what="lhkit", before="0.1", after="0.2"),
        Change(what="scenario", where="a", before="1" * 12, after="5" * 12),
    )
    assert changes(before, before) == changes({}, after) == ()
