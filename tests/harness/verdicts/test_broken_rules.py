"""A session that knows the rules of its domain is asked what became of the state."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from lhkit.harness.author.reference import gold_model
from lhkit.harness.record import BrokenRule, Severity, Verdict, decode_line, encode_record
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario

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


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("world", "broken"),
    [
        ("{}", ()),
        ("{notes: [{id: n, text: old}]}", (BrokenRule(code="r1_one", detail="2 notes"),)),
    ],
)
@pytest.mark.promise("eval.escaped")
async def test_a_broken_rule_stands_in_the_record_and_fails_it(
    load: Callable[[str], tuple[Scenario, ...]],
    toolset: Any,
    world: str,
    broken: tuple[BrokenRule, ...],
) -> None:
    scenarios = load(f"{ADD}  world: {world}\n")
    run = await replay(scenarios, gold_model, toolset=OneNoteOnly(toolset), progress=False)
    (record,) = run.records
    assert record.evidence.broken_rules == broken
    assert record.judgement.verdict is (Verdict.FAIL if broken else Verdict.PASS)
    assert [(each.code, each.severity) for each in record.judgement.violations] == [
        ("r1_one", Severity.ESCAPED) for _ in broken
    ]


@pytest.mark.anyio
async def test_a_session_without_rules_breaks_none(
    load: Callable[[str], tuple[Scenario, ...]], toolset: Any
) -> None:
    run = await replay(load(ADD), gold_model, toolset=toolset, progress=False)
    assert run.records[0].evidence.broken_rules == ()
    assert run.records[0].judgement.state_equal is True


@pytest.mark.anyio
@pytest.mark.parametrize("rule", [(1, "2 notes"), ("r1_one", None), ("r1_one", {"notes": 2})])
async def test_a_rule_that_is_not_told_in_words_is_one_sentence_in_a_record_that_is_read_again(
    load: Callable[[str], tuple[Scenario, ...]],
    toolset: Any,
    monkeypatch: pytest.MonkeyPatch,
    rule: Any,
) -> None:
    monkeypatch.setattr(RuledSession, "broken_rules", lambda *_: [rule])
    run = await replay(load(ADD), gold_model, toolset=OneNoteOnly(toolset), progress=False)
    (record,) = run.records
    assert record.judgement.verdict is Verdict.INVALID
    assert record.evidence.fault is not None
    assert record.evidence.fault.startswith("broken_rules(): ")
    assert "\n" not in record.evidence.fault
    assert decode_line(encode_record(record)) == record
