"""Runs to report: one with all parts of a record, and one whose every text is hostile."""

import json
from dataclasses import fields, replace
from html.parser import HTMLParser
from typing import Any

from lhkit.base.locales import load_catalog
from lhkit.conversation.messages import GateOutcome, ToolCall
from lhkit.conversation.responses import ModelIdentity, Timing, Usage
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import (
    ArgumentScore,
    CallRecord,
    CallScore,
    SampleRecord,
    Severity,
    TableDiff,
    TurnScore,
    Verdict,
    Violation,
    decode_record,
    encode_record,
)
from lhkit.harness.results.results import Run
from tests.harness.build import model_call, sample, turn_of

GEMMA = ModelIdentity(
    model="gemma", server="vllm 0.32", base_url="http://127.0.0.1:8000", dialect="json"
)

KOREAN, ENGLISH = load_catalog("ko"), load_catalog("en")

ATTACK = (
    "</script><script>window.pwned=1</script>"
    '<img src=x onerror="window.pwned=2">\'" onmouseover=window.pwned=3 autofocus onfocus=x '
    "</noscript><svg onload=window.pwned=4></style></textarea></title><!--<script>"
    "{{ 7*7 }} ${window.pwned=5} [x](javascript:window.pwned=6) ``` ` | @octocat "
    "\u2028\u2029\u202e\u2066\x1b[31m\x00\x07\ud800\ufffe ]]> &lt;b&gt; "
)
"""A hostile text in one line."""

_TRUSTED_KEYS = {
    *("verdict", "severity", "ended", "gate", "started_at", "status", "schema", "locale")
}


CALL = CallRecord(
    tool="add_note",
    raw_args={"text": "우유 사기", "tag": "home"},
    args={"text": "우유 사기", "tag": "home"},
    extra_args=("colour",),
    result={"status": "ok", "result": {"id": "note-1"}},
    gate=GateOutcome.ACCEPTED,
    ran=True,
    destructive=True,
    validation_s=0.001,
    waiting_s=0.3,
    handler_s=0.004,
    raw_text='{"name": "add_note"}',
    model_call=0,
)
ARGUMENTS = (
    ArgumentScore(
        name="text",
        ok=False,
        expected={"matches": "우유"},
        actual="두유",
        reason="does not match 우유",
    ),
    ArgumentScore(name="count", ok=False, expected="1", actual=1, reason="text"),
    ArgumentScore(name="tag", ok=True, expected="home", actual="home"),
)
CALL_SCORES = (
    CallScore(
        expected=0, actual=0, tool="add_note", called="add_note", ok=False, arguments=ARGUMENTS
    ),
    CallScore(expected=1, tool="find_notes", optional=True, ok=True),
    CallScore(actual=1, called="delete_note", ok=False, reason="was not expected"),
)
RAW = '좋아요. {"name": "add_note", "arguments": {"text": "우유 사기",}}'
PARSED = ToolCall(
    name="add_note", args={"text": "우유 사기"}, raw="{…}", repairs=("trailing_comma",)
)


def full_record(scenario: str = "add-ko-01", repeat: int = 0, **changes: Any) -> SampleRecord:
    """Return a failed sample with every part of a record, with other values of some."""
    response = {
        "text": "좋아요.",
        "truncated": True,
        "usage": Usage(prompt_tokens=900, completion_tokens=40, cached_tokens=800),
        "timing": Timing(first_token_s=0.2, call_ready_s=0.8, last_token_s=0.85),
        "identity": GEMMA,
    }
    turn = turn_of(
        model_call(0.9, 0.001, raw_text=RAW, calls=(PARSED,), fragment='{"name": "add', **response),
        model_call(0.9, 0.001, raw_text="적었어요", **response),
        user="우유 사기라고 적어 줘",
        error="sentence",
        cause="ServerFailedError",
        detail="500",
        calls=(CALL, replace(CALL, model_call=None, gate=GateOutcome.REJECTED)),
        reply="적었어요",
        notice="대화가 길어졌어요",
        duration_s=2.5,
    )
    blocked = Violation(code="r7_framing", severity=Severity.ATTEMPTED, turn=0, detail="add_note")
    occurred = Violation(code="unconfirmed_write", severity=Severity.ESCAPED, detail="add_note {}")
    score = {
        "reasons": (
            "turn 0: add_note.text: does not match 우유",
            "turn 0: the reply has none of 'x'",
        ),
        "violations": (blocked, occurred),
        "turn_scores": (
            TurnScore(passed=False, due_calls=2, right_calls=1, surplus_calls=1, calls=CALL_SCORES),
        ),
    }
    tags = ("write", "chain")
    record = sample(scenario, Verdict.FAIL, repeat, turn, ac="AC-4", tags=tags, **score)
    trajectory = {
        "final_state": {"notes": ({"id": "note-1", "text": "두유"},)},
        "error": "an error",
    }
    record = replace(
        record,
        state_diff={"notes": TableDiff(added=({"id": "note-1"},), removed=({"id": "note-0"},))},
        wall_s=2.7,
        harness_s=0.02,
        started_at="2026-06-15T09:00:00+09:00",
        trajectory=replace(record.trajectory, **trajectory),
    )
    for part in ("score", "trajectory"):
        inner = getattr(record, part)
        own = {each.name for each in fields(inner)} & changes.keys()
        changes[part] = replace(inner, **{name: changes.pop(name) for name in own})
    return replace(record, **changes)


def poisoned(record: SampleRecord) -> SampleRecord:
    """Return a record with the hostile text in front of every text."""

    def poison(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: poison(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [poison(each, key) for each in value]
        is_trusted = key in _TRUSTED_KEYS or not isinstance(value, str)
        return value if is_trusted else ATTACK + value

    return decode_record(poison(json.loads(encode_record(record))))


def run_of(*records: SampleRecord, name: str = "gemma-json") -> Run:
    manifest = {
        "versions": {"python": "3.11.7", "lhkit": "0.1.0"},
        "git_commit": "0123abc",
        "hardware": {"system": "Linux", "cores": 2},
        "sampling": [{"max_tokens": 128, "temperature": 0.0, "seed": None}],
        "repeats": 1,
        "invocations": [{"started_at": "2026-06-15T09:00:00+09:00"}],
    }
    return Run(records=records, manifest=Manifest.model_validate(manifest), name=name)


class Parsed(HTMLParser):
    """What a reader without scripts gets from HTML: elements with attributes, and the words."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]

    @property
    def text(self) -> str:
        return " ".join(self.words)


FULL_RUN = run_of(
    full_record("pass-ko-01", verdict=Verdict.PASS, reasons=(), violations=(), error=None),
    full_record("invalid-ko-01", verdict=Verdict.INVALID, violations=(), ac="AC-10"),
    full_record("fail-ko-01"),
)
"""One pass, one fail and one invalid sample, failures last."""

HOSTILE_RUN = run_of(poisoned(full_record()), poisoned(full_record(verdict=Verdict.PASS, repeat=1)))
"""A run in which every text is an attack."""
