"""`lhkit lint`: each way in which a scenario can be unfit is found, with file, line and field."""

import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lhkit.conversation.tool_results import ToolOk
from lhkit.harness.authoring.checks import LEVELS, Finding, Level
from lhkit.harness.authoring.lint import lint
from lhkit.harness.scenarios.loader import read_sources
from lhkit.lifehelper.toolset import LifeHelperToolset
from lhkit.testing import object_schema
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset, WrappedToolset
from tests.harness.build import PlainSession
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

GOOD = """\
- id: a-ko-01
  ac: AC-4
  world:
    now: "2026-06-17T20:00:00+09:00"
    habits: [{protocol_id: daily-walk}, {protocol_id: gratitude-note}]
  turns:
    - user: "오늘 걷기 했어. 남겨 줘."
      confirm: accept
      expect:
        calls:
          - tool: log_tracker_entry
            args:
              habit_id: daily-walk
              value: done
              date: {date: today, optional: true}
            result: ok
        extra: reads
      forbid:
        - tool: add_habit
      reply: {contains_any: ["기록"]}
  final:
    tracker: [{habit_id: daily-walk, date: 2026-06-17, value: done}]
  locale: ko
"""
LAX = """\
- id: a-en-01
  ac: AC-12
  locale: en
  world: {now: "2026-06-17T20:00:00+09:00", habits: [{protocol_id: daily-walk}]}
  turns:
    - user: "I walk, and box-breathing."
      confirm: accept
      expect: {extra: any}
      reply: {contains_any: [logged]}
      gold:
        calls:
          - {tool: log_tracker_entry, args: {habit_id: daily-walk, value: done}}
          - {tool: list_habits}
          - tool: add_habit
            args:
              protocol_id: box-breathing
              frame_level: action
              framed_text: I breathe
              anchor_when: noon
  final: {habits: [{}, {}], tracker: [{}]}
"""
MUTE = """\
- id: a-ko-01
  ac: AC-12
  world: {now: "2026-06-17T20:00:00+09:00"}
  turns: [{user: "안녕!"}]
"""

Findings = Callable[..., Awaitable[tuple[Finding, ...]]]


@pytest.fixture
def lint_text(tmp_path: Path) -> Findings:
    """Return a function from YAML text to findings, through the real reader."""

    async def of(text: str, toolset: Toolset | None = None) -> tuple[Finding, ...]:
        file = tmp_path / "some.yaml"
        file.write_text(text, encoding="utf-8")
        return await lint(read_sources([file]), toolset or LifeHelperToolset())

    return of


async def test_lint_accepts_good_scenario_edit_and_reason(lint_text: Findings) -> None:
    assert await lint_text(GOOD) == ()
    edited = GOOD.replace("confirm: accept", "confirm: {edit: {date: {date: yesterday}}}")
    assert await lint_text(edited.replace("2026-06-17, value", "2026-06-16, value")) == ()
    rejected = GOOD.replace("confirm: accept", "confirm: {reject: 아직요}")
    rejected = rejected.replace("result: ok", "result: cancelled").split("  final:")[0]
    assert await lint_text(rejected) == ()


@pytest.mark.longer
@check_rows(
    ("old", "new", "code", "line", "field"),
    [
        ("turns:", "turnz:", "file", 1, "turns"),
        ("daily-walk}, {", "daily-wal}, {", "world", 5, "world.habits[0].protocol_id"),
        ("tool: log_t", "tool: log_T", "unknown_tool", 11, "turns[0].expect.calls[0].tool"),
        ("- tool: add_habit", "- tool: add", "unknown_tool", 19, "turns[0].forbid[0].tool"),
        ("value: done\n       ", "valu: done\n       ", "unknown_argument", 14, "….args.valu"),
        ("value: done\n       ", "value: did\n       ", "refused_value", 14, "….args.value"),
        ("value: done\n       ", "#\n       ", "missing_argument", 12, "….args"),
        (
            "habit_id: daily-walk\n",
            "habit_id: {one_of: [daily-walk, daily-wolk]}\n",
            "unknown_id",
            13,
            "….args.habit_id",
        ),
        (
            "- tool: add_habit",
            "- {tool: add_habit, args: {protocol_id: daily-wolk}}",
            "unknown_id",
            19,
            "turns[0].forbid[0].args.protocol_id",
        ),
        ("habit_id: daily-walk\n", 'habit_id: {matches: "w*"}\n', "empty_pattern", 13, None),
        ('{contains_any: ["기록"]}', '{matches: "록?"}', "empty_pattern", 20, None),
        ("오늘 걷기 했어. 남겨 줘.", "I walked today.", "locale", 7, "turns[0].user"),
        ("id: a-ko-01", "id: a-en-01", "locale", 1, "id"),
        ("habit_id: daily-walk\n", 'habit_id: {matches: "walk"}\n', "underivable", 13, None),
        ("result: ok", "result: not_found", "gold", 7, "turns[0]"),
        (
            "date: 2026-06-17, value",
            "date: 2026-06-16, value",
            "final_state",
            22,
            "final.tracker[0]",
        ),
        ("  final:\n    tracker: [{", "  tags:\n    - tracker: [{", "file", 22, None),
        ("  ac: AC-4\n", "  ac: AC-4\n  tool_failures: [{tool: nap}]\n", "unknown_tool", 3, None),
        (
            "  ac: AC-4\n",
            "  ac: AC-4\n  tool_failures: [{tool: add_habit}]\n",
            "unused_tool_failure",
            3,
            None,
        ),
        ('{contains_any: ["기록"]}', '{excludes: ["실패"]}', "unchecked_reply", 20, None),
        ('{contains_any: ["기록"]}', '{contains_any: ["걷기"]}', "echo", 20, "turns[0].reply"),
        (
            "confirm: accept",
            "confirm: {edit: {valu: done}}",
            "unknown_argument",
            8,
            "turns[0].confirm.edit.valu",
        ),
        (
            "confirm: accept",
            "confirm: [{edit: {value: did}}]",
            "refused_value",
            8,
            "turns[0].confirm[0].edit.value",
        ),
    ],
)
async def test_lint_finding_has_line_and_field(
    lint_text: Findings, *, old: str, new: str, code: str, line: int, field: str | None
) -> None:
    assert old in GOOD
    findings = await lint_text(GOOD.replace(old, new, 1))
    hit = next(each for each in findings if (each.code, each.line) == (code, line))
    if field is not None:
        assert hit.field == field.replace("…", "turns[0].expect.calls[0]")
    assert hit.level is LEVELS[code]
    assert str(hit).startswith(f"{hit.file}:{line}: {LEVELS[code]}: a-")


NOTES = """\
- id: add
  ac: AC-4
  locale: en
  world: {now: "2026-06-17T09:00:00+09:00", notes: [{id: note-0, text: tea}]}
  turns:
    - user: add milk
      confirm: accept
      expect: {calls: [{tool: add_note, args: {text: milk}, result: ok}]}
      reply: {contains_any: [added], excludes: [sorry]}
  final: {notes: [{text: milk}]}
"""


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("{text: milk}, result", "{txet: milk}, result", "turns[0].expect.calls[0].args.txet"),
        ("tool: add_note", "tool: add_noet", "turns[0].expect.calls[0].tool"),
        ("milk}, result", "milk, tag: garden}, result", "turns[0].expect.calls[0].args.tag"),
        ("result: ok", "result: oky", "turns[0]"),
        ("confirm: accept", "confirm: reject", "turns[0]"),
        ("final: {notes", "final: {note", "final.note[0]"),
        ("[{text: milk}]", "[{txet: milk}]", "final.notes[0]"),
        ("[{text: milk}]", "[{text: bread}]", "final.notes[0]"),
        ("  final: {notes: [{text: milk}]}\n", "", "final"),
        ("[{id: note-0", "[{di: note-0", None),
        ("any: [added]", "any: [sorry]", "turns[0].reply"),
    ],
)
async def test_lint_reports_one_finding_per_mistake(
    lint_text: Findings, toolset: Toolset, old: str, new: str, field: str | None
) -> None:
    assert old in NOTES
    fields = [each.field for each in await lint_text(NOTES.replace(old, new), toolset)]
    assert fields == ([] if field is None else [field])


async def test_lint_reports_two_mistakes(lint_text: Findings, toolset: Toolset) -> None:
    more = (
        '    - {user: "hm", confirm: accept, expect: {calls: [{tool: find_notes, result: no}]}}\n'
    )
    text = NOTES.replace("result: ok", "result: oky").replace("  final:", f"{more}  final:")
    fields = [each.field for each in await lint_text(text, toolset)]
    assert sorted(fields) == ["turns[0]", "turns[1]", "turns[1].reply"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{oneof: [done]}", r": did you mean one_of\?$"),
        ("{contains: done}", "matchers are equals, .*one_of.*matches.*date"),
    ],
)
async def test_lint_suggests_matchers(lint_text: Findings, value: str, message: str) -> None:
    findings = await lint_text(GOOD.replace("value: done\n", f"value: {value}\n", 1))
    (refused,) = (each for each in findings if each.code == "refused_value")
    assert re.search(message, refused.message)


async def test_lint_reports_scenario_that_always_call_passes(lint_text: Findings) -> None:
    assert {each.code for each in await lint_text(LAX)} == {"always_call"}


async def test_lint_warns_where_always_call_only_reads(lint_text: Findings) -> None:
    text = """\
- id: a-en-01
  ac: AC-12
  locale: en
  world: {now: "2026-06-17T20:00:00+09:00"}
  turns:
    - user: "My habits?"
      expect: {calls: [{tool: list_habits}], extra: reads}
      reply: {matches: '\\S'}
"""
    assert "easy" not in {each.code for each in await lint_text(text)}
    toolset = WrappedToolset(
        inner=LifeHelperToolset(), registry=lambda session, _: only_reads(session.registry)
    )
    (finding,) = [each for each in await lint_text(text, toolset) if each.code != "echo"]
    assert (finding.code, finding.level) == ("easy", Level.WARNING)


def only_reads(registry: ToolRegistry) -> ToolRegistry:
    return ToolRegistry([tool for tool in registry.definitions if not tool.is_destructive])


@check_rows("user", ["7", "👍", "今日は何をしましょうか", "Что сегодня?"])
async def test_lint_leaves_a_message_in_neither_language_alone(
    lint_text: Findings, user: str
) -> None:
    text = MUTE.replace("a-ko-01", "a-en-01").replace("안녕!", user)
    text = text.replace("  ac:", "  locale: en\n  ac:")
    assert "locale" not in {each.code for each in await lint_text(text)}


async def test_lint_reports_scenario_that_silent_passes(lint_text: Findings) -> None:
    assert {each.code for each in await lint_text(MUTE)} == {"silent", "unchecked_reply"}


def line_at(message: str) -> str:
    """Return the line of code that a message points at."""
    ((file, line),) = re.findall(r" at (.+\.py):(\d+): fix the tool", message)
    return Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]


@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ("", ["broken_tool"]),
        ("            result: handler_error\n", []),
        ("  tool_failures: [{tool: find_notes}]\n", []),
    ],
)
async def test_lint_reports_broken_tool_unless_expected(
    lint_text: Findings, toolset: Toolset, more: str, codes: list[str]
) -> None:
    text = f"""\
- id: a-en-01
  ac: notes
  locale: en
  world: {{notes: [{{id: note-0}}]}}
  turns:
    - user: "Find milk."
      expect:
        calls:
          - tool: find_notes
            args: {{query: milk}}
{more}      reply: {{contains_any: [nothing]}}
"""
    if more.startswith("  tool_failures"):
        text = text.replace(more, "").replace("  turns:", f"{more}  turns:")
    findings = await lint_text(text, toolset)
    assert [each.code for each in findings] == codes
    assert all("find_notes fails in the reference (" in each.message for each in findings)
    assert all('note["text"]' in line_at(each.message) for each in findings)


class DeletingSession(PlainSession):
    def known_ids(self) -> Mapping[str, Any]:
        return {"note_id": {note["id"] for note in self.deps}}  # a set will do


class DeletingToolset:
    """Notes that can only be deleted."""

    def open(self, world: Mapping[str, Any], locale: str) -> DeletingSession:
        notes = [dict(note) for note in world["notes"]]

        def delete(args: Mapping[str, Any], _deps: Any) -> ToolOk:
            notes[:] = [note for note in notes if note["id"] != args["note_id"]]
            return ToolOk({"left": len(notes)})

        delete_note = ToolDefinition(
            name="delete_note",
            description="Delete a note",
            parameters=object_schema("note_id", note_id={"type": "string"}),
            handler=delete,
            is_destructive=True,
            claims={"en": ["deleted"]},
        )
        registry = ToolRegistry([delete_note])
        return DeletingSession(registry=registry, seen=lambda: {"notes": notes}, deps=notes)


@pytest.mark.parametrize(
    ("gone", "codes"),
    [
        ("  gone: {notes: [{id: note-0}]}\n", set()),
        ("  gone: {notes: [{id: note-1}]}\n", {"final_state"}),
        ("", {"final_state"}),
    ],
)
async def test_lint_requires_gone_for_deletion(
    lint_text: Findings, gone: str, codes: set[str]
) -> None:
    text = f"""\
- id: a-en-01
  ac: notes
  locale: en
  world: {{notes: [{{id: note-0, text: milk}}, {{id: note-1, text: bread}}]}}
  turns:
    - user: "Milk is bought."
      confirm: accept
      expect:
        calls:
          - tool: delete_note
            args: {{note_id: note-0}}
            result: ok
      reply: {{contains_any: [gone, deleted], excludes: [all done]}}
{gone}"""
    findings = await lint_text(text, DeletingToolset())
    assert {each.code for each in findings} == codes


async def test_lint_reports_violation_of_reference(lint_text: Findings) -> None:
    gold = """\
      gold:
        calls:
          - {tool: search_catalog, args: {limit: 99}}
          - {tool: log_tracker_entry, args: {habit_id: daily-walk, value: done}}
"""
    findings = await lint_text(GOOD.replace("  final:\n", gold + "  final:\n"))
    assert [each.code for each in findings] == ["violation"]
    assert "validation: search_catalog" in findings[0].message


async def test_lint_knows_ids_created_by_reference(lint_text: Findings) -> None:
    text = """\
- id: a-en-01
  ac: AC-6
  locale: en
  world: {now: "2026-06-17T20:00:00+09:00"}
  turns:
    - user: "Add box-breathing: 'I breathe in a box', action, after lunch."
      confirm: accept
      expect:
        calls:
          - tool: add_habit
            args:
              protocol_id: box-breathing
              frame_level: action
              framed_text: {text: "I breathe in a box"}
              anchor_after_what: lunch
            result: ok
      reply: {contains_any: [added]}
    - user: "Log today, then."
      confirm: accept
      expect: {calls: [{tool: log_tracker_entry, args: {habit_id: box-breathing, value: done}}]}
      reply: {contains_any: [logged]}
  final: {habits: [{id: box-breathing}], tracker: [{habit_id: box-breathing}]}
"""
    assert await lint_text(text) == ()


async def test_lint_checks_other_scenarios_of_broken_file(lint_text: Findings) -> None:
    both = GOOD.replace("turns:", "turnz:", 1) + GOOD.replace("a-ko", "b-ko").replace(
        "result: ok", "result: not_found"
    )
    assert {(each.scenario, each.code) for each in await lint_text(both)} >= {
        ("a-ko-01", "file"),
        ("b-ko-01", "gold"),
    }


async def test_lint_accepts_intended_errors(lint_text: Findings) -> None:
    wrong = """\
          - tool: log_tracker_entry
            args: {habit_id: daily-wolf, value: maybe}
            result: validation
            optional: true
"""
    text = GOOD.replace("        extra: reads\n", f"{wrong}        extra: reads\n")
    forbidden = "- {tool: log_tracker_entry, args: {habit_id: evening-run}}"
    text = text.replace("- tool: add_habit", forbidden).replace("남겨 줘", "evening-run 말고")
    assert await lint_text(text) == ()
