"""Drafts of scenarios from recorded chats: what is found, proposed, clustered and refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import (
    LhkitError,
    MissingRunError,
    ModelError,
    RunError,
    ScenarioError,
    UsageError,
)
from lhkit.base.locales import load_catalog
from lhkit.base.redaction import hide
from lhkit.confirm.decision import QuestionOutcome, Reject
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.authoring.scenario_yaml import yaml_text
from lhkit.harness.chats.chats import load_chats
from lhkit.harness.chats.draft_scenarios import ProposedCall, completed, edited_document
from lhkit.harness.chats.draft_texts import finding_lines, question_text
from lhkit.harness.chats.drafts import (
    Answer,
    Draft,
    DraftDecision,
    DraftKind,
    open_drafts,
    read_drafts,
)
from lhkit.harness.exports import suggest as suggest_module
from lhkit.harness.exports.findings import candidates, is_same_request
from lhkit.harness.exports.suggest import Suggestions, suggest
from lhkit.harness.running.run import replay
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.loader import load_scenarios, read_sources
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.testing import echo_tool
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import load, load_toolset
from tests.harness.recorded_chats import ADDED, ASK, FAILED, NOW, PANTRY, SURE, Said, put, record

pytestmark = pytest.mark.anyio

EDITED = Said(ASK, [put(amount=12), ADDED], [{"amount": 2}])
REJECTED = Said(ASK, [put(place="shelf"), say("All right.")], [Reject("the fridge, not the shelf")])
CLAIMED = Said(ASK, [say("I added 2 tofu.")])
DENIED = Said(ASK, [put(), say("Sorry, I could not add it.")], [True])
IGNORED = Said(ASK, [SURE])
AGAIN = Said("I said: put 2 tofu in the fridge!", [put(), ADDED], [True])
DONE = Said(ASK, [put(), ADDED], [True])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "chats"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "drafts.jsonl"


def content(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


def write(file: Path, data: bytes) -> None:
    file.write_bytes(data)


async def suggested(folder: Path, file: Path) -> Suggestions:
    return await suggest(folder, file, load(PANTRY))


async def only_draft(folder: Path, file: Path, *turns: Said, **options: Any) -> Draft:
    await record(folder, *turns, **options)
    result = await suggested(folder, file)
    assert result.left_out == ()
    (draft,) = result.drafts
    return draft


async def fails_again(draft: Draft, *turns: Said) -> bool:
    """Return whether the mistake of the chat fails its draft, which gold passes without lint."""
    scenario, toolset = Scenario.from_data(draft.scenario), load(PANTRY)
    suite = Path(draft.source.folder) / "x.yaml"
    suite.write_text(yaml_text([draft.scenario]), encoding="utf-8")
    findings = await lint(read_sources([suite]), toolset)
    assert {each.code for each in findings} <= {"unchecked_reply", "echo"}
    suite.unlink()
    assert (await run_sample(scenario, gold_model, toolset)).is_passed
    replies = [reply for turn in turns for reply in turn.replies]
    return not (await run_sample(scenario, ScriptedModel(replies), toolset)).is_passed


def last_turn(draft: Draft) -> Any:
    return draft.scenario["turns"][-1]


async def test_suggest_takes_an_edit_as_the_right_answer(folder: Path, file: Path) -> None:
    draft = await only_draft(folder, file, Said("hello", [say("Hi!")]), EDITED, DONE)
    assert draft.kinds == (DraftKind.EDIT,)
    (expected,) = draft.calls
    assert expected == {
        "tool": "add_item",
        "args": {"name": "tofu", "amount": 2, "place": "fridge"},
        "result": "ok",
    }
    assert len(draft.scenario["turns"]) == 2  # what came after is not part of it
    (row,) = draft.scenario["final"]["items"]
    assert (row["name"], row["amount"]) == ("tofu", 2)
    assert draft.source.turn == 1
    assert [*finding_lines(draft.findings, load_catalog("en"))] == [
        "the user corrected add_item: amount 12 → 2"
    ]
    assert await fails_again(draft, Said("hello", [say("Hi!")]), EDITED)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("answer", "kind"), [({"anchor_after_what": "dinner"}, "edit"), (Reject("no"), "rejection")]
)
@pytest.mark.parametrize("is_same_turn", [True, False])
async def test_suggest_makes_the_reads_that_a_write_needs(
    answer: Any, kind: str, is_same_turn: bool, folder: Path, file: Path
) -> None:
    look = call("search_catalog", query="caffeine")
    add = call(
        "add_habit",
        protocol_id="caffeine-cutoff",
        frame_level="identity",
        framed_text="I sleep well",
        anchor_after_what="lunch",
    )
    turns = [
        Said("find something against caffeine", [look, say("Here is one.")]),
        Said("Add it, please", [add, say("All right.")], [answer]),
    ]
    if is_same_turn:
        turns = [Said("Add a habit to cut caffeine", [look, add, say("All right.")], [answer])]
    await record(folder, *turns, toolset=load(), world={"now": NOW.isoformat()})
    result = await suggest(folder, file, load())
    assert result.left_out == ()
    (draft,) = result.drafts
    assert draft.kinds == (DraftKind(kind),)
    fixed = edited_document(
        draft.scenario,
        ProposedCall(tool="add_habit", args={**add.calls[0].args, "anchor_after_what": "tea"}),
    )
    assert (await completed(fixed, load()))["final"]["habits"][0]["anchor_after_what"] == "tea"


async def test_suggest_takes_an_edit_of_a_turn_that_failed_later(folder: Path, file: Path) -> None:
    draft = await only_draft(folder, file, Said(ASK, [put(amount=12), FAILED], [{"amount": 2}]))
    assert draft.kinds == (DraftKind.EDIT,)


async def test_suggest_forbids_a_rejected_call(folder: Path, file: Path) -> None:
    draft = await only_draft(folder, file, REJECTED)
    assert draft.kinds == (DraftKind.REJECTION,)
    assert draft.calls == ()
    assert last_turn(draft)["forbid"][0]["args"]["place"] == "shelf"
    assert last_turn(draft)["confirm"] == {"reject": "the fridge, not the shelf"}
    assert "final" not in draft.scenario
    assert "not known" in question_text(draft, load_catalog("en"))
    assert await fails_again(draft, REJECTED)


async def test_suggest_expects_the_call_approved_after_a_rejection(
    folder: Path, file: Path
) -> None:
    both = Said(ASK, [put(place="shelf"), put(), ADDED], [Reject("the fridge"), True])
    draft = await only_draft(folder, file, both)
    assert draft.kinds == (DraftKind.REJECTION,)
    assert draft.calls[0]["args"]["place"] == "fridge"
    assert last_turn(draft)["forbid"][0]["args"]["place"] == "shelf"
    assert await fails_again(draft, both)


@pytest.mark.longer
async def test_suggest_finds_replies_that_contradict_the_data(folder: Path, file: Path) -> None:
    await record(folder, CLAIMED)
    await record(folder, DENIED, number=1)
    claim, denial = (await suggested(folder, file)).drafts
    assert claim.kinds == denial.kinds == (DraftKind.CONFLICT,)
    assert (claim.calls, last_turn(claim)["reply"]["claims"]) == ((), "none")
    assert denial.calls[0]["tool"] == "add_item"
    assert last_turn(denial)["reply"]["excludes"] == ["Sorry, I could not add it."]
    assert await fails_again(claim, CLAIMED)
    assert await fails_again(denial, DENIED)


@pytest.mark.parametrize(
    ("reply", "is_denial"),
    [
        ("The tofu hasn't been added yet.", True),
        ("It was never put in, sorry.", True),
        ("두부는 아직 안 넣었어요.", True),
        ("I added the tofu, not the butter.", False),
        ("Was it not added?", False),
        ("The butter is not there.", False),
    ],
)
async def test_suggest_reads_the_negated_success_phrases_of_the_tool(
    reply: str, is_denial: bool, folder: Path, file: Path
) -> None:
    await record(folder, Said(ASK, [put(), say(reply)], [True]))
    drafts = (await suggested(folder, file)).drafts
    assert [draft.findings[0].was_written for draft in drafts] == [True] * is_denial


async def test_suggest_expects_the_call_of_the_repeated_request(folder: Path, file: Path) -> None:
    draft = await only_draft(folder, file, IGNORED, Said("hello", [say("Hi!")]), AGAIN)
    assert draft.kinds == (DraftKind.REPEAT,)
    assert len(draft.scenario["turns"]) == 1
    assert draft.calls[0]["args"] == {"name": "tofu", "amount": 2, "place": "fridge"}
    assert await fails_again(draft, IGNORED)


async def test_suggest_leaves_open_what_nobody_did(folder: Path, file: Path) -> None:
    draft = await only_draft(folder, file, IGNORED, IGNORED, IGNORED)
    assert draft.source.turn == 0
    assert draft.calls == ()
    assert "not known" in question_text(draft, load_catalog("en"))


async def test_suggest_combines_the_findings_of_a_turn(folder: Path, file: Path) -> None:
    draft = await only_draft(folder, file, CLAIMED, AGAIN)
    assert draft.kinds == (DraftKind.CONFLICT, DraftKind.REPEAT)
    assert draft.calls[0]["tool"] == "add_item"
    assert "excludes" not in last_turn(draft).get("reply", {})  # true once the call is made


@pytest.mark.parametrize(
    "turns",
    [
        [DONE],
        [DONE, DONE],  # two of them were wanted
        [Said(ASK, [put(), SURE], [Reject("not now")]), DONE],  # yes after all
        [IGNORED, Said("put 2 butter in the fridge", [put("butter"), ADDED], [True])],
        [IGNORED, Said("put 3 tofu in the fridge", [put(amount=3), ADDED], [True])],
        [Said("put tofu in the fridge", [say("How many?")]), AGAIN],  # the answer to a question
        [IGNORED, Said("hello", [say("Hi!")]), IGNORED],  # such as thanks, twice
        [Said(ASK, [FAILED]), AGAIN],  # the server was gone
        [Said(ASK, [Reply(text="I added 2 tofu.", error=ModelError("gone"))])],
        [Said(ASK, [put(), SURE], [Reject(how=QuestionOutcome.TIMED_OUT)])],
        [Said("what is there", [say("I could not find any tofu.")])],
        [Said(ASK, [put(), say("I added it, but I could not find the milk.")], [True])],
    ],
)
async def test_suggest_passes_over_what_is_no_mistake(turns: list[Said], folder: Path) -> None:
    await record(folder, *turns)
    (chat,) = load_chats(folder).records
    assert [*candidates(chat)] == []


@pytest.mark.longer
async def test_suggest_reads_korean(folder: Path, file: Path) -> None:
    ask = "두부 2개 냉장실에 넣어 줘"
    await record(
        folder,
        Said(ask, [say("네, 알겠어요.")]),
        Said("아니 두부 2개 냉장실에 넣어 달라고!", [put("두부"), say("넣었어요.")], [True]),
        locale="ko",
    )
    await record(folder, Said(ask, [say("두부를 추가했어요.")]), locale="ko", number=1)
    await record(
        folder,
        Said(ask, [put("두부"), say("두부를 넣지 못했어요.")], [True]),
        locale="ko",
        number=2,
    )
    drafts = (await suggested(folder, file)).drafts
    assert [draft.kinds for draft in drafts] == [
        (DraftKind.REPEAT,),
        (DraftKind.CONFLICT,),
        (DraftKind.CONFLICT,),
    ]
    assert {draft.scenario["locale"] for draft in drafts} == {"ko"}
    korean = load_catalog("ko")
    assert "다시 부탁했습니다" in next(finding_lines(drafts[0].findings, korean))


@pytest.mark.longer
async def test_suggest_names_near_duplicates_in_one_draft(folder: Path, file: Path) -> None:
    first = await record(folder, EDITED)
    second = await record(
        folder,
        Said("put 3 tofus in the fridge", [put("tofus", 13), ADDED], [{"amount": 3}]),
        number=1,
    )
    await record(  # another argument is another mistake
        folder,
        Said(ASK, [put(place="shelf"), ADDED], [{"place": "fridge"}]),
        number=2,
    )
    result = await suggested(folder, file)
    assert (len(result.drafts), result.near) == (2, 1)
    drafts = read_drafts(file)
    sources = drafts.sources_of(result.drafts[0].id)
    assert [source.chat for source in sources] == [first, second]


@pytest.mark.longer
async def test_suggest_again_adds_only_what_is_new_and_keeps_decisions(
    folder: Path, file: Path
) -> None:
    draft = await only_draft(folder, file, EDITED)
    with open_drafts(file) as writer:
        writer.decide(DraftDecision(draft=draft.id, answer=Answer.NO, reviewer="kim"))
    before = content(file)
    again = await suggested(folder, file)
    assert (again.drafts, again.near, again.known, again.open) == ((), 0, 1, 0)
    assert content(file) == before
    await record(folder, REJECTED, number=1)
    await record(folder, replace(EDITED, user="put 2 tofus in the fridge"), number=2)
    more = await suggested(folder, file)
    assert (len(more.drafts), more.near, more.known, more.open) == (1, 1, 1, 1)
    drafts = read_drafts(file)
    assert content(file).startswith(before)
    assert drafts.decisions[draft.id].answer is Answer.NO
    assert len(drafts.sources_of(draft.id)) == 2


@pytest.mark.longer
async def test_suggest_resumes_after_a_kill(
    folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, turn in enumerate([EDITED, REJECTED, CLAIMED]):
        await record(folder, turn, number=number)
    whole = file.with_name("whole.jsonl")
    await suggested(folder, whole)
    made = []

    async def killed_once(*args: Any) -> Any:
        made.append(args)
        if len(made) == 2:
            raise KeyboardInterrupt
        return await completed(*args)

    monkeypatch.setattr(suggest_module, "completed", killed_once)
    with pytest.raises(KeyboardInterrupt):
        await suggested(folder, file)
    assert len(read_drafts(file).drafts) == 1
    with file.open("ab") as journal:
        journal.write(b'{"lhkit_drafts":1,"draft":{"id"')  # half a line of the killed process
    assert len(read_drafts(file).drafts) == 1
    result = await suggested(folder, file)
    assert (len(result.drafts), result.known) == (2, 1)
    assert content(file) == content(whole)


async def test_suggest_refuses_folders_and_files_of_another_kind(
    folder: Path, file: Path, tmp_path: Path
) -> None:
    with pytest.raises(MissingRunError):
        await suggested(tmp_path / "nothing", file)
    assert not content(file)
    run = tmp_path / "run"
    scenario = Scenario.from_data(
        {"id": "a", "world": {"now": NOW.isoformat()}, "turns": [{"user": "hi"}]}
    )
    await replay([scenario], ScriptedModel([]), progress=False, run_dir=run)
    with pytest.raises(UsageError, match="has a run"):
        await suggested(run, file)
    await record(folder, EDITED)
    with pytest.raises(UsageError, match=r"with the toolset PantryToolset, and this one is tools"):
        await suggest(folder, file, load_toolset(ToolRegistry([echo_tool("look")])))
    with pytest.raises(UsageError, match=r"drafts\.yaml cannot hold drafts"):
        await suggested(folder, file.with_suffix(".yaml"))
    for other in (b"my notes, without an end of line", b"[]\n", b'{"id": "a"}\n'):
        write(file, other)
        with pytest.raises(UsageError, match=r"drafts\.jsonl has no drafts"):
            await suggested(folder, file)
        assert content(file) == other
    records = folder / "records.jsonl"
    write(records, b"{}\n" + content(records))
    with pytest.raises(RunError, match=r"records\.jsonl:1 is not a valid record"):
        await suggested(folder, tmp_path / "new.jsonl")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{}", "lhkit_drafts: Field required"),
        (b"nonsense", "Expecting value"),
        (b'{"lhkit_drafts":1}', "no draft, source or decision"),
        (b'{"lhkit_drafts":1,"decision":{"draft":"x","answer":"no","reviewer":"k"}}', "no draft x"),
        (b'{"lhkit_drafts":1,"draft":{"id":5}}', "draft.id"),
    ],
)
async def test_suggest_names_the_line_that_is_no_draft(
    line: bytes, why: str, folder: Path, file: Path
) -> None:
    draft = await only_draft(folder, file, EDITED)
    write(file, content(file) + line + b"\n")
    with pytest.raises(RunError, match=rf"drafts\.jsonl:2 has an invalid draft \(.*{why}"):
        await suggested(folder, file)
    assert draft.id in content(file).decode()


@pytest.mark.longer
async def test_suggest_names_turns_whose_tools_are_missing(folder: Path, file: Path) -> None:
    class Smaller:
        name = "PantryToolset"

        def open(self, world: Any, locale: str) -> Any:
            session = load(PANTRY).open(world, locale)
            others = [t for t in session.registry.definitions if t.name != "add_item"]
            return replace(session, registry=ToolRegistry(others))

    await record(folder, REJECTED)
    await record(folder, EDITED, number=1)
    result = await suggest(folder, file, Smaller())  # type: ignore[arg-type]
    assert result.drafts == ()
    assert all("'add_item' does not exist" in each.why for each in result.left_out)
    assert [each.turn for each in result.left_out] == [0, 0]
    assert len((await suggested(folder, file)).drafts) == 2  # nothing is remembered of it


async def test_suggest_refuses_tools_on_real_data(folder: Path, file: Path) -> None:
    class Real:
        name, is_isolated = "PantryToolset", False

        def open(self, world: Any, locale: str) -> Any:
            raise AssertionError

    await record(folder, EDITED)
    with pytest.raises(LhkitError, match="not isolated"):
        await suggest(folder, file, Real())  # type: ignore[arg-type]


async def test_suggest_masks_secrets(folder: Path, file: Path) -> None:
    await record(folder, Said("put 2 SECRETVALUE77 in the fridge", EDITED.replies, [{"amount": 2}]))
    hide("SECRETVALUE77")
    try:
        await suggested(folder, file)
    finally:
        hide(None)
    assert b"SECRETVALUE77" not in content(file)


async def test_loader_refuses_drafts_in_one_line(folder: Path, file: Path) -> None:
    await record(folder, EDITED)
    await record(folder, REJECTED, number=1)
    await suggested(folder, file)
    with pytest.raises(ScenarioError) as caught:
        load_scenarios([file])
    assert len(str(caught.value).splitlines()) == 1
    assert "has drafts, which are not run" in str(caught.value)
    named = file.with_name("mine.scenario.jsonl")
    write(named, content(file))
    with pytest.raises(ScenarioError, match="has drafts, which are not run"):
        load_scenarios([file.parent])


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("put 2 tofu in the fridge", "please put 2 tofu in the fridge", True),
        ("Can you put tofu in the fridge?", "put tofu in the fridge!!", True),
        ("put 2 tofu in the fridge", "put 3 tofu in the fridge", False),
        ("put tofu in the fridge", "put butter in the fridge", False),
        ("우유 추가해 줘", "우유 좀 추가해 주세요", True),
        ("우유를 냉장실에 넣어 줘", "아니 우유 냉장실에 넣어 달라고", True),
        ("우유 추가해 줘", "두유 추가해 줘", False),
        ("우유 2개 추가해 줘", "우유 3개 추가해 줘", False),
        ("", "", False),
        ("!!", "??", False),
    ],
)
def test_same_request_ignores_words_around_it(first: str, second: str, is_same: bool) -> None:
    assert is_same_request(first, second) is is_same
