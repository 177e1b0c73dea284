"""What a soak did and what it found: counted, never printed twice."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that must not be, and how many seconds after the start it was seen."""

    at_s: float
    where: str
    what: str


@dataclass(slots=True, kw_only=True)
class Log:
    """Counts of deeds and of checks, peaks of memory in MiB, and the findings."""

    clock: Callable[[], float]
    show: Callable[[str], None]
    done: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    peaks_mib: dict[str, float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def did(self, what: str, count: int = 1) -> None:
        """Count a deed."""
        self.done[what] += count
        if count:
            self.show(f"{self.clock():7.0f} s  {what}")

    def held(self, law: str, faults: Iterable[str], *, where: str) -> None:
        """Count a check of `law`, and keep what it found."""
        self.checked[law] += 1
        for fault in faults:
            self.findings.append(Finding(at_s=self.clock(), where=where, what=f"{law}: {fault}"))
            self.show(f"{self.clock():7.0f} s  FOUND in {where}: {law}: {fault}")

    def weighed(self, whose: str, mib: float) -> None:
        """Keep the highest memory of one kind of process."""
        self.peaks_mib[whose] = max(mib, self.peaks_mib.get(whose, 0.0))
