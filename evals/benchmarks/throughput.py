"""Output tokens a second of lhkit's whole client path, beside vLLM's own serving benchmark.

lhkit plays conversations with the embedded Gemma as `lhkit eval` does: prompts rendered, the answer
streamed and parsed, its calls checked, asked for and run on a real store, all of it judged and
recorded. `vllm bench serve` then sends the very prompts to the same server, for answers of the very
lengths. A conversation has one request, so that both sides have the same list to work off and what
is left between them is the client.

    python evals/benchmarks/throughput.py

It serves the model itself and ends the server. At most six minutes.
"""

import argparse
import asyncio
import platform
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import figures
import serving_sides
from figures import Figure, Machine, Measurement, Plot
from serving_sides import Bench, Side

from lhkit import app, embedded
from lhkit.harness.loader import load_scenarios
from lhkit.harness.scenario import Scenario
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.models.base import ChatModel
from lhkit.models.served import connect
from lhkit.models.transport import Endpoint
from lhkit.models.vllm_server import ServerSettings, VllmServer
from lhkit.settings import Settings, load_settings

LEVELS = {1: 10, 8: 48, 16: 64, 32: 96}
"""Conversations at once, and how many in all."""

REHEARSAL = (16, 16)
"""Played first and not counted: what a server does only once is not to fall on either side."""

ROUNDS = 3
AT_MOST_S = 360.0
_ENDING_S = 20.0
GOAL_PERCENT = 95.0
DEV = {"VLLM_SERVER_DEV_MODE": "1"}
"""Opens vLLM's own door for emptying the prefix cache."""


PLOT = Plot(
    file="throughput.svg",
    alt=(
        "Output tokens a second over 1, 8, 16 and 32 conversations at once: lhkit's whole client "
        "path and vLLM's own serving benchmark on the same prompts and lengths."
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Both sides of one level in one round."""

    at_once: int
    ours: Side
    theirs: Side

    @property
    def percent(self) -> float:
        """What lhkit reaches of vLLM's output tokens a second."""
        return 100 * self.ours.tokens_per_s / self.theirs.tokens_per_s

    def require_same_work(self) -> None:
        """Refuse to compare what is not the same.

        Raises:
            AssertionError: the sides differ in requests or tokens.
        """
        work = [(s.requests, s.prompt_tokens, s.output_tokens) for s in (self.ours, self.theirs)]
        if work[0] != work[1]:
            raise AssertionError(
                f"{self.at_once} at once: requests, prompt and output tokens differ: {work}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """All that a level needs: the model, its server, the peer, and what is to be said."""

    model: ChatModel
    plan: ServerSettings
    peer: Bench
    scenarios: Sequence[Scenario]

    async def pair(self, at_once: int, count: int) -> Pair:
        """Let lhkit and then vLLM's benchmark work off `count` conversations, `at_once` at a time.

        Raises:
            AssertionError: a request failed, or the two did not do the same.
        """
        openings = serving_sides.openings(self.scenarios, count)
        await serving_sides.level_ground(self.model, openings)
        with tempfile.TemporaryDirectory() as name:
            ours, sent = await serving_sides.ours(self.model, openings, at_once, Path(name) / "run")
        await serving_sides.level_ground(self.model, openings)
        address = self.model.identity.base_url
        theirs = await serving_sides.theirs(self.peer, self.plan, address, sent, at_once)
        pair = Pair(at_once=at_once, ours=ours, theirs=theirs)
        pair.require_same_work()
        return pair

    async def rounds(self, until_s: float) -> list[Pair]:
        """Return the pairs of as many rounds as end before `until_s` of `time.perf_counter`.

        There is at least one.
        """
        pairs: list[Pair] = []
        await self.pair(*REHEARSAL)
        for _ in range(ROUNDS):
            began_s = time.perf_counter()
            pairs += [await self.pair(at_once, count) for at_once, count in LEVELS.items()]
            now_s = time.perf_counter()
            if now_s + 1.1 * (now_s - began_s) > until_s:
                break
        return pairs


def levels(pairs: Sequence[Pair]) -> dict[int, list[Pair]]:
    """Return the rounds of each level."""
    return {at_once: [p for p in pairs if p.at_once == at_once] for at_once in LEVELS}


def total(sides: Sequence[Side]) -> Side:
    """Return all rounds of a side as one; its first token is that of the slowest round."""
    return Side(
        requests=sum(side.requests for side in sides),
        prompt_tokens=sum(side.prompt_tokens for side in sides),
        output_tokens=sum(side.output_tokens for side in sides),
        seconds=sum(side.seconds for side in sides),
        first_token_s=max(side.first_token_s for side in sides),
    )


def totals(pairs: Sequence[Pair]) -> list[Pair]:
    """Return each level with all of its rounds as one."""
    return [
        Pair(
            at_once=at_once,
            ours=total([p.ours for p in rounds]),
            theirs=total([p.theirs for p in rounds]),
        )
        for at_once, rounds in levels(pairs).items()
    ]


def found(pairs: Sequence[Pair], versions: Mapping[str, str], machine: Machine) -> Measurement:
    """Return the figures: the share of vLLM's throughput at each level, and both throughputs."""
    told: list[Figure] = []
    for each in totals(pairs):
        at = f"{each.at_once} at once"
        rates = (("lhkit", each.ours), ("vLLM's benchmark", each.theirs))
        told += [
            Figure(
                what=f"output tokens a second, {at}: lhkit's share of vLLM's own benchmark",
                value=each.percent,
                unit="%",
                at_least=GOAL_PERCENT,
            ),
            *(
                Figure(what=f"{name}, {at}", value=side.tokens_per_s, unit="tokens/s")
                for name, side in rates
            ),
        ]
    return Measurement(
        title="Throughput: lhkit's client path beside `vllm bench serve`, on the embedded Gemma",
        command="python evals/benchmarks/throughput.py",
        versions={"Python": platform.python_version(), **versions},
        figures=tuple(told),
        machine=machine,
        notes=(
            "A conversation is a first user turn of a `dev` scenario, its answer, and the "
            "calls in it, in a world of its own. lhkit's seconds are those of the whole "
            "replay: worlds, prompts, streaming, parsing, the dispatcher with the real "
            "handlers, verdicts, records on disk. `vllm bench serve` then sends those prompts "
            "in that order, with `--max-concurrency`, and `--ignore-eos` makes each answer as "
            "long as lhkit's was; it does nothing with the text.",
        ),
        plots=(PLOT,),
    )


def draw(pairs: Sequence[Pair], folder: Path) -> None:
    """Write the plot."""
    import altair as alt

    rows = [
        {"at once": f"{each.at_once}", "tokens": side.tokens_per_s, "side": name}
        for each in totals(pairs)
        for name, side in (("lhkit", each.ours), ("vllm bench serve", each.theirs))
    ]
    chart = alt.Chart(alt.InlineData(values=rows)).mark_bar()
    chart = chart.encode(
        x=alt.X("at once:N", title="conversations at once", sort=None).axis(labelAngle=0),
        xOffset=alt.XOffset("side:N"),
        y=alt.Y("tokens:Q", title="output tokens a second"),
        color=alt.Color("side:N", title=None).legend(orient="bottom"),
    )
    chart.properties(width=420, height=240).configure(background="white").save(folder / PLOT.file)


async def measured(settings: Settings, until_s: float) -> tuple[list[Pair], str]:
    """Serve, measure, end the server; return the pairs and vLLM's version."""
    if await embedded.running_server(app.EMBEDDED, settings):
        raise SystemExit("a server is running already: end `lhkit serve` first")
    plan = await embedded.prepare_vllm(settings)
    plan = replace(plan, env={**plan.env, **DEV})
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        peer = await stack.enter_async_context(serving_sides.bench(plan, Path(folder)))
        server = await stack.enter_async_context(VllmServer(plan))
        version = (await peer.answer())["version"]
        model = await connect(Endpoint(base_url=server.base_url, model=plan.served_name))
        stack.push_async_callback(model.aclose)
        contest = Contest(
            model=model,
            plan=plan,
            peer=peer,
            scenarios=load_scenarios(scenario_paths("dev")),
        )
        return await contest.rounds(until_s), version


async def main() -> None:
    """Measure in the time there is, and write the figures."""
    machine = figures.this_machine()
    until_s = time.perf_counter() + AT_MOST_S - _ENDING_S
    async with asyncio.timeout(AT_MOST_S):
        pairs, version = await measured(load_settings(), until_s)
    measurement = found(pairs, {"vLLM": version}, machine)
    await asyncio.to_thread(draw, pairs, figures.HERE)
    figures.write("throughput", measurement)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    asyncio.run(main())
