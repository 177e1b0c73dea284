"""Policies of approvals: what may run unasked is read strictly, and whatever is odd asks."""

import re
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.base.locales import load_catalog
from lhkit.confirm.decision import Approve, Edit, QuestionOutcome, Reject
from lhkit.confirm.form import DECLINED, Form, FormAnswer
from lhkit.confirm.gate import ConfirmRequest, GuardedGate, ScriptedGate
from lhkit.confirm.policy import (
    ApprovalPolicy,
    Measured,
    PolicyGate,
    ToolRule,
    policy_line,
    tool_sha256,
)
from tests.rows import check_rows

SCHEMA = {"type": "object", "properties": {"day": {"type": "string"}}}


def measured(**changes: Any) -> Measured:
    parts: dict[str, Any] = {
        "model": "gemma sha256:1",
        "prompt": "sha256:2",
        "tools": {name: tool_sha256(name, "Log a day.", SCHEMA) for name in ("log", "add")},
        "dialect": "functiongemma sha256:3",
        "constraint": "off",
        "code": "sha256:4",
    }
    return Measured(**{**parts, **changes})


def rule(kind: str = "run", **changes: Any) -> ToolRule:
    values: dict[str, Any] = {"proposed": 212, "wrong": 0, "scenarios": 180, "upper": 0.014}
    return ToolRule(**{"rule": kind, **values, **changes})


def policy(**tools: ToolRule) -> ApprovalPolicy:
    return ApprovalPolicy(
        risk=0.02,
        confidence=0.95,
        runs=("runs/gemma",),
        measured={"ko": measured()},
        tools=tools or {"log": rule(), "add": rule("ask", wrong=3, upper=0.131)},
    )


def request(tool: str = "log", **changes: Any) -> ConfirmRequest:
    values: dict[str, Any] = {"description": "Log a day.", "args": {}, "summary": "Log today"}
    return ConfirmRequest(**{"tool": tool, "parameters": SCHEMA, "id": "1", **values, **changes})


FULL = policy(log=rule(), swim=rule("ask"), add=rule("run_above", above=-0.05))


def test_policy_is_read_as_it_was_written(tmp_path: Path) -> None:
    odd = FULL.model_copy(
        update={"runs": ('a "b"\\\x7f\n', "실행"), "measured": {"ko": measured(), "en": measured()}}
    )
    odd.write(tmp_path / "approvals.toml")
    assert ApprovalPolicy.read(tmp_path / "approvals.toml") == odd


def test_policy_is_written_with_its_evidence_in_plain_tables() -> None:
    lines = FULL.toml().splitlines()
    expected = [
        "schema = 1",
        "risk = 0.02",
        'runs = ["runs/gemma"]',
        '[tools."log"]',
        'rule = "run"',
        "upper = 0.014",
        "above = -0.05",
        '[measured."ko"]',
        '[measured."ko".tools]',
    ]
    assert [line for line in expected if line not in lines] == []


TOML = FULL.toml()


def changed(old: str, new: str) -> str:
    assert TOML.count(old) >= 1, old
    return TOML.replace(old, new, 1)


ODD_FILES = {
    "empty": ("", "schema = 1 is missing"),
    "other file": ('[tool]\nname = "x"', "schema = 1 is missing"),
    "no TOML": ("risk = ", "not valid TOML"),
    "twice the same key": (TOML + "\n[tools.log]\nrule = 'run'", "not valid TOML"),
    "newer": (changed("schema = 1", "schema = 2"), "newer version"),
    "schema of another type": (changed("schema = 1", "schema = true"), "schema = 1 is missing"),
    "schema as text": (changed("schema = 1", 'schema = "1"'), "schema = 1 is missing"),
    "unknown key": (changed("risk = 0.02", "risk = 0.02\nrisks = 1"), "risks: unknown field"),
    "near key": (changed('rule = "run"', 'rule = "run"\nabov = 1'), "did you mean above?"),
    "no risk": (changed("risk = 0.02\n", ""), "risk: is required"),
    "risk of 0": (changed("risk = 0.02", "risk = 0.0"), "risk: Input should be greater than 0"),
    "risk of 1": (changed("risk = 0.02", "risk = 1"), "risk: Input should be less than 1"),
    "risk is nan": (changed("risk = 0.02", "risk = nan"), "risk: Input should be"),
    "risk as text": (changed("risk = 0.02", 'risk = "2%"'), "risk: Input should be a valid number"),
    "risk as bool": (changed("risk = 0.02", "risk = true"), "risk: Input should be a valid number"),
    "no runs": (changed('runs = ["runs/gemma"]', "runs = []"), "runs: "),
    "unknown rule": (changed('rule = "run"', 'rule = "allow"'), "tools.log.rule: Input should be"),
    "run with a threshold": (changed('rule = "run"', 'rule = "run"\nabove = -1'), "run_above"),
    "no threshold": (changed("above = -0.05\n", ""), "run_above"),
    "threshold is nan": (changed("above = -0.05", "above = nan"), "tools.add.above: "),
    "threshold is -inf": (changed("above = -0.05", "above = -inf"), "tools.add.above: "),
    "threshold above 0": (changed("above = -0.05", "above = 0.5"), "tools.add.above: "),
    "threshold as bool": (changed("above = -0.05", "above = false"), "tools.add.above: "),
    "upper is inf": (changed("upper = 0.014", "upper = inf"), "tools.log.upper: "),
    "upper above the risk": (changed("upper = 0.014", "upper = 0.3"), "at most the risk"),
    "no evidence": (changed("upper = 0.014\n", ""), "at most the risk"),
    "no scenarios": (changed("scenarios = 180", "scenarios = 0"), "needs scenarios"),
    "more wrong than proposed": (changed("wrong = 0", "wrong = 999"), "at most proposed"),
    "more scenarios than proposed": (changed("scenarios = 180", "scenarios = 213"), "at most prop"),
    "half a call": (changed("proposed = 212", "proposed = 0.5"), "tools.log.proposed: "),
    "negative": (changed("wrong = 0", "wrong = -1"), "tools.log.wrong: "),
    "rule for no tool": (TOML.replace('[tools."log"]', '[tools."lag"]'), "measured tools"),
    "no measurement": (TOML.partition("\n[measured")[0], "measured: is required"),
    "empty model": (changed('model = "gemma sha256:1"', 'model = ""'), "measured.ko.model: "),
    "no prompt": (changed('prompt = "sha256:2"\n', ""), "measured.ko.prompt: is required"),
    "empty constraint": (changed('constraint = "off"', 'constraint = ""'), "measured.ko.constrain"),
    "empty hash": (re.sub(r'(?m)^log = ".*"$', 'log = ""', TOML), "measured.ko.tools.log: "),
    "no tools": (TOML.partition('[measured."ko".tools]')[0], "measured.ko.tools: is required"),
    "rules as a list": (TOML.replace('[tools."log"]', '[[tools."log"]]'), "tools.log: "),
}


@check_rows(("text", "message"), ODD_FILES.values(), ids=ODD_FILES)
def test_policy_refuses_odd_files(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "approvals.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        ApprovalPolicy.read(file)
    assert str(file) in str(caught.value)
    assert message in str(caught.value)


def test_policy_refuses_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    for file in (tmp_path / "none.toml", tmp_path, tmp_path / "bytes.toml"):
        with pytest.raises(UsageError, match="cannot be read"):
            ApprovalPolicy.read(file)


pytestmark = pytest.mark.anyio

ASKED = Reject("no", how=QuestionOutcome.TYPED_NO)


async def runs(rules: ApprovalPolicy, asked: ConfirmRequest, front: Any = None) -> bool:
    """Return whether a call runs without a question."""
    inner = ScriptedGate([ASKED])
    gate = PolicyGate(rules, inner, measured() if front is None else front)
    decision = await gate.confirm(asked)
    is_policy = isinstance(decision, Approve) and decision.how is QuestionOutcome.POLICY
    assert is_policy is not bool(inner.asked)
    return is_policy


ABOVE = policy(log=rule("run_above", above=-0.05))
RULES = {
    "run": (policy(), request(), True),
    "ask": (policy(log=rule("ask"), add=rule()), request(), False),
    "unknown tool": (policy(), request("delete"), False),
    "another tool's name": (policy(), request("Log"), False),
    "tool that always asks": (policy(), request(always_ask=True), False),
    "asked again after an invalid edit": (policy(), request(error="no date"), False),
    "other description": (policy(), request(description="Log a day"), False),
    "other schema": (policy(), request(parameters={**SCHEMA, "title": "x"}), False),
    "schema that is not JSON": (policy(), request(parameters={"type": {1}}), False),
    "above": (ABOVE, request(logprob=-0.01), True),
    "at the threshold": (ABOVE, request(logprob=-0.05), False),
    "certain": (ABOVE, request(logprob=0.0), True),
    "below": (ABOVE, request(logprob=-0.06), False),
    "no log-probability": (ABOVE, request(), False),
    "nan": (ABOVE, request(logprob=float("nan")), False),
    "inf": (ABOVE, request(logprob=float("inf")), False),
    "-inf": (ABOVE, request(logprob=float("-inf")), False),
    "above 0": (ABOVE, request(logprob=0.7), False),
}


@check_rows(("rules", "asked", "expected"), RULES.values(), ids=RULES)
async def test_gate_runs_only_what_the_policy_lets_run(
    rules: ApprovalPolicy, asked: ConfirmRequest, expected: bool
) -> None:
    assert await runs(rules, asked) is expected


def failing() -> Measured:
    raise RuntimeError("the toolset's code")


async def test_gate_asks_without_knowing_what_is_in_front() -> None:
    assert not await runs(policy(), request(), lambda: None)
    assert not await runs(policy(), request(), failing)
    assert not await runs(policy(), request(), lambda: measured(constraint="auto"))
    assert await runs(policy(), request(), measured)


class Late:
    """A gate that fails or is late."""

    async def confirm(self, request: ConfirmRequest) -> bool:
        raise TimeoutError


ANSWERS = {
    "yes": (ScriptedGate([True]), False),
    "approved": (ScriptedGate([Approve(how=QuestionOutcome.TYPED_YES)]), False),
    "rejected": (ScriptedGate([False]), True),
    "edited": (ScriptedGate([Edit({"day": "x"})]), True),
    "contradiction": (ScriptedGate([Approve(how=QuestionOutcome.ESCAPE)]), True),
    "for another request": (ScriptedGate([Approve(binding="x")]), True),
    "failed": (GuardedGate(Late()), True),
}


@check_rows(("inner", "is_suspended"), ANSWERS.values(), ids=ANSWERS)
async def test_gate_asks_for_the_rest_of_the_conversation_after_a_no(
    inner: Any, is_suspended: bool
) -> None:
    gate = PolicyGate(policy(), inner, measured())
    assert (await gate.confirm(request())) == Approve(
        how=QuestionOutcome.POLICY, binding=request().binding
    )
    await gate.confirm(request("add"))
    assert gate.is_suspended is is_suspended
    gate.gate = ScriptedGate([ASKED])
    assert isinstance(await gate.confirm(request()), Reject if is_suspended else Approve)
    gate.begin()
    assert isinstance(await gate.confirm(request()), Approve)


async def test_gate_that_raises_suspends_the_policy() -> None:
    gate = PolicyGate(policy(), Late(), measured())
    with pytest.raises(TimeoutError):
        await gate.confirm(request("add"))
    assert gate.is_suspended


class Person(ScriptedGate):
    """A person, who declines forms unless told otherwise."""

    is_person = True

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        return DECLINED


async def test_gate_passes_questions_in_mid_call_on_to_the_person() -> None:
    gate = PolicyGate(policy(), Person([]), measured())
    assert gate.is_person
    assert GuardedGate(gate).is_person
    assert not PolicyGate(policy(), ScriptedGate([]), measured()).is_person
    assert (await GuardedGate(gate).fill_in(request(), Form(fields=()))) == DECLINED
    assert gate.is_suspended


LINES = {
    "runs": (policy(), measured(), "risk of at most 2%: log"),
    "threshold": (ABOVE, measured(), "log (log-probability above -0.05)"),
    "nothing": (policy(log=rule("ask")), measured(), "no tool runs without asking"),
    "unknown": (policy(), None, "does not apply"),
    "model": (policy(), measured(model="gemma sha256:x"), "another: model. Measure again"),
    "dialect": (policy(), measured(dialect="json sha256:3"), "another: dialect or template."),
    "prompt alone": (
        policy(),
        measured(prompt="x", dialect="functiongemma sha256:x"),
        "another: prompt.",
    ),
    "prompt and dialect": (
        policy(),
        measured(prompt="x", dialect="json sha256:x"),
        "another: prompt, dialect or template.",
    ),
    "tools": (policy(), measured(tools={"log": "x", "add": "y"}), "another: tools (log, add)."),
    "code": (policy(), measured(code=""), "another: code of the tools."),
}


@check_rows(("rules", "front", "words"), LINES.values(), ids=LINES)
def test_policy_line_says_what_runs_or_what_differs(
    rules: ApprovalPolicy, front: Measured | None, words: str
) -> None:
    line = policy_line(rules, front, load_catalog("en"), file="a.toml")
    assert line.startswith("a.toml")
    assert words in line
    assert policy_line(rules, front, load_catalog("ko")).startswith("승인 정책")


def test_policy_with_unknown_code_does_not_compare_it() -> None:
    assert measured(code="").differences(measured()) == ()
    assert measured().differences(measured(code="")) == ("code",)
