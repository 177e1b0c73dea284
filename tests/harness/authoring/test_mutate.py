"""The mutation report: mistakes that matter are made, noticed by a tight scenario, and listed."""

import asyncio
from pathlib import Path

import pytest

from lhkit.base.errors import ScenarioError
from lhkit.chat.step import MAX_TURNS
from lhkit.harness.authoring.mistakes import ADVICE, Mistake
from lhkit.harness.authoring.mutate import (
    MutantResult,
    MutationReport,
    all_mistakes,
    mutate,
    read_survivors,
)
from lhkit.harness.authoring.reference_run import run_reference
from lhkit.harness.records.record import Verdict
from lhkit.lifehelper.toolset import LifeHelperToolset
from tests.harness.build import Load
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

TIGHT = """\
- id: a-ko-01
  ac: AC-6
  world:
    now: "2026-06-17T20:00:00+09:00"
    habits: [{protocol_id: daily-walk}]
  turns:
    - user: "호흡 3개만 찾아 추가해 줘. 문장은 \\"나는 하루 한 번 네모 호흡을 한다\\", 점심 먹고."
      confirm: accept
      expect:
        calls:
          - tool: search_catalog
            args: {query: {matches: "네모|호흡"}, limit: 3, category: {any: true, optional: true}}
          - tool: add_habit
            args:
              protocol_id: box-breathing
              frame_level: action
              framed_text: {matches: "^나는 하루 한 번 네모 호흡을 한다$"}
              anchor_after_what: {matches: "점심"}
            result: ok
        order: strict
      reply: {contains_any: ["추가"]}
      gold:
        calls:
          - {tool: search_catalog, args: {query: "네모 호흡", limit: 3}}
          - tool: add_habit
            args:
              protocol_id: box-breathing
              frame_level: action
              framed_text: "나는 하루 한 번 네모 호흡을 한다"
              anchor_after_what: "점심"
    - user: "어제 걷기도 완료로 적어 줘."
      confirm: reject
      expect:
        calls:
          - tool: log_tracker_entry
            args: {habit_id: daily-walk, value: done, date: {date: today-1d}}
            result: cancelled
      reply: {contains_any: ["않", "취소"], excludes: ["기록했", "저장했"]}
    - user: "그래, 그만두자."
      confirm: accept
      forbid: [{tool: log_tracker_entry}]
      reply: {contains_any: ["알겠"], excludes: ["기록했", "저장했"]}
  final: {habits: [{id: box-breathing}]}
"""


def reported(load: Load, text: str) -> asyncio.Future[MutationReport]:
    return asyncio.ensure_future(mutate(load(text), LifeHelperToolset()))


def survivors(report: MutationReport) -> set[str]:
    return {each.key for each in report.survivors}


@pytest.mark.slow
async def test_mutate_strict_scenario_detects_every_kind(load: Load) -> None:
    report = await reported(load, TIGHT)
    assert survivors(report) == set()
    assert set(report.by_kind) == set(ADVICE)
    assert (report.total.share, report.broken) == (100.0, ())
    assert report.by_ac == {"AC-6": report.total}


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [((None, None), {}), (("AC-1", None), {"AC-1": 1, "": 1}), (("AC-1", "AC-1"), {"AC-1": 2})],
)
def test_mutate_counts_scenarios_without_a_criterion(
    criteria: tuple[str | None, ...], expected: dict[str, int]
) -> None:
    outcomes = tuple(
        MutantResult(
            scenario=f"s{n}", ac=ac, kind="drop", key="k", change="c", verdict=Verdict.FAIL
        )
        for n, ac in enumerate(criteria)
    )
    report = MutationReport(outcomes=outcomes)
    assert {ac: counts.tried for ac, counts in report.by_ac.items()} == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "survivor"),
    [
        ("            result: ok\n        order: strict\n", "            result: ok\n", None),
        (
            '      reply: {contains_any: ["추가"]}\n',
            "",
            "say_nothing@0 unrelated_answer@0",
        ),
        (
            'excludes: ["기록했", "저장했"]}\n    - user',
            "excludes: [x]}\n    - user",
            None,  # a claim after a no is noticed whatever the scenario excludes
        ),
        (
            'contains_any: ["알겠"], excludes: ["기록했", "저장했"]',
            'matches: "[가-힣]"',
            "unrelated_answer@2",
        ),
        ("        order: strict\n", "        extra: any\n", None),
    ],
)
async def test_mutate_loose_scenario_misses_its_mistakes(
    load: Load, old: str, new: str, survivor: str | None
) -> None:
    assert old in TIGHT
    text = TIGHT.replace(old, new, 1)
    gold = '    - user: "그래, 그만두자."\n      gold: {say: "알겠어요."}\n'
    if 'matches: "[가-힣]"' in new:
        text = text.replace('    - user: "그래, 그만두자."\n', gold)
    keys_found = survivors(await reported(load, text))
    assert keys_found >= {*survivor.split()} if survivor else keys_found == set()


async def made(load: Load, text: str) -> dict[str, Mistake]:
    record = await run_reference(load(text)[0], LifeHelperToolset())
    return {each.key: each for each in all_mistakes(record) if isinstance(each, Mistake)}


async def keys(load: Load, text: str) -> set[str]:
    return set(await made(load, text))


@pytest.mark.longer
@check_rows(
    ("old", "new", "gone"),
    [
        ("limit: 3, ", "limit: {any: true}, ", "alter_argument@0.0.limit"),
        ("limit: 3, ", "limit: {one_of: [3, 4]}, ", "alter_argument@0.0.limit"),
        ("limit: 3", "limit: 5", "drop_optional_argument@0.0.limit"),  # the default
        ("limit: 3, ", "limit: {any: true, optional: true}, ", "drop_optional_argument@0.0.limit"),
        ("value: done", "value: {one_of: [done, blank]}", "alter_argument@1.0.value"),
        ("date: {date: today-1d}", "date: {any: true}", "alter_argument@1.0.date-1"),
        ("        order: strict\n", "", "reorder@0.0"),
        ("        order: strict\n", "        extra: reads\n", "extra_read@0"),
        (
            "          - tool: search_catalog\n",
            "          - tool: search_catalog\n            optional: true\n",
            "drop_call@0.0",
        ),
    ],
)
async def test_mutate_skips_what_scenario_allows(load: Load, old: str, new: str, gone: str) -> None:
    assert old in TIGHT
    assert gone in await keys(load, TIGHT)
    assert gone not in await keys(load, TIGHT.replace(old, new))


async def test_mutate_retry_is_confirmed_within_message_limit(load: Load) -> None:
    mistakes = await made(load, TIGHT)
    for mistake in mistakes.values():
        for turn in mistake.trace:
            assert len(turn.messages) < MAX_TURNS
    retry = mistakes["retry_after_rejection@2.0.later"]
    assert [call.name for call in retry.trace[2].calls] == ["log_tracker_entry"]


FULL = """\
- id: a-ko-01
  ac: AC-10
  world: {now: "2026-06-17T20:00:00+09:00", habits: [{protocol_id: daily-walk}]}
  turns:
    - user: "기록 보고, 목록 보고, 걷기 완료."
      confirm: accept
      expect:
        calls:
          - {tool: query_tracker}
          - {tool: list_habits}
          - {tool: log_tracker_entry, args: {habit_id: daily-walk, value: done}, result: ok}
        extra: reads
      reply: {contains_any: ["기록"]}
    - user: "한 번 더 완료로."
      confirm: accept
      expect:
        calls: [{tool: log_tracker_entry, args: {habit_id: daily-walk, value: done}}]
      reply: {contains_any: ["이미"]}
  final: {tracker: [{habit_id: daily-walk}]}
"""


async def test_mutate_extra_call_within_message_limit(load: Load) -> None:
    first = (await made(load, FULL))["extra_write@0.add_habit"].trace[0]
    assert [len(message) for message in first.messages] == [2, 1, 1]
    assert [call.name for call in first.calls][-2:] == ["log_tracker_entry", "add_habit"]


async def test_mutate_skips_expected_repetition(load: Load) -> None:
    keys_found = await keys(load, FULL)
    assert "duplicate_write@0.2" in keys_found
    assert "duplicate_write@1.2.later" not in keys_found


async def test_mutate_refuses_scenario_with_failing_reference(load: Load) -> None:
    with pytest.raises(ScenarioError, match=r"a-ko-01: the reference calls do not pass: run lhkit"):
        await reported(load, TIGHT.replace("result: cancelled", "result: ok"))


@pytest.mark.slow
async def test_mutate_report_lists_unlisted_and_outdated_survivors(
    load: Load, tmp_path: Path
) -> None:
    text = TIGHT.replace('      reply: {contains_any: ["추가"]}\n', "")
    report = await reported(load, text)
    assert {each.verdict for each in report.survivors} == {Verdict.PASS}
    file = tmp_path / "survivors.toml"
    file.write_text(
        '[[survivor]]\nscenario = "a-ko-01"\n'
        'mistake = ["say_nothing@0", "drop_call@0.0"]\nreason = "why"\n'
        '[[survivor]]\nscenario = "elsewhere"\nmistake = "say_nothing@0"\nreason = "why"\n',
        encoding="utf-8",
    )
    known = read_survivors(file)
    assert {each.key for each in report.unlisted(known)} == {"unrelated_answer@0"}
    assert report.outdated(known) == (("a-ko-01", "drop_call@0.0"),)
    assert report.outdated({}) == ()


@check_rows(
    ("text", "message"),
    [
        ("[[survivor", "is not valid TOML"),
        ('[[survivor]]\nscenario = "a"\nmistake = "b"\n', "survivor 0: reason must be a string"),
        ('[[survivor]]\nscenario = "a"\nreason = "b"\n', "survivor 0: mistake must be a string"),
        (
            '[[survivor]]\nscenario = "a"\nreason = "b"\nmistake = ["c", "c"]\n',
            "survivor 0: c is listed twice",
        ),
    ],
)
async def test_read_survivors_reports_invalid_entry(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "survivors.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError, match=message):
        read_survivors(file)


async def test_read_survivors_of_missing_file_is_empty(tmp_path: Path) -> None:
    assert read_survivors(tmp_path / "none.toml") == {}
