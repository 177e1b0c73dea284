"""Play reference and spoiled answers of an imported benchmark, and compare with its own checker.

    python evals/benchmarks/importers.py functionchat ~/FunctionChat-Bench
    python evals/benchmarks/importers.py tau2 ~/tau2-bench --every 5

Each item is answered with its reference, which must pass, and with one mistake at a time, which
must fail (tau2: unless it leads to the same data). `--own` also asks the benchmark's own checker,
where it needs no judge: `exact_match` of FunctionChat-Bench for calls, and tau2's evaluators of
state, assertions, actions and named texts.
Run it with a Python that has lhkit and the benchmark's requirements. Results are in
[importers.md](importers.md).
"""

import asyncio
import importlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, TypeAlias

import typer

from lhkit.conversation.messages import ToolCall
from lhkit.harness.authoring.examples import plausible_args
from lhkit.harness.authoring.reference import TurnTrace, reference_trajectory, trace_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.imports import functionchat, tau2
from lhkit.imports.decoding import decode_json
from lhkit.imports.importers import to_scenario
from lhkit.toolset import Session, Toolset, opened

Calls: TypeAlias = tuple[ToolCall, ...]
Checker: TypeAlias = Callable[[Calls, str], bool | None]
"""The benchmark's own verdict on some calls and a reply; None if it needs a judge."""

GOOD = ("reference", "acceptable argument")
_WORDS = "네"


def changed(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return [changed(value[0]), *value[1:]] if value else ["x"]
    return f"{value}x" if isinstance(value, str) else None


def answers(calls: Calls, session: Session, text: str) -> Iterator[tuple[str, Calls]]:
    """Yield the reference, and copies of it with one mistake, by kind.

    Where some tools write, only the writes are spoiled: reads do not change the final data.
    """
    yield "reference", calls
    made = {call.name for call in calls}
    others = [tool for tool in session.registry.definitions if tool.name not in made]
    spoiled = session.registry.destructive or made
    for i, call in enumerate(calls):
        if call.name not in spoiled:
            continue
        head, tail = calls[:i], calls[i + 1 :]
        yield "call removed", (*head, *tail)
        for name, value in call.args.items():
            args = {**call.args, name: changed(value)}
            yield "argument changed", (*head, replace(call, args=args), *tail)
        if others:
            yield "another tool", (*head, replace(call, name=others[0].name), *tail)
    for tool in others[:1] if not session.registry.destructive else ():
        args = plausible_args(tool, ids={}, text=text, today=session.today)
        yield (
            "call in addition to the right one" if calls else "call where none is due",
            (*calls, ToolCall(name=tool.name, args=args)),
        )


async def passes(scenario: Scenario, calls: Calls, reply: str, toolset: Toolset) -> bool:
    """Return lhkit's verdict on calls and a reply."""
    trace = TurnTrace(messages=(calls,) if calls else (), reply=reply)
    if scenario.tags[0] == "tau2":
        trace = TurnTrace(messages=tuple((call,) for call in calls), reply=reply)
    record = await run_sample(scenario, trace_model([trace], name="answer"), toolset)
    verdict = record.score.verdict
    if verdict is Verdict.INVALID:
        raise RuntimeError(f"{scenario.id}: {record.score.reasons}")
    return verdict is Verdict.PASS


def acceptable(item: functionchat.Item) -> Iterator[tuple[str, Calls]]:
    """Yield the answer with each of its acceptable arguments."""
    also = decode_json(item.acceptable)
    if isinstance(item.answer, ToolCall) and isinstance(also, Mapping):
        for name, values in also.items():
            for value in values if isinstance(values, list) else [values]:
                args = {**item.answer.args, name: value}
                yield "acceptable argument", (replace(item.answer, args=args),)


def functionchat_checker(item: functionchat.Item) -> Checker:
    """Return FunctionChat-Bench's own check of a call."""
    clients = SimpleNamespace(OpenaiModelAzureAPI=None, OpenaiModelAPI=None)  # ask no judge
    sys.modules.setdefault("src.api_executor", clients)  # type: ignore[arg-type]
    handler = importlib.import_module("src.evaluation_handler").EvaluationHandler

    def check(calls: Calls, _reply: str) -> bool | None:
        if not isinstance(item.answer, ToolCall):
            return None
        functions = [
            {"name": call.name, "arguments": json.dumps(call.args, ensure_ascii=False)}
            for call in (item.answer, *calls)
        ]
        question = {
            "type_of_output": "call",
            "ground_truth": functions[0],
            "acceptable_arguments": item.acceptable
            if isinstance(item.acceptable, str | None)
            else json.dumps(item.acceptable),
        }
        given = {"tool_calls": [{"function": function} for function in functions[1:]]}
        return bool(handler.exact_match(handler.__new__(handler), question, given)[0])

    return check


def tau2_checker(domain: tau2.Domain, task: tau2.Task) -> Checker:
    """Return tau2's own reward of a conversation, without assertions in words."""
    messages = importlib.import_module("tau2.data_model.message")
    env, words, actions = (
        importlib.import_module(f"tau2.evaluator.evaluator_{name}")
        for name in ("env", "communicate", "action")
    )

    def check(calls: Calls, reply: str) -> bool | None:
        environment = domain.create_environment(task)
        history = []
        for number, call in enumerate(calls):
            made = messages.ToolCall(id=str(number), name=call.name, arguments=dict(call.args))
            history.append(messages.AssistantMessage(role="assistant", tool_calls=[made]))
            history.append(environment.get_response(made))
        history.append(messages.AssistantMessage(role="assistant", content=reply))
        basis = {kind.value for kind in task.evaluation_criteria.reward_basis}
        reward = env.EnvironmentEvaluator.calculate_reward(
            domain.create, task, history, solo_mode=domain.is_solo
        ).reward
        if "COMMUNICATE" in basis:
            reward *= words.CommunicateEvaluator.calculate_reward(task, history).reward
        if "ACTION" in basis:
            reward *= actions.ActionEvaluator.calculate_reward(task, history).reward
        return bool(reward == 1)

    return check


def functionchat_items(
    path: Path, own: bool
) -> Iterator[tuple[Scenario, Toolset, Checker | None, Sequence[tuple[str, Calls]]]]:
    """Yield the items that are scored, with further answers that must pass."""
    sys.path.insert(0, str(path))
    toolset = functionchat.functionchat_toolset()
    for item in functionchat.read_items(path):
        if item.kind != "completion":
            checker = functionchat_checker(item) if own else None
            yield to_scenario(item.scenario([])), toolset, checker, list(acceptable(item))


def tau2_items(
    path: Path, own: bool
) -> Iterator[tuple[Scenario, Toolset, Checker | None, Sequence[tuple[str, Calls]]]]:
    """Yield the tasks of the split `test`, each with a write of the task before it."""
    for suite in tau2.import_tau2(path, split="test").suites:
        domain = tau2.read_domain(str(path.resolve()), suite.file)
        write: Calls = ()
        for data in suite.scenarios:
            scenario = to_scenario(data)
            calls = tuple(
                ToolCall(name=call.tool, args=dict(call.args))
                for call in scenario.turns[0].gold.calls or ()
            )
            further = [("call in addition to the right one", (*calls, *write))] if write else []
            write = tuple(c for c in calls if c.name in domain.registry.destructive)[:1] or write
            task = domain.tasks[data["world"]["task"][0]["id"]]
            checker = tau2_checker(domain, task) if own else None
            toolset = tau2.Tau2Toolset(str(path.resolve()), domain.name)
            yield scenario, toolset, checker, further


async def play(benchmark: str, path: Path, own: bool, every: int, seen: int) -> None:
    """Print how many answers of each kind passed, and how often both checkers agree."""
    items = {"functionchat": functionchat_items, "tau2": tau2_items}[benchmark](path, own)
    tried: Counter[tuple[str, str]] = Counter()
    passed: Counter[tuple[str, str]] = Counter()
    asked: Counter[tuple[str, str]] = Counter()
    agreed: Counter[tuple[str, str]] = Counter()
    for scenario, toolset, checker, further in list(items)[::every]:
        row = scenario.tags[1] if benchmark == "functionchat" else scenario.ac or ""
        with opened(toolset, scenario.world, scenario.locale) as session:
            reference = reference_trajectory(scenario, session.registry)[0]
            text = scenario.turns[0].user
            given = [*answers(reference.calls, session, text), *further]
        for kind, calls in given:
            reply = reference.reply or _WORDS
            verdict = await passes(scenario, calls, reply, toolset)
            tried[row, kind] += 1
            passed[row, kind] += verdict
            theirs = checker(calls, reply) if checker else None
            if theirs is not None:
                asked[row, kind] += 1
                agreed[row, kind] += theirs is verdict
            is_odd = verdict is not (kind in GOOD) or theirs not in (None, verdict)
            if is_odd and seen > 0:
                seen -= 1
                calls_text = [(call.name, call.args) for call in calls]
                typer.echo(
                    f"{scenario.id}: {kind}: {verdict}, own {theirs}: {calls_text}", err=True
                )
    typer.echo("| part | answer | played | passed | own checker agrees |\n|---|---|---|---|---|")
    for row, kind in tried:
        agreement = f"{agreed[row, kind]}/{asked[row, kind]}" if asked[row, kind] else "–"
        typer.echo(f"| {row} | {kind} | {tried[row, kind]} | {passed[row, kind]} | {agreement} |")


def main(
    benchmark: Annotated[str, typer.Argument(help="functionchat or tau2.")],
    path: Annotated[Path, typer.Argument(help="Its clone.")],
    own: Annotated[bool, typer.Option(help="Also ask the benchmark's own checker.")] = False,
    every: Annotated[int, typer.Option(min=1, help="Play each n-th item.")] = 1,
    show: Annotated[int, typer.Option(help="Show so many surprising verdicts.")] = 0,
) -> None:
    """Play the answers of one benchmark."""
    asyncio.run(play(benchmark, path, own, every, show))


if __name__ == "__main__":
    typer.run(main)
