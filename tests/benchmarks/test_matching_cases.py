"""The calls that `match_calls` and BFCL's checker judge: are both given the same?"""

import pytest
from matching_cases import JUDGED, TIMED, TOOLS, Case, for_bfcl, for_lhkit

from lhkit.harness.matching import match_calls


@pytest.mark.parametrize("case", [*TIMED, *JUDGED], ids=lambda case: case.name)
def test_match_calls_is_right_about_every_case(case: Case) -> None:
    wanted, made = for_lhkit(case)
    assert match_calls(wanted, made, schemas=TOOLS).matched is case.is_right


@pytest.mark.parametrize("case", [*TIMED, *JUDGED], ids=lambda case: case.name)
def test_both_sides_get_the_same_calls_and_values(case: Case) -> None:
    wanted, made = for_lhkit(case)
    theirs = for_bfcl(case)
    assert theirs["model_output"] == [{call["tool"]: call["args"]} for call in made]
    ours = [
        {
            wish["tool"]: {
                name: value["one_of"] if isinstance(value, dict) else [value]
                for name, value in wish["args"].items()
            }
        }
        for wish in wanted
    ]
    assert theirs["possible_answer"] == ours


def test_bfcl_gets_the_types_by_its_own_names() -> None:
    case = next(case for case in TIMED if case.actual[0][0] == "log")
    (log,) = (f for f in for_bfcl(case)["func_description"] if f["name"] == "log")
    kinds = {name: p["type"] for name, p in log["parameters"]["properties"].items()}
    assert log["parameters"]["type"] == "dict"
    assert kinds == {"habit": "string", "amount": "float", "tags": "array", "done": "boolean"}
    assert log["parameters"]["properties"]["tags"]["items"] == {"type": "string"}
    assert log["parameters"]["required"] == ["habit", "amount", "tags", "done"]


def test_several_calls_are_parallel_in_any_order_for_bfcl_and_one_is_simple() -> None:
    kinds = {len(case.expected) > 1: for_bfcl(case)["test_category"] for case in TIMED}
    assert kinds == {True: "parallel", False: "simple"}
