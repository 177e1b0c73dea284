"""What the scorers make of models without weights, over the scenarios of datasets/ac.

Every scenario at night, every sixth by day. To record anew: `-m "" --record-contract`.

The models: the reference solution, one that says nothing, and one that calls every tool and says
that all is done.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lhkit

Recorded = Callable[[str, Any], Any]
SCENARIOS = Path(__file__).parents[2] / "datasets" / "ac"

SILENT = lhkit.ScriptedModel([])
CLAIMS = {
    "ko": "네, 확인하고 추가하고 기록했어요. 모두 완료했습니다!",
    "en": "Yes, I checked it, added it and logged it. It is all done!",
}
CALLS = (
    lhkit.ToolCall(name="list_habits", args={}),
    lhkit.ToolCall(name="search_catalog", args={"query": "sleep"}),
    lhkit.ToolCall(name="query_tracker", args={}),
    lhkit.ToolCall(name="query_protocol", args={"protocol_id": "caffeine-cutoff"}),
    lhkit.ToolCall(
        name="add_habit",
        args={
            "protocol_id": "caffeine-cutoff",
            "frame_level": "action",
            "framed_text": "I drink water after lunch",
            "anchor_when": "2 pm",
        },
    ),
)


def calls_everything(scenario: lhkit.Scenario, _: lhkit.ToolRegistry) -> lhkit.ScriptedModel:
    def reply(request: lhkit.ModelRequest) -> lhkit.Reply:
        if hasattr(request.messages[-1], "result"):
            return lhkit.Reply(text=CLAIMS[scenario.locale])
        return lhkit.Reply(calls=CALLS)

    return lhkit.ScriptedModel(reply)


def scores(run: lhkit.Run) -> dict[str, str]:
    """Return verdict, counts of calls, state and violations of each scenario, in one line.

    Without the flag of false success claims, whose detector is learned.
    """
    violations: dict[str, list[str]] = {}
    for row in run.violations.to_dict("records"):
        if row["code"] != "false_claim":
            name = f"{row['severity']}:{row['code']}"
            violations.setdefault(row["scenario"], []).append(name)
    return {
        row["scenario"]: " ".join(
            [
                row["verdict"],
                f"due={row['due_calls']} right={row['right_calls']} other={row['surplus_calls']}",
                f"state={'right' if row['state_equal'] else 'wrong'}",
                *sorted(violations.get(row["scenario"], [])),
            ]
        )
        for row in run.scenarios.to_dict("records")
    }


@pytest.mark.slow
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.nightly), 6])
@pytest.mark.parametrize(
    ("name", "model"),
    [("reference", lhkit.gold_model), ("silent", SILENT), ("calls_everything", calls_everything)],
)
def test_scores_of_a_model_without_weights_are_unchanged(
    recorded: Recorded, name: str, model: Any, every: int
) -> None:
    scenarios = lhkit.load_scenarios([SCENARIOS])[::every]
    present = scores(asyncio.run(lhkit.replay(scenarios, model, progress=False)))
    assert len(present) == len(scenarios) >= 240 / every
    known = recorded(f"scores_{name}", present, is_part=every > 1)
    assert present == {each.id: known[each.id] for each in scenarios}
    assert every > 1 or present.keys() == known.keys()
    if name == "reference":
        assert {row.split()[0] for row in present.values()} == {"pass"}
