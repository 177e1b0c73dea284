"""Stress: the same scenarios with more tools, other names, another order. One flag, seeded.

Wraps the environment and the model, so that nothing else of the harness knows: dispatching,
matching, violations and records are in the real names. The label stands in the model's identity,
so that it reaches the manifest, every record, and the content hash of every sample.
"""

import random
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from lhkit.chat.controller import Assistant
from lhkit.errors import UsageError
from lhkit.harness.replay.disguise import Disguise, disguise
from lhkit.harness.replay.distractors import MAX_DISTRACTORS, distractors
from lhkit.harness.replay.environment import (
    Environment,
    SessionAround,
)
from lhkit.harness.replay.plan import ModelSource
from lhkit.harness.scenarios.script import Scenario
from lhkit.models.base import ChatModel, ModelRequest, ReadsAhead
from lhkit.tools.registry import ToolRegistry
from lhkit.vocab.generation import Finished, ModelEvent, ModelIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Stress:
    """What is made harder. `seed` chooses the names and the order."""

    distractors: int = 0
    rename: bool = False
    shuffle: bool = False
    seed: int = 0

    @property
    def label(self) -> str:
        """The same stress in words that `parse_stress` reads; empty if there is none."""
        words = [f"distractors={self.distractors}"] if self.distractors else []
        words += [name for name in ("rename", "shuffle") if getattr(self, name)]
        words += [f"seed={self.seed}"] if words and self.seed else []
        return ",".join(words)


def parse_stress(text: str) -> Stress:
    """Return what `distractors=10,rename,shuffle,seed=3` asks for; any part may be left out.

    Raises:
        UsageError: a part is unknown, twice there, or its number is out of range.
    """
    chosen: dict[str, Any] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, number = part.partition("=")
        if name in chosen:
            raise UsageError(f"--stress names {name} twice: name it once")
        chosen[name] = _setting(name, number, part)
    return Stress(**chosen)


def _setting(name: str, number: str, part: str) -> Any:
    most = {"distractors": MAX_DISTRACTORS, "seed": 2**32}.get(name)
    if most is None and part in {"rename", "shuffle"}:
        return True
    if most is not None and re.fullmatch(r"[0-9]{1,10}", number) and int(number) <= most:
        return int(number)
    raise UsageError(
        f"--stress has no part {part!r}: use distractors=N (at most {MAX_DISTRACTORS}), rename, "
        "shuffle, seed=N, with commas between them"
    )


def stressed(
    source: ModelSource, environment: Environment, stress: Stress
) -> tuple[ModelSource, Environment]:
    """Return model and environment under `stress`; the same ones if there is none.

    A maker of models (`gold_model`) knows the tools by their real names: what it says is put into
    the disguise first, and so goes the same way as a real model's words.
    """
    if not stress.label:
        return source, environment

    def maker(scenario: Scenario, registry: ToolRegistry) -> ChatModel:
        names = _names(registry, stress)
        if not callable(source):
            return _Shared(source, names, stress.label)
        knowing = source(scenario, registry)
        return _Disguised(_Disguised(knowing, names.inverse, stress.label), names, stress.label)

    return maker, StressedEnvironment(inner=environment, stress=stress)


def _names(registry: ToolRegistry, stress: Stress) -> Disguise:
    if not stress.rename:
        return Disguise(tools={}, arguments={})
    in_order = sorted(registry.definitions, key=lambda tool: tool.name)  # not as shuffled
    return disguise(in_order, stress.seed)


class _Disguised:
    """A model that sees other names than the application."""

    def __init__(self, inner: ChatModel, names: Disguise, label: str) -> None:
        self._inner = inner
        self._names = names
        self.identity: ModelIdentity = replace(inner.identity, stress=label)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the inner model's events, in the real names."""
        async with aclosing(self._inner.stream(self._names.request(request))) as events:
            async for event in events:
                told = self._names.event(event)
                if isinstance(told, Finished):
                    told = replace(told, identity=self.identity)
                yield told

    async def warm(self, request: ModelRequest) -> None:
        """Have the prompt read in the disguise, if the inner model can."""
        if isinstance(self._inner, ReadsAhead):
            await self._inner.warm(self._names.request(request))

    async def aclose(self) -> None:
        """Close the inner model."""
        await self._inner.aclose()


class _Shared(_Disguised):
    """The same over a model that other samples use too."""

    async def aclose(self) -> None:
        """Leave the model open: it is not ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StressedEnvironment:
    """Opens the inner environment's worlds with more tools, in another order."""

    inner: Environment
    stress: Stress
    _registries: dict[str, tuple[ToolRegistry, ToolRegistry]] = field(default_factory=dict)

    def open(self, world: Mapping[str, Any], locale: str) -> "StressedSession":
        """Return a session of the inner environment.

        Raises:
            UsageError: as the inner environment.
        """
        session = self.inner.open(world, locale)
        return StressedSession(inner=session, registry=self._registry(session.registry, locale))

    def _registry(self, real: ToolRegistry, locale: str) -> ToolRegistry:
        known = self._registries.get(locale)
        if known is None or known[0] is not real:
            known = self._registries[locale] = (real, _enlarged(real, locale, self.stress))
        return known[1]


def _enlarged(real: ToolRegistry, locale: str, stress: Stress) -> ToolRegistry:
    added = distractors(stress.distractors, locale)
    taken = [tool.name for tool in added if tool.name in real]
    if taken:
        raise UsageError(f"--stress: there already is a tool {taken[0]!r}: use fewer distractors")
    tools = [*real.definitions, *added]
    if stress.shuffle:
        random.Random(f"order {stress.seed}").shuffle(tools)  # noqa: S311 - an order, no secret
    return ToolRegistry(tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class StressedSession(SessionAround):
    """One world of the inner environment, with more tools."""

    registry: ToolRegistry

    @property
    def assistant(self) -> Assistant:
        """The inner session's; names in its instructions are the model wrapper's business."""
        return self.inner.assistant
