"""What the benchmark of greedy agreement calls a difference, and how it explains one."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lhkit.harness.scenario import load_scenarios
from lhkit.lifehelper.shipped import scenario_paths

SCRIPT = Path(__file__).parents[2] / "evals" / "benchmarks" / "greedy_agreement.py"
EOS, TURN_END = 1, 106


@pytest.fixture(scope="module")
def greedy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("greedy_agreement", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def steps(greedy: ModuleType, *tokens: int, margin: float = 1.0, runner_up: int = 9) -> Any:
    return tuple(
        greedy.Step(token=token, runner_up=runner_up, logit=20.0, second_logit=20.0 - margin)
        for token in tokens
    )


@pytest.mark.parametrize(
    ("served", "reference", "at"),
    [
        ((7, 8), (7, 8, TURN_END), None),  # one hands its stop token out, the other does not
        ((7, 8, EOS), (7, 8, TURN_END), None),
        ((7, 8, TURN_END, 5), (7, 8, TURN_END), None),
        ((7, 8, 3, 4), (7, 8, 3, 4), None),
        ((7, 8, 3, TURN_END), (7, 8, 3, TURN_END), None),
        ((7, 8, 3, TURN_END), (7, 8, 3, 4), 3),
        ((7, 3, 3, 4), (7, 8, 3, 4), 1),
        ((7,), (7, 8, 3, 4), 1),
        ((7, 8, 3, 4), (7, TURN_END), 1),
        ((), (7, TURN_END), 0),
    ],
)
def test_tokens_part_at_the_first_that_differs_and_an_end_is_an_end(
    greedy: ModuleType, served: tuple[int, ...], reference: tuple[int, ...], at: int | None
) -> None:
    found = greedy.first_difference(served, steps(greedy, *reference), limit=4)
    assert (found.at if found else None) == at


@pytest.mark.parametrize(
    ("value", "step"), [(1.0, 2**-7), (1.99, 2**-7), (20.0, 0.125), (-20.0, 0.125), (0.0, 0.0)]
)
def test_a_bf16_step_is_the_distance_to_the_next_bf16_number(
    greedy: ModuleType, value: float, step: float
) -> None:
    import torch

    assert greedy.bf16_step(value) == step
    if value:
        near = torch.tensor(value).bfloat16()
        assert float((near.float().abs() + step).bfloat16()) == float(near.abs()) + step
        assert float((near.float().abs() + step / 3).bfloat16()) == float(near.abs())


@pytest.mark.parametrize(
    ("served", "margin", "runner_up", "is_rounding"),
    [
        (9, 0.0, 9, True),
        (9, 0.25, 9, True),
        (9, 0.26, 9, False),
        (5, 0.0, 9, False),
        (TURN_END, 0.125, TURN_END, True),
    ],
)
def test_only_a_close_runner_up_is_rounding(
    greedy: ModuleType, served: int, margin: float, runner_up: int, *, is_rounding: bool
) -> None:
    reference = steps(greedy, 7, 8, margin=margin, runner_up=runner_up)
    found = greedy.first_difference((7, served), reference, limit=4)
    assert found.margin == pytest.approx(margin)
    assert found.is_rounding == is_rounding


def test_the_page_counts_what_agrees_and_shows_what_does_not(greedy: ModuleType) -> None:
    same = steps(greedy, 7, TURN_END)
    near = steps(greedy, 7, 8, TURN_END, margin=0.125)
    rows = [
        greedy.Compared(
            name="a", prompt_tokens=5, served=(7,), references={"bfloat16": same, "float32": same}
        ),
        greedy.Compared(
            name="b", prompt_tokens=6, served=(7, 9), references={"bfloat16": near, "float32": near}
        ),
    ]
    page = greedy.report(rows, "Told.", {8: "여덟", 9: "a|b"})
    assert "vLLM and transformers in bfloat16: **1 of 2 token for token**" in page
    assert "differences: 1, of which 1 take the runner-up within two steps of bf16" in page
    assert "the widest margin is 0.125 logits" in page
    assert "Transformers with itself, bfloat16 and float32: 2 of 2." in page
    assert "| a | 5 | 1 | same | same |" in page
    assert "2: `a\\|b` / `여덟`, 0.125 (0.125)" in page


def test_the_prompts_are_of_both_languages_and_as_the_chat_sends_them(greedy: ModuleType) -> None:
    found = greedy.chosen(load_scenarios(scenario_paths("dev")), 20)
    assert [each.locale for each in found] == ["ko"] * 10 + ["en"] * 10
    assert len({each.id for each in found}) == 20
    assert len({each.ac for each in found}) >= 6
    request = greedy.first_request(found[0])
    assert request.messages[0].text == found[0].turns[0].user
    assert request.messages[0].context.startswith("[오늘: ")
    assert "life-helper" in request.instructions
    assert request.sampling.temperature == 0
    assert len(request.tools) == 6


def test_transformers_choices_are_its_best_tokens_with_their_margins(
    greedy: ModuleType, tiny_gemma: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    prompts = [[2, 4, 7, 9], [2, 4, 11]]
    found = greedy.reference_steps(tiny_gemma, "float32", prompts)
    model = AutoModelForCausalLM.from_pretrained(tiny_gemma, dtype=torch.float32)
    for prompt, chosen in zip(prompts, found, strict=True):
        tokens = [*prompt, *(step.token for step in chosen)]
        with torch.inference_mode():
            logits = model(torch.tensor([tokens])).logits[0, len(prompt) - 1 : -1]
        best = logits.topk(2)
        assert [step.token for step in chosen] == best.indices[:, 0].tolist()
        assert [step.runner_up for step in chosen] == best.indices[:, 1].tolist()
        margins = [step.logit - step.second_logit for step in chosen]
        assert margins == pytest.approx((best.values[:, 0] - best.values[:, 1]).tolist(), abs=1e-4)
