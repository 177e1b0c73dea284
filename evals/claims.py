"""Measures the check of false claims on the labelled replies of `datasets/claims`.

    python evals/claims.py [--split dev|test|hard] [--errors]

Prints for each split and language precision and recall with 95 % intervals (Wilson), the four
counts, and how many of each kind of reply were judged right. `--errors` lists the mistakes. What
the lines mean stands in `datasets/claims/card.md`. A line that does not fit is refused with its
file and number, exit code 2.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lhkit.harness.claims.rules import Deed, Happened, false_claim
from lhkit.harness.shares import wilson

FOLDER = Path(__file__).parents[1] / "datasets" / "claims"
LEARNED = ("dev", "hard", "more")
"""What the learned scores learn from."""
SPLITS = (*LEARNED, "test")
LABELS = {"false_claim": True, "no_false_claim": False}
_FIELDS: Mapping[str, type] = {
    "id": str,
    "locale": str,
    "user": str,
    "happened": list,
    "reply": str,
    "label": str,
    "kind": str,
}
_CALL: Mapping[str, type] = {
    "turn": int,
    "tool": str,
    "writes": bool,
    "args": dict,
    "outcome": str,
}


class BadLineError(ValueError):
    """A line of the corpus does not fit; the message names file, line and field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A reply, what happened before it, and what people say of it."""

    id: str
    locale: str
    kind: str
    happened: Happened
    reply: str
    is_false: bool

    @property
    def found(self) -> str | None:
        """The words that the check takes for a false claim."""
        claim = false_claim(self.reply, self.happened)
        return None if claim is None else claim.words


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The four counts of a set of cases. `hits` are false claims that were found."""

    hits: int = 0
    missed: int = 0
    wrong: int = 0
    passed: int = 0

    @classmethod
    def of(cls, cases: Sequence[Case]) -> "Figures":
        """Return the counts of some cases."""
        counts = Counter((case.is_false, case.found is not None) for case in cases)
        return cls(
            hits=counts[True, True],
            missed=counts[True, False],
            wrong=counts[False, True],
            passed=counts[False, False],
        )

    @property
    def precision(self) -> tuple[int, int]:
        """How many of those found are false claims, and how many were found."""
        return self.hits, self.hits + self.wrong

    @property
    def recall(self) -> tuple[int, int]:
        """How many of the false claims were found, and how many there are."""
        return self.hits, self.hits + self.missed


def load(file: Path) -> tuple[Case, ...]:
    """Return the cases of a file, in order.

    Raises:
        BadLineError: a line is no case, or has the id of another.
        OSError: the file cannot be read.
    """
    cases: dict[str, Case] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            case = _case(json.loads(line))
        except (TypeError, ValueError) as error:
            raise BadLineError(f"{file}:{number}: {error}") from error
        if case.id in cases:
            raise BadLineError(f"{file}:{number}: id {case.id!r} is taken: give it another")
        cases[case.id] = case
    return tuple(cases.values())


def _case(raw: Any) -> Case:
    _check(raw, _FIELDS, "")
    if raw["label"] not in LABELS:
        raise ValueError(f"label is {raw['label']!r}: write {' or '.join(LABELS)}")
    for n, call in enumerate(raw["happened"]):
        _check(call, _CALL, f"happened[{n}].")
    deeds = [Deed(**{name: call[name] for name in _CALL}) for call in raw["happened"]]
    return Case(
        id=raw["id"],
        locale=raw["locale"],
        kind=raw["kind"],
        happened=Happened(said=[raw["user"]], deeds=deeds),
        reply=raw["reply"],
        is_false=LABELS[raw["label"]],
    )


def _check(raw: Any, fields: Mapping[str, type], where: str) -> None:
    if not isinstance(raw, dict):
        raise TypeError(f"{where or 'the line'} is no JSON object")
    for name, kind in fields.items():
        if type(raw.get(name)) is not kind:
            raise ValueError(f"{where}{name} is {raw.get(name)!r}: write a {kind.__name__}")


def table(split: str, cases: Sequence[Case]) -> Iterator[str]:
    """Yield the lines that say how well the check does on some cases."""
    for locale in (*sorted({case.locale for case in cases}), "all"):
        of = [case for case in cases if locale in (case.locale, "all")]
        figures = Figures.of(of)
        yield (
            f"{split:5}{locale:4} precision {_share(*figures.precision)}"
            f"  recall {_share(*figures.recall)}  found {figures.hits}, missed {figures.missed},"
            f" wrong {figures.wrong}, passed {figures.passed}"
        )
    for kind in sorted({case.kind for case in cases}):
        of = [case for case in cases if case.kind == kind]
        right = sum((case.found is not None) == case.is_false for case in of)
        yield f"{split:5}     {kind:18} {right:3} / {len(of)} right"


def _share(part: int, whole: int) -> str:
    if not whole:
        return "none"
    interval = wilson(part, whole)
    return f"{part / whole:6.1%} [{interval.low:.1%}, {interval.high:.1%}]"


def mistakes(cases: Sequence[Case]) -> Iterator[str]:
    """Yield a line for each case that was judged wrong."""
    for case in cases:
        if (case.found is not None) != case.is_false:
            told = "missed" if case.is_false else f"wrong ({case.found!r})"
            calls = ", ".join(f"{each.tool} {each.outcome}" for each in case.happened.deeds)
            said = case.happened.said[-1]
            yield f"{case.id} {case.kind} {told}: {said!r} [{calls}] {case.reply!r}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures and return the exit code: 2 where a file does not fit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--split", choices=SPLITS, help="only this one")
    parser.add_argument("--errors", action="store_true", help="list the mistakes, too")
    options = parser.parse_args(arguments)
    for split in [options.split] if options.split else SPLITS:
        try:
            cases = load(FOLDER / f"{split}.jsonl")
        except (BadLineError, OSError) as error:
            print(error, file=sys.stderr)
            return 2
        print(*table(split, cases), sep="\n")
        if options.errors:
            print(*mistakes(cases), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
