"""Does vLLM say what transformers says? Greedy tokens of both, on the same folder and prompts.

The prompts are the first turns of shipped `dev` scenarios, as the chat sends them. vLLM serves in
bf16; transformers runs in bf16 and in fp32. Two implementations sum in another order, so where the
two best tokens lie closer than the rounding of bf16, either may win: each first difference is shown
with that margin. Transformers' own two runs, compared with each other, are the yardstick.

    python evals/benchmarks/greedy_agreement.py [--model gemma] [--base-url http://127.0.0.1:8000]
"""

import argparse
import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lhkit import app
from lhkit.commands.progress import opened_model
from lhkit.harness.scenario import Scenario, load_scenarios
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.messages import Finished, Sampling, UserMessage
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.dialects.base import END_OF_TURN_ID, START_OF_TURN_ID
from lhkit.settings import Settings, load_settings
from lhkit.toolset import opened

RESULTS = Path(__file__).with_suffix(".md")
LOCALES = ("ko", "en")
MAX_TOKENS = 64
STOPS = frozenset({1, START_OF_TURN_ID, END_OF_TURN_ID})
END = -1
"""Stands for every way to end: an implementation may or may not hand out its stop token."""

LEGEND = (
    "A difference shows the first place (counted from 1), vLLM's token, transformers' token, how "
    "far ahead that is of the second (in logits), and the step of bf16 there."
)
PRECISIONS = ("bfloat16", "float32")
_BF16_BITS = 7  # after the leading one


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One greedy choice: the two best tokens and the logit of the first and second."""

    token: int
    runner_up: int
    logit: float
    second_logit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where served and reference tokens part: `at` counts from 0, `margin` is in logits."""

    at: int
    served: int
    reference: Step

    @property
    def margin(self) -> float:
        """How far the reference's best token is ahead of its second."""
        return self.reference.logit - self.reference.second_logit

    @property
    def is_rounding(self) -> bool:
        """True if the served token is the runner-up, within two steps of bf16 at this logit."""
        is_second = self.served == self.reference.runner_up
        return is_second and self.margin <= 2 * bf16_step(self.reference.logit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One prompt: what vLLM said, and what transformers said in each precision."""

    name: str
    prompt_tokens: int
    served: tuple[int, ...]
    references: Mapping[str, tuple[Step, ...]]

    def difference(self, precision: str) -> Difference | None:
        """Return where vLLM and transformers part, None if they do not."""
        return first_difference(self.served, self.references[precision])


def bf16_step(value: float) -> float:
    """Return the distance between neighbouring bf16 numbers at `value`."""
    if value == 0:
        return 0.0
    return math.ldexp(1.0, math.frexp(abs(value))[1] - 1 - _BF16_BITS)


def ended(tokens: Sequence[int], limit: int = MAX_TOKENS) -> tuple[int, ...]:
    """Return the tokens before the first stop, with one `END` if generation ended before `limit`.

    A stop as the last of `limit` tokens is an end, too.
    """
    kept = next((n for n, token in enumerate(tokens) if token in STOPS), len(tokens))
    return (*tokens[:kept], END) if kept < limit else tuple(tokens[:limit])


def first_difference(
    served: Sequence[int], reference: Sequence[Step], limit: int = MAX_TOKENS
) -> Difference | None:
    """Return where the tokens part, None if they are the same to the end."""
    theirs = ended(served, limit)
    ours = ended([step.token for step in reference], limit)
    for at, (one, other) in enumerate(zip(theirs, ours, strict=False)):
        if one != other:
            step = reference[at]
            stopped = one == END and step.runner_up in STOPS
            return Difference(at=at, served=step.runner_up if stopped else one, reference=step)
    return None


def chosen(scenarios: Sequence[Scenario], count: int) -> tuple[Scenario, ...]:
    """Return `count` scenarios, half of them in each language, spread evenly over the list."""
    found: list[Scenario] = []
    for locale in LOCALES:
        ours = [scenario for scenario in scenarios if scenario.locale == locale]
        wanted = count // len(LOCALES)
        found += [ours[n * len(ours) // wanted] for n in range(wanted)]
    return tuple(found)


def first_request(scenario: Scenario) -> ModelRequest:
    """Return what the chat sends at the first turn of a scenario, decoded greedily."""
    with opened(life_helper.LifeHelperToolset(), scenario.world, scenario.locale) as session:
        assistant, said = session.assistant, scenario.turns[0].user
        return ModelRequest(
            messages=(UserMessage(text=said, context=assistant.context(said)),),
            tools=session.registry.definitions,
            instructions=assistant.instructions,
            sampling=Sampling(max_tokens=MAX_TOKENS, temperature=0.0),
        )


async def served_answer(model: ChatModel, request: ModelRequest) -> Finished:
    """Return the whole response of the server."""
    async for event in model.stream(request):
        if isinstance(event, Finished):
            return event
    raise AssertionError("a stream ends with Finished or raises")


def reference_steps(folder: Path, precision: str, prompts: Sequence[Sequence[int]]) -> list[Any]:
    """Return what transformers chooses for each prompt, greedily, one prompt at a time."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, precision))
    found = []
    for prompt in prompts:
        tokens = torch.tensor([list(prompt)])
        with torch.inference_mode():
            told = model.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                do_sample=False,
                max_new_tokens=MAX_TOKENS,
                eos_token_id=sorted(STOPS),
                return_dict_in_generate=True,
                output_logits=True,
            )
        best = [logits[0].float().topk(2) for logits in told.logits]
        found.append(tuple(_step(top.indices.tolist(), top.values.tolist()) for top in best))
    return found


def _step(tokens: list[int], logits: list[float]) -> Step:
    (token, runner_up), (logit, second_logit) = tokens, logits
    return Step(token=token, runner_up=runner_up, logit=logit, second_logit=second_logit)


def report(rows: Sequence[Compared], told: str, words: Mapping[int, str]) -> str:
    """Return the page; `told` says what was compared, `words` are the texts of tokens."""
    heading = "| prompt | tokens in | tokens out | vLLM and bf16 | vLLM and fp32 |"
    return "\n".join(
        [
            "# Greedy agreement: vLLM beside transformers",
            "",
            f"{told} {len(rows)} first turns of `dev` scenarios, {MAX_TOKENS} tokens at most.",
            "",
            *(_sentence(rows, precision) for precision in PRECISIONS),
            _yardstick(rows),
            "",
            heading,
            "|---|---|---|---|---|",
            *(_row(row, words) for row in rows),
            "",
            LEGEND,
            "",
        ]
    )


def _sentence(rows: Sequence[Compared], precision: str) -> str:
    parted = [found for row in rows if (found := row.difference(precision)) is not None]
    rounding = sum(found.is_rounding for found in parted)
    same = len(rows) - len(parted)
    head = f"- vLLM and transformers in {precision}: **{same} of {len(rows)} token for token**"
    if not parted:
        return f"{head}."
    widest = max(found.margin for found in parted)
    return (
        f"{head}; differences: {len(parted)}, of which {rounding} take the runner-up within two "
        f"steps of bf16; the widest margin is {widest:.3f} logits."
    )


def _yardstick(rows: Sequence[Compared]) -> str:
    low, high = PRECISIONS
    same = sum(
        first_difference([step.token for step in row.references[low]], row.references[high]) is None
        for row in rows
    )
    return f"- Transformers with itself, {low} and {high}: {same} of {len(rows)}."


def _row(row: Compared, words: Mapping[int, str]) -> str:
    cells = [_cell(row.difference(precision), words) for precision in PRECISIONS]
    out = len([token for token in ended(row.served) if token != END])
    return f"| {row.name} | {row.prompt_tokens} | {out} | {' | '.join(cells)} |"


def _cell(found: Difference | None, words: Mapping[int, str]) -> str:
    if found is None:
        return "same"
    theirs, ours = (_word(token, words) for token in (found.served, found.reference.token))
    step = bf16_step(found.reference.logit)
    return f"{found.at + 1}: {theirs} / {ours}, {found.margin:.3f} ({step:.3f})"


def _word(token: int, words: Mapping[int, str]) -> str:
    text = "end" if token == END else words.get(token, str(token))
    return "`" + text.replace("|", "\\|").replace("`", "'").replace("\n", "⏎") + "`"


def _words(folder: Path, rows: Sequence[Compared]) -> dict[int, str]:
    from tokenizers import Tokenizer  # noqa: PLC0415 - heavy

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    differences = [row.difference(precision) for row in rows for precision in PRECISIONS]
    tokens = {
        token
        for found in differences
        if found is not None
        for token in (found.served, found.reference.token)
        if token != END
    }
    return {token: tokenizer.decode([token], skip_special_tokens=False) for token in tokens}


async def main(options: argparse.Namespace, settings: Settings) -> None:
    """Ask the server, then transformers; print and write the page."""
    scenarios = chosen(load_scenarios(scenario_paths("dev")), options.prompts)
    base_url = options.base_url or settings.base_url
    choice = app.ModelChoice(name=options.model, base_url=base_url)
    async with opened_model(choice, settings) as model:
        answers = [await served_answer(model, first_request(each)) for each in scenarios]
        identity = model.identity
    folder = options.weights or app.embedded_folder(app.embedded_name(options.model), settings)
    prompts = [answer.prompt_token_ids for answer in answers]
    runs = {
        precision: await asyncio.to_thread(reference_steps, folder, precision, prompts)
        for precision in PRECISIONS
    }
    rows = [
        Compared(
            name=scenario.id,
            prompt_tokens=len(answer.prompt_token_ids),
            served=answer.token_ids,
            references={precision: runs[precision][number] for precision in PRECISIONS},
        )
        for number, (scenario, answer) in enumerate(zip(scenarios, answers, strict=True))
    ]
    told = (
        f"`{identity.model}` ({folder.name}), {identity.server} in bf16 and transformers "
        f"{version('transformers')} (torch {version('torch')}) on the same folder."
    )
    text = report(rows, told, _words(folder, rows))
    print(text)
    await asyncio.to_thread(RESULTS.write_text, text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="gemma (default) or gemma-base; or the served name")
    parser.add_argument("--base-url", help="a running vLLM, instead of the embedded one")
    parser.add_argument("--weights", type=Path, help="the folder that it serves")
    parser.add_argument("--prompts", type=int, default=20)
    asyncio.run(main(parser.parse_args(), load_settings()))
