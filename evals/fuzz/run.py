"""Fuzz one target with atheris: `python evals/fuzz/run.py TARGET [SECONDS]`.

atheris is no dependency of lhkit: `pip install atheris` first. What is found new lands in
`evals/fuzz/corpus/TARGET`; a crash stops the run and is written beside it as `crash-…`. Keep
both: `tests/fuzz` replays them.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["lhkit", "targets", "edits", "markdown_it", "mdurl"]):
    from targets import TARGETS

_CORPUS = Path(__file__).parent / "corpus"
_MAX_BYTES = 12_000


def main(name: str, seconds: str = "120") -> None:
    """Fuzz for some seconds."""
    folder = _CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    options = [
        sys.argv[0],
        str(folder),
        f"-max_total_time={seconds}",
        f"-max_len={_MAX_BYTES}",
        "-timeout=20",
        f"-artifact_prefix={folder}/",
    ]
    atheris.Setup(options, TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
