"""The name of a sample: its scenario, repeat and wording."""

import re
from dataclasses import dataclass

MAX_REPEATS = 10_000
"""The most repeats of a run: each repeat becomes a row in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleId:
    """The scenario, the repeat and the wording of a sample; both count from 0.

    As text they count from 1, and the first one has no number: `add-01`, `add-01#2` (second
    repeat), `add-01~2#2` (of the second wording).
    """

    scenario: str
    repeat: int = 0
    wording: int = 0

    @classmethod
    def parse(cls, text: str) -> "SampleId":
        """Parse `SCENARIO`, `SCENARIO#NUMBER` or `SCENARIO~NUMBER#NUMBER`.

        Raises:
            ValueError: a part after `~` or `#` is not a number from 1.
        """
        name, hash_, repeat = text.partition("#")
        scenario, tilde, wording = name.rstrip().partition("~")
        numbers = [*([repeat] if hash_ else []), *([wording] if tilde else [])]
        if not all(re.fullmatch(r"[1-9][0-9]{0,8}", number) for number in numbers):
            raise ValueError(f"Invalid sample name {text!r}: expected SCENARIO or SCENARIO#2.")
        return cls(scenario=scenario, repeat=int(repeat or 1) - 1, wording=int(wording or 1) - 1)

    @classmethod
    def from_name(cls, name: str) -> "SampleId":
        """Return the first sample with a `name`."""
        match = re.fullmatch(r"(.+)~([1-9][0-9]{0,8})", name, re.DOTALL)
        return cls(scenario=match[1], wording=int(match[2]) - 1) if match else cls(scenario=name)

    @property
    def name(self) -> str:
        """The name that its repeats share: the scenario in this wording."""
        return f"{self.scenario}~{self.wording + 1}" if self.wording else self.scenario

    def __str__(self) -> str:
        return f"{self.name}#{self.repeat + 1}" if self.repeat else self.name
