"""Policies of approvals: what may run unasked is read strictly, and whatever is odd asks."""

import re
from collections.abc import Callable
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
