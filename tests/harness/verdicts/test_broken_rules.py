"""`broken_rules()` of a session: rules of the domain that the final state breaks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from lhkit.harness.record import BrokenRule, Severity, Verdict, decode_line, encode_record
from tests.harness.build import Load, Play

pytestmark = pytest.mark.anyio

ADD = """
- id: s
  ac: AC-1
  turns:
    - user: add milk
      confirm: accept
      expect: {calls: [{tool: add_note, args: {text: milk}}]}
  final: {notes: [{text: milk}]}
"""


@dataclass
class OneNoteOnly:
    """Opens sessions whose domain allows a single note."""

    inner: Any

    def open(self, world: Mapping[str, Any], locale: str) -> Any:
        return RuledSession(self.inner.open(world, locale))


@dataclass
class RuledSession:
    inner: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def broken_rules(
        self, before: Mapping[str, Sequence[Any]], after: Mapping[str, Sequence[Any]]
    ) -> list[tuple[str, str]]:
        count = len(after["notes"])
        return [("r1_one", f"{count} notes")] if count > max(1, len(before["notes"])) else []


@pytest.mark.parametrize(
    ("world", "broken"),
    [("{}", ()), ("{notes: [{id: n, text: old}]}", (BrokenRule(code="r1_one", detail="2 notes"),))],
)
@pytest.mark.promise("eval.escaped")
async def test_broken_rule_is_recorded_and_fails_the_sample(
    load: Load, toolset: Any, play: Play, world: str, broken: tuple[BrokenRule, ...]
) -> None:
    scenarios = load(f"{ADD}  world: {world}\n")
    run = await play(scenarios, toolset=OneNoteOnly(toolset))
    (record,) = run.records
    assert record.evidence.broken_rules == broken
    assert record.judgement.verdict is (Verdict.FAIL if broken else Verdict.PASS)
    assert [(each.code, each.severity) for each in record.judgement.violations] == [
        ("r1_one", Severity.ESCAPED) for _ in broken
    ]


async def test_session_without_broken_rules_records_none(
    load: Load, toolset: Any, play: Play
) -> None:
    run = await play(load(ADD), toolset=toolset)
    assert run.records[0].evidence.broken_rules == ()
    assert run.records[0].judgement.state_equal is True


@pytest.mark.parametrize("rule", [(1, "2 notes"), ("r1_one", None), ("r1_one", {"notes": 2})])
async def test_invalid_broken_rules_make_the_sample_invalid(
    load: Load, toolset: Any, play: Play, monkeypatch: pytest.MonkeyPatch, rule: Any
) -> None:
    monkeypatch.setattr(RuledSession, "broken_rules", lambda *_: [rule])
    run = await play(load(ADD), toolset=OneNoteOnly(toolset))
    (record,) = run.records
    assert record.judgement.verdict is Verdict.INVALID
    assert record.evidence.fault is not None
    assert record.evidence.fault.startswith("broken_rules() is invalid: ")
    assert "\n" not in record.evidence.fault
    assert decode_line(encode_record(record)) == record
