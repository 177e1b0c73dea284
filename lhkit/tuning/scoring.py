"""Scoring a training while it goes on: what there is of it plays scenarios, by llama.cpp.

The base with the adapter in it becomes one quantised file, which is served for as long as it plays:
seconds to start, on the CPU, while the training waits. vLLM's figures are the reference; how far
the two agree is in `evals/baselines/runtimes.md`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from lhkit.errors import ModelError, ScenarioError
from lhkit.harness.log import Provenance
from lhkit.harness.plan import Plan, plan_run, sha256
from lhkit.harness.run import is_unanswered, replay
from lhkit.harness.scenario import Scenario, load_scenarios
from lhkit.models.base import ChatModel
from lhkit.models.http import Endpoint
from lhkit.models.light import AT_ONCE, LlamaCppServer, LlamaCppSettings, write_light
from lhkit.models.scripted import ScriptedModel
from lhkit.models.served import connect
from lhkit.models.weights import ADAPTER_WEIGHTS, file_sha256
from lhkit.runtimes import LLAMA_CPP
from lhkit.settings import REPLY_TOKENS, Settings, hardware
from lhkit.toolset import Toolset, limited
from lhkit.tuning import curves
from lhkit.tuning.adapter import MANIFEST
from lhkit.tuning.scores import Score, add_score, all_scores, shown_scores
from lhkit.tuning.train import ADAPTER, KEPT, read_log, stored

RUNS: Final = "scores"
"""Folder of the records: a run for each step, as of `lhkit eval`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSet:
    """Scenarios, the toolset that they are for, and a hash of all that is asked in them."""

    scenarios: tuple[Scenario, ...]
    toolset: Toolset
    sha256: str


def eval_set(paths: Sequence[Path], toolset: Toolset) -> EvalSet:
    """Read scenarios and open their worlds once; a message is as long as `lhkit eval` lets it be.

    Raises:
        ScenarioError: a file is wrong, or its scenarios do not fit the tools.
        UsageError: two scenarios have one id.
    """
    scenarios = load_scenarios(paths)
    toolset = limited(toolset, REPLY_TOKENS)
    plan = plan_run(scenarios, ScriptedModel([]), toolset, repeats=1)
    if faults := list(_unknown_tools(plan)):
        raise ScenarioError("\n".join(faults))
    asked = sha256([each.content_hash for each in plan.each_job()])
    return EvalSet(scenarios=scenarios, toolset=toolset, sha256=asked)


def _unknown_tools(plan: Plan) -> Iterator[str]:
    for scene in plan.scenes:
        known = {tool["name"] for tool in scene.told.tools}
        for place, tool in scene.scenario.calls_beyond(known):
            yield f"{place}: --toolset has no tool {tool!r}"


Serve: TypeAlias = Callable[
    [Path, Path | None, Path, Settings], AbstractAsyncContextManager[ChatModel]
]
"""Serves a base with an adapter, if there is one; files of its own lie at a place and end there."""


@asynccontextmanager
async def by_llama_cpp(
    base: Path, adapter: Path | None, place: Path, settings: Settings
) -> AsyncIterator[ChatModel]:
    """Yield a base with an adapter, quantised; its file is gone when the block ends.

    Raises:
        SetupError: llama.cpp is not installed or does not start, or the file cannot be written.
        ModelError: it cannot be reached.
    """
    name, file = place.name, place.with_suffix(".gguf")
    log = f"{name}-{LLAMA_CPP}-{settings.now():%Y%m%d-%H%M%S}.log"
    try:
        await write_light(base, file, adapter)
        plan = LlamaCppSettings(
            model=file,
            served_name=name,
            log_path=settings.cache_dir / "logs" / log,
            weights_sha256=await asyncio.to_thread(file_sha256, file),
        )
        async with LlamaCppServer(plan) as server:
            model = await connect(Endpoint(base_url=server.base_url, model=name))
            async with aclosing(model):
                yield model
    finally:
        file.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """A model on the way of a training. `adapter` None is the bare base."""

    step: int
    seconds: float
    adapter: Path | None
    adapter_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """Scores a training in `folder`, which began from `start` on `base`; tells each score.

    Args:
        asked: what it is scored on.
        base: folder of the base model.
        start: folder of the adapter that the training began from; None: none.
        folder: of the training; the scores and the records of what was played are put there.
        settings: of this process.
        tell: told of each score that is made.
        serve: yields a model while it plays.
    """

    asked: EvalSet
    base: Path
    start: Path | None
    folder: Path
    settings: Settings
    tell: Callable[[Score], None]
    serve: Serve = by_llama_cpp

    async def score_due(self) -> None:
        """Score what it began from, what was kept, and the end, where they have no score yet.

        An adapter that it began from comes first, a bare base last, when all is trained: that has
        not learnt to end a reply, and takes longer than all others. Before the first step it is
        served and asked nothing, so that a server that does not start is known at once. What was
        played of one that was broken off is not played again.

        Raises:
            SetupError: llama.cpp is not installed or does not start, or its file cannot be written.
            ModelError: the server failed, or nothing could be played.
            RunError: the folder of the records cannot be used.
            TuningError: the folder of the training cannot be used.
        """
        stages = await asyncio.to_thread(lambda: list(self._stages()))
        if not stages and not await asyncio.to_thread(self._is_begun):
            async with self.serve(self.base, None, await self._place(0), self.settings):
                pass
        for stage in stages:
            if stage.adapter_sha256 in self._scored():
                continue
            score = await self._score(stage)
            await asyncio.to_thread(self._keep, score)
            self.tell(score)

    def _is_begun(self) -> bool:
        return bool(read_log(self.folder) or all_scores(self.folder))

    def _scored(self) -> set[str]:
        made = all_scores(self.folder)
        return {each.adapter_sha256 for each in made if each.asked_sha256 == self.asked.sha256}

    def _stages(self) -> Iterator[_Stage]:
        if self.start is not None:
            yield _stage(0, 0.0, self.start)
        kept = sorted((self.folder / KEPT).glob("step-*"))
        for adapter, is_last in (*((each, False) for each in kept), (self.folder / ADAPTER, True)):
            if (path := adapter / MANIFEST).exists():
                told = json.loads(path.read_text(encoding="utf-8"))
                best = told.get("kept_step") if is_last else None  # patience chose an earlier one
                step = best or told["steps_done"]
                seconds = sum(row["seconds"] for row in read_log(self.folder)[:step])
                yield _stage(step, seconds, adapter)
                if is_last and self.start is None:
                    yield _stage(0, 0.0, None)

    async def _place(self, step: int) -> Path:
        """Return where the records of a step lie, the folder around it made."""
        place = self.folder / RUNS / f"step-{step:06}"
        await asyncio.to_thread(place.parent.mkdir, parents=True, exist_ok=True)
        return place

    async def _score(self, stage: _Stage) -> Score:
        place = await self._place(stage.step)
        async with self.serve(self.base, stage.adapter, place, self.settings) as model:
            run = await replay(
                self.asked.scenarios,
                model,
                toolset=self.asked.toolset,
                run_dir=place,
                concurrency=AT_ONCE,
                progress=False,
                provenance=Provenance(started_at=self.settings.now(), hardware=hardware()),
            )
            served_as = f"{model.identity.dtype}, {model.identity.server}"
        if unanswered := sum(map(is_unanswered, run.records)):
            raise ModelError(
                f"{unanswered} of the {len(self.asked.scenarios)} scenarios of --eval got no "
                f"answer from the server: give the same command again, or look into {run.folder}"
            )
        total = run.summary().total
        if not total.valid:
            raise ModelError(
                f"none of the {len(self.asked.scenarios)} scenarios of --eval could be played: "
                f"look into {run.folder}"
            )
        return Score(
            step=stage.step,
            seconds=stage.seconds,
            right_calls=total.right_calls,
            counted_calls=total.counted_calls,
            passed=total.passed,
            valid=total.valid,
            asked_sha256=self.asked.sha256,
            adapter_sha256=stage.adapter_sha256,
            served_as=served_as,
        )

    def _keep(self, score: Score) -> None:
        """Put a score beside the log, and into the picture where there is one."""
        add_score(self.folder, score)
        stored(self.folder, self._draw)

    def _draw(self) -> None:
        if log := read_log(self.folder):
            scores = shown_scores(self.folder)
            curves.save_curves(self.folder, log, scores=scores, locale=self.settings.locale)


def _stage(step: int, seconds: float, adapter: Path | None) -> _Stage:
    digest = "" if adapter is None else file_sha256(adapter / ADAPTER_WEIGHTS)
    return _Stage(step=step, seconds=seconds, adapter=adapter, adapter_sha256=digest)
