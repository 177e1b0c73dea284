"""A finished (or interrupted) run as a value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lhkit.harness.metrics import Summary, summarise
from lhkit.harness.record import SampleRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The records of the samples that were asked for, in the order of the scenarios.

    `kept` of them were taken over from an earlier run of the same folder. `manifest` is what
    `manifest.json` says.
    """

    records: tuple[SampleRecord, ...]
    manifest: Mapping[str, Any]
    kept: int = 0

    def summary(self) -> Summary:
        """Return the run in numbers."""
        return summarise(self.records)
