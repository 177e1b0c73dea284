"""Reviews: stored labels, a form of the schema, agreement of two reviewers, exports."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit import Run, add_scores, judge, load_scenarios
from lhkit.base.errors import RunError, UsageError
from lhkit.base.locales import load_catalog
from lhkit.cli.agreement import AgreementOptions, agreement
from lhkit.confirm.decision import Edit, Reject
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.chats.corrections import read_conversations
from lhkit.harness.chats.reviews import LabelKind, ReviewFile, places_of
from lhkit.harness.figures.agreement import cohens_kappa
from lhkit.harness.figures.rates import wilson
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import read_sources
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.notebook import demo_panel
from lhkit.notebook.boards.board import Press
from lhkit.notebook.boards.board_view import agreement_lines, review_parts
from lhkit.notebook.boards.review import Review
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.settings import Settings
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import load
from tests.notebook.test_ab import _is_harmless
from tests.notebook.test_render import EVIL, HIDDEN, Elements

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

DEV = Path(__file__).parents[2] / "datasets" / "ac" / "dev"
ADD = "Add a habit to cut caffeine"

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": EVIL},
        "kind": {"enum": ["big", "small"]},
        "count": {"type": "integer", "minimum": 1},
        "is_new": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    },
    "required": ["title", "kind"],
}
TOOLS = ToolRegistry(
    [echo_tool("note", parameters=SCHEMA), echo_tool("look", parameters=object_schema())]
)
GIVEN = {"title": "milk", "kind": "small", "count": 2, "is_new": True, "tags": ["a"]}


@pytest.fixture
async def chats(settings: Settings, tmp_path: Path) -> Path:
    """Return a folder of two chats: three calls, four replies."""
    folder = tmp_path / "chats"
    for first in (ADD, "List my habits"):
        panel = demo_panel(locale="en", pace_s=0, record=folder, settings=settings)
        await panel.send(first, answers=[True])
        await panel.send("hello")
    return folder


@pytest.fixture
async def notes(settings: Settings, tmp_path: Path) -> Path:
    """Return a folder with one chat over tools with every kind of argument, and hostile words."""
    replies = [call("note", **GIVEN), say(EVIL)]
    panel = ChatPanel(
        model=ScriptedModel(replies),
        toolset=TOOLS,
        opt_in=True,
        record=tmp_path / "notes",
        settings=settings,
    )
    await panel.send(EVIL)
    return tmp_path / "notes"


def press(review: Review, name: str, value: str = "", **fields: str) -> None:
    content = {"type": "press", "press": name, "value": value, "fields": fields}
    review._board.take_message(content)


def fields_of(**typed: str) -> dict[str, str]:
    return {f"arg:{name}": text for name, text in typed.items()}


def judge_all(review: Review, *, call: str = "right", reply: str = "fine") -> None:
    while review.state.done < len(review.state.records):
        review.judge(reply if review.state.call is None else call)


@pytest.mark.longer
async def test_review_resumes_and_ignores_a_truncated_line(chats: Path) -> None:
    review = Review(chats, reviewer="kim", locale="en")
    assert len(review.state.places) == 4
    press(review, "judge", "right")
    press(review, "judge", "wrong")
    press(review, "judge", "wrong")  # the reply is looked at by now: not a word for it
    assert review.state.place == 2
    with (chats / "reviews/kim.jsonl").open("ab") as file:
        file.write(b'{"place": {"sample"')
    again = Review(chats, reviewer="kim")
    assert (again.state.conversation, again.state.place) == (0, 2)
    assert [label.verdict for label in again.state.labels.values()] == [
        LabelKind.RIGHT,
        LabelKind.WRONG,
    ]
    judge_all(again)
    assert Review(chats, reviewer="kim").state.done == 2
    assert "await review.to_scenarios" in repr(again)
    again.go(0)
    again.judge("wrong")  # a change of mind
    assert len(Review(chats, reviewer="kim").state.labels) == 7
    assert (
        next(iter(Review(chats, reviewer="kim").state.labels.values())).verdict is LabelKind.WRONG
    )
    again.go(0, 2)
    again.judge("not_fine", say="half of a pair: \ud83d")  # which JSON can hold, and UTF-8 cannot
    labels = Review(chats, reviewer="kim").state.labels
    assert "half of a pair: \ud83d" in [label.say for label in labels.values()]
    (chats / "reviews/kim.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(RunError, match=r"kim.jsonl:1 is not a valid label"):
        Review(chats, reviewer="kim")
    with pytest.raises(UsageError, match=r"reviewer name .* is invalid"):
        Review(chats, reviewer="../kim")


async def test_review_drops_labels_of_repeated_turns(chats: Path) -> None:
    review = Review(chats, reviewer="kim")
    judge_all(review)
    record = review.state.records[0]
    changed = replace(record.trajectory.turns[0], reply="other words")
    trajectory = replace(record.trajectory, turns=(changed, *record.trajectory.turns[1:]))
    review_file = ReviewFile(chats, "kim")
    assert len(review_file.of(record)) == 4
    assert len(review_file.of(replace(record, trajectory=trajectory))) == 1


async def test_review_form_comes_from_the_schema_and_shows_errors(notes: Path) -> None:
    review = Review(notes, reviewer="kim", locale="en")
    press(review, "judge", "should_be")
    form = review.state.form
    assert form is not None
    assert form.typed == {
        "title": "milk",
        "kind": "small",
        "count": "2",
        "is_new": "true",
        "tags": '["a"]',
    }
    html = "".join(review_parts(review.state, load_catalog("en")))
    for text in ('aria-required="true"', ">big<", ">true<", "inputmode", "<textarea"):
        assert text in html
    press(review, "save", **fields_of(title="milk", kind="small", count="two"))
    assert review.state.form is not None
    assert list(review.state.form.errors) == ["count"]
    assert review.state.form.typed["count"] == "two"
    press(review, "save", **fields_of(title="milk", kind="small", count="0"))
    assert "at least 1" in review.state.form.errors["count"]
    press(review, "save", **fields_of(title="milk", tags='"a"'))
    assert list(review.state.form.errors) == ["kind", "tags"]
    assert "a JSON list (each item: a text, in quotes)" in review.state.form.errors["tags"]
    press(review, "save", **fields_of(title="milk", kind="big", tags='["a", "a"]'))
    assert "arguments are invalid" in review.state.form.error
    press(review, "tool", "look")
    assert review.state.form.tool == "look"
    assert review.state.form.typed == {}
    press(review, "cancel")
    assert review.state.form is None
    assert not review.state.labels
    press(review, "judge", "should_be")
    press(review, "save", **fields_of(title="eggs", kind="big", tags='["b"]'))
    (label,) = review.state.labels.values()
    assert (label.verdict, label.tool) == (LabelKind.SHOULD_BE, "note")
    assert label.args == {"title": "eggs", "kind": "big", "tags": ["b"]}
    with pytest.raises(UsageError, match="is not a label of a reply"):
        review.judge("right")
    with pytest.raises(UsageError, match="There is no tool nothing"):
        review.judge("call_missing", tool="nothing")


@pytest.mark.parametrize("locale", ["ko", "en"])
async def test_review_escapes_html(notes: Path, locale: str) -> None:
    review = Review(notes, reviewer="kim", locale=locale)
    press(review, "judge", "should_be")
    _is_harmless_form(review, locale)
    press(review, "save", **fields_of(title=EVIL, kind=EVIL))
    _is_harmless_form(review, locale)
    press(review, "save", **fields_of(title=EVIL, kind="big"))
    press(review, "judge", "fine")
    other = Review(notes, reviewer="lee", locale=locale)
    judge_all(other)
    press(other, "compare")
    assert other.state.compared is not None
    _is_harmless_form(other, locale)


async def test_review_escapes_invisible_characters(settings: Settings, tmp_path: Path) -> None:
    model = ScriptedModel([call("look", **{HIDDEN: HIDDEN}), say(HIDDEN)])
    folder = tmp_path / "hidden"
    panel = ChatPanel(model=model, toolset=TOOLS, opt_in=True, record=folder, settings=settings)
    await panel.send(HIDDEN)
    html = "".join(review_parts(Review(folder, reviewer="kim").state, load_catalog("en")))
    read = Elements(html).read
    assert not set(read) & set(HIDDEN) - set("bo")
    assert read.count("\\u3164\\xa0\\u2800") >= 4  # user, key and value, reply


def _is_harmless_form(review: Review, locale: str) -> None:
    html = "".join(review_parts(review.state, load_catalog(locale)))
    plain = html.replace("<code", "<div").replace("</code>", "</div>").replace("<p>", "<div>")
    for tag in ("label", "select", "option", "details", "summary"):
        plain = plain.replace(f"<{tag}", "<div").replace(f"</{tag}>", "</div>")
    _is_harmless(plain)


@pytest.mark.longer
async def test_review_to_scenarios_pass_lint_and_reference(chats: Path, tmp_path: Path) -> None:
    review = Review(chats, reviewer="kim", locale="en")
    with pytest.raises(UsageError, match="no conversation is labelled completely"):
        await review.to_scenarios(tmp_path / "scenarios")
    press(review, "judge", "right")
    args = {
        "protocol_id": "caffeine-cutoff",
        "frame_level": "identity",
        "framed_text": "I sleep well",
        "anchor_after_what": "dinner",
    }
    review.judge("should_be", tool="add_habit", args=args)
    review.judge("not_fine", say="I added it, after dinner.")
    press(review, "judge", "not_fine")
    press(review, "save", say="Good morning to you!")
    review.judge("wrong")  # `list_habits`
    press(review, "judge", "call_missing")
    press(review, "tool", "query_tracker")
    press(review, "save", say="No habits so far.")
    review.judge("fine")
    files = await review.to_scenarios(tmp_path / "scenarios")
    assert len(files) == 2
    sources = read_sources(files)
    first, second = sources.scenarios
    assert (first.ac, second.ac) == ("AC-10", "AC-10")  # a chat has none: life-helper names it
    assert first.turns[0].gold.say == "I added it, after dinner."
    assert first.turns[1].gold.say == "Good morning to you!"
    assert [each.tool for each in second.turns[0].expect.calls] == ["query_tracker"]
    assert "I sleep well" in files[0].read_text(encoding="utf-8")
    assert await lint(sources, load()) == ()
    run = await replay(sources.scenarios, gold_model, progress=False)
    assert [each.score.verdict for each in run.records] == [Verdict.PASS] * 2
    silent = await replay(sources.scenarios, ScriptedModel([]), progress=False)
    assert {each.score.verdict for each in silent.records} == {Verdict.FAIL}


@pytest.mark.longer
async def test_review_to_scenarios_without_corrected_reply(chats: Path, tmp_path: Path) -> None:
    review = Review(chats, reviewer="kim", locale="en")
    judge_all(review, reply="not_fine")
    sources = read_sources(await review.to_scenarios(tmp_path / "scenarios"))
    assert sources.scenarios[0].turns[0].gold.say == "…"
    assert {each.code for each in await lint(sources, load())} == {"echo"}
    run = await replay(sources.scenarios, gold_model, progress=False)
    assert {each.score.verdict for each in run.records} == {Verdict.PASS}


async def test_review_to_training_contains_corrections(chats: Path, tmp_path: Path) -> None:
    review = Review(chats, reviewer="kim")
    judge_all(review, reply="not_fine")
    review.go(0, 3)
    review.judge("fine")
    written = review.to_training(tmp_path / "reviewed.jsonl")
    conversations = read_conversations(written)
    assert len(conversations) == 2
    called = {
        each.tool
        for conversation in conversations
        for turn in conversation.turns
        for each in turn.calls
    }
    assert {"add_habit", "list_habits"} <= called
    fine = [
        turn.reply
        for conversation in conversations
        for turn in conversation.turns
        if turn.is_reply_fine
    ]
    assert any("I help you find" in each for each in fine)
    assert not any("You have no active habit" in each for each in fine)
    written.write_text("{}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"reviewed.jsonl:1 is not a valid reviewed conversation"):
        read_conversations(written)


SCENARIO = """
- id: add-1
  ac: chat
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns:
    - user: "find something for sleep"
      expect:
        calls:
          - tool: search_catalog
            args: {query: sleep}
"""


async def test_review_to_scenarios_makes_up_no_criterion(notes: Path, tmp_path: Path) -> None:
    review = Review(notes, reviewer="kim", toolset=TOOLS)
    judge_all(review)
    (scenario,) = read_sources(await review.to_scenarios(tmp_path / "made")).scenarios
    assert scenario.ac is None
    (record,) = review.state.records
    assert record.ac is None


async def test_review_accept_adds_right_arguments(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    model = ScriptedModel([call("search_catalog", query="better sleep"), say("Here.")])
    sources = read_sources([file])
    folder = tmp_path / "runs/mine"
    run = await replay(sources.scenarios, model, progress=False, run_dir=folder)
    assert run.records[0].score.verdict is Verdict.FAIL
    with pytest.raises(UsageError, match="give Review the scenarios"):
        Review(folder, reviewer="kim").accept()
    review = Review(folder, reviewer="kim", scenarios=(file,))
    review.judge("wrong")
    assert review.accept() == ()
    review.go(0)
    review.judge("right")
    review.judge("fine")
    assert review.accept() == (file,)
    assert 'one_of: [sleep, "better sleep"]' in file.read_text(encoding="utf-8")
    again = ScriptedModel([call("search_catalog", query="better sleep"), say("Here.")])
    rerun = await replay(read_sources([file]).scenarios, again, progress=False)
    assert rerun.records[0].score.verdict is Verdict.PASS
    made = await review.to_scenarios(tmp_path / "made")  # the world is that of the old scenario
    (scenario,) = read_sources(made).scenarios
    assert scenario.world["now"] == "2026-06-15T09:00:00+09:00"
    assert scenario.ac == "chat"  # as in the scenario of the sample


@pytest.mark.longer
async def test_review_agreement_lists_disagreements(chats: Path) -> None:
    kim, lee = (Review(chats, reviewer=name, locale="en") for name in ("kim", "lee"))
    judge_all(kim)
    press(kim, "compare")
    assert "no other reviewer" in kim.state.notices[0].text
    lee.judge("wrong")
    judge_all(lee)
    agreement = kim.agreement("kim", "lee")
    assert agreement.calls is not None
    assert (agreement.calls.n, agreement.calls.kappa) == (3, 0.0)
    assert agreement.replies is not None
    assert agreement.replies.kappa is None
    (dispute,) = agreement.disputes
    assert dispute.place == next(places_of(kim.state.records[0]))
    lines = agreement_lines(agreement, load_catalog("en"))
    assert lines[-1].endswith("turn 1, call 1: kim Right / lee Wrong")
    Review(chats, reviewer="third").judge("right")
    with pytest.raises(UsageError, match="Name two of them"):
        kim.agreement()
    press(kim, "compare")
    assert "Choose two" in kim.state.notices[0].text


@pytest.mark.longer
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=60))
def test_kappa_matches_statsmodels(pairs: list[tuple[str, str]]) -> None:
    from statsmodels.stats.inter_rater import cohens_kappa as reference_kappa

    agreement = cohens_kappa(pairs)
    assert agreement is not None
    table = [[pairs.count((a, b)) for b in "abc"] for a in "abc"]
    if len({kind for pair in pairs for kind in pair}) == 1:
        assert agreement.kappa is None
        return
    with np.errstate(all="ignore"):  # it takes the root of a rounded zero
        expected = reference_kappa(table)
    assert agreement.kappa == pytest.approx(expected.kappa, abs=1e-9)
    assert agreement.interval is not None
    assert agreement.interval.low - 1e-9 <= agreement.kappa <= agreement.interval.high + 1e-9
    if expected.std_kappa > 1e-5:
        assert agreement.interval.low == pytest.approx(max(-1.0, expected.kappa_low), abs=1e-6)
        assert agreement.interval.high == pytest.approx(min(1.0, expected.kappa_upp), abs=1e-6)


def test_kappa_of_few_labels_has_a_wide_interval() -> None:
    agreement = cohens_kappa([("a", "a"), ("b", "b"), ("a", "a"), ("b", "b")])
    assert agreement is not None
    assert agreement.interval is not None
    assert agreement.kappa == 1.0
    assert agreement.interval.low == pytest.approx(2 * wilson(4, 4).low - 1)
    assert cohens_kappa([]) is None


async def test_review_rejects_empty_runs_and_missing_folders(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match="contains no conversation"):
        Review(Run(records=()), folder=tmp_path)
    with pytest.raises(UsageError, match="Review needs the folder of the run"):
        Review(Run(records=()))


async def test_review_shows_edits_reasons_and_what_was_written(
    settings: Settings, tmp_path: Path
) -> None:
    writing = ToolRegistry([echo_tool("note", parameters=SCHEMA, is_destructive=True)])
    panel = ChatPanel(
        model=ScriptedModel([call("note", **GIVEN), say("a"), call("note", **GIVEN), say("b")]),
        toolset=writing,
        opt_in=True,
        record=tmp_path / "notes",
        locale="en",
        settings=settings,
    )
    await panel.send("one", answers=[Edit({**GIVEN, "count": 3})])
    await panel.send("two", answers=[Reject("<b>not now</b>")])
    review = Review(tmp_path / "notes", toolset=writing, locale="en")
    read = Elements("".join(map(str, review._parts()))).read
    for words in ('{"count":3}', "<b>not now</b>", "Ran: note", "Not run: note"):
        assert words in read
    press(review, "judge", "should_be")
    assert review._state.form.typed["count"] == "3"


@pytest.mark.longer
@pytest.mark.parametrize("locale", ["en", "ko"])
async def test_review_asks_the_question_of_a_judge_for_agreement(
    locale: str, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    await replay(load_scenarios([DEV]), gold_model, limit=6, run_dir=folder, progress=False)
    critic = ScriptedModel([say("yes")] * 6)
    rubric = "Is it polite?\nAnswer with one of these, and nothing else: think <b>first</b>."
    await add_scores(folder, [judge(critic, rubric, name="polite")])
    with pytest.raises(UsageError, match="no judge 'rude'"):
        Review(folder, score="rude")
    review = Review(folder, score="polite", locale=locale)
    page = "".join(review_parts(review.state, load_catalog(locale)))
    assert "Is it polite?" in page
    assert "think &lt;b&gt;first&lt;/b&gt;." in page
    assert page.count("lhkit-chip") == 1
    assert 'data-press="compare"' not in page
    assert ("아니요" if locale == "ko" else "No") in page
    for place in range(6):
        review._handle(Press(name="judge", value="no" if place == 0 else "yes", fields={}))
        assert (folder / "labels.jsonl").read_text("utf-8").count("\n") == place + 1
    assert "lhkit agreement" in repr(review)
    with pytest.raises(UsageError, match="not a label of a reply"):
        review.judge("fine")
    with pytest.raises(UsageError, match="question of a judge"):
        review.to_training(tmp_path / "lines.jsonl")
    assert not (folder / "reviews").exists()
    again = Review(folder, score="polite")
    assert (again.state.done, again.state.records) == (6, review.state.records)
    found = Run.load(folder).agreement("polite")
    first = again.state.records[0].sample_id
    assert (found.labels, found.disputed) == (6, ((first, False),))
    again.go(0)
    again.judge("yes")
    spoken = settings.model_copy(update={"locale": locale})
    assert await agreement(AgreementOptions(run=folder, score="polite"), spoken) == 0
    assert "polite" in capsys.readouterr().out
    assert not Run.load(folder).agreement("polite").disputed


@pytest.mark.parametrize(
    ("answer", "korean", "english"),
    [
        (True, "→ 완료 · 실행함", "→ ok · Done"),
        (False, "→ 취소함 (", "→ Cancelled ("),
    ],
)
async def test_review_says_in_words_what_became_of_a_call(
    settings: Settings, tmp_path: Path, answer: bool, korean: str, english: str
) -> None:
    writing = ToolRegistry([echo_tool("note", parameters=SCHEMA, is_destructive=True)])
    panel = ChatPanel(
        model=ScriptedModel([call("note", **GIVEN), say("a")]),
        toolset=writing,
        opt_in=True,
        record=tmp_path / "notes",
        settings=settings,
    )
    await panel.send("one", answers=[answer])
    for locale, words in (("ko", korean), ("en", english)):
        review = Review(tmp_path / "notes", toolset=writing, locale=locale)
        read = " ".join(Elements("".join(map(str, review._parts()))).read.split())
        assert words in read
