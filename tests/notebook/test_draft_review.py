"""The review of drafts: yes, edit and no by presses; a yes writes the suite."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from lhkit.base.errors import RunError, UsageError
from lhkit.base.locales import load_catalog
from lhkit.confirm.decision import Reject
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.chats.chats import forget_chats
from lhkit.harness.chats.drafts import Answer, read_drafts
from lhkit.harness.exports.suggest import suggest
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios, read_sources
from lhkit.models.recorded.scripted import say
from lhkit.notebook import DraftReview, Review
from lhkit.notebook.boards.board_view import draft_parts
from lhkit.toolset import load
from tests.harness.recorded_chats import ADDED, ASK, PANTRY, Said, put, record
from tests.notebook.test_ab import _is_harmless
from tests.notebook.test_render import EVIL, HIDDEN, Elements

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

EDITED = Said(ASK, [put(amount=12), ADDED], [{"amount": 2}])
REJECTED = Said(ASK, [put(place="shelf"), say("All right.")], [Reject("the fridge!")])
CLAIMED = Said(ASK, [say("I added 2 tofu.")])


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """Return a file with three drafts: an edit, a rejection, a false claim."""
    for number, turn in enumerate([EDITED, REJECTED, CLAIMED]):
        await record(tmp_path / "chats", turn, number=number)
    file = tmp_path / "drafts.jsonl"
    result = await suggest(tmp_path / "chats", file, load(PANTRY))
    assert len(result.drafts) == 3
    return file


def press(review: DraftReview, name: str, value: str = "", /, **fields: str) -> None:
    typed = {f"arg:{name}": text for name, text in fields.items()}
    content = {"type": "press", "press": name, "value": value, "fields": typed}
    review._board.take_message(content)


def html_of(review: DraftReview, locale: str = "en") -> str:
    return "".join(draft_parts(review.state, load_catalog(locale)))


async def until_free(review: DraftReview) -> None:
    while review._tasks.is_active:
        (task,) = review._tasks._started
        await task


def text_of(file: Path) -> str:
    return file.read_bytes().decode() if file.exists() else ""


def write(file: Path, text: str) -> Path:
    file.write_bytes(text.encode())
    return file


def in_suite(file: Path) -> list[dict[str, Any]]:
    return yaml.safe_load(text_of(file.with_suffix(".scenario.yaml"))) or []


@pytest.mark.longer
async def test_drafts_reach_the_suite_only_by_a_yes(file: Path) -> None:
    review = DraftReview(file, reviewer="kim", toolset=PANTRY, locale="en")
    suite = file.with_suffix(".scenario.yaml")
    first, second, third = read_drafts(file).drafts.values()
    assert "draft 1 of 3, 3 open" in repr(review)
    assert not text_of(suite)
    press(review, "decide", "yes")
    assert (review.state.draft.id, review.state.content.open) == (second.id, (second.id, third.id))
    assert in_suite(file) == [first.scenario]
    press(review, "decide", "no")
    assert review.state.draft.id == third.id
    assert len(in_suite(file)) == 1
    press(review, "decide", "edit")
    assert review.state.form is not None
    press(review, "tool", "add_item")
    press(review, "save", name="tofu", amount="2", place="fridge")
    assert review.state.is_busy
    press(review, "decide", "no")  # ignored while its calls run
    assert third.id not in read_drafts(file).decisions
    await until_free(review)
    assert review.state.form is None
    assert [each["id"] for each in in_suite(file)] == [first.id, third.id]
    assert "lhkit lint" in repr(review)
    answers = {name: each.answer for name, each in read_drafts(file).decisions.items()}
    assert answers == {first.id: Answer.YES, second.id: Answer.NO, third.id: Answer.EDIT}
    assert {each.reviewer for each in read_drafts(file).decisions.values()} == {"kim"}

    sources = read_sources([suite])
    edited = sources.scenarios[1]
    assert [call.tool for call in edited.turns[0].expect.calls] == ["add_item"]
    assert edited.final["items"][0]["name"] == "tofu"
    assert not edited.turns[0].reply.claims
    assert {each.code for each in await lint(sources, load(PANTRY))} <= {"unchecked_reply", "echo"}
    run = await replay(sources.scenarios, gold_model, toolset=load(PANTRY), progress=False)
    assert {each.score.verdict for each in run.records} == {Verdict.PASS}


@pytest.mark.longer
async def test_decisions_stay_when_the_review_is_opened_again(file: Path) -> None:
    review = DraftReview(file, locale="en")
    review.decide("no")
    review.decide("yes")
    again = DraftReview(file, reviewer="lee", locale="en")
    assert again.state.conversation == 2
    again.go(0)
    assert "No" in html_of(again)
    again.decide("yes")  # a no may be changed
    again.go(0)
    with pytest.raises(UsageError, match="already: change it there"):
        again.decide("no")
    press(again, "decide", "no")
    assert "already" in again.state.notices[0].text
    assert len(in_suite(file)) == 2
    result = await suggest(file.parent / "chats", file, load(PANTRY))
    assert (result.drafts, result.known, result.open) == ((), 3, 1)
    with pytest.raises(UsageError, match="say yes or no"):
        again.decide("perhaps")


@pytest.mark.longer
async def test_a_kill_between_suite_and_decision_adds_no_scenario_twice(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    review = DraftReview(file, locale="en")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("lhkit.harness.chats.drafts.DraftWriter.decide", killed)
        with pytest.raises(KeyboardInterrupt):
            review.decide("yes")
    assert len(in_suite(file)) == 1
    again = DraftReview(file, locale="en")
    assert len(again.state.content.open) == 3
    again.decide("yes")
    assert len(in_suite(file)) == 1
    assert len(read_drafts(file).open) == 2


@pytest.mark.longer
async def test_yes_keeps_what_the_suite_has(file: Path, tmp_path: Path) -> None:
    suite = tmp_path / "mine.yaml"
    before = "# mine\r\n- id: hello\r\n  turns:\n    - user: hi  # politely"
    write(suite, before)
    DraftReview(file, suite=suite, locale="en").decide("yes")
    assert text_of(suite).startswith(f"{before}\n\n- id: ")
    assert len(load_scenarios(suite)) == 2
    for name, text in (("a.yaml", "a: 1\n"), ("b.yaml", "- {"), ("c.yaml", "  - id: x\n")):
        other = write(tmp_path / name, text)
        with pytest.raises(UsageError, match=name):
            DraftReview(file, suite=other, locale="en").decide("yes")
        assert text_of(other) == text
    with pytest.raises(UsageError, match="give a YAML file"):
        DraftReview(file, suite=tmp_path / "x.json", locale="en").decide("yes")
    assert len(read_drafts(file).decisions) == 1


@pytest.mark.longer
async def test_edit_shows_why_a_call_is_refused(file: Path) -> None:
    review = DraftReview(file, toolset=PANTRY, locale="en")
    press(review, "decide", "edit")
    form = review.state.form
    assert form is not None
    assert form.typed == {"name": "tofu", "amount": "2", "place": "fridge"}
    press(review, "save", name="tofu", amount="two", place="fridge")
    assert list(review.state.form.errors) == ["amount"]
    press(review, "tool", "use_item")
    press(review, "save", item_id="milk", amount="50")
    await until_free(review)
    assert review.state.form is not None  # there are only nine, so the reference fails
    assert "[gold]" in review.state.form.error
    assert not review.state.is_busy
    assert not in_suite(file)
    press(review, "cancel")
    assert review.state.form is None
    with pytest.raises(UsageError, match="no tool nothing"):
        await review.edit("nothing", {})
    assert not read_drafts(file).decisions


@pytest.mark.longer
async def test_edit_needs_the_tools_of_the_chats(file: Path) -> None:
    review = DraftReview(file, locale="en")
    press(review, "decide", "edit")
    assert "give DraftReview the toolset" in review.state.notices[0].text
    with pytest.raises(UsageError, match="its own toolset"):
        await DraftReview(file, toolset="life-helper", locale="en").edit("add_item", {})


@pytest.mark.longer
@pytest.mark.parametrize(("locale", "words"), [("en", "near-duplicate"), ("ko", "거의 같은 턴")])
async def test_draft_review_shows_source_proposal_and_near_duplicates(
    file: Path, locale: str, words: str
) -> None:
    await record(file.parent / "chats", EDITED, number=9)
    await suggest(file.parent / "chats", file, load(PANTRY))
    review = DraftReview(file, locale=locale)
    html = html_of(review, locale)
    assert words in html
    assert "chat-20260615-090900" in html
    assert "data-current" in html
    assert 'data-key="1"' in html
    shown = Elements(html).read
    for text in (ASK, "amount 12 → 2", '"amount":2', "extra: reads"):
        assert text in shown
    press(review, "next_talk")
    assert "the fridge!" in Elements(html_of(review, locale)).read
    press(review, "previous_talk")
    assert review.state.conversation == 0


@pytest.mark.longer
async def test_draft_review_shows_the_messages_of_a_deleted_chat(file: Path) -> None:
    forget_chats(file.parent / "chats")
    html = html_of(DraftReview(file, locale="en"))
    assert "not in" in html
    assert ASK in html


@pytest.mark.longer
@pytest.mark.parametrize("locale", ["ko", "en"])
async def test_draft_review_escapes_html(tmp_path: Path, locale: str) -> None:
    chats, file = tmp_path / "chats", tmp_path / "drafts.jsonl"
    evil = [put(EVIL[:40]), say(f"I could not add it. {EVIL} {HIDDEN}")]
    await record(chats, Said(f"{EVIL} {HIDDEN}", evil, [{"name": EVIL[:39]}]))
    await suggest(chats, file, load(PANTRY))
    review = DraftReview(file, toolset=PANTRY, locale=locale)
    press(review, "decide", "edit")
    html = html_of(review, locale)
    plain = html.replace("<code", "<div").replace("</code>", "</div>").replace("<p>", "<div>")
    for tag in ("label", "select", "option", "details", "summary"):
        plain = plain.replace(f"<{tag}", "<div").replace(f"</{tag}>", "</div>")
    _is_harmless(plain)


async def test_draft_review_refuses_other_files(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Open drafts with DraftReview"):
        Review(file)
    with pytest.raises(UsageError, match=r"does not exist\. Write it with `lhkit chats suggest"):
        DraftReview(tmp_path / "none.jsonl")
    empty = write(tmp_path / "empty.jsonl", "")
    with pytest.raises(UsageError, match="has no draft"):
        DraftReview(empty)
    write(file, text_of(file) + "{}\n")
    with pytest.raises(RunError, match=r"drafts\.jsonl:4 has an invalid draft"):
        DraftReview(file)
