"""Update the figures in the card of `datasets/ac` from its scenarios.

    python evals/ac_coverage.py [--check]

Writes the lines between the markers of `card.md`: scenarios by criterion and split, languages,
difficulty, and the checksum of the data. `--check` writes nothing and fails if they are outdated.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import DIFFICULTIES, Scenario

FOLDER = Path(__file__).parents[1] / "datasets" / "ac"
CARD = FOLDER / "card.md"
BEGIN, END = "<!-- figures: python evals/ac_coverage.py -->", "<!-- /figures -->"


def figures(splits: Mapping[str, Sequence[Scenario]]) -> str:
    """Return the card's lines: counts by criterion and split, and the checksum."""
    everything = [scenario for scenarios in splits.values() for scenario in scenarios]
    counts = Counter((item.ac, split) for split, scenarios in splits.items() for item in scenarios)
    criteria = {item.ac for item in everything if item.ac}
    lines = [f"| criterion | {' | '.join(splits)} | all |", "|---" * (len(splits) + 2) + "|"]
    for ac in sorted(criteria, key=lambda name: int(name.split("-")[1])):
        numbers = [counts[ac, split] for split in splits]
        lines.append(f"| {ac} | {' | '.join(map(str, numbers))} | {sum(numbers)} |")
    totals = [str(len(scenarios)) for scenarios in splits.values()]
    languages = sorted(Counter(item.locale for item in everything).items())
    difficulty = (
        f"{name} {sum(name in item.tags for item in everything)} ("
        + ", ".join(f"{s} {sum(name in item.tags for item in splits[s])}" for s in splits)
        + ")"
        for name in DIFFICULTIES
    )
    return "\n".join(
        [
            *lines,
            f"| all | {' | '.join(totals)} | {len(everything)} |",
            "",
            f"Languages: {', '.join(f'{name} {count}' for name, count in languages)}. "
            f"User turns: {sum(len(item.turns) for item in everything)}. "
            f"Difficulty: {', '.join(difficulty)}.",
            "",
            f"SHA-256 of the data: `{checksum(FOLDER)}`",
        ]
    )


def checksum(folder: Path) -> str:
    """Return the SHA-256 (hex) of the names and bytes of all scenario files in a folder.

    Files are hashed in order of their path, including line endings.
    """
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.suffix in {".yaml", ".toml"}):
        name, content = file.relative_to(folder).as_posix(), file.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def main() -> int:
    """Update or check the card; return the exit code."""
    folders = sorted(path for path in FOLDER.iterdir() if any(path.glob("*.yaml")))
    splits = {folder.name: load_scenarios([folder]) for folder in folders}
    card = CARD.read_text(encoding="utf-8")
    head, rest = card.split(BEGIN, 1)
    updated = f"{head}{BEGIN}\n{figures(splits)}\n{END}{rest.split(END, 1)[1]}"
    if "--check" in sys.argv[1:]:
        status = "up to date" if card == updated else "outdated: run python evals/ac_coverage.py"
        print(f"{CARD.name} is {status}")
        return int(card != updated)
    CARD.write_text(updated, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
