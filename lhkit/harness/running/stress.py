"""Stress tests: the same scenarios with distractor tools, or with tools in another order.

Wraps the toolset and the model. The label is part of the model's identity, so that it reaches the
manifest, the records and the content hashes.
"""

import random
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.conversation.responses import Finished, ModelEvent, ModelIdentity
from lhkit.harness.running.plan import ModelSource
from lhkit.harness.running.tool_injection import MAX_DISTRACTORS, distractors
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.base import ChatModel, ModelRequest, SupportsWarmUp
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Session, Toolset, WrappedToolset


@dataclass(frozen=True, slots=True, kw_only=True)
class Stress:
    """The options of a stress test. `seed` is for the order of tools."""

    distractors: int = 0
    shuffle: bool = False
    seed: int = 0

    @property
    def label(self) -> str:
        """The text for `parse_stress`; empty without stress."""
        parts = [f"distractors={self.distractors}"] if self.distractors else []
        parts += ["shuffle"] if self.shuffle else []
        parts += [f"seed={self.seed}"] if parts and self.seed else []
        return ",".join(parts)


def parse_stress(text: str) -> Stress:
    """Parse a text such as `distractors=10,shuffle,seed=3`; every part is optional.

    Raises:
        UsageError: a part is unknown or repeated, or its number is out of range.
    """
    options: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, number = part.partition("=")
        if name in options:
            raise UsageError(f"--stress is invalid: it has {name} twice. Give it once.")
        options[name] = _parse_part(name, number, part)
    return Stress(**options)


def _parse_part(name: str, number: str, part: str) -> Any:
    most = {"distractors": MAX_DISTRACTORS, "seed": 2**32}.get(name)
    if most is None and part == "shuffle":
        return True
    if most is not None and re.fullmatch(r"[0-9]{1,10}", number) and int(number) <= most:
        return int(number)
    raise UsageError(
        f"--stress is invalid: unknown part {part!r}. Use distractors=N (at most "
        f"{MAX_DISTRACTORS}), shuffle, seed=N, joined by commas."
    )


def labelled(source: ModelSource, stress: Stress) -> ModelSource:
    """Return a model whose identity has the label of the stress."""
    if not stress.label:
        return source

    def create_model(scenario: Scenario, registry: ToolRegistry) -> ChatModel:
        if callable(source):
            return _Labelled(source(scenario, registry), stress.label)
        return _Shared(source, stress.label)

    return create_model


class _Labelled:
    """A model whose identity has the label of the stress."""

    def __init__(self, inner: ChatModel, label: str) -> None:
        self._inner = inner
        self.identity: ModelIdentity = replace(inner.identity, stress=label)
        self.needs_isolation = getattr(inner, "needs_isolation", False)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the inner model's events."""
        async with aclosing(self._inner.stream(request)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    identity = event.identity or self.identity
                    labelled = replace(identity, stress=self.identity.stress)
                    yield replace(event, identity=labelled)
                else:
                    yield event

    async def warm(self, request: ModelRequest) -> None:
        """Have the prompt cached, if the inner model can."""
        if isinstance(self._inner, SupportsWarmUp):
            await self._inner.warm(request)

    async def aclose(self) -> None:
        """Close the inner model."""
        await self._inner.aclose()


class _Shared(_Labelled):
    """A labelled model that several samples share."""

    async def aclose(self) -> None:
        """Leave the shared model open."""


def stressed(toolset: Toolset, stress: Stress) -> Toolset:
    """Return a toolset whose sessions have more tools, or tools in another order."""
    if not stress.label:
        return toolset
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
        raise UsageError(
            f"--stress: the toolset already has a tool {taken[0]!r}. Use fewer distractors."
        )
    tools = [*real.definitions, *added]
    if stress.shuffle:
        random.Random(f"order {stress.seed}").shuffle(tools)
    enlarged = ToolRegistry(tools)
    enlarged.follow(real)
    return enlarged
