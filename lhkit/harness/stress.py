"""Stress: the same scenarios with more tools, in another order. One flag, seeded.

Wraps the toolset and the model, so that nothing else of the harness knows. The label stands in
the model's identity, so that it reaches the manifest, every record, and the content hash of every
sample.
"""

import random
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from lhkit.errors import UsageError
from lhkit.harness.plan import ModelSource
from lhkit.harness.scenario import Scenario
from lhkit.harness.tool_injection import MAX_DISTRACTORS, distractors
from lhkit.models.base import ChatModel, ModelRequest, PerConversation, ReadsAhead
from lhkit.responses import Finished, ModelEvent, ModelIdentity
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Session, Toolset, WrappedToolset


@dataclass(frozen=True, slots=True, kw_only=True)
class Stress:
    """What is made harder. `seed` chooses the order."""

    distractors: int = 0
    shuffle: bool = False
    seed: int = 0

    @property
    def label(self) -> str:
        """The same stress in words that `parse_stress` reads; empty if there is none."""
        words = [f"distractors={self.distractors}"] if self.distractors else []
        words += ["shuffle"] if self.shuffle else []
        words += [f"seed={self.seed}"] if words and self.seed else []
        return ",".join(words)


def parse_stress(text: str) -> Stress:
    """Return what `distractors=10,shuffle,seed=3` asks for; any part may be left out.

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
    if most is None and part == "shuffle":
        return True
    if most is not None and re.fullmatch(r"[0-9]{1,10}", number) and int(number) <= most:
        return int(number)
    raise UsageError(
        f"--stress has no part {part!r}: use distractors=N (at most {MAX_DISTRACTORS}), shuffle, "
        "seed=N, with commas between them"
    )


def stressed(source: ModelSource, toolset: Toolset, stress: Stress) -> tuple[ModelSource, Toolset]:
    """Return model and toolset under `stress`; the same ones if there is none."""
    if not stress.label:
        return source, toolset

    def maker(scenario: Scenario, registry: ToolRegistry) -> ChatModel:
        if callable(source):
            return _Labelled(source(scenario, registry), stress.label)
        if isinstance(source, PerConversation):
            return _Labelled(source.conversation(), stress.label)
        return _Shared(source, stress.label)

    return maker, _with_more_tools(toolset, stress)


class _Labelled:
    """A model whose identity tells the stress."""

    def __init__(self, inner: ChatModel, label: str) -> None:
        self._inner = inner
        self.identity: ModelIdentity = replace(inner.identity, stress=label)
        self.needs_isolation = getattr(inner, "needs_isolation", False)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the inner model's events."""
        async with aclosing(self._inner.stream(request)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    who = event.identity or self.identity  # of several servers the one it was
                    labelled = replace(who, stress=self.identity.stress)
                    yield replace(event, identity=labelled)
                else:
                    yield event

    async def warm(self, request: ModelRequest) -> None:
        """Have the prompt read, if the inner model can."""
        if isinstance(self._inner, ReadsAhead):
            await self._inner.warm(request)

    async def aclose(self) -> None:
        """Close the inner model."""
        await self._inner.aclose()


class _Shared(_Labelled):
    """The same over a model that other samples use too."""

    async def aclose(self) -> None:
        """Leave the model open: it is not ours."""


def _with_more_tools(toolset: Toolset, stress: Stress) -> Toolset:
    """Return a toolset that opens the same worlds with more tools, in another order."""
    known: dict[str, tuple[ToolRegistry, ToolRegistry]] = {}

    def registry(session: Session, locale: str) -> ToolRegistry:
        real = session.registry
        if locale not in known or known[locale][0] is not real:
            known[locale] = (real, _enlarged(real, locale, stress))
        return known[locale][1]

    return WrappedToolset(inner=toolset, registry=registry)


def _enlarged(real: ToolRegistry, locale: str, stress: Stress) -> ToolRegistry:
    added = distractors(stress.distractors, locale)
    taken = [tool.name for tool in added if tool.name in real]
    if taken:
        raise UsageError(f"--stress: there already is a tool {taken[0]!r}: use fewer distractors")
    tools = [*real.definitions, *added]
    if stress.shuffle:
        random.Random(f"order {stress.seed}").shuffle(tools)
    enlarged = ToolRegistry(tools)
    enlarged.follow(real)
    return enlarged
