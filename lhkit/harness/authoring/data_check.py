"""Is a set of scenarios fit to measure models with? Every check of the set, as one value.

Lint looks at one scenario at a time and `mutate` at its mistakes; here the set as a whole is held
to what its card promises: counts, languages, splits that do not leak into each other. Showing it
is the command's business.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lhkit.harness.authoring.lint import Finding, Level, lint
from lhkit.harness.authoring.mutate import ADVICE, MutationReport, Survivors, mutate
from lhkit.harness.expectations.similarity import NEAR, near_duplicates
from lhkit.harness.replay.environment import Environment
from lhkit.harness.scenarios.scenario import Sources
from lhkit.harness.scenarios.script import Scenario

_OF_GOLD = frozenset({"underivable", "gold", "final_state", "violation"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a set promises. Shares are percentages; a share of a language is (least, most)."""

    total: int = 240
    per_ac: int = 16
    acs: tuple[str, ...] = tuple(f"AC-{number}" for number in range(1, 13))
    noticed: float = 97.0
    near: float = NEAR
    locales: Mapping[str, tuple[float, float]] = field(default_factory=lambda: {"ko": (55, 75)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the result: a name from `CHECKS`, the figure, and what is wrong in words."""

    name: str
    ok: bool
    figure: str
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


CHECKS = ("lint", "gold", "silent", "bluff", "mutation", "survivors", "splits", "counts", "locales")


async def check_data(
    sources: Sources,
    environment: Environment,
    *,
    known: Survivors,
    requirements: Requirements | None = None,
) -> tuple[Check, ...]:
    """Return every check of `CHECKS`, in that order.

    Args:
        sources: all scenarios; the folder that a file lies in is its split.
        environment: what they are played in.
        known: mistakes that are known to go unnoticed.
        requirements: what the set promises.
    """
    wanted = requirements or Requirements()
    findings = await lint(sources, environment)
    unplayable = {each.scenario for each in findings if _stops_play(each)}
    fit = [each for each in sources.scenarios if each.id not in unplayable]
    report = await mutate(fit, environment)
    return (
        _lint_check(findings),
        *(_code_check(name, findings, codes, len(sources.scenarios)) for name, codes in _CODES),
        _mutation_check(report, wanted),
        _survivors_check(report, known, {each.id for each in sources.scenarios}),
        _splits_check(sources, wanted),
        _counts_check(sources.scenarios, wanted),
        _locales_check(sources.scenarios, wanted),
    )


def _stops_play(finding: Finding) -> bool:
    is_broken_tool = finding.code == "unknown_tool" and finding.field.startswith("faults")
    return is_broken_tool or finding.code == "world" or finding.code in _OF_GOLD


_CODES = (("gold", _OF_GOLD), ("silent", {"silent"}), ("bluff", {"bluff"}))


def _lint_check(findings: Sequence[Finding]) -> Check:
    errors = [str(each) for each in findings if each.level is Level.ERROR]
    warnings = [str(each) for each in findings if each.level is Level.WARNING]
    return Check(
        name="lint",
        ok=not errors,
        figure=f"{len(errors)} + {len(warnings)}",
        faults=tuple(errors),
        warnings=tuple(warnings),
    )


def _code_check(name: str, findings: Iterable[Finding], codes: Iterable[str], total: int) -> Check:
    hit = {each.scenario for each in findings if each.code in set(codes)}
    right = total - len(hit)
    return Check(name=name, ok=not hit, figure=f"{right} / {total}")


def _mutation_check(report: MutationReport, wanted: Requirements) -> Check:
    total = report.total
    return Check(
        name="mutation",
        ok=total.share >= wanted.noticed and not report.broken,
        figure=f"{total.noticed} / {total.tried} = {total.share:.1f}%",
        faults=tuple(f"{each.scenario} {each.key}: invalid" for each in report.broken),
    )


def _survivors_check(report: MutationReport, known: Survivors, ids: Collection[str]) -> Check:
    unlisted = report.unlisted(known)
    gone = [key for key in known.reasons if key[0] not in ids]
    outdated = [*report.outdated(known), *gone]
    return Check(
        name="survivors",
        ok=not unlisted and not outdated,
        figure=f"{len(report.survivors) - len(unlisted)} / {len(report.survivors)}",
        faults=(
            *(f"{e.scenario} {e.key}: {e.change} → {ADVICE[e.kind]}" for e in unlisted),
            *(f"{scenario} {key}: is listed, but no survivor" for scenario, key in outdated),
        ),
    )


def _splits_check(sources: Sources, wanted: Requirements) -> Check:
    texts = [" ".join(turn.user for turn in each.turns) for each in sources.scenarios]
    splits = [sources.origins[each.id].file.parent.name for each in sources.scenarios]
    faults: list[str] = []
    warnings: list[str] = []
    for i, j, likeness in near_duplicates(texts, least=wanted.near):
        first, second = sources.scenarios[i].id, sources.scenarios[j].id
        told = f"{splits[i]}/{first} ~ {splits[j]}/{second}: {likeness:.2f}"
        (faults if splits[i] != splits[j] else warnings).append(told)
    sizes = sorted(Counter(splits).items())
    return Check(
        name="splits",
        ok=not faults,
        figure=", ".join(f"{split} {count}" for split, count in sizes),
        faults=tuple(faults),
        warnings=tuple(warnings),
    )


def _counts_check(scenarios: Sequence[Scenario], wanted: Requirements) -> Check:
    counts = Counter(scenario.ac for scenario in scenarios)
    faults = [
        f"{ac}: {counts[ac]} < {wanted.per_ac}" for ac in wanted.acs if _few(counts, ac, wanted)
    ]
    if len(scenarios) < wanted.total:
        faults.append(f"{len(scenarios)} < {wanted.total}")
    faults += [f"{ac}: unknown" for ac in sorted(counts.keys() - set(wanted.acs))]
    least = min((counts[ac] for ac in wanted.acs), default=0)
    return Check(
        name="counts", ok=not faults, figure=f"{len(scenarios)}, ≥ {least}", faults=tuple(faults)
    )


def _few(counts: Mapping[str, int], ac: str, wanted: Requirements) -> bool:
    return counts.get(ac, 0) < wanted.per_ac


def _locales_check(scenarios: Sequence[Scenario], wanted: Requirements) -> Check:
    counts = Counter(scenario.locale for scenario in scenarios)
    shares = {name: 100 * count / len(scenarios) for name, count in sorted(counts.items())}
    faults = [
        f"{name}: {shares.get(name, 0.0):.0f}% ∉ {least:.0f}–{most:.0f}%"
        for name, (least, most) in wanted.locales.items()
        if not least <= shares.get(name, 0.0) <= most
    ]
    figure = ", ".join(f"{name} {share:.0f}%" for name, share in shares.items())
    return Check(name="locales", ok=not faults, figure=figure, faults=tuple(faults))


def checksum(folder: Path) -> str:
    """Return the SHA-256 (hex) of all scenario files in a folder: their names and their bytes.

    Files count in order of their path; line endings count, too.
    """
    digest = hashlib.sha256()
    for file in _data_files(folder):
        name, content = file.relative_to(folder).as_posix(), file.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _data_files(folder: Path) -> Iterator[Path]:
    yield from sorted(each for each in folder.rglob("*") if each.suffix in {".yaml", ".toml"})
