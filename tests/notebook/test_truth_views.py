"""The lines of truth in each view: panel, kept chat, report, exports, review."""

import json
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.locales import load_catalog
from lhkit.chat.assistant import Assistant
from lhkit.confirm.decision import Edit
from lhkit.conversation.messages import ClaimReason
from lhkit.harness.chats.chats import load_chats
from lhkit.harness.exports.inspect_log import _InspectSample
from lhkit.harness.exports.otel import trace_lines
from lhkit.harness.figures.frames import calls_frame, turns_frame
from lhkit.harness.records.record import decode_record, encode_record
from lhkit.harness.records.transcript import short_lines, transcript, turn_truth
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.harness.views.html import run_html
from lhkit.lifehelper.toolset import LifeHelperToolset
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.notebook.boards.review import Review
from lhkit.notebook.panel.panel import ChatPanel
from lhkit.notebook.panel.render import render
from lhkit.settings import Settings
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareSession

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

DAY = "2026-06-15"
FRAMED = {
    "en": {"framed_text": "I have my last coffee before two", "anchor_when": "2 p.m."},
    "ko": {"framed_text": "나는 두 시 전에 마지막 커피를 마신다", "anchor_when": "오후 2시"},
}
SAYS = {
    "en": {
        "added": "I have added the habit.",
        "logged": "Logged.",
        "again": "I have added it again.",
        "lie": "Done! I have added a walk.",
    },
    "ko": {
        "added": "습관을 추가했어요.",
        "logged": "적었어요.",
        "again": "다시 추가했어요.",
        "lie": "네! 걷기를 추가했어요.",
    },
}
LINES = {
    "en": [
        "Changed: habits +1 · caffeine-cutoff",
        "Ran, nothing changed: add_habit · caffeine-cutoff\n"
        "The reply says “I have added it again.”, but nothing changed.",
        f'Changed: tracker +1 · caffeine-cutoff {DAY} (edited: value "blank" → "done")',
        "Ran, nothing changed: log_tracker_entry · caffeine-cutoff",
        "Ran, nothing changed: log_tracker_entry · walk (not_found)",
        "Nothing was run that writes\n"
        "The reply says “I have added a walk.”, but no such write was run.",
    ],
    "ko": [
        "바뀜: habits +1 · caffeine-cutoff",
        "실행했지만 바뀐 것 없음: add_habit · caffeine-cutoff\n"
        "답은 “다시 추가했어요.”라고 하지만, 바뀐 것은 없습니다.",
        f'바뀜: tracker +1 · caffeine-cutoff {DAY} (수정함: value "blank" → "done")',
        "실행했지만 바뀐 것 없음: log_tracker_entry · caffeine-cutoff",
        "실행했지만 바뀐 것 없음: log_tracker_entry · walk (not_found)",
        "쓰는 도구는 실행되지 않음\n"
        "답은 “걷기를 추가했어요.”라고 하지만, 그런 쓰기는 실행되지 않았습니다.",
    ],
}


async def recorded_panel(locale: str, folder: Path, settings: Settings) -> ChatPanel:
    """Return a recorded panel of life-helper: a write, two of nothing, an edit and a lie."""
    says = SAYS[locale]
    add = call("add_habit", protocol_id="caffeine-cutoff", frame_level="identity", **FRAMED[locale])
    log = {"habit_id": "caffeine-cutoff", "date": DAY}
    panel = ChatPanel(
        model=ScriptedModel(
            [
                *(add, say(says["added"])),
                *(add, say(says["again"])),
                *(call("log_tracker_entry", **log, value="blank"), say(says["logged"])),
                *(call("log_tracker_entry", **log, value="done"), say(".")),
                *(call("log_tracker_entry", habit_id="walk", date=DAY, value="done"), say(".")),
                say(says["lie"]),
            ]
        ),
        opt_in=True,
        record=folder,
        locale=locale,
        settings=settings,
        now=lambda: datetime.fromisoformat(f"{DAY}T20:00:00+09:00"),
    )
    for answer in (True, True, Edit({**log, "value": "done"}), True, True, None):
        await panel.send("go", answers=[] if answer is None else [answer])
    return panel


@pytest.mark.longer
@pytest.mark.parametrize("locale", ["en", "ko"])
async def test_every_view_has_the_lines_of_truth(
    locale: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel, catalog = (
        await recorded_panel(locale, tmp_path / "chats", settings),
        load_catalog(locale),
    )
    expected = LINES[locale]
    truths = [e for e in json.loads(panel.to_json())["messages"] if e["role"] == "truth"]
    assert [truth["text"] for truth in truths] == expected
    assert [truth["calls"] for truth in truths] == [
        *(["changed"], ["unchanged"], ["changed"], ["unchanged"], ["unchanged"], ["nothing"])
    ]
    assert [truth["false_claim"] is not None for truth in truths] == [
        *(False, True, False, False, False, True)
    ]
    run = load_chats(tmp_path / "chats")
    (record,) = run.records
    monkeypatch.setenv("LHKIT_LOCALE", locale)
    assert [turn_truth(turn, catalog) for turn in record.trajectory.turns] == expected
    assert [*turns_frame([record])["truth"]] == expected
    html = "".join(fragment.html for fragment in render(panel.state, catalog).fragments)
    report = run_html(run.samples, run.summary(), criteria={}, name="x")
    spans = json.loads(b"".join(trace_lines(run)).splitlines()[0])
    logged = json.dumps(_InspectSample(record, run, ()).json(), ensure_ascii=False)
    review = "".join(map(str, Review(tmp_path / "chats", locale=locale)._parts()))
    texts = {
        "html": html,
        "review": review,
        "report": report,
        "markdown": panel.to_markdown(),
        "repr": repr(panel),
        "kept": transcript(record, catalog, max_chars=99_999),
        "otel": json.dumps(spans, ensure_ascii=False),
        "inspect": logged,
    }
    for name, text in texts.items():
        plain = text.replace("&#34;", '"').replace("&quot;", '"').replace('\\"', '"')
        for line in "\n".join(expected).split("\n"):
            assert line in plain, (name, line)
    assert html.count('class="lhkit-claim"') == review.count('class="lhkit-claim"') == 2
    assert report.count("lhr-claim") >= 2


@pytest.mark.parametrize("edited", [{}, {"title": "milk"}])
async def test_every_view_has_the_arguments_that_ran_after_an_edit(
    edited: Mapping[str, Any], settings: Settings, tmp_path: Path
) -> None:
    schema = object_schema(title={"type": "string"})
    tool = echo_tool("remind", parameters=schema, is_destructive=True)
    panel = ChatPanel(
        model=ScriptedModel([call("remind", title="tea"), say(".")]),
        toolset=ToolRegistry([tool]),
        opt_in=True,
        record=tmp_path / "chats",
        locale="en",
        settings=settings,
    )
    await panel.send("go", answers=[Edit(edited)])
    ran = json.dumps(edited, separators=(",", ":"))
    run = load_chats(tmp_path / "chats")
    (record,) = run.records
    (made,) = record.trajectory.calls
    assert made.effective_args == edited
    (entry,) = (e for e in json.loads(panel.to_json())["messages"] if e["role"] == "tool")
    assert (entry["arguments"], entry["proposed"]) == (edited, {"title": "tea"})
    html = "".join(f.html for f in render(panel.state, load_catalog("en")).fragments)
    words = ", ".join(f"{name}: {value}" for name, value in edited.items())
    assert f'<span class="lhkit-tool-args">{words}</span>' in html
    assert f"remind {ran} → ok" in repr(panel)
    assert f"remind {ran} → ok" in [*short_lines(record, load_catalog("en"))]
    assert [*calls_frame([record])["run_args"]] == [ran]
    sample = _InspectSample(record, run, ()).json()
    (approval,) = (e for e in sample["events"] if e["event"] == "approval")
    (ran_tool,) = (e for e in sample["events"] if e["event"] == "tool")
    assert approval["decision"] == "modify"
    assert approval["modified"]["arguments"] == ran_tool["arguments"] == edited
    spans = json.loads(b"".join(trace_lines(run)))["resourceSpans"][0]["scopeSpans"][0]["spans"]
    (span,) = (span for span in spans if span["name"] == "execute_tool remind")
    values = {each["key"]: each["value"] for each in span["attributes"]}
    assert values["gen_ai.tool.call.arguments"] == {"stringValue": ran}
    review = Review(tmp_path / "chats", toolset=ToolRegistry([tool]), locale="en")
    form = review.state.correction(review.state.choices[-1])
    assert form.typed == edited


@pytest.mark.longer
@pytest.mark.parametrize("locale", ["en", "ko"])
async def test_record_of_denied_call_has_the_truth_line_of_the_panel(
    locale: str, settings: Settings, tmp_path: Path
) -> None:
    tools = ToolRegistry()

    @tools.tool(destructive=True)
    def book(hall: str, seats: int = 2, tea: bool = False, when: str = "8시") -> None:
        """Book seats.

        Args:
            hall: where.
            seats: how many.
            tea: with tea.
            when: the time.
        """

    panel = ChatPanel(
        model=ScriptedModel([call("book", hall="가람", seats=3.0, row="F"), say(".")]),
        toolset=tools,
        opt_in=True,
        record=tmp_path / "chats",
        locale=locale,
        settings=settings,
    )
    await panel.send("go", answers=[False])
    (shown,) = (e["text"] for e in json.loads(panel.to_json())["messages"] if e["role"] == "truth")
    assert shown.endswith(': book · "가람", 3, "8시"')  # as asked: completed, without `row`
    (record,) = load_chats(tmp_path / "chats").records
    assert turn_truth(record.trajectory.turns[0], load_catalog(locale)) == shown


async def test_records_of_an_older_version_say_no_more_than_they_know(
    settings: Settings, tmp_path: Path
) -> None:
    await recorded_panel("en", tmp_path / "chats", settings)
    (record,) = load_chats(tmp_path / "chats").records
    data = json.loads(encode_record(record))
    for turn in data["trajectory"]["turns"]:
        del turn["claim"]
        for made in turn["calls"]:
            del made["changed"], made["changes"]
    catalog = load_catalog("en")
    lines = [turn_truth(turn, catalog) for turn in decode_record(data).trajectory.turns]
    assert lines[0] == lines[1] == "Ran: add_habit · caffeine-cutoff"
    assert lines[4] == "Failed, may have changed something: log_tracker_entry · walk"
    assert lines[5] == "Nothing was run that writes"


ADD = call("add_habit", protocol_id="caffeine-cutoff", frame_level="identity", **FRAMED["en"])


@pytest.mark.parametrize(
    ("replies", "confirm", "expected", "reason"),
    [
        ([ADD, say("I have added it.")], True, "Changed: habits +1 · caffeine-cutoff", None),
        (
            [ADD, say("I have added it.")],
            False,
            "Not run: add_habit · caffeine-cutoff",
            ClaimReason.NOT_RUN,
        ),
        ([say("I have added it.")], True, "Nothing was run that writes", ClaimReason.NOTHING),
    ],
)
async def test_eval_records_the_lines_of_truth(
    replies: list[Reply], confirm: bool, expected: str, reason: ClaimReason | None
) -> None:
    turn = {"user": "go", "confirm": "accept" if confirm else "reject"}
    scenario = Scenario.from_data(
        {"id": "s", "ac": "x", "locale": "en", "world": {"now": f"{DAY}T20:00:00+09:00"}}
        | {"turns": [turn]}
    )
    record = await run_sample(scenario, ScriptedModel(replies), LifeHelperToolset())
    (turn_record,) = decode_record(json.loads(encode_record(record))).trajectory.turns
    assert turn_truth(turn_record, load_catalog("en")).split("\n")[0] == expected
    assert (turn_record.claim.reason if turn_record.claim else None) == reason


async def test_state_that_waits_for_another_process_is_not_read_in_a_turn() -> None:
    reads = []

    class Session(BareSession):
        def state(self) -> Mapping[str, Any]:
            reads.append(1)
            return {"rows": []}

    class Waiting:
        waits = True

        def open(self, _world: Mapping[str, Any], _locale: str) -> Session:
            tool = echo_tool("write", is_destructive=True)
            return Session(
                registry=ToolRegistry([tool]), assistant=Assistant(), today=date(2026, 6, 15)
            )

    panel = ChatPanel(
        model=ScriptedModel([call("write"), say(".")]), toolset=Waiting(), opt_in=True, locale="en"
    )
    before = len(reads)
    await panel.send("go", answers=[True])
    assert len(reads) == before
    assert "Ran: write" in repr(panel)
