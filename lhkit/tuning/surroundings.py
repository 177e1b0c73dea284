"""What a training runs in, and what it tells while it goes on. Values only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from lhkit.locales import DEFAULT_LOCALE
from lhkit.tuning.needs import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """So many conversations are longer than the settings allow, and are not learnt from."""

    count: int
    most_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenCheckpoint:
    """The last checkpoint could not be read: the one before it, at `step`, is gone on from."""

    path: Path
    step: int


Notice: TypeAlias = LeftOut | BrokenCheckpoint
"""What a user should know, though the training goes on."""


def ignore(_notice: Notice) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a training runs in. By default this machine is looked at, and nobody is told.

    `facts` of the machine go into the manifest; `locale` is that of the curves' labels.
    """

    machine: Machine | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    locale: str = DEFAULT_LOCALE
    notify: Callable[[Notice], None] = ignore
