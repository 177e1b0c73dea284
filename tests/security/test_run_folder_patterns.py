"""Hostile regular expressions in a run folder end with a result or an error."""

import json
from pathlib import Path
from typing import Any

import pytest

from lhkit.base import patterns
from lhkit.base.errors import UsageError
from lhkit.base.patterns import matches
from lhkit.chat import claims
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.results.results import Run
from lhkit.harness.running.rescore import rescore
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scoring.claim_model import History
from lhkit.harness.scoring.success_claims import find_success_phrase
from lhkit.notebook.boards.review import Review
from lhkit.tools.validation import ArgumentValidator, value_issue

pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(60)]

SCENARIOS = sorted(Path(__file__).parents[2].glob("datasets/ac/dev/*.yaml"))[0]  # one file
BOMB = "(a|aa)+$"
TEXT = "a" * 60 + "!"
ENDS = [BOMB, "^(a+)+$", "(?:a+)+$"]
"""The first is slow in `regex` too; the others only in `re`."""


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the limit of a search; one test waits for the real one."""
    monkeypatch.setattr(patterns, "SEARCH_CPU_S", 0.1)
    monkeypatch.setattr(claims, "_PATTERN_CPU_S", 0.1)


def schema(pattern: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": pattern}},
        "required": ["x"],
    }


def test_pattern_refuses_a_search_that_takes_too_long() -> None:
    with pytest.raises(UsageError, match=r"pattern '\(a\|aa\)\+\$' takes longer than 2 s"):
        matches(BOMB, TEXT)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("pattern", ENDS)
@pytest.mark.parametrize("key", ["pattern", "patternProperties", "additionalProperties"])
def test_validation_of_a_hostile_schema_ends(pattern: str, key: str) -> None:
    tested_schema = schema(pattern)
    args = {"x": TEXT}
    if key != "pattern":
        tested_schema = {
            "type": "object",
            "patternProperties": {pattern: {}},
            "additionalProperties": key == "patternProperties",
        }
        args = {TEXT: "x"}
    try:
        ArgumentValidator(tested_schema).check(args)
        value_issue(tested_schema, next(iter(args)), args[next(iter(args))])
    except UsageError as error:
        assert "takes longer" in str(error)  # noqa: PT017 - or it returns a result


@pytest.mark.parametrize("pattern", ["(", "\\p{Han}", "[[a]"])
def test_pattern_that_cannot_be_compiled_raises_nothing(pattern: str) -> None:
    assert matches(pattern, "漢") in {True, False}


@pytest.mark.usefixtures("short")
def test_success_words_refuses_claims_that_take_too_long() -> None:
    with pytest.raises(UsageError, match=r"takes? longer than 0.1 s"):
        find_success_phrase(f"I did it: {TEXT}", {"write": [BOMB]}, History())


@pytest.fixture
async def hostile(tmp_path: Path) -> Path:
    """Return a run whose manifest contains patterns that never end in `re`."""
    scenario = load_scenarios([SCENARIOS])[0]
    folder = tmp_path / "theirs"
    await replay([scenario], gold_model, run_dir=folder, progress=False)
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    for config in manifest["locales"].values():
        for tool in config["tools"]:
            if tool["destructive"]:
                tool["claims"] = {"ko": ["(?:a+)+$"], "en": ["(?:a+)+$"]}
        evil = {"name": "evil", "description": "", "destructive": False}
        config["tools"].append({**evil, "parameters": schema("^(a+)+$")})
    file.write_text(json.dumps(manifest))
    line = json.loads((folder / "records.jsonl").read_text())
    line["trajectory"]["turns"][0]["reply"] = TEXT
    (folder / "records.jsonl").write_text(json.dumps(line) + "\n")
    return folder


async def test_rescore_of_a_hostile_run_ends(hostile: Path) -> None:
    scenario = load_scenarios([SCENARIOS])[0]
    assert rescore(Run.load(hostile), [scenario]).records


@pytest.mark.usefixtures("short")
async def test_rescore_is_invalid_where_a_claim_takes_too_long(hostile: Path) -> None:
    file = hostile / "manifest.json"
    file.write_text(file.read_text().replace("(?:a+)+$", BOMB))
    scenario = load_scenarios([SCENARIOS])[0]
    (record,) = rescore(Run.load(hostile), [scenario]).records
    assert record.score.verdict is Verdict.INVALID
    assert "longer than 0.1 s" in record.score.reasons[0]


async def test_review_form_of_a_hostile_tool_ends(hostile: Path) -> None:
    review = Review(hostile, locale="en")
    while review.state.call is not None:
        review.judge("right")
    with pytest.raises(UsageError, match="evil"):
        review.judge("call_missing", tool="evil", args={"x": TEXT})
